//! The C library's `connect`, `bind`, `sendto`, `sendmsg` and `sendmmsg`, each with the fabric's rules in front.
//!
//! Every function here is entered from any thread of the host process, at any time after the loader ran its constructors, and
//! returns as the C library's own would: -1 with `errno` on refusal. Nothing is logged: a refusal is for the caller to explain.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::{MaybeUninit, offset_of, size_of, transmute};
use std::net::Ipv4Addr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{mmsghdr, msghdr, sockaddr, sockaddr_in, sockaddr_in6, socklen_t, ssize_t};

use crate::rules::{Fabric, Verdict};

static FABRIC: OnceLock<Fabric> = OnceLock::new();

/// Exit status of a process whose fabric is missing or malformed.
const NO_FABRIC: c_int = 125;

fn fabric() -> &'static Fabric {
    FABRIC.get_or_init(|| load().unwrap_or_else(|message| refuse_to_run(&message)))
}

fn load() -> Result<Fabric, String> {
    let path = std::env::var_os("MESH_FABRIC")
        .filter(|path| !path.is_empty())
        .ok_or("MESH_FABRIC is not set: it must name the fabric file")?;
    let own = std::env::var("MESH_FABRIC_NODE")
        .map_err(|_| "MESH_FABRIC_NODE is not set: it must list the addresses of this node's ports")?;
    let shown = path.to_string_lossy().into_owned();
    let file = std::fs::read_to_string(&path).map_err(|error| format!("cannot read MESH_FABRIC={shown}: {error}"))?;
    Fabric::parse(&file, &own).map_err(|error| format!("MESH_FABRIC={shown}, MESH_FABRIC_NODE={own}: {error}"))
}

fn refuse_to_run(message: &str) -> ! {
    eprintln!("libmesh_fabric: {message}; the process ends here, for a fabric is never silently open");
    // SAFETY: `_exit` ends the process and runs no other code of it; that is the purpose.
    unsafe { libc::_exit(NO_FABRIC) }
}

extern "C" fn at_load() {
    fabric();
}

// SAFETY: the loader calls the functions in `.init_array` once each, after relocation, with C arguments that may be ignored.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// The next definition of `name` after this library's own: the C library's.
fn next(name: &CStr, cache: &AtomicPtr<c_void>) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: `name` is a C string; dlsym has no other precondition.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        refuse_to_run("the C library lacks a socket function");
    }
    cache.store(found, Ordering::Relaxed);
    found
}

type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type SendTo = unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> ssize_t;
type SendMsg = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> ssize_t;
type SendMMsg = unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int;

fn next_connect() -> Connect {
    static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: `next` gives the C library's connect, which has this type.
    unsafe { transmute::<*mut c_void, Connect>(next(c"connect", &CACHE)) }
}

fn next_bind() -> Connect {
    static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: `next` gives the C library's bind, which has connect's type.
    unsafe { transmute::<*mut c_void, Connect>(next(c"bind", &CACHE)) }
}

fn next_sendto() -> SendTo {
    static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: `next` gives the C library's sendto, which has this type.
    unsafe { transmute::<*mut c_void, SendTo>(next(c"sendto", &CACHE)) }
}

fn next_sendmsg() -> SendMsg {
    static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: `next` gives the C library's sendmsg, which has this type.
    unsafe { transmute::<*mut c_void, SendMsg>(next(c"sendmsg", &CACHE)) }
}

fn next_sendmmsg() -> SendMMsg {
    static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: `next` gives the C library's sendmmsg, which has this type.
    unsafe { transmute::<*mut c_void, SendMMsg>(next(c"sendmmsg", &CACHE)) }
}

fn refused(errno: c_int) -> c_int {
    // SAFETY: the C library gives each thread an errno that lives as long as the thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The IPv4 address in a socket address; also one mapped into IPv6, by which the same port would be reached.
///
/// # Safety
/// `address` is null or points to `length` readable bytes.
unsafe fn ipv4(address: *const sockaddr, length: socklen_t) -> Option<Ipv4Addr> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the caller vouches for `length` bytes, which cover the family; reads are unaligned because callers are C.
    let family = c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    match family {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: as above, with the whole structure covered by `length`.
            let inet = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(inet.sin_addr.s_addr)))
        }
        libc::AF_INET6 if length >= offset_of!(sockaddr_in6, sin6_scope_id) => {
            let bytes = address.cast::<u8>().wrapping_add(offset_of!(sockaddr_in6, sin6_addr)).cast::<[u8; 16]>();
            // SAFETY: as above; the address ends before the scope.
            std::net::Ipv6Addr::from(unsafe { bytes.read_unaligned() }).to_ipv4_mapped()
        }
        _ => None,
    }
}

/// The address a socket is bound to; `None` while the kernel would still choose.
fn bound(socket: c_int) -> Option<Ipv4Addr> {
    let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut length = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: the storage is as long as `length` says; a wrong descriptor only gives an error.
    let status = unsafe { libc::getsockname(socket, storage.as_mut_ptr().cast(), &raw mut length) };
    if status != 0 {
        return None;
    }
    // SAFETY: the kernel filled `length` bytes of zeroed storage.
    unsafe { ipv4(storage.as_ptr().cast(), length) }.filter(|address| !address.is_unspecified())
}

