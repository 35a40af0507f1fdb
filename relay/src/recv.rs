//! The receiving end of a connection: receives in posted order, each announced to the sender, filled by one-sided writes, acknowledged.
//!
//! A state machine without I/O, the counterpart of [`crate::send`]. The driver makes the buffer writable for the link, tells the flow,
//! and sends the clear-to-send; notifications of writes come in through [`RecvFlow::on_note`]. Placement is by offset, so nothing is
//! reordered or copied here. A receive is complete when every lane that carries a part has said *last*; completed receives are
//! acknowledged with one running count, so a lost place cannot be skipped; not at all where the link tells the sender as well.
//!
//! Run by the thread that owns the connection (NCCL's progress thread). Chunk path: no lock, allocation, system call, log or clock.

use crate::send::{Acks, DEPTH, FlowError};
use crate::wire::Note;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    Posted,
    Complete,
}

#[derive(Clone, Copy, Debug, Default)]
struct Receive {
    state: State,
    seq: u32,
    capacity: u64,
    got: u64,
    lasts: u8,
    parts: u8,
}

/// Receives that the sender knows of and has not filled, at or below which it is told of new ones at once. Above, it has enough to go on with.
pub const FEW: u32 = 2;
/// The same where the sender is told through relays, which takes as long as a few messages.
pub const FEW_RELAYED: u32 = 4;
/// New receives that are announced together at the latest: with one lane or two as many clear-to-sends as fit one small write.
pub const TOGETHER: u32 = 4;
/// After a message of at least so many bytes nothing waits for others: next to it a clear-to-send costs nothing, and a sender that is told
/// late stands still for long.
pub const BULK: u64 = 64 << 10;

/// A receive that has just become complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its place, as [`RecvFlow::post`] gave it.
    pub place: u32,
    /// Bytes received.
    pub len: u64,
}

/// The receiving end. See the module.
#[derive(Debug)]
pub struct RecvFlow {
    receives: [Receive; DEPTH],
    tail: u32,
    /// Oldest receive that is not complete.
    head: u32,
    /// Count last acknowledged.
    acked: u32,
    acks: Acks,
    few: u32,
    /// Receives before this one are announced, and those before `announcing` are to be.
    announced: u32,
    announcing: u32,
    /// Receives announced and not complete.
    unfilled: u32,
    /// The last message was large.
    bulk: bool,
}

impl Default for RecvFlow {
    fn default() -> Self {
        Self::new(Acks::Receiver, 0)
    }
}

impl RecvFlow {
    /// A connection over so many relays with nothing posted.
    pub fn new(acks: Acks, relays: u8) -> Self {
        Self {
            receives: [Receive::default(); DEPTH],
            tail: 0,
            head: 0,
            acked: 0,
            acks,
            few: if relays == 0 { FEW } else { FEW_RELAYED },
            announced: 0,
            announcing: 0,
            unfilled: 0,
            bulk: false,
        }
    }

    /// Posts a receive of `capacity` bytes and answers its place and message number; `None` if [`DEPTH`] are open.
    /// [`RecvFlow::poll_clear`] then says when the sender is to be told.
    pub fn post(&mut self, capacity: u64) -> Option<(u32, u32)> {
        let seq = self.tail;
        let place = seq as usize % DEPTH;
        // A place is also blocked while an older receive is open, as the sender holds at most DEPTH clear-to-sends.
        if self.receives[place].state != State::Free || seq.wrapping_sub(self.acked) >= DEPTH as u32 {
            return None;
        }
        self.receives[place] = Receive { state: State::Posted, seq, capacity, ..Receive::default() };
        self.tail = seq.wrapping_add(1);
        Some((place as u32, seq))
    }

    /// A write of `len` bytes has landed whole in the buffer of the receive that `note` names.
    ///
    /// # Errors
    /// [`FlowError`] if no such receive is open, more than its capacity arrives, or the parts disagree.
    pub fn on_note(&mut self, note: Note, len: u64) -> Result<Option<Arrived>, FlowError> {
        let place = usize::from(note.seq) % DEPTH;
        let receive = &mut self.receives[place];
        if receive.state != State::Posted || receive.seq as u8 != note.seq {
            return Err(FlowError::Protocol {
                what: "write for a receive that is not open, number",
                value: note.seq.into(),
            });
        }
        if receive.parts != 0 && receive.parts != note.parts {
            return Err(FlowError::Protocol { what: "parts of a message", value: note.parts.into() });
        }
        receive.parts = note.parts;
        receive.got += len;
        if receive.got > receive.capacity {
            return Err(FlowError::TooLarge { seq: receive.seq, len: receive.got, capacity: receive.capacity });
        }
        receive.lasts += u8::from(note.last);
        if receive.lasts < receive.parts {
            return Ok(None);
        }
        receive.state = State::Complete;
        self.bulk = receive.got >= BULK;
        self.unfilled = self.unfilled.saturating_sub(1);
        let arrived = Arrived { place: place as u32, len: receive.got };
        while self.head != self.tail
            && self.receives[self.head as usize % DEPTH].seq == self.head
            && self.receives[self.head as usize % DEPTH].state != State::Posted
        {
            self.head = self.head.wrapping_add(1);
        }
        if self.acks == Acks::Link {
            self.acked = self.head;
        }
        Ok(Some(arrived))
    }

    /// The next receive whose clear-to-send is to be sent, if one is. At once where the receiver acknowledges. Where the link
    /// does, a clear-to-send costs as much as a small message, and several that lie side by side cost as much as one: then they wait for
    /// each other while the sender has others left, unless messages are large. Ask after every post and every notification.
    pub fn poll_clear(&mut self) -> Option<u32> {
        if self.announced == self.announcing {
            let waiting = self.tail.wrapping_sub(self.announced);
            let together = self.acks == Acks::Link && !self.bulk;
            if waiting == 0 || together && waiting < TOGETHER && self.unfilled > self.few {
                return None;
            }
            self.announcing = self.tail;
        }
        let seq = self.announced;
        self.announced = seq.wrapping_add(1);
        self.unfilled += 1;
        Some(seq)
    }

    /// The count to acknowledge, if that is for the receiver to do and it has grown since last asked.
    pub fn poll_ack(&mut self) -> Option<u32> {
        (self.acked != self.head).then(|| {
            self.acked = self.head;
            self.head
        })
    }

    /// The receive at `place` is complete; frees the place and answers the bytes received. At most one `Some` a receive.
    pub fn take(&mut self, place: u32) -> Option<u64> {
        let receive = self.receives.get_mut(place as usize)?;
        if receive.state != State::Complete {
            return None;
        }
        receive.state = State::Free;
        Some(receive.got)
    }

    /// Receives posted and not complete.
    pub fn open(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    /// Oldest receive that is not complete and the bytes it has, for the watchdog and for `status`.
    pub fn waits_for(&self) -> Option<(u32, u64)> {
        (self.head != self.tail).then(|| (self.head, self.receives[self.head as usize % DEPTH].got))
    }
}

#[cfg(test)]
#[path = "recv_tests.rs"]
mod tests;
