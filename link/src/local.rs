//! Streams between the processes of a host: a name in the abstract namespace, which ends with the process that has it.
//!
//! Knows nothing of what is said. Any thread; nothing waits.
#![allow(unsafe_code, reason = "a send that raises no signal, and whose process is at the other end")]

use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Takes a name; nothing is left of it when the process is gone, however it goes.
///
/// # Errors
/// `AddrInUse` if another process of this network namespace has it.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to the process that has a name.
///
/// # Errors
/// `ConnectionRefused` if nobody has it.
pub fn connect(name: &str) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Sends what fits. Never raises SIGPIPE, which would end a host program that does not expect it.
///
/// # Errors
/// What the operating system says, `WouldBlock` if nothing fits.
pub fn send(stream: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is readable for its length during the call.
    let n = unsafe {
        libc::send(stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// The user whose process is at the other end (for a stream that was connected to: who had the name when it began to listen).
///
/// # Errors
/// What the operating system says.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&who) as libc::socklen_t;
    // SAFETY: both pointers are to locals that live during the call, and `len` is the size of `who`.
    let status = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len)
    };
    if status == 0 { Ok(who.uid) } else { Err(io::Error::last_os_error()) }
}

/// The user of this process.
#[must_use]
pub fn own_user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_name_belongs_to_one_and_is_free_when_it_is_dropped() {
        // given somebody who has a name
        let name = format!("nccl-mesh-test-{}", std::process::id());
        let first = listen(&name).expect("free");
        // then nobody else gets it, and who connects reaches the first, and each knows the other's user
        assert_eq!(listen(&name).expect_err("taken").kind(), io::ErrorKind::AddrInUse);
        let mut client = connect(&name).expect("somebody listens");
        let (server, _) = first.accept().expect("a connection waits");
        assert_eq!((peer_user(&client).ok(), peer_user(&server).ok()), (Some(own_user()), Some(own_user())));
        assert_eq!(send(&server, b"view").expect("room"), 4);
        let mut bytes = [0; 4];
        client.read_exact(&mut bytes).expect("it is there");
        assert_eq!(&bytes, b"view");
        // when the other end is gone, then sending fails and raises no signal
        drop(client);
        assert_eq!(send(&server, b"x").expect_err("gone").kind(), io::ErrorKind::BrokenPipe);
        // when the name is dropped, then nobody answers and the next may have it
        drop((first, server));
        assert_eq!(connect(&name).expect_err("nobody").kind(), io::ErrorKind::ConnectionRefused);
        listen(&name).expect("free again");
    }
}
