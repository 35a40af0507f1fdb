//! A protection domain: what one process may do on one device.
//!
//! Owns the `ibv_pd` and keeps its device open. Any thread.
#![allow(unsafe_code, reason = "calls into libibverbs with the pointers it handed out")]

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::Context;
use super::sys;

pub(super) struct Pd {
    pub(super) context: Arc<Context>,
    pub(super) ptr: NonNull<sys::Pd>,
}

// SAFETY: a protection domain may be used from any thread, several at once.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd").field("device", &self.context.name).finish_non_exhaustive()
    }
}

impl Pd {
    pub(super) fn new(context: Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let ptr = unsafe { (context.verbs.alloc_pd)(context.ptr.as_ptr()) };
        let ptr = NonNull::new(ptr).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { context, ptr })
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: made in `new`; regions and queue pairs in it held an Arc of it and are gone.
        unsafe { (self.context.verbs.dealloc_pd)(self.ptr.as_ptr()) };
    }
}
