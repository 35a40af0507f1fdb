//! The state machines without any I/O: what a chunk costs a relay's engine, what a message costs its two ends, what a header costs.
//!
//! Figures are nanoseconds of one thread, medians over the rounds.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use mesh_relay::engine::{Action, Config, DialId, Engine, LegId, MS};
use mesh_relay::recv::RecvFlow;
use mesh_relay::send::{Acks, SendFlow, SendMode, SendTarget};
use mesh_relay::wire::{ChunkHeader, Clear, HEADER_BYTES, HopAddr, MAX_CREDITS, Msg, Setup};

use crate::{Effort, Outcome, median};

/// Payload of a chunk here; the machines see no bytes, so it does not matter.
const CHUNK: u32 = 256;
/// Chunks of a message.
const CHUNKS: u16 = 4;

const UP: LegId = LegId(1);
const DOWN: LegId = LegId(2);

/// What is measured, into how many parts its time is divided, and one round of it.
type Row = (&'static str, f64, Box<dyn FnMut() -> Outcome<()>>);

/// Measures and prints all.
pub(crate) fn all(effort: Effort) -> Outcome<()> {
    println!("state machines alone, ns");
    let (mut last, mut trunk) = (Relay::new(2)?, Relay::new(3)?);
    let mut direct = Ends::new(SendMode::direct(1, 1 << 16, Acks::Receiver));
    let mut rails = Ends::new(SendMode::direct(2, 512, Acks::Receiver));
    let mut relayed = Ends::new(SendMode::relayed(CHUNK, 4, Acks::Receiver));
    let mut seq = 0;
    let chunks = f64::from(CHUNKS);
    let mut rows: [Row; 6] = [
        ("a chunk at the last relay: in, delivered, written, credited", chunks, Box::new(move || last.message())),
        (
            "a chunk at a relay before a trunk: in, forwarded, written, credited",
            chunks,
            Box::new(move || trunk.message()),
        ),
        ("a message at its two ends, direct", 1.0, Box::new(move || direct.message())),
        ("a message at its two ends, direct over two rails", 1.0, Box::new(move || rails.message())),
        ("a message at its two ends, relayed in 4 chunks", 1.0, Box::new(move || relayed.message())),
        (
            "a header, encoded and decoded",
            1.0,
            Box::new(move || {
                seq += 1;
                let header = ChunkHeader { stream: 0, seq, at: 0, len: CHUNK, key: 1, parts: 1, last: true };
                black_box(ChunkHeader::decode(&black_box(header).encode(), CHUNK)?);
                Ok(())
            }),
        ),
    ];
    let mut figures = vec![vec![]; rows.len()];
    for _ in 0..effort.rounds {
        for ((_, parts, round), figures) in rows.iter_mut().zip(&mut figures) {
            let begin = Instant::now();
            for _ in 0..effort.steps {
                round()?;
            }
            figures.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(effort.steps) / *parts);
        }
    }
    for ((name, ..), figures) in rows.iter().zip(&mut figures) {
        println!("{:>8.0}  {name}", median(figures));
    }
    Ok(())
}

fn ip(subnet: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, subnet, host)
}

/// An engine with a path that stands.
struct Relay {
    engine: Engine,
    /// The path's stream on the leg it leaves by; 0 if that leg is its own.
    stream: u32,
    seq: u32,
    bytes: Vec<u8>,
}

