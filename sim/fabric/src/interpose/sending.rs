//! What leads away from the process: `connect`, `bind`, `sendto`, `sendmsg`, `sendmmsg`.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::size_of;
use std::net::Ipv4Addr;

use libc::{mmsghdr, msghdr, sockaddr, sockaddr_in, socklen_t, ssize_t};

use super::addresses::{INET_BYTES, Target, any_port_at, bound, placed, raw, target};
use super::multicast::{bind_to_group, leaves_by};
use super::{fabric, next, refused};
use crate::groups::is_link_group;
use crate::rules::Verdict;

/// Whether an address is the fabric's: a port's, a place, or a group that does not leave a link.
fn is_ours(address: Ipv4Addr) -> bool {
    is_link_group(address) || !matches!(fabric().reach(None, address), Verdict::Outside)
}

/// `connect(2)`, allowed only along a cable.
///
/// # Safety
/// As for `connect(2)`: `address` points to `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's contract.
    let (destination, inet) = match unsafe { target(address, length) } {
        Target::Inet(destination, inet) => (destination, inet),
        // The ports of a fabric have IPv4 addresses, for IPv4 sockets.
        Target::Mapped(address) if is_ours(address) => return refused(libc::ENETUNREACH),
        // SAFETY: the caller's own arguments.
        _ => return unsafe { next::connect()(socket, address, length) },
    };
    // The kernel would send what follows to the machine's group.
    if is_link_group(destination) {
        return refused(libc::ENETUNREACH);
    }
    match fabric().reach(bound(socket), destination) {
        Verdict::Outside | Verdict::Cabled => {}
        Verdict::From(port) => {
            let source = any_port_at(port);
            // It fails if the socket has a port number of the wildcard address: that cannot be given an address any more.
            // SAFETY: `source` is a whole socket address.
            if unsafe { next::bind()(socket, (&raw const source).cast(), INET_BYTES) } != 0 {
                return refused(libc::ENETUNREACH);
            }
        }
        Verdict::NotCabled => return refused(libc::ECONNREFUSED),
        Verdict::Cut => return refused(libc::EHOSTUNREACH),
        Verdict::Unreachable => return refused(libc::ENETUNREACH),
    }
    let inet = placed(inet);
    // SAFETY: `inet` is a whole socket address.
    unsafe { next::connect()(socket, (&raw const inet).cast(), INET_BYTES) }
}

/// `bind(2)`, refused for another node's port as a host refuses an address that is not its own.
///
/// # Safety
/// As for `bind(2)`: `address` points to `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's contract.
    match unsafe { target(address, length) } {
        Target::Inet(local, _) if is_link_group(local) => bind_to_group(socket),
        Target::Inet(local, inet) if fabric().may_bind(local) => {
            let inet = placed(inet);
            // SAFETY: `inet` is a whole socket address.
            unsafe { next::bind()(socket, (&raw const inet).cast(), INET_BYTES) }
        }
        Target::Inet(..) => refused(libc::EADDRNOTAVAIL),
        Target::Mapped(local) if is_ours(local) => refused(libc::EADDRNOTAVAIL),
        // SAFETY: the caller's own arguments.
        _ => unsafe { next::bind()(socket, address, length) },
    }
}

/// How a datagram may leave.
enum Leave {
    /// As it is.
    Untouched,
    /// To this place; from that port, if the socket has no source.
    To(sockaddr_in, Option<Ipv4Addr>),
    /// To each of these places; there may be none. From that port, if the socket has no source.
    Everyone(Vec<sockaddr_in>, Option<Ipv4Addr>),
}

/// # Safety
/// `address` is null or points to `length` readable bytes.
unsafe fn datagram(socket: c_int, address: *const sockaddr, length: socklen_t) -> Result<Leave, c_int> {
    // SAFETY: the caller's contract.
    let (destination, inet) = match unsafe { target(address, length) } {
        Target::Inet(destination, inet) => (destination, inet),
        Target::Mapped(address) if is_ours(address) => return Err(libc::ENETUNREACH),
        _ => return Ok(Leave::Untouched),
    };
    let source = bound(socket);
    if is_link_group(destination) {
        // A host has no route to a group: the socket belongs to a port, or says by which it sends. Other interfaces are not the fabric's.
        let is_own = |address: &Ipv4Addr| fabric().is_own(*address);
        let port = if source.is_none_or(|source| is_own(&source)) { leaves_by(socket).or(source) } else { None };
        let port = port.filter(is_own).ok_or(libc::ENETUNREACH)?;
        let place = |address: Ipv4Addr| placed(sockaddr_in { sin_addr: raw(address), ..inet });
        let places = fabric().cabled_to(port).into_iter().map(place).collect();
        return Ok(Leave::Everyone(places, source.is_none().then_some(port)));
    }
    match fabric().reach(source, destination) {
        Verdict::Outside => Ok(Leave::Untouched),
        Verdict::Cabled => Ok(Leave::To(placed(inet), None)),
        Verdict::From(port) => Ok(Leave::To(placed(inet), Some(port))),
        Verdict::NotCabled => Err(libc::ECONNREFUSED),
        // It leaves the port, and that is all that the sender can know.
        Verdict::Cut => Ok(Leave::Everyone(Vec::new(), None)),
        Verdict::Unreachable => Err(libc::ENETUNREACH),
    }
}

