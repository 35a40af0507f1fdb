//! The sending end of a connection: messages in posted order, each written when its receive is known to be posted.
//!
//! A state machine without I/O. It is told what happened (`on_…`) and asked what to do next ([`SendFlow::poll`]); it never sees memory,
//! sockets or clocks. Direct: one write a lane straight into the receive buffer, striped over the lanes when large. Relayed: chunks
//! into the slots of the first relay, each against a credit. A message is done when the receiver has acknowledged all of it and no
//! write of ours still reads its memory; on a direct connection over links that report a write only once the peer has it, these reports
//! are the acknowledgement.
//!
//! ```text
//!            post            cts               all written          ack
//!   (free) ───────▶ waiting ──────▶ sending ───────────────▶ sent ───────▶ done ──take──▶ (free)
//! ```
//!
//! Run by the thread that owns the connection (NCCL's progress thread). Chunk path: no lock, allocation, system call, log or clock.

use std::collections::VecDeque;

use thiserror::Error;

use crate::wire::{ChunkHeader, Note};

/// Most messages of one connection that are open at once, each way (NCCL: `NCCL_NET_MAX_REQUESTS`).
pub const DEPTH: usize = 32;
/// Most lanes of one connection (a [`Note`] counts to 15).
pub const MAX_LANES: usize = 8;
/// A message is cut only at multiples of this many bytes, so that no 128-byte line of NCCL's LL128 is torn.
pub const CUT: u64 = 128;

/// Who says that a message has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// The receiver, with a message.
    Receiver,
    /// The link: it reports a write when it lies in the receiver's memory, as reliable queue pairs do.
    Link,
}

/// How payload reaches the next node.
#[derive(Clone, Debug)]
pub enum SendMode {
    /// The receiver is at the other end of the link.
    Direct {
        /// Lanes, 1 to [`MAX_LANES`].
        lanes: u8,
        /// Messages of at least this many bytes are striped over all lanes; smaller ones take turns.
        stripe: u64,
        /// Who acknowledges.
        acks: Acks,
    },
    /// The first relay is.
    Relayed {
        /// Largest payload of a chunk in bytes, a multiple of [`CUT`].
        chunk: u32,
        /// Slots that may be filled at the first relay.
        slots: u16,
    },
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTarget {
    /// Into the receive buffer.
    Buffer {
        /// Key from the clear-to-send.
        key: u32,
        /// Byte offset there, the base from the clear-to-send included.
        at: u64,
        /// Notification.
        note: Note,
    },
    /// Into a slot of the first relay, behind a header.
    Slot {
        /// Slot of the leg.
        slot: u16,
        /// Header.
        header: ChunkHeader,
    },
}

/// One write to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWrite {
    /// Lane to post it on.
    pub lane: u8,
    /// To be handed back to [`SendFlow::on_written`]; also the message's place, `id % DEPTH`.
    pub id: u64,
    /// First byte within the message.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Where to.
    pub target: SendTarget,
}

