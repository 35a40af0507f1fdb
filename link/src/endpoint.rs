//! One end of a link, whatever carries it.
//!
//! The same calls over both backends; which one is the deployment's choice, made once and the same on both nodes. The two ends notice a
//! difference and fail with an error that says so: nothing falls back to something slower in silence. Runs on the thread that owns the
//! endpoint.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::RawFd;

use crate::poller::Interest;
use crate::tcp::{Counters, Limits, TcpEndpoint};
use crate::verbs::{DeviceSet, VerbsEndpoint, VerbsError, VerbsLimits};
use crate::{Event, Key, LinkError, PostError, Target, WRITE_HEADER, Window};

/// What carries links. Cheap to clone; any thread.
#[derive(Clone, Debug)]
pub enum Backend {
    /// The stream itself.
    Tcp,
    /// Queue pairs on these devices; the stream stays beside them.
    Verbs(DeviceSet, VerbsLimits),
}

impl Backend {
    /// Its name in settings and reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Verbs(..) => "verbs",
        }
    }

    /// Whether [`Event::Written`] says that a write lies in the peer's memory, and not only that it has left.
    pub const fn reports_arrival(&self) -> bool {
        matches!(self, Self::Verbs(..))
    }
}

/// An endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The stream cannot be used.
    #[error("stream: {0}")]
    Stream(#[from] io::Error),
    /// The queue pair cannot be made.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

/// One end of a link. See [`TcpEndpoint`] for the meaning of the calls.
#[derive(Debug)]
pub enum Endpoint {
    /// Over the stream. Boxed, as it is used in place and seldom moved.
    Tcp(Box<TcpEndpoint>),
    /// Over a queue pair.
    Verbs(Box<VerbsEndpoint>),
}

/// The same call on either.
macro_rules! either {
    ($self:expr, $endpoint:ident => $call:expr) => {
        match $self {
            Self::Tcp($endpoint) => $call,
            Self::Verbs($endpoint) => $call,
        }
    };
}

impl Endpoint {
    /// An endpoint over a connected stream, which either end may have opened. Never waits for the peer; over verbs it takes about a
    /// millisecond.
    ///
    /// # Errors
    /// [`EndpointError`]; the stream is closed then.
    pub fn new(stream: TcpStream, limits: Limits, backend: &Backend) -> Result<Self, EndpointError> {
        Ok(match backend {
            Backend::Tcp => Self::Tcp(Box::new(TcpEndpoint::new(stream, limits)?)),
            Backend::Verbs(set, verbs) => Self::Verbs(Box::new(VerbsEndpoint::new(stream, limits, *verbs, set)?)),
        })
    }

    /// Lets the peer write `window`, until the key is withdrawn. Returns the key, and what the peer must add to offsets in the window:
    /// both travel to it together. Over TCP that is 0, over verbs the window's address.
    pub fn expose(&mut self, window: Window) -> Result<(Key, u64), PostError> {
        match self {
            Self::Tcp(endpoint) => endpoint.expose(window).map(|key| (key, 0)),
            Self::Verbs(endpoint) => endpoint.expose(window),
        }
    }

    /// As [`expose`](Self::expose), for memory that a GPU polls while it is written. A NIC writes in rising order as it is.
    pub fn expose_ordered(&mut self, window: Window) -> Result<(Key, u64), PostError> {
        match self {
            Self::Tcp(endpoint) => endpoint.expose_ordered(window).map(|key| (key, 0)),
            Self::Verbs(endpoint) => endpoint.expose(window),
        }
    }

    /// Takes a window back that the peer has no more business in: all that it was allowed to write has been notified. Whether the key was
    /// exposed.
    pub fn withdraw(&mut self, key: Key) -> bool {
        either!(self, endpoint => endpoint.withdraw(key))
    }

    /// Takes a window back that the peer may still write: when this returns, no byte of it is written any more. Over TCP a later write to
    /// it breaks the link; a queue pair is broken at once. Whether the key was exposed.
    pub fn revoke(&mut self, key: Key) -> bool {
        match self {
            Self::Tcp(endpoint) => endpoint.withdraw(key),
            Self::Verbs(endpoint) => endpoint.revoke(key),
        }
    }

    /// Queues a write: the header, if any, and the payload land contiguously at `target`; with `imm` the peer is notified then. The payload
    /// must not change until [`Event::Written`] with this `id`, or until the endpoint fails.
    pub fn post_write(
        &mut self,
        id: u64,
        header: Option<&[u8; WRITE_HEADER]>,
        payload: Window,
        target: Target,
        imm: Option<u32>,
    ) -> Result<(), PostError> {
        either!(self, endpoint => endpoint.post_write(id, header, payload, target, imm))
    }

    /// Queues a message of at most [`MAX_MESSAGE`](crate::MAX_MESSAGE) bytes, ahead of writes that have not begun to leave.
    pub fn post_message(&mut self, bytes: &[u8]) -> Result<(), PostError> {
        either!(self, endpoint => endpoint.post_message(bytes))
    }

    /// Queues a write of at most [`MAX_SMALL`](crate::MAX_SMALL) bytes at that place of the peer's [`board`](Self::board). Keeps its order
    /// among messages; nobody is notified, and it is not reported.
    pub fn post_on_board(&mut self, at: usize, bytes: &[u8]) -> Result<(), PostError> {
        match self {
            Self::Tcp(_) => Err(PostError::NotOffered),
            Self::Verbs(endpoint) => endpoint.post_on_board(at, bytes),
        }
    }

    /// The memory that the peer writes with [`post_on_board`](Self::post_on_board), if links of this kind have one: its reader looks for
    /// itself. Such links also report a write only once it lies in the peer's memory.
    pub fn board(&self) -> Option<Window> {
        match self {
            Self::Tcp(_) => None,
            Self::Verbs(endpoint) => Some(endpoint.board()),
        }
    }

    /// Sends what is queued, takes what has arrived, and reports events to `sink`; whether there was progress.
    ///
    /// # Errors
    /// Sticky: what arrived before the link failed is reported first.
    pub fn poll<F: FnMut(Event<'_>)>(&mut self, sink: F) -> Result<bool, LinkError> {
        either!(self, endpoint => endpoint.poll(sink))
    }

    /// Sends what is queued without receiving. Whether anything left.
    pub fn flush(&mut self) -> Result<bool, LinkError> {
        either!(self, endpoint => endpoint.flush())
    }

    /// Before sleeping on [`fd`](Self::fd) and [`completion_fd`](Self::completion_fd): call this, then poll once more, and sleep only if
    /// there was no progress. Costs nothing over TCP.
    pub fn arm(&mut self) -> Result<(), LinkError> {
        match self {
            Self::Tcp(_) => Ok(()),
            Self::Verbs(endpoint) => endpoint.arm(),
        }
    }

    /// To be told whenever a descriptor was found ready, so that the next poll looks at it: polls do not always, as that costs system calls.
    pub fn on_ready(&mut self) {
        match self {
            Self::Tcp(_) => {}
            Self::Verbs(endpoint) => endpoint.on_ready(),
        }
    }

    /// Whether arrivals show on a descriptor now: always over TCP, over verbs since [`arm`](Self::arm) and until a poll has taken its event.
    pub fn is_armed(&self) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Verbs(endpoint) => endpoint.is_armed(),
        }
    }

    /// Whether arrivals show on a descriptor without [`arm`](Self::arm). If not, an endpoint that is not armed must be polled.
    pub const fn is_woken_by_itself(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// Whether what is posted can leave: at once over TCP; over verbs once both queue pairs are connected.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Verbs(endpoint) => endpoint.is_open(),
        }
    }

    /// The largest packets that the ports of this end and of the peer take, in bytes, once both are known; never over TCP.
    pub fn mtu(&self) -> Option<(u32, u32)> {
        match self {
            Self::Tcp(_) => None,
            Self::Verbs(endpoint) => endpoint.mtu(),
        }
    }

    /// The stream's descriptor.
    pub fn fd(&self) -> RawFd {
        either!(self, endpoint => endpoint.fd())
    }

    /// The second descriptor to watch, for reading, if there is one.
    pub fn completion_fd(&self) -> Option<RawFd> {
        match self {
            Self::Tcp(_) => None,
            Self::Verbs(endpoint) => Some(endpoint.completion_fd()),
        }
    }

    /// What to watch the stream's descriptor for.
    pub fn interest(&self) -> Interest {
        let write = match self {
            Self::Tcp(endpoint) => endpoint.wants_write(),
            Self::Verbs(endpoint) => endpoint.stream_wants_write(),
        };
        Interest { read: true, write }
    }

    /// Whether something that was queued, or the end of the stream, has not left.
    pub fn wants_write(&self) -> bool {
        either!(self, endpoint => endpoint.wants_write())
    }

    /// Whether a write that was posted still refers to payload memory.
    pub fn has_payload_queued(&self) -> bool {
        either!(self, endpoint => endpoint.has_payload_queued())
    }

    /// Writes that have not completely left.
    pub fn queued_writes(&self) -> usize {
        either!(self, endpoint => endpoint.queued_writes())
    }

    /// Says that this side posts no more; the end of the stream follows the last of what is queued.
    pub fn shutdown_write(&mut self) {
        either!(self, endpoint => endpoint.shutdown_write())
    }

    /// Gives the link up at once: queued writes are forgotten, and no window is written any more.
    pub fn abort(&mut self) {
        either!(self, endpoint => endpoint.abort())
    }

    /// The final error, if there is one.
    pub fn error(&self) -> Option<LinkError> {
        either!(self, endpoint => endpoint.error())
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        either!(self, endpoint => endpoint.counters())
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        either!(self, endpoint => endpoint.peer_addr())
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        either!(self, endpoint => endpoint.local_addr())
    }
}
