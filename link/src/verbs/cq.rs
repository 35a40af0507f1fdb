//! A completion queue with a channel of its own to sleep on.
//!
//! Owned by one endpoint and so used by one thread at a time. Keeps its device open; closes the channel after the queue.
#![allow(unsafe_code, reason = "calls into libibverbs with the pointers it handed out")]

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::Context;
use super::sys;
use crate::memory::from_device_barrier;

/// Channel events acknowledged at once, as that takes a lock.
const ACKS: u32 = 64;

pub(super) struct Cq {
    channel: Channel,
    pub(super) ptr: NonNull<sys::Cq>,
    poll: sys::PollCq,
    notify: sys::ReqNotifyCq,
    /// Events taken from the channel and not yet acknowledged.
    unacknowledged: u32,
}

// SAFETY: the queue is used through `&mut self` only, from whichever thread owns it.
unsafe impl Send for Cq {}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq").field("device", &self.channel.context.name).finish_non_exhaustive()
    }
}

/// The channel, in a type of its own so that it outlives the queue.
struct Channel {
    context: Arc<Context>,
    ptr: NonNull<sys::CompChannel>,
    fd: RawFd,
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made in `Cq::new`; its queue is destroyed.
        unsafe { (self.context.verbs.destroy_comp_channel)(self.ptr.as_ptr()) };
    }
}

impl Cq {
    /// A queue with room for `capacity` completions. The error names the call that failed.
    pub(super) fn new(context: Arc<Context>, capacity: u32) -> Result<Self, (&'static str, io::Error)> {
        let verbs = context.verbs;
        let failed = |call| (call, io::Error::last_os_error());
        // SAFETY: the context is open.
        let channel = unsafe { (verbs.create_comp_channel)(context.ptr.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(|| failed("ibv_create_comp_channel"))?;
        // SAFETY: the structure was filled by the library, and its descriptor never changes.
        let fd = unsafe { (*channel.as_ptr()).fd };
        let channel = Channel { context: Arc::clone(&context), ptr: channel, fd };
        // SAFETY: an fcntl on an open descriptor that touches no memory.
        if unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) } == -1 {
            return Err(failed("fcntl"));
        }
        let ops = context.ops();
        let (Some(poll), Some(notify)) = (ops.poll_cq, ops.req_notify_cq) else {
            return Err(("ibv_poll_cq", io::Error::from_raw_os_error(libc::EOPNOTSUPP)));
        };
        let entries = i32::try_from(capacity).unwrap_or(i32::MAX);
        // SAFETY: context and channel are live.
        let ptr = unsafe { (verbs.create_cq)(context.ptr.as_ptr(), entries, ptr::null_mut(), channel.ptr.as_ptr(), 0) };
        let ptr = NonNull::new(ptr).ok_or_else(|| failed("ibv_create_cq"))?;
        Ok(Self { channel, ptr, poll, notify, unacknowledged: 0 })
    }

    /// Takes completions; how many. What the NIC wrote before them is visible afterwards.
    pub(super) fn poll(&mut self, into: &mut [sys::Wc]) -> io::Result<usize> {
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: a live queue, used by this thread alone, and room for as many completions as said.
        let count = unsafe { (self.poll)(self.ptr.as_ptr(), room, into.as_mut_ptr()) };
        match usize::try_from(count) {
            Ok(0) => Ok(0),
            Ok(count) => {
                from_device_barrier();
                Ok(count)
            }
            Err(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }

    /// The channel's descriptor becomes readable at the next completion. Poll once more after this and before sleeping.
    pub(super) fn arm(&mut self) -> io::Result<()> {
        // SAFETY: a live queue.
        match unsafe { (self.notify)(self.ptr.as_ptr(), 0) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Takes what is in the channel, without waiting; whether anything was.
    pub(super) fn drain(&mut self) -> bool {
        let verbs = self.channel.context.verbs;
        let mut any = false;
        loop {
            let (mut cq, mut cookie) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: a live channel whose descriptor does not block; the out pointers live here.
            if unsafe { (verbs.get_cq_event)(self.channel.ptr.as_ptr(), &raw mut cq, &raw mut cookie) } != 0 {
                return any;
            }
            any = true;
            self.unacknowledged += 1;
            if self.unacknowledged == ACKS {
                self.acknowledge();
            }
        }
    }

    fn acknowledge(&mut self) {
        let count = std::mem::take(&mut self.unacknowledged);
        if count > 0 {
            // SAFETY: a live queue, of which that many events were taken.
            unsafe { (self.channel.context.verbs.ack_cq_events)(self.ptr.as_ptr(), count) };
        }
    }

    /// To be watched for reading.
    pub(super) fn fd(&self) -> RawFd {
        self.channel.fd
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // Destroying waits for all events to be acknowledged.
        self.drain();
        self.acknowledge();
        // SAFETY: made in `new`; the queue pairs on it are gone, as they own it.
        unsafe { (self.channel.context.verbs.destroy_cq)(self.ptr.as_ptr()) };
    }
}
