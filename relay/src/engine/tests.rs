//! One handler at a time, with crafted inputs in each order of arrival. What comes of many nodes at once is the simulator's subject.
//!
//! The node under test, *relay*, lies between *left* and *right*; behind *right* lies *far*:
//!
//! ```text
//!   left 10.0.0.1 ── 10.0.0.2 relay 10.0.1.1 ── 10.0.1.2 right 10.0.2.1 ── 10.0.2.2 far
//! ```

use super::*;
use crate::send::Acks;
use crate::wire::{ChunkHeader, Clear, Note};

#[path = "tests/chunks.rs"]
mod chunks;
#[path = "tests/connecting.rs"]
mod connecting;
#[path = "tests/ending.rs"]
mod ending;
#[path = "tests/listening.rs"]
mod listening;
#[path = "tests/setup.rs"]
mod setup;
#[path = "tests/trunks.rs"]
mod trunks;

const TOKEN: [u8; 16] = [7; 16];
const SECOND: Time = 1000 * MS;

fn ip(subnet: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, subnet, host)
}

/// The way from left to far, cut to so many hops.
fn hops(count: u8) -> Vec<HopAddr> {
    (0..count).map(|n| HopAddr::new(ip(n, 1), ip(n, 2))).collect()
}

use crate::wire::HopAddr;

fn config() -> Config {
    Config {
        node: 1,
        name: "relay".into(),
        addresses: vec![ip(0, 2), ip(1, 1)],
        relay: true,
        chunk: 256,
        pool_slots: 32,
        entry_slots: 4,
        trunk_slots: 2,
        classes: 3,
        hello: SECOND,
        retry: 100 * MS,
        strangers: 4,
        acks: Acks::Receiver,
        ignore_classes: false,
    }
}

fn ask(stream: u32, at: u8, hops: Vec<HopAddr>) -> Setup {
    Setup { stream, conn: [stream as u8; 16], token: TOKEN, lane: 0, lanes: 1, at, budget_ms: 1000, hops }
}

fn cts(stream: u32, seq: u32) -> Msg {
    Msg::Cts { stream, clear: Clear::new(seq, &[900 + seq], 0, 1 << 20) }
}

fn ready(stream: u32) -> Msg {
    Msg::Ready { stream, key: 0, base: 0, slots: 0, stride: 0, chunk: u32::MAX }
}

fn trunk_slots(slots: u16) -> Msg {
    Msg::TrunkReady { key: 77, base: 0, slots, classes: 3, stride: 4096, chunk: 256 }
}

fn credit(slots: &[u16]) -> Msg {
    let mut all = [0; crate::wire::MAX_CREDITS];
    all[..slots.len()].copy_from_slice(slots);
    Msg::Credit { n: slots.len() as u8, slots: all }
}

