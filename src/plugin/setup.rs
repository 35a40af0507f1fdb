//! listen, connect, accept, registration and close.
//!
//! For: the adapters. Must not know: how connections come about.
//! Threads: NCCL's service thread of a communicator; registration also while the progress thread uses the same connection.

use std::ffi::{c_int, c_void};

use mesh_abi::{HANDLE_BYTES, NcclResult, PTR_HOST};
use mesh_link::memory::Window;

use super::comm::{Comm, Head, Kind, cleared};
use super::fault::Fault;
use super::inner::Transport;
use super::properties::check_device;
use super::registration::{self, Refused, Registration};

/// # Safety
/// `handle` has 128 writable bytes, at any alignment; `comm` is valid; either may be NULL, which is refused.
pub(super) unsafe fn listen<T: Transport>(
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { cleared(comm, "listenComm") }?;
    if handle.is_null() {
        return Err(Fault::Null { what: "handle" });
    }
    check_device::<T>(dev)?;
    let (listener, bytes) = T::listen().map_err(|error| Fault::net(&error))?;
    // SAFETY: not NULL, so 128 writable bytes by the caller's promise; a byte array needs no alignment.
    unsafe { handle.cast::<[u8; HANDLE_BYTES]>().write(bytes) };
    // SAFETY: `cleared` found it valid.
    unsafe { comm.write(Comm::into_ptr(Kind::Listen, listener)) };
    Ok(())
}

/// # Safety
/// As [`listen`]; the handle is the same buffer at every try of one connection.
pub(super) unsafe fn connect<T: Transport>(
    dev: c_int,
    handle: *mut c_void,
    comm: *mut *mut c_void,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { cleared(comm, "sendComm") }?;
    if handle.is_null() {
        return Err(Fault::Null { what: "handle" });
    }
    check_device::<T>(dev)?;
    let place = handle.cast::<[u8; HANDLE_BYTES]>();
    // SAFETY: not NULL, so 128 readable bytes by the caller's promise; a byte array needs no alignment.
    let mut bytes = unsafe { place.read() };
    let outcome = T::connect(&mut bytes);
    // SAFETY: as above, and writable. Also after an error: the state in it has changed.
    unsafe { place.write(bytes) };
    if let Some(sender) = outcome.map_err(|error| Fault::net(&error))? {
        // SAFETY: `cleared` found it valid.
        unsafe { comm.write(Comm::into_ptr(Kind::Send, sender)) };
    }
    Ok(())
}

/// # Safety
/// `listener` is NULL or a listening comm; `comm` is NULL or valid.
pub(super) unsafe fn accept<T: Transport>(listener: *mut c_void, comm: *mut *mut c_void) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { cleared(comm, "recvComm") }?;
    // SAFETY: the caller's promise; comms of this kind are made in `listen` only.
    let listener = unsafe { Comm::<T::Listener>::at(listener, Kind::Listen) }?;
    // One sender that fails does not make the listener useless for the next, so the outcome is no failure of the comm.
    let outcome = listener.with(|listener| Ok::<_, T::Error>(T::accept(listener)))?;
    if let Some(receiver) = outcome.map_err(|error| Fault::net(&error))? {
        // SAFETY: `cleared` found it valid.
        unsafe { comm.write(Comm::into_ptr(Kind::Recv, receiver)) };
    }
    Ok(())
}

/// # Safety
/// `comm` is NULL or a comm; the range stays valid memory until deregMr; `mhandle` is NULL or valid.
pub(super) unsafe fn reg_mr(
    comm: *mut c_void,
    data: *mut c_void,
    len: usize,
    kind: c_int,
    mhandle: *mut *mut c_void,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { cleared(mhandle, "mhandle") }?;
    // SAFETY: the caller's promise.
    unsafe { Head::at(comm, &[Kind::Send, Kind::Recv]) }?;
    if kind != PTR_HOST {
        return Err(Fault::MemoryKind { kind });
    }
    if data.is_null() && len > 0 {
        return Err(Fault::Null { what: "data" });
    }
    // SAFETY: valid memory until deregMr by the caller's promise; what is registered is only measured here.
    let window = unsafe { Window::new(data.cast(), len) };
    let registration = registration::register(window, || crate::net::pin(window)).map_err(|refused| match refused {
        Refused::Wraps => Fault::Range { base: data.addr(), len },
        Refused::Pin(error) => Fault::net(&error),
    })?;
    // SAFETY: `cleared` found it valid.
    unsafe { mhandle.write(registration.into_handle()) };
    Ok(())
}

/// Takes a registration back. If requests of this comm still use it (NCCL does that when it aborts) the memory may go at any
/// moment, so the comm is not entered again: with nobody polling it, nothing of it reads or writes the memory.
///
/// # Safety
/// `comm` is NULL or a comm; `mhandle` is NULL or comes from [`reg_mr`] and is given back once.
pub(super) unsafe fn dereg_mr(comm: *mut c_void, mhandle: *mut c_void) -> Result<(), Fault> {
    if mhandle.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let registration = unsafe { Registration::from_handle(mhandle) };
    // SAFETY: the caller's promise.
    let head = unsafe { Head::at(comm, &[Kind::Send, Kind::Recv]) }?;
    if head.uses(registration.id()) {
        tracing::info!("deregMr with open requests: the connection can only be closed now");
        head.fail(NcclResult::InternalError);
    }
    Ok(())
}

/// # Safety
/// `comm` is NULL or a sending comm that nobody uses any more.
pub(super) unsafe fn close_send<T: Transport>(comm: *mut c_void) -> Result<(), Fault> {
    // SAFETY: the caller's promise; comms of this kind are made in `connect` only.
    if let Some(sender) = unsafe { Comm::<T::Sender>::take(comm, Kind::Send) }? {
        T::close_send(sender);
    }
    Ok(())
}

/// # Safety
/// `comm` is NULL or a receiving comm that nobody uses any more.
pub(super) unsafe fn close_recv<T: Transport>(comm: *mut c_void) -> Result<(), Fault> {
    // SAFETY: the caller's promise; comms of this kind are made in `accept` only.
    if let Some(receiver) = unsafe { Comm::<T::Receiver>::take(comm, Kind::Recv) }? {
        T::close_recv(receiver);
    }
    Ok(())
}

/// # Safety
/// `comm` is NULL or a listening comm that nobody uses any more.
pub(super) unsafe fn close_listen<T: Transport>(comm: *mut c_void) -> Result<(), Fault> {
    // SAFETY: the caller's promise; comms of this kind are made in `listen` only.
    if let Some(listener) = unsafe { Comm::<T::Listener>::take(comm, Kind::Listen) }? {
        T::close_listen(listener);
    }
    Ok(())
}
