//! The sending end of a connection: messages in posted order, each written when its receive is known to be posted.
//!
//! A state machine without I/O. It is told what happened (`on_…`) and asked what to do next ([`SendFlow::poll`]); it never sees memory,
//! sockets or clocks. Direct: one write a lane straight into the receive buffer. Relayed: chunks into the slots of the first relay of a
//! lane, each against a credit. A small message goes by the lane with the least under way; a large one over all lanes, each chunk by the
//! lane with the least under way for its rate, and what is left at the end cut so that every lane carries a share. Placement is by
//! offset, so the lanes need no common order.
//!
//! A message is done when all of it has arrived and no write of ours still reads its memory. Who says that it has arrived: the receiver,
//! or, where links report a write only once the peer has it, the link itself: our own on a direct connection, else that of the last
//! relay, which counts for us ([`Acks`]).
//!
//! ```text
//!            post            cts               all written          ack
//!   (free) ───────▶ waiting ──────▶ sending ───────────────▶ sent ───────▶ done ──take──▶ (free)
//! ```
//!
//! Run by the thread that owns the connection (NCCL's progress thread). Chunk path: no lock, allocation, system call, log or clock.

mod lane;
mod types;

pub use self::lane::SendLane;
use self::lane::{Lane, least_loaded, share, shared_at_most};
pub use self::types::{Acks, FlowError, SendMode, SendTarget, SendWait, SendWrite};
pub use crate::wire::MAX_LANES;
use crate::wire::{ChunkHeader, Clear, Note};

/// Most messages of one connection that are open at once, each way (NCCL: `NCCL_NET_MAX_REQUESTS`).
pub const DEPTH: usize = 32;
/// A message is cut only at multiples of this many bytes, so that no 128-byte line of NCCL's LL128 is torn.
pub const CUT: u64 = 128;

#[derive(Clone, Copy, Debug, Default)]
struct Message {
    open: bool,
    len: u64,
    /// Lanes that carry a part; 0 until the first write.
    parts: u8,
    /// The lane, if there is one part.
    lane: u8,
    /// Next byte to write (relayed), or next lane (direct).
    next: u64,
    /// Lanes that have had their last chunk (relayed, several parts).
    ended: u8,
    /// All writes have been handed out.
    posted: bool,
    /// Writes whose memory is still read.
    unwritten: u32,
    /// Parts of which the link has not said that they arrived.
    pending: u8,
    acked: bool,
}

/// The sending end. See the module.
#[derive(Debug)]
pub struct SendFlow {
    chunk: Option<u32>,
    stripe: u64,
    acks: Acks,
    lanes: Vec<Lane>,
    /// At most so many bytes are cut into one last chunk a lane.
    tail_bytes: u64,
    messages: [Message; DEPTH],
    /// Bytes that each message has under way on each lane (direct).
    under_way: [[u32; MAX_LANES]; DEPTH],
    /// Clear-to-sends. Without acknowledgements of its own a receiver can be ahead by all messages whose writes it has seen and we have
    /// not.
    clears: [Clear; 2 * DEPTH],
    /// Next message to be posted by the user.
    tail: u32,
    /// Oldest message with bytes to hand out.
    head: u32,
    /// Messages before this one have arrived.
    acked: u32,
    /// Next clear-to-send expected.
    cleared: u32,
}

impl SendFlow {
    /// A connection with nothing posted.
    ///
    /// # Panics
    /// If lanes are 0 or above [`MAX_LANES`], or chunk or slots of a relayed connection make no sense: the agent has checked both.
    pub fn new(mode: SendMode) -> Self {
        let SendMode { lanes, chunk, stripe, acks } = mode;
        assert!((1..=MAX_LANES).contains(&lanes.len()), "lanes");
        if let Some(chunk) = chunk {
            assert!(chunk > 0 && u64::from(chunk).is_multiple_of(CUT) && lanes.iter().all(|l| l.slots > 0), "chunk");
        }
        let lanes = Lane::all(&lanes);
        let tail_bytes = shared_at_most(&lanes, chunk.unwrap_or_default());
        Self {
            chunk,
            stripe,
            acks,
            lanes,
            tail_bytes,
            messages: [Message::default(); DEPTH],
            under_way: [[0; MAX_LANES]; DEPTH],
            clears: [Clear::default(); 2 * DEPTH],
            tail: 0,
            head: 0,
            acked: 0,
            cleared: 0,
        }
    }

    /// Posts a message of `len` bytes; `None` if [`DEPTH`] are open. The answer is the message's place, to be given to
    /// [`SendFlow::take`]. Places are handed out in order, round and round.
    pub fn post(&mut self, len: u64) -> Option<u32> {
        let place = place(self.tail);
        let message = &mut self.messages[place];
        if message.open {
            return None;
        }
        *message = Message { open: true, len, ..Message::default() };
        self.tail = self.tail.wrapping_add(1);
        Some(place as u32)
    }

    /// The message at `place` is done; frees the place. At most one `Some` a message.
    pub fn take(&mut self, place: u32) -> Option<u64> {
        let message = self.messages.get_mut(place as usize)?;
        if !(message.open && message.posted && message.acked && message.unwritten == 0) {
            return None;
        }
        message.open = false;
        Some(message.len)
    }

