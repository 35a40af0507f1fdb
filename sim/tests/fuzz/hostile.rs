//! The hostile neighbourhood of one engine: what is said to it, and what its actions must not do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use mesh_relay::engine::{Action, Config, ConnectRequest, DialId, Engine, LegId, MS, Time};
use mesh_relay::wire::{ChunkHeader, Clear, HEADER_BYTES, HopAddr, MAX_CREDITS, Msg, Refusal, Setup};
use mesh_sim::virtual_time::Rng;

const PORTS: [Ipv4Addr; 3] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 1, 1), Ipv4Addr::new(10, 0, 2, 1)];
const TOKENS: [[u8; 16]; 3] = [[1; 16], [2; 16], [3; 16]];

/// A hostile neighbourhood, and a driver that checks every action it is given.
pub(crate) struct Hostile {
    engine: Engine,
    rng: Rng,
    now: Time,
    live: BTreeSet<LegId>,
    free: Vec<LegId>,
    dials: Vec<DialId>,
    /// Runs exposed, by leg.
    runs: BTreeMap<LegId, (u32, u16)>,
    /// Which leg reads which slots.
    reads: BTreeMap<u32, LegId>,
    requests: u64,
    /// Paths made to stand: the leg they come in by, and on which slots of it chunks lie.
    paths: Vec<(LegId, BTreeSet<u16>)>,
    /// Slots of next relays that hold chunks of ours.
    lent: BTreeMap<LegId, Vec<u16>>,
    /// How many of a hundred steps follow the rules.
    calm: u64,
    /// Connections handed over, sent chunks, refusals: what was reached at all.
    reached: [u32; 4],
    bytes: Vec<u8>,
}

impl Hostile {
    pub(crate) fn new(seed: u64) -> Self {
        let engine = Engine::new(Config {
            node: 1,
            name: "node".into(),
            addresses: PORTS.to_vec(),
            relay: true,
            chunk: 256,
            pool_slots: 24,
            entry_slots: 3,
            trunk_slots: 2,
            classes: 2,
            hello: 50 * MS,
            retry: 5 * MS,
            strangers: 5,
            acks: mesh_relay::send::Acks::Link,
            ignore_classes: false,
        });
        Self {
            engine,
            rng: Rng::new(seed),
            now: 0,
            live: BTreeSet::new(),
            free: (1..200).rev().map(LegId).collect(),
            dials: Vec::new(),
            runs: BTreeMap::new(),
            reads: BTreeMap::new(),
            requests: 0,
            paths: Vec::new(),
            lent: BTreeMap::new(),
            calm: [0, 60, 90, 97][(seed % 4) as usize],
            reached: [0; 4],
            bytes: Vec::new(),
        }
    }

    fn gone(&mut self, leg: LegId) {
        assert!(self.live.remove(&leg), "{leg:?} is gone already");
        self.free.push(leg);
        self.runs.remove(&leg);
        self.lent.remove(&leg);
        self.paths.retain(|(up, _)| *up != leg);
        self.reads.retain(|_, reader| *reader != leg);
    }

