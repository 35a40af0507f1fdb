//! Streams through this node: taking up a set-up, sending it on, and the messages that pass through afterwards.

use super::{Action, Engine, Event, Joint, LegId, MS, Opening, Purpose, Role, Stream, Time, trunk};
use crate::code;
use crate::send::CUT;
use crate::wire::{Msg, Refusal, Setup};

impl Stream {
    /// The set-up as the next node is to see it: one hop on, with a little less time, so that the reason of a failure arrives before
    /// the one who asked gives up.
    pub(super) fn next_setup(&self, now: Time, stream: u32) -> Setup {
        let left = self.opening.map_or(0, |(_, deadline)| deadline.saturating_sub(now) / MS);
        let budget_ms = left.saturating_sub((left / 16).max(20)).max(1) as u32;
        Setup { stream, at: self.setup.at + 1, budget_ms, ..self.setup.clone() }
    }
}

impl Engine {
    /// A set-up has arrived on a fresh leg or on a trunk.
    pub(super) fn on_setup(&mut self, now: Time, id: LegId, setup: Setup) {
        let Some(leg) = self.legs.get(&id) else { return };
        let (trunk, taken) = match &leg.role {
            Role::TrunkIn { streams } => (true, setup.stream == 0 || streams.contains_key(&setup.stream)),
            _ => (false, false),
        };
        if taken {
            let why = format!("set-up for stream {}, which is in use", setup.stream);
            return self.fault(id, code::PROTOCOL_BROKEN, why);
        }
        let at = usize::from(setup.at);
        let hop = setup.hops[at];
        let last = at + 1 == setup.hops.len();
        if !self.config.addresses.contains(&hop.to) || (!trunk && hop.to != leg.local) {
            let text = format!(
                "the route enters by {}, which is no port of this node; give all nodes the same topology",
                hop.to
            );
            let why = self.refuse_text(code::BAD_ROUTE, &text);
            return self.refuse_setup(id, setup.stream, trunk, why);
        }
        if last && !trunk {
            return self.accept(now, id, setup);
        }
        let next = setup.hops.get(at + 1).copied();
        let why = match next {
            None => Some(self.refuse_text(code::BAD_ROUTE, "the last hop of a route is a leg of its own, not a trunk")),
            Some(_) if !self.config.relay => Some(self.refuse_text(
                code::RELAY_OFF,
                "lets no traffic of others pass (relay = false); set relay = true there or cable around it",
            )),
            Some(hop) if !self.config.addresses.contains(&hop.from) => {
                let text = format!(
                    "the route leaves by {}, which is no port of this node; give all nodes the same topology",
                    hop.from
                );
                Some(self.refuse_text(code::BAD_ROUTE, &text))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            return self.refuse_setup(id, setup.stream, trunk, why);
        }
        self.take_up(now, id, setup, trunk);
    }

    fn take_up(&mut self, now: Time, id: LegId, setup: Setup, trunk: bool) {
        let stream_id = setup.stream;
        let mut run = None;
        if !trunk {
            // Entry slots are the connection's own: as many as wished while the pool is ample, fewer later, at least one.
            let use_now = self.pool.usage();
            let half_full = use_now.lent * 2 > use_now.slots;
            let wish = if half_full { (self.config.entry_slots / 2).max(1) } else { self.config.entry_slots };
            run = self.pool.lend_up_to(id, wish);
            if run.is_none() {
                let why = self.refuse_text(code::POOL_EMPTY, trunk::POOL_EMPTY_TEXT);
                return self.refuse_setup(id, stream_id, trunk, why);
            }
        }
        let deadline = now + Time::from(setup.budget_ms) * MS;
        let at = usize::from(setup.at);
        let last_relay = at + 2 == setup.hops.len();
        let next = setup.hops[at + 1];
        let index = self.streams.iter().position(Option::is_none).unwrap_or(self.streams.len());
        if index == self.streams.len() {
            self.streams.push(None);
        }
        self.serial += 1;
        let serial = self.serial;
        let opening = if last_relay { Opening::Dialing } else { Opening::Trunk };
        self.streams[index] = Some(Stream {
            serial,
            up: Joint { leg: id, stream: stream_id },
            down: None,
            setup,
            opening: Some((opening, deadline)),
            last_error: String::new(),
            queue: std::collections::VecDeque::with_capacity(16),
            delivered: 0,
            owes: false,
            flying: 0,
            waiting: false,
            sated: false,
            active: false,
        });
        let Some(leg) = self.legs.get_mut(&id) else { return };
        match &mut leg.role {
            Role::TrunkIn { streams } => {
                streams.insert(stream_id, index);
            }
            role => *role = Role::Up { stream: index },
        }
        if let Some(r) = run.and_then(|r| self.pool.run(r)) {
            leg.run = run;
            self.out.push_back(Action::Expose { leg: id, first: r.first, count: r.count });
        }
        if last_relay {
            self.dial(Purpose::Stream { stream: index, serial });
        } else {
            self.join_trunk(now, index, serial, next);
        }
    }

    /// The last hop's leg stands: ask the receiver.
    pub(super) fn stream_leg_up(&mut self, now: Time, index: usize, serial: u64, leg: LegId) {
        let Some(s) = self.streams.get_mut(index).and_then(Option::as_mut).filter(|s| s.serial == serial) else {
            self.out.push_back(Action::Drop { leg, graceful: false });
            return;
        };
        let hop = s.setup.hops[usize::from(s.setup.at) + 1];
        s.down = Some(Joint { leg, stream: 0 });
        let msg = Msg::Setup(s.next_setup(now, 0));
        if let Some((state, _)) = s.opening.as_mut() {
            *state = Opening::Asked;
        }
        self.add_leg(leg, hop.from, hop.to, Role::Down { stream: index });
        self.send(leg, msg);
    }

    fn refuse_setup(&mut self, id: LegId, stream: u32, trunk: bool, why: Refusal) {
        self.send(id, Msg::Refused { stream, why });
        if !trunk {
            self.legs.remove(&id);
            self.out.push_back(Action::Drop { leg: id, graceful: true });
        }
    }

    /// A stream that is being set up cannot be had.
    pub(super) fn refuse_stream(&mut self, index: usize, why: Refusal) {
        let Some(s) = self.stream(index) else { return };
        let up = s.up;
        self.send(up.leg, Msg::Refused { stream: up.stream, why });
        self.end_stream(index, 0, false, true);
    }

    /// A message from the next node for one of our streams.
    pub(super) fn on_from_below(&mut self, index: usize, msg: Msg) {
        let Some(s) = self.streams.get_mut(index).and_then(Option::as_mut) else { return };
        let up = s.up;
        let below = s.down;
        let asked = matches!(s.opening, Some((Opening::Asked, _)));
        match msg {
            Msg::Ready { chunk, .. } if asked => self.stream_ready(index, chunk),
            Msg::Refused { why, .. } if asked => self.refuse_stream(index, why),
            Msg::Close { code, .. } if asked => {
                let why = self
                    .refuse_text(code.max(code::RELAY_LEFT), "the next node closed the path while it was being set up");
                self.refuse_stream(index, why);
            }
            Msg::Close { code, .. } => self.end_stream(index, code, true, false),
            // These are between the two ends: the sender checks them, and nothing hangs on them here.
            Msg::Cts { clear, .. } if s.opening.is_none() => {
                self.send(up.leg, Msg::Cts { stream: up.stream, clear });
            }
            Msg::Ack { count, .. } if s.opening.is_none() => {
                self.send(up.leg, Msg::Ack { stream: up.stream, count });
            }
            // Only a relay further on may count deliveries.
            Msg::Done { count, .. } if s.opening.is_none() && below.is_some_and(|d| d.stream != 0) => {
                self.send(up.leg, Msg::Done { stream: up.stream, count });
            }
            msg => {
                let why = format!("unexpected {}", msg.name());
                match below.map(|d| d.leg) {
                    Some(leg) => self.fault(leg, code::PROTOCOL_BROKEN, why),
                    None => self.end_stream(index, code::PROTOCOL_BROKEN, true, true),
                }
            }
        }
    }

    fn stream_ready(&mut self, index: usize, chunk_below: u32) {
        let (chunk, stride) = (self.config.chunk, self.config.stride());
        let Some(s) = self.streams.get_mut(index).and_then(Option::as_mut) else { return };
        s.opening = None;
        let up = s.up;
        let event = {
            let at = usize::from(s.setup.at);
            Event::PathOpen { class: s.setup.at + 1, from: s.setup.hops[at].from, to: s.setup.hops[at + 1].to }
        };
        let slots = self.legs.get(&up.leg).filter(|l| matches!(l.role, Role::Up { .. })).and_then(|l| l.run);
        let slots = slots.and_then(|r| self.pool.run(r)).map_or(0, |r| r.count);
        let chunk = chunk.min(chunk_below) / CUT as u32 * CUT as u32;
        if chunk == 0 {
            let why = self
                .refuse_text(code::BAD_ROUTE, &format!("a relay further on takes chunks of {chunk_below} bytes only"));
            return self.refuse_stream(index, why);
        }
        self.send(up.leg, Msg::Ready { stream: up.stream, key: 0, base: 0, slots, stride, chunk });
        self.note(event);
    }

    pub(super) fn expire_streams(&mut self, now: Time) {
        for index in 0..self.streams.len() {
            let Some(s) = &self.streams[index] else { continue };
            let Some((state, deadline)) = s.opening else { continue };
            if deadline > now {
                continue;
            }
            let hop = s.setup.hops[usize::from(s.setup.at) + 1];
            let what = match state {
                Opening::Asked => format!("{} was reached from {} but did not answer in time", hop.to, hop.from),
                Opening::Dialing | Opening::Trunk => format!(
                    "cannot reach {} from {}: {}; is the job started there, and is the cable in?",
                    hop.to,
                    hop.from,
                    if s.last_error.is_empty() { "no answer" } else { &s.last_error }
                ),
            };
            let why = self.refuse_text(code::NO_ANSWER, &what);
            self.refuse_stream(index, why);
            if state == Opening::Trunk {
                self.give_up_trunk(hop);
            }
        }
    }
}
