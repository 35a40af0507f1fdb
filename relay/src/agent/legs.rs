//! The endpoints behind the engine's legs, and those of closed legs that still send.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use mesh_link::{Endpoint, Key, PostError};

use crate::engine::{LegId, Time};

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
    /// Messages that found the endpoint's queue full.
    backlog: VecDeque<Vec<u8>>,
    /// Payload sent over this leg's link.
    pub(super) sent: Arc<AtomicU64>,
    /// Interest in writing, as the poller knows it.
    pub(super) watches_write: bool,
    /// In the list of legs to be polled.
    pub(super) listed: bool,
    /// Arrivals show on a descriptor.
    pub(super) armed: bool,
}

impl Leg {
    pub(super) fn new(endpoint: Endpoint, (local, remote): (Ipv4Addr, Ipv4Addr), sent: Arc<AtomicU64>) -> Self {
        Self {
            endpoint,
            local,
            remote,
            open: false,
            exposed: None,
            backlog: VecDeque::new(),
            sent,
            watches_write: false,
            listed: false,
            armed: false,
        }
    }

    /// Queues a message; when the endpoint is full it waits here, in order. A broken endpoint says so when it is polled next.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if !self.backlog.is_empty() || self.endpoint.post_message(bytes) == Err(PostError::QueueFull) {
            self.backlog.push_back(bytes.to_vec());
        }
    }

    /// Moves waiting messages on; whether any is left.
    pub(super) fn push_backlog(&mut self) -> bool {
        while let Some(bytes) = self.backlog.front() {
            if self.endpoint.post_message(bytes) == Err(PostError::QueueFull) {
                return true;
            }
            self.backlog.pop_front();
        }
        false
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

    /// Takes a leg out to be polled, while the engine is told what comes of it; its number stays taken.
    pub(super) fn lift(&mut self, id: LegId) -> Option<Leg> {
        self.table.get_mut(id.0 as usize).and_then(Option::take)
    }

    /// All legs that can be polled now.
    pub(super) fn each(&mut self) -> impl Iterator<Item = (LegId, &mut Leg)> {
        self.table.iter_mut().enumerate().filter_map(|(n, leg)| Some((LegId(n as u32), leg.as_mut()?)))
    }

    pub(super) fn put_back(&mut self, id: LegId, leg: Leg) {
        self.table[id.0 as usize] = Some(leg);
    }

    /// Takes a leg out for good.
    pub(super) fn remove(&mut self, id: LegId) -> Option<Leg> {
        let leg = self.lift(id);
        if leg.is_some() {
            self.free.push(id.0);
        }
        leg
    }
}
