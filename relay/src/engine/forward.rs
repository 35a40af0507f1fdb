//! Chunks through this node: from the slot they landed in, out of that very slot, and the credit back.
//!
//! Chunk path: no lock, allocation once queues have grown, system call, log or clock (the time is passed in, one reading a batch).

use super::slots::SlotState;
use super::{Action, Engine, LegId, Queued, Role, Time};
use crate::code;
use crate::send::Acks;
use crate::wire::{ChunkHeader, HEADER_BYTES};

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
        if s.opening.is_some() {
            self.release(slot);
            return self.end_stream(index, code::PROTOCOL_BROKEN, true, true);
        }
        s.queue.push_back(Queued { slot, header });
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
        while let Some(Queued { slot, header }) = s.queue.pop_front() {
            let place = &mut pool.slots[slot as usize];
            place.state = SlotState::Posted { leg, stream: index, serial: s.serial };
            place.last = header.last;
            let (len, key, offset, note) = (header.len, header.key, header.at, header.note());
            out.push_back(Action::Deliver { slot, leg, len, key, offset, note });
            stats.forwarded(len);
        }
    }

    /// The leg no longer reads the slot that `id` names.
    pub fn on_written(&mut self, now: Time, leg: LegId, id: u64) {
        let Some(slot) = self.pool.slots.get(id as usize) else { return };
        let SlotState::Posted { leg: reader, stream, serial } = slot.state else { return };
        if reader != leg {
            return;
        }
        self.stats.left(now.saturating_sub(slot.arrived));
        if slot.last && self.config.acks == Acks::Link {
            self.delivered(stream, serial);
        }
        self.release(id as u32);
    }

    /// The last chunk of a message, as far as it comes by this path, has arrived.
    fn delivered(&mut self, stream: usize, serial: u64) {
        if let Some(s) = self.streams.get_mut(stream).and_then(Option::as_mut).filter(|s| s.serial == serial) {
            s.delivered = s.delivered.wrapping_add(1);
            if !s.owes {
                s.owes = true;
                self.owing.push((stream, serial));
            }
        }
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
