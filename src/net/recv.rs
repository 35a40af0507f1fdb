//! The receiving end of a connection: [`RecvFlow`] over real legs.
//!
//! Makes each posted buffer writable for the legs, tells the sender, and takes it back when the message is whole: over TCP a later write
//! is refused then; a NIC checks regions only, so a buffer that may still be written is taken back by breaking the leg. Polls on the caller's
//! thread (NCCL's progress thread); no lock, allocation, log or clock per message. How the sender is told: see [`super::send`].

use mesh_link::memory::Window;
use mesh_link::{Event, Key, MAX_SMALL};
use mesh_relay::agent::Incoming;
use mesh_relay::board::Layout;
use mesh_relay::recv::{Arrived, RecvFlow};
use mesh_relay::send::{Acks, DEPTH, FlowError, MAX_LANES};
use mesh_relay::wire::{Clear, MAX_MESSAGE, Msg, Note, messages};

use super::NetError;
use super::lanes::{Fault, Lanes};
use super::node::Node;
use super::register::About;

/// See the module.
#[derive(Debug)]
pub(crate) struct RecvConn {
    flow: RecvFlow,
    lanes: Lanes,
    /// Where each open receive's buffer is writable, by lane.
    keys: [[Option<Key>; MAX_LANES]; DEPTH],
    /// Clear-to-sends of open receives, by place.
    clears: [Clear; DEPTH],
    /// How clear-to-sends lie on the sender's board, if they do.
    board: Option<Layout>,
}

/// Clear-to-sends that one frame holds.
const CLEARS: u32 = (MAX_MESSAGE / (26 + 4 * MAX_LANES)) as u32;

/// Receives that became whole in one poll of a lane: at most as many as are open.
#[derive(Default)]
struct Batch {
    places: [u32; DEPTH],
    len: usize,
}

impl RecvConn {
    pub(super) fn new(node: std::sync::Arc<Node>, incoming: Incoming) -> Result<Self, NetError> {
        let boards = incoming.lanes.iter().all(|lane| lane.board().is_some());
        let flow = RecvFlow::new(if boards { Acks::Link } else { Acks::Receiver }, incoming.relays);
        // The cast is exact: at most MAX_LANES.
        let layout = Layout::new(incoming.lanes.len() as u8);
        let board = (boards && incoming.relays == 0).then_some(layout);
        let (peer, route) = node.way_from(&incoming);
        let about = About { sends: false, peer, route, relays: usize::from(incoming.relays) };
        let mut lanes = Lanes::new(node, incoming.lanes, about);
        for (lane, msg) in incoming.early {
            if let Msg::Close { code, .. } = msg {
                lanes.close_came(usize::from(lane), code);
            }
        }
        Ok(Self { flow, lanes, keys: [[None; MAX_LANES]; DEPTH], clears: [Clear::default(); DEPTH], board })
    }

    /// Whether all that was said so far has left.
    pub(super) fn settled(&mut self) -> Result<bool, NetError> {
        self.progress()?;
        Ok(!self.lanes.endpoints.iter().any(mesh_link::Endpoint::wants_write))
    }

    /// Posts a buffer. `flag_polled`: a GPU looks for flags inside it while it is written, so every 8-byte word must land whole and the
    /// last word of each 128-byte line last. `None`: not now, too many are open.
    pub(crate) fn irecv(&mut self, buffer: Window, flag_polled: bool) -> Result<Option<u32>, NetError> {
        self.lanes.check()?;
        let Some((place, seq)) = self.flow.post(buffer.len() as u64) else {
            // Acknowledgements may make room.
            self.progress()?;
            return Ok(None);
        };
        let lanes = self.lanes.endpoints.len();
        let mut clear = Clear { seq, lanes: lanes as u8, capacity: buffer.len() as u64, ..Clear::default() };
        for lane in 0..lanes {
            let endpoint = &mut self.lanes.endpoints[lane];
            let exposed = if flag_polled { endpoint.expose_ordered(buffer) } else { endpoint.expose(buffer) };
            match exposed {
                Ok((key, base)) => {
                    self.keys[place as usize][lane] = Some(key);
                    // The same on every lane: an address, or nothing.
                    (clear.keys[lane], clear.base) = (key.raw(), base);
                }
                Err(source) => self.lanes.post_failed(lane, source)?,
            }
        }
        self.clears[place as usize] = clear;
        self.announce()?;
        Ok(Some(place))
    }

    /// Tells the sender, on the first lane, of receives that it is to know of now.
    fn announce(&mut self) -> Result<(), NetError> {
        let Some(mut seq) = self.flow.poll_clear() else { return Ok(()) };
        let mut end = seq.wrapping_add(1);
        while let Some(seq) = self.flow.poll_clear() {
            end = seq.wrapping_add(1);
        }
        while seq != end {
            seq = seq.wrapping_add(self.clear_to_send(seq, end)?);
        }
        self.lanes.flush(1);
        Ok(())
    }

