//! Opening connections between the two ports of a link without blocking.
//!
//! The source address is always the link's own port: on a host with many subnets the kernel's choice could be another one, and a
//! peer takes nothing from outside the link's subnet. Knows no protocol and no time limits; callers count time themselves. Any
//! thread.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::socket;

/// A non-blocking listener on exactly this address; port 0 lets the kernel choose.
pub fn listen(address: SocketAddrV4, backlog: u32) -> io::Result<TcpListener> {
    let fd = socket::open()?;
    socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    socket::bind(fd.as_fd(), *address.ip(), address.port())?;
    socket::listen(fd.as_fd(), backlog)?;
    Ok(fd.into())
}

/// Begins a connection from the port that has the address `local` to `remote`.
pub fn start_connect(local: Ipv4Addr, remote: SocketAddrV4) -> io::Result<Dialing> {
    let fd = socket::open()?;
    socket::bind(fd.as_fd(), local, 0)?;
    socket::connect(fd.as_fd(), remote)?;
    Ok(Dialing { fd: Some(fd) })
}

/// A connection being made. Dropping it gives it up.
#[derive(Debug)]
pub struct Dialing {
    /// None once the result was handed out.
    fd: Option<OwnedFd>,
}

/// How far a connection has come.
#[derive(Debug)]
pub enum DialState {
    /// Not decided: the descriptor becomes writable when it is.
    Pending,
    /// Connected; the stream is non-blocking.
    Connected(TcpStream),
    /// Refused, unreachable, timed out.
    Failed(io::Error),
}

impl Dialing {
    /// Looks, without waiting. After [`DialState::Connected`] or [`DialState::Failed`] nothing is left, and it answers
    /// `Failed` with `NotConnected`.
    pub fn poll(&mut self) -> DialState {
        let Some(fd) = self.fd.take() else { return DialState::Failed(io::ErrorKind::NotConnected.into()) };
        match decided(fd.as_fd()) {
            Ok(false) => {
                self.fd = Some(fd);
                DialState::Pending
            }
            Ok(true) => {
                let stream = TcpStream::from(fd);
                match (stream.local_addr(), stream.peer_addr()) {
                    // A socket may connect to itself when nobody listens on a port that the kernel then picks as the source.
                    (Ok(local), Ok(peer)) if local == peer => {
                        DialState::Failed(io::Error::from_raw_os_error(libc::ECONNREFUSED))
                    }
                    (Ok(_), Ok(_)) => DialState::Connected(stream),
                    (Err(e), _) | (_, Err(e)) => DialState::Failed(e),
                }
            }
            Err(e) => DialState::Failed(e),
        }
    }

    /// The descriptor to watch for writing; -1 once the result was handed out.
    pub fn fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

fn decided(fd: BorrowedFd<'_>) -> io::Result<bool> {
    if !socket::is_writable(fd)? {
        return Ok(false);
    }
    match socket::option(fd, libc::SOL_SOCKET, libc::SO_ERROR)? {
        0 => Ok(true),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn finish(mut dialing: Dialing) -> DialState {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match dialing.poll() {
                DialState::Pending => assert!(Instant::now() < deadline, "undecided"),
                state => {
                    assert_eq!(dialing.fd(), -1);
                    assert!(matches!(dialing.poll(), DialState::Failed(_)), "nothing is left");
                    return state;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn address(listener: &TcpListener) -> SocketAddrV4 {
        match listener.local_addr().unwrap() {
            std::net::SocketAddr::V4(address) => address,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_source_is_the_address_asked_for() {
        // given a listener on one loopback address
        let listener = listen(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 3), 0), 8).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // when dialled from another
        let local = Ipv4Addr::new(127, 0, 0, 2);
        let DialState::Connected(stream) = finish(start_connect(local, address(&listener)).unwrap()) else {
            panic!("not connected")
        };
        // then both ends see exactly these
        assert_eq!(stream.local_addr().unwrap().ip(), local);
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, stream.local_addr().unwrap());
    }

    #[test]
    fn a_refusal_is_told() {
        // given a port where nobody listens any more
        let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 1).unwrap();
        let nobody = address(&listener);
        drop(listener);
        // when dialled, at once or later
        let state = match start_connect(Ipv4Addr::LOCALHOST, nobody) {
            Ok(dialing) => finish(dialing),
            Err(e) => DialState::Failed(e),
        };
        // then it fails with that reason
        let DialState::Failed(error) = state else { panic!("connected to nobody") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn an_address_of_another_host_is_refused_as_source() {
        let error = start_connect(Ipv4Addr::new(192, 0, 2, 1), SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn a_listener_can_be_opened_again_after_its_connections_closed() {
        // given a listener whose connection was closed by the listening side, which leaves it in TIME_WAIT
        let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 1).unwrap();
        let at = address(&listener);
        let DialState::Connected(stream) = finish(start_connect(Ipv4Addr::LOCALHOST, at).unwrap()) else {
            panic!("not connected")
        };
        drop(listener.accept().unwrap());
        drop((stream, listener));
        // when and then
        listen(at, 1).unwrap();
    }
}
