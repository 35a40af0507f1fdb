//! The system calls under the TCP backend, with safe signatures.
//!
//! Knows windows and descriptors, not frames. The functions of the C library are called by name, so that a library loaded
//! before it can take its place.
#![allow(unsafe_code, reason = "scatter and gather calls on raw memory, and sockets bound before they connect")]

use std::io;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{mem, ptr};

use crate::Window;

/// Pieces that one send gathers at most.
const PIECES: usize = 64;

/// Pieces of memory to send in one system call.
pub(super) struct Batch<'a> {
    pieces: [libc::iovec; PIECES],
    count: usize,
    bytes: usize,
    _borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Batch<'a> {
    pub(super) fn new() -> Self {
        let piece = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self { pieces: [piece; PIECES], count: 0, bytes: 0, _borrowed: PhantomData }
    }

    /// Bytes gathered so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is room for `pieces` more.
    pub(super) fn has_room(&self, pieces: usize) -> bool {
        self.count + pieces <= PIECES
    }

    /// Adds bytes; false if there is no room.
    pub(super) fn push(&mut self, bytes: &'a [u8]) -> bool {
        self.add(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Adds a window's bytes; false if there is no room.
    pub(super) fn push_window(&mut self, window: Window) -> bool {
        self.add(window.as_ptr(), window.len())
    }

    fn add(&mut self, base: *mut u8, len: usize) -> bool {
        if len == 0 {
            return true;
        }
        let Some(piece) = self.pieces.get_mut(self.count) else { return false };
        *piece = libc::iovec { iov_base: base.cast(), iov_len: len };
        self.count += 1;
        self.bytes += len;
        true
    }
}

/// Sends what was gathered, as much of it as the kernel takes. Never raises SIGPIPE.
pub(super) fn send(fd: BorrowedFd<'_>, batch: &mut Batch<'_>) -> io::Result<usize> {
    // SAFETY: an all-zero msghdr is a valid one without address, pieces or control data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = batch.pieces.as_mut_ptr();
    message.msg_iovlen = batch.count;
    retry(|| {
        // SAFETY: the pieces are slices borrowed for the batch's life, or windows, readable by the promise of `Window::new`.
        unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) }
    })
}

/// Receives into `window`, and what does not fit into `beyond`. 0 is the end of the stream, if there was room at all.
pub(super) fn receive(fd: BorrowedFd<'_>, window: Window, beyond: &mut [u8]) -> io::Result<usize> {
    if window.is_empty() {
        return retry(|| {
            // SAFETY: `beyond` is an exclusive slice of that length.
            unsafe { libc::recv(fd.as_raw_fd(), beyond.as_mut_ptr().cast(), beyond.len(), libc::MSG_DONTWAIT) }
        });
    }
    let mut pieces = [
        libc::iovec { iov_base: window.as_ptr().cast(), iov_len: window.len() },
        libc::iovec { iov_base: beyond.as_mut_ptr().cast(), iov_len: beyond.len() },
    ];
    // SAFETY: an all-zero msghdr is a valid one without address, pieces or control data.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    retry(|| {
        // SAFETY: the window is writable by the promise of `Window::new`, `beyond` is an exclusive slice.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) }
    })
}

/// Calls until it is not interrupted.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option whose value is an int.
pub(super) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the value is an int that lives during the call, and its size is given.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size_of_val(&value) as libc::socklen_t)
    })
}

/// Asks for an option whose value is an int.
pub(super) fn option(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: both pointers are to locals that live during the call, and `len` is the size of `value`.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// Makes the descriptor close on exec.
pub(super) fn close_on_exec(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an fcntl on a borrowed, open descriptor that touches no memory.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) })
}

/// A non-blocking TCP socket over IPv4 that closes on exec.
pub(super) fn open() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
    check(fd)?;
    // SAFETY: the descriptor was made just now and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn c_address(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// Binds a socket to an address; port 0 lets the kernel choose.
pub(super) fn bind(fd: BorrowedFd<'_>, ip: Ipv4Addr, port: u16) -> io::Result<()> {
    let address = c_address(SocketAddrV4::new(ip, port));
    // SAFETY: the address lives during the call, and its size is given.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t) })
}

/// Makes a bound socket listen.
pub(super) fn listen(fd: BorrowedFd<'_>, backlog: u32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(fd.as_raw_fd(), i32::try_from(backlog).unwrap_or(i32::MAX)) })
}

/// Begins to connect. Success includes "in progress".
pub(super) fn connect(fd: BorrowedFd<'_>, remote: SocketAddrV4) -> io::Result<()> {
    let address = c_address(remote);
    // SAFETY: the address lives during the call, and its size is given.
    let result = check(unsafe {
        libc::connect(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    });
    match result {
        // An interrupted connect goes on in the background, as one in progress does.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Ok(()),
        other => other,
    }
}

/// Whether the socket is ready to write, or has failed. Does not wait.
pub(super) fn is_writable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd that lives during the call.
    let count = retry(|| unsafe { libc::poll(&raw mut poll, 1, 0) } as isize)?;
    Ok(count > 0)
}
