//! Completion queues and completion channels.

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use super::devices::{MAX_CQE, object};
use super::{minus_one, null};
use crate::abi::{CompChannel, Context, Cq, Wc};
use crate::engine::Fabric;
use crate::engine::completions::{ARMED_ANY, ARMED_SOLICITED, cookie};
use crate::shared::layout::CqCell;
use crate::shared::rings::is_empty;
use crate::wake;

/// A completion queue with what the program does not see.
#[repr(C)]
pub(super) struct CqObject {
    /// Programs count acknowledged events in it.
    public: UnsafeCell<Cq>,
    fabric: &'static Fabric,
    cell: &'static CqCell,
    pub(super) slot: u32,
    /// Empty polls in a row.
    idle: AtomicU32,
}

/// Empty polls in a row after which a poll lets others run: where nodes outnumber cores, the peer may be waiting for this one.
const PATIENT_POLLS: u32 = 256;

/// Addresses of the queues of this process by their cookie: events name queues by it.
static QUEUES: Mutex<Option<HashMap<u64, usize>>> = Mutex::new(None);

fn with_queues<T>(work: impl FnOnce(&mut HashMap<u64, usize>) -> T) -> T {
    work(QUEUES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(HashMap::new))
}

/// The queue of a cookie, null if it is gone.
pub(super) fn by_cookie(cookie: u64) -> *mut Cq {
    let address = with_queues(|queues| queues.get(&cookie).copied());
    address.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
}

/// The object of a queue.
///
/// # Safety
/// `cq` came from [`ibv_create_cq`] and is not destroyed.
pub(super) unsafe fn cq_object<'a>(cq: *mut Cq) -> &'a CqObject {
    // SAFETY: the public struct is the first field of the object.
    unsafe { &*cq.cast::<CqObject>() }
}

