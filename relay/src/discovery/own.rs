//! When this node advertises itself, and with which numbers: coalescing, refreshing, outbidding an earlier life, and two nodes with one id.
//!
//! Must not know what is advertised. Runs on the thread of the node's owner.
//!
//! An advertisement with our id that is newer than ours can only be of an earlier life, which is dead, or of another node. The dead do not
//! answer: it is outbid, once. If the answer is outbid in turn, another node is alive. Then both advertise a conflict instead of their
//! adjacencies, every few seconds, each outbidding the other, so that both go on to know; none is used until one falls silent.

use super::advert::Version;
use super::event::Event;
use super::types::{Config, Time, Timers};

/// See the module.
#[derive(Debug)]
pub(super) struct Own {
    id: String,
    timers: Timers,
    /// Our last advertisement's, or what the next one has to be newer than.
    claim: Version,
    issued: Option<Time>,
    /// When the next one goes out.
    due: Time,
    /// When we last answered an advertisement with our id.
    outbid: Option<Time>,
    /// In conflict: when the other node was last heard of.
    conflict: Option<Time>,
}

impl Own {
    pub(super) fn new(now: Time, config: &Config) -> Self {
        let claim = Version { incarnation: config.life, seq: 0, sum: u32::MAX };
        let (id, timers) = (config.id.clone(), config.timers);
        Self { id, timers, claim, issued: None, due: now, outbid: None, conflict: None }
    }

    /// Whether another node uses our id.
    pub(super) const fn in_conflict(&self) -> bool {
        self.conflict.is_some()
    }

    pub(super) fn deadline(&self) -> Time {
        self.conflict.map_or(self.due, |last| self.due.min(last.saturating_add(self.timers.settled)))
    }

    /// What is advertised has changed. In conflict there is nothing to say but that, and it is said at its time.
    pub(super) fn want(&mut self, now: Time) {
        if self.conflict.is_none() {
            self.hurry(now);
        }
    }

    fn hurry(&mut self, now: Time) {
        let earliest = self.issued.map_or(now, |last| last.saturating_add(self.timers.gap));
        self.due = self.due.min(earliest.max(now));
    }

    /// Incarnation and number of an advertisement that is to be sent now, if one is. What it becomes is told with [`Own::issued`].
    pub(super) fn next(&mut self, now: Time) -> Option<(u64, u32)> {
        (now >= self.due).then(|| (self.claim.incarnation, self.claim.seq.wrapping_add(1)))
    }

    /// It has been sent.
    pub(super) fn issued(&mut self, now: Time, version: Version) {
        self.claim = version;
        self.issued = Some(now);
        let next = if self.in_conflict() { self.timers.conflict } else { self.timers.refresh };
        self.due = now.saturating_add(next);
    }

    /// An advertisement with our id came from elsewhere. `conflict` is what it says itself.
    pub(super) fn heard(&mut self, now: Time, theirs: Version, conflict: bool) -> Option<Event> {
        if !theirs.newer_than(self.claim) {
            return None;
        }
        // Nobody sends out the number 0, so what comes next is newer than anything there is.
        self.claim = Version { incarnation: theirs.incarnation.wrapping_add(1), seq: 0, sum: u32::MAX };
        let answered = self.outbid.replace(now).is_some_and(|at| now < at.saturating_add(self.timers.settled));
        if let Some(last) = &mut self.conflict {
            *last = now;
            return None;
        }
        // At once, in either case: an earlier life is replaced, or the other node learns of the conflict.
        self.hurry(now);
        if answered || conflict {
            self.conflict = Some(now);
            return Some(Event::IdInUse { id: self.id.clone() });
        }
        Some(Event::Outbid { incarnation: theirs.incarnation })
    }

    /// Ends a conflict in which nothing was heard of the other node for so long that it must be gone.
    pub(super) fn on_time(&mut self, now: Time) -> Option<Event> {
        let last = self.conflict?;
        if now < last.saturating_add(self.timers.settled) {
            return None;
        }
        (self.conflict, self.outbid) = (None, None);
        self.hurry(now);
        Some(Event::IdFree { id: self.id.clone() })
    }
}
