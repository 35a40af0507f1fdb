//! What tells the process of addresses: `accept`, `getsockname`, `getpeername`, `recvfrom`, `recvmsg`. The kernel says where a port
//! is found; the process is told the port's address. Addresses in control messages (IP_PKTINFO) stay places.

use std::ffi::{c_int, c_void};

use libc::{msghdr, sockaddr, socklen_t, ssize_t};

use super::addresses::reveal;
use super::next;

/// Translates an address that was just reported, unless the call failed or nobody asked for it.
///
/// # Safety
/// `address` and `length` are null or as the reporting call filled them; `room` is what the caller gave as the length before.
unsafe fn told(failed: bool, address: *mut sockaddr, length: *mut socklen_t, room: socklen_t) {
    if !failed && !address.is_null() && !length.is_null() {
        // SAFETY: the kernel wrote as many bytes as both the room and the address have.
        unsafe { reveal(address, room.min(length.read_unaligned())) };
    }
}

/// # Safety
/// `length` is null or points to a length.
unsafe fn room(length: *const socklen_t) -> socklen_t {
    // SAFETY: the caller's contract.
    if length.is_null() { 0 } else { unsafe { length.read_unaligned() } }
}

/// `accept(2)`.
///
/// # Safety
/// As for `accept(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept(socket: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe {
        let room = room(length);
        let accepted = next::accept()(socket, address, length);
        told(accepted < 0, address, length, room);
        accepted
    }
}

/// `accept4(2)`.
///
/// # Safety
/// As for `accept4(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(socket: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe {
        let room = room(length);
        let accepted = next::accept4()(socket, address, length, flags);
        told(accepted < 0, address, length, room);
        accepted
    }
}

/// `getsockname(2)`.
///
/// # Safety
/// As for `getsockname(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(socket: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe {
        let room = room(length);
        let status = next::getsockname()(socket, address, length);
        told(status < 0, address, length, room);
        status
    }
}

/// `getpeername(2)`.
///
/// # Safety
/// As for `getpeername(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(socket: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe {
        let room = room(length);
        let status = next::getpeername()(socket, address, length);
        told(status < 0, address, length, room);
        status
    }
}

/// `recvfrom(2)`.
///
/// # Safety
/// As for `recvfrom(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    socket: c_int,
    data: *mut c_void,
    size: usize,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's own arguments.
    unsafe {
        let room = room(length);
        let received = next::recvfrom()(socket, data, size, flags, address, length);
        told(received < 0, address, length, room);
        received
    }
}

/// `recvmsg(2)`.
///
/// # Safety
/// As for `recvmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's own arguments; on success the header's name has the length it says, cut to the room it had.
    unsafe {
        let room = if message.is_null() { 0 } else { (*message).msg_namelen };
        let received = next::recvmsg()(socket, message, flags);
        if received >= 0 && !message.is_null() && !(*message).msg_name.is_null() {
            reveal((*message).msg_name.cast(), room.min((*message).msg_namelen));
        }
        received
    }
}