    /// Tells the sender of receive `seq`, and of as many of those after it and before `end` as one post holds; how many.
    fn clear_to_send(&mut self, seq: u32, end: u32) -> Result<u32, NetError> {
        let clears = &self.clears;
        let clear = |seq: u32| clears[seq as usize % DEPTH];
        let Some(layout) = self.board else {
            let count = end.wrapping_sub(seq).min(CLEARS);
            let messages = (0..count).map(|n| Msg::Cts { stream: 0, clear: clear(seq.wrapping_add(n)) });
            return self.lanes.send(messages).map(|()| count);
        };
        let mut bytes = [0; MAX_SMALL];
        let mut count = 0;
        for place in bytes.chunks_exact_mut(layout.place()) {
            let next = seq.wrapping_add(count);
            // Side by side as long as the board does not begin anew.
            if next == end || count > 0 && layout.offset(next) == 0 {
                break;
            }
            layout.encode(&clear(next), place);
            count += 1;
        }
        let posted =
            self.lanes.endpoints[0].post_on_board(layout.offset(seq), &bytes[..count as usize * layout.place()]);
        posted.or_else(|source| self.lanes.post_failed(0, source)).map(|()| count)
    }

    /// Whether the receive in this slot is whole, with the size that was sent. Frees the slot then.
    pub(crate) fn test(&mut self, slot: u32) -> Result<Option<usize>, NetError> {
        if let Some(len) = self.take(slot) {
            return Ok(Some(len));
        }
        self.lanes.check()?;
        if self.progress()? {
            self.lanes.moved();
            return Ok(self.take(slot));
        }
        let flow = &self.flow;
        self.lanes.still(|| match flow.waits_for() {
            // Nothing has come yet: the sender may be minutes behind.
            None | Some((_, 0)) => None,
            Some((seq, _)) => Some((seq, "the rest of it")),
        })?;
        Ok(None)
    }

    fn take(&mut self, slot: u32) -> Option<usize> {
        let len = self.flow.take(slot)?;
        self.lanes.entered.count(len);
        Some(len as usize)
    }

    /// Ends the connection, whatever is open: when this returns no buffer is written any more. Never waits.
    pub(crate) fn close(mut self: Box<Self>) {
        for keys in &mut self.keys {
            for (endpoint, key) in self.lanes.endpoints.iter_mut().zip(keys) {
                if let Some(key) = key.take() {
                    endpoint.revoke(key);
                }
            }
        }
        self.lanes.close();
    }

    fn withdraw(&mut self, place: u32) {
        let keys = &mut self.keys[place as usize];
        for (endpoint, key) in self.lanes.endpoints.iter_mut().zip(keys) {
            if let Some(key) = key.take() {
                endpoint.withdraw(key);
            }
        }
    }

    fn progress(&mut self) -> Result<bool, NetError> {
        let mut any = false;
        for lane in 0..self.lanes.endpoints.len() {
            any |= self.poll_lane(lane)?;
        }
        if let Some(count) = self.flow.poll_ack() {
            // Before the clear-to-sends that follow.
            self.lanes.send([Msg::Ack { stream: 0, count }])?;
            self.lanes.flush(1);
        }
        self.announce()?;
        self.lanes.check_closed(self.flow.open())?;
        Ok(any)
    }

    fn poll_lane(&mut self, lane: usize) -> Result<bool, NetError> {
        let flow = &mut self.flow;
        let (mut fault, mut closed) = (None, None);
        let mut whole = Batch::default();
        let polled = self.lanes.endpoints[lane].poll(|event| {
            if fault.is_some() {
                return;
            }
            match event {
                Event::Written { .. } => {}
                Event::Notified { len, imm, .. } => match landed(flow, imm, len) {
                    Ok(Some(arrived)) => {
                        whole.places[whole.len] = arrived.place;
                        whole.len += 1;
                    }
                    Ok(None) => {}
                    Err(e) => fault = Some(Fault::Flow(e)),
                },
                Event::Message(frame) => {
                    for msg in messages(frame) {
                        match msg {
                            Ok(Msg::Close { code, .. }) => closed = closed.or(Some(code)),
                            Ok(msg) => fault = Some(Fault::Protocol(format!("unexpected {msg:?}"))),
                            Err(e) => fault = Some(Fault::Protocol(e.to_string())),
                        }
                    }
                }
            }
        });
        for &place in &whole.places[..whole.len] {
            self.withdraw(place);
        }
        if let Some(code) = closed {
            self.lanes.close_came(lane, code);
        }
        self.lanes.polled(lane, fault, polled, self.flow.open())
    }
}

fn landed(flow: &mut RecvFlow, imm: u32, len: u32) -> Result<Option<Arrived>, FlowError> {
    let note = Note::decode(imm).ok_or_else(|| FlowError::Protocol { what: "notification", value: imm.into() })?;
    flow.on_note(note, u64::from(len))
}
