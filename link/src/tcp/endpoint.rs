//! The queue pair over one TCP connection.
//!
//! Ties the sending and the receiving half to a socket and keeps the error. Knows nothing of nodes or routes. Runs on whichever
//! thread owns the endpoint, one at a time; nothing blocks, and nothing is allocated after construction.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use super::limits::Limits;
use super::receive::Receiver;
use super::send::Sender;
use super::socket;
use crate::exposures::Exposures;
use crate::{Event, Key, LinkError, PostError, Target, WRITE_HEADER, Window};

/// What an endpoint has done since it was made. Payload bytes are bodies of writes, their 32-byte headers included, counted when
/// a write is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of writes handed to the kernel.
    pub payload_bytes_out: u64,
    /// Bytes of writes landed.
    pub payload_bytes_in: u64,
    /// Frames handed to the kernel, messages included.
    pub frames_out: u64,
    /// Frames taken, messages included.
    pub frames_in: u64,
    /// Messages handed to the kernel.
    pub messages_out: u64,
    /// Messages delivered.
    pub messages_in: u64,
    /// System calls that send, whatever they did.
    pub syscalls_out: u64,
    /// System calls that receive, whatever they did.
    pub syscalls_in: u64,
}

/// One end of a link over TCP.
///
/// Posting only queues: [`poll`](Self::poll) or [`flush`](Self::flush) sends, so that several posts leave in one system call.
#[derive(Debug)]
pub struct TcpEndpoint {
    stream: TcpStream,
    sender: Sender,
    receiver: Receiver,
    exposures: Exposures,
    /// Sending failed; what has arrived before is still delivered.
    send_error: Option<LinkError>,
    /// The final error, returned for ever.
    failed: Option<LinkError>,
    /// This side writes no more once its queue is empty.
    closing: bool,
    /// The end of the stream was sent.
    closed: bool,
}

impl TcpEndpoint {
    /// An endpoint over a connected stream, whose options it sets. All memory is allocated here.
    pub fn new(stream: TcpStream, limits: Limits) -> io::Result<Self> {
        prepare(&stream, &limits)?;
        Ok(Self {
            sender: Sender::new(limits.writes, limits.messages, limits.poll_bytes),
            receiver: Receiver::new(&limits),
            exposures: Exposures::new(limits.exposures),
            stream,
            send_error: None,
            failed: None,
            closing: false,
            closed: false,
        })
    }

    /// Lets the peer write `window`, until the key is withdrawn. The memory must stay valid as long.
    pub fn expose(&mut self, window: Window) -> Result<Key, PostError> {
        self.expose_as(window, false)
    }

    /// As [`expose`](Self::expose), for memory that a GPU polls while it is written: every write lands as
    /// [`land_ordered`](crate::memory::land_ordered) does, at the price of one copy.
    pub fn expose_ordered(&mut self, window: Window) -> Result<Key, PostError> {
        self.expose_as(window, true)
    }

    fn expose_as(&mut self, window: Window, ordered: bool) -> Result<Key, PostError> {
        if self.failed.is_some() {
            return Err(PostError::Broken);
        }
        self.exposures.expose(window, ordered)
    }

    /// Takes a window back: when this returns no byte of it is written any more, and a write of the peer that names the key is a
    /// protocol violation. If a write to it has begun to arrive, that is one already, and the link is broken. Whether the key
    /// was exposed.
    pub fn withdraw(&mut self, key: Key) -> bool {
        if self.receiver.is_landing(key) && self.failed.is_none() {
            self.fail(LinkError::Protocol { what: "key was withdrawn during a write to it", value: key.raw().into() });
        }
        self.exposures.withdraw(key)
    }

    /// Queues a write: the header, if any, and the payload land contiguously at `target`; with `imm` the peer is notified then.
    /// The header is copied; the payload must not change until [`Event::Written`] with this `id`, or until the endpoint fails.
    pub fn post_write(
        &mut self,
        id: u64,
        header: Option<&[u8; WRITE_HEADER]>,
        payload: Window,
        target: Target,
        imm: Option<u32>,
    ) -> Result<(), PostError> {
        self.may_post()?;
        self.sender.post_write(id, header, payload, target, imm)
    }

    /// Queues a message of at most [`MAX_MESSAGE`](crate::MAX_MESSAGE) bytes, ahead of all writes that have not begun to leave.
    pub fn post_message(&mut self, bytes: &[u8]) -> Result<(), PostError> {
        self.may_post()?;
        self.sender.post_message(bytes)
    }

    fn may_post(&self) -> Result<(), PostError> {
        let broken = self.closing || self.send_error.is_some() || self.failed.is_some();
        if broken { Err(PostError::Broken) } else { Ok(()) }
    }

    /// Sends what is queued, then takes what has arrived, and reports events to `sink`. True if there was progress: before
    /// sleeping on the descriptor, poll until it is false, as part of what has arrived may wait in a buffer of this endpoint.
    ///
    /// What arrived before the link failed is reported before the error is returned. After an error all queued writes are
    /// forgotten, no window is touched any more, and every call returns the same error.
    pub fn poll<F: FnMut(Event<'_>)>(&mut self, mut sink: F) -> Result<bool, LinkError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.poll_once(&mut sink);
        if let Err(error) = result {
            self.fail(error);
        }
        result
    }

