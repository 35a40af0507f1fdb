//! Socket addresses: reading what callers and the kernel pass, and putting places for addresses and back.

use std::ffi::c_int;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

use super::{fabric, next};

/// Bytes of an IPv4 socket address.
pub(super) const INET_BYTES: socklen_t = size_of::<sockaddr_in>() as socklen_t;

/// What a caller means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// No Internet address.
    Other,
    /// An IPv4 address with everything else that came with it.
    Inet(Ipv4Addr, sockaddr_in),
    /// An IPv4 address mapped into IPv6.
    Mapped(Ipv4Addr),
}

/// # Safety
/// `address` is null or points to `length` readable bytes.
pub(super) unsafe fn target(address: *const sockaddr, length: socklen_t) -> Target {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return Target::Other;
    }
    // SAFETY: the caller vouches for `length` bytes, which cover the family; reads are unaligned because callers are C.
    let family = c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    match family {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: as above, with the whole structure covered by `length`.
            let inet = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            Target::Inet(Ipv4Addr::from(u32::from_be(inet.sin_addr.s_addr)), inet)
        }
        libc::AF_INET6 if length >= offset_of!(sockaddr_in6, sin6_scope_id) => {
            let bytes = address.cast::<u8>().wrapping_add(offset_of!(sockaddr_in6, sin6_addr)).cast::<[u8; 16]>();
            // SAFETY: as above; the address ends before the scope.
            let mapped = Ipv6Addr::from(unsafe { bytes.read_unaligned() }).to_ipv4_mapped();
            mapped.map_or(Target::Other, Target::Mapped)
        }
        _ => Target::Other,
    }
}

/// `inet` with the place of its address.
pub(super) fn placed(inet: sockaddr_in) -> sockaddr_in {
    with(inet, fabric().place(Ipv4Addr::from(u32::from_be(inet.sin_addr.s_addr))))
}

fn with(inet: sockaddr_in, address: Ipv4Addr) -> sockaddr_in {
    sockaddr_in { sin_addr: raw(address), ..inet }
}

pub(super) fn raw(address: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from(address).to_be() }
}

/// A port's place, with the port number left to the kernel.
pub(super) fn any_port_at(address: Ipv4Addr) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: raw(fabric().place(address)),
        sin_zero: [0; 8],
    }
}

/// Replaces a place that the kernel reported by the address that the process knows.
///
/// # Safety
/// `address` is null or points to `length` bytes that may be written.
pub(super) unsafe fn reveal(address: *mut sockaddr, length: socklen_t) {
    // SAFETY: the caller's contract.
    if let Target::Inet(place, inet) = unsafe { target(address, length) } {
        // SAFETY: as above; the target was read from that many bytes.
        unsafe { address.cast::<sockaddr_in>().write_unaligned(with(inet, fabric().address(place))) };
    }
}

/// The address (not place) that a socket is bound to; `None` while the kernel would still choose.
pub(super) fn bound(socket: c_int) -> Option<Ipv4Addr> {
    let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut length = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: the storage is as long as `length` says; a wrong descriptor only gives an error.
    let status = unsafe { next::getsockname()(socket, storage.as_mut_ptr().cast(), &raw mut length) };
    if status != 0 {
        return None;
    }
    // SAFETY: the kernel filled `length` bytes of zeroed storage.
    match unsafe { target(storage.as_ptr().cast(), length) } {
        Target::Inet(place, _) if !place.is_unspecified() => Some(fabric().address(place)),
        _ => None,
    }
}
