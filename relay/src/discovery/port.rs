//! One port of this node: when it sends beacons, whom it hears, and who of those is its neighbour.
//!
//! Must not know other ports or nodes beyond the link. Runs on the thread of the node's owner.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use mesh_routing::Subnet;

use super::advert::AdvertPort;
use super::beacon::{Beacon, Heard};
use super::types::{PortInfo, Time, Timers, To, label};

/// A node heard on a port, by its key and its address.
pub(super) type Who = (u64, Ipv4Addr);

/// Somebody heard on a port, of whom nothing speaks against being a neighbour.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) name: String,
    pub(super) life: u64,
    number: u32,
    /// It says that it hears us, and nobody else if the link is a cable to us or to it.
    pub(super) hears_us: bool,
    /// It says that the link is a switched segment.
    switched: bool,
    last: Time,
    /// When it was heard first.
    since: Time,
    /// When it is asked for a beacon.
    ask: Time,
    /// Its silence was once forgiven since it was last heard.
    forgiven: bool,
    /// When it may be sent digests again.
    digest: Time,
}

/// A neighbour: heard, and hearing us, and alone on the link if that is a cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Adjacent {
    pub(super) life: u64,
    pub(super) name: String,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) info: PortInfo,
    pub(super) subnet: Subnet,
    pub(super) up: bool,
    pub(super) others: BTreeMap<Who, Other>,
    /// The neighbours, as they were told last: one at most on a cable.
    pub(super) adjacent: BTreeMap<Who, Adjacent>,
    /// When the next beacon goes out, if not at the next beat of all ports.
    extra: Time,
    last_beacon: Option<Time>,
    number: u32,
    asks: bool,
}

impl Port {
    pub(super) fn new(now: Time, mut info: PortInfo, subnet: Subnet) -> Self {
        info.device = label(&info.device);
        Self {
            info,
            subnet,
            up: true,
            others: BTreeMap::new(),
            adjacent: BTreeMap::new(),
            extra: now,
            last_beacon: None,
            number: 0,
            asks: false,
        }
    }

    pub(super) fn advert(&self) -> AdvertPort {
        let PortInfo { address, prefix, ref device, speed_mbps, mtu, rail, switched } = self.info;
        AdvertPort { address, prefix, up: self.up, switched, speed_mbps, mtu, rail, device: device.clone() }
    }

    /// Where the next beacon goes: to the other address where there is but one, else to all. While nobody answers there, every other one
    /// goes to all even so, since who has a wrong address can learn of it in no other way.
    pub(super) fn beacon_to(&self) -> To {
        let bits = self.info.address.to_bits();
        match self.info.prefix {
            _ if self.info.switched => To::Everyone,
            30 | 31 if self.others.is_empty() && self.number % 2 == 1 => To::Everyone,
            31 => To::Address(Ipv4Addr::from_bits(bits ^ 1)),
            30 => To::Address(Ipv4Addr::from_bits(bits ^ 3)),
            _ => To::Everyone,
        }
    }

    /// The same port, of which something else is said.
    pub(super) fn describe(&mut self, mut info: PortInfo) -> bool {
        info.device = label(&info.device);
        let differs = self.info != info;
        self.info = info;
        differs
    }

    /// The neighbour at this address, if there is one.
    pub(super) fn at(&self, remote: Ipv4Addr) -> Option<Who> {
        self.adjacent.keys().find(|who| who.1 == remote).copied()
    }

    /// When the neighbour at this address may be sent digests again. Bounds what it can make of us by beacons and digests alone.
    pub(super) fn digest_at(&self, remote: Ipv4Addr) -> Time {
        self.at(remote).and_then(|who| self.others.get(&who)).map_or(Time::MAX, |other| other.digest)
    }

    /// It is sent some now.
    pub(super) fn digests(&mut self, now: Time, timers: &Timers, remote: Ipv4Addr) {
        if let Some(other) = self.at(remote).and_then(|who| self.others.get_mut(&who)) {
            other.digest = now.saturating_add(timers.beacon_gap / 2);
        }
    }

    /// Who is to be a neighbour as things are, but for who is `refused`, in order. Nobody shares a cable, nor anywhere an address.
    pub(super) fn neighbours(&self, refused: impl Fn(u64) -> bool) -> impl Iterator<Item = (&Who, &Other)> {
        self.others.iter().filter(move |(who, other)| other.hears_us && !refused(who.0) && !self.shares(who))
    }

    /// Whether somebody else is heard where there can be but one: on a cable, or what he takes for one; elsewhere, at his address.
    pub(super) fn shares(&self, who: &Who) -> bool {
        let alone = !self.info.switched || self.others.get(who).is_some_and(|other| !other.switched);
        self.doubled(who) || alone && self.others.keys().any(|other| other != who)
    }

    /// Whether somebody else is heard at his address.
    pub(super) fn doubled(&self, who: &Who) -> bool {
        self.others.keys().any(|other| other != who && other.1 == who.1)
    }

    /// Sends a beacon as soon as may be.
    pub(super) fn hurry(&mut self, now: Time, timers: &Timers) {
        let earliest = self.last_beacon.map_or(now, |last| last.saturating_add(timers.beacon_gap));
        self.extra = self.extra.min(earliest.max(now));
    }

    /// Sends a regular one, at a beat. Others do not put it off: each is one more chance where many are lost.
    pub(super) fn beat(&mut self, now: Time) {
        self.extra = now;
    }