impl Relay {
    /// A path over so many hops; the second is a trunk if there is a third.
    fn new(hops: u8) -> Outcome<Self> {
        let engine = Engine::new(Config {
            node: 1,
            name: "relay".into(),
            addresses: vec![ip(0, 2), ip(1, 1)],
            relay: true,
            chunk: CHUNK,
            pool_slots: 64,
            entry_slots: CHUNKS,
            trunk_slots: 8,
            classes: 2,
            hello: 1000 * MS,
            retry: MS,
            strangers: 4,
            acks: Acks::Receiver,
            ignore_classes: false,
        });
        let mut relay = Self { engine, stream: u32::from(hops > 2), seq: 0, bytes: Vec::new() };
        relay.engine.on_accepted(1, UP, ip(0, 2), ip(0, 1));
        let hops: Vec<_> = (0..hops).map(|n| HopAddr { from: ip(n, 1), to: ip(n, 2) }).collect();
        let setup = Setup { stream: 0, conn: [1; 16], token: [2; 16], lane: 0, lanes: 1, at: 0, budget_ms: 1000, hops };
        relay.say(UP, &Msg::Setup(setup));
        let dial = relay.dial().ok_or("the relay opens no leg")?;
        relay.engine.on_dialed(1, dial, Ok(DOWN));
        if relay.stream > 0 {
            relay.say(DOWN, &Msg::TrunkReady { key: 9, base: 0, slots: 8, classes: 2, stride: 4096, chunk: CHUNK });
        }
        relay.say(DOWN, &Msg::Ready { stream: relay.stream, key: 0, base: 0, slots: 0, stride: 0, chunk: u32::MAX });
        while relay.engine.poll().is_some() {}
        Ok(relay)
    }

    fn say(&mut self, leg: LegId, msg: &Msg) {
        msg.encode(&mut self.bytes);
        self.engine.on_message(1, leg, &self.bytes);
    }

    fn dial(&mut self) -> Option<DialId> {
        std::iter::from_fn(|| self.engine.poll()).find_map(|action| match action {
            Action::Dial { dial, .. } => Some(dial),
            _ => None,
        })
    }

    /// A message: cleared, and its chunks filled, sent on, read and credited; acknowledged.
    fn message(&mut self) -> Outcome<()> {
        let seq = self.seq;
        self.seq += 1;
        self.say(
            DOWN,
            &Msg::Cts { stream: self.stream, clear: Clear::new(seq, &[5], 0, u64::from(CHUNK) * u64::from(CHUNKS)) },
        );
        for n in 0..CHUNKS {
            let at = u64::from(n) * u64::from(CHUNK);
            let header = ChunkHeader { stream: 0, seq, at, len: CHUNK, key: 5, parts: 1, last: n + 1 == CHUNKS };
            self.engine.on_chunk(1, UP, n, &header.encode(), CHUNK + HEADER_BYTES as u32);
        }
        let (mut used, mut count, mut credits) = ([0; MAX_CREDITS], 0, 0);
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
                other => drop(black_box(other)),
            }
        }
        if (count, credits) != (usize::from(CHUNKS), usize::from(CHUNKS)) {
            return Err(format!("{count} chunks left, {credits} credits came back").into());
        }
        if self.stream > 0 {
            self.say(DOWN, &Msg::Credit { n: count as u8, slots: used });
        }
        self.say(DOWN, &Msg::Ack { stream: self.stream, count: seq.wrapping_add(1) });
        while let Some(action) = self.engine.poll() {
            black_box(action);
        }
        Ok(())
    }
}

/// The two ends of a connection, mouth to ear.
struct Ends {
    send: SendFlow,
    recv: RecvFlow,
    keys: Vec<u32>,
}

impl Ends {
    fn new(mode: SendMode) -> Self {
        let keys = vec![7; mode.lanes.len()];
        Self { send: SendFlow::new(mode), recv: RecvFlow::default(), keys }
    }

    fn message(&mut self) -> Outcome<()> {
        let len = u64::from(CHUNK) * u64::from(CHUNKS);
        let (there, seq) = self.recv.post(len).ok_or("no room to receive")?;
        let here = self.send.post(len).ok_or("no room to send")?;
        self.send.on_cts(&Clear::new(seq, &self.keys, 0, len))?;
        while let Some(write) = self.send.poll()? {
            self.send.on_written(write.lane, write.id);
            let note = match write.target {
                SendTarget::Buffer { note, .. } => note,
                SendTarget::Slot { slot, header } => {
                    self.send.on_credit(write.lane, slot)?;
                    header.note()
                }
            };
            self.recv.on_note(note, u64::from(write.len))?;
        }
        self.send.on_ack(self.recv.poll_ack().ok_or("not complete")?)?;
        if (self.send.take(here), self.recv.take(there)) != (Some(len), Some(len)) {
            return Err("a message did not arrive".into());
        }
        Ok(())
    }
}