/// Faults of a connection that its own rules find.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FlowError {
    /// The send is larger than the receive it meets.
    #[error("message {seq} has {len} bytes but its receive was posted with {capacity}")]
    TooLarge {
        /// Message.
        seq: u32,
        /// Bytes to send or received.
        len: u64,
        /// Bytes of the posted receive.
        capacity: u64,
    },
    /// The peer broke the protocol.
    #[error("peer broke the protocol: {what} {value}")]
    Protocol {
        /// What was wrong.
        what: &'static str,
        /// The offending number.
        value: u64,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Clear {
    key: u32,
    base: u64,
    capacity: u64,
    given: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Message {
    open: bool,
    len: u64,
    /// Next byte to write (relayed), or next lane (direct striped).
    next: u64,
    /// All writes have been handed out.
    posted: bool,
    unwritten: u32,
    acked: bool,
}

/// The sending end. See the module.
#[derive(Debug)]
pub struct SendFlow {
    mode: SendMode,
    messages: [Message; DEPTH],
    /// Clear-to-sends by message and lane. Without acknowledgements of its own a receiver can be ahead by all messages whose writes it has
    /// seen and we have not.
    clear: [[Clear; MAX_LANES]; 2 * DEPTH],
    /// Next message to be posted by the user.
    tail: u32,
    /// Oldest message with bytes to hand out.
    head: u32,
    /// Messages before this one are acknowledged.
    acked: u32,
    /// Next clear-to-send expected, per lane.
    cleared: [u32; MAX_LANES],
    free: VecDeque<u16>,
    slots: u16,
    /// Which slots we hold, so that a credit given twice is noticed.
    held: Vec<bool>,
}

impl SendFlow {
    /// A connection with nothing posted.
    ///
    /// # Panics
    /// If lanes are 0 or above [`MAX_LANES`], or the chunk is not a positive multiple of [`CUT`]: the agent has checked both.
    pub fn new(mode: SendMode) -> Self {
        let slots = match &mode {
            SendMode::Direct { lanes, .. } => {
                assert!((1..=MAX_LANES).contains(&usize::from(*lanes)), "lanes");
                0
            }
            SendMode::Relayed { chunk, slots } => {
                assert!(*chunk > 0 && u64::from(*chunk).is_multiple_of(CUT) && *slots > 0, "chunk");
                *slots
            }
        };
        Self {
            mode,
            messages: [Message::default(); DEPTH],
            clear: [[Clear::default(); MAX_LANES]; 2 * DEPTH],
            tail: 0,
            head: 0,
            acked: 0,
            cleared: [0; MAX_LANES],
            free: (0..slots).collect(),
            slots,
            held: vec![true; usize::from(slots)],
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

    /// The receive of message `seq` is posted, as told on `lane`.
    ///
    /// # Errors
    /// [`FlowError::Protocol`] if it is not the next one of that lane, or more than [`DEPTH`] ahead of what is acknowledged.
    pub fn on_cts(&mut self, lane: u8, seq: u32, key: u32, base: u64, capacity: u64) -> Result<(), FlowError> {
        let expected = self
            .cleared
            .get_mut(usize::from(lane))
            .ok_or_else(|| FlowError::Protocol { what: "clear-to-send on lane", value: lane.into() })?;
        // The message may have gone out over the other lanes, and have been acknowledged there, before a slow lane clears it.
        let late = (1..=MAX_LANES as u32).contains(&self.acked.wrapping_sub(seq));
        let ahead = if matches!(self.mode, SendMode::Direct { acks: Acks::Link, .. }) { 2 * DEPTH } else { DEPTH };
        if seq != *expected || !late && seq.wrapping_sub(self.acked) >= ahead as u32 {
            return Err(FlowError::Protocol { what: "clear-to-send out of turn for message", value: seq.into() });
        }
        *expected = seq.wrapping_add(1);
        if late {
            return Ok(());
        }
        self.clear[clear_place(seq)][usize::from(lane)] = Clear { key, base, capacity, given: true };
        Ok(())
    }

    /// A slot of the first relay is free again.
    ///
    /// # Errors
    /// [`FlowError::Protocol`] if there is no such slot or it was free already.
    pub fn on_credit(&mut self, slot: u16) -> Result<(), FlowError> {
        match self.held.get_mut(usize::from(slot)) {
            Some(held) if !*held => {
                *held = true;
                self.free.push_back(slot);
                Ok(())
            }
            _ => Err(FlowError::Protocol { what: "credit for slot", value: slot.into() }),
        }
    }

    /// The link no longer reads the memory of the write `id`; if it acknowledges too, the write has arrived.
    pub fn on_written(&mut self, id: u64) {
        let message = &mut self.messages[(id % DEPTH as u64) as usize];
        message.unwritten = message.unwritten.saturating_sub(1);
        if matches!(self.mode, SendMode::Direct { acks: Acks::Link, .. }) {
            while self.acked != self.head && self.messages[place(self.acked)].unwritten == 0 {
                self.acknowledge();
            }
        }
    }

    /// The oldest open message has arrived.
    fn acknowledge(&mut self) {
        self.messages[place(self.acked)].acked = true;
        self.clear[clear_place(self.acked)] = [Clear::default(); MAX_LANES];
        self.acked = self.acked.wrapping_add(1);
    }

    /// Messages before `count` have arrived whole. With several lanes each tells it in its own time, so an older count is no fault.
    ///
    /// # Errors
    /// [`FlowError::Protocol`] if that acknowledges what was not sent.
    pub fn on_ack(&mut self, count: u32) -> Result<(), FlowError> {
        if matches!(self.mode, SendMode::Direct { acks: Acks::Link, .. }) {
            return Err(FlowError::Protocol {
                what: "acknowledgement where the link acknowledges, of message",
                value: count.into(),
            });
        }
        let fresh = count.wrapping_sub(self.acked);
        // A lane may be behind by what its clear-to-sends allow, and by the messages that take their turns on the other lanes.
        if self.acked.wrapping_sub(count) <= (DEPTH + MAX_LANES) as u32 {
            return Ok(());
        }
        if fresh > self.head.wrapping_sub(self.acked) {
            return Err(FlowError::Protocol { what: "acknowledgement of message", value: count.into() });
        }
        for _ in 0..fresh {
            self.acknowledge();
        }
        Ok(())
    }

    /// The next write to post, if one may be posted now. Chunk path.
    ///
    /// # Errors
    /// [`FlowError::TooLarge`] when the message at the head does not fit its receive; the connection is of no more use then.
    pub fn poll(&mut self) -> Result<Option<SendWrite>, FlowError> {
        if self.head == self.tail {
            return Ok(None);
        }
        match self.mode {
            SendMode::Direct { lanes, stripe, .. } => self.poll_direct(lanes, stripe),
            SendMode::Relayed { chunk, .. } => self.poll_relayed(chunk),
        }
    }

    fn poll_direct(&mut self, lanes: u8, stripe: u64) -> Result<Option<SendWrite>, FlowError> {
        let seq = self.head;
        let message = &mut self.messages[place(seq)];
        let spread = lanes > 1 && message.len >= stripe;
        let (parts, lane) = if spread { (lanes, message.next as u8) } else { (1, (seq % u32::from(lanes)) as u8) };
        let clear = self.clear[clear_place(seq)][usize::from(lane)];
        if !clear.given {
            return Ok(None);
        }
        if message.len > clear.capacity {
            return Err(FlowError::TooLarge { seq, len: message.len, capacity: clear.capacity });
        }
        let (offset, len) = if spread { stripe_part(message.len, lanes, lane) } else { (0, message.len) };
        let note = Note { seq: seq as u8, last: true, parts };
        message.unwritten += 1;
        message.next += 1;
        if message.next >= u64::from(parts) {
            message.posted = true;
            self.head = self.head.wrapping_add(1);
        }
        let target = SendTarget::Buffer { key: clear.key, at: clear.base.wrapping_add(offset), note };
        Ok(Some(SendWrite { lane, id: u64::from(seq), offset, len: len as u32, target }))
    }

    fn poll_relayed(&mut self, chunk: u32) -> Result<Option<SendWrite>, FlowError> {
        let seq = self.head;
        let message = &mut self.messages[place(seq)];
        let clear = self.clear[clear_place(seq)][0];
        if !clear.given {
            return Ok(None);
        }
        if message.len > clear.capacity {
            return Err(FlowError::TooLarge { seq, len: message.len, capacity: clear.capacity });
        }
        let Some(slot) = self.free.pop_front() else { return Ok(None) };
        self.held[usize::from(slot)] = false;
        let offset = message.next;
        let len = (message.len - offset).min(u64::from(chunk)) as u32;
        let last = offset + u64::from(len) == message.len;
        message.unwritten += 1;
        message.next += u64::from(len);
        if last {
            message.posted = true;
            self.head = self.head.wrapping_add(1);
        }
        let header = ChunkHeader { stream: 0, seq, offset, len, last };
        Ok(Some(SendWrite { lane: 0, id: u64::from(seq), offset, len, target: SendTarget::Slot { slot, header } }))
    }

    /// Messages posted and not yet acknowledged.
    pub fn open(&self) -> u32 {
        self.tail.wrapping_sub(self.acked)
    }

    /// Messages that are lost if the peer has closed in an orderly way: all that are not acknowledged, if that is for the receiver to do. A
    /// link's reports may come after the word of a receiver that has all it wants, over another lane; a receiver that has not breaks the
    /// link.
    pub fn lost_if_closed(&self) -> u32 {
        match self.mode {
            SendMode::Direct { acks: Acks::Link, .. } => self.tail.wrapping_sub(self.head),
            _ => self.open(),
        }
    }

    /// What the oldest unfinished message waits for, for the watchdog and for `status`.
    pub fn waits_for(&self) -> SendWait {
        if self.head != self.tail {
            if !self.clear[clear_place(self.head)].iter().any(|c| c.given) {
                return SendWait::Receive { seq: self.head };
            }
            return SendWait::Credit { seq: self.head };
        }
        if self.acked != self.tail { SendWait::Ack { seq: self.acked } } else { SendWait::Nothing }
    }

    /// The next clear-to-send expected on a lane.
    pub fn next_clear(&self, lane: u8) -> u32 {
        self.cleared[usize::from(lane) % MAX_LANES]
    }

    /// Slots held as credits right now, and slots in all (for invariant checks).
    pub fn credits(&self) -> (usize, usize) {
        (self.free.len(), usize::from(self.slots))
    }
}

/// What a sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendWait {
    /// Nothing is posted.
    Nothing,
    /// The peer has posted no receive for this message: not a stall of ours.
    Receive {
        /// Message.
        seq: u32,
    },
    /// A slot of the first relay, or room on the link.
    Credit {
        /// Message.
        seq: u32,
    },
    /// The receiver's acknowledgement.
    Ack {
        /// Message.
        seq: u32,
    },
}

fn place(seq: u32) -> usize {
    seq as usize % DEPTH
}

fn clear_place(seq: u32) -> usize {
    seq as usize % (2 * DEPTH)
}

/// Lane `lane`'s share of a message: equal parts rounded up to [`CUT`], the last takes what is left (possibly nothing).
fn stripe_part(len: u64, lanes: u8, lane: u8) -> (u64, u64) {
    let part = len.div_ceil(u64::from(lanes)).next_multiple_of(CUT);
    let start = (part * u64::from(lane)).min(len);
    (start, part.min(len - start))
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
