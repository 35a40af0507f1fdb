//! Asynchronous events: ports that go down and come back, queue pairs that a peer broke, completion queues that ran over.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use super::devices::object;
use super::queues::{by_cookie, read_record};
use crate::abi::{self, AsyncEvent, Context};

/// Waits for the next event (unless the descriptor is set not to).
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_get_async_event(context: *mut Context, event: *mut AsyncEvent) -> c_int {
    // SAFETY: an open context. Programs leave a thread in here for ever; the descriptor stays open with the context.
    let opened = unsafe { object(context) };
    loop {
        let Some([kind, element]) = read_record(opened.events.as_raw_fd()) else { return -1 };
        let event_type = kind as u32;
        let element = match event_type {
            abi::IBV_EVENT_CQ_ERR => by_cookie(element).expose_provenance() as u64,
            abi::IBV_EVENT_QP_FATAL | abi::IBV_EVENT_QP_REQ_ERR | abi::IBV_EVENT_QP_ACCESS_ERR => {
                let pair = opened.fabric.progress.pair(element as u32);
                pair.map_or(0, |pair| pair.public.load(Ordering::Acquire).expose_provenance() as u64)
            }
            // The number of the port, of which a device has one.
            _ => 1,
        };
        // Of an object destroyed meanwhile nothing is told.
        if element != 0 {
            // SAFETY: `event` is the caller's to fill.
            unsafe { event.write(AsyncEvent { element, event_type }) };
            return 0;
        }
    }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_ack_async_event(_event: *mut AsyncEvent) {}
