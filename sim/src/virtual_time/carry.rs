//! Carrying out what an engine asks for, as the agent's thread would: no decision is taken here.

use mesh_relay::engine::{Action, LegId};
use mesh_relay::wire::{ChunkHeader, Msg};

use super::ends::conn_of;
use super::nodes::brief;
use super::pipe::{PipeEnd, Region, Write};
use super::world::{What, World};

impl World {
    fn end_of(&mut self, node: usize, leg: LegId, action: &Action) -> Option<PipeEnd> {
        let end = self.nodes[node].legs.get(&leg).copied().filter(|end| self.side(*end).open);
        if end.is_none() {
            self.broken(format!("{}: {} on a leg that is gone", self.nodes[node].name, brief(action)));
        }
        end
    }

    pub(super) fn carry_out(&mut self, node: usize, action: Action) {
        match &action {
            Action::Dial { dial, hop } => {
                let (low, high) = self.physics.dial;
                let at = self.now + self.rng.between(low, high);
                self.schedule(at, What::Dialed { node, dial: *dial, from: hop.from, to: hop.to });
            }
            Action::Expose { leg, first, count } => {
                let Some(end) = self.end_of(node, *leg, &action) else { return };
                let stride = self.nodes[node].engine.config().stride();
                let key = self.fresh_key();
                let outcome = self.nodes[node].pool.lend(*first, *count);
                self.check(node, outcome);
                let side = self.side_mut(end);
                side.exposed.insert(key, Region::Slots { first: *first, count: *count, stride });
                if std::mem::replace(&mut side.run_key, key) != 0 {
                    self.broken(format!("{}: two runs on one leg", self.nodes[node].name));
                }
            }
            Action::Send { leg, msg } => {
                let Some(end) = self.end_of(node, *leg, &action) else { return };
                self.send(node, end, msg.clone());
            }
            Action::Forward { slot, leg, header, key, offset, remote } => {
                let Some(end) = self.end_of(node, *leg, &action) else { return };
                let Some(payload) = self.read_slot(node, end, *slot) else { return };
                // Bases are 0 here.
                let ChunkHeader { seq, at: start, len, .. } = *header;
                if (seq, start, len) != (payload.seq, payload.start, payload.len) {
                    return self.broken(format!(
                        "{}: {} but the slot holds {payload:?}",
                        self.nodes[node].name,
                        brief(&action)
                    ));
                }
                let (header, imm, id) = (Some(header.encode()), u32::from(*remote), u64::from(*slot));
                self.post_write(end, Write { key: *key, offset: *offset, header, payload, imm, id, out_at: 0 });
            }
            Action::Deliver { slot, leg, len, key, offset, note } => {
                let Some(end) = self.end_of(node, *leg, &action) else { return };
                let Some(payload) = self.read_slot(node, end, *slot) else { return };
                if *len != payload.len {
                    return self.broken(format!(
                        "{}: {} but the slot holds {payload:?}",
                        self.nodes[node].name,
                        brief(&action)
                    ));
                }
                let (imm, id) = (note.encode(), u64::from(*slot));
                self.post_write(end, Write { key: *key, offset: *offset, header: None, payload, imm, id, out_at: 0 });
            }
            Action::Drop { leg, graceful } => {
                let Some(end) = self.end_of(node, *leg, &action) else { return };
                self.close_end(end, *graceful);
            }
            Action::Connected { request, legs, path, early } => {
                let Some(ends) = legs.iter().map(|leg| self.end_of(node, *leg, &action)).collect() else { return };
                self.connected(conn_of(*request), ends, path.clone(), early);
            }
            Action::ConnectFailed { request, why } => self.refused(conn_of(*request), why),
            Action::Accepted { listener, legs, relays, early, .. } => {
                let Some(ends) = legs.iter().map(|leg| self.end_of(node, *leg, &action)).collect() else { return };
                self.accepted(conn_of(*listener), ends, *relays, early);
            }
            Action::Note(_) => {}
        }
    }

    fn send(&mut self, node: usize, end: PipeEnd, mut msg: Msg) {
        let run_key = self.side(end).run_key;
        match &mut msg {
            Msg::Ready { key, .. } => *key = run_key,
            Msg::TrunkReady { key, .. } => {
                *key = run_key;
                self.side_mut(end).trunk = true;
            }
            Msg::TrunkHello { .. } => self.side_mut(end).trunk = true,
            Msg::Credit { n, slots } => {
                let Some(Region::Slots { first, .. }) = self.side(end).exposed.get(&run_key).copied() else {
                    return self.broken(format!("{}: credits on a leg that was lent nothing", self.nodes[node].name));
                };
                for slot in &slots[..usize::from(*n)] {
                    let outcome = self.nodes[node].pool.credit(first + u32::from(*slot));
                    self.check(node, outcome);
                }
            }
            _ => {}
        }
        self.send_message(end, &msg);
    }

    fn read_slot(&mut self, node: usize, end: PipeEnd, slot: u32) -> Option<super::memory::Payload> {
        let outcome = self.nodes[node].pool.read(slot);
        let payload = self.check(node, outcome)?;
        self.side_mut(end).reads.push(slot);
        Some(payload)
    }
}