    fn poll_once<F: FnMut(Event<'_>)>(&mut self, sink: &mut F) -> Result<bool, LinkError> {
        // A failure to send is kept, and returned once everything received has been reported.
        let mut progress = self.flush().unwrap_or(false);
        while let Some(id) = self.sender.pop_written() {
            progress = true;
            sink(Event::Written { id });
        }
        progress |= self.receiver.poll(self.stream.as_fd(), &self.exposures, sink)?;
        match self.send_error {
            Some(error) if !progress => Err(error),
            _ => Ok(progress),
        }
    }

    /// Sends what is queued without receiving. Whether anything left. [`Event::Written`] waits for the next poll.
    pub fn flush(&mut self) -> Result<bool, LinkError> {
        if let Some(error) = self.failed.or(self.send_error) {
            return Err(error);
        }
        let result = self.sender.flush(self.stream.as_fd()).and_then(|progress| {
            if self.closing && !self.closed && self.sender.is_empty() {
                self.stream.shutdown(Shutdown::Write).map_err(|e| LinkError::from_io("shutdown", &e))?;
                self.closed = true;
            }
            Ok(progress)
        });
        if let Err(error) = result {
            self.send_error = Some(error);
        }
        result
    }

    /// Says that this side posts no more. The end of the stream follows the last queued frame; receiving goes on, and poll returns
    /// [`LinkError::ClosedByPeer`] when the peer has closed too. A peer that sees the end forgets what it had queued itself: who has
    /// the last word is for the layers above to agree on.
    pub fn shutdown_write(&mut self) {
        self.closing = true;
        // An error is kept and returned by the next poll.
        let _ = self.flush();
    }

    /// Gives the link up at once: queued writes are forgotten, both directions are shut down, no window is touched any more.
    pub fn abort(&mut self) {
        if self.failed.is_none() {
            self.fail(LinkError::Aborted);
        }
    }

    fn fail(&mut self, error: LinkError) {
        self.failed = Some(error);
        self.sender.clear();
        // It may be shut down already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// The final error, if there is one.
    pub fn error(&self) -> Option<LinkError> {
        self.failed
    }

    /// Whether frames, or the end of the stream, wait for room in the kernel: watch the descriptor for writing as well.
    pub fn wants_write(&self) -> bool {
        let pending = !self.sender.is_empty() || (self.closing && !self.closed);
        pending && self.send_error.is_none() && self.failed.is_none()
    }

    /// Whether a queued write still refers to payload memory.
    pub fn has_payload_queued(&self) -> bool {
        self.sender.has_payload()
    }

    /// Writes that have not completely left.
    pub fn queued_writes(&self) -> usize {
        self.sender.queued_writes()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let (sent, received) = (&self.sender.sent, &self.receiver.received);
        Counters {
            payload_bytes_out: sent.payload_bytes,
            payload_bytes_in: received.payload_bytes,
            frames_out: sent.frames,
            frames_in: received.frames,
            messages_out: sent.messages,
            messages_in: received.messages,
            syscalls_out: sent.syscalls,
            syscalls_in: received.syscalls,
        }
    }

    /// The descriptor, for [`Poller`](crate::poller::Poller).
    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The connection itself, non-blocking. What is queued or received and not yet reported is lost.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// Sets a stream's options: non-blocking, without delay, and what the limits name.
pub(crate) fn prepare(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let fd = stream.as_fd();
    socket::close_on_exec(fd)?;
    let int = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
    if let Some(bytes) = limits.send_buffer {
        socket::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, int(bytes))?;
    }
    if let Some(bytes) = limits.receive_buffer {
        socket::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, int(bytes))?;
    }
    if let Some(time) = limits.user_timeout {
        let ms = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        socket::set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms)?;
    }
    if let Some(keepalive) = limits.keepalive {
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX).max(1);
        socket::set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds(keepalive.idle))?;
        socket::set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds(keepalive.interval))?;
        let count = i32::try_from(keepalive.count).unwrap_or(i32::MAX).max(1);
        socket::set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, count)?;
        socket::set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    }
    Ok(())
}

impl AsFd for TcpEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::Keepalive;
    use super::*;

    #[test]
    fn the_socket_gets_all_its_options() {
        // given limits that name every option, with a fraction of a second among them
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let limits = Limits {
            send_buffer: Some(40_000),
            receive_buffer: Some(50_000),
            user_timeout: Some(Duration::from_millis(12_345)),
            keepalive: Some(Keepalive { idle: Duration::from_secs(7), interval: Duration::from_millis(10), count: 4 }),
            ..Limits::default()
        };
        // when an endpoint is made
        let endpoint = TcpEndpoint::new(stream, limits).unwrap();
        // then the kernel has them; it doubles buffer sizes for its own needs
        for (level, name, value) in [
            (libc::SOL_SOCKET, libc::SO_SNDBUF, 80_000),
            (libc::SOL_SOCKET, libc::SO_RCVBUF, 100_000),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 12_345),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 7),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
        ] {
            assert_eq!(socket::option(endpoint.as_fd(), level, name).unwrap(), value, "option {name}");
        }
    }
}
