//! A trunk that many streams want at once: each always has a chunk waiting, and each credit is somebody's turn.
//!
//! Plays the senders and the next relay; knows no clock. Run by the caller's thread.

use std::collections::VecDeque;

use mesh_relay::engine::{Action, Engine, LegId};
use mesh_relay::send::Acks;
use mesh_relay::wire::{ChunkHeader, HEADER_BYTES, MAX_CREDITS, Msg};

use crate::common::relay::{config, dial, ip, ready, setup};
use crate::common::{CHUNK, Outcome};

/// Streams, each with a leg of its own that it comes in by: legs 1 to 64.
pub(crate) const STREAMS: u32 = 64;
const TRUNK: LegId = LegId(STREAMS + 1);

pub(crate) struct Turns {
    engine: Engine,
    /// Slots of the next relay that hold a chunk, oldest first.
    filled: VecDeque<u16>,
    /// Whose chunk left last: a stream of the trunk, from 1 on.
    last: u32,
    bytes: Vec<u8>,
}

impl Turns {
    /// A trunk with so many slots a class.
    pub(crate) fn new(slots: u16) -> Outcome<Self> {
        let filled = VecDeque::with_capacity(usize::from(slots));
        let engine = Engine::new(config(Acks::Link, 1024));
        let mut turns = Self { engine, filled, last: 0, bytes: Vec::new() };
        for stream in 1..=STREAMS {
            let leg = LegId(stream);
            turns.engine.on_accepted(1, leg, ip(0, 2), ip(0, 1));
            turns.say(leg, &setup(stream as u8, 3));
            if stream == 1 {
                let dial = dial(&mut turns.engine)?;
                turns.engine.on_dialed(1, dial, Ok(TRUNK));
                turns.say(TRUNK, &Msg::TrunkReady { key: 9, base: 0, slots, classes: 2, stride: 4096, chunk: CHUNK });
            }
            turns.say(TRUNK, &ready(stream));
            while turns.engine.poll().is_some() {}
        }
        // All have their first chunk before anything is carried out, so that from the beginning nobody is ahead.
        for (n, stream) in (0..2).flat_map(|n| (1..=STREAMS).map(move |stream| (n, stream))) {
            turns.chunk(LegId(stream), n);
        }
        turns.carry_out()?;
        Ok(turns)
    }

    fn say(&mut self, leg: LegId, msg: &Msg) {
        msg.encode(&mut self.bytes);
        self.engine.on_message(1, leg, &self.bytes);
    }

    fn chunk(&mut self, leg: LegId, n: u16) {
        let header = ChunkHeader { stream: 0, seq: 0, at: 0, len: CHUNK, key: 5, parts: 1, last: false };
        self.engine.on_chunk(1, leg, n, &header.encode(), CHUNK + HEADER_BYTES as u32);
    }

    /// Writes what is to be written, and fills each slot again that is given back. Says how many chunks left and came.
    fn carry_out(&mut self) -> Outcome<(u32, u32)> {
        let (mut left, mut came) = (0, 0);
        while let Some(action) = self.engine.poll() {
            match action {
                Action::Forward { slot, header, remote, .. } => {
                    if header.stream != self.last % STREAMS + 1 {
                        return Err(format!("stream {} has its turn after {}", header.stream, self.last).into());
                    }
                    self.last = header.stream;
                    self.filled.push_back(remote);
                    self.engine.on_written(2, TRUNK, u64::from(slot));
                    left += 1;
                }
                Action::Send { leg, msg: Msg::Credit { n, slots } } => {
                    for slot in &slots[..usize::from(n)] {
                        self.chunk(leg, *slot);
                        came += 1;
                    }
                }
                other => return Err(format!("unexpected: {other:?}").into()),
            }
        }
        Ok((left, came))
    }

    /// The slot that was filled first is credited: the next stream has its turn, its sender fills the slot that becomes free.
    pub(crate) fn turn(&mut self) -> Outcome<()> {
        let slot = self.filled.pop_front().ok_or("nothing under way")?;
        let mut slots = [0; MAX_CREDITS];
        slots[0] = slot;
        self.say(TRUNK, &Msg::Credit { n: 1, slots });
        match self.carry_out()? {
            (1, 1) => Ok(()),
            (left, came) => Err(format!("{left} chunks left and {came} came").into()),
        }
    }
}
