//! Reliable, ordered, one-sided writes with notification between the two ports of a link.
//!
//! This crate moves bytes between two neighbours and knows nothing else: no nodes, routes, chunks or credits. An endpoint is
//! shaped like a reliable-connected queue pair, so that every backend offers the same calls:
//!
//! * memory that the peer may write is *exposed* as a [`Window`] and named by a [`Key`]; the key travels to the peer by
//!   whatever means the layers above have, and comes back in a [`Target`];
//! * a *write* puts an optional 32-byte header and a payload contiguously at a target; with an immediate value the peer gets
//!   [`Event::Notified`] once every byte has landed. Writes of one endpoint land, and notify, in the order posted;
//! * a *message* is a small inline datagram, delivered as [`Event::Message`], in order among messages and ahead of queued
//!   writes;
//! * *poll* makes progress and hands out [`Event`]s. Nothing here blocks, spawns a thread, or allocates after construction.
//!
//! ```text
//!   memory    windows, slabs of slots, and copies that flag-polling readers may watch
//!   endpoint  one end of a link, whatever the backend
//!   tcp       the backend over one TCP connection: frame, endpoint, dial
//!   verbs     the backend over an RDMA queue pair: libibverbs at run time, devices, endpoint
//!   udp       datagrams on the cables, for finding neighbours
//!   local     streams between the processes of a host
//!   poller    epoll and a waker, for threads that sleep when idle
//! ```
//!
//! Threads: an endpoint belongs to one thread at a time and takes no locks. [`Window`] is shared freely; [`poller::Waker`] may
//! be used from any thread.
//!
//! ```
//! use mesh_link::{Event, Target, memory::Slab, tcp::{Limits, TcpEndpoint}};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let mut a = TcpEndpoint::new(std::net::TcpStream::connect(listener.local_addr()?)?, Limits::default())?;
//! let mut b = TcpEndpoint::new(listener.accept()?.0, Limits::default())?;
//! let (from, into) = (Slab::new(1, 4096)?, Slab::new(1, 4096)?);
//! assert!(from.slot(0).write_from(0, b"hello"));
//! let key = b.expose(into.slot(0))?;
//! let payload = from.slot(0).sub(0, 5).ok_or("too short")?;
//! a.post_write(1, None, payload, Target { key, offset: 100 }, Some(7))?;
//! let mut arrived = false;
//! while !arrived {
//!     a.poll(|_| ())?;
//!     b.poll(|event| arrived |= matches!(event, Event::Notified { offset: 100, len: 5, imm: 7, .. }))?;
//! }
//! let mut bytes = [0; 5];
//! assert!(into.slot(0).read_into(100, &mut bytes));
//! assert_eq!(&bytes, b"hello");
//! # Ok(()) }
//! ```

pub mod endpoint;
mod error;
mod exposures;
pub mod local;
pub mod memory;
pub mod netdev;
pub mod poller;
pub mod tcp;
pub mod udp;
pub mod verbs;

pub use endpoint::Endpoint;
pub use error::{LinkError, PostError};
pub use memory::Window;

/// Bytes of the header that a write may carry in front of its payload.
pub const WRITE_HEADER: usize = 32;

/// Longest payload of one write, in bytes; a header comes on top.
pub const MAX_WRITE: usize = 1 << 30;

/// Longest message, in bytes.
pub const MAX_MESSAGE: usize = 1024;

/// Bytes of a board: memory of an end that its peer writes without anybody being told. Only links over verbs have boards.
pub const BOARD: usize = 4096;
/// Longest write on a board, in bytes. What lies in one cache line is written in one piece; lines may come in any order.
pub const MAX_SMALL: usize = 128;

/// Names memory that an endpoint exposed to its peer. Zero is never a valid key.
///
/// A key holds an index and a generation: once withdrawn it does not come back until every generation of its index has been
/// used, so a late write is recognised instead of landing in somebody else's memory. Keys mean something to the endpoint that
/// made them only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(u32);

impl Key {
    /// No key: what a notification names if the backend cannot know which key was written.
    pub const UNKNOWN: Self = Self(0);

    /// The key as it travels to the peer.
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The key that the peer sent. Any value is accepted here; a wrong one is refused by the endpoint it is used on.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }
}

/// Where a write lands in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The peer's key.
    pub key: Key,
    /// Bytes from the start of the window that the key names, plus the base that [`Endpoint::expose`] returned with it.
    pub offset: u64,
}

/// What an endpoint's poll reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The write posted here under `id` no longer needs its payload memory. It says nothing about arrival.
    Written {
        /// As given when posting.
        id: u64,
    },
    /// A write of the peer that carried an immediate value has landed completely, and so have all its earlier writes.
    Notified {
        /// The key that was written; [`Key::UNKNOWN`] if the backend cannot know (verbs).
        key: Key,
        /// Bytes from the start of the key's window; 0 if the key is unknown.
        offset: u64,
        /// Bytes that landed: header and payload.
        len: u32,
        /// The immediate value.
        imm: u32,
    },
    /// A message of the peer, valid during the call.
    Message(&'a [u8]),
}