    /// The next message whose clear-to-send is expected.
    pub const fn next_clear(&self) -> u32 {
        self.cleared
    }

    /// A receive is posted.
    ///
    /// # Errors
    /// [`FlowError::Protocol`] if it is not the next one, is for another number of lanes, or is further ahead of what is acknowledged than an
    /// honest receiver can be.
    pub fn on_cts(&mut self, clear: &Clear) -> Result<(), FlowError> {
        let ahead = match self.acks {
            Acks::Receiver => DEPTH,
            Acks::Link => 2 * DEPTH,
        };
        if clear.seq != self.cleared || clear.seq.wrapping_sub(self.acked) >= ahead as u32 {
            return Err(FlowError::Protocol { what: "clear-to-send out of turn for message", value: clear.seq.into() });
        }
        if usize::from(clear.lanes) != self.lanes.len() {
            return Err(FlowError::Protocol { what: "lanes of a clear-to-send", value: clear.lanes.into() });
        }
        self.clears[clear_place(clear.seq)] = *clear;
        self.cleared = clear.seq.wrapping_add(1);
        Ok(())
    }

    /// A slot of the first relay of a lane is free again.
    ///
    /// # Errors
    /// [`FlowError::Protocol`] if there is no such slot or it was free already.
    pub fn on_credit(&mut self, lane: u8, slot: u16) -> Result<(), FlowError> {
        self.lane(lane)?.credit(slot)
    }

    fn lane(&mut self, lane: u8) -> Result<&mut Lane, FlowError> {
        self.lanes
            .get_mut(usize::from(lane))
            .ok_or_else(|| FlowError::Protocol { what: "message on lane", value: lane.into() })
    }

    /// The link of a lane no longer reads the memory of the write `id`; if it acknowledges too, the write has arrived there.
    pub fn on_written(&mut self, lane: u8, id: u64) {
        let place = (id % DEPTH as u64) as usize;
        let message = &mut self.messages[place];
        message.unwritten = message.unwritten.saturating_sub(1);
        if self.chunk.is_some() {
            return;
        }
        let bytes = std::mem::take(&mut self.under_way[place][usize::from(lane) % MAX_LANES]);
        if let Some(lane) = self.lanes.get_mut(usize::from(lane)) {
            lane.load -= u64::from(bytes);
        }
        if self.acks == Acks::Link {
            message.pending = message.pending.saturating_sub(1);
            self.arrived();
        }
    }

    /// The last relay of a lane has delivered the last chunks of `count` messages, in all.
    ///
    /// # Errors
    /// [`FlowError::Protocol`] if that is more than was sent, or not for a relay to say.
    pub fn on_done(&mut self, lane: u8, count: u32) -> Result<(), FlowError> {
        let Self { lanes, messages, .. } = self;
        let known = lanes.get_mut(usize::from(lane)).filter(|_| self.chunk.is_some() && self.acks == Acks::Link);
        let lane =
            known.ok_or_else(|| FlowError::Protocol { what: "count of deliveries on lane", value: lane.into() })?;
        // A receiver that has closed has acknowledged before: then there may be nothing left to count.
        lane.delivered(count, |seq| {
            let message = &mut messages[place(seq)];
            message.pending = message.pending.saturating_sub(1);
        })?;
        self.arrived();
        Ok(())
    }

    /// Acknowledges the oldest messages as far as the link has said so.
    fn arrived(&mut self) {
        while self.acked != self.head && self.messages[place(self.acked)].pending == 0 {
            self.acknowledge();
        }
    }

    /// The oldest open message has arrived.
    fn acknowledge(&mut self) {
        self.messages[place(self.acked)].acked = true;
        self.acked = self.acked.wrapping_add(1);
    }

    /// Messages before `count` have arrived whole.
    ///
    /// # Errors
    /// [`FlowError::Protocol`] if that acknowledges what was not sent, or is not for the receiver to say.
    pub fn on_ack(&mut self, count: u32) -> Result<(), FlowError> {
        let fresh = count.wrapping_sub(self.acked);
        if self.acks == Acks::Link || fresh > self.head.wrapping_sub(self.acked) {
            return Err(FlowError::Protocol { what: "acknowledgement of message", value: count.into() });
        }
        for _ in 0..fresh {
            self.acknowledge();
        }
        Ok(())
    }

    /// The receiver has closed in order: whatever was handed out whole has arrived, as it has all the receives that it ever posted. Reports
    /// of a last relay may not come any more.
    pub fn on_closed(&mut self) {
        if self.acks == Acks::Link && self.chunk.is_some() {
            while self.acked != self.head {
                self.acknowledge();
            }
        }
    }

