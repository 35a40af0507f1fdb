//! Streams between the processes of a host: a name in the abstract namespace, which ends with the process that has it.
//!
//! Knows nothing of what is said. Any thread; nothing waits.
#![allow(
    unsafe_code,
    reason = "a send that raises no signal, a connect that does not wait, and whose process is at the other end"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
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

/// Connects to the process that has a name. Does not wait, whatever that process does.
///
/// # Errors
/// `ConnectionRefused` if nobody has it, `WouldBlock` if too many wait there already: the process is stopped, or hangs.
pub fn connect(name: &str) -> io::Result<UnixStream> {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] };
    // A name begins with a zero, and what follows its length does not count.
    let Some(place) = address.sun_path.get_mut(1..=name.len()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is too long for a socket"));
    };
    for (to, from) in place.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: the call takes no memory.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the socket was just made, and is nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the address is a local that lives during the call, and `len` is within its size.
    let status = unsafe { libc::connect(fd, (&raw const address).cast(), len as libc::socklen_t) };
    if status == 0 { Ok(UnixStream::from(socket)) } else { Err(io::Error::last_os_error()) }
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
    peer(stream).map(|who| who.uid)
}

/// The number of that process, as this process's namespace has it; 0 if it has none there.
///
/// # Errors
/// What the operating system says.
pub fn peer_process(stream: &UnixStream) -> io::Result<u32> {
    peer(stream).map(|who| who.pid.try_into().unwrap_or(0))
}

fn peer(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&who) as libc::socklen_t;
    // SAFETY: both pointers are to locals that live during the call, and `len` is the size of `who`.
    let status = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len)
    };
    if status == 0 { Ok(who) } else { Err(io::Error::last_os_error()) }
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

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        // given somebody who takes nobody, and lets few wait
        let name = format!("nccl-mesh-test-full-{}", std::process::id());
        let stopped = listen(&name).expect("free");
        // SAFETY: the call takes no memory; the socket lives.
        assert_eq!(unsafe { libc::listen(stopped.as_raw_fd(), 1) }, 0);
        // when more and more connect, then the one for whom there is no room is told so at once, and who it is
        let mut waiting = Vec::new();
        let error = loop {
            match connect(&name) {
                Ok(stream) => waiting.push(stream),
                Err(e) => break e,
            }
            assert!(waiting.len() < 10, "there is no bound");
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(peer_process(&waiting[0]).ok(), Some(std::process::id()));
        // and a name that no socket can have is refused
        assert_eq!(connect(&"x".repeat(108)).expect_err("too long").kind(), io::ErrorKind::InvalidInput);
    }
}