    fn drain(&mut self) {
        while let Some(action) = self.engine.poll() {
            match action {
                Action::Dial { dial, .. } => self.dials.push(dial),
                Action::Expose { leg, first, count } => {
                    assert!(self.live.contains(&leg), "exposed on a leg that is gone");
                    let run = first..first + u32::from(count);
                    let others = self.runs.values().map(|(f, c)| *f..f + u32::from(*c));
                    assert!(others.clone().all(|o| o.end <= run.start || run.end <= o.start), "slots lent twice");
                    assert!(run.clone().all(|slot| !self.reads.contains_key(&slot)), "lent while read");
                    assert!(self.runs.insert(leg, (first, count)).is_none());
                }
                Action::Send { leg, msg } => {
                    assert!(self.live.contains(&leg), "{msg:?} on a leg that is gone");
                    if let Msg::Credit { n, slots } = &msg {
                        let (first, count) = self.runs.get(&leg).copied().expect("credits for a run");
                        for slot in &slots[..usize::from(*n)] {
                            assert!(*slot < count && !self.reads.contains_key(&(first + u32::from(*slot))));
                            for (_, used) in self.paths.iter_mut().filter(|(up, _)| *up == leg) {
                                used.remove(slot);
                            }
                        }
                    }
                    self.reached[2] += u32::from(matches!(msg, Msg::Refused { .. }));
                    msg.encode(&mut self.bytes);
                    assert_eq!(Msg::decode(&self.bytes), Ok(msg), "what is sent can be read, and is not clipped");
                }
                Action::Forward { slot, leg, .. } | Action::Deliver { slot, leg, .. } => {
                    if let Action::Forward { remote, .. } = action {
                        self.lent.entry(leg).or_default().push(remote);
                    }
                    assert!(self.live.contains(&leg), "written to a leg that is gone");
                    assert!(self.reads.insert(slot, leg).is_none(), "slot {slot} sent on twice");
                    self.reached[1] += 1;
                }
                Action::Drop { leg, graceful } => {
                    let reads = self.reads.values().any(|reader| *reader == leg);
                    assert!(!(graceful && reads), "dropped gracefully while it reads");
                    self.gone(leg);
                }
                Action::Connected { legs, .. } | Action::Accepted { legs, .. } => {
                    legs.into_iter().for_each(|leg| self.gone(leg));
                    self.reached[0] += 1;
                }
                Action::ConnectFailed { .. } => self.reached[3] += 1,
                Action::Note(_) => {}
            }
        }
        assert_eq!(self.engine.legs(), self.live.len(), "legs are neither kept nor forgotten in silence");
        let usage = self.engine.pool_use();
        assert!(usage.filled <= usage.lent && usage.lent <= usage.slots, "{usage:?}");
        assert!(self.reads.len() as u32 <= usage.filled, "{:?} are read, but {usage:?}", self.reads);
    }

    fn leg(&mut self) -> Option<LegId> {
        let all: Vec<_> = self.live.iter().copied().collect();
        (!all.is_empty()).then(|| self.rng.pick(&all))
    }

    fn address(&mut self) -> Ipv4Addr {
        if self.rng.percent(85) { self.rng.pick(&PORTS) } else { Ipv4Addr::from_bits(self.rng.bits() as u32) }
    }

    fn number(&mut self) -> u32 {
        if self.rng.percent(95) { self.rng.below(4) as u32 } else { self.rng.bits() as u32 }
    }

    fn hops(&mut self) -> Vec<HopAddr> {
        (0..self.rng.between(1, 4)).map(|_| HopAddr { from: self.address(), to: self.address(), agent: 0 }).collect()
    }

    fn msg(&mut self) -> Msg {
        let (stream, number) = (self.number(), self.number());
        match self.rng.below(13) {
            0..=3 => {
                let hops = self.hops();
                let lanes = self.rng.pick(&[1, 1, 1, 2, 9]);
                Msg::Setup(Setup {
                    stream,
                    conn: [number as u8; 16],
                    token: self.rng.pick(&TOKENS),
                    lane: self.rng.below(lanes) as u8,
                    lanes: lanes as u8,
                    at: self.rng.below(hops.len() as u64) as u8,
                    budget_ms: self.rng.between(1, 200) as u32,
                    hops,
                })
            }
            4 => Msg::Ready {
                stream,
                key: number,
                base: 0,
                slots: 2,
                stride: 4096,
                chunk: self.rng.pick(&[256, u32::MAX, 1]),
            },
            5 => Msg::Refused { stream, why: Refusal { code: 53, text: "no".into() } },
            6 => Msg::Cts { stream, clear: Clear::new(number, &[1, 2], 0, 4096) },
            12 => Msg::Done { stream, count: number },
            7 => Msg::Ack { stream, count: number },
            8 => {
                let mut slots = [0; MAX_CREDITS];
                slots.iter_mut().for_each(|s| *s = self.rng.below(5) as u16);
                Msg::Credit { n: self.rng.below(4) as u8, slots }
            }
            9 => Msg::Close { stream, code: number as u16 },
            10 => Msg::TrunkHello { node: 3 },
            _ => {
                let slots = self.rng.pick(&[0, 1, 2, u16::MAX]);
                Msg::TrunkReady {
                    key: 1,
                    base: 0,
                    slots,
                    classes: 2,
                    stride: 4096,
                    chunk: self.rng.pick(&[256, 256, 4096]),
                }
            }
        }
    }

