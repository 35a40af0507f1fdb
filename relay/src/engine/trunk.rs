//! The trunk between two relays over one link: opened by the node whose chunks it carries, its slots in classes, shared by turns.
//!
//! A chunk that will have made `k + 2` hops when it lies in the slot takes one of class `k`, so a chunk only ever waits for the next
//! class. Within a class the streams take turns, and none may hold more than its share of the slots, so that a stream whose receiver is
//! slow leaves room for the others.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use super::{Action, Engine, Event, Joint, Leg, LegId, Opening, Purpose, Role, Stream, Time, slots::SlotState};
use crate::code;
use crate::wire::{ChunkHeader, HEADER_BYTES, HopAddr, Msg, Refusal};

/// What the node at the other end has lent us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) key: u32,
    pub(super) base: u64,
    pub(super) slots: u16,
    pub(super) classes: u8,
    pub(super) stride: u32,
    pub(super) chunk: u32,
}

#[derive(Debug)]
pub(super) enum TrunkState {
    /// Being opened; these streams (with their serials) wait for it.
    Opening { waiting: Vec<(usize, u64)> },
    /// Stands.
    Up { leg: LegId },
}

/// Our end of a trunk that our chunks leave by.
#[derive(Debug)]
pub(super) struct TrunkOut {
    hop: HopAddr,
    lent: Option<Slots>,
    /// By class. The slot given back last is taken first: its memory is still in caches.
    free: Vec<Vec<u16>>,
    /// Streams with a chunk to send that may hold another slot, by class, in the order of their turns.
    ready: Vec<VecDeque<(usize, u64)>>,
    /// The share of each class when it was last looked at: when it grows, those that had theirs may go on.
    shares: Vec<u16>,
    /// Streams that have a chunk waiting or under way, by class.
    active: Vec<u16>,
    holder: Vec<Option<(usize, u64)>>,
    pub(super) streams: BTreeMap<u32, usize>,
    next_stream: u32,
}

/// A trunk that stands, for status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrunkUse {
    /// This node's port.
    pub local: Ipv4Addr,
    /// The port of the relay at the other end.
    pub remote: Ipv4Addr,
    /// Whether chunks leave by it; otherwise they come in.
    pub out: bool,
    /// Streams on it.
    pub streams: usize,
    /// Slots that hold a chunk, at the other end if chunks leave, else here.
    pub filled: usize,
    /// Slots in all, of all classes.
    pub slots: usize,
}

impl TrunkOut {
    /// Slots of a class that one stream may hold: equal parts of three quarters. The rest is for one that begins.
    fn share(&self, class: usize) -> u16 {
        let slots = self.lent.map_or(0, |l| l.slots);
        (slots.saturating_sub((slots / 4).max(1)) / self.active[class].max(1)).max(1)
    }

    /// The share of a class has grown: streams that wait for no more than that get their turns. The others wait for a credit of their own,
    /// so that nobody is looked at in vain.
    #[cold]
    fn wake_sated(&mut self, streams: &mut [Option<Stream>], class: usize, ignore_classes: bool) {
        for &index in self.streams.values() {
            let Some(s) = streams.get_mut(index).and_then(Option::as_mut) else { continue };
            if s.class(ignore_classes) == class && std::mem::take(&mut s.sated) {
                self.ready[class].push_back((index, s.serial));
            }
        }
    }
}

impl Engine {
    /// The trunks that stand, by their ports; for status.
    pub fn trunks(&self) -> Vec<TrunkUse> {
        let of = |leg: &Leg| {
            let (out, streams, (filled, slots)) = match &leg.role {
                Role::TrunkOut(trunk) if trunk.lent.is_some() => {
                    (true, trunk.streams.len(), (trunk.holder.iter().flatten().count(), trunk.holder.len()))
                }
                Role::TrunkIn { streams } => {
                    (false, streams.len(), leg.run.map_or((0, 0), |run| self.pool.filled_of(run)))
                }
                _ => return None,
            };
            Some(TrunkUse { local: leg.local, remote: leg.remote, out, streams, filled, slots })
        };
        let mut all: Vec<_> = self.legs.values().filter_map(of).collect();
        all.sort_unstable();
        all
    }

