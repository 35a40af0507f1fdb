//! The neighbours of this node, one at a cable, many on a switched segment: who is taken, who is refused and why, and when one is gone.
//!
//! Must not know other nodes than those on its links, nor the database. Runs on the thread of the node's owner.
//!
//! A neighbour is whoever is heard on a port, says that it hears us there, is alone on the link unless that is declared to be switched, and
//! lies in the port's subnet as the port lies in its. Everything else is an event and no neighbour.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::advert::{Adjacency, AdvertPort, MAX_ADJACENCIES, MAX_PORTS, key_of, port_subnet, share};
use super::beacon::{Beacon, Heard, MAX_HEARD, Summary};
use super::event::{Down, Event, Unusable};
use super::identity::{Identities, Verdict};
use super::port::{Adjacent, Port, Who};
use super::said::Said;
use super::types::{Config, PortChange, PortId, PortInfo, Time, To};

/// What has come of the inputs so far.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Ports or adjacencies are others than before.
    pub(super) changed: bool,
    /// Neighbours that came up.
    pub(super) came_up: Vec<(PortId, Ipv4Addr)>,
    /// What is to be said.
    pub(super) notes: Vec<Event>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Neighbours {
    config: Config,
    key: u64,
    ports: BTreeMap<PortId, Port>,
    /// When all ports send their next regular beacons: at the same time, so that the thread wakes once for all.
    beat: Time,
    identities: Identities,
    said: Said,
    effects: Effects,
}

impl Neighbours {
    pub(super) fn new(config: Config) -> Self {
        let (ports, identities) = (BTreeMap::new(), Identities::default());
        let (key, said, effects) = (key_of(&config.id), Said::default(), Effects::default());
        Self { config, key, ports, beat: 0, identities, said, effects }
    }

    pub(super) fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Our own ports, by address.
    pub(super) fn advert_ports(&self) -> Vec<AdvertPort> {
        let mut ports: Vec<_> = self.ports.values().map(Port::advert).collect();
        ports.sort_by_key(|port| port.address);
        ports
    }

    /// Our adjacencies, in order.
    pub(super) fn adjacencies(&self) -> Vec<Adjacency> {
        let each = self.ports.values().flat_map(|port| port.adjacent.keys().map(|who| (port.info.address, *who)));
        let mut adjacencies: Vec<_> = each.map(|(local, (node, remote))| Adjacency { local, node, remote }).collect();
        adjacencies.sort();
        adjacencies
    }

    /// All neighbours: port, address, key.
    pub(super) fn all(&self) -> impl Iterator<Item = (PortId, Ipv4Addr, u64)> {
        self.ports.iter().flat_map(|(id, port)| port.adjacent.keys().map(|(node, remote)| (*id, *remote, *node)))
    }

    /// The key of the neighbour at this address, if it is one.
    pub(super) fn at(&self, port: PortId, remote: Ipv4Addr) -> Option<u64> {
        self.ports.get(&port)?.at(remote).map(|(node, _)| node)
    }

    /// When the neighbour at this address may be sent digests again.
    pub(super) fn digest_at(&self, port: PortId, remote: Ipv4Addr) -> Time {
        self.ports.get(&port).map_or(Time::MAX, |port| port.digest_at(remote))
    }

    /// It is sent digests now.
    pub(super) fn digests(&mut self, now: Time, port: PortId, remote: Ipv4Addr) {
        if let Some(port) = self.ports.get_mut(&port) {
            port.digests(now, &self.config.timers, remote);
        }
    }

    /// The port's address, if it has carrier.
    pub(super) fn listens(&self, port: PortId) -> Option<Ipv4Addr> {
        self.ports.get(&port).filter(|port| port.up).map(|port| port.info.address)
    }

    /// Says a fault, once while it lasts.
    pub(super) fn complain(&mut self, now: Time, event: Event) {
        if self.said.first(now, &event) {
            self.effects.notes.push(event);
        }
    }

    pub(super) fn on_port(&mut self, now: Time, change: PortChange) {
        match change {
            PortChange::Up(id, info) => self.port_up(now, id, info),
            PortChange::Dark(id, info) => {
                self.port_up(now, id, info);
                self.port_down(id);
            }
            PortChange::Down(id) => self.port_down(id),
            PortChange::Gone(id) => {
                if let Some(mut port) = self.ports.remove(&id) {
                    port.down();
                    self.effects.changed = true;
                    let local = port.info.address;
                    self.effects.notes.extend(port.adjacent.into_iter().map(|was| gone(local, was, Down::Port)));
                }
            }
        }
        self.settle(now);
    }

    fn port_down(&mut self, id: PortId) {
        if let Some(port) = self.ports.get_mut(&id).filter(|port| port.up) {
            port.down();
            self.effects.changed = true;
        }
    }