    fn message(&mut self, leg: LegId, msg: &Msg) {
        let mut bytes = Vec::new();
        msg.encode(&mut bytes);
        match self.rng.below(40) {
            0 => bytes = (0..self.rng.below(300)).map(|_| self.rng.bits() as u8).collect(),
            1 => {
                let at = self.rng.below(bytes.len() as u64) as usize;
                bytes[at] = self.rng.bits() as u8;
            }
            2 => bytes.truncate(self.rng.below(bytes.len() as u64) as usize),
            _ => {}
        }
        self.engine.on_message(self.now, leg, &bytes);
    }

    fn chunk(&mut self, leg: LegId) {
        let len = self.rng.pick(&[0, 1, 100, 256, 256, 257]);
        let header = ChunkHeader {
            stream: self.number(),
            seq: self.number(),
            at: self.rng.below(1000),
            len,
            key: self.number(),
            parts: self.rng.below(17) as u8,
            last: self.rng.percent(50),
        };
        let mut header = header.encode();
        if self.rng.percent(2) {
            header[self.rng.below(32) as usize] = self.rng.bits() as u8;
        }
        let landed = if self.rng.percent(97) { len + HEADER_BYTES as u32 } else { self.rng.bits() as u32 };
        let slot = if self.rng.percent(97) { self.rng.below(4) as u16 } else { self.rng.bits() as u16 };
        self.engine.on_chunk(self.now, leg, slot, &header, landed);
    }

    /// Something that the rules allow: a chunk, a credit, a write that is through.
    fn allowed(&mut self) {
        let read = self.reads.iter().next().map(|(slot, leg)| (*slot, *leg));
        let lent = self.lent.iter_mut().find_map(|(leg, slots)| Some((*leg, slots.pop()?)));
        match (self.rng.below(4), read, lent) {
            (0, Some((slot, leg)), _) => {
                self.reads.remove(&slot);
                self.engine.on_written(self.now, leg, u64::from(slot));
            }
            (1, _, Some((leg, slot))) => {
                let mut slots = [0; MAX_CREDITS];
                slots[0] = slot;
                Msg::Credit { n: 1, slots }.encode(&mut self.bytes);
                self.engine.on_message(self.now, leg, &self.bytes);
            }
            (_, _, lent) => {
                // A credit that is not given now is given later.
                if let Some((leg, slot)) = lent {
                    self.lent.entry(leg).or_default().push(slot);
                }
                let at = self.rng.below(self.paths.len() as u64) as usize;
                let (seq, slot) = (self.rng.below(2) as u32, self.rng.below(2) as u16);
                let Some((up, used)) = self.paths.get_mut(at) else { return };
                if used.insert(slot) {
                    let header = ChunkHeader { stream: 0, seq, at: 0, len: 256, key: 1, parts: 1, last: true };
                    let up = *up;
                    self.engine.on_chunk(self.now, up, slot, &header.encode(), 256 + HEADER_BYTES as u32);
                }
            }
        }
    }

    pub(crate) fn step(&mut self) {
        if self.rng.percent(self.calm) {
            self.allowed();
            return self.drain();
        }
        let (remote, port, token) = (self.address(), self.rng.pick(&PORTS), self.rng.pick(&TOKENS));
        match (self.rng.below(40), self.leg()) {
            (0..=3, _) => {
                let leg = self.free.pop().expect("enough legs");
                self.live.insert(leg);
                self.engine.on_accepted(self.now, leg, port, remote);
            }
            (4..=8, _) if !self.dials.is_empty() => {
                let at = self.rng.below(self.dials.len() as u64) as usize;
                let dial = self.dials.swap_remove(at);
                let leg = self.rng.percent(85).then(|| self.free.pop().expect("enough legs"));
                self.live.extend(leg);
                self.engine.on_dialed(self.now, dial, leg.ok_or_else(|| "refused".to_owned()));
            }
            (9, Some(leg)) => {
                self.gone(leg);
                self.engine.on_leg_down(self.now, leg, "reset");
            }
            (10, _) => {
                self.requests += 1;
                let lanes = (0..self.rng.between(1, 2)).map(|_| self.hops()).collect();
                let (request, conn, budget) = (self.requests, self.rng.sixteen(), self.rng.below(100) * MS);
                let peer = "peer".into();
                self.engine.connect(self.now, ConnectRequest { request, conn, token, lanes, budget, peer });
            }
            (11, _) => self.engine.cancel(self.rng.below(self.requests + 1)),
            (12, _) if self.rng.percent(30) => self.engine.unlisten(&token),
            (13..=14, _) => {
                // A listener is named once.
                self.engine.unlisten(&token);
                self.engine.listen(token, 1);
            }
            (15..=16, _) => {
                self.now += self.rng.below(4 * MS);
                self.engine.on_time(self.now);
                assert!(self.engine.deadline().is_none_or(|t| t > self.now), "a deadline stays after it has passed");
            }
            (17..=21, _) => {
                let read = self.reads.iter().next().map(|(slot, leg)| (*slot, *leg));
                match (read, self.rng.percent(90)) {
                    (Some((slot, leg)), true) => {
                        self.reads.remove(&slot);
                        self.engine.on_written(self.now, leg, u64::from(slot));
                    }
                    (_, false) => {
                        // Of no leg that lives: the driver never confuses those.
                        self.engine.on_written(self.now, LegId(999), self.rng.below(30));
                        self.engine.on_written(self.now, LegId(999), self.rng.bits());
                    }
                    _ => {}
                }
            }
            (22..=28, Some(leg)) => self.chunk(leg),
            (_, Some(leg)) => {
                let msg = self.msg();
                self.message(leg, &msg);
            }
            _ => {}
        }
        self.drain();
    }

