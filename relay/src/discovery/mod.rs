//! Discovery: every node finds its neighbours by beacons, tells all what it found, and all come to the same view of the cluster.
//!
//! [`Discovery`] is a state machine without I/O. Inputs are method calls with the driver's time; outputs are [`Action`]s taken with
//! [`Discovery::poll`]. It must not know sockets, interfaces, threads or clocks, nor routes: what comes out is a [`View`], from which
//! [`View::topology`] makes what routes are computed from. Runs on the thread of the node's owner; the simulator runs the very same code.
//!
//! ```text
//!   beacons ──▶ neighbours ──adjacencies──▶ own advertisement ──▶ database ──▶ view
//!                                           others' ──flooding──────▲
//! ```
//!
//! Files: `bytes`, `beacon` and `advert` are what travels; `port`, `identity` and `neighbours` decide who is at the other end of a cable, and
//! who on a declared switched segment; `own` when this node speaks of itself; `database` which of two advertisements holds; `view` what follows
//! from all, and `topology` what that is for routes; `clock` is the machine's time and `said` keeps it from repeating itself.
//! `docs/discovery.md` has the protocol.
//!
//! All maps are ordered, so that the same inputs give the same outputs in the same order, on every run.

mod advert;
mod beacon;
mod bytes;
mod clock;
mod database;
mod event;
mod identity;
mod neighbours;
mod own;
mod port;
mod said;
mod topology;
mod types;
mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

pub use advert::{
    Adjacency, Advert, AdvertPort, AgentAt, MAX_ADJACENCIES, MAX_ADVERT, MAX_AGENTS, MAX_DEVICE, MAX_PORTS, MAX_TEXT,
    NO_RANK, Version, key_of,
};
pub use beacon::{
    Beacon, Carried, Datagram, Digest, DigestEntry, Heard, MAGIC, MAX_DATAGRAM, MAX_ENTRIES, MAX_HEARD, MAX_NAMED,
    Summary, VERSION, pack,
};
pub use bytes::WireError;
pub use database::{Database, Offer};
pub use event::{Down, Event, Unusable};
pub use types::{Action, Config, ConfigError, MS, PortChange, PortId, PortInfo, Time, Timers, To};
pub use view::{Fault, LinkEnd, View, ViewNode};

use clock::Clock;
use neighbours::Neighbours;
use own::Own;

/// The machine. See the module.
#[derive(Debug)]
pub struct Discovery {
    config: Config,
    key: u64,
    clock: Clock,
    neighbours: Neighbours,
    own: Own,
    database: Database,
    view: View,
    /// The database says something else than the view.
    stale: bool,
    /// When the view may change again.
    look: Time,
    /// The node's processes of jobs.
    agents: Vec<AgentAt>,
    /// Neighbours that are to get our digests.
    behind: BTreeSet<(PortId, Ipv4Addr)>,
    out: VecDeque<Action>,
}

impl Discovery {
    /// A node without ports, whose driver's clock shows `now`.
    ///
    /// # Errors
    /// If the configuration is none that other nodes could take.
    pub fn new(now: Time, config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let clock = Clock::new(now);
        let key = key_of(&config.id);
        let mut machine = Self {
            key,
            neighbours: Neighbours::new(config.clone()),
            own: Own::new(clock.now(), &config),
            database: Database::new(key, config.max_nodes, config.timers.age),
            view: View::default(),
            stale: false,
            look: 0,
            agents: Vec::new(),
            behind: BTreeSet::new(),
            out: VecDeque::new(),
            clock,
            config,
        };
        machine.advertise(machine.clock.now());
        Ok(machine)
    }

    /// The node's key.
    pub const fn key(&self) -> u64 {
        self.key
    }

    /// The view as of the last [`Action::Changed`].
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// The advertisements held, for status and checks.
    pub const fn database(&self) -> &Database {
        &self.database
    }

    /// The next thing to do. The view follows when nothing else is left, so that many changes make one.
    pub fn poll(&mut self) -> Option<Action> {
        let now = self.clock.now();
        if self.out.is_empty() && self.stale && now >= self.look {
            (self.stale, self.look) = (false, now.saturating_add(self.config.timers.view_gap));
            self.look();
        }
        self.out.pop_front()
    }

    /// When [`Discovery::on_time`] must be called at the latest, in the driver's time.
    pub fn deadline(&self) -> Time {
        self.clock.to_driver(self.due())
    }

