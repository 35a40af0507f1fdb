//! What is sent to everyone on a link: `setsockopt` for groups that do not leave a link, and the copies of a datagram to such a group.
//!
//! A group socket never hears anything here: the copies go to the cabled ports' own addresses, as a neighbour's unicast would.

use std::ffi::{c_int, c_void};
use std::net::Ipv4Addr;

use libc::socklen_t;

use super::{fabric, next};

/// Whether an address is a group that no router passes on.
pub(super) const fn is_link_group(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    a == 224 && b == 0 && c == 0
}

/// `setsockopt(2)`. Options that name a port of this node as the interface for groups have nothing to do: there is no such interface.
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
    let groups = [libc::IP_MULTICAST_IF, libc::IP_ADD_MEMBERSHIP, libc::IP_DROP_MEMBERSHIP];
    if level == libc::IPPROTO_IP && groups.contains(&name) && !value.is_null() {
        // `in_addr` alone, or the second word of `ip_mreq` and `ip_mreqn`.
        let at = if length >= 8 { 4 } else { 0 };
        if length >= at + 4 {
            // SAFETY: the caller vouches for `length` bytes, which cover these four.
            let octets = unsafe { value.cast::<u8>().add(at as usize).cast::<[u8; 4]>().read_unaligned() };
            if fabric().is_own(Ipv4Addr::from(octets)) {
                return 0;
            }
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::setsockopt()(socket, level, name, value, length) }
}