    /// A path that stands, so that not all of it is noise: left to us, and us to the right by leg or by trunk.
    pub(crate) fn path(&mut self) {
        let up = self.free.pop().expect("enough legs");
        self.live.insert(up);
        self.engine.on_accepted(self.now, up, PORTS[0], Ipv4Addr::new(10, 0, 0, 1));
        let trunk = self.rng.percent(60);
        let hops = (0..if trunk { 3 } else { 2 })
            .map(|n| HopAddr::new(Ipv4Addr::new(10, 0, n, 1), Ipv4Addr::new(10, 0, n, 2)))
            .collect();
        let conn = self.rng.sixteen();
        let setup = Setup { stream: 0, conn, token: TOKENS[0], lane: 0, lanes: 1, at: 0, budget_ms: 500, hops };
        let mut bytes = Vec::new();
        Msg::Setup(setup).encode(&mut bytes);
        let before = self.dials.len();
        self.engine.on_message(self.now, up, &bytes);
        self.drain();
        let answers = |stream| {
            let lent = Msg::TrunkReady { key: 1, base: 0, slots: 2, classes: 2, stride: 4096, chunk: 256 };
            let ready = Msg::Ready { stream, key: 0, base: 0, slots: 0, stride: 0, chunk: u32::MAX };
            let mut all = vec![ready];
            all.extend((0..2).map(|seq| Msg::Cts { stream, clear: Clear::new(seq, &[1], 0, 4096) }));
            if trunk {
                all.insert(0, lent);
            }
            all
        };
        if self.dials.len() > before {
            let dial = self.dials.pop().expect("a dial");
            let leg = self.free.pop().expect("enough legs");
            self.live.insert(leg);
            self.engine.on_dialed(self.now, dial, Ok(leg));
            self.drain();
            for msg in answers(u32::from(trunk)) {
                msg.encode(&mut bytes);
                self.engine.on_message(self.now, leg, &bytes);
                self.drain();
            }
            if self.runs.get(&up).is_some_and(|(_, count)| *count > 1) {
                self.paths.push((up, BTreeSet::new()));
            }
        }
    }

    pub(crate) fn end(mut self) -> [u32; 4] {
        for leg in self.live.clone() {
            if self.live.contains(&leg) {
                self.gone(leg);
                self.engine.on_leg_down(self.now, leg, "the end");
                self.drain();
            }
        }
        // What was being dialed comes to nothing, and requests run out of time.
        for _ in 0..1000 {
            for dial in std::mem::take(&mut self.dials) {
                self.engine.on_dialed(self.now, dial, Err("refused".into()));
                self.drain();
            }
            let Some(at) = self.engine.deadline() else { break };
            self.now = self.now.max(at);
            self.engine.on_time(self.now);
            self.drain();
        }
        let usage = self.engine.pool_use();
        assert_eq!((self.engine.streams(), usage.lent, usage.filled), (0, 0, 0));
        assert_eq!((self.engine.deadline(), self.dials.len()), (None, 0));
        self.reached
    }
}