    fn port_up(&mut self, now: Time, id: PortId, info: PortInfo) {
        let address = |info: &PortInfo| (info.address, info.prefix, info.switched);
        if let Some(port) = self.ports.get_mut(&id).filter(|port| address(&port.info) == address(&info)) {
            self.effects.changed |= !port.up | port.describe(info);
            if !port.up {
                port.up_again(now);
            }
            return;
        }
        let fresh = |subnet| Port::new(now, info.clone(), subnet);
        let new = port_subnet(info.address, info.prefix).map(fresh);
        // With another address: what was known of it was about another port.
        self.on_port(now, PortChange::Gone(id));
        let why = match new {
            None => Unusable::Address,
            Some(_) if self.ports.values().any(|port| port.info.address == info.address) => Unusable::Taken,
            Some(_) if self.ports.len() >= MAX_PORTS => Unusable::TooMany { limit: MAX_PORTS },
            Some(port) => {
                self.ports.insert(id, port);
                self.effects.changed = true;
                return self.make_room();
            }
        };
        self.complain(now, Event::PortUnusable { address: info.address, prefix: info.prefix, why });
    }

    /// Places among the adjacencies: one for each cable, whether it is used or not, and one for each who is heard on a switched segment.
    fn places(&self) -> usize {
        self.ports.values().map(|port| if port.info.switched { port.others.len() } else { 1 }).sum()
    }

    /// A cable has come, for which somebody on a segment may have to go.
    fn make_room(&mut self) {
        for _ in MAX_ADJACENCIES..self.places() {
            let segments = self.ports.values_mut().filter(|port| port.info.switched);
            let Some(port) = segments.max_by_key(|port| port.others.len()) else { return };
            let last = port.others.pop_last().and_then(|(who, _)| port.adjacent.remove_entry(&who));
            self.effects.notes.extend(last.map(|was| gone(port.info.address, was, Down::NoRoom)));
        }
    }

    /// A beacon that could be read, heard on a port that listens.
    pub(super) fn on_beacon(&mut self, now: Time, id: PortId, from: Ipv4Addr, beacon: &Beacon<'_>) {
        let key = key_of(beacon.id);
        if let Some(event) = self.objection(id, from, key, beacon) {
            return self.complain(now, event);
        }
        let verdict = self.identities.judge(now, &self.config.timers, key, beacon);
        let places = self.places();
        let Some(port) = self.ports.get_mut(&id) else { return };
        match verdict {
            Verdict::Stale => return,
            Verdict::Twin { other } => {
                let (local, id, node) = (port.info.address, beacon.id.to_owned(), beacon.name.to_owned());
                self.complain(now, Event::SameId { local, remote: from, id, node, other });
            }
            Verdict::Current => {
                let (local, switched) = (port.info.address, port.info.switched);
                let room = if switched { places < MAX_ADJACENCIES } else { port.others.len() < MAX_HEARD };
                if room || port.others.contains_key(&(key, from)) {
                    let us = Heard { node: self.key, life: self.config.life, address: port.info.address };
                    port.hear(now, &self.config.timers, key, from, beacon, us);
                } else if switched {
                    let (node, limit) = (beacon.name.to_owned(), MAX_ADJACENCIES);
                    return self.complain(now, Event::NoRoom { local, remote: from, node, limit });
                }
                let neighbour = port.adjacent.contains_key(&(key, from));
                // Whoever's beat comes sooner goes along with a neighbour's: a node that has just woken to hear speaks as well, and in a
                // while all do so together. Twice the rate is the most that a neighbour can make of it.
                if neighbour && self.beat <= now.saturating_add(self.config.timers.hello / 2) {
                    self.beat = self.beat.min(now);
                }
            }
        }
        self.settle(now);
    }

    /// What speaks against taking the sender for somebody at the other end of the link.
    fn objection(&self, id: PortId, from: Ipv4Addr, key: u64, beacon: &Beacon<'_>) -> Option<Event> {
        let port = self.ports.get(&id)?;
        let local = port.info.address;
        let node = || beacon.name.to_owned();
        let is_ours = |address| self.ports.values().any(|port| port.info.address == address);
        if beacon.address != from {
            return Some(Event::OtherSource { local, from, says: beacon.address, node: node() });
        }
        if key == self.key && beacon.life == self.config.life && beacon.id == self.config.id && is_ours(from) {
            return Some(Event::LoopedBack { local, from });
        }
        if key == self.key {
            let (id, other) = (beacon.id.to_owned(), self.config.name.clone());
            return Some(Event::SameId { local, remote: from, id, node: node(), other });
        }
        if is_ours(from) {
            return Some(Event::AddressTaken { local, address: from, node: node() });
        }
        let theirs = port_subnet(from, beacon.prefix)?;
        (!share((local, port.subnet), (from, theirs))).then(|| Event::OutsideSubnet {
            local,
            prefix: port.info.prefix,
            remote: from,
            remote_prefix: beacon.prefix,
            node: node(),
        })
    }

