//! Carrying out the engine's actions: messages and writes first, everything that is rare apart.
//!
//! The other half of [`super::thread`], on the same thread.

use std::net::SocketAddrV4;
use std::sync::atomic::Ordering;

use mesh_link::poller::Interest;
use mesh_link::tcp::dial::start_connect;
use mesh_link::{Endpoint, Key, Target};
use tracing::{info, warn};

use super::legs::Exposed;
use super::opening::Dialed;
use super::thread::{DIAL, Runner};
use super::{Incoming, Outgoing};
use crate::engine::{Action, DialId, Event, LegId, Time};
use crate::wire::{HEADER_BYTES, HopAddr, Msg, Refusal};

impl Runner {
    pub(super) fn carry_out(&mut self, now: Time) {
        while let Some(action) = self.engine.poll() {
            match action {
                Action::Send { leg, msg } => self.send(leg, msg),
                Action::Forward { slot, leg, header, key, offset, remote } => {
                    let target = Target { key: Key::from_raw(key), offset };
                    self.write(leg, slot, header.len, Some(&header.encode()), target, u32::from(remote));
                }
                Action::Deliver { slot, leg, len, key, offset, note } => {
                    let target = Target { key: Key::from_raw(key), offset };
                    self.write(leg, slot, len, None, target, note.encode());
                }
                other => self.carry_out_rare(now, other),
            }
        }
        self.let_go();
    }

    /// Hands what was posted to the links: payload first, then what is said about it.
    fn let_go(&mut self) {
        for touched in [&mut self.written, &mut self.spoken] {
            for id in touched.drain(..) {
                if let Some(leg) = self.legs.get(id).filter(|leg| leg.touched) {
                    leg.touched = false;
                    leg.flush();
                }
            }
        }
    }

    fn send(&mut self, id: LegId, mut msg: Msg) {
        let Some(leg) = self.legs.get(id) else { return };
        if let (Msg::Ready { key, base, .. } | Msg::TrunkReady { key, base, .. }, Some(exposed)) =
            (&mut msg, leg.exposed)
        {
            (*key, *base) = (exposed.key.raw(), exposed.base);
        }
        msg.encode(&mut self.bytes);
        leg.send(&self.bytes);
        if !leg.touched {
            leg.touched = true;
            self.spoken.push(id);
        }
        self.enlist(id);
    }

    fn write(&mut self, id: LegId, slot: u32, len: u32, header: Option<&[u8; HEADER_BYTES]>, target: Target, imm: u32) {
        let Some(leg) = self.legs.get(id) else { return };
        let Some(payload) = self.slab.slot(slot as usize).sub(HEADER_BYTES, len as usize) else { return };
        if let Err(e) = leg.endpoint.post_write(u64::from(slot), header, payload, target, Some(imm)) {
            // Broken: the next poll says why. Full cannot be: the engine posts no more than there are slots.
            warn!("mesh[E83] node {}: write to {}: {e}", self.shared.node, leg.remote);
            leg.endpoint.abort();
        }
        // Relaxed: a statistic, read on its own.
        leg.sent.fetch_add(u64::from(len), Ordering::Relaxed);
        // A leg that was to speak only goes with those that write now.
        leg.touched = true;
        if self.written.last() != Some(&id) {
            self.written.push(id);
        }
        self.enlist(id);
    }