/// An engine, the time, and the next leg's number.
struct Bench {
    engine: Engine,
    now: Time,
    next: u32,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config();
        change(&mut config);
        Self { engine: Engine::new(config), now: SECOND, next: 0 }
    }

    fn drain(&mut self) -> Vec<Action> {
        let actions: Vec<_> = std::iter::from_fn(|| self.engine.poll()).collect();
        let usage = self.engine.pool_use();
        assert!(usage.filled <= usage.lent && usage.lent <= usage.slots, "{usage:?}");
        actions
    }

    fn leg(&mut self) -> LegId {
        self.next += 1;
        LegId(self.next)
    }

    /// A fresh leg from left.
    fn accepted(&mut self) -> LegId {
        let leg = self.leg();
        self.engine.on_accepted(self.now, leg, ip(0, 2), ip(0, 1));
        leg
    }

    fn say(&mut self, leg: LegId, msg: &Msg) -> Vec<Action> {
        let mut bytes = Vec::new();
        msg.encode(&mut bytes);
        self.engine.on_message(self.now, leg, &bytes);
        self.drain()
    }

    fn dialed(&mut self, dial: DialId) -> (LegId, Vec<Action>) {
        let leg = self.leg();
        self.engine.on_dialed(self.now, dial, Ok(leg));
        (leg, self.drain())
    }

    fn dial_fails(&mut self, dial: DialId, why: &str) -> Vec<Action> {
        self.engine.on_dialed(self.now, dial, Err(why.into()));
        self.drain()
    }

    fn pass(&mut self, time: Time) -> Vec<Action> {
        self.now += time;
        self.engine.on_time(self.now);
        self.drain()
    }

    fn chunk(&mut self, leg: LegId, slot: u16, header: ChunkHeader) -> Vec<Action> {
        let landed = header.len + HEADER_BYTES as u32;
        self.engine.on_chunk(self.now, leg, slot, &header.encode(), landed);
        self.drain()
    }

    fn written(&mut self, leg: LegId, id: u64) -> Vec<Action> {
        self.engine.on_written(self.now, leg, id);
        self.drain()
    }

    fn down(&mut self, leg: LegId) -> Vec<Action> {
        self.engine.on_leg_down(self.now, leg, "reset by peer");
        self.drain()
    }

    /// A path from left to right that stands: the leg it comes in by, the leg it leaves by.
    fn last_relay(&mut self) -> (LegId, LegId) {
        let up = self.accepted();
        let actions = self.say(up, &Msg::Setup(ask(0, 0, hops(2))));
        let (down, _) = self.dialed(only_dial(&actions));
        self.say(down, &ready(0));
        (up, down)
    }

    /// A trunk to right that stands, by way of a first path over it: the path's leg, the trunk's.
    fn first_relay(&mut self, slots: u16) -> (LegId, LegId) {
        let up = self.accepted();
        let actions = self.say(up, &Msg::Setup(ask(0, 0, hops(3))));
        let (trunk, _) = self.dialed(only_dial(&actions));
        self.say(trunk, &trunk_slots(slots));
        self.say(trunk, &ready(1));
        (up, trunk)
    }

    /// A trunk from left.
    fn trunk_in(&mut self) -> LegId {
        let leg = self.accepted();
        self.say(leg, &Msg::TrunkHello { node: 9 });
        leg
    }
}

use crate::wire::HEADER_BYTES;

fn chunk_of(stream: u32, seq: u32, len: u32) -> ChunkHeader {
    ChunkHeader { stream, seq, at: 0, len, key: 900 + seq, parts: 1, last: true }
}

fn only_dial(actions: &[Action]) -> DialId {
    let mut dials = actions.iter().filter_map(|a| match a {
        Action::Dial { dial, .. } => Some(*dial),
        _ => None,
    });
    let dial = dials.next().expect("a dial");
    assert_eq!(dials.next(), None, "one dial only: {actions:?}");
    dial
}

/// Messages sent on a leg, in order.
fn sent(actions: &[Action], on: LegId) -> Vec<Msg> {
    let on_leg = |a: &Action| match a {
        Action::Send { leg, msg } if *leg == on => Some(msg.clone()),
        _ => None,
    };
    actions.iter().filter_map(on_leg).collect()
}

/// Whether a leg was dropped, and if so whether gracefully.
fn dropped(actions: &[Action], which: LegId) -> Option<bool> {
    actions.iter().find_map(|a| match a {
        Action::Drop { leg, graceful } if *leg == which => Some(*graceful),
        _ => None,
    })
}

fn refusal(actions: &[Action], on: LegId) -> Refusal {
    match &sent(actions, on)[..] {
        [Msg::Refused { why, .. }] => why.clone(),
        other => panic!("expected a refusal, got {other:?} in {actions:?}"),
    }
}

fn failure(actions: &[Action]) -> Refusal {
    let mut failures = actions.iter().filter_map(|a| match a {
        Action::ConnectFailed { why, .. } => Some(why.clone()),
        _ => None,
    });
    failures.next().unwrap_or_else(|| panic!("no failure in {actions:?}"))
}
