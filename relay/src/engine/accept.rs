//! The accepting side of path set-up: listeners by token, lanes gathered until a connection is whole.
//!
//! A set-up is answered as soon as its token is known; whether anybody has called `accept` yet plays no role (NCCL may connect and
//! accept on one thread).

use super::{Action, Engine, Event, LegId, MS, Role, Time};
use crate::code;
use crate::send::DEPTH;
use crate::send::MAX_LANES;
use crate::wire::{HopAddr, Msg, Setup};

#[derive(Debug)]
struct Assembly {
    conn: [u8; 16],
    legs: Vec<Option<LegId>>,
    hops: Vec<Vec<HopAddr>>,
    relays: u8,
    early: Vec<(u8, Msg)>,
    deadline: Time,
}

#[derive(Debug)]
pub(super) struct Listener {
    id: u64,
    assemblies: Vec<Assembly>,
}

impl Listener {
    pub(super) fn deadline(&self) -> Option<Time> {
        self.assemblies.iter().map(|a| a.deadline).min()
    }
}

impl Engine {
    /// From now on set-ups with this token are answered, each whole one with [`Action::Accepted`].
    pub fn listen(&mut self, token: [u8; 16], id: u64) {
        self.listeners.insert(token, Listener { id, assemblies: Vec::new() });
    }

    /// Forgets a listener; connections that were accepted stay.
    pub fn unlisten(&mut self, token: &[u8; 16]) {
        if let Some(listener) = self.listeners.remove(token) {
            for leg in listener.assemblies.iter().flat_map(|a| a.legs.iter().flatten()) {
                self.drop_leg(*leg);
            }
        }
    }

    pub(super) fn accept(&mut self, now: Time, id: LegId, setup: Setup) {
        let Some(listener) = self.listeners.get_mut(&setup.token) else {
            let why = self.refuse_text(
                code::NO_LISTENER,
                "nobody listens with this token here: the job there has ended or was restarted; restart the job on all nodes",
            );
            self.send(id, Msg::Refused { stream: 0, why });
            self.legs.remove(&id);
            self.out.push_back(Action::Drop { leg: id, graceful: true });
            return;
        };
        let lanes = usize::from(setup.lanes);
        if lanes > MAX_LANES {
            return self.fault(id, code::PROTOCOL_BROKEN, format!("{lanes} lanes, at most {MAX_LANES} are allowed"));
        }
        let at = listener.assemblies.iter().position(|a| a.conn == setup.conn);
        let at = at.unwrap_or_else(|| {
            let deadline = now + Time::from(setup.budget_ms) * MS;
            let relays = (setup.hops.len() - 1) as u8;
            let (legs, hops) = (vec![None; lanes], vec![Vec::new(); lanes]);
            listener.assemblies.push(Assembly { conn: setup.conn, legs, hops, relays, early: Vec::new(), deadline });
            listener.assemblies.len() - 1
        });
        let assembly = &mut listener.assemblies[at];
        let place = assembly.legs.get_mut(usize::from(setup.lane));
        if place.as_ref().is_none_or(|p| p.is_some()) {
            return self.fault(id, code::PROTOCOL_BROKEN, format!("lane {} of {lanes} makes no sense", setup.lane));
        }
        if let Some(place) = place {
            *place = Some(id);
            assembly.hops[usize::from(setup.lane)] = setup.hops;
        }
        let whole = assembly.legs.iter().all(Option::is_some);
        if let Some(leg) = self.legs.get_mut(&id) {
            leg.role = Role::Accepting { token: setup.token, conn: setup.conn };
        }
        self.send(id, Msg::Ready { stream: 0, key: 0, base: 0, slots: 0, stride: 0, chunk: u32::MAX });
        if whole {
            self.hand_over(&setup.token, at);
        }
    }

    fn hand_over(&mut self, token: &[u8; 16], at: usize) {
        let Some(listener) = self.listeners.get_mut(token) else { return };
        let assembly = listener.assemblies.swap_remove(at);
        let listener = listener.id;
        let Assembly { legs, hops, relays, early, .. } = assembly;
        let legs: Vec<LegId> = legs.into_iter().flatten().collect();
        let peer = legs.first().and_then(|l| self.legs.get(l)).map_or(std::net::Ipv4Addr::UNSPECIFIED, |l| l.remote);
        for leg in &legs {
            self.legs.remove(leg);
        }
        self.out.push_back(Action::Accepted { listener, legs, relays, peer, hops, early });
    }

    pub(super) fn accepting(&mut self, id: LegId, token: [u8; 16], conn: [u8; 16], msg: Msg) {
        let assembly = self.listeners.get_mut(&token).and_then(|l| l.assemblies.iter_mut().find(|a| a.conn == conn));
        let lane = assembly.as_ref().and_then(|a| a.legs.iter().position(|l| *l == Some(id)));
        match (assembly, lane, msg) {
            (Some(a), Some(lane), msg @ Msg::Close { .. }) if a.early.len() < DEPTH => a.early.push((lane as u8, msg)),
            (_, _, msg) => self.fault(id, code::PROTOCOL_BROKEN, format!("unexpected {}", msg.name())),
        }
    }

    /// A lane of a connection that is not whole yet is gone, and with it the others.
    pub(super) fn accepting_gone(&mut self, id: LegId, token: &[u8; 16], conn: &[u8; 16]) {
        let Some(listener) = self.listeners.get_mut(token) else { return };
        let Some(at) = listener.assemblies.iter().position(|a| a.conn == *conn) else { return };
        let assembly = listener.assemblies.swap_remove(at);
        for leg in assembly.legs.into_iter().flatten().filter(|l| *l != id) {
            self.drop_leg(leg);
        }
    }

    pub(super) fn expire_accepts(&mut self, now: Time) {
        let late: Vec<LegId> = self
            .listeners
            .values_mut()
            .flat_map(|l| l.assemblies.extract_if(.., |a| a.deadline <= now).collect::<Vec<_>>())
            .flat_map(|a| a.legs.into_iter().flatten())
            .collect();
        for leg in late {
            if let Some(peer) = self.legs.get(&leg).map(|l| l.remote) {
                self.note(Event::Stranger { peer, why: "the other lanes of its connection never came".into() });
            }
            self.drop_leg(leg);
        }
    }

    fn drop_leg(&mut self, leg: LegId) {
        if self.legs.remove(&leg).is_some() {
            self.out.push_back(Action::Drop { leg, graceful: true });
        }
    }
}
