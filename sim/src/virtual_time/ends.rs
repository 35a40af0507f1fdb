//! The two ends of connections and their scripted users: they post, pause, take, acknowledge and close, as the plugin would.

use std::collections::VecDeque;

use mesh_relay::engine::{SendPath, Time};
use mesh_relay::recv::RecvFlow;
use mesh_relay::send::{SendFlow, SendMode, SendTarget};
use mesh_relay::wire::{HopAddr, Msg, Note, Refusal};

use super::memory::{Buffer, Payload, Receive};
use super::pipe::{Owner, PipeEnd, Region, Write};
use super::report::ConnReport;
use super::world::{What, World};
use super::{Closing, ConnSpec, Ending, Pace, Who};

/// One end: its flow while it stands.
#[derive(Debug)]
pub(super) struct End<Flow> {
    pub(super) flow: Option<Flow>,
    pub(super) lanes: Vec<PipeEnd>,
    pub(super) ending: Ending,
    ended: Time,
    pub(super) posted: u32,
    pub(super) done: u32,
    /// Places and numbers of what is posted and not taken.
    open: VecDeque<(u32, u32)>,
    next_post: Time,
}

impl<Flow> End<Flow> {
    fn new() -> Self {
        Self {
            flow: None,
            lanes: Vec::new(),
            ending: Ending::None,
            ended: 0,
            posted: 0,
            done: 0,
            open: VecDeque::new(),
            next_post: 0,
        }
    }

    pub(super) fn end(&mut self, now: Time, ending: Ending) {
        if self.ending == Ending::None {
            (self.ending, self.ended) = (ending, now);
        }
        self.flow = None;
        self.lanes.clear();
    }
}

/// A connection. Its index names it everywhere: as request, as listener, in records of memory.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) spec: ConnSpec,
    pub(super) token: [u8; 16],
    pub(super) name: [u8; 16],
    pub(super) hops: Vec<Vec<HopAddr>>,
    pub(super) route: Vec<usize>,
    pub(super) opened: bool,
    pub(super) sender: End<SendFlow>,
    pub(super) receiver: End<RecvFlow>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) slots: (u32, u32),
    pub(super) acknowledged: bool,
    began: Time,
    finished: Time,
    bytes: u64,
}

/// A connection's index from the number it has as a request or a listener.
pub(super) fn conn_of(number: u64) -> usize {
    number as usize
}

impl Conn {
    pub(super) fn new(
        spec: ConnSpec,
        token: [u8; 16],
        name: [u8; 16],
        hops: Vec<Vec<HopAddr>>,
        route: Vec<usize>,
    ) -> Self {
        let buffers = spec.messages.iter().map(|_| Buffer::new()).collect();
        Self {
            acknowledged: spec.messages.is_empty(),
            spec,
            token,
            name,
            hops,
            route,
            opened: false,
            sender: End::new(),
            receiver: End::new(),
            buffers,
            slots: (0, 0),
            began: 0,
            finished: 0,
            bytes: 0,
        }
    }

    pub(super) fn report(&self) -> ConnReport {
        ConnReport {
            from: self.spec.from,
            to: self.spec.to,
            route: self.route.clone(),
            messages: self.spec.messages.len() as u32,
            delivered: self.buffers.iter().filter(|b| b.state == Receive::Complete).count() as u32,
            acknowledged: self.acknowledged,
            bytes: self.bytes,
            began: self.began,
            finished: self.finished,
            sender_ended: self.sender.ended,
            sender: self.sender.ending.clone(),
            receiver: self.receiver.ending.clone(),
        }
    }

    fn closes(&self, who: Who) -> bool {
        matches!(self.spec.closing, Closing::Done(by) if by == who || by == Who::Both)
    }
}

