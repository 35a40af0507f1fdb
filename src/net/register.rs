//! The register of this process's connections: what `nccl-mesh status` tells of them, and what all of them together have sent.
//!
//! Touched when a connection is made and when it ends. In between its owner, NCCL's progress thread, counts into an atomic of its own
//! with plain stores; nobody else writes it. Knows nothing of legs or flows.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// What is told of a connection.
#[derive(Debug)]
pub(super) struct Entry {
    /// Counts the connections of this process, from 1.
    pub(super) number: u64,
    /// Whether this is the sending end.
    pub(super) sends: bool,
    pub(super) peer: String,
    /// For people: `a - b - c and a - d - c`.
    pub(super) route: String,
    pub(super) relays: usize,
    /// The two ports of the first (when sending) or last link of each lane, this node's first.
    pub(super) links: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub(super) since: Instant,
    /// Payload that was given to it, or has come whole. Relaxed: a statistic.
    pub(super) bytes: AtomicU64,
    /// The other end has said that nothing follows. Relaxed: a statistic.
    pub(super) closing: AtomicBool,
    /// The first error, for ever after.
    pub(super) failed: OnceLock<String>,
}

/// What a connection says of itself when it is made.
#[derive(Debug)]
pub(super) struct About {
    pub(super) sends: bool,
    pub(super) peer: String,
    pub(super) route: String,
    pub(super) relays: usize,
}

#[derive(Debug, Default)]
struct Inner {
    made: u64,
    live: BTreeMap<u64, Arc<Entry>>,
    /// Bytes sent on connections that have ended: direct, and by relays.
    ended: [u64; 2],
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Register {
    inner: Mutex<Inner>,
}

impl Register {
    /// Enters a connection, until what is returned is dropped.
    pub(super) fn enter(self: &Arc<Self>, about: About, links: Vec<(Ipv4Addr, Ipv4Addr)>) -> Entered {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.made += 1;
        let About { sends, peer, route, relays } = about;
        let entry = Arc::new(Entry {
            number: inner.made,
            sends,
            peer,
            route,
            relays,
            links,
            since: Instant::now(),
            bytes: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            failed: OnceLock::new(),
        });
        inner.live.insert(entry.number, Arc::clone(&entry));
        drop(inner);
        Entered { register: Arc::clone(self), entry }
    }

    /// Those that are there, in the order in which they were made.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).live.values().cloned().collect()
    }

    /// Payload bytes that this process has sent on connections of its own: to neighbours, and by relays.
    pub(super) fn sent(&self) -> [u64; 2] {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.live.values().filter(|entry| entry.sends).fold(inner.ended, add)
    }
}

fn add(mut sums: [u64; 2], entry: &Arc<Entry>) -> [u64; 2] {
    // Relaxed: a statistic, read on its own.
    sums[usize::from(entry.relays > 0)] += entry.bytes.load(Ordering::Relaxed);
    sums
}

/// A connection's place in the register; its owner's hand on it.
#[derive(Debug)]
pub(super) struct Entered {
    register: Arc<Register>,
    entry: Arc<Entry>,
}

impl Entered {
    /// Adds to the bytes. For the owner alone: nobody else writes, so that a load and a store do.
    pub(super) fn count(&mut self, bytes: u64) {
        let counter = &self.entry.bytes;
        // Relaxed: a statistic, read on its own.
        counter.store(counter.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// The other end has said that nothing follows.
    #[cold]
    pub(super) fn closing(&self) {
        // Relaxed: a statistic, read on its own.
        self.entry.closing.store(true, Ordering::Relaxed);
    }

    /// Its first error.
    #[cold]
    pub(super) fn failed(&self, error: &impl ToString) {
        // What was said first holds.
        let _ = self.entry.failed.set(error.to_string());
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut inner = self.register.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if self.entry.sends {
            inner.ended = add(inner.ended, &self.entry);
        }
        inner.live.remove(&self.entry.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(sends: bool, relays: usize) -> About {
        About { sends, peer: "c".into(), route: "a - c".into(), relays }
    }

    #[test]
    fn what_was_sent_is_counted_over_connections_that_stand_and_those_that_have_ended() {
        // given a direct connection, a relayed one, and one that receives
        let register = Arc::new(Register::default());
        let mut direct = register.enter(about(true, 0), Vec::new());
        let mut relayed = register.enter(about(true, 2), Vec::new());
        let mut receives = register.enter(about(false, 0), Vec::new());
        for (entered, bytes) in [(&mut direct, 5), (&mut relayed, 7), (&mut receives, 11)] {
            entered.count(bytes);
        }
        direct.count(1);
        assert_eq!(register.sent(), [6, 7]);
        // when one ends, then it is no more among them, and what it sent still counts
        drop(direct);
        let numbers = |register: &Register| register.all().iter().map(|entry| entry.number).collect::<Vec<_>>();
        assert_eq!((register.sent(), numbers(&register)), ([6, 7], vec![2, 3]));
        drop((relayed, receives));
        assert_eq!((register.sent(), numbers(&register)), ([6, 7], vec![]));
    }

    #[test]
    fn the_first_error_is_the_one_that_is_told() {
        let register = Arc::new(Register::default());
        let entered = register.enter(about(true, 0), Vec::new());
        entered.failed(&"mesh[E59] first");
        entered.failed(&"mesh[E45] second");
        assert_eq!(register.all()[0].failed.get().map(String::as_str), Some("mesh[E59] first"));
    }
}
