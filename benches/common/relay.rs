//! An engine with a path that stands, through which messages pass one by one.
//!
//! Plays the nodes on both sides and the links; knows no clock. Run by the caller's thread.

use std::hint::black_box;
use std::net::Ipv4Addr;

use mesh_relay::engine::{Action, Config, DialId, Engine, LegId, MS};
use mesh_relay::send::Acks;
use mesh_relay::wire::{ChunkHeader, Clear, HEADER_BYTES, HopAddr, MAX_CREDITS, Msg, Setup};

use super::{CHUNK, CHUNKS, Outcome};

const UP: LegId = LegId(1);
const DOWN: LegId = LegId(2);

pub(crate) fn ip(subnet: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, subnet, host)
}

/// A relay between subnets 0 and 1, with so many slots in all.
pub(crate) fn config(acks: Acks, pool_slots: u32) -> Config {
    Config {
        node: 1,
        name: "relay".into(),
        addresses: vec![ip(0, 2), ip(1, 1)],
        relay: true,
        chunk: CHUNK,
        pool_slots,
        entry_slots: CHUNKS,
        trunk_slots: 8,
        classes: 2,
        hello: 1000 * MS,
        retry: MS,
        strangers: 4,
        acks,
        ignore_classes: false,
    }
}

/// The set-up of a path over so many hops, as the first relay hears it.
pub(crate) fn setup(conn: u8, hops: u8) -> Msg {
    let hops = (0..hops).map(|n| HopAddr::new(ip(n, 1), ip(n, 2))).collect();
    Msg::Setup(Setup { stream: 0, conn: [conn; 16], token: [2; 16], lane: 0, lanes: 1, at: 0, budget_ms: 1000, hops })
}

/// The next node's answer that a path stands.
pub(crate) fn ready(stream: u32) -> Msg {
    Msg::Ready { stream, key: 0, base: 0, slots: 0, stride: 0, chunk: u32::MAX }
}

/// The leg that the engine wants to open.
pub(crate) fn dial(engine: &mut Engine) -> Outcome<DialId> {
    let dial = std::iter::from_fn(|| engine.poll()).find_map(|action| match action {
        Action::Dial { dial, .. } => Some(dial),
        _ => None,
    });
    dial.ok_or_else(|| "the relay opens no leg".into())
}

/// An engine with a path that stands.
pub(crate) struct Relay {
    engine: Engine,
    acks: Acks,
    /// The path's stream on the leg it leaves by; 0 if that leg is its own.
    stream: u32,
    seq: u32,
    bytes: Vec<u8>,
}

impl Relay {
    /// A path over so many hops; the second is a trunk if there is a third.
    pub(crate) fn new(hops: u8, acks: Acks) -> Outcome<Self> {
        let engine = Engine::new(config(acks, 64));
        let mut relay = Self { engine, acks, stream: u32::from(hops > 2), seq: 0, bytes: Vec::new() };
        relay.engine.on_accepted(1, UP, ip(0, 2), ip(0, 1));
        relay.say(UP, &setup(1, hops));
        let dial = dial(&mut relay.engine)?;
        relay.engine.on_dialed(1, dial, Ok(DOWN));
        if relay.stream > 0 {
            relay.say(DOWN, &Msg::TrunkReady { key: 9, base: 0, slots: 8, classes: 2, stride: 4096, chunk: CHUNK });
        }
        relay.say(DOWN, &ready(relay.stream));
        while relay.engine.poll().is_some() {}
        Ok(relay)
    }

    fn say(&mut self, leg: LegId, msg: &Msg) {
        msg.encode(&mut self.bytes);
        self.engine.on_message(1, leg, &self.bytes);
    }

    /// A message: cleared, and its chunks filled, sent on, read and credited; and the sender told that it has arrived.
    pub(crate) fn message(&mut self) -> Outcome<()> {
        let (seq, stream) = (self.seq, self.stream);
        self.seq += 1;
        let clear = Clear::new(seq, &[5], 0, u64::from(CHUNK) * u64::from(CHUNKS));
        self.say(DOWN, &Msg::Cts { stream, clear });
        for n in 0..CHUNKS {
            let at = u64::from(n) * u64::from(CHUNK);
            let header = ChunkHeader { stream: 0, seq, at, len: CHUNK, key: 5, parts: 1, last: n + 1 == CHUNKS };
            self.engine.on_chunk(1, UP, n, &header.encode(), CHUNK + HEADER_BYTES as u32);
        }
        let (mut used, mut count, mut credits, mut told) = ([0; MAX_CREDITS], 0, 0, None);
        while let Some(action) = self.engine.poll() {
            match action {
                Action::Forward { slot, remote, .. } => {
                    used[count] = remote;
                    count += 1;
                    self.engine.on_written(2, DOWN, u64::from(slot));
                }
                Action::Deliver { slot, .. } => {
                    count += 1;
                    self.engine.on_written(2, DOWN, u64::from(slot));
                }
                Action::Send { leg: UP, msg: Msg::Credit { n, .. } } => credits += usize::from(n),
                Action::Send { leg: UP, msg: Msg::Done { count, .. } } => told = Some(count),
                other => drop(black_box(other)),
            }
        }
        if (count, credits) != (usize::from(CHUNKS), usize::from(CHUNKS)) {
            return Err(format!("{count} chunks left, {credits} credits came back").into());
        }
        if stream > 0 {
            self.say(DOWN, &Msg::Credit { n: count as u8, slots: used });
        }
        let arrived = seq.wrapping_add(1);
        match self.acks {
            Acks::Receiver => self.say(DOWN, &Msg::Ack { stream, count: arrived }),
            Acks::Link if stream > 0 => self.say(DOWN, &Msg::Done { stream, count: arrived }),
            // This relay has counted it itself.
            Acks::Link => {}
        }
        while let Some(action) = self.engine.poll() {
            match action {
                Action::Send { leg: UP, msg: Msg::Ack { count, .. } | Msg::Done { count, .. } } => told = Some(count),
                other => drop(black_box(other)),
            }
        }
        if told != Some(arrived) {
            return Err(format!("the sender was told {told:?} of {arrived} messages").into());
        }
        Ok(())
    }
}
