//! The sending end of a connection: [`SendFlow`] over real legs.
//!
//! Polls and posts on the caller's thread (NCCL's progress thread), with no lock, allocation, log or clock per message; the socket's own
//! calls are the only system calls. The flow decides, this file carries out. Clear-to-sends come as messages, or, on a direct connection
//! over links that have boards, lie on the board of each lane.

use std::sync::atomic::Ordering;

use mesh_link::memory::{Window, from_device_barrier};
use mesh_link::{Event, Key, LinkError, Target};
use mesh_relay::agent::Outgoing;
use mesh_relay::board::BoardEntry;
use mesh_relay::engine::SendPath;
use mesh_relay::send::{Acks, DEPTH, SendFlow, SendMode, SendTarget, SendWait};
use mesh_relay::wire::Msg;

use super::NetError;
use super::lanes::{Fault, Lanes};
use super::node::Node;

/// See the module.
#[derive(Debug)]
pub(crate) struct SendConn {
    flow: SendFlow,
    lanes: Lanes,
    payload: [Window; DEPTH],
    /// Key and base of the first relay's slots, and bytes from one to the next; `None` if direct.
    slots: Option<(Key, u64, u32)>,
    /// Whether clear-to-sends lie on boards.
    boards: bool,
    closed: Option<u16>,
}

impl SendConn {
    pub(super) fn new(node: std::sync::Arc<Node>, out: Outgoing, peer: String) -> Result<Self, NetError> {
        let direct = matches!(out.path, SendPath::Direct);
        let boards = direct && out.lanes.iter().all(|lane| lane.board().is_some());
        let (mode, slots) = match out.path {
            SendPath::Direct => {
                let lanes = out.lanes.len() as u8;
                let acks = if boards { Acks::Link } else { Acks::Receiver };
                (SendMode::Direct { lanes, stripe: node.settings.stripe as u64, acks }, None)
            }
            SendPath::Relayed { key, base, slots, stride, chunk, .. } => {
                (SendMode::Relayed { chunk, slots }, Some((Key::from_raw(key), base, stride)))
            }
        };
        let lanes = Lanes::new(node, out.lanes, "to", peer);
        let mut conn =
            Self { flow: SendFlow::new(mode), lanes, payload: [Window::empty(); DEPTH], slots, boards, closed: None };
        for (lane, msg) in out.early {
            if let Err(fault) = on_message(&mut conn.flow, &mut conn.closed, lane, msg) {
                conn.lanes.fail_with(fault, 0)?;
            }
        }
        Ok(conn)
    }

    /// Takes a message; its memory must not change until [`SendConn::test`] has said done. `None`: not now, too many are open.
    pub(crate) fn isend(&mut self, payload: Window) -> Result<Option<u32>, NetError> {
        self.lanes.check()?;
        let Some(place) = self.flow.post(payload.len() as u64) else { return Ok(None) };
        self.payload[place as usize] = payload;
        self.node_counts(payload.len() as u64);
        for lane in 0..self.lanes.endpoints.len() {
            self.read_board(lane)?;
        }
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

    fn node_counts(&self, bytes: u64) {
        self.lanes.node.count_sent(self.slots.is_some(), bytes);
    }

    /// Takes what has come and posts what may go; whether anything did.
    fn progress(&mut self) -> Result<bool, NetError> {
        let mut any = false;
        for lane in 0..self.lanes.endpoints.len() {
            any |= self.poll_lane(lane)?;
            any |= self.read_board(lane)?;
        }
        any |= self.post()?;
        self.lanes.check_closed(self.closed, self.flow.lost_if_closed())?;
        Ok(any)
    }

    /// Takes clear-to-sends from a lane's board; whether there were any. One load if not.
    fn read_board(&mut self, lane: usize) -> Result<bool, NetError> {
        let Some(board) = self.lanes.endpoints[lane].board().filter(|_| self.boards) else { return Ok(false) };
        let mut any = false;
        loop {
            let seq = self.flow.next_clear(lane as u8);
            let at = BoardEntry::place(seq);
            if board.load(at + 24) != BoardEntry::mark(seq) {
                return Ok(any);
            }
            // The entry lies in one line and was written in one piece; its mark is read first.
            from_device_barrier();
            let entry = BoardEntry::decode(seq, board.load(at), board.load(at + 8), board.load(at + 16));
            if let Err(e) = self.flow.on_cts(lane as u8, seq, entry.key, entry.base, entry.capacity) {
                self.lanes.fail_with(Fault::Flow(e), self.flow.open())?;
            }
            any = true;
        }
    }

    fn poll_lane(&mut self, lane: usize) -> Result<bool, NetError> {
        let (flow, closed) = (&mut self.flow, &mut self.closed);
        let mut fault = None;
        let polled = self.lanes.endpoints[lane].poll(|event| {
            if fault.is_some() {
                return;
            }
            let outcome = match event {
                Event::Written { id } => {
                    flow.on_written(id);
                    Ok(())
                }
                Event::Message(bytes) => match Msg::decode(bytes) {
                    Ok(msg) => on_message(flow, closed, lane as u8, msg),
                    Err(e) => Err(Fault::Protocol(e.to_string())),
                },
                Event::Notified { imm, .. } => Err(Fault::Protocol(format!("a write ({imm:#x}) to a sender"))),
            };
            fault = outcome.err();
        });
        // Rails of a peer that has closed in order end one after the other, each with all of its own writes reported.
        let in_order = self.closed.is_some() && matches!(polled, Err(LinkError::ClosedByPeer { missing: 0 }));
        let open = if in_order { self.flow.lost_if_closed() } else { self.flow.open() };
        self.lanes.polled(lane, fault, polled, self.closed, open)
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
                    let (key, base, stride) = self.slots.unwrap_or((Key::from_raw(0), 0, 0));
                    let offset = base.wrapping_add(u64::from(slot) * u64::from(stride));
                    let target = Target { key, offset };
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

fn on_message(flow: &mut SendFlow, closed: &mut Option<u16>, lane: u8, msg: Msg) -> Result<(), Fault> {
    match msg {
        Msg::Cts { seq, key, base, capacity, .. } => flow.on_cts(lane, seq, key, base, capacity).map_err(Fault::Flow),
        Msg::Ack { count, .. } => flow.on_ack(count).map_err(Fault::Flow),
        Msg::Credit { n, slots } => {
            slots.iter().take(usize::from(n)).try_for_each(|s| flow.on_credit(*s).map_err(Fault::Flow))
        }
        Msg::Close { code, .. } => {
            closed.get_or_insert(code);
            Ok(())
        }
        msg => Err(Fault::Protocol(format!("unexpected {msg:?}"))),
    }
}
