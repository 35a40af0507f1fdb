//! The node's agent as one state machine: sets up paths, forwards chunks, returns credits, tears down.
//!
//! Inputs are method calls with the time passed in; outputs are [`Action`]s taken with [`Engine::poll`]. **What one leg has brought goes
//! in, then the outputs are drained until none is left, before anything else goes in.** The engine sees legs, slots and addresses, never memory, sockets or clocks; the
//! agent's thread ([`crate::agent`]) and the simulator run this very code, and neither contains a decision.
//!
//! A *leg* is one end of a queue pair (TCP: a socket). A relay has, per connection, a leg or trunk it comes in by and one it leaves by:
//!
//! ```text
//!   sender ──leg──▶ relay ──trunk──▶ relay ──leg──▶ receiver        chunks
//!          ◀─────────────────────────────────────────              clear-to-send, credit, acknowledgement
//! ```
//!
//! Files: `transit` sets up streams through this node, `connect` and `accept` the two ends, `trunk` shares a trunk, `forward`
//! moves chunks, `legs` finds legs, `slots` owns the pool's bookkeeping, `teardown` ends things, `types` is the face.
//!
//! All maps are ordered, so that the same inputs give the same outputs in the same order, on every run.
//!
//! **No deadlock.** A chunk enters the fabric only after its clear-to-send has passed every relay, so the last hop always drains. A
//! chunk in an entry slot (one hop made) waits only for a trunk slot of class 0 (two hops made); one in class *k* only for class *k*+1.
//! Waiting therefore never closes a circle, whatever the topology. Entry slots belong to one connection; trunk slots are shared, but a
//! stream may hold only its share of a class, so one slow receiver cannot take them all.

mod accept;
mod connect;
mod forward;
mod legs;
mod slots;
mod teardown;
mod transit;
mod trunk;
mod types;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use crate::code;
use crate::stats::RelayStats;
use crate::wire::{ChunkHeader, HopAddr, Msg, Refusal, Setup, WireError, messages};

pub use connect::ConnectRequest;
pub use slots::PoolUse;
pub use trunk::TrunkUse;
pub use types::{Action, Config, DialId, Event, LegId, LentSlots, MS, SendPath, Time};

/// Where a stream meets a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Joint {
    leg: LegId,
    stream: u32,
}

#[derive(Debug)]
struct Leg {
    local: Ipv4Addr,
    remote: Ipv4Addr,
    role: Role,
    /// Run of pool slots that the peer may fill.
    run: Option<usize>,
    /// Slots to give back with the next credit.
    credits: Vec<u16>,
}

#[derive(Debug)]
enum Role {
    /// Has not said yet what it is.
    Stranger { deadline: Time },
    /// A connection's chunks come in by it.
    Up { stream: usize },
    /// A connection's chunks leave by it into the receive buffer.
    Down { stream: usize },
    /// Another relay's chunks come in.
    TrunkIn { streams: BTreeMap<u32, usize> },
    /// Chunks leave to another relay.
    TrunkOut(Box<trunk::TrunkOut>),
    /// A lane of a connection being set up from here.
    Connecting { request: u64, lane: u8 },
    /// A lane of a connection being set up to here.
    Accepting { token: [u8; 16], conn: [u8; 16] },
}

#[derive(Debug)]
struct Queued {
    slot: u32,
    header: ChunkHeader,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Opening {
    /// A dial or its next attempt is pending.
    Dialing,
    /// The trunk is being opened.
    Trunk,
    /// Sent on; waiting for the answer.
    Asked,
}

/// A connection's path through this node.
#[derive(Debug)]
struct Stream {
    serial: u64,
    up: Joint,
    down: Option<Joint>,
    setup: Setup,
    opening: Option<(Opening, Time)>,
    last_error: String,
    queue: VecDeque<Queued>,
    /// Last chunks of messages that the receiver's memory holds, where links acknowledge.
    delivered: u32,
    /// The sender has not been told of all of them.
    owes: bool,
    /// Slots held at the next relay.
    flying: u16,
    /// Has a chunk for its trunk: in the ready queue, or sated.
    waiting: bool,
    /// Holds its share of the trunk's slots: its turn comes with its next credit, or when the share grows.
    sated: bool,
    /// Counts in its trunk's `active`.
    active: bool,
}

impl Stream {
    /// The class of slots that it takes of its trunk.
    fn class(&self, ignore_classes: bool) -> usize {
        if ignore_classes { 0 } else { usize::from(self.setup.at) }
    }
}

#[derive(Clone, Debug)]
enum Purpose {
    Lane { request: u64, lane: u8 },
    Stream { stream: usize, serial: u64 },
    Trunk(HopAddr),
}

/// The machine. See the module.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    legs: legs::LegTable,
    streams: Vec<Option<Stream>>,
    serial: u64,
    dials: BTreeMap<u64, Purpose>,
    next_dial: u64,
    retries: Vec<(Time, Purpose)>,
    trunks: BTreeMap<HopAddr, trunk::TrunkState>,
    connects: BTreeMap<u64, connect::Connect>,
    listeners: BTreeMap<[u8; 16], accept::Listener>,
    pool: slots::Pool,
    out: VecDeque<Action>,
    /// Legs with credits to give back.
    creditors: Vec<LegId>,
    /// Streams, with their serials, whose senders are to hear what was delivered.
    owing: Vec<(usize, u64)>,
    stats: RelayStats,
    /// The time of the last input.
    now: Time,
}