    pub(super) fn on_time(&mut self, now: Time) {
        for port in self.ports.values_mut() {
            port.expire(now, &self.config.timers);
        }
        self.identities.expire(now, &self.config.timers);
        self.settle(now);
    }

    /// What is held has changed.
    pub(super) fn repair(&mut self, now: Time) {
        for port in self.ports.values_mut().filter(|port| !port.adjacent.is_empty()) {
            port.repair(now, &self.config.timers);
        }
    }

    /// The clock has leapt.
    pub(super) fn forgive(&mut self, now: Time) {
        for port in self.ports.values_mut() {
            port.forgive(now, &self.config.timers);
        }
    }

    pub(super) fn deadline(&self, now: Time) -> Time {
        let ports = self.ports.values().map(|port| port.deadline(&self.config.timers));
        let beat = if self.ports.values().any(|port| port.up) { self.beat } else { Time::MAX };
        ports.min().unwrap_or(Time::MAX).min(beat).min(self.identities.deadline(now))
    }

    /// The next beacon that is to be sent now.
    pub(super) fn next_beacon(&mut self, now: Time, summary: Summary) -> Option<(PortId, To, Vec<u8>)> {
        if now >= self.beat {
            self.beat = now.saturating_add(self.config.timers.hello);
            self.ports.values_mut().for_each(|port| port.beat(now));
        }
        for (id, port) in &mut self.ports {
            let to = port.beacon_to();
            let twins = |key| self.identities.twins(now, key);
            let Some((number, asks, heard)) = port.next_beacon(now, twins) else { continue };
            let PortInfo { address, prefix, speed_mbps, mtu, rail, switched, .. } = port.info;
            let Config { id: stable, name, life, features, .. } = &self.config;
            let (life, features) = (*life, *features);
            let id = *id;
            let (stable, name) = (stable.as_str(), name.as_str());
            let beacon = Beacon {
                id: stable,
                name,
                life,
                number,
                features,
                address,
                prefix,
                speed_mbps,
                mtu,
                rail,
                asks,
                switched,
                summary,
                heard,
            };
            return Some((id, to, beacon.encode()));
        }
        None
    }

    /// Compares every port's neighbours with what was told last.
    fn settle(&mut self, now: Time) {
        let Self { ports, identities, effects, config, .. } = self;
        let mut crowds = Vec::new();
        for (id, port) in ports {
            let local = port.info.address;
            crowds.extend(port.crowd().map(|[one, two]| match port.info.switched {
                true => Event::AddressTwice { local, address: one.0, one: one.1, two: two.1 },
                false => Event::ThreeEnds { local, one, two },
            }));
            let told = port.adjacent.iter().map(|(who, adjacent)| (*who, adjacent.life));
            let twins = |key| identities.twins(now, key);
            if port.neighbours(twins).map(|(who, other)| (*who, other.life)).eq(told) {
                continue;
            }
            let is: BTreeMap<Who, Adjacent> = port
                .neighbours(twins)
                .map(|(who, other)| (*who, Adjacent { life: other.life, name: other.name.clone() }))
                .collect();
            let was = std::mem::take(&mut port.adjacent);
            let same = |who: &Who| was.get(who).map(|was| was.life) == is.get(who).map(|is| is.life);
            let up: Vec<_> = is.iter().filter(|(who, _)| !same(who)).collect();
            for (who, adjacent) in was.iter().filter(|(who, _)| !same(who)) {
                let why = why_gone(port, who, adjacent, twins(who.0));
                effects.notes.push(gone(local, (*who, adjacent.clone()), why));
            }
            for ((_, remote), Adjacent { name, .. }) in up {
                effects.notes.push(Event::NeighbourUp { local, node: name.clone(), remote: *remote });
                effects.came_up.push((*id, *remote));
            }
            port.adjacent = is;
            port.hurry(now, &config.timers);
            effects.changed = true;
        }
        for event in crowds {
            self.complain(now, event);
        }
    }
}

fn gone(local: Ipv4Addr, ((_, remote), was): (Who, Adjacent), why: Down) -> Event {
    Event::NeighbourDown { local, node: was.name, remote, why }
}

fn why_gone(port: &Port, who: &Who, was: &Adjacent, twins: bool) -> Down {
    let crowd = if port.info.switched && port.doubled(who) { Down::AddressTwice } else { Down::ThreeEnds };
    match port.others.get(who) {
        _ if !port.up => Down::Port,
        _ if twins => Down::SameId,
        None => Down::Silent,
        Some(_) if port.shares(who) => crowd,
        Some(other) if other.life != was.life => Down::Restarted,
        Some(_) => Down::OneWay,
    }
}

#[cfg(test)]
#[path = "neighbours_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "segment_tests.rs"]
mod segment_tests;
