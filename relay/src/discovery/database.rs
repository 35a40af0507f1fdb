//! The advertisements that a node holds: which of two is newer, when one dies, what a neighbour lacks.
//!
//! Must not know links, neighbours or what the advertisements say. Bounded by a number of nodes. Runs on the thread of the node's owner.
//!
//! Reliability comes from comparing: beacons carry a [`Summary`]; neighbours whose summaries differ send each other digests, and each
//! sends what the other's digest lacks. That also heals partitions, and is all there is: no acknowledgements, no lists of what is under
//! way.
//!
//! An advertisement carries its age, and every holder makes it at least a millisecond older. So none can be handed round for ever after
//! its origin is gone.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use super::advert::{Advert, Version, mix, sum};
use super::beacon::{Carried, Digest, DigestEntry, MAX_ENTRIES, Summary};
use super::bytes::WireError;
use super::types::{MS, Time};

#[derive(Debug)]
struct Held {
    advert: Advert,
    body: Box<[u8]>,
    version: Version,
    /// When it was sent out by its origin, by our clock.
    born: Time,
}

/// What became of an advertisement that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Taken.
    Taken {
        /// Whose it is.
        origin: u64,
        /// Whether it says something else than the one before.
        changed: bool,
    },
    /// Held already, or something newer is; or it is too old to live.
    Known,
    /// It says it is our own.
    Own {
        /// Its version.
        version: Version,
        /// Whether it says that two nodes have our id.
        conflict: bool,
    },
    /// There is no room for another node.
    Full {
        /// Whose it is.
        origin: u64,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Database {
    own: u64,
    max_nodes: usize,
    age: Time,
    held: BTreeMap<u64, Held>,
    summary: Summary,
    /// Not after the first death of an advertisement.
    next_death: Time,
}

impl Database {
    /// Of node `own`, for at most `max_nodes` nodes, whose advertisements live for `age` nanoseconds.
    pub fn new(own: u64, max_nodes: usize, age: Time) -> Self {
        Self { own, max_nodes, age, held: BTreeMap::new(), summary: Summary::default(), next_death: Time::MAX }
    }

    /// All advertisements, by key.
    pub fn adverts(&self) -> impl Iterator<Item = (u64, &Advert)> {
        self.held.iter().map(|(key, held)| (*key, &held.advert))
    }

    /// Equal for equal databases.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Bytes that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        let port = |port: &super::AdvertPort| size_of_val(port) + port.device.len();
        let held = |held: &Held| {
            let texts = held.advert.id.len() + held.advert.name.len();
            let ports: usize = held.advert.ports.iter().map(port).sum();
            size_of_val(held) + texts + ports + size_of_val(&*held.advert.adjacencies) + held.body.len()
        };
        self.held.values().map(held).sum()
    }

    /// Our own advertisement. Answers its version, and whether it says something new.
    pub fn put_own(&mut self, now: Time, advert: Advert) -> (Version, bool) {
        let body = advert.encode();
        let version = Version { incarnation: advert.incarnation, seq: advert.seq, sum: sum(&body) };
        (version, self.put(self.own, Held { advert, body: body.into(), version, born: now }))
    }

    /// An advertisement that a neighbour sent.
    ///
    /// # Errors
    /// If it cannot be read; nothing has changed then.
    pub fn offer(&mut self, now: Time, carried: Carried<'_>) -> Result<Offer, WireError> {
        let (origin, version) = Advert::peek(carried.body)?;
        let known = self.held.get(&origin);
        if known.is_some_and(|held| !version.newer_than(held.version)) && origin != self.own {
            return Ok(Offer::Known);
        }
        let advert = Advert::decode(carried.body)?;
        let age = Time::from(carried.age_ms) * MS;
        if age >= self.age {
            return Ok(Offer::Known);
        }
        if origin == self.own {
            return Ok(Offer::Own { version, conflict: advert.conflict });
        }
        // One place is our own's, whether it is taken or not.
        let others = self.held.len() - usize::from(self.held.contains_key(&self.own));
        if known.is_none() && others + 1 >= self.max_nodes {
            return Ok(Offer::Full { origin });
        }
        let born = now.saturating_sub(age);
        let changed = self.put(origin, Held { advert, body: carried.body.into(), version, born });
        Ok(Offer::Taken { origin, changed })
    }

    fn put(&mut self, origin: u64, held: Held) -> bool {
        self.next_death = self.next_death.min(held.born.saturating_add(self.age));
        self.summary.hash ^= stamp(origin, held.version);
        match self.held.entry(origin) {
            Slot::Occupied(mut slot) => {
                let old = slot.insert(held);
                self.summary.hash ^= stamp(origin, old.version);
                !old.advert.says_the_same(&slot.get().advert)
            }
            Slot::Vacant(slot) => {
                slot.insert(held);
                self.summary.count += 1;
                true
            }
        }
    }

    /// When [`Database::expire`] has something to do, at the earliest.
    pub fn deadline(&self) -> Time {
        self.next_death
    }

    /// Drops what is too old. Answers whether anything was.
    pub fn expire(&mut self, now: Time) -> bool {
        if now < self.next_death {
            return false;
        }
        let (own, age, summary) = (self.own, self.age, &mut self.summary);
        let before = self.held.len();
        self.held.retain(|&origin, held| {
            // Our own is renewed by us, and by nobody else.
            let lives = origin == own || held.born.saturating_add(age) > now;
            if !lives {
                summary.hash ^= stamp(origin, held.version);
                summary.count -= 1;
            }
            lives
        });
        let others = self.held.iter().filter(|(origin, _)| **origin != own);
        self.next_death = others.map(|(_, held)| held.born.saturating_add(age)).min().unwrap_or(Time::MAX);
        self.held.len() != before
    }

    /// All that is held, as digests whose ranges join without a gap.
    pub fn digests(&self) -> Vec<Digest> {
        let entries: Vec<DigestEntry> =
            self.held.iter().map(|(&origin, held)| DigestEntry { origin, version: held.version }).collect();
        let mut digests: Vec<Digest> = Vec::new();
        for chunk in entries.chunks(MAX_ENTRIES) {
            let first = digests.last().map_or(0, |digest| digest.last.saturating_add(1));
            digests.push(Digest { first, last: chunk[chunk.len() - 1].origin, entries: chunk.to_vec() });
        }
        match digests.last_mut() {
            Some(last) => last.last = u64::MAX,
            None => digests.push(Digest { first: 0, last: u64::MAX, entries: Vec::new() }),
        }
        digests
    }

    /// What the sender of a digest lacks, or has an older one of.
    pub fn lacking(&self, digest: &Digest) -> Vec<u64> {
        if digest.first > digest.last {
            return Vec::new();
        }
        let behind = |origin: &u64, held: &Held| match digest.entries.binary_search_by_key(origin, |entry| entry.origin)
        {
            Ok(at) => held.version.newer_than(digest.entries[at].version),
            Err(_) => true,
        };
        let range = self.held.range(digest.first..=digest.last);
        range.filter(|(origin, held)| behind(origin, held)).map(|(origin, _)| *origin).collect()
    }

    /// Whether the sender of a digest holds something that we lack.
    pub fn is_behind(&self, digest: &Digest) -> bool {
        let lack = |entry: &DigestEntry| {
            self.held.get(&entry.origin).is_none_or(|held| entry.version.newer_than(held.version))
        };
        digest.entries.iter().any(lack)
    }

    /// The advertisement of a node, as it is to be sent now.
    pub fn carried(&self, now: Time, origin: u64) -> Option<Carried<'_>> {
        let held = self.held.get(&origin)?;
        let age = now.saturating_sub(held.born) / MS + 1;
        Some(Carried { age_ms: u16::try_from(age).unwrap_or(u16::MAX), body: &held.body })
    }
}

fn stamp(origin: u64, version: Version) -> u64 {
    let numbers = u64::from(version.seq) << 32 | u64::from(version.sum);
    mix(mix(mix(origin) ^ version.incarnation) ^ numbers)
}

#[cfg(test)]
#[path = "database_tests.rs"]
mod tests;