    fn due(&self) -> Time {
        let look = if self.stale { self.look } else { Time::MAX };
        let digests = self.behind.iter().map(|&(port, remote)| self.neighbours.digest_at(port, remote)).min();
        look.min(digests.unwrap_or(Time::MAX))
            .min(self.neighbours.deadline(self.clock.now()).min(self.own.deadline()).min(self.database.deadline()))
    }

    /// Lets time pass: fires what is due. What has arrived meanwhile goes in before.
    pub fn on_time(&mut self, now: Time) {
        let now = self.advance(now);
        self.neighbours.on_time(now);
        self.stale |= self.database.expire(now);
        let notes = self.own.on_time(now);
        self.out.extend(notes.map(Action::Note));
        self.settle(now);
    }

    /// Something happened to a port.
    pub fn on_port(&mut self, now: Time, change: PortChange) {
        let now = self.advance(now);
        self.neighbours.on_port(now, change);
        self.settle(now);
    }

    /// The node's processes of jobs, all of them. More than [`MAX_AGENTS`] are not told of: they lack nothing, for others then relay by the
    /// one on the shared port.
    pub fn on_agents(&mut self, now: Time, mut agents: Vec<AgentAt>) {
        let now = self.advance(now);
        agents.sort_unstable();
        agents.dedup();
        agents.truncate(MAX_AGENTS);
        if agents != self.agents {
            self.agents = agents;
            self.own.want(now);
        }
        self.settle(now);
    }

    /// A datagram has arrived on a port, from an address on that link.
    pub fn on_datagram(&mut self, now: Time, port: PortId, from: Ipv4Addr, bytes: &[u8]) {
        let now = self.advance(now);
        let Some(local) = self.neighbours.listens(port) else { return };
        match Datagram::decode(bytes) {
            Ok(Datagram::Beacon(beacon)) => {
                self.neighbours.on_beacon(now, port, from, &beacon);
                if self.neighbours.at(port, from).is_some() && beacon.summary != self.database.summary() {
                    self.behind.insert((port, from));
                }
            }
            // From others than neighbours these two mean nothing: a neighbour that we do not know yet says them again.
            Ok(Datagram::Digest(digest)) if self.neighbours.at(port, from).is_some() => {
                let lacking = self.database.lacking(&digest);
                self.send_adverts(now, port, from, &lacking);
                // It cannot know what we lack before it has seen ours: a neighbour's first digest may come before we know that it is one.
                if self.database.is_behind(&digest) {
                    self.behind.insert((port, from));
                }
            }
            Ok(Datagram::Adverts(adverts)) => {
                if let Some(neighbour) = self.neighbours.at(port, from) {
                    self.take(now, (port, local, from), neighbour, &adverts);
                }
            }
            Ok(Datagram::Digest(_)) => {}
            Err(why) => self.neighbours.complain(now, Event::Unreadable { local, from, why }),
        }
        self.settle(now);
    }

    fn advance(&mut self, driver: Time) -> Time {
        let (now, leap) = self.clock.advance(driver, self.due(), self.config.timers.hello / 2);
        if let Some(leap) = leap {
            self.neighbours.forgive(now);
            // A host that is too slow for its work is late again and again.
            self.neighbours.complain(now, Event::ClockLeapt { ms: leap / MS as i64 });
        }
        now
    }