    /// The next write to post, if one may be posted now. Chunk path.
    ///
    /// # Errors
    /// [`FlowError::TooLarge`] when the message at the head does not fit its receive; the connection is of no more use then.
    pub fn poll(&mut self) -> Result<Option<SendWrite>, FlowError> {
        if self.head == self.tail || self.head == self.cleared {
            return Ok(None);
        }
        let message = &mut self.messages[place(self.head)];
        if message.parts == 0 {
            let (seq, len) = (self.head, message.len);
            let capacity = self.clears[clear_place(seq)].capacity;
            if len > capacity {
                return Err(FlowError::TooLarge { seq, len, capacity });
            }
            let spread = self.lanes.len() > 1 && len >= self.stripe;
            let may = |lane: &Lane| self.chunk.is_none() || !lane.free.is_empty();
            match least_loaded(&self.lanes, may) {
                // The cast is exact: at most MAX_LANES.
                Some(lane) => {
                    (message.parts, message.lane) = (if spread { self.lanes.len() as u8 } else { 1 }, lane as u8)
                }
                None => return Ok(None),
            }
            message.pending = message.parts;
        }
        Ok(match self.chunk {
            None => Some(self.poll_direct()),
            Some(chunk) => self.poll_relayed(chunk),
        })
    }

    fn poll_direct(&mut self) -> SendWrite {
        let seq = self.head;
        let (clear, message) = (&self.clears[clear_place(seq)], &mut self.messages[place(seq)]);
        let lane = if message.parts > 1 { message.next as usize } else { usize::from(message.lane) };
        let (offset, len) = if message.parts > 1 { share(&self.lanes, message.len, lane) } else { (0, message.len) };
        let note = Note { seq: seq as u8, last: true, parts: message.parts };
        message.unwritten += 1;
        message.next += 1;
        if message.next == u64::from(message.parts) {
            message.posted = true;
            self.head = self.head.wrapping_add(1);
        }
        // The cast is exact: NCCL is told that a message has at most 1 GiB.
        self.under_way[place(seq)][lane] = len as u32;
        self.lanes[lane].load += len;
        let target = SendTarget::Buffer { key: clear.keys[lane], at: clear.base.wrapping_add(offset), note };
        SendWrite { lane: lane as u8, id: u64::from(seq), offset, len: len as u32, target }
    }

    fn poll_relayed(&mut self, chunk: u32) -> Option<SendWrite> {
        let seq = self.head;
        let (clear, message) = (&self.clears[clear_place(seq)], &mut self.messages[place(seq)]);
        let left = message.len - message.next;
        let (lane, offset, len, last) = if message.parts == 1 {
            let len = left.min(u64::from(chunk));
            (usize::from(message.lane), message.next, len, len == left)
        } else if left > self.tail_bytes {
            (least_loaded(&self.lanes, |lane| !lane.free.is_empty())?, message.next, u64::from(chunk), false)
        } else {
            // What is left is cut once, and each lane takes its share when it can; `next` stays where the cut began.
            let waits = |n: &usize| message.ended >> n & 1 == 0 && !self.lanes[*n].free.is_empty();
            let lane = (0..self.lanes.len()).find(waits)?;
            let (start, len) = share(&self.lanes, left, lane);
            message.ended |= 1 << lane;
            (lane, message.next + start, len, true)
        };
        // The cast is exact: at most a chunk.
        let slot = self.lanes[lane].fill(len as u32)?;
        message.unwritten += 1;
        if message.parts == 1 || !last {
            message.next += len;
        }
        if last {
            if self.acks == Acks::Link {
                self.lanes[lane].ends(seq);
            }
            if message.parts == 1 || message.ended.count_ones() == u32::from(message.parts) {
                message.posted = true;
                self.head = self.head.wrapping_add(1);
            }
        }
        let (key, at, len) = (clear.keys[lane], clear.base.wrapping_add(offset), len as u32);
        let header = ChunkHeader { stream: 0, seq, at, len, key, parts: message.parts, last };
        Some(SendWrite { lane: lane as u8, id: u64::from(seq), offset, len, target: SendTarget::Slot { slot, header } })
    }

    /// Messages posted and not yet acknowledged.
    pub fn open(&self) -> u32 {
        self.tail.wrapping_sub(self.acked)
    }

    /// Messages that are lost if the peer has closed in an orderly way: all that are not acknowledged, if that is for the receiver to do. A
    /// link's reports may come after the word of a receiver that has all it wants, over another lane; a receiver that has not breaks the
    /// link.
    pub fn lost_if_closed(&self) -> u32 {
        match self.acks {
            Acks::Link => self.tail.wrapping_sub(self.head),
            Acks::Receiver => self.open(),
        }
    }

    /// What the oldest unfinished message waits for, for the watchdog and for `status`.
    pub fn waits_for(&self) -> SendWait {
        if self.head != self.tail {
            let seq = self.head;
            return if seq == self.cleared { SendWait::Receive { seq } } else { SendWait::Credit { seq } };
        }
        if self.acked != self.tail { SendWait::Ack { seq: self.acked } } else { SendWait::Nothing }
    }

    /// Slots held as credits right now, on all lanes (for invariant checks).
    pub fn credits(&self) -> usize {
        self.lanes.iter().map(|lane| lane.free.len()).sum()
    }
}

fn place(seq: u32) -> usize {
    seq as usize % DEPTH
}

fn clear_place(seq: u32) -> usize {
    seq as usize % (2 * DEPTH)
}

#[cfg(test)]
mod tests;
