//! The endpoints behind the engine's legs, and those of closed legs that still send.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mesh_link::{Endpoint, Key, PostError};
use tracing::warn;

use crate::engine::{LegId, Time};
use crate::wire::MAX_MESSAGE;

/// Frames that may wait for a leg: what a thousand connections say in one breath, and a mebibyte at most.
const BACKLOG: usize = 1024;

/// A run of the pool that a leg's peer may write.
#[derive(Clone, Copy)]
pub(super) struct Exposed {
    pub(super) key: Key,
    /// What the peer adds to offsets.
    pub(super) base: u64,
    /// First slot of the pool.
    pub(super) first: u32,
    pub(super) count: u16,
}

/// One leg.
pub(super) struct Leg {
    pub(super) endpoint: Endpoint,
    pub(super) local: Ipv4Addr,
    pub(super) remote: Ipv4Addr,
    /// Both ends are connected.
    pub(super) open: bool,
    /// What the peer may write.
    pub(super) exposed: Option<Exposed>,
    /// Messages of this turn, as one frame: they leave together.
    outbox: Vec<u8>,
    /// Frames that found the endpoint's queue full.
    backlog: VecDeque<Vec<u8>>,
    /// Payload sent over this leg's link.
    pub(super) sent: Arc<AtomicU64>,
    /// Interest in writing, as the poller knows it.
    pub(super) watches_write: bool,
    /// In the list of legs to be polled.
    pub(super) listed: bool,
    /// Has something to hand to its link.
    pub(super) touched: bool,
    /// Arrivals show on a descriptor.
    pub(super) armed: bool,
    /// Polls in a row that brought nothing.
    pub(super) quiet: u32,
}

impl Leg {
    pub(super) fn new(endpoint: Endpoint, (local, remote): (Ipv4Addr, Ipv4Addr), sent: Arc<AtomicU64>) -> Self {
        Self {
            endpoint,
            local,
            remote,
            open: false,
            exposed: None,
            outbox: Vec::with_capacity(MAX_MESSAGE),
            backlog: VecDeque::new(),
            sent,
            watches_write: false,
            listed: false,
            touched: false,
            armed: false,
            quiet: 0,
        }
    }

    /// Puts an encoded message into the frame that leaves next. When the endpoint is full frames wait here, in order; a peer for which too
    /// many do is cut off, as memory is bounded. A broken endpoint says so when it is polled next.
    pub(super) fn send(&mut self, msg: &[u8]) {
        if self.outbox.len() + msg.len() > MAX_MESSAGE {
            self.close_frame();
        }
        self.outbox.extend_from_slice(msg);
    }

    /// Gives the endpoint what waits, without letting it leave yet; whether any is left.
    pub(super) fn push_messages(&mut self) -> bool {
        self.close_frame();
        self.push_backlog()
    }

    fn close_frame(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        if !self.backlog.is_empty() || self.endpoint.post_message(&self.outbox) == Err(PostError::QueueFull) {
            self.put_by();
        }
        self.outbox.clear();
    }

    #[cold]
    fn put_by(&mut self) {
        if self.backlog.len() < BACKLOG {
            self.backlog.push_back(self.outbox.clone());
        } else {
            warn!("mesh[E51] {} takes none of the {BACKLOG} frames that wait for it: its leg is cut off", self.remote);
            self.endpoint.abort();
        }
    }

    fn push_backlog(&mut self) -> bool {
        while let Some(bytes) = self.backlog.front() {
            if self.endpoint.post_message(bytes) == Err(PostError::QueueFull) {
                return true;
            }
            self.backlog.pop_front();
        }
        false
    }

    /// Hands what was posted to the link. An error is kept, and told by the next poll.
    pub(super) fn flush(&mut self) {
        self.push_messages();
        let _ = self.endpoint.flush();
    }
}

/// A closed leg that still sends.
pub(super) struct Lingering {
    pub(super) endpoint: Endpoint,
    pub(super) until: Time,
}

/// Legs by number; numbers are used again.
#[derive(Default)]
pub(super) struct Legs {
    table: Vec<Option<Leg>>,
    free: Vec<u32>,
}

impl Legs {
    pub(super) fn add(&mut self, leg: Leg) -> LegId {
        match self.free.pop() {
            Some(id) => {
                self.table[id as usize] = Some(leg);
                LegId(id)
            }
            None => {
                self.table.push(Some(leg));
                LegId(self.table.len() as u32 - 1)
            }
        }
    }

    pub(super) fn get(&mut self, id: LegId) -> Option<&mut Leg> {
        self.table.get_mut(id.0 as usize).and_then(Option::as_mut)
    }

    /// Numbers given out so far: all legs have smaller ones.
    pub(super) fn places(&self) -> usize {
        self.table.len()
    }

    /// Takes a leg out for good.
    pub(super) fn remove(&mut self, id: LegId) -> Option<Leg> {
        let leg = self.table.get_mut(id.0 as usize).and_then(Option::take);
        if leg.is_some() {
            self.free.push(id.0);
        }
        leg
    }
}
