//! Connections and their scripted users, as far as both ends are alike: what they are, what is reported of them, how they leave.

use std::collections::VecDeque;

use mesh_relay::engine::{LentSlots, Time};
use mesh_relay::recv::RecvFlow;
use mesh_relay::send::{Acks, SendFlow};
use mesh_relay::wire::{Clear, HopAddr, Msg};

use super::memory::{Buffer, Receive};
use super::pipe::PipeEnd;
use super::report::ConnReport;
use super::world::World;
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
    pub(super) open: VecDeque<(u32, u32)>,
    pub(super) next_post: Time,
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
    pub(super) nodes: Vec<usize>,
    pub(super) opened: bool,
    pub(super) sender: End<SendFlow>,
    pub(super) receiver: End<RecvFlow>,
    pub(super) buffers: Vec<Buffer>,
    /// What the first relay of each lane has lent.
    pub(super) slots: Vec<LentSlots>,
    pub(super) acknowledged: bool,
    /// Receives posted of which the sender was not told.
    pub(super) unannounced: VecDeque<Clear>,
    /// The sender's lanes on which a close has come, as bits.
    pub(super) lanes_ended: u32,
    /// The receiver's code, if it has closed and reports of its links are still awaited.
    pub(super) sender_told: Option<u16>,
    pub(super) began: Time,
    pub(super) finished: Time,
    pub(super) bytes: u64,
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
        (route, nodes): (Vec<usize>, Vec<usize>),
    ) -> Self {
        let buffers = spec.messages.iter().map(|_| Buffer::new()).collect();
        Self {
            acknowledged: spec.messages.is_empty(),
            sender_told: None,
            unannounced: VecDeque::new(),
            lanes_ended: 0,
            spec,
            token,
            name,
            hops,
            route,
            nodes,
            opened: false,
            sender: End::new(),
            receiver: End::new(),
            buffers,
            slots: Vec::new(),
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
            nodes: self.nodes.clone(),
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

    pub(super) fn closes(&self, who: Who) -> bool {
        matches!(self.spec.closing, Closing::Done(by) if by == who || by == Who::Both)
    }
}

impl World {
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
            if let Some(flow) = &c.receiver.flow {
                // Where links cannot refuse a write, receives that are still open are taken back by breaking the lanes.
                let breaks = self.physics.acks == Acks::Link && flow.open() > 0;
                self.end_receiver(conn, Ending::Closed, (!breaks).then_some(0), !(at_once || breaks));
            } else {
                c.receiver.end(now, Ending::Cancelled);
                self.drive(to, |engine, _| engine.unlisten(&token));
            }
        }
    }

    pub(super) fn leave(&mut self, lanes: Vec<PipeEnd>, tell: Option<u16>, graceful: bool) {
        for end in lanes {
            if let Some(code) = tell.filter(|_| self.side(end).open) {
                self.send_message(end, &Msg::Close { stream: 0, code });
            }
            self.close_end(end, graceful);
        }
    }
}

/// Whether a user pauses now, and how long.
pub(super) fn pause(rng: &mut super::Rng, pace: Pace) -> Option<Time> {
    rng.percent(pace.pauses).then(|| rng.between(1, pace.longest.max(1)))
}