fn is_inet(socket: c_int) -> bool {
    let mut domain: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the option is an int and `length` says so.
    let status = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut length)
    };
    status == 0 && domain == libc::AF_INET
}

fn inet(address: Ipv4Addr) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from(address).to_be() },
        sin_zero: [0; 8],
    }
}

/// `connect(2)`, allowed only along a cable.
///
/// # Safety
/// As for `connect(2)`: `address` points to `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn connect(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's contract.
    if let Some(destination) = unsafe { ipv4(address, length) } {
        match fabric().reach(bound(socket), destination) {
            Verdict::Outside | Verdict::Cabled => {}
            Verdict::From(port) => {
                // A port number already taken with the wildcard address cannot be given an address any more, nor can an
                // IPv6 socket: the ports of the fabric have IPv4 addresses.
                let source = inet(port);
                let size = size_of::<sockaddr_in>() as socklen_t;
                // SAFETY: `source` is a whole socket address of `size` bytes.
                if !is_inet(socket) || unsafe { next_bind()(socket, (&raw const source).cast(), size) } != 0 {
                    return refused(libc::ENETUNREACH);
                }
            }
            Verdict::NotCabled => return refused(libc::ECONNREFUSED),
            Verdict::Unreachable => return refused(libc::ENETUNREACH),
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next_connect()(socket, address, length) }
}

/// `bind(2)`, refused for another node's port as a host refuses an address that is not its own.
///
/// # Safety
/// As for `bind(2)`: `address` points to `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn bind(socket: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's contract.
    if let Some(address) = unsafe { ipv4(address, length) }
        && !fabric().may_bind(address)
    {
        return refused(libc::EADDRNOTAVAIL);
    }
    // SAFETY: the caller's own arguments.
    unsafe { next_bind()(socket, address, length) }
}

/// How a datagram to `address` may leave: as it is, from a named port, or not at all.
///
/// # Safety
/// `address` is null or points to `length` readable bytes.
unsafe fn datagram(socket: c_int, address: *const sockaddr, length: socklen_t) -> Result<Option<Ipv4Addr>, c_int> {
    // SAFETY: the caller's contract.
    let Some(destination) = (unsafe { ipv4(address, length) }) else { return Ok(None) };
    match fabric().reach(bound(socket), destination) {
        Verdict::Outside | Verdict::Cabled => Ok(None),
        Verdict::From(port) if is_inet(socket) => Ok(Some(port)),
        Verdict::NotCabled => Err(libc::ECONNREFUSED),
        Verdict::From(_) | Verdict::Unreachable => Err(libc::ENETUNREACH),
    }
}

/// Sends `message` with `port` as its source, as the kernel of a host on real cables would choose it.
///
/// # Safety
/// As for `sendmsg(2)`.
unsafe fn send_from(port: Ipv4Addr, socket: c_int, message: &msghdr, flags: c_int) -> ssize_t {
    // Control data of the caller's own might name a source too; nobody has both, so it is refused instead of merged.
    if message.msg_controllen != 0 {
        return refused(libc::ENETUNREACH) as ssize_t;
    }
    let info = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr { s_addr: u32::from(port).to_be() },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    // u64 gives the alignment that control data needs.
    let mut control = [0_u64; 8];
    let mut message = *message;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN only calculate; the first header lies in `control`, 64 aligned zeroed bytes, of which a
    // packet information message takes 32.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as c_uint) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::IPPROTO_IP;
        (*header).cmsg_type = libc::IP_PKTINFO;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as c_uint) as usize;
        libc::CMSG_DATA(header).cast::<libc::in_pktinfo>().write_unaligned(info);
    }
    // SAFETY: the caller's message, with control data of our own that outlives the call.
    unsafe { next_sendmsg()(socket, &raw const message, flags) }
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
        Ok(None) => unsafe { next_sendto()(socket, data, size, flags, address, length) },
        Ok(Some(port)) => {
            let mut part = libc::iovec { iov_base: data.cast_mut(), iov_len: size };
            // SAFETY: all zeroes is a valid message header; its padding is private.
            let mut message: msghdr = unsafe { std::mem::zeroed() };
            message.msg_name = address.cast_mut().cast();
            message.msg_namelen = length;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            // SAFETY: the header describes the caller's own arguments.
            unsafe { send_from(port, socket, &message, flags) }
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
            Ok(None) => {}
            // SAFETY: the caller's own message.
            Ok(Some(port)) => return unsafe { send_from(port, socket, header, flags) },
            Err(errno) => return refused(errno) as ssize_t,
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next_sendmsg()(socket, message, flags) }
}

/// `sendmmsg(2)`, allowed only if every message goes along a cable; an unbound socket cannot name a port with it.
///
/// # Safety
/// As for `sendmmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    if !messages.is_null() {
        for index in 0..count as usize {
            // SAFETY: the caller's contract: `count` headers, each with a name that is null or of the length it says.
            let verdict = unsafe {
                let header = &(*messages.add(index)).msg_hdr;
                datagram(socket, header.msg_name.cast(), header.msg_namelen)
            };
            match verdict {
                Ok(None) => {}
                Ok(Some(_)) => return refused(libc::ENETUNREACH),
                Err(errno) => return refused(errno),
            }
        }
    }
    // SAFETY: the caller's own arguments.
    unsafe { next_sendmmsg()(socket, messages, count, flags) }
}