impl Engine {
    /// A node without legs.
    pub fn new(config: Config) -> Self {
        let pool = slots::Pool::new(config.pool_slots);
        Self {
            config,
            legs: legs::LegTable::default(),
            streams: Vec::new(),
            serial: 0,
            dials: BTreeMap::new(),
            next_dial: 0,
            retries: Vec::new(),
            trunks: BTreeMap::new(),
            connects: BTreeMap::new(),
            listeners: BTreeMap::new(),
            pool,
            out: VecDeque::with_capacity(256),
            creditors: Vec::with_capacity(64),
            owing: Vec::with_capacity(64),
            stats: RelayStats::new(),
            now: 0,
        }
    }

    /// The node's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters and histograms.
    pub fn stats(&self) -> &RelayStats {
        &self.stats
    }

    /// Use of the pool now, for status and for invariant checks.
    pub fn pool_use(&self) -> PoolUse {
        self.pool.usage()
    }

    /// Paths that pass through this node, standing or being set up.
    pub fn streams(&self) -> usize {
        self.streams.iter().flatten().count()
    }

    /// Legs that are the engine's: not yet dropped, gone, or handed to a connection.
    pub fn legs(&self) -> usize {
        self.legs.len()
    }

    /// The next thing to do. Credits are given back, and deliveries told, when nothing else is left, so that many go together.
    pub fn poll(&mut self) -> Option<Action> {
        if let Some(action) = self.out.pop_front() {
            return Some(action);
        }
        while let Some((index, serial)) = self.owing.pop() {
            if let Some(s) = self.streams.get_mut(index).and_then(Option::as_mut).filter(|s| s.serial == serial) {
                s.owes = false;
                let msg = Msg::Done { stream: s.up.stream, count: s.delivered };
                return Some(Action::Send { leg: s.up.leg, msg });
            }
        }
        while let Some(leg_id) = self.creditors.last().copied() {
            let Some(leg) = self.legs.get_mut(&leg_id).filter(|leg| !leg.credits.is_empty()) else {
                self.creditors.pop();
                continue;
            };
            let n = leg.credits.len().min(crate::wire::MAX_CREDITS);
            let mut slots = [0; crate::wire::MAX_CREDITS];
            for (to, from) in slots.iter_mut().zip(leg.credits.drain(..n)) {
                *to = from;
            }
            return Some(Action::Send { leg: leg_id, msg: Msg::Credit { n: n as u8, slots } });
        }
        None
    }