    /// A stream needs the trunk of its next hop; opens it if it does not stand.
    pub(super) fn join_trunk(&mut self, now: Time, stream: usize, serial: u64, hop: HopAddr) {
        match self.trunks.get_mut(&hop) {
            Some(TrunkState::Up { leg }) => {
                let leg = *leg;
                self.attach(now, stream, serial, leg);
            }
            Some(TrunkState::Opening { waiting }) => waiting.push((stream, serial)),
            None => {
                self.trunks.insert(hop, TrunkState::Opening { waiting: vec![(stream, serial)] });
                self.dial(Purpose::Trunk(hop));
            }
        }
    }

    pub(super) fn trunk_dialed(&mut self, leg: LegId, hop: HopAddr) {
        let trunk = TrunkOut {
            hop,
            lent: None,
            free: Vec::new(),
            ready: Vec::new(),
            shares: Vec::new(),
            active: Vec::new(),
            holder: Vec::new(),
            streams: BTreeMap::new(),
            next_stream: 1,
        };
        self.add_leg(leg, hop.from, hop.to, Role::TrunkOut(Box::new(trunk)));
        let node = self.config.node;
        self.send(leg, Msg::TrunkHello { node });
    }

    /// Another relay opens a trunk to us: lend it slots.
    pub(super) fn trunk_hello(&mut self, id: LegId) {
        let (mut slots, classes, stride, chunk) =
            (self.config.trunk_slots.max(1), self.config.classes, self.config.stride(), self.config.chunk);
        if !self.config.relay || classes == 0 {
            let why = self.refuse_text(code::RELAY_OFF, "lets no traffic of others pass (relay = false)");
            self.send(id, Msg::Refused { stream: 0, why });
            return self.fault(id, code::RELAY_OFF, "a trunk to a node that does not relay".into());
        }
        // Slots of a leg are counted with 16 bits.
        slots = slots.min(u16::MAX / u16::from(classes));
        let run = loop {
            match self.pool.lend(id, slots * u16::from(classes)) {
                Some(run) => break run,
                None if slots > 1 => slots /= 2,
                None => {
                    let why = self.refuse_text(code::POOL_EMPTY, POOL_EMPTY_TEXT);
                    self.send(id, Msg::Refused { stream: 0, why });
                    return self.fault(id, code::POOL_EMPTY, "no slots for a trunk".into());
                }
            }
        };
        let Some(leg) = self.legs.get_mut(&id) else { return };
        leg.role = Role::TrunkIn { streams: BTreeMap::new() };
        leg.run = Some(run);
        let (local, remote) = (leg.local, leg.remote);
        if let Some(r) = self.pool.run(run) {
            self.out.push_back(Action::Expose { leg: id, first: r.first, count: r.count });
        }
        self.send(id, Msg::TrunkReady { key: 0, base: 0, slots, classes, stride, chunk });
        self.note(Event::TrunkUp { local, remote, out: false });
    }

    pub(super) fn trunk_ready(&mut self, now: Time, id: LegId, lent: Slots) {
        let ignore = self.config.ignore_classes;
        let Some(Role::TrunkOut(trunk)) = self.legs.get_mut(&id).map(|l| &mut l.role) else { return };
        let total = u32::from(lent.slots) * u32::from(lent.classes);
        let sane = (1..=u32::from(u16::MAX)).contains(&total)
            && lent.chunk >= 128
            && lent.chunk <= 1 << 30
            && lent.stride >= lent.chunk + HEADER_BYTES as u32;
        if trunk.lent.is_some() || !sane {
            return self.fault(id, code::PROTOCOL_BROKEN, format!("trunk slots {lent:?} make no sense"));
        }
        let lent = if ignore { Slots { slots: total as u16, classes: 1, ..lent } } else { lent };
        trunk.lent = Some(lent);
        trunk.free =
            (0..u16::from(lent.classes)).map(|c| (c * lent.slots..(c + 1) * lent.slots).rev().collect()).collect();
        trunk.ready = vec![VecDeque::with_capacity(64); usize::from(lent.classes)];
        trunk.shares = vec![u16::MAX; usize::from(lent.classes)];
        trunk.active = vec![0; usize::from(lent.classes)];
        trunk.holder = vec![None; total as usize];
        let hop = trunk.hop;
        self.note(Event::TrunkUp { local: hop.from, remote: hop.to, out: true });
        let before = self.trunks.insert(hop, TrunkState::Up { leg: id });
        if let Some(TrunkState::Opening { waiting }) = before {
            for (stream, serial) in waiting {
                self.attach(now, stream, serial, id);
            }
        }
    }

