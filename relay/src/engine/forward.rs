//! Chunks through this node: from the slot they landed in, out of that very slot, and the credit back.
//!
//! Chunk path: no lock, allocation once queues have grown, system call, log or clock (the time is passed in, one reading a batch).

use super::slots::SlotState;
use super::{Action, Engine, LegId, Queued, Role, Time};
use crate::code;
use crate::send::DEPTH;
use crate::wire::{ChunkHeader, HEADER_BYTES, Note};

impl Engine {
    /// A chunk of `landed` bytes, header included, has landed in slot `n` of the leg.
    pub fn on_chunk(&mut self, now: Time, id: LegId, n: u16, header: &[u8; HEADER_BYTES], landed: u32) {
        let Some(leg) = self.legs.get(&id) else { return };
        let slot = leg.run.and_then(|run| self.pool.slot_of(run, n));
        let header = ChunkHeader::decode(header, self.config.chunk);
        let (Some(slot), Ok(header)) = (slot, header) else {
            return self.fault(id, code::PROTOCOL_BROKEN, format!("chunk in slot {n} makes no sense"));
        };
        if landed != header.len + HEADER_BYTES as u32 || !self.pool.fill(slot, now, header.len) {
            return self.fault(
                id,
                code::PROTOCOL_BROKEN,
                format!("chunk of {landed} bytes in slot {n}, used or too short"),
            );
        }
        let index = match &leg.role {
            Role::Up { stream } => Some(*stream),
            Role::TrunkIn { streams } => streams.get(&header.stream).copied(),
            _ => None,
        };
        let Some((index, s)) = index.and_then(|i| Some((i, self.streams.get_mut(i)?.as_mut()?))) else {
            // Its stream has ended while it was under way.
            return self.release(slot);
        };
        // Its receive is posted, and it is not of a message that is complete.
        let window = s.cleared.wrapping_sub(s.acked);
        if s.opening.is_some() || header.seq.wrapping_sub(s.acked) >= window {
            self.release(slot);
            return self.end_stream(index, code::PROTOCOL_BROKEN, true, true);
        }
        let ChunkHeader { seq, offset, len, last, .. } = header;
        s.queue.push_back(Queued { slot, seq, offset, len, last });
        let Some(down) = s.down else { return };
        self.stats.arrived(s.queue.len());
        match self.legs.get(&down.leg).map(|l| &l.role) {
            Some(Role::Down { .. }) => self.deliver(down.leg, index),
            Some(Role::TrunkOut(_)) => self.offer_trunk(down.leg, index),
            _ => {}
        }
    }

    /// Last hop: everything may go, since its receive is posted.
    fn deliver(&mut self, leg: LegId, index: usize) {
        let Self { streams, pool, out, stats, .. } = self;
        let Some(s) = streams.get_mut(index).and_then(Option::as_mut) else { return };
        while let Some(chunk) = s.queue.pop_front() {
            let clear = s.clear[chunk.seq as usize % DEPTH];
            pool.slots[chunk.slot as usize].state = SlotState::Posted { leg, stream: index, serial: s.serial };
            let note = Note { seq: chunk.seq as u8, last: chunk.last, parts: 1 };
            debug_assert_eq!(clear.seq, chunk.seq, "window checked on arrival");
            out.push_back(Action::Deliver {
                slot: chunk.slot,
                leg,
                len: chunk.len,
                key: clear.key,
                offset: clear.base.wrapping_add(chunk.offset),
                note,
            });
            stats.forwarded(chunk.len);
        }
    }

    /// The leg no longer reads the slot that `id` names.
    pub fn on_written(&mut self, now: Time, leg: LegId, id: u64) {
        let Some(slot) = self.pool.slots.get(id as usize) else { return };
        if !matches!(slot.state, SlotState::Posted { leg: reader, .. } if reader == leg) {
            return;
        }
        self.stats.left(now.saturating_sub(slot.arrived));
        self.release(id as u32);
    }

    /// Frees a slot and notes the credit.
    pub(super) fn release(&mut self, slot: u32) {
        let Some((id, n)) = self.pool.empty(slot) else { return };
        if let Some(leg) = self.legs.get_mut(&id) {
            if leg.credits.is_empty() {
                self.creditors.push(id);
            }
            leg.credits.push(n);
        }
    }

    /// The leg is gone and reads nothing any more: free what it was reading.
    pub(super) fn release_posted(&mut self, leg: LegId) {
        for slot in 0..self.pool.slots.len() {
            if matches!(self.pool.slots[slot].state, SlotState::Posted { leg: reader, .. } if reader == leg) {
                self.release(slot as u32);
            }
        }
    }
}
