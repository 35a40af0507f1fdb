//! The neighbours of this node, one a port at most: who is taken, who is refused and why, and when one is gone.
//!
//! Must not know other nodes than those on its links, nor the database. Runs on the thread of the node's owner.
//!
//! A neighbour is whoever is heard on a port, says that it hears us there, is alone on the link, and lies in the port's subnet as the port
//! lies in its. Everything else is an event and no neighbour.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::advert::{Adjacency, AdvertPort, MAX_PORTS, key_of, port_subnet, share};
use super::beacon::{Beacon, Heard, MAX_HEARD, Summary};
use super::event::{Down, Event, Unusable};
use super::identity::{Identities, Verdict};
use super::port::{Adjacent, Port};
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

    /// Our adjacencies, by own port.
    pub(super) fn adjacencies(&self) -> Vec<Adjacency> {
        let of = |port: &Port| {
            let Adjacent { node, remote, .. } = *port.adjacent.as_ref()?;
            Some(Adjacency { local: port.info.address, node, remote })
        };
        let mut adjacencies: Vec<_> = self.ports.values().filter_map(of).collect();
        adjacencies.sort();
        adjacencies
    }

    /// All neighbours: port, address, key.
    pub(super) fn all(&self) -> impl Iterator<Item = (PortId, Ipv4Addr, u64)> {
        self.ports.iter().filter_map(|(id, port)| port.adjacent.as_ref().map(|a| (*id, a.remote, a.node)))
    }

    /// The key of the neighbour at this address, if it is one.
    pub(super) fn at(&self, port: PortId, remote: Ipv4Addr) -> Option<u64> {
        self.ports.get(&port)?.adjacent.as_ref().filter(|a| a.remote == remote).map(|a| a.node)
    }

    /// When the neighbour on this port may be sent digests again.
    pub(super) fn digest_at(&self, port: PortId) -> Time {
        self.ports.get(&port).map_or(Time::MAX, Port::digest_at)
    }

    /// The neighbour on this port is sent digests now.
    pub(super) fn digests(&mut self, now: Time, port: PortId) {
        if let Some(port) = self.ports.get_mut(&port) {
            port.digests(now, &self.config.timers);
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
                    if let Some(was) = port.adjacent {
                        self.effects.notes.push(gone(port.info.address, was, Down::Port));
                    }
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
        let address = |info: &PortInfo| (info.address, info.prefix);
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
                return;
            }
        };
        self.complain(now, Event::PortUnusable { address: info.address, prefix: info.prefix, why });
    }

    /// A beacon that could be read, heard on a port that listens.
    pub(super) fn on_beacon(&mut self, now: Time, id: PortId, from: Ipv4Addr, beacon: &Beacon<'_>) {
        let key = key_of(beacon.id);
        if let Some(event) = self.objection(id, from, key, beacon) {
            return self.complain(now, event);
        }
        let verdict = self.identities.judge(now, &self.config.timers, key, beacon);
        let Some(port) = self.ports.get_mut(&id) else { return };
        match verdict {
            Verdict::Stale => return,
            Verdict::Twin { other } => {
                let (local, id, node) = (port.info.address, beacon.id.to_owned(), beacon.name.to_owned());
                self.complain(now, Event::SameId { local, remote: from, id, node, other });
            }
            Verdict::Current => {
                if port.others.len() < MAX_HEARD || port.others.contains_key(&(key, from)) {
                    let us = Heard { node: self.key, life: self.config.life, address: port.info.address };
                    port.hear(now, &self.config.timers, key, from, beacon, us);
                }
                let neighbour = port.adjacent.as_ref().is_some_and(|a| (a.node, a.remote) == (key, from));
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
        for port in self.ports.values_mut().filter(|port| port.adjacent.is_some()) {
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
            let PortInfo { address, prefix, speed_mbps, mtu, rail, .. } = port.info;
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
                summary,
                heard,
            };
            return Some((id, to, beacon.encode()));
        }
        None
    }

    /// Compares every port's neighbour with what was told last.
    fn settle(&mut self, now: Time) {
        let Self { ports, identities, effects, config, .. } = self;
        let mut crowds = Vec::new();
        for (id, port) in ports {
            let alone = port.others.len() == 1;
            let found = port
                .others
                .iter()
                .next()
                .filter(|((key, _), other)| alone && other.hears_us && !identities.twins(now, *key));
            let same = match (&port.adjacent, found) {
                (None, None) => true,
                (Some(a), Some(((key, remote), other))) => (a.node, a.remote, a.life) == (*key, *remote, other.life),
                _ => false,
            };
            if let Some([one, two]) = port.crowd() {
                crowds.push(Event::ThreeEnds { local: port.info.address, one, two });
            }
            if same {
                continue;
            }
            let local = port.info.address;
            let now_adjacent = found.map(|((node, remote), other)| Adjacent {
                node: *node,
                life: other.life,
                remote: *remote,
                name: other.name.clone(),
            });
            if let Some(was) = port.adjacent.take() {
                let why = why_gone(port, &was, identities.twins(now, was.node));
                effects.notes.push(gone(local, was, why));
            }
            if let Some(is) = &now_adjacent {
                effects.notes.push(Event::NeighbourUp { local, node: is.name.clone(), remote: is.remote });
                effects.came_up.push((*id, is.remote));
            }
            port.adjacent = now_adjacent;
            port.hurry(now, &config.timers);
            effects.changed = true;
        }
        for event in crowds {
            self.complain(now, event);
        }
    }
}

fn gone(local: Ipv4Addr, was: Adjacent, why: Down) -> Event {
    Event::NeighbourDown { local, node: was.name, remote: was.remote, why }
}

fn why_gone(port: &Port, was: &Adjacent, twins: bool) -> Down {
    match port.others.get(&(was.node, was.remote)) {
        _ if !port.up => Down::Port,
        _ if twins => Down::SameId,
        None => Down::Silent,
        Some(_) if port.others.len() > 1 => Down::ThreeEnds,
        Some(other) if other.life != was.life => Down::Restarted,
        Some(_) => Down::OneWay,
    }
}

#[cfg(test)]
#[path = "neighbours_tests.rs"]
mod tests;
