//! The receiving end of a connection: [`RecvFlow`] over real legs.
//!
//! Makes each posted buffer writable for the legs, tells the sender, and takes it back when the message is whole: over TCP a later write
//! is refused then; a NIC checks regions only, so a buffer that may still be written is taken back by breaking the leg. Polls on the caller's
//! thread (NCCL's progress thread); no lock, allocation, log or clock per message. How the sender is told: see [`super::send`].

use mesh_link::memory::Window;
use mesh_link::{Event, Key, MAX_SMALL};
use mesh_relay::agent::Incoming;
use mesh_relay::board::{BOARD_ENTRY, BoardEntry};
use mesh_relay::recv::{Arrived, RecvFlow};
use mesh_relay::send::{Acks, DEPTH, FlowError, MAX_LANES};
use mesh_relay::wire::{Msg, Note};

use super::NetError;
use super::lanes::{Fault, Lanes};
use super::node::Node;

/// See the module.
#[derive(Debug)]
pub(crate) struct RecvConn {
    flow: RecvFlow,
    lanes: Lanes,
    /// Where each open receive's buffer is writable, by lane.
    keys: [[Option<Key>; MAX_LANES]; DEPTH],
    /// Clear-to-sends of open receives, by place and lane.
    clears: [[Option<BoardEntry>; MAX_LANES]; DEPTH],
    /// Whether clear-to-sends go on the sender's boards.
    boards: bool,
    closed: Option<u16>,
}

/// Receives that became whole in one poll of a lane: at most as many as are open.
#[derive(Default)]
struct Batch {
    places: [u32; DEPTH],
    len: usize,
}

impl RecvConn {
    pub(super) fn new(node: std::sync::Arc<Node>, incoming: Incoming, peer: String) -> Result<Self, NetError> {
        let mut closed = None;
        for (_, msg) in incoming.early {
            if let Msg::Close { code, .. } = msg {
                closed = Some(code);
            }
        }
        let boards = incoming.relays == 0 && incoming.lanes.iter().all(|lane| lane.board().is_some());
        let flow = RecvFlow::new(if boards { Acks::Link } else { Acks::Receiver });
        let lanes = Lanes::new(node, incoming.lanes, "from", peer);
        Ok(Self { flow, lanes, keys: [[None; MAX_LANES]; DEPTH], clears: [[None; MAX_LANES]; DEPTH], boards, closed })
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
        for lane in 0..self.lanes.endpoints.len() {
            let endpoint = &mut self.lanes.endpoints[lane];
            let exposed = if flag_polled { endpoint.expose_ordered(buffer) } else { endpoint.expose(buffer) };
            match exposed {
                Ok((key, base)) => {
                    self.keys[place as usize][lane] = Some(key);
                    let capacity = buffer.len() as u64;
                    self.clears[place as usize][lane] = Some(BoardEntry { seq, key: key.raw(), base, capacity });
                }
                Err(source) => self.lanes.post_failed(lane, source)?,
            }
        }
        self.announce()?;
        Ok(Some(place))
    }

    /// Tells the sender, on every lane, of receives that it is to know of now.
    fn announce(&mut self) -> Result<(), NetError> {
        let Some(first) = self.flow.poll_clear() else { return Ok(()) };
        let mut end = first.wrapping_add(1);
        while let Some(seq) = self.flow.poll_clear() {
            end = seq.wrapping_add(1);
        }
        for lane in 0..self.lanes.endpoints.len() {
            let mut seq = first;
            while seq != end {
                seq = seq.wrapping_add(self.clear_to_send(lane, seq, end)?);
            }
        }
        self.lanes.flush(u32::MAX);
        Ok(())
    }

    /// Tells the sender on one lane of receive `seq`, and of as many of those after it and before `end` as one post holds; how many.
    fn clear_to_send(&mut self, lane: usize, seq: u32, end: u32) -> Result<u32, NetError> {
        let entry = |seq: u32| {
            self.clears[seq as usize % DEPTH][lane].unwrap_or(BoardEntry { seq, key: 0, base: 0, capacity: 0 })
        };
        if !self.boards {
            let BoardEntry { seq, key, base, capacity } = entry(seq);
            return self.lanes.send(lane, &Msg::Cts { stream: 0, seq, key, base, capacity }).map(|()| 1);
        }
        let mut bytes = [0; MAX_SMALL];
        let mut count = 0;
        for place in bytes.as_chunks_mut::<BOARD_ENTRY>().0 {
            let next = seq.wrapping_add(count);
            // Side by side as long as the board does not begin anew.
            if next == end || count > 0 && BoardEntry::place(next) == 0 {
                break;
            }
            *place = entry(next).encode();
            count += 1;
        }
        let posted =
            self.lanes.endpoints[lane].post_on_board(BoardEntry::place(seq), &bytes[..count as usize * BOARD_ENTRY]);
        posted.or_else(|source| self.lanes.post_failed(lane, source)).map(|()| count)
    }

    /// Whether the receive in this slot is whole, with the size that was sent. Frees the slot then.
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
            // Nothing has come yet: the sender may be minutes behind.
            None | Some((_, 0)) => None,
            Some((seq, _)) => Some((seq, "the rest of it")),
        })?;
        Ok(None)
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
            // On every lane, so that it arrives before the clear-to-sends that follow there.
            for lane in 0..self.lanes.endpoints.len() {
                self.lanes.send(lane, &Msg::Ack { stream: 0, count })?;
            }
            self.lanes.flush(u32::MAX);
        }
        self.announce()?;
        self.lanes.check_closed(self.closed, self.flow.open())?;
        Ok(any)
    }

    fn poll_lane(&mut self, lane: usize) -> Result<bool, NetError> {
        let (flow, closed) = (&mut self.flow, &mut self.closed);
        let mut fault = None;
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
                Event::Message(bytes) => match Msg::decode(bytes) {
                    Ok(Msg::Close { code, .. }) => *closed = closed.or(Some(code)),
                    Ok(msg) => fault = Some(Fault::Protocol(format!("unexpected {msg:?}"))),
                    Err(e) => fault = Some(Fault::Protocol(e.to_string())),
                },
            }
        });
        for &place in &whole.places[..whole.len] {
            self.withdraw(place);
        }
        self.lanes.polled(lane, fault, polled, self.closed, self.flow.open())
    }
}

fn landed(flow: &mut RecvFlow, imm: u32, len: u32) -> Result<Option<Arrived>, FlowError> {
    let note = Note::decode(imm).ok_or_else(|| FlowError::Protocol { what: "notification", value: imm.into() })?;
    flow.on_note(note, u64::from(len))
}