/// Sends `message` to `place`, with `port` as its source if one is given, as the kernel of a host on real cables would choose it.
///
/// # Safety
/// As for `sendmsg(2)`.
unsafe fn send_along(
    mut place: sockaddr_in,
    port: Option<Ipv4Addr>,
    socket: c_int,
    message: &msghdr,
    flags: c_int,
) -> ssize_t {
    // u64 gives the alignment that control data needs.
    let mut control = [0_u64; 8];
    let mut message = *message;
    message.msg_name = (&raw mut place).cast();
    message.msg_namelen = INET_BYTES;
    if let Some(port) = port {
        // Control data of the caller's own might name a source too; nobody has both, so it is refused instead of merged.
        if message.msg_controllen != 0 {
            return refused(libc::ENETUNREACH) as ssize_t;
        }
        let none = libc::in_addr { s_addr: 0 };
        let source = raw(fabric().place(port));
        let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: none };
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE and CMSG_LEN only calculate; the first header lies in `control`, 64 aligned zeroed bytes, of which
        // a packet information message takes 32.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as c_uint) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::IPPROTO_IP;
            (*header).cmsg_type = libc::IP_PKTINFO;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as c_uint) as usize;
            libc::CMSG_DATA(header).cast::<libc::in_pktinfo>().write_unaligned(info);
        }
    }
    // SAFETY: the caller's message, with a name and control data of our own that outlive the call.
    unsafe { next::sendmsg()(socket, &raw const message, flags) }
}

/// Sends `message` as was found out, to a place or to several.
///
/// # Safety
/// As for `sendmsg(2)`.
unsafe fn leave_as(leave: Leave, socket: c_int, message: &msghdr, flags: c_int) -> ssize_t {
    let (places, port) = match leave {
        // SAFETY: the caller's own arguments.
        Leave::Untouched => return unsafe { next::sendmsg()(socket, message, flags) },
        // SAFETY: as above.
        Leave::To(place, port) => return unsafe { send_along(place, port, socket, message, flags) },
        Leave::Everyone(places, port) => (places, port),
    };
    for place in places {
        // SAFETY: as above. A copy that does not leave is no failure of the others.
        let _ = unsafe { send_along(place, port, socket, message, flags) };
    }
    let parts = if message.msg_iov.is_null() { 0 } else { message.msg_iovlen };
    // SAFETY: the caller's contract: so many parts.
    (0..parts).map(|n| unsafe { (*message.msg_iov.add(n)).iov_len }).sum::<usize>() as ssize_t
}

/// `sendto(2)`, allowed only along a cable.
///
/// # Safety
/// As for `sendto(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    socket: c_int,
    data: *const c_void,
    size: usize,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    // SAFETY: the caller's contract.
    match unsafe { datagram(socket, address, length) } {
        // SAFETY: the caller's own arguments.
        Ok(Leave::Untouched) => unsafe { next::sendto()(socket, data, size, flags, address, length) },
        Ok(leave) => {
            let mut part = libc::iovec { iov_base: data.cast_mut(), iov_len: size };
            // SAFETY: all zeroes is a valid message header; its padding is private.
            let mut message: msghdr = unsafe { std::mem::zeroed() };
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            // SAFETY: the header describes the caller's own data.
            unsafe { leave_as(leave, socket, &message, flags) }
        }
        Err(errno) => refused(errno) as ssize_t,
    }
}

/// `sendmsg(2)`, allowed only along a cable.
///
/// # Safety
/// As for `sendmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if !message.is_null() {
        // SAFETY: the caller's contract: a message header, whose name is null or of the length it says.
        let header = unsafe { &*message };
        // SAFETY: as above.
        match unsafe { datagram(socket, header.msg_name.cast(), header.msg_namelen) } {
            Ok(Leave::Untouched) => {}
            // SAFETY: the caller's own message.
            Ok(leave) => return unsafe { leave_as(leave, socket, header, flags) },
            Err(errno) => return refused(errno) as ssize_t,
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next::sendmsg()(socket, message, flags) }
}

/// `sendmmsg(2)`: the messages one by one if any goes to a port of the fabric.
///
/// # Safety
/// As for `sendmmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    let one = |index: usize| {
        // SAFETY: the caller's contract: `count` messages.
        unsafe { &mut *messages.add(index) }
    };
    let count = if messages.is_null() { 0 } else { count as usize };
    let untouched = (0..count).all(|index| {
        let header = &one(index).msg_hdr;
        // SAFETY: as above; every name is null or of the length it says.
        matches!(unsafe { datagram(socket, header.msg_name.cast(), header.msg_namelen) }, Ok(Leave::Untouched))
    });
    if untouched {
        // SAFETY: the caller's own arguments.
        return unsafe { next::sendmmsg()(socket, messages, count as c_uint, flags) };
    }
    for index in 0..count {
        // SAFETY: a message of the caller's own.
        let sent = unsafe { sendmsg(socket, &raw const one(index).msg_hdr, flags) };
        if sent < 0 {
            // As the system call: an error counts only if nothing was sent before.
            return if index == 0 { -1 } else { index as c_int };
        }
        one(index).msg_len = sent as c_uint;
    }
    count as c_int
}
