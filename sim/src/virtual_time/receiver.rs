//! The receiving end of a connection, as the plugin would drive it: posts, announces, acknowledges, takes and closes.

use mesh_relay::recv::RecvFlow;
use mesh_relay::wire::{Clear, Msg, Note};

use super::ends::pause;
use super::memory::Receive;
use super::pipe::{Owner, PipeEnd, Region};
use super::world::{What, World};
use super::{Ending, Who};

impl World {
    pub(super) fn accepted(&mut self, conn: usize, lanes: Vec<PipeEnd>, relays: u8, early: &[(u8, Msg)]) {
        for end in &lanes {
            self.side_mut(*end).owner = Owner::Receiver { conn };
        }
        let c = &mut self.conns[conn];
        if usize::from(relays) != c.route.len() - 2 {
            return self.broken(format!("connection {conn} came over {relays} relays"));
        }
        if c.receiver.ending != Ending::None || c.receiver.flow.is_some() {
            // It is closed here already, or was set up anew after a lane was lost: nobody wants it any more.
            return lanes.into_iter().for_each(|end| self.close_end(end, true));
        }
        c.receiver.flow = Some(RecvFlow::new(self.physics.acks, relays));
        c.receiver.lanes = lanes;
        for (_, msg) in early {
            self.receiver_message(conn, msg);
        }
        self.pump_receiver(conn);
    }

    pub(super) fn receiver_message(&mut self, conn: usize, msg: &Msg) {
        match msg {
            Msg::Close { code, .. } => self.end_receiver(conn, Ending::PeerClosed(*code), None, true),
            msg => self.broken(format!("the receiver of connection {conn} gets {msg:?}")),
        }
    }

    /// A write has landed in a receive buffer.
    pub(super) fn receiver_write(&mut self, conn: usize, seq: u32, note: Note, offset: u64, len: u64) {
        let now = self.now;
        let c = &mut self.conns[conn];
        let message = c.spec.messages[seq as usize];
        let buffer = &mut c.buffers[seq as usize];
        if let Err(e) = buffer.land(offset, len, message.capacity) {
            return self.broken(format!("message {seq} of connection {conn}: {e}"));
        }
        c.bytes += len;
        let Some(flow) = c.receiver.flow.as_mut() else { return };
        match flow.on_note(note, len) {
            Err(e) => return self.broken(format!("the receiver of connection {conn}: {e}")),
            Ok(Some(arrived)) => {
                if arrived.len != message.len || !buffer.holds(message.len) {
                    let what = format!("message {seq} of connection {conn} is complete with {buffer:?} of {message:?}");
                    return self.broken(what);
                }
                buffer.state = Receive::Complete;
                c.finished = now;
                // From here on a write into this buffer is one too many.
                let lanes = c.receiver.lanes.clone();
                for end in lanes {
                    let gone = Region::Buffer { conn, seq };
                    self.side_mut(end).exposed.retain(|_, region| *region != gone);
                }
            }
            Ok(None) => {}
        }
        self.pump_receiver(conn);
    }

    /// Acknowledges, takes, posts and closes what can be at the receiving end.
    pub(super) fn pump_receiver(&mut self, conn: usize) {
        let c = &mut self.conns[conn];
        let total = c.spec.messages.len() as u32;
        let Some(flow) = c.receiver.flow.as_mut() else { return };
        if let Some(count) = flow.poll_ack() {
            let first = c.receiver.lanes[0];
            self.send_message(first, &Msg::Ack { stream: 0, count });
        }
        let c = &mut self.conns[conn];
        let Some(flow) = c.receiver.flow.as_mut() else { return };
        while let Some((place, seq)) = c.receiver.open.front().copied() {
            let Some(len) = flow.take(place) else { break };
            c.receiver.open.pop_front();
            c.receiver.done += 1;
            if len != c.spec.messages[seq as usize].len {
                return self.broken(format!("receive {seq} of connection {conn} has {len} bytes"));
            }
        }
        while self.post_receive(conn) {}
        self.announce(conn);
        let c = &self.conns[conn];
        if c.receiver.done == total && c.closes(Who::Receiver) {
            self.end_receiver(conn, Ending::Closed, Some(0), true);
        }
    }

    fn post_receive(&mut self, conn: usize) -> bool {
        let now = self.now;
        let c = &mut self.conns[conn];
        let Some(flow) = c.receiver.flow.as_mut() else { return false };
        let wanted = (c.receiver.posted as usize) < c.spec.messages.len()
            && c.receiver.open.len() < c.spec.recv_depth
            && now >= c.receiver.next_post;
        if !wanted {
            return false;
        }
        let capacity = c.spec.messages[c.receiver.posted as usize].capacity;
        let Some((place, seq)) = flow.post(capacity) else { return false };
        if seq != c.receiver.posted {
            let what = format!("receive {} of connection {conn} is numbered {seq}", c.receiver.posted);
            self.broken(what);
            return false;
        }
        c.receiver.posted += 1;
        c.receiver.open.push_back((place, seq));
        c.buffers[seq as usize].state = Receive::Posted;
        let lanes = c.receiver.lanes.clone();
        let paused = pause(&mut self.rng, self.conns[conn].spec.recv_pace).map(|p| now + p);
        self.conns[conn].receiver.next_post = paused.unwrap_or(now);
        let mut clear = Clear { seq, lanes: lanes.len() as u8, capacity, ..Clear::default() };
        for (lane, end) in lanes.into_iter().enumerate() {
            let key = self.fresh_key();
            self.side_mut(end).exposed.insert(key, Region::Buffer { conn, seq });
            clear.keys[lane] = key;
        }
        self.conns[conn].unannounced.push_back(clear);
        if let Some(at) = paused {
            self.schedule(at, What::Poke { conn, by: Who::Receiver });
        }
        true
    }

    /// Sends the clear-to-sends that are due.
    fn announce(&mut self, conn: usize) {
        while let Some(due) = self.conns[conn].receiver.flow.as_mut().and_then(RecvFlow::poll_clear) {
            let c = &mut self.conns[conn];
            let first = c.receiver.lanes[0];
            if let Some(clear) = c.unannounced.pop_front().filter(|clear| clear.seq == due) {
                self.send_message(first, &Msg::Cts { stream: 0, clear });
            }
        }
    }

    pub(super) fn end_receiver(&mut self, conn: usize, ending: Ending, tell: Option<u16>, graceful: bool) {
        let now = self.now;
        let receiver = &mut self.conns[conn].receiver;
        if receiver.ending != Ending::None {
            return;
        }
        let lanes = std::mem::take(&mut receiver.lanes);
        receiver.end(now, ending);
        self.leave(lanes, tell, graceful);
    }
}