    /// Advertisements from a neighbour: what is new goes on to all other neighbours on other ports.
    fn take(
        &mut self,
        now: Time,
        (port, local, from): (PortId, Ipv4Addr, Ipv4Addr),
        neighbour: u64,
        adverts: &[Carried<'_>],
    ) {
        let mut fresh = Vec::new();
        let mut news = false;
        for &carried in adverts {
            match self.database.offer(now, carried) {
                Ok(Offer::Taken { origin, changed }) => {
                    fresh.push(origin);
                    news |= changed;
                }
                Ok(Offer::Known) => {}
                Ok(Offer::Own { version, conflict }) => {
                    let note = self.own.heard(now, version, conflict);
                    self.out.extend(note.map(Action::Note));
                }
                Ok(Offer::Full { origin }) => {
                    let event = Event::DatabaseFull { limit: self.config.max_nodes, node: origin };
                    self.neighbours.complain(now, event);
                }
                Err(why) => self.neighbours.complain(now, Event::Unreadable { local, from, why }),
            }
        }
        if news {
            self.stale = true;
            self.neighbours.repair(now);
        }
        self.flood(now, &fresh, Some((port, neighbour)));
    }

    /// Sends advertisements to all neighbours but the node that they came from, and those on the port that they came by: on a switched segment
    /// these have them from that node too, or miss them and ask.
    fn flood(&mut self, now: Time, origins: &[u64], from: Option<(PortId, u64)>) {
        if origins.is_empty() {
            return;
        }
        let datagrams = pack(origins.iter().filter_map(|&origin| self.database.carried(now, origin)));
        let is_meant = |port, node| from.is_none_or(|from| from.0 != port && from.1 != node);
        for (port, to, _) in self.neighbours.all().filter(|(port, _, node)| is_meant(*port, *node)) {
            let to = To::Address(to);
            self.out.extend(datagrams.iter().map(|bytes| Action::Send { port, to, bytes: bytes.clone() }));
        }
    }

    fn send_adverts(&mut self, now: Time, port: PortId, to: Ipv4Addr, origins: &[u64]) {
        let datagrams = pack(origins.iter().filter_map(|&origin| self.database.carried(now, origin)));
        let to = To::Address(to);
        self.out.extend(datagrams.into_iter().map(|bytes| Action::Send { port, to, bytes }));
    }

    /// Carries out what the input has led to.
    fn settle(&mut self, now: Time) {
        let effects = self.neighbours.take_effects();
        self.out.extend(effects.notes.into_iter().map(Action::Note));
        if effects.changed {
            self.own.want(now);
        }
        self.behind.extend(effects.came_up);
        // Ours goes first, so that a summary is sent after what it sums up.
        self.advertise(now);
        while let Some((port, to, bytes)) = self.neighbours.next_beacon(now, self.database.summary()) {
            self.out.push_back(Action::Send { port, to, bytes });
        }
        // After the beacon, from which the neighbour may only learn that it is one.
        let Self { neighbours, database, out, behind, .. } = self;
        behind.retain(|&(port, remote)| {
            let waits = neighbours.at(port, remote).is_some() && now < neighbours.digest_at(port, remote);
            if !waits && neighbours.at(port, remote).is_some() {
                neighbours.digests(now, port, remote);
                let to = To::Address(remote);
                let digests = database.digests().into_iter();
                out.extend(digests.map(|digest| Action::Send { port, to, bytes: digest.encode() }));
            }
            waits
        });
    }

    /// Sends out an advertisement of our own, if one is due.
    fn advertise(&mut self, now: Time) {
        let Some((incarnation, seq)) = self.own.next(now) else { return };
        let Config { id, name, relay, daemon, features, .. } = &self.config;
        let conflict = self.own.in_conflict();
        let advert = Advert {
            id: id.clone(),
            name: name.clone(),
            incarnation,
            seq,
            relay: *relay,
            conflict,
            daemon: *daemon,
            features: *features,
            ports: self.neighbours.advert_ports(),
            adjacencies: if conflict { Vec::new() } else { self.neighbours.adjacencies() },
            agents: self.agents.clone(),
        };
        let (version, changed) = self.database.put_own(now, advert);
        self.own.issued(now, version);
        if changed {
            self.stale = true;
            self.neighbours.repair(now);
        }
        self.flood(now, &[self.key], None);
    }

    /// Makes the view anew, and says how it differs.
    fn look(&mut self) {
        let view = View::of(self.key, self.database.adverts());
        if view == self.view {
            return;
        }
        let old = std::mem::replace(&mut self.view, view);
        // A fault of which more becomes known is not told again.
        let subjects = |view: &View| view.faults.iter().map(|fault| (fault.subject(), fault.clone())).collect();
        let (was, is): (BTreeMap<_, _>, BTreeMap<_, Fault>) = (subjects(&old), subjects(&self.view));
        let new = is.iter().filter(|(subject, _)| !was.contains_key(subject));
        self.out.extend(new.map(|(_, fault)| Action::Note(Event::Fault(fault.clone()))));
        let over = was.into_iter().filter(|(subject, _)| !is.contains_key(subject));
        self.out.extend(over.map(|(_, fault)| Action::Note(Event::FaultOver(fault))));
        self.out.push_back(Action::Changed);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
