//! Pipes at work: what is posted at one end arrives at the other, unless either is closed meanwhile.

use std::collections::BTreeMap;

use mesh_relay::engine::Time;
use mesh_relay::send::Acks;
use mesh_relay::wire::{HEADER_BYTES, Msg, Note};

use super::memory::Payload;
use super::nodes::Life;
use super::pipe::{Owner, PipeEnd, Region, Side, Write};
use super::world::{What, World};

impl World {
    pub(super) fn side(&self, end: PipeEnd) -> &Side {
        &self.pipes[end.pipe].sides[end.side]
    }

    pub(super) fn side_mut(&mut self, end: PipeEnd) -> &mut Side {
        &mut self.pipes[end.pipe].sides[end.side]
    }

    fn between(&mut self, (low, high): (Time, Time)) -> Time {
        self.rng.between(low, high)
    }

    /// Sends a message. It may overtake writes, but no message.
    pub(super) fn send_message(&mut self, end: PipeEnd, msg: &Msg) {
        let mut bytes = Vec::new();
        msg.encode(&mut bytes);
        let latency = self.between(self.physics.latency);
        let now = self.now;
        let side = self.side_mut(end);
        side.last_message = side.last_message.max(now + latency);
        let at = side.last_message;
        self.schedule(at, What::Message { to: end.peer(), bytes });
    }

    /// Posts a write. It shares the link with the writes of all legs over it.
    pub(super) fn post_write(&mut self, end: PipeEnd, mut write: Write) {
        let peer = end.peer();
        let link = (self.side(end).address, self.side(peer).address);
        let node = self.side(peer).node;
        if let Some(Region::Slots { first, .. }) = self.side(peer).exposed.get(&write.key).copied() {
            let outcome = self.nodes[node].pool.sent(first + write.imm);
            self.check(node, outcome);
        }
        if self.physics.turn > 0 {
            return self.wait_for_turn(link, end, write);
        }
        let start = self.now.max(self.busy.get(&link).copied().unwrap_or(0));
        write.out_at = start + self.time_on_link(end, write.bytes());
        self.busy.insert(link, write.out_at);
        self.write_leaves(end, write);
    }

    /// How long so many bytes of an end take to leave.
    pub(super) fn time_on_link(&self, end: PipeEnd, bytes: u64) -> Time {
        let nodes = (self.side(end).node, self.side(end.peer()).node);
        let factor = self.slow.get(&nodes).copied().unwrap_or(1);
        (bytes * factor * 1000).div_ceil(self.physics.bytes_per_us)
    }

    /// It is known when the last byte of a write leaves: so is the rest.
    pub(super) fn write_leaves(&mut self, end: PipeEnd, write: Write) {
        let latency = self.between(self.physics.latency);
        let late = self.between(self.physics.written);
        let acks = self.physics.acks;
        let side = self.side_mut(end);
        side.last_write = (write.out_at + latency).max(side.last_write).max(side.last_message);
        let arrival = side.last_write;
        if acks == Acks::Receiver {
            side.last_written = (write.out_at + late).max(side.last_written);
            let written = side.last_written;
            self.schedule(written, What::Written { end, id: write.id });
        }
        self.schedule(arrival, What::Land { to: end.peer(), write });
    }

    pub(super) fn message(&mut self, to: PipeEnd, bytes: &[u8]) {
        let side = self.side(to);
        if !side.open {
            return;
        }
        let (node, leg, owner) = (side.node, side.leg, side.owner);
        let msg = match Msg::decode(bytes) {
            Ok(msg) => msg,
            Err(e) => return self.broken(format!("a message that an engine sent cannot be decoded: {e}")),
        };
        if let Msg::Credit { n, slots } = &msg {
            self.credit_arrives(to, &slots[..usize::from(*n)]);
        }
        match owner {
            Owner::Engine => self.drive(node, |engine, now| engine.on_message(now, leg, bytes)),
            Owner::Sender { conn, lane } => self.sender_message(conn, lane, msg),
            Owner::Receiver { conn } => self.receiver_message(conn, &msg),
        }
    }

    fn credit_arrives(&mut self, to: PipeEnd, slots: &[u16]) {
        let lender = self.side(to.peer());
        // A lender that is gone has withdrawn the run.
        let Some(Region::Slots { first, .. }) = lender.exposed.get(&lender.run_key).copied() else { return };
        let node = lender.node;
        for slot in slots {
            let outcome = self.nodes[node].pool.credited(first + u32::from(*slot));
            self.check(node, outcome);
        }
    }

    pub(super) fn land(&mut self, to: PipeEnd, write: Write) {
        if !self.side(to).open || self.side(to.peer()).cut.is_some_and(|cut| write.out_at > cut) {
            return;
        }
        if self.physics.acks == Acks::Link {
            let reported = self.now + self.between(self.physics.written);
            let side = self.side_mut(to.peer());
            side.last_written = reported.max(side.last_written);
            let written = side.last_written;
            self.schedule(written, What::Written { end: to.peer(), id: write.id });
        }
        let (node, leg, owner) = (self.side(to).node, self.side(to).leg, self.side(to).owner);
        match self.side(to).exposed.get(&write.key).copied() {
            Some(Region::Slots { first, count, stride }) => {
                let Some(header) = write.header else { return self.broken("a chunk without a header") };
                let n = write.imm;
                if n >= u32::from(count) || write.offset != u64::from(n) * u64::from(stride) {
                    return self.broken(format!("slot {n} of {count} written at offset {}", write.offset));
                }
                let landed = write.payload.len + HEADER_BYTES as u32;
                if landed > stride {
                    return self.broken(format!("{landed} bytes in a slot of {stride}"));
                }
                let outcome = self.nodes[node].pool.land(first + n, write.payload);
                self.check(node, outcome);
                self.drive(node, |engine, now| engine.on_chunk(now, leg, n as u16, &header, landed));
            }
            Some(Region::Buffer { conn, seq }) if matches!(owner, Owner::Receiver { .. }) => {
                self.buffer_write(conn, seq, &write);
            }
            _ => self.broken(format!(
                "{}: a write with a key that gives access to nothing: {write:?}",
                self.nodes[node].name
            )),
        }
    }

