//! The data path.
//!
//! For: hosts of a plugin. Must not know: what moves the data. Threads: one at a time a connection (NCCL's progress
//! thread).

use core::ffi::{c_int, c_void};
use core::ptr;

use super::Plugin;
use super::error::{CallError, Result, check};
use super::handles::{MHandle, RecvComm, Request, SendComm};
use super::normal::{Irecv, Isend};
use crate::{MAX_NET_SIZE, OPTIONAL_RECV_COMPLETION, PROXY_MAX_SUBS};

impl Plugin {
    /// `isend` of `len` bytes at `ptr`; `None` means "not now", call again with the same arguments.
    ///
    /// # Errors
    /// [`CallError`]; `TooLarge` above 1 GiB for v6 to v8, as in NCCL's adapters.
    ///
    /// # Safety
    /// `ptr` is valid for reads of `len` bytes, and nobody writes there, until [`test`](Self::test) says done.
    pub unsafe fn isend(
        &self,
        comm: SendComm,
        ptr: *const u8,
        len: usize,
        tag: i32,
        mh: MHandle,
    ) -> Result<Option<Request>> {
        let mut request = ptr::null_mut();
        let data = ptr.cast_mut().cast::<c_void>();
        // SAFETY: (all arms) a comm and a registration of this plugin; the buffer is the caller's promise.
        let raw = unsafe {
            match self.calls.isend {
                Isend::Int(isend) => isend(comm.0, data, int_size("isend", len)?, tag, mh.0, &raw mut request),
                Isend::Size(isend) => isend(comm.0, data, len, tag, mh.0, &raw mut request),
                Isend::V10(isend) => isend(comm.0, data, len, tag, mh.0, ptr::null_mut(), &raw mut request),
            }
        };
        check("isend", raw)?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// `irecv` of at most `len` bytes to `ptr`; `None` means "not now". With `optional_mark` the request is marked as
    /// one whose arrival the receiver detects itself (v9 and later; older versions never see the mark).
    ///
    /// # Errors
    /// [`CallError`]; `TooLarge` above 1 GiB for v6 to v8; `Unwritten` if the plugin left the mark in place.
    ///
    /// # Safety
    /// `ptr` is valid for writes of `len` bytes until [`test`](Self::test) says done, or with the mark until the data
    /// have been seen or the comm is closed.
    pub unsafe fn irecv(
        &self,
        comm: RecvComm,
        ptr: *mut u8,
        len: usize,
        tag: i32,
        mh: MHandle,
        optional_mark: bool,
    ) -> Result<Option<Request>> {
        let mark = if optional_mark && self.version >= 9 { OPTIONAL_RECV_COMPLETION } else { 0 };
        let mut request = ptr::without_provenance_mut::<c_void>(mark);
        let mut data = ptr.cast::<c_void>();
        let mut tag = tag;
        let mut mh = mh.0;
        // SAFETY: (all arms) arrays of one element; a comm and a registration of this plugin; the buffer is the
        // caller's promise; `phandles` may be NULL.
        let raw = unsafe {
            match self.calls.irecv {
                Irecv::Int(irecv) => {
                    let mut size = int_size("irecv", len)?;
                    let (data, tag, mh) = (&raw mut data, &raw mut tag, &raw mut mh);
                    irecv(comm.0, 1, data, &raw mut size, tag, mh, &raw mut request)
                }
                Irecv::Size(irecv) => {
                    let mut size = len;
                    let (data, tag, mh) = (&raw mut data, &raw mut tag, &raw mut mh);
                    irecv(comm.0, 1, data, &raw mut size, tag, mh, &raw mut request)
                }
                Irecv::V10(irecv) => {
                    let mut size = len;
                    let (data, tag, mh) = (&raw mut data, &raw mut tag, &raw mut mh);
                    irecv(comm.0, 1, data, &raw mut size, tag, mh, ptr::null_mut(), &raw mut request)
                }
            }
        };
        check("irecv", raw)?;
        if request.addr() == OPTIONAL_RECV_COMPLETION {
            return Err(CallError::Unwritten { call: "irecv", what: "request" });
        }
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// `iflush` of one received buffer; `None` means that nothing is to do.
    ///
    /// # Errors
    /// [`CallError`]; `Missing` if the plugin has none.
    ///
    /// # Safety
    /// The buffer was received with this comm and is still valid.
    pub unsafe fn iflush(&self, comm: RecvComm, ptr: *mut u8, len: usize, mh: MHandle) -> Result<Option<Request>> {
        let iflush = self.calls.iflush.ok_or(CallError::Missing { call: "iflush" })?;
        let mut request = ptr::null_mut();
        let mut data = ptr.cast::<c_void>();
        let mut size = int_size("iflush", len)?;
        let mut mh = mh.0;
        // SAFETY: arrays of one element; the rest is the caller's promise.
        let raw = unsafe { iflush(comm.0, 1, &raw mut data, &raw mut size, &raw mut mh, &raw mut request) };
        check("iflush", raw)?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// `test`: `None` while the request is open, then its size once (bytes received; meaningless for a send). A
    /// request that was done must not be tested again.
    ///
    /// # Errors
    /// [`CallError`]; `Unwritten` if the plugin left `done` alone.
    pub fn test(&self, request: Request) -> Result<Option<usize>> {
        let mut done: c_int = -1;
        let mut sizes = [0; PROXY_MAX_SUBS];
        // SAFETY: an open request of this plugin; outputs live through the call.
        check("test", unsafe { (self.calls.test)(request.0, &raw mut done, sizes.as_mut_ptr()) })?;
        match done {
            0 => Ok(None),
            -1 => Err(CallError::Unwritten { call: "test", what: "done" }),
            // Sizes are `int` in all versions; those of 2 GiB and more come back as negative numbers.
            _ => Ok(Some(sizes[0] as u32 as usize)),
        }
    }
}

/// `len` as the `int` of v6 to v8, refused above the limit of NCCL's adapters.
fn int_size(call: &'static str, len: usize) -> Result<c_int> {
    match c_int::try_from(len) {
        Ok(size) if len <= MAX_NET_SIZE => Ok(size),
        _ => Err(CallError::TooLarge { call, bytes: len, limit: MAX_NET_SIZE }),
    }
}
