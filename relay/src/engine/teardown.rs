//! How streams, legs and trunks end: in order, by a fault, or because a node is gone. Every slot and every credit is accounted for.

use super::{Action, Engine, Event, Leg, LegId, Role};
use crate::code;
use crate::wire::Msg;

impl Engine {
    /// The sender's side has closed.
    pub(super) fn closed_from_above(&mut self, index: usize, code: u16) {
        self.end_stream(index, code, false, true);
    }

    /// The next node, or the way to it, is gone.
    pub(super) fn broken_below(&mut self, index: usize, code: u16, why: &str) {
        let Some(s) = self.stream(index) else { return };
        if s.opening.is_none() {
            let why = why.to_owned();
            self.note(Event::PathBroken { code, why });
            return self.end_stream(index, code, true, false);
        }
        let to = s.setup.hops[usize::from(s.setup.at) + 1].to;
        let why = self.refuse_text(code, &format!("the leg to {to} was closed while the path was being set up: {why}"));
        self.refuse_stream(index, why);
    }

    /// Ends a stream, telling the node above and the node below as asked. Chunks still queued are dropped and their slots credited.
    pub(super) fn end_stream(&mut self, index: usize, code: u16, tell_up: bool, tell_down: bool) {
        let Some(s) = self.streams.get_mut(index).and_then(Option::take) else { return };
        for chunk in &s.queue {
            self.release(chunk.slot);
        }
        if let Some(down) = s.down {
            // A leg that is gone hears nothing; its number may be another's by now.
            if tell_down && self.legs.contains_key(&down.leg) {
                self.send(down.leg, Msg::Close { stream: down.stream, code });
            }
            match self.legs.get(&down.leg).map(|l| &l.role) {
                Some(Role::Down { .. }) => self.drop_leg_now(down.leg),
                Some(Role::TrunkOut(_)) => self.leave_trunk(down.leg, down.stream, s.setup.at, s.active),
                _ => {}
            }
        }
        if tell_up {
            self.send(s.up.leg, Msg::Close { stream: s.up.stream, code });
        }
        match self.legs.get_mut(&s.up.leg).map(|l| &mut l.role) {
            Some(Role::Up { .. }) => self.drop_leg_now(s.up.leg),
            Some(Role::TrunkIn { streams }) => {
                streams.remove(&s.up.stream);
            }
            _ => {}
        }
    }

    /// Drops a connection's leg: gracefully if it reads no slot any more, else at once, since its slots are needed.
    fn drop_leg_now(&mut self, id: LegId) {
        let Some(leg) = self.legs.remove(&id) else { return };
        let reading = self.pool.is_read_by(id);
        self.out.push_back(Action::Drop { leg: id, graceful: !reading });
        self.release_posted(id);
        if let Some(run) = leg.run {
            self.pool.orphan(run);
        }
    }

    /// A leg is gone. Whatever hung on it ends; the driver no longer has the leg, or is told to drop it by the caller.
    pub(super) fn leg_gone(&mut self, id: LegId, code: u16, why: &str) {
        let Some(Leg { role, run, remote, local, .. }) = self.legs.remove(&id) else { return };
        self.release_posted(id);
        match role {
            Role::Stranger { .. } => self.note(Event::Stranger { peer: remote, why: why.to_owned() }),
            Role::Up { stream } => {
                if self.stream(stream).is_some_and(|s| s.opening.is_none()) {
                    self.note(Event::PathBroken { code, why: format!("{remote} left: {why}") });
                }
                self.end_stream(stream, code, false, true);
            }
            Role::Down { stream } => self.broken_below(stream, code, &format!("{remote} left: {why}")),
            Role::TrunkIn { streams } => {
                self.note(Event::TrunkDown { local, remote, why: why.to_owned() });
                for index in streams.into_values() {
                    self.end_stream(index, code, false, true);
                }
            }
            Role::TrunkOut(trunk) => self.trunk_out_gone(id, *trunk, code, why),
            Role::Connecting { request, .. } => {
                self.fail_connect(request, code::PROTOCOL_BROKEN, format!("{remote} broke the protocol: {why}"));
            }
            Role::Accepting { token, conn } => self.accepting_gone(id, &token, &conn),
        }
        if let Some(run) = run {
            self.pool.orphan(run);
        }
    }
}