    fn buffer_write(&mut self, conn: usize, seq: u32, write: &Write) {
        let Payload { conn: whose, seq: which, start, len } = write.payload;
        let Some(note) = Note::decode(write.imm) else { return self.broken("a notification that is none") };
        if (whose as usize, which, start) != (conn, seq, write.offset) || note.seq != seq as u8 {
            return self.broken(format!("into message {seq} of connection {conn}: {write:?}"));
        }
        self.receiver_write(conn, seq, note, write.offset, u64::from(len));
    }

    pub(super) fn written(&mut self, end: PipeEnd, id: u64) {
        let side = self.side(end);
        if !side.open {
            return;
        }
        let (node, leg, owner) = (side.node, side.leg, side.owner);
        match owner {
            Owner::Engine => {
                self.unread(end, id as u32);
                self.drive(node, |engine, now| engine.on_written(now, leg, id));
            }
            Owner::Sender { conn, lane } => self.sender_written(conn, lane, id),
            Owner::Receiver { .. } => self.broken("a receiver has written"),
        }
    }

    fn unread(&mut self, end: PipeEnd, slot: u32) {
        let side = self.side_mut(end);
        let node = side.node;
        let Some(at) = side.reads.iter().position(|s| *s == slot) else {
            return self.broken(format!("slot {slot} is reported as read, by a leg that did not read it"));
        };
        side.reads.swap_remove(at);
        let outcome = self.nodes[node].pool.unread(slot);
        self.check(node, outcome);
    }

    /// Closes an end: its exposures are withdrawn at once, its peer hears of it.
    pub(super) fn close_end(&mut self, end: PipeEnd, graceful: bool) {
        let now = self.now;
        let side = self.side_mut(end);
        if !side.open {
            return;
        }
        side.open = false;
        if !graceful {
            side.cut = Some(now);
        }
        let exposed: BTreeMap<_, _> = std::mem::take(&mut side.exposed);
        let reads = std::mem::take(&mut side.reads);
        let (node, leg, owner) = (side.node, side.leg, side.owner);
        let (last_message, last_write) = (side.last_message, side.last_write);
        if graceful && owner == Owner::Engine && !reads.is_empty() {
            self.broken(format!(
                "{}: a leg is dropped gracefully while it reads slots {reads:?}",
                self.nodes[node].name
            ));
        }
        for slot in reads {
            let outcome = self.nodes[node].pool.unread(slot);
            self.check(node, outcome);
        }
        for region in exposed.into_values() {
            if let Region::Slots { first, count, .. } = region {
                self.nodes[node].pool.withdraw(first, count);
            }
        }
        self.free_leg(node, leg);
        let peer = end.peer();
        if self.side(peer).open {
            let latency = self.between(self.physics.latency);
            let reports = if self.physics.acks == Acks::Link { self.side(peer).last_written } else { 0 };
            // What was queued is sent first, or perhaps, or not at all.
            let at = match (graceful, self.rng.percent(50)) {
                (true, _) => last_message.max(last_write).max(reports).max(now + latency),
                (false, true) => last_message.max(now + latency),
                (false, false) => now + latency,
            };
            self.schedule(at, What::Down { end: peer });
        }
    }

    pub(super) fn down(&mut self, end: PipeEnd) {
        let side = self.side(end);
        if !side.open {
            return;
        }
        let (node, leg, owner) = (side.node, side.leg, side.owner);
        self.close_end(end, false);
        match owner {
            Owner::Engine => self.drive(node, |engine, now| engine.on_leg_down(now, leg, "closed by its peer")),
            Owner::Sender { conn, lane } => {
                let c = &self.conns[conn];
                // A peer that has closed in order ends one lane after the other; reports of the others may still come.
                let ended = c.sender_told.is_some() || c.lanes_ended >> lane & 1 == 1;
                let more = ended && c.sender.lanes.iter().any(|lane| self.side(*lane).open);
                if !more {
                    self.end_sender(conn, super::Ending::LegDown, None, true);
                }
            }
            Owner::Receiver { conn } => self.end_receiver(conn, super::Ending::LegDown, None, true),
        }
    }

    /// Breaks a pipe under both ends: what is under way is lost, and each end that lives hears of it in its own time.
    pub(super) fn sever(&mut self, end: PipeEnd) {
        for end in [end, end.peer()] {
            let now = self.now;
            let side = self.side_mut(end);
            side.cut = Some(now);
            if side.open && self.nodes[self.side(end).node].life != Life::Up {
                self.side_mut(end).open = false;
            } else if self.side(end).open {
                let latency = self.between(self.physics.latency);
                self.schedule(now + latency, What::Down { end });
            }
        }
    }
}
