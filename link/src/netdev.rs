//! This host's interfaces: their IPv4 addresses, whether they have carrier, what sysfs says of them.
//!
//! Asked of the kernel (`getifaddrs`, one ioctl), no tool's output is parsed. Any thread; may take a moment, not for the data path.
#![allow(
    unsafe_code,
    reason = "getifaddrs hands out a linked list of C structures, and carrier is asked for by an ioctl"
)]

use std::ffi::CStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An address on an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Interface.
    pub netdev: String,
    /// Address.
    pub address: Ipv4Addr,
    /// Length of its subnet.
    pub prefix: u8,
    /// The interface is up and has carrier, as the kernel has come to say: it may take it a second. [`Carrier`] knows at once.
    pub running: bool,
}

/// What the kernel says of an interface in sysfs; 0 for what it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Number of the interface in this network namespace.
    pub index: u32,
    /// Mbit/s.
    pub speed_mbps: u32,
    /// Bytes.
    pub mtu: u32,
}

/// Reads what sysfs says of an interface. A container may see another namespace's sysfs, or none.
pub fn facts(netdev: &str) -> Facts {
    let read = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{netdev}/{file}")).ok()?;
        // A speed that is not known is -1.
        text.trim().parse::<i64>().ok().and_then(|n| u32::try_from(n).ok())
    };
    let value = |file| read(file).unwrap_or(0);
    Facts { index: value("ifindex"), speed_mbps: value("speed"), mtu: value("mtu") }
}

/// Asks interfaces' drivers whether there is carrier.
#[derive(Debug)]
pub struct Carrier {
    socket: OwnedFd,
}

/// The command of [`Carrier`] and its answer (`struct ethtool_value` of linux/ethtool.h).
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

/// ETHTOOL_GLINK.
const GET_LINK: u32 = 0x0000_000a;

impl Carrier {
    /// Ready to ask, in this network namespace.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now and nobody else owns it.
        Ok(Self { socket: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Whether an interface has carrier now; `None` if its driver does not say. Any user may ask.
    pub fn of(&self, netdev: &str) -> Option<bool> {
        // SAFETY: an all-zero request is a valid one without a name.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if netdev.len() >= request.ifr_name.len() {
            return None;
        }
        for (to, from) in request.ifr_name.iter_mut().zip(netdev.bytes()) {
            *to = from as libc::c_char;
        }
        let mut value = EthtoolValue { cmd: GET_LINK, data: 0 };
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request has a name that ends within its bounds and points to a value of this command, and both live here.
        let status = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        (status == 0).then_some(value.data != 0)
    }
}

/// All IPv4 addresses on interfaces that are up, loopback included, in the kernel's order.
///
/// # Errors
/// What the operating system says.
pub fn addresses() -> io::Result<Vec<Address>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call writes one pointer to `head`, which lives here.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: the list is the kernel library's, whole and unchanged until it is freed below.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        // IFF_UP is a bit of an unsigned int in the structure and a signed constant in the binding.
        let up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        if let (true, Some(address), Some(mask)) = (up, ipv4(entry.ifa_addr), ipv4(entry.ifa_netmask)) {
            // SAFETY: the name is a C string of the same list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            let prefix = u32::from(mask).leading_ones() as u8;
            let running = entry.ifa_flags & libc::IFF_RUNNING as u32 != 0;
            found.push(Address { netdev: name.to_string_lossy().into_owned(), address, prefix, running });
        }
    }
    // SAFETY: `head` came from getifaddrs and nothing points into the list any more.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

fn ipv4(address: *const libc::sockaddr) -> Option<Ipv4Addr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family, which tells its type.
    let family = unsafe { (*address).sa_family };
    if i32::from(family) != libc::AF_INET {
        return None;
    }
    // SAFETY: an address of this family is a sockaddr_in; it may be unaligned for that.
    let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_with_its_prefix() {
        let all = addresses().unwrap();
        let lo = all.iter().find(|a| a.address == Ipv4Addr::LOCALHOST);
        assert_eq!(lo.map(|a| (a.prefix, a.running)), Some((8, true)), "{all:?}");
        let carrier = Carrier::new().expect("a socket");
        assert_eq!(
            (carrier.of("lo"), carrier.of("no-such-device"), carrier.of(&"x".repeat(16))),
            (Some(true), None, None)
        );
        let facts = facts("lo");
        assert!(facts.index > 0 && facts.mtu >= 1500, "{facts:?}");
    }
}
