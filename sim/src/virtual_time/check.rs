//! What must hold: at every step of a node, and when nothing happens any more. And who waits for whom when that comes too early.

use mesh_relay::send::SendWait;

use super::Ending;
use super::memory::{Receive, Stage};
use super::nodes::Life;
use super::pipe::Owner;
use super::world::World;

impl World {
    /// After every input of a node: its engine's account of its legs and of its pool is the truth.
    pub(super) fn check_node(&mut self, node: usize) {
        let legs = self.nodes[node].legs.values().filter(|end| self.side(**end).owner == Owner::Engine).count();
        let n = &mut self.nodes[node];
        if n.engine.legs() != legs {
            let what = format!("{}: {legs} legs are the engine's, but it knows {}", n.name, n.engine.legs());
            return self.broken(what);
        }
        let (lent, filled) = n.pool.usage();
        let usage = n.engine.pool_use();
        n.peak = n.peak.max(filled);
        // A run whose leg is gone stays lent as a whole until the last of its slots is read.
        if usage.filled != filled || usage.lent < lent || usage.lent > usage.slots {
            let what = format!("{}: {lent} slots lent and {filled} filled, but it says {usage:?}", n.name);
            self.broken(what);
        }
    }

    /// When nothing happens any more, nobody may wait, and nothing may be left behind.
    pub(super) fn check_end(&mut self) {
        if self.fault.is_some() {
            return;
        }
        if let Some(conn) = (0..self.conns.len()).find(|c| !self.is_over(*c)) {
            return self.broken(format!("nothing happens any more, but connection {conn} is not over"));
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].life == Life::Up
                && let Err(e) = self.nothing_left(node)
            {
                return self.broken(format!("{}: {e}", self.nodes[node].name));
            }
        }
    }

    fn is_over(&self, conn: usize) -> bool {
        let c = &self.conns[conn];
        let never_came = c.receiver.ending == Ending::None && c.receiver.flow.is_none();
        c.sender.ending != Ending::None && (c.receiver.ending != Ending::None || never_came)
    }

    fn nothing_left(&self, node: usize) -> Result<(), String> {
        let n = &self.nodes[node];
        let (streams, usage) = (n.engine.streams(), n.engine.pool_use());
        if streams != 0 || usage.filled != 0 {
            return Err(format!("{streams} streams are left, and {usage:?}"));
        }
        if let Some(at) = n.engine.deadline() {
            return Err(format!("a deadline is left, at {at}"));
        }
        let mut lent = 0;
        for (leg, end) in &n.legs {
            let side = self.side(*end);
            if !side.trunk && !self.side(end.peer()).trunk {
                return Err(format!("{leg:?} is left, to {}", self.side(end.peer()).address));
            }
            lent += side.exposed.values().map(slots_of).sum::<u32>();
        }
        if lent != usage.lent {
            return Err(format!("trunks were lent {lent} slots, but {usage:?}"));
        }
        match n.pool.slots.iter().position(|s| !matches!(s.stage, Stage::Unlent | Stage::Upstream)) {
            Some(slot) => Err(format!("the credit of slot {slot} is lost: {:?}", n.pool.slots[slot])),
            None => Ok(()),
        }
    }

    /// Who waits for whom, one line each.
    pub(super) fn waiting(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, c) in self.conns.iter().enumerate().filter(|(index, _)| !self.is_over(*index)) {
            let route: Vec<_> = c.route.iter().map(|n| self.nodes[*n].name.as_str()).collect();
            let sender = match c.sender.flow.as_ref().map(mesh_relay::send::SendFlow::waits_for) {
                Some(SendWait::Nothing) => format!("sender has sent all {} posted", c.sender.posted),
                Some(SendWait::Receive { seq }) => format!("sender waits for the receive of message {seq}"),
                Some(SendWait::Credit { seq }) => format!("sender waits for a slot for message {seq}"),
                Some(SendWait::Ack { seq }) => format!("sender waits for the acknowledgement of message {seq}"),
                None if !c.opened => "sender has not begun".into(),
                None if c.sender.ending == Ending::None => "sender waits for its path".into(),
                None => format!("sender has ended: {:?}", c.sender.ending),
            };
            let receiver = match c.receiver.flow.as_ref().map(mesh_relay::recv::RecvFlow::waits_for) {
                Some(Some((seq, got))) => format!("receiver waits for message {seq} and has {got} bytes of it"),
                Some(None) => "receiver waits for nothing".into(),
                None => format!("receiver has ended: {:?}", c.receiver.ending),
            };
            let whole = c.buffers.iter().filter(|b| b.state == Receive::Complete).count();
            let of = c.buffers.len();
            lines
                .push(format!("connection {index} {}: {whole} of {of} whole; {sender}; {receiver}", route.join(" > ")));
        }
        for (node, n) in self.nodes.iter().enumerate().filter(|(_, n)| n.life == Life::Up) {
            for (slot, s) in n.pool.slots.iter().enumerate() {
                let Some(payload) = s.content.filter(|_| s.stage == Stage::Filled) else { continue };
                let route = &self.conns[payload.conn as usize].route;
                let next = route.iter().position(|r| *r == node).and_then(|at| route.get(at + 1));
                let next = next.map_or("nobody", |n| self.nodes[*n].name.as_str());
                let state = if s.read { "is being written to" } else { "waits for a slot of" };
                let (name, conn) = (&n.name, payload.conn);
                lines.push(format!("{name} slot {slot}: message {} of connection {conn} {state} {next}", payload.seq));
            }
        }
        lines
    }
}

fn slots_of(region: &super::pipe::Region) -> u32 {
    match region {
        super::pipe::Region::Slots { count, .. } => u32::from(*count),
        super::pipe::Region::Buffer { .. } => 0,
    }
}
