//! What `setsockopt` says of groups: the port that datagrams to groups leave by, and members of groups that do not leave a link.
//!
//! A socket of a group never hears anything here: copies go to the cabled ports' own addresses, as a neighbour's unicast would.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::net::Ipv4Addr;

use libc::{in_addr, ip_mreq, sockaddr_in, socklen_t};

use super::addresses::{INET_BYTES, raw};
use super::{fabric, next, refused};
use crate::groups::{in_kernel, is_link_group};

/// `setsockopt(2)`. The kernel knows ports by their places, all on its loopback interface, and keeps account of what a socket has said of groups.
///
/// # Safety
/// As for `setsockopt(2)`: `value` points to `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if level == libc::IPPROTO_IP && !value.is_null() {
        let word = |at: usize| {
            let bytes = value.cast::<u8>().wrapping_add(at).cast::<[u8; 4]>();
            // SAFETY: the caller vouches for `length` bytes, which cover these four.
            (length as usize >= at + 4).then(|| Ipv4Addr::from(unsafe { bytes.read_unaligned() }))
        };
        match name {
            libc::IP_MULTICAST_IF => {
                // `in_addr` alone, or the second word of `ip_mreq` and `ip_mreqn`.
                let address = word(if length >= 8 { 4 } else { 0 });
                if let Some(port) = address.filter(|address| !fabric().may_bind(*address) || fabric().is_own(*address))
                {
                    return leave_by(socket, port);
                }
            }
            libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP => {
                if let (Some(group), Some(port)) = (word(0), word(4))
                    && (is_link_group(group) || fabric().is_own(port))
                {
                    return member(socket, name, group, port);
                }
            }
            _ => {}
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::setsockopt()(socket, level, name, value, length) }
}

/// What is sent to groups leaves by this port. Errors are those of Linux.
fn leave_by(socket: c_int, port: Ipv4Addr) -> c_int {
    if !fabric().is_own(port) {
        return refused(libc::EADDRNOTAVAIL);
    }
    option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &raw(fabric().place(port)))
}

/// Joins or leaves a group at a port, named by its address: an interface's number, which may come with it, is the machine's. Errors are those
/// of Linux.
fn member(socket: c_int, name: c_int, group: Ipv4Addr, port: Ipv4Addr) -> c_int {
    let request = match (fabric().own_number(port), is_link_group(group)) {
        (Some(number), true) => in_kernel(group, number).map(|known| (known, Ipv4Addr::LOCALHOST)),
        // What may leave a link is the machine's, and so is its interface: that of the port's place.
        (Some(_), false) => Some((group, fabric().place(port))),
        (None, _) => None,
    };
    match request {
        Some((group, place)) => {
            let request = ip_mreq { imr_multiaddr: raw(group), imr_interface: raw(place) };
            option(socket, libc::IPPROTO_IP, name, &request)
        }
        // Nothing can have been joined there.
        None if name == libc::IP_DROP_MEMBERSHIP => refused(libc::EADDRNOTAVAIL),
        None => refused(libc::ENODEV),
    }
}

/// The port that a socket has chosen for what it sends to groups.
pub(super) fn leaves_by(socket: c_int) -> Option<Ipv4Addr> {
    let mut place = in_addr { s_addr: 0 };
    let mut length = size_of::<in_addr>() as socklen_t;
    // SAFETY: the place has as many bytes as `length` says; a wrong descriptor only gives an error.
    let status = unsafe {
        libc::getsockopt(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, (&raw mut place).cast(), &raw mut length)
    };
    let place = Ipv4Addr::from(u32::from_be(place.s_addr));
    (status == 0 && !place.is_unspecified()).then(|| fabric().address(place))
}

/// `bind(2)` to a group. The socket becomes deaf: what is sent to the group on the machine does not come from a port.
pub(super) fn bind_to_group(socket: c_int) -> c_int {
    let mut nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
    let status = option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter);
    if status != 0 {
        return status;
    }
    // Any number: that of the group is for each node to have, and they share a machine.
    let harmless = sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: raw(Ipv4Addr::LOCALHOST),
        sin_zero: [0; 8],
    };
    // SAFETY: `harmless` is a whole socket address.
    unsafe { next::bind()(socket, (&raw const harmless).cast(), INET_BYTES) }
}

fn option<T>(socket: c_int, level: c_int, name: c_int, value: &T) -> c_int {
    // SAFETY: the value lives during the call, and its size is given; what it points to, if anything, does too.
    unsafe { next::setsockopt()(socket, level, name, (&raw const *value).cast(), size_of::<T>() as socklen_t) }
}
