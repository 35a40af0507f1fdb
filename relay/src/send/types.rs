//! What a sending end is made for, what it asks to be done, and what it can find wrong. Plain data; any thread.

use thiserror::Error;

use super::SendLane;
use crate::wire::{ChunkHeader, Note};

/// Who says that a message has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// The receiver, with a message.
    Receiver,
    /// The link of the last hop: it reports a write when it lies in the receiver's memory, as reliable queue pairs do.
    Link,
}

/// How payload reaches the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendMode {
    /// Lanes, 1 to [`MAX_LANES`](super::MAX_LANES).
    pub lanes: Vec<SendLane>,
    /// Largest payload of a chunk in bytes, a multiple of [`CUT`](super::CUT); `None` if the receiver is at the other end of the links.
    pub chunk: Option<u32>,
    /// Messages of at least this many bytes are spread over all lanes.
    pub stripe: u64,
    /// Who acknowledges.
    pub acks: Acks,
}

impl SendMode {
    /// Straight to the receiver over so many equal lanes.
    pub fn direct(lanes: u8, stripe: u64, acks: Acks) -> Self {
        Self { lanes: vec![SendLane { weight: 1, slots: 0 }; usize::from(lanes)], chunk: None, stripe, acks }
    }

    /// By one lane over relays.
    pub fn relayed(chunk: u32, slots: u16, acks: Acks) -> Self {
        Self { lanes: vec![SendLane { weight: 1, slots }], chunk: Some(chunk), stripe: u64::MAX, acks }
    }
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
    /// To be handed back to [`SendFlow::on_written`](super::SendFlow::on_written); also the message's place, `id % DEPTH`.
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