impl World {
    pub(super) fn connected(&mut self, conn: usize, lanes: Vec<PipeEnd>, path: SendPath, early: &[(u8, Msg)]) {
        for (lane, end) in lanes.iter().enumerate() {
            self.side_mut(*end).owner = Owner::Sender { conn, lane: lane as u8 };
        }
        let (now, stripe) = (self.now, self.physics.stripe);
        let c = &mut self.conns[conn];
        let expected = c.route.len() - 2;
        let mode = match path {
            SendPath::Direct if expected == 0 => SendMode::Direct { lanes: lanes.len() as u8, stripe },
            SendPath::Relayed { relays, key, slots, stride, chunk } if usize::from(relays) == expected => {
                c.slots = (key, stride);
                SendMode::Relayed { chunk, slots }
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
        c.receiver.flow = Some(RecvFlow::new());
        c.receiver.lanes = lanes;
        for (_, msg) in early {
            self.receiver_message(conn, msg);
        }
        self.pump_receiver(conn);
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
        let Some(flow) = self.conns[conn].sender.flow.as_mut() else { return };
        let outcome = match msg {
            Msg::Cts { seq, key, capacity, .. } => flow.on_cts(lane, seq, key, capacity),
            Msg::Ack { count, .. } => flow.on_ack(count),
            Msg::Credit { n, slots } => slots[..usize::from(n)].iter().try_for_each(|s| flow.on_credit(*s)),
            Msg::Close { code, .. } => return self.end_sender(conn, Ending::PeerClosed(code), None, true),
            msg => return self.broken(format!("the sender of connection {conn} gets {msg:?}")),
        };
        if let Err(e) = outcome {
            return self.broken(format!("the sender of connection {conn}: {e}"));
        }
        self.pump_sender(conn);
    }

    pub(super) fn sender_written(&mut self, conn: usize, id: u64) {
        if let Some(flow) = self.conns[conn].sender.flow.as_mut() {
            flow.on_written(id);
            self.pump_sender(conn);
        }
    }

    pub(super) fn receiver_message(&mut self, conn: usize, msg: &Msg) {
        match msg {
            Msg::Close { code, .. } => self.end_receiver(conn, Ending::PeerClosed(*code), None, true),
            msg => self.broken(format!("the receiver of connection {conn} gets {msg:?}")),
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
            let (slots_key, stride) = c.slots;
            let (key, offset, header, imm) = match write.target {
                SendTarget::Buffer { key, note } => (key, write.offset, None, note.encode()),
                SendTarget::Slot { slot, header } => {
                    (slots_key, u64::from(slot) * u64::from(stride), Some(header.encode()), u32::from(slot))
                }
            };
            let end = c.sender.lanes[usize::from(write.lane)];
            self.post_write(end, Write { key, offset, header, payload, imm, id: write.id, out_at: 0 });
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
            for end in c.receiver.lanes.clone() {
                self.send_message(end, &Msg::Ack { stream: 0, count });
            }
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
        for end in lanes {
            let key = self.fresh_key();
            self.side_mut(end).exposed.insert(key, Region::Buffer { conn, seq });
            self.send_message(end, &Msg::Cts { stream: 0, seq, key, capacity });
        }
        if let Some(at) = paused {
            self.schedule(at, What::Poke { conn, by: Who::Receiver });
        }
        true
    }

    /// The script closes a connection, whatever its state.
    pub(super) fn close(&mut self, conn: usize, by: Who, at_once: bool) {
        let now = self.now;
        let c = &mut self.conns[conn];
        let (from, to, token) = (c.spec.from, c.spec.to, c.token);
        if by != Who::Receiver && c.sender.ending == Ending::None {
            if c.sender.flow.is_some() {
                self.end_sender(conn, Ending::Closed, Some(0), !at_once);
            } else {
                c.sender.end(now, Ending::Cancelled);
                self.drive(from, |engine, _| engine.cancel(conn as u64));
            }
        }
        let c = &mut self.conns[conn];
        if by != Who::Sender && c.receiver.ending == Ending::None {
            if c.receiver.flow.is_some() {
                self.end_receiver(conn, Ending::Closed, Some(0), !at_once);
            } else {
                c.receiver.end(now, Ending::Cancelled);
                self.drive(to, |engine, _| engine.unlisten(&token));
            }
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

    fn leave(&mut self, lanes: Vec<PipeEnd>, tell: Option<u16>, graceful: bool) {
        for end in lanes {
            if let Some(code) = tell.filter(|_| self.side(end).open) {
                self.send_message(end, &Msg::Close { stream: 0, code });
            }
            self.close_end(end, graceful);
        }
    }
}

fn pause(rng: &mut super::Rng, pace: Pace) -> Option<Time> {
    rng.percent(pace.pauses).then(|| rng.between(1, pace.longest.max(1)))
}