    /// When [`Engine::on_time`] must be called at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let strangers = self.legs.values().filter_map(|leg| match leg.role {
            Role::Stranger { deadline } => Some(deadline),
            _ => None,
        });
        let streams = self.streams.iter().flatten().filter_map(|s| s.opening.map(|(_, t)| t));
        let retries = self.retries.iter().map(|(t, _)| *t);
        let connects = self.connects.values().map(|c| c.deadline);
        let accepts = self.listeners.values().filter_map(accept::Listener::deadline);
        strangers.chain(streams).chain(retries).chain(connects).chain(accepts).min()
    }

    /// Lets time pass: fires what is due.
    pub fn on_time(&mut self, now: Time) {
        self.now = now;
        let due: Vec<Purpose> = self.retries.extract_if(.., |(t, _)| *t <= now).map(|(_, p)| p).collect();
        for purpose in due {
            self.dial(purpose);
        }
        self.expire_strangers(now);
        self.expire_streams(now);
        self.expire_connects(now);
        self.expire_accepts(now);
    }

    /// A peer has opened a leg to our port `local` from its port `remote`.
    pub fn on_accepted(&mut self, now: Time, leg: LegId, local: Ipv4Addr, remote: Ipv4Addr) {
        self.now = now;
        let waiting = self.legs.values().filter(|l| matches!(l.role, Role::Stranger { .. })).count();
        if waiting >= self.config.strangers {
            self.out.push_back(Action::Drop { leg, graceful: false });
            let why = format!("{waiting} others have not said yet what they want");
            self.note(Event::Stranger { peer: remote, why });
            return;
        }
        let role = Role::Stranger { deadline: now + self.config.hello };
        self.add_leg(leg, local, remote, role);
    }

    /// The outcome of an [`Action::Dial`]: the new leg, or what the operating system said.
    pub fn on_dialed(&mut self, now: Time, dial: DialId, outcome: Result<LegId, String>) {
        self.now = now;
        let Some(purpose) = self.dials.remove(&dial.0) else {
            if let Ok(leg) = outcome {
                self.out.push_back(Action::Drop { leg, graceful: false });
            }
            return;
        };
        match (purpose, outcome) {
            (Purpose::Lane { request, lane }, Ok(leg)) => self.lane_up(now, request, lane, leg),
            (Purpose::Stream { stream, serial }, Ok(leg)) => self.stream_leg_up(now, stream, serial, leg),
            (Purpose::Trunk(hop), Ok(leg)) => self.trunk_dialed(leg, hop),
            (purpose, Err(why)) => self.dial_failed(now, purpose, why),
        }
    }

    /// A frame of messages has arrived on a leg.
    pub fn on_message(&mut self, now: Time, leg: LegId, frame: &[u8]) {
        self.now = now;
        for msg in messages(frame) {
            match msg {
                Ok(msg) => self.dispatch(now, leg, msg),
                // A leg that was forgotten may still have something to say.
                Err(e) if self.legs.contains_key(&leg) => self.bad_message(leg, e),
                Err(_) => {}
            }
        }
    }

    fn dispatch(&mut self, now: Time, id: LegId, msg: Msg) {
        let Some(leg) = self.legs.get(&id) else { return self.handed_over(id, msg) };
        match (&leg.role, msg) {
            (Role::Stranger { .. }, Msg::Setup(setup)) => self.on_setup(now, id, setup),
            (Role::Stranger { .. }, Msg::TrunkHello { .. }) => self.trunk_hello(id),
            (Role::TrunkIn { .. }, Msg::Setup(setup)) => self.on_setup(now, id, setup),
            (Role::TrunkIn { streams }, Msg::Close { stream, code }) => {
                if let Some(&stream) = streams.get(&stream) {
                    self.closed_from_above(stream, code);
                }
            }
            (&Role::Up { stream }, Msg::Close { code, .. }) => self.closed_from_above(stream, code),
            (&Role::Down { stream }, msg) => self.on_from_below(stream, msg),
            (Role::TrunkOut(_), Msg::TrunkReady { key, base, slots, classes, stride, chunk }) => {
                self.trunk_ready(now, id, trunk::Slots { key, base, slots, classes, stride, chunk });
            }
            (Role::TrunkOut(_), Msg::Refused { stream: 0, why }) => self.trunk_refused(id, &why),
            (Role::TrunkOut(_), Msg::Credit { n, slots }) => self.trunk_credit(id, &slots[..usize::from(n)]),
            (Role::TrunkOut(trunk), msg) => {
                // A stream that ended meanwhile is no fault of the peer.
                if let Some(stream) = stream_of(&msg).and_then(|s| trunk.streams.get(&s).copied()) {
                    self.on_from_below(stream, msg);
                }
            }
            (&Role::Connecting { request, lane }, msg) => self.connecting(request, lane, msg),
            (&Role::Accepting { token, conn }, msg) => self.accepting(id, token, conn, msg),
            (_, msg) => {
                let why = format!("unexpected {}", msg.name());
                self.fault(id, code::PROTOCOL_BROKEN, why);
            }
        }
    }

    fn bad_message(&mut self, leg: LegId, error: WireError) {
        if let WireError::Protocol { theirs, ours } = error {
            let text = format!(
                "mesh[E43] node {} speaks mesh protocol {ours}, the peer {theirs}: install the same build of nccl-mesh on all nodes",
                self.config.name
            );
            let why = Refusal { code: code::OTHER_VERSION, text };
            self.out.push_back(Action::Send { leg, msg: Msg::Refused { stream: 0, why } });
        }
        self.fault(leg, code::PROTOCOL_BROKEN, error.to_string());
    }

    /// The peer broke the protocol (or is a stranger): the leg goes, with all that hangs on it.
    fn fault(&mut self, id: LegId, code: u16, why: String) {
        let graceful = !self.pool.is_read_by(id);
        self.leg_gone(id, code, &why);
        self.out.push_back(Action::Drop { leg: id, graceful });
    }

    /// A leg could not be connected, which has been said: if it is still a stranger's it is forgotten, which is answered.
    pub fn forget_stranger(&mut self, id: LegId) -> bool {
        let stranger = self.legs.get(&id).is_some_and(|leg| matches!(leg.role, Role::Stranger { .. }));
        if stranger {
            self.legs.remove(&id);
        }
        stranger
    }

    /// A leg is gone: closed by its peer, or broken. The driver has dropped it.
    pub fn on_leg_down(&mut self, now: Time, id: LegId, why: &str) {
        self.now = now;
        if let Some(Leg { role: Role::Connecting { request, lane }, .. }) = self.legs.get(&id) {
            let (request, lane) = (*request, *lane);
            self.legs.remove(&id);
            self.dial_failed(now, Purpose::Lane { request, lane }, format!("the leg broke: {why}"));
            return;
        }
        self.leg_gone(id, code::RELAY_LEFT, why);
    }

    fn dial(&mut self, purpose: Purpose) {
        let hop = match &purpose {
            Purpose::Lane { request, lane } => self
                .connects
                .get(request)
                .and_then(|c| c.lanes.get(usize::from(*lane)))
                .and_then(|l| l.hops.first().copied()),
            Purpose::Stream { stream, serial } => self
                .streams
                .get(*stream)
                .and_then(Option::as_ref)
                .filter(|s| s.serial == *serial)
                .and_then(|s| s.setup.hops.get(usize::from(s.setup.at) + 1).copied()),
            Purpose::Trunk(hop) => self.trunks.contains_key(hop).then_some(*hop),
        };
        // Whoever wanted the leg has given up meanwhile.
        let Some(hop) = hop else { return };
        let dial = self.next_dial;
        self.next_dial += 1;
        self.dials.insert(dial, purpose);
        self.out.push_back(Action::Dial { dial: DialId(dial), hop });
    }

    fn dial_failed(&mut self, now: Time, purpose: Purpose, why: String) {
        match &purpose {
            Purpose::Lane { request, lane } => {
                let Some(connect) = self.connects.get_mut(request) else { return };
                if let Some(lane) = connect.lanes.get_mut(usize::from(*lane)) {
                    lane.lost(why);
                }
            }
            Purpose::Stream { stream, serial } => {
                let Some(s) = self.streams.get_mut(*stream).and_then(Option::as_mut).filter(|s| s.serial == *serial)
                else {
                    return;
                };
                s.last_error = why;
            }
            Purpose::Trunk(hop) => {
                if !self.trunk_still_wanted(*hop, &why) {
                    return;
                }
            }
        }
        self.retries.push((now + self.config.retry, purpose));
    }

    fn expire_strangers(&mut self, now: Time) {
        let late: Vec<(LegId, Ipv4Addr)> = self
            .legs
            .iter()
            .filter(|(_, l)| matches!(l.role, Role::Stranger { deadline } if deadline <= now))
            .map(|(id, l)| (id, l.remote))
            .collect();
        for (leg, peer) in late {
            self.legs.remove(&leg);
            self.out.push_back(Action::Drop { leg, graceful: false });
            let why = format!("said nothing for {} ms", self.config.hello / MS);
            self.note(Event::Stranger { peer, why });
        }
    }

    fn add_leg(&mut self, id: LegId, local: Ipv4Addr, remote: Ipv4Addr, role: Role) {
        let leg = Leg { local, remote, role, run: None, credits: Vec::new() };
        let old = self.legs.insert(id, leg);
        debug_assert!(old.is_none(), "leg {id:?} named twice");
    }

    fn send(&mut self, leg: LegId, msg: Msg) {
        self.out.push_back(Action::Send { leg, msg });
    }

    fn note(&mut self, event: Event) {
        self.out.push_back(Action::Note(event));
    }

    fn stream(&mut self, index: usize) -> Option<&mut Stream> {
        self.streams.get_mut(index).and_then(Option::as_mut)
    }

    fn refuse_text(&self, code: u16, what: &str) -> Refusal {
        Refusal { code, text: format!("mesh[E{code:02}] node {}: {what}", self.config.name) }
    }
}

fn stream_of(msg: &Msg) -> Option<u32> {
    match msg {
        Msg::Ready { stream, .. }
        | Msg::Refused { stream, .. }
        | Msg::Cts { stream, .. }
        | Msg::Ack { stream, .. }
        | Msg::Done { stream, .. }
        | Msg::Close { stream, .. } => Some(*stream),
        _ => None,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
