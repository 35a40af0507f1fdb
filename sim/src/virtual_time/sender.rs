//! The sending end of a connection, as the plugin would drive it: posts, writes, takes and closes.

use mesh_relay::engine::SendPath;
use mesh_relay::send::{SendFlow, SendLane, SendMode, SendTarget};
use mesh_relay::wire::{Msg, Refusal};

use super::ends::pause;
use super::memory::{Payload, Receive};
use super::pipe::{Owner, PipeEnd, Write};
use super::world::{What, World};
use super::{Ending, Who};

impl World {
    pub(super) fn connected(&mut self, conn: usize, lanes: Vec<PipeEnd>, path: SendPath, early: &[(u8, Msg)]) {
        for (lane, end) in lanes.iter().enumerate() {
            self.side_mut(*end).owner = Owner::Sender { conn, lane: lane as u8 };
        }
        let (now, stripe, acks) = (self.now, self.physics.stripe, self.physics.acks);
        let c = &mut self.conns[conn];
        let expected = c.route.len() - 2;
        let mode = match path {
            SendPath::Direct if expected == 0 => SendMode::direct(lanes.len() as u8, stripe, acks),
            SendPath::Relayed { relays, slots, chunk } if usize::from(relays) == expected => {
                let lanes = slots.iter().map(|lent| SendLane { weight: 1, slots: lent.count }).collect();
                c.slots = slots;
                SendMode { lanes, chunk: Some(chunk), stripe, acks }
            }
            path => return self.broken(format!("{expected} relays, but the path is {path:?}")),
        };
        if c.sender.ending != Ending::None {
            return self.broken(format!("connection {conn} stands after it was given up"));
        }
        c.sender.flow = Some(SendFlow::new(mode));
        c.sender.lanes = lanes;
        c.began = now;
        for (lane, msg) in early {
            self.sender_message(conn, *lane, msg.clone());
        }
        self.pump_sender(conn);
    }

    pub(super) fn refused(&mut self, conn: usize, why: &Refusal) {
        let now = self.now;
        let sender = &mut self.conns[conn].sender;
        if sender.ending != Ending::None || sender.flow.is_some() {
            return self.broken(format!("connection {conn} fails after it has ended: {}", why.text));
        }
        sender.end(now, Ending::Refused(why.clone()));
    }

    pub(super) fn sender_message(&mut self, conn: usize, lane: u8, msg: Msg) {
        let c = &mut self.conns[conn];
        let Some(flow) = c.sender.flow.as_mut() else { return };
        let outcome = match msg {
            Msg::Cts { clear, .. } if lane == 0 => flow.on_cts(&clear),
            Msg::Ack { count, .. } if lane == 0 => flow.on_ack(count),
            Msg::Done { count, .. } => flow.on_done(lane, count),
            Msg::Credit { n, slots } => slots[..usize::from(n)].iter().try_for_each(|s| flow.on_credit(lane, *s)),
            Msg::Close { code: 0, .. } if lane != 0 => {
                // Whatever the receiver said before comes on the first lane.
                c.lanes_ended |= 1 << lane;
                return;
            }
            Msg::Close { code, .. } => {
                c.lanes_ended |= 1 << lane;
                if code == 0 {
                    flow.on_closed();
                }
                if code == 0 && flow.lost_if_closed() == 0 {
                    c.sender_told = Some(0);
                    return self.pump_sender(conn);
                }
                // Where links acknowledge, their last reports may still come, over other lanes.
                if flow.open() == 0 || flow.lost_if_closed() > 0 {
                    return self.end_sender(conn, Ending::PeerClosed(code), None, true);
                }
                c.sender_told = Some(code);
                return;
            }
            msg => return self.broken(format!("the sender of connection {conn} gets {msg:?}")),
        };
        if let Err(e) = outcome {
            return self.broken(format!("the sender of connection {conn}: {e}"));
        }
        self.pump_sender(conn);
    }

    pub(super) fn sender_written(&mut self, conn: usize, lane: u8, id: u64) {
        if let Some(flow) = self.conns[conn].sender.flow.as_mut() {
            flow.on_written(lane, id);
            self.pump_sender(conn);
        }
    }

    /// Posts, writes, takes and closes what can be at the sending end.
    pub(super) fn pump_sender(&mut self, conn: usize) {
        let (now, mut paused) = (self.now, None);
        let Self { conns, rng, .. } = self;
        let c = &mut conns[conn];
        let Some(flow) = c.sender.flow.as_mut() else { return };
        let mut early = None;
        while let Some((place, seq)) = c.sender.open.front().copied() {
            let Some(len) = flow.take(place) else { break };
            c.sender.open.pop_front();
            c.sender.done += 1;
            if c.buffers[seq as usize].state != Receive::Complete || len != c.spec.messages[seq as usize].len {
                early = Some(seq);
            }
        }
        let total = c.spec.messages.len() as u32;
        while c.sender.posted < total && c.sender.open.len() < c.spec.send_depth && now >= c.sender.next_post {
            let seq = c.sender.posted;
            let Some(place) = flow.post(c.spec.messages[seq as usize].len) else { break };
            c.sender.open.push_back((place, seq));
            c.sender.posted += 1;
            paused = pause(rng, c.spec.send_pace).map(|p| now + p);
            c.sender.next_post = paused.unwrap_or(now);
        }
        c.acknowledged |= c.sender.posted == total && flow.open() == 0;
        let closed = c.sender_told.filter(|_| flow.open() == 0);
        let finished = c.sender.done == total && c.closes(Who::Sender);
        if let Some(seq) = early {
            return self.broken(format!("connection {conn}: send {seq} is done before its receive"));
        }
        if let Some(at) = paused {
            self.schedule(at, What::Poke { conn, by: Who::Sender });
        }
        self.write_out(conn);
        if finished {
            self.end_sender(conn, Ending::Closed, Some(0), true);
        } else if let Some(code) = closed {
            self.end_sender(conn, Ending::PeerClosed(code), None, true);
        }
    }

    fn write_out(&mut self, conn: usize) {
        loop {
            let c = &mut self.conns[conn];
            let Some(flow) = c.sender.flow.as_mut() else { return };
            let write = match flow.poll() {
                Ok(Some(write)) => write,
                Ok(None) => return,
                Err(e) => return self.broken(format!("the sender of connection {conn}: {e}")),
            };
            let payload = Payload { conn: conn as u32, seq: write.id as u32, start: write.offset, len: write.len };
            let (key, offset, header, imm) = match write.target {
                SendTarget::Buffer { key, at, note } => (key, at, None, note.encode()),
                SendTarget::Slot { slot, header } => {
                    let lent = c.slots[usize::from(write.lane)];
                    (lent.key, u64::from(slot) * u64::from(lent.stride), Some(header.encode()), u32::from(slot))
                }
            };
            let end = c.sender.lanes[usize::from(write.lane)];
            self.post_write(end, Write { key, offset, header, payload, imm, id: write.id, out_at: 0 });
        }
    }

    pub(super) fn end_sender(&mut self, conn: usize, ending: Ending, tell: Option<u16>, graceful: bool) {
        let now = self.now;
        let sender = &mut self.conns[conn].sender;
        if sender.ending != Ending::None {
            return;
        }
        let lanes = std::mem::take(&mut sender.lanes);
        sender.end(now, ending);
        self.leave(lanes, tell, graceful);
    }
}
