//! Tells a node that has started anew from two nodes with one id, by what neighbours say about themselves.
//!
//! Must not know on which port they say it. Holds one entry a neighbour, so what ports may hear bounds it. Runs on the thread of the node's owner.
//!
//! A new life replaces an older one. Beacons of the older one may still be on their way for a moment. If both speak on, they are two nodes.

use std::collections::BTreeMap;

use super::advert::after_64;
use super::beacon::Beacon;
use super::types::{Time, Timers};

/// What is to be made of a beacon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is of the node's life as we know it.
    Current,
    /// It is of an older life: probably overtaken on its way.
    Stale,
    /// It is of another node with the same id; `other` is the name that is known.
    Twin {
        /// The other one's name.
        other: String,
    },
}

#[derive(Debug)]
struct Known {
    id: String,
    name: String,
    life: u64,
    last: Time,
    /// An older life is heard beside this one, since then.
    older_since: Option<Time>,
    /// Two nodes are heard, at least until then.
    twins_until: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Identities(BTreeMap<u64, Known>);

impl Identities {
    /// Judges a beacon of the node with this key.
    pub(super) fn judge(&mut self, now: Time, timers: &Timers, key: u64, beacon: &Beacon<'_>) -> Verdict {
        let forgotten = |known: &Known| now >= known.last.saturating_add(timers.dead);
        let Some(known) = self.0.get_mut(&key).filter(|known| !forgotten(known)) else {
            let (id, name) = (beacon.id.to_owned(), beacon.name.to_owned());
            let fresh = Known { id, name, life: beacon.life, last: now, older_since: None, twins_until: 0 };
            self.0.insert(key, fresh);
            return Verdict::Current;
        };
        if after_64(known.life, beacon.life) {
            let since = *known.older_since.get_or_insert(now);
            // Longer than any datagram is on its way, and the newer life has spoken since.
            if known.last > since && now >= since.saturating_add(timers.hello) {
                known.twins_until = now.saturating_add(timers.dead);
                return Verdict::Twin { other: known.name.clone() };
            }
            return Verdict::Stale;
        }
        if known.life == beacon.life {
            if known.id != beacon.id || known.name != beacon.name {
                known.twins_until = now.saturating_add(timers.dead);
                return Verdict::Twin { other: known.name.clone() };
            }
        } else {
            (known.id, known.name, known.life) = (beacon.id.to_owned(), beacon.name.to_owned(), beacon.life);
        }
        known.last = now;
        Verdict::Current
    }

    /// Whether two nodes with this key are heard just now.
    pub(super) fn twins(&self, now: Time, key: u64) -> bool {
        self.0.get(&key).is_some_and(|known| now < known.twins_until)
    }

    /// When twins may be none any more.
    pub(super) fn deadline(&self, now: Time) -> Time {
        self.0.values().map(|known| known.twins_until).filter(|until| *until > now).min().unwrap_or(Time::MAX)
    }

    pub(super) fn expire(&mut self, now: Time, timers: &Timers) {
        self.0.retain(|_, known| now < known.last.saturating_add(timers.dead).max(known.twins_until));
    }
}