    /// Sends a stream's set-up on over a standing trunk.
    fn attach(&mut self, now: Time, index: usize, serial: u64, id: LegId) {
        let Some(s) = self.streams.get_mut(index).and_then(Option::as_mut).filter(|s| s.serial == serial) else {
            return;
        };
        let Some(Role::TrunkOut(trunk)) = self.legs.get_mut(&id).map(|l| &mut l.role) else { return };
        let class = usize::from(s.setup.at);
        let classes = trunk.free.len();
        if class >= classes && !self.config.ignore_classes {
            let text = format!(
                "the route has {} relays but its relays are set for {}; give all nodes the same topology",
                s.setup.hops.len() - 1,
                classes + 1
            );
            let why = self.refuse_text(code::BAD_ROUTE, &text);
            return self.refuse_stream(index, why);
        }
        let stream = trunk.next_stream;
        trunk.next_stream = trunk.next_stream.wrapping_add(1);
        trunk.streams.insert(stream, index);
        s.down = Some(Joint { leg: id, stream });
        let msg = Msg::Setup(s.next_setup(now, stream));
        if let Some((state, _)) = s.opening.as_mut() {
            *state = Opening::Asked;
        }
        self.send(id, msg);
    }

    /// Whether anybody still waits for the trunk; tells those that do why it is late.
    pub(super) fn trunk_still_wanted(&mut self, hop: HopAddr, why: &str) -> bool {
        let Some(TrunkState::Opening { waiting }) = self.trunks.get_mut(&hop) else { return false };
        let streams = &mut self.streams;
        waiting.retain(|(index, serial)| {
            let alive = streams.get_mut(*index).and_then(Option::as_mut).filter(|s| s.serial == *serial);
            alive.map(|s| s.last_error = format!("trunk to {}: {why}", hop.to)).is_some()
        });
        let wanted = !waiting.is_empty();
        if !wanted {
            self.trunks.remove(&hop);
        }
        wanted
    }

    /// A path has waited in vain for a trunk. If nobody else waits, a leg on which the peer has said nothing goes too, so that the next
    /// path tries afresh.
    pub(super) fn give_up_trunk(&mut self, hop: HopAddr) {
        if !matches!(self.trunks.get(&hop), Some(TrunkState::Opening { .. }))
            || self.trunk_still_wanted(hop, "no answer")
        {
            return;
        }
        let silent = |l: &&Leg| matches!(&l.role, Role::TrunkOut(t) if t.hop == hop && t.lent.is_none());
        let leg = self.legs.iter().find(|(_, l)| silent(l)).map(|(id, _)| id);
        if let Some(leg) = leg {
            self.legs.remove(&leg);
            self.out.push_back(Action::Drop { leg, graceful: false });
        }
    }

    /// The next node will have no trunk: those that wait for it hear why.
    pub(super) fn trunk_refused(&mut self, id: LegId, why: &Refusal) {
        let Some(Role::TrunkOut(trunk)) = self.legs.get(&id).map(|l| &l.role) else { return };
        if trunk.lent.is_some() {
            return self.fault(id, code::PROTOCOL_BROKEN, format!("a trunk that stands was refused: {}", why.text));
        }
        let hop = trunk.hop;
        if let Some(TrunkState::Opening { waiting }) = self.trunks.remove(&hop) {
            for (index, serial) in waiting {
                if self.stream(index).is_some_and(|s| s.serial == serial) {
                    self.refuse_stream(index, why.clone());
                }
            }
        }
        self.legs.remove(&id);
        self.out.push_back(Action::Drop { leg: id, graceful: true });
    }

    /// Slots of the next relay are free again. Chunk path.
    pub(super) fn trunk_credit(&mut self, id: LegId, slots: &[u16]) {
        let mut touched = 0u64;
        for &slot in slots {
            let Some(Role::TrunkOut(trunk)) = self.legs.get_mut(&id).map(|l| &mut l.role) else { return };
            let Some((index, serial)) = trunk.holder.get_mut(usize::from(slot)).and_then(Option::take) else {
                return self.fault(id, code::PROTOCOL_BROKEN, format!("credit for slot {slot}, which was not used"));
            };
            let class = usize::from(slot / trunk.lent.map_or(1, |l| l.slots));
            trunk.free[class].push(slot);
            touched |= 1 << class.min(63);
            if let Some(s) = self.streams.get_mut(index).and_then(Option::as_mut).filter(|s| s.serial == serial) {
                s.flying -= 1;
                if std::mem::take(&mut s.sated) {
                    trunk.ready[class].push_back((index, serial));
                }
                if s.flying == 0 && s.queue.is_empty() && s.active {
                    s.active = false;
                    trunk.active[class] -= 1;
                }
            }
        }
        while touched != 0 {
            let class = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            self.pump_trunk(id, class);
        }
    }

