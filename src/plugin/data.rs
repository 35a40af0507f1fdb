//! isend, irecv, test, iflush.
//!
//! For: the adapters. Must not know: how data move.
//! Threads: NCCL's progress thread of a communicator, often: nothing here allocates or waits.

use std::ffi::{c_int, c_void};

use mesh_abi::OPTIONAL_RECV_COMPLETION;
use mesh_link::memory::Window;

use super::comm::{CSize, Comm, Head, Kind, Slot, cleared, size_of_c};
use super::fault::Fault;
use super::inner::{Failure, Transport};
use super::registration::Registration;

/// # Safety
/// `comm` is NULL or a sending comm, `mhandle` NULL or a registration, `request` NULL or valid; `len` bytes at `data` stay
/// valid until the request is done.
pub(super) unsafe fn isend<T: Transport>(
    comm: *mut c_void,
    data: *mut c_void,
    size: impl Into<CSize>,
    mhandle: *mut c_void,
    request: *mut *mut c_void,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { cleared(request, "request") }?;
    // SAFETY: the caller's promise; comms of this kind are made in `connect` only.
    let comm = unsafe { Comm::<T::Sender>::at(comm, Kind::Send) }?;
    // SAFETY: the caller's promise.
    let (window, registration) = unsafe { buffer(data, size_of_c(size)?, mhandle) }?;
    if let Some(slot) = comm.with(|sender| T::isend(sender, window))? {
        let open = comm.head().open(slot, registration)?;
        // SAFETY: `cleared` found it valid.
        unsafe { request.write(open) };
    }
    Ok(())
}

/// The arrays of an irecv, of which this network takes one element each. `S` is the version's type of sizes.
pub(super) struct Receive<S> {
    pub(super) n: c_int,
    pub(super) data: *mut *mut c_void,
    pub(super) sizes: *mut S,
    pub(super) mhandles: *mut *mut c_void,
}

/// `marks`: whether this version uses the value in `*request` on entry.
///
/// # Safety
/// `comm` is NULL or a receiving comm, the arrays are NULL or have `n` elements, `request` is NULL or valid; the memory stays
/// valid until the request is done, or for a marked one until its data have come or its registration is taken back.
pub(super) unsafe fn irecv<T: Transport, S: Copy + Into<CSize>>(
    comm: *mut c_void,
    receive: &Receive<S>,
    marks: bool,
    request: *mut *mut c_void,
) -> Result<(), Fault> {
    // SAFETY: NULL or valid for reads by the caller's promise.
    let entry = unsafe { request.as_ref() }.map_or(0, |entry| entry.addr());
    let flag_polled = marks && entry == OPTIONAL_RECV_COMPLETION;
    // SAFETY: the caller's promise.
    unsafe { cleared(request, "request") }?;
    if receive.n != 1 {
        return Err(Fault::Grouped { n: receive.n });
    }
    // SAFETY: NULL or one element, by the caller's promise.
    let (data, size, mhandle) = unsafe { (receive.data.as_ref(), receive.sizes.as_ref(), receive.mhandles.as_ref()) };
    let data = *data.ok_or(Fault::Null { what: "data" })?;
    let size = *size.ok_or(Fault::Null { what: "sizes" })?;
    let mhandle = mhandle.copied().unwrap_or(std::ptr::null_mut());
    // SAFETY: the caller's promise; comms of this kind are made in `accept` only.
    let comm = unsafe { Comm::<T::Receiver>::at(comm, Kind::Recv) }?;
    // SAFETY: the caller's promise.
    let (window, registration) = unsafe { buffer(data, size_of_c(size)?, mhandle) }?;
    if let Some(slot) = comm.with(|receiver| T::irecv(receiver, window, flag_polled))? {
        let open = comm.head().open(slot, registration)?;
        // SAFETY: `cleared` found it valid.
        unsafe { request.write(open) };
    }
    Ok(())
}

/// The window of a message and the number of its registration, 0 if it has none.
///
/// # Safety
/// `mhandle` is NULL or a registration; the memory is valid as long as the window is used.
unsafe fn buffer(data: *mut c_void, len: usize, mhandle: *mut c_void) -> Result<(Window, u64), Fault> {
    if len == 0 {
        return Ok((Window::empty(), 0));
    }
    if data.is_null() {
        return Err(Fault::Null { what: "data" });
    }
    let mut id = 0;
    // SAFETY: NULL or a registration that is not taken back during this call, by the caller's promise.
    if let Some(registration) = unsafe { mhandle.cast_const().cast::<Registration>().as_ref() } {
        if !registration.covers(data.addr(), len) {
            let (base, registered) = (registration.base(), registration.len());
            return Err(Fault::OutsideRegistration { address: data.addr(), len, base, registered });
        }
        id = registration.id();
    }
    // SAFETY: the caller's promise.
    Ok((unsafe { Window::new(data.cast(), len) }, id))
}

/// # Safety
/// `request` is NULL or a request, `done` NULL or valid, `sizes` NULL or at least one element.
pub(super) unsafe fn test<T: Transport>(
    request: *mut c_void,
    done: *mut c_int,
    sizes: *mut c_int,
) -> Result<(), Fault> {
    if done.is_null() {
        return Err(Fault::Null { what: "done" });
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    unsafe { done.write(0) };
    // SAFETY: the caller's promise.
    let slot = unsafe { Slot::at(request) }?;
    // SAFETY: a request's comm lives at least as long as the request.
    let head = unsafe { Head::at(slot.comm(), &[Kind::Send, Kind::Recv]) }?;
    // SAFETY: comms of these kinds are made in `connect` and `accept` only, with these types.
    let size = unsafe {
        if head.is(Kind::Send) {
            test_end(slot, Kind::Send, T::test_send)
        } else {
            test_end(slot, Kind::Recv, T::test_recv)
        }
    }?;
    let Some(size) = size else { return Ok(()) };
    slot.recycle();
    if !sizes.is_null() {
        // Sizes are `int` in all versions: 2 GiB to 4 GiB wrap to negative numbers, as they do in NCCL.
        // SAFETY: not NULL, so one element by the caller's promise.
        unsafe { sizes.write(size as u32 as c_int) };
    }
    // SAFETY: as above.
    unsafe { done.write(1) };
    Ok(())
}

/// # Safety
/// The slot's comm is of `kind` and was made with `C`.
unsafe fn test_end<C: Send, E: Failure>(
    slot: &Slot,
    kind: Kind,
    test: impl FnOnce(&mut C, u32) -> Result<Option<usize>, E>,
) -> Result<Option<usize>, Fault> {
    // SAFETY: the caller's promise.
    let comm = unsafe { Comm::<C>::at(slot.comm(), kind) }?;
    comm.with(|end| test(end, slot.number()))
}

/// Received host memory needs no flush.
///
/// # Safety
/// `request` is NULL or valid.
pub(super) unsafe fn iflush(request: *mut *mut c_void) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { cleared(request, "request") }
}
