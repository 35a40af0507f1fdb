//! The sending end of a connection: [`SendFlow`] over real legs.
//!
//! Polls and posts on the caller's thread (NCCL's progress thread), with no lock, allocation, log or clock per message; the socket's own
//! calls are the only system calls. The flow decides, this file carries out. Clear-to-sends come as messages on the first lane, or,
//! on a direct connection over links that have boards, lie on its board.

use std::sync::atomic::Ordering;

use mesh_link::memory::{Window, from_device_barrier};
use mesh_link::{Event, Key, Target};
use mesh_relay::agent::Outgoing;
use mesh_relay::board::Layout;
use mesh_relay::engine::{LentSlots, SendPath};
use mesh_relay::send::{Acks, DEPTH, FlowError, SendFlow, SendLane, SendMode, SendTarget, SendWait};
use mesh_relay::wire::{Msg, messages};

use super::NetError;
use super::lanes::{Fault, Lanes};
use super::node::Node;
use super::register::About;

/// See the module.
#[derive(Debug)]
pub(crate) struct SendConn {
    flow: SendFlow,
    lanes: Lanes,
    payload: [Window; DEPTH],
    /// What the first relay of each lane has lent; none if direct.
    slots: Vec<LentSlots>,
    /// How clear-to-sends lie on the board of the first lane, if they do.
    board: Option<(Window, Layout)>,
}

impl SendConn {
    pub(super) fn new(
        node: std::sync::Arc<Node>,
        out: Outgoing,
        weights: &[u32],
        peer: String,
        route: String,
    ) -> Result<Self, NetError> {
        // Links that have boards also report a write only once it has arrived.
        let boards = out.lanes.iter().all(|lane| lane.board().is_some());
        let acks = if boards { Acks::Link } else { Acks::Receiver };
        let (chunk, relays, slots) = match out.path {
            SendPath::Direct => (None, 0, Vec::new()),
            SendPath::Relayed { relays, chunk, slots } => (Some(chunk), usize::from(relays), slots),
        };
        // The cast is exact: at most MAX_LANES.
        let layout = Layout::new(out.lanes.len() as u8);
        let board = out.lanes[0].board().filter(|_| boards && chunk.is_none()).map(|board| (board, layout));
        let lane = |n: usize| SendLane {
            weight: weights.get(n).copied().unwrap_or(1),
            slots: slots.get(n).map_or(0, |lent: &LentSlots| lent.count),
        };
        let lanes = (0..out.lanes.len()).map(lane).collect();
        let flow = SendFlow::new(SendMode { lanes, chunk, stripe: node.settings.stripe as u64, acks });
        let lanes = Lanes::new(node, out.lanes, About { sends: true, peer, route, relays });
        let mut conn = Self { flow, lanes, payload: [Window::empty(); DEPTH], slots, board };
        for (lane, msg) in out.early {
            match msg {
                Msg::Close { code, .. } => conn.closed(usize::from(lane), code),
                msg => {
                    if let Err(fault) = on_message(&mut conn.flow, lane, &msg) {
                        conn.lanes.fail_with(fault, 0)?;
                    }
                }
            }
        }
        Ok(conn)
    }

    /// Takes a message; its memory must not change until [`SendConn::test`] has said done. `None`: not now, too many are open.
    pub(crate) fn isend(&mut self, payload: Window) -> Result<Option<u32>, NetError> {
        self.lanes.check()?;
        let Some(place) = self.flow.post(payload.len() as u64) else { return Ok(None) };
        self.payload[place as usize] = payload;
        self.lanes.entered.count(payload.len() as u64);
        self.read_board()?;
        // Away with it at once if its receive is known to be posted.
        if !self.post()? {
            self.progress()?;
        }
        Ok(Some(place))
    }

    /// Whether the message in this slot has arrived, with its size. Frees the slot then.
    pub(crate) fn test(&mut self, slot: u32) -> Result<Option<usize>, NetError> {
        if let Some(len) = self.flow.take(slot) {
            return Ok(Some(len as usize));
        }
        self.lanes.check()?;
        if self.progress()? {
            self.lanes.moved();
            return Ok(self.flow.take(slot).map(|len| len as usize));
        }
        let flow = &self.flow;
        self.lanes.still(|| match flow.waits_for() {
            // A receive that is not posted is no stall: the peer may be minutes behind.
            SendWait::Nothing | SendWait::Receive { .. } => None,
            SendWait::Credit { seq } => Some((seq, "room at the first relay")),
            SendWait::Ack { seq } => Some((seq, "the receiver's acknowledgement")),
        })?;
        Ok(None)
    }

    /// Ends the connection, whatever is open. Never waits.
    pub(crate) fn close(self: Box<Self>) {
        self.lanes.close();
    }