    #[cold]
    fn carry_out_rare(&mut self, now: Time, action: Action) {
        match action {
            Action::Dial { dial, hop } => self.dial(now, dial, hop),
            Action::Expose { leg: id, first, count } => {
                let stride = self.slab.stride();
                let window = self.slab.whole().sub(first as usize * stride, usize::from(count) * stride);
                let Some(leg) = self.legs.get(id) else { return };
                match window.map(|w| leg.endpoint.expose(w)) {
                    Some(Ok((key, base))) => leg.exposed = Some(Exposed { key, base, first, count }),
                    // The leg is broken; its next poll says so.
                    _ => leg.endpoint.abort(),
                }
            }
            Action::Drop { leg, graceful } => match self.legs.remove(leg) {
                Some(mut leg) if graceful => {
                    self.unwatch(&leg.endpoint);
                    leg.push_messages();
                    if let Some(exposed) = leg.exposed {
                        // What was just queued has a chance to leave; then no byte may land in the slots any more, since they are lent
                        // to somebody else next. An error shows at the peer.
                        let _ = leg.endpoint.flush();
                        leg.endpoint.revoke(exposed.key);
                    }
                    self.linger(now, leg.endpoint);
                }
                Some(mut leg) => {
                    self.unwatch(&leg.endpoint);
                    leg.endpoint.abort();
                }
                None => {}
            },
            Action::Connected { request, legs, path, early } => {
                let lanes = self.take_lanes(&legs);
                let whole = lanes.len() == legs.len();
                if let Some(mailbox) = self.connects.remove(&request) {
                    // A leg may have failed in the very poll that completed the connection.
                    let outcome = if whole { Ok(Outgoing { lanes, path, early }) } else { Err(self.lost_lane()) };
                    // The mailbox has room for one, and there is one outcome.
                    let _ = mailbox.push(outcome);
                }
            }
            Action::ConnectFailed { request, why } => {
                if let Some(mailbox) = self.connects.remove(&request) {
                    let _ = mailbox.push(Err(why));
                }
            }
            Action::Accepted { listener, legs, relays, peer, hops, early } => {
                let lanes = self.take_lanes(&legs);
                if lanes.len() != legs.len() {
                    // The sender has lost a leg too, and asks again or gives up.
                    return;
                }
                let incoming = Incoming { lanes, relays, peer, hops, early };
                if let Some(Err(lost)) = self.accepts.get(&listener).map(|m| m.push(incoming)) {
                    warn!("mesh[E52] node {}: nobody fetches connections from this listener", self.shared.node);
                    for lane in lost.lanes {
                        self.linger(now, lane);
                    }
                }
            }
            Action::Note(event) => self.log(&event),
            Action::Send { .. } | Action::Forward { .. } | Action::Deliver { .. } => {}
        }
    }

    fn lost_lane(&self) -> Refusal {
        let text = format!("mesh[E59] node {}: a leg of the connection broke just as it was made", self.shared.node);
        Refusal { code: crate::code::LEG_BROKEN, text }
    }

    fn take_lanes(&mut self, legs: &[LegId]) -> Vec<Endpoint> {
        let mut lanes = Vec::with_capacity(legs.len());
        for &id in legs {
            if let Some(mut leg) = self.legs.remove(id) {
                self.unwatch(&leg.endpoint);
                leg.push_messages();
                // What the engine has just answered must not wait for the new owner's first poll. An error shows then.
                let _ = leg.endpoint.flush();
                lanes.push(leg.endpoint);
            }
        }
        lanes
    }

    fn dial(&mut self, now: Time, dial: DialId, hop: HopAddr) {
        let port = if hop.agent == 0 { self.config.port } else { hop.agent };
        let outcome = start_connect(hop.from, SocketAddrV4::new(hop.to, port)).and_then(|dialing| {
            let key = self.next_dial;
            self.next_dial = self.next_dial.wrapping_add(1);
            self.poller.add(dialing.fd(), DIAL | u64::from(key), Interest::WRITE)?;
            self.dials.insert(key, Dialed { id: dial, dialing, from: hop.from, to: hop.to });
            Ok(())
        });
        if let Err(e) = outcome {
            self.engine.on_dialed(now, dial, Err(e.to_string()));
        }
    }

    #[cold]
    pub(super) fn log(&mut self, event: &Event) {
        if let Event::Stranger { peer, why } = event
            && self.strangers.insert(*peer, why.clone()).as_ref() == Some(why)
        {
            return;
        }
        let node = &self.shared.node;
        match event {
            Event::Stranger { peer, why } => warn!("mesh[W42] node {node}: dropped a stranger from {peer}: {why}"),
            Event::PathOpen { class, from, to } => {
                info!("node {node}: relays a path from {from} to {to}, {class} hops made")
            }
            Event::PathBroken { code, why } => {
                warn!("mesh[E{code:02}] node {node}: a path through this node broke: {why}")
            }
            Event::TrunkUp { local, remote, out } => {
                let way = if *out { "to" } else { "from" };
                info!("node {node}: trunk {way} {remote} at {local} stands");
            }
            Event::TrunkDown { local, remote, why } => info!("node {node}: trunk {local} - {remote} is gone: {why}"),
        }
    }
}
