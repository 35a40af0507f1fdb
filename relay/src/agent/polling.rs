//! Polling legs: what one has brought goes to the engine, and what the engine wants then is carried out.
//!
//! A part of [`super::thread`], on the same thread. Per chunk: no lock, allocation or log, and no clock reading but one a batch.

use std::time::Instant;

use mesh_link::poller::Interest;
use mesh_link::{Event as LinkEvent, Key, LinkError};

use super::legs::Leg;
use super::thread::{LEG, Runner};
use crate::engine::{LegId, Time};
use crate::wire::HEADER_BYTES;

/// A leg that has brought nothing in so many polls is polled in one round of [`SELDOM`] only.
const QUIET: u32 = 4096;
const SELDOM: u32 = 16;

impl Runner {
    /// Polls the queue pairs that are not armed; whether any brought something.
    pub(super) fn poll_silent(&mut self, round: u32) -> bool {
        let mut any = false;
        for n in 0..self.legs.places() {
            let id = LegId(n as u32);
            let due = |leg: &Leg| !leg.armed && (leg.quiet < QUIET || round.is_multiple_of(SELDOM));
            if self.legs.get(id).is_some_and(|leg| due(leg)) {
                any |= self.poll_leg(id);
            }
        }
        any
    }

    /// Before the thread sleeps: arms the queue pairs that are not, and polls each once more, since what came before shows nowhere. Whether
    /// any brought something, or is not armed after all.
    #[cold]
    pub(super) fn arm_silent(&mut self) -> bool {
        let mut any = false;
        for n in 0..self.legs.places() {
            let id = LegId(n as u32);
            let Some(leg) = self.legs.get(id).filter(|leg| !leg.armed && !leg.endpoint.is_woken_by_itself()) else {
                continue;
            };
            // A leg that cannot be armed is broken; its poll says so.
            leg.armed = leg.endpoint.arm().is_ok();
            any |= self.poll_leg(id);
            any |= self.legs.get(id).is_some_and(|leg| !leg.armed);
        }
        any
    }

    /// The leg is to be polled in this round.
    pub(super) fn enlist(&mut self, id: LegId) {
        let Some(leg) = self.legs.get(id) else { return };
        // What is posted now may have to wait for credits of the peer, and only arming asks to be woken when they come.
        leg.armed = false;
        leg.quiet = 0;
        // Queue pairs that are not armed are polled in every round.
        if !leg.listed && !self.silent {
            leg.listed = true;
            self.list.push_back(id);
        }
    }

    /// Polls a leg and tells the engine what came; whether anything did.
    pub(super) fn poll_leg(&mut self, id: LegId) -> bool {
        let Some(leg) = self.legs.get(id) else { return false };
        leg.listed = false;
        let more = leg.push_messages();
        let (engine, slab, exposed, started) = (&mut self.engine, &self.slab, leg.exposed, self.started);
        let mut time = None;
        let polled = leg.endpoint.poll(|event| {
            let now = *time.get_or_insert_with(|| started.elapsed().as_nanos() as Time);
            match event {
                LinkEvent::Message(bytes) => engine.on_message(now, id, bytes),
                LinkEvent::Written { id: slot } => engine.on_written(now, id, slot),
                LinkEvent::Notified { key, offset, len, imm } => {
                    let mut header = [0; HEADER_BYTES];
                    // A NIC tells neither key nor place: the slot is the one that the notification names.
                    let in_place = key == Key::UNKNOWN || offset == u64::from(imm) * slab.stride() as u64;
                    let slot = exposed.filter(|e| in_place && len as usize >= HEADER_BYTES && imm < u32::from(e.count));
                    let whole = slot.is_some();
                    if let Some(e) = slot {
                        slab.slot(e.first as usize + imm as usize).read_into(0, &mut header);
                    }
                    // A write that is not a whole chunk has a length that no header matches.
                    engine.on_chunk(now, id, imm as u16, &header, if whole { len } else { 0 });
                }
            }
        });
        // The poll may have taken an event of completions that earlier polls took: nothing announces the next one then.
        leg.armed &= !matches!(polled, Ok(true)) && leg.endpoint.is_armed();
        if matches!(polled, Ok(false)) && leg.open && !more && !leg.watches_write && !leg.endpoint.interest().write {
            leg.quiet = leg.quiet.saturating_add(1);
            return false;
        }
        self.polled(id, polled, more, time)
    }

    /// What a poll of a leg that brought something comes to.
    fn polled(&mut self, id: LegId, polled: Result<bool, LinkError>, more: bool, time: Option<Time>) -> bool {
        let now = time.unwrap_or_else(|| self.time(Instant::now()));
        let Some(leg) = self.legs.get(id) else { return false };
        let wants_write = more || leg.endpoint.interest().write;
        let link = (leg.local, leg.remote);
        let stands = !leg.open && leg.endpoint.is_open();
        leg.open |= stands;
        let (open, mtu) = (leg.open, leg.endpoint.mtu());
        if wants_write != leg.watches_write {
            let interest = if wants_write { Interest::BOTH } else { Interest::READ };
            if self.poller.modify(leg.endpoint.fd(), LEG | u64::from(id.0), interest).is_ok() {
                leg.watches_write = wants_write;
            }
        }
        if stands {
            self.opened(link, mtu);
        }
        let progress = match polled {
            Ok(progress) => {
                if progress {
                    self.enlist(id);
                }
                progress
            }
            Err(e) => {
                self.discard(id);
                let why = if open { e.to_string() } else { self.not_opened(link, e) };
                // Neither end is a stranger's for a reason of this node's own.
                let said = matches!(e, LinkError::Setup(_)) && self.engine.forget_stranger(id);
                if !said {
                    self.engine.on_leg_down(now, id, &why);
                }
                true
            }
        };
        self.carry_out(now);
        progress
    }

    fn discard(&mut self, id: LegId) {
        if let Some(mut leg) = self.legs.remove(id) {
            self.unwatch(&leg.endpoint);
            leg.endpoint.abort();
        }
    }
}