    /// Takes what has come and posts what may go; whether anything did.
    fn progress(&mut self) -> Result<bool, NetError> {
        let mut any = false;
        for lane in 0..self.lanes.endpoints.len() {
            any |= self.poll_lane(lane)?;
        }
        any |= self.read_board()?;
        any |= self.post()?;
        self.lanes.check_closed(self.flow.lost_if_closed())?;
        Ok(any)
    }

    /// Takes clear-to-sends from the board; whether there were any. One load if not.
    fn read_board(&mut self) -> Result<bool, NetError> {
        let Some((board, layout)) = self.board else { return Ok(false) };
        let mut any = false;
        // An entry lies in one line and was written in one piece; its mark is read first.
        while let Some(clear) = layout.read(self.flow.next_clear(), |at| board.load(at), from_device_barrier) {
            if let Err(e) = self.flow.on_cts(&clear) {
                self.lanes.fail_with(Fault::Flow(e), self.flow.open())?;
            }
            any = true;
        }
        Ok(any)
    }

    fn poll_lane(&mut self, lane: usize) -> Result<bool, NetError> {
        let (flow, mut fault) = (&mut self.flow, None);
        // A connection's own end is rare, and the endpoint is a part of what it concerns.
        let mut closed = None;
        let polled = self.lanes.endpoints[lane].poll(|event| {
            if fault.is_some() {
                return;
            }
            let outcome = match event {
                Event::Written { id } => {
                    flow.on_written(lane as u8, id);
                    Ok(())
                }
                Event::Message(frame) => on_frame(flow, &mut closed, lane as u8, frame),
                Event::Notified { imm, .. } => Err(Fault::Protocol(format!("a write ({imm:#x}) to a sender"))),
            };
            fault = outcome.err();
        });
        if let Some(code) = closed {
            self.closed(lane, code);
        }
        self.lanes.polled(lane, fault, polled, self.flow.open())
    }

    #[cold]
    fn closed(&mut self, lane: usize, code: u16) {
        self.lanes.close_came(lane, code);
        if self.lanes.closed == Some(0) {
            self.flow.on_closed();
        }
    }

    /// Posts what may go and hands it to the links; whether anything was.
    fn post(&mut self) -> Result<bool, NetError> {
        let mut used = 0_u32;
        loop {
            let write = match self.flow.poll() {
                Ok(Some(write)) => write,
                Ok(None) => break,
                Err(e) => return self.lanes.fail_with(Fault::Flow(e), self.flow.open()).map(|()| false),
            };
            let lane = usize::from(write.lane);
            used |= 1 << lane;
            let whole = self.payload[(write.id % DEPTH as u64) as usize];
            // The flow cuts within the length that was posted.
            let part = whole.sub(write.offset as usize, write.len as usize).unwrap_or_else(Window::empty);
            let endpoint = &mut self.lanes.endpoints[lane];
            let posted = match write.target {
                SendTarget::Buffer { key, at, note } => {
                    let target = Target { key: Key::from_raw(key), offset: at };
                    endpoint.post_write(write.id, None, part, target, Some(note.encode()))
                }
                SendTarget::Slot { slot, header } => {
                    // The flow has slots of relays only.
                    let lent = self.slots[lane];
                    let offset = lent.base.wrapping_add(u64::from(slot) * u64::from(lent.stride));
                    let target = Target { key: Key::from_raw(lent.key), offset };
                    endpoint.post_write(write.id, Some(&header.encode()), part, target, Some(u32::from(slot)))
                }
            };
            if let Err(source) = posted {
                self.lanes.post_failed(lane, source)?;
            }
            // Relaxed: a statistic, read on its own.
            self.lanes.sent[lane].fetch_add(u64::from(write.len), Ordering::Relaxed);
        }
        self.lanes.flush(used);
        Ok(used != 0)
    }
}

fn on_frame(flow: &mut SendFlow, closed: &mut Option<u16>, lane: u8, frame: &[u8]) -> Result<(), Fault> {
    for msg in messages(frame) {
        match msg {
            Ok(Msg::Close { code, .. }) => *closed = closed.or(Some(code)),
            Ok(msg) => on_message(flow, lane, &msg)?,
            Err(e) => return Err(Fault::Protocol(e.to_string())),
        }
    }
    Ok(())
}

fn on_message(flow: &mut SendFlow, lane: u8, msg: &Msg) -> Result<(), Fault> {
    let outcome: Result<(), FlowError> = match msg {
        // These are said on the first lane, and in its order.
        Msg::Cts { clear, .. } if lane == 0 => flow.on_cts(clear),
        Msg::Ack { count, .. } if lane == 0 => flow.on_ack(*count),
        Msg::Done { count, .. } => flow.on_done(lane, *count),
        Msg::Credit { n, slots } => slots.iter().take(usize::from(*n)).try_for_each(|s| flow.on_credit(lane, *s)),
        msg => return Err(Fault::Protocol(format!("unexpected {msg:?} on lane {lane}"))),
    };
    outcome.map_err(Fault::Flow)
}