    /// A stream has a chunk for its trunk. Chunk path.
    pub(super) fn offer_trunk(&mut self, id: LegId, index: usize) {
        let Some(s) = self.streams.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(Role::TrunkOut(trunk)) = self.legs.get_mut(&id).map(|l| &mut l.role) else { return };
        let class = s.class(self.config.ignore_classes);
        if !s.waiting {
            s.waiting = true;
            trunk.ready[class].push_back((index, s.serial));
        }
        if !s.active {
            s.active = true;
            trunk.active[class] += 1;
        }
        self.pump_trunk(id, class);
    }

    /// Fills free slots of a class, by turns. Chunk path.
    fn pump_trunk(&mut self, id: LegId, class: usize) {
        let Self { legs, streams, pool, out, stats, config, .. } = self;
        let Some(Role::TrunkOut(trunk)) = legs.get_mut(&id).map(|l| &mut l.role) else { return };
        let Some(lent) = trunk.lent else { return };
        let share = trunk.share(class);
        if share > std::mem::replace(&mut trunk.shares[class], share) {
            trunk.wake_sated(streams, class, config.ignore_classes);
        }
        while !trunk.free[class].is_empty() {
            let Some((index, serial)) = trunk.ready[class].pop_front() else { break };
            let Some(s) = streams.get_mut(index).and_then(Option::as_mut).filter(|s| s.serial == serial) else {
                continue;
            };
            if s.flying >= share {
                s.sated = true;
                continue;
            }
            let Some(chunk) = s.queue.pop_front() else {
                s.waiting = false;
                continue;
            };
            let Some(remote) = trunk.free[class].pop() else { break };
            trunk.holder[usize::from(remote)] = Some((index, serial));
            s.flying += 1;
            pool.slots[chunk.slot as usize].state = SlotState::Posted { leg: id, stream: index, serial };
            let header = ChunkHeader { stream: s.down.map_or(0, |d| d.stream), ..chunk.header };
            let offset = lent.base.wrapping_add(u64::from(remote) * u64::from(lent.stride));
            out.push_back(Action::Forward { slot: chunk.slot, leg: id, header, key: lent.key, offset, remote });
            stats.forwarded(header.len);
            if s.queue.is_empty() {
                s.waiting = false;
            } else {
                trunk.ready[class].push_back((index, serial));
            }
        }
    }

    /// A stream leaves its trunk.
    pub(super) fn leave_trunk(&mut self, id: LegId, stream: u32, class: u8, active: bool) {
        let class = if self.config.ignore_classes { 0 } else { usize::from(class) };
        if let Some(Role::TrunkOut(trunk)) = self.legs.get_mut(&id).map(|l| &mut l.role) {
            trunk.streams.remove(&stream);
            if active {
                trunk.active[class] -= 1;
            }
        }
        // The share of the others has grown.
        self.pump_trunk_if_up(id, class);
    }

    fn pump_trunk_if_up(&mut self, id: LegId, class: usize) {
        if let Some(Role::TrunkOut(trunk)) = self.legs.get(&id).map(|l| &l.role)
            && class < trunk.ready.len()
        {
            self.pump_trunk(id, class);
        }
    }

    /// Our end of an outgoing trunk is gone: its address pair, if it stood, and the streams on it.
    pub(super) fn trunk_out_gone(&mut self, id: LegId, trunk: TrunkOut, code: u16, why: &str) {
        let hop = trunk.hop;
        self.note(Event::TrunkDown { local: hop.from, remote: hop.to, why: why.to_owned() });
        let stood = matches!(self.trunks.get(&hop), Some(TrunkState::Up { leg }) if *leg == id);
        if stood {
            self.trunks.remove(&hop);
        } else if trunk.lent.is_none() && self.trunk_still_wanted(hop, why) {
            let again = Purpose::Trunk(hop);
            self.retries.push((self.now + self.config.retry, again));
        }
        for index in trunk.streams.into_values() {
            self.broken_below(index, code, why);
        }
    }
}

pub(super) const POOL_EMPTY_TEXT: &str =
    "the relay's slots are all lent; raise NCCL_MESH_RELAY_MEMORY_MB or lower NCCL_MESH_RELAY_SLOTS there";
