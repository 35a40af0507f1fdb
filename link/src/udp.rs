//! Datagrams on the cables: one socket a port, and one for what is sent to everyone on a link.
//!
//! What is sent to everyone goes to a multicast group that no router passes on. Knows nothing of what is said. Any thread; nothing waits.
//! The functions of the C library are called by name, so that a library loaded before it can take its place.
#![allow(unsafe_code, reason = "multicast options, and the interface that a datagram came by")]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The group on which all nodes of a link are reached: of the block that never leaves a link (RFC 5771, section 4).
pub const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 177);

/// The socket of one port: sends, and hears what is sent to the port's address.
#[derive(Debug)]
pub struct PortSocket {
    socket: UdpSocket,
    port: u16,
}

impl PortSocket {
    /// Binds to a port's address. `index` is the interface's number, 0 if it is not known.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(address: Ipv4Addr, index: u32, port: u16) -> io::Result<Self> {
        let socket = UdpSocket::bind((address, port))?;
        socket.set_nonblocking(true)?;
        socket.set_ttl(1)?;
        socket.set_multicast_ttl_v4(1)?;
        socket.set_multicast_loop_v4(false)?;
        set_option(socket.as_raw_fd(), libc::IP_MULTICAST_IF, &request(Ipv4Addr::UNSPECIFIED, address, index))?;
        Ok(Self { socket, port })
    }

    /// Sends to one address of the link, or to everyone on it.
    ///
    /// # Errors
    /// What the operating system says. The datagram is lost then, as it may be on its way.
    pub fn send(&self, to: Option<Ipv4Addr>, bytes: &[u8]) -> io::Result<()> {
        self.socket.send_to(bytes, (to.unwrap_or(GROUP), self.port)).map(|_| ())
    }

    /// The next datagram: its length and who sent it. `None` if there is none.
    pub fn receive(&self, bytes: &mut [u8]) -> Option<(usize, Ipv4Addr)> {
        loop {
            match self.socket.recv_from(bytes) {
                Ok((n, SocketAddr::V4(from))) => return Some((n, *from.ip())),
                Ok(_) => {}
                // A destination that refused an earlier datagram shows here; what waits behind it does not go away.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
                Err(e) if matches!(e.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted) => {}
                // The interface is gone or down: the caller learns that from the interface itself.
                Err(_) => return None,
            }
        }
    }

    /// For a poller.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The socket that hears what is sent to everyone, on all ports.
#[derive(Debug)]
pub struct GroupSocket {
    socket: UdpSocket,
}

impl GroupSocket {
    /// Binds to the group.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn open(port: u16) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now and nobody else owns it.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        set_level(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32)?;
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: port.to_be(),
            sin_addr: in_addr(GROUP),
            sin_zero: [0; 8],
        };
        // SAFETY: the address lives during the call, and its size is given.
        if unsafe { libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Only what was asked for here, not what others on this host have joined.
        set_option(fd, libc::IP_MULTICAST_ALL, &0_i32)?;
        set_option(fd, libc::IP_PKTINFO, &1_i32)?;
        Ok(Self { socket: owned.into() })
    }

    /// Listens on one more port.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn join(&self, address: Ipv4Addr, index: u32) -> io::Result<()> {
        match set_option(self.socket.as_raw_fd(), libc::IP_ADD_MEMBERSHIP, &request(GROUP, address, index)) {
            Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) => Ok(()),
            outcome => outcome,
        }
    }

    /// The next datagram: its length, who sent it, and the number of the interface that it came by. `None` if there is none.
    pub fn receive(&self, bytes: &mut [u8]) -> Option<(usize, Ipv4Addr, u32)> {
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: an all-zero address is a valid one of no family.
        let mut from: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        let mut control = [0_u64; 16];
        // SAFETY: an all-zero msghdr is a valid one without address, pieces or control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of_val(&from) as libc::socklen_t;
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: everything that the message points to is a local, or `bytes`, and lives during the call.
        let n = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let n = usize::try_from(n).ok()?;
        // SAFETY: the kernel has filled in as much control data as it says, in a buffer that is aligned for it.
        let mut entry = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        let mut index = 0;
        while !entry.is_null() {
            // SAFETY: the entry lies in the control data, as the macros promise.
            let header = unsafe { &*entry };
            if (header.cmsg_level, header.cmsg_type) == (libc::IPPROTO_IP, libc::IP_PKTINFO) {
                // SAFETY: an entry of this type holds an in_pktinfo, at whatever alignment.
                let info = unsafe { libc::CMSG_DATA(entry).cast::<libc::in_pktinfo>().read_unaligned() };
                index = u32::try_from(info.ipi_ifindex).unwrap_or(0);
            }
            // SAFETY: message and entry are as above.
            entry = unsafe { libc::CMSG_NXTHDR(&raw const message, entry) };
        }
        Some((n, Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr)), index))
    }

    /// For a poller.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn in_addr(address: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) }
}

fn request(group: Ipv4Addr, address: Ipv4Addr, index: u32) -> libc::ip_mreqn {
    // With a number the kernel looks at nothing else; without, it looks for the interface that has the address.
    let imr_ifindex = i32::try_from(index).unwrap_or(0);
    libc::ip_mreqn { imr_multiaddr: in_addr(group), imr_address: in_addr(address), imr_ifindex }
}

fn set_option<T>(fd: RawFd, name: i32, value: &T) -> io::Result<()> {
    set_level(fd, libc::IPPROTO_IP, name, value)
}

fn set_level<T>(fd: RawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value lives during the call, and its size is given.
    let status =
        unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), size_of::<T>() as libc::socklen_t) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn number(socket: &PortSocket) -> u16 {
        socket.socket.local_addr().expect("address").port()
    }

    fn soon<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            if let Some(found) = ask() {
                return Some(found);
            }
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_port_hears_what_is_sent_to_its_address() {
        // given two ports; the second takes the number that the first was given
        let a = PortSocket::open(Ipv4Addr::new(127, 92, 0, 1), 0, 0).expect("socket");
        let port = number(&a);
        let b = PortSocket::open(Ipv4Addr::new(127, 92, 0, 2), 0, port).expect("socket");
        // when b sends to a, then a hears it and knows who spoke; nothing else is there
        b.send(Some(Ipv4Addr::new(127, 92, 0, 1)), b"hello").expect("sent");
        let mut bytes = [0; 64];
        assert_eq!(soon(|| a.receive(&mut bytes)), Some((5, Ipv4Addr::new(127, 92, 0, 2))));
        assert_eq!(&bytes[..5], b"hello");
        assert_eq!(a.receive(&mut bytes), None);
    }

    #[test]
    fn what_a_dead_peer_refuses_does_not_hide_what_comes_next() {
        // given a port that has sent to an address where nobody listens
        let a = PortSocket::open(Ipv4Addr::new(127, 92, 1, 1), 0, 0).expect("socket");
        let port = number(&a);
        let _ = a.send(Some(Ipv4Addr::new(127, 92, 1, 9)), b"?");
        // when somebody else speaks, then it is heard
        let b = PortSocket::open(Ipv4Addr::new(127, 92, 1, 2), 0, port).expect("socket");
        b.send(Some(Ipv4Addr::new(127, 92, 1, 1)), b"here").expect("sent");
        let mut bytes = [0; 64];
        assert_eq!(soon(|| a.receive(&mut bytes)), Some((4, Ipv4Addr::new(127, 92, 1, 2))));
    }
}