impl CqObject {
    fn cookie(&self) -> u64 {
        cookie(self.slot, self.cell.generation.load(Ordering::Relaxed))
    }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut CompChannel,
    vector: c_int,
) -> *mut Cq {
    let Some(entries) = u32::try_from(cqe).ok().filter(|&cqe| (1..=MAX_CQE).contains(&cqe)) else {
        return null(libc::EINVAL);
    };
    if vector != 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: an open context.
    let opened = unsafe { object(context) };
    let capacity = entries.next_power_of_two();
    let Some((slot, cell)) = opened.fabric.shared.take_cq(capacity) else { return null(libc::ENOMEM) };
    cell.port.store(opened.port as u32, Ordering::Relaxed);
    cell.events.store(opened.fifo, Ordering::Relaxed);
    if !channel.is_null() {
        // SAFETY: a live channel of ours.
        unsafe {
            cell.fifo.store((*channel.cast::<ChannelObject>()).fifo, Ordering::Relaxed);
            (*channel).refcnt += 1;
        }
    }
    let public = Cq {
        context,
        channel,
        cq_context,
        handle: slot,
        cqe: capacity as c_int,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let made = Box::new(CqObject {
        public: UnsafeCell::new(public),
        fabric: opened.fabric,
        cell,
        slot,
        idle: AtomicU32::new(0),
    });
    let cookie = made.cookie();
    let made = Box::into_raw(made);
    with_queues(|queues| queues.insert(cookie, made.expose_provenance()));
    made.cast()
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut Cq) -> c_int {
    // SAFETY: by contract a live queue that no queue pair and no other thread uses any more.
    let mut made = unsafe { Box::from_raw(cq.cast::<CqObject>()) };
    with_queues(|queues| queues.remove(&made.cookie()));
    let channel = made.public.get_mut().channel;
    if !channel.is_null() {
        // SAFETY: channels outlive their queues.
        unsafe { (*channel).refcnt -= 1 };
    }
    made.cell.fifo.store(0, Ordering::Relaxed);
    made.fabric.shared.free_cq(made.cell);
    0
}

/// Takes up to `most` completions; an empty queue costs a few loads and no lock.
pub(super) unsafe extern "C" fn poll_cq(cq: *mut Cq, most: c_int, to: *mut Wc) -> c_int {
    // SAFETY: a live queue.
    let made = unsafe { cq_object(cq) };
    if is_empty(&made.cell.head, &made.cell.tail) {
        made.fabric.progress.polled(made.slot);
        if is_empty(&made.cell.head, &made.cell.tail) {
            let idle = made.idle.load(Ordering::Relaxed).wrapping_add(1);
            made.idle.store(idle, Ordering::Relaxed);
            if idle.is_multiple_of(PATIENT_POLLS) {
                std::thread::yield_now();
            }
            return 0;
        }
    }
    made.idle.store(0, Ordering::Relaxed);
    let _held = made.cell.pop.lock();
    let mut count = 0;
    while count < most {
        let Some(entry) = made.fabric.shared.pop_completion(made.cell) else { break };
        if made.fabric.plan.strict && entry.posted != 0 {
            // Only now are the slots of this request and of the unsignalled ones before it free.
            if let Some(pair) = made.fabric.progress.pair(entry.wc.qp_num) {
                pair.freed.fetch_max(entry.posted, Ordering::Release);
            }
        }
        // SAFETY: the caller has room for `most` entries.
        unsafe { to.add(count as usize).write(entry.wc) };
        count += 1;
    }
    count
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, solicited_only: c_int) -> c_int {
    // SAFETY: a live queue.
    let made = unsafe { cq_object(cq) };
    let armed = if solicited_only != 0 { ARMED_SOLICITED } else { ARMED_ANY };
    made.cell.armed.fetch_max(armed, Ordering::SeqCst);
    // The program looks once more for completions after this.
    fence(Ordering::SeqCst);
    0
}

/// A completion channel with what the program does not see.
#[repr(C)]
struct ChannelObject {
    public: CompChannel,
    fifo: u32,
    fabric: &'static Fabric,
    /// Keeps the descriptor in `public` open.
    _reading: File,
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut Context) -> *mut CompChannel {
    // SAFETY: an open context.
    let fabric = unsafe { object(context) }.fabric;
    match wake::make(&fabric.shared) {
        Ok((fifo, reading)) => {
            let public = CompChannel { context, fd: reading.as_raw_fd(), refcnt: 0 };
            Box::into_raw(Box::new(ChannelObject { public, fifo, fabric, _reading: reading })).cast()
        }
        Err(error) => null(super::code_of(&error)),
    }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    // SAFETY: a live channel.
    if unsafe { (*channel).refcnt } != 0 {
        return libc::EBUSY;
    }
    // SAFETY: as above, and no queue uses it any more.
    let made = unsafe { Box::from_raw(channel.cast::<ChannelObject>()) };
    let _ = std::fs::remove_file(made.fabric.shared.fifo(made.fifo));
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut CompChannel,
    cq: *mut *mut Cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: a live channel.
    let fd = unsafe { (*channel).fd };
    loop {
        let Some([cookie, _]) = read_record(fd) else { return -1 };
        let found = by_cookie(cookie);
        // A queue may be destroyed with an event under way.
        if !found.is_null() {
            // SAFETY: the pointers are the caller's to fill; the queue is live.
            unsafe {
                cq.write(found);
                cq_context.write((*found).cq_context);
            }
            return 0;
        }
    }
}

/// Reads one record, waiting unless the descriptor is set not to; `None` with `errno` set.
pub(super) fn read_record(fd: c_int) -> Option<[u64; 2]> {
    let mut record = [0u64; 2];
    // SAFETY: the buffer has the size of a record; writers write whole records.
    let got = unsafe { libc::read(fd, record.as_mut_ptr().cast(), wake::RECORD) };
    if got == wake::RECORD as isize {
        return Some(record);
    }
    if got >= 0 {
        minus_one(libc::EIO);
    }
    None
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut Cq, count: std::ffi::c_uint) {
    // SAFETY: a live queue; the counter is for programs that look at it, nothing here waits for it.
    unsafe { (*cq).comp_events_completed = (*cq).comp_events_completed.wrapping_add(count) };
}