    /// Sends one soon, so that the neighbour learns what is held here.
    pub(super) fn repair(&mut self, now: Time, timers: &Timers) {
        self.extra = self.extra.min(now.saturating_add(timers.repair));
    }

    /// Number, whether it asks, and whom it names, of a beacon that is to be sent now, if one is. Who is `refused` is not named: so he
    /// learns at once that he is no neighbour, which nobody else could tell him. So does who shares an address on a segment.
    pub(super) fn next_beacon(&mut self, now: Time, refused: impl Fn(u64) -> bool) -> Option<(u32, bool, Vec<Heard>)> {
        if !self.up || now < self.extra {
            return None;
        }
        self.extra = Time::MAX;
        self.number = self.number.wrapping_add(1);
        self.last_beacon = Some(now);
        let asks = std::mem::take(&mut self.asks);
        let doubled = |who: &Who| self.info.switched && self.doubled(who);
        let heard = self.others.iter().filter(|(who, _)| !refused(who.0) && !doubled(who));
        let heard = heard.map(|(&(node, address), other)| Heard { node, life: other.life, address });
        Some((self.number, asks, heard.collect()))
    }

    /// A sound beacon of somebody else, who is at `remote`.
    pub(super) fn hear(
        &mut self,
        now: Time,
        timers: &Timers,
        key: u64,
        remote: Ipv4Addr,
        beacon: &Beacon<'_>,
        us: Heard,
    ) {
        // At a cable, who hears others beside us takes none for a neighbour.
        let segment = self.info.switched && beacon.switched;
        let hears_us = if segment { beacon.heard.contains(&us) } else { beacon.heard == [us] };
        match self.others.get_mut(&(key, remote)) {
            // One that was overtaken says what was so before.
            Some(other) if other.life == beacon.life && !super::advert::after(beacon.number, other.number) => {}
            Some(other) => {
                let anew = other.life != beacon.life;
                if anew {
                    beacon.name.clone_into(&mut other.name);
                }
                (other.life, other.number, other.hears_us) = (beacon.life, beacon.number, hears_us);
                other.switched = beacon.switched;
                (other.last, other.ask, other.forgiven) = (now, ask_after(now, timers), false);
                if anew || beacon.asks {
                    self.hurry(now, timers);
                }
            }
            None => {
                // Who has taken the place of another does not share the link with it.
                self.others.retain(|(_, address), other| *address != remote || now < ask_after(other.last, timers));
                let (name, life, number) = (beacon.name.to_owned(), beacon.life, beacon.number);
                let ask = ask_after(now, timers);
                let switched = beacon.switched;
                let other = Other {
                    name,
                    life,
                    number,
                    hears_us,
                    switched,
                    last: now,
                    since: now,
                    ask,
                    forgiven: false,
                    digest: 0,
                };
                self.others.insert((key, remote), other);
                self.hurry(now, timers);
            }
        }
    }

    /// Two who share a cable, or an address of a switched segment. Who comes with another's address may have taken its place: they share it
    /// once both speak on.
    pub(super) fn crowd(&self) -> Option<[(Ipv4Addr, String); 2]> {
        let beside = |one: &Other, two: &Other| one.last > two.since && two.last > one.since;
        self.others.iter().enumerate().find_map(|(n, ((_, at), one))| {
            let mut later = self.others.iter().skip(n + 1);
            let shares = |other: &Ipv4Addr, two| if other == at { beside(one, two) } else { !self.info.switched };
            let ((_, other_at), two) = later.find(|((_, other), two)| shares(other, two))?;
            Some([(*at, one.name.clone()), (*other_at, two.name.clone())])
        })
    }

    /// Drops who was silent for too long; asks who is late.
    pub(super) fn expire(&mut self, now: Time, timers: &Timers) {
        let before = self.others.len();
        self.others.retain(|_, other| now < other.last.saturating_add(timers.dead));
        let mut late = false;
        for other in self.others.values_mut().filter(|other| now >= other.ask) {
            other.ask = now.saturating_add(timers.ask);
            late = true;
        }
        self.asks |= late;
        if late || self.others.len() != before {
            self.hurry(now, timers);
        }
    }

    /// The clock has leapt: who was heard before it has an interval to be heard again, once.
    pub(super) fn forgive(&mut self, now: Time, timers: &Timers) {
        for other in self.others.values_mut().filter(|other| !other.forgiven) {
            other.forgiven = true;
            other.last = other.last.max((now + timers.hello).saturating_sub(timers.dead));
            other.ask = now;
        }
    }

    /// When [`Port::expire`] or a beacon is due.
    pub(super) fn deadline(&self, timers: &Timers) -> Time {
        if !self.up {
            return Time::MAX;
        }
        let others = self.others.values().map(|other| other.ask.min(other.last.saturating_add(timers.dead)));
        others.min().unwrap_or(Time::MAX).min(self.extra)
    }

    /// No carrier: nobody is heard any more.
    pub(super) fn down(&mut self) {
        self.up = false;
        self.others.clear();
    }

    /// Carrier again.
    pub(super) fn up_again(&mut self, now: Time) {
        self.up = true;
        self.extra = now;
    }
}

/// When the next beacon is late enough to be asked for.
const fn ask_after(now: Time, timers: &Timers) -> Time {
    now.saturating_add(timers.hello + timers.late)
}
