//! The stream beside a queue pair: the handshake, rare control frames, and the end of the stream as the sign that the peer is gone.
//!
//! Never blocks. What is to be said is kept as marks, so that no queue can grow. Used by the thread that owns the endpoint.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::handshake::{CONTROL, Control, HELLO, Hello, check_backend};
use crate::LinkError;

/// What came over the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Hello(Hello),
    Control(Control),
    /// The peer's end of the stream.
    End,
}

#[derive(Debug)]
pub(super) struct Stream {
    socket: TcpStream,
    out: [u8; HELLO],
    out_len: usize,
    out_sent: usize,
    input: [u8; HELLO],
    input_len: usize,
    greeted: bool,
    ended: bool,
    shut: bool,
    /// To be said when there is room, in this order.
    pub(super) ready: bool,
    pub(super) need: Option<u64>,
    pub(super) ring: Option<u64>,
    pub(super) bye: Option<u64>,
    /// System calls that wrote and read.
    pub(super) calls: (u64, u64),
}

impl Stream {
    pub(super) fn new(socket: TcpStream, hello: &Hello) -> Self {
        Self {
            socket,
            out: hello.encode(),
            out_len: HELLO,
            out_sent: 0,
            input: [0; HELLO],
            input_len: 0,
            greeted: false,
            ended: false,
            shut: false,
            ready: false,
            need: None,
            ring: None,
            bye: None,
            calls: (0, 0),
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether the end of this side's stream was sent.
    pub(super) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Whether bytes wait for room in the kernel.
    pub(super) fn wants_write(&self) -> bool {
        self.out_sent < self.out_len || self.ready || self.need.is_some() || self.ring.is_some() || self.bye.is_some()
    }

    /// Writes what is to be said; whether anything left.
    pub(super) fn write(&mut self) -> Result<bool, LinkError> {
        let mut any = false;
        loop {
            if self.out_sent == self.out_len {
                let Some(next) = self.next_control() else { return Ok(any) };
                self.out[..CONTROL].copy_from_slice(&next.encode());
                (self.out_len, self.out_sent) = (CONTROL, 0);
            }
            self.calls.0 += 1;
            match self.socket.write(&self.out[self.out_sent..self.out_len]) {
                Ok(0) => return Ok(any),
                Ok(count) => {
                    self.out_sent += count;
                    any = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(any),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(LinkError::from_io("send", &e)),
            }
        }
    }

    fn next_control(&mut self) -> Option<Control> {
        if std::mem::take(&mut self.ready) {
            return Some(Control::Ready);
        }
        let need = self.need.take().map(Control::Need);
        need.or_else(|| self.ring.take().map(Control::Ring)).or_else(|| self.bye.take().map(Control::Bye))
    }

    /// Reads one thing, if it has come completely.
    pub(super) fn read(&mut self) -> Result<Option<Came>, LinkError> {
        if self.ended {
            return Ok(None);
        }
        let whole = if self.greeted { CONTROL } else { HELLO };
        loop {
            self.calls.1 += 1;
            match self.socket.read(&mut self.input[self.input_len..whole]) {
                Ok(0) => {
                    self.ended = true;
                    return self.end(whole).map(Some);
                }
                Ok(count) => self.input_len += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                // A peer of the other backend gives up as soon as it sees the hello.
                Err(e) if !self.greeted && e.kind() == ErrorKind::ConnectionReset => return Err(silent()),
                Err(e) => return Err(LinkError::from_io("receive", &e)),
            }
            if !self.greeted {
                check_backend(&self.input[..self.input_len])?;
            }
            if self.input_len == whole {
                self.input_len = 0;
                if self.greeted {
                    let mut bytes = [0; CONTROL];
                    bytes.copy_from_slice(&self.input[..CONTROL]);
                    return Control::parse(&bytes).map(|control| Some(Came::Control(control)));
                }
                self.greeted = true;
                return Hello::parse(&self.input).map(|hello| Some(Came::Hello(hello)));
            }
        }
    }

    fn end(&self, whole: usize) -> Result<Came, LinkError> {
        match self.input_len {
            0 if self.greeted => Ok(Came::End),
            0 => Err(silent()),
            len => Err(LinkError::ClosedByPeer { missing: (whole - len) as u64 }),
        }
    }

    /// Sends the end of the stream.
    pub(super) fn shut(&mut self) -> Result<(), LinkError> {
        self.shut = true;
        self.socket.shutdown(Shutdown::Write).map_err(|e| LinkError::from_io("shutdown", &e))
    }

    /// Ends both directions at once.
    pub(super) fn abort(&mut self) {
        self.shut = true;
        // It may be shut down already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// The peer hung up without having said anything.
fn silent() -> LinkError {
    LinkError::Protocol {
        what: "the peer closed before it said its backend: it uses tcp on this link and this end verbs (choose the same on both nodes), or it \
               could not make its queue pair (see its log)",
        value: 0,
    }
}
