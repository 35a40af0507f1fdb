//! What travels between two nodes: the chunk header in front of every payload in a slot, and the control messages.
//!
//! Several messages may follow each other in one *frame*, the unit that a link carries: [`messages`] takes them apart. All integers are
//! little endian. Every decoder bounds each length before it uses it and refuses what is left over, so the bytes of a stranger can only
//! ever yield a [`WireError`]. Knows nothing of sockets, slots' memory or time.

mod chunk;

use std::net::Ipv4Addr;

use thiserror::Error;

use crate::reader::{Reader, Short};
pub use chunk::{ChunkHeader, Note};

/// First word of the first message on every leg: `MESH` in ASCII.
pub const MAGIC: u32 = u32::from_le_bytes(*b"MESH");
/// Version of everything in this file. Nodes with different versions refuse each other (`mesh[E43]`).
pub const PROTOCOL: u16 = 3;
/// Bytes of a [`ChunkHeader`] in a slot.
pub const HEADER_BYTES: usize = 32;
/// Longest frame, and so the longest encoded message, in bytes.
pub const MAX_MESSAGE: usize = 1024;
/// Most hops a route may have (so at most 31 relays).
pub const MAX_HOPS: usize = 32;
/// Most slots named by one [`Msg::Credit`].
pub const MAX_CREDITS: usize = 32;
/// Longest text of a refusal, in bytes.
pub const MAX_TEXT: usize = 400;
/// Most lanes of a connection (a [`Note`] counts to 15).
pub const MAX_LANES: usize = 8;

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// The message ended before its fields did.
    #[error("message of {got} bytes is too short")]
    Short {
        /// Bytes received.
        got: usize,
    },
    /// The kind byte is not one of ours.
    #[error("unknown message kind {kind}")]
    Kind {
        /// Kind byte of the message.
        kind: u8,
    },
    /// A field is outside its bounds.
    #[error("field {field} is {value}, at most {limit} is allowed")]
    Bounds {
        /// Name of the field.
        field: &'static str,
        /// Value received.
        value: u64,
        /// Largest value allowed.
        limit: u64,
    },
    /// The first word is not [`MAGIC`].
    #[error("first word is 0x{got:08x}, not a mesh peer")]
    Magic {
        /// Word received.
        got: u32,
    },
    /// The peer speaks another [`PROTOCOL`].
    #[error("peer speaks mesh protocol {theirs}, this node {ours}")]
    Protocol {
        /// The peer's version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
}

impl From<Short> for WireError {
    fn from(Short { got }: Short) -> Self {
        Self::Short { got }
    }
}

/// One hop of a lane: the two ports of the link it is pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HopAddr {
    /// Port of the node nearer to the sender.
    pub from: Ipv4Addr,
    /// Port of the node nearer to the receiver.
    pub to: Ipv4Addr,
    /// TCP port of the agent that is meant at the latter, if its node has several; 0 is the port that all nodes share.
    pub agent: u16,
}

impl HopAddr {
    /// A hop to the agent on the port that all nodes share.
    pub const fn new(from: Ipv4Addr, to: Ipv4Addr) -> Self {
        Self { from, to, agent: 0 }
    }
}

/// Asks the next node to take part in a path; travels hop by hop from the connecting side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Stream of the leg this is sent on.
    pub stream: u32,
    /// The connection, unique by chance (drawn at random by the sender).
    pub conn: [u8; 16],
    /// The listener's token, from the handle.
    pub token: [u8; 16],
    /// Which of the connection's lanes this is.
    pub lane: u8,
    /// How many lanes the connection has.
    pub lanes: u8,
    /// Which of `hops` has been made when the message arrives.
    pub at: u8,
    /// How long the sender still waits, in milliseconds.
    pub budget_ms: u32,
    /// The lane, sender first.
    pub hops: Vec<HopAddr>,
}

/// Why a node said no; numbers are those of `docs/errors.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error's number: 52 for `mesh[E52]`.
    pub code: u16,
    /// One line: which node, what, why, remedy.
    pub text: String,
}

/// A control message. `stream` is always the stream of the leg it travels on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Msg {
    /// Towards the receiver: take part in a path.
    Setup(Setup),
    /// Towards the sender: the path behind this node stands.
    Ready {
        /// Stream.
        stream: u32,
        /// Key of the slots that the upstream node may fill, 0 at the receiver itself.
        key: u32,
        /// What is to be added to offsets in the slots (RDMA: their address; TCP: 0).
        base: u64,
        /// How many slots, 0 at the receiver and on trunks.
        slots: u16,
        /// Bytes from one slot to the next.
        stride: u32,
        /// Largest payload of a chunk, in bytes; the smallest of all relays behind.
        chunk: u32,
    },
    /// Towards the sender: the path cannot be had.
    Refused {
        /// Stream.
        stream: u32,
        /// Why.
        why: Refusal,
    },
    /// Towards the sender, on the first lane: the receive of a message is posted (clear to send). Relays pass it on as it is.
    Cts {
        /// Stream.
        stream: u32,
        /// The receive.
        clear: Clear,
    },
    /// Towards the sender, on the first lane: messages before `count` have arrived whole. Only where links do not acknowledge.
    Ack {
        /// Stream.
        stream: u32,
        /// Messages complete since the connection began, wrapping.
        count: u32,
    },
    /// Towards the sender, from the last relay of a lane: so many messages have arrived as far as they went over this lane. Only where
    /// links acknowledge.
    Done {
        /// Stream.
        stream: u32,
        /// Last chunks of messages delivered since the lane began, wrapping.
        count: u32,
    },
    /// Towards the sender: these slots may be filled again.
    Credit {
        /// How many of `slots` count.
        n: u8,
        /// Slot numbers of the leg.
        slots: [u16; MAX_CREDITS],
    },
    /// Either way: the stream ends here. `code` 0 is an orderly close.
    Close {
        /// Stream.
        stream: u32,
        /// Error number, or 0.
        code: u16,
    },
    /// First message of a trunk, from the node that will fill its slots.
    TrunkHello {
        /// Key of the node that opens the trunk.
        node: u64,
    },
    /// Answer to [`Msg::TrunkHello`].
    TrunkReady {
        /// Key of the slots.
        key: u32,
        /// What is to be added to offsets in the slots (RDMA: their address; TCP: 0).
        base: u64,
        /// Slots in each class.
        slots: u16,
        /// Number of classes; class `k` is for chunks that have made `k + 2` hops when they lie in it.
        classes: u8,
        /// Bytes from one slot to the next.
        stride: u32,
        /// Largest payload of a chunk in bytes.
        chunk: u32,
    },
}

const SETUP: u8 = 1;
const READY: u8 = 2;
const REFUSED: u8 = 3;
const CTS: u8 = 4;
const ACK: u8 = 5;
const CREDIT: u8 = 6;
const CLOSE: u8 = 7;
const TRUNK_HELLO: u8 = 8;
const TRUNK_READY: u8 = 9;
const DONE: u8 = 10;

/// A posted receive, as its sender must know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clear {
    /// Message.
    pub seq: u32,
    /// Lanes of the connection, 1 to [`MAX_LANES`].
    pub lanes: u8,
    /// Key of the receive buffer for the last hop of each lane; 0 beyond `lanes`.
    pub keys: [u32; MAX_LANES],
    /// What is to be added to offsets in the buffer, whatever the lane (RDMA: its address; TCP: 0).
    pub base: u64,
    /// Bytes the buffer holds.
    pub capacity: u64,
}

impl Clear {
    /// A receive of a connection with lanes of these keys, at most [`MAX_LANES`].
    pub fn new(seq: u32, keys: &[u32], base: u64, capacity: u64) -> Self {
        let mut clear = Self { seq, lanes: keys.len().min(MAX_LANES) as u8, keys: [0; MAX_LANES], base, capacity };
        clear.keys.iter_mut().zip(keys).for_each(|(to, key)| *to = *key);
        clear
    }
}

impl Msg {
    /// What it is, for texts: unlike its `Debug` form it is short and tells no token.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Setup(_) => "set-up",
            Self::Ready { .. } => "ready",
            Self::Refused { .. } => "refusal",
            Self::Cts { .. } => "clear-to-send",
            Self::Ack { .. } => "acknowledgement",
            Self::Done { .. } => "count of deliveries",
            Self::Credit { .. } => "credit",
            Self::Close { .. } => "close",
            Self::TrunkHello { .. } => "trunk hello",
            Self::TrunkReady { .. } => "trunk ready",
        }
    }

    /// Encodes into `out` (cleared first) without allocating once it has grown to [`MAX_MESSAGE`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        self.append(out);
    }

    /// Encodes behind what `out` holds: a frame of several messages. At most [`MAX_MESSAGE`] bytes.
    pub fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Setup(s) => {
                preface(out, SETUP);
                out.extend_from_slice(&s.stream.to_le_bytes());
                out.extend_from_slice(&s.conn);
                out.extend_from_slice(&s.token);
                out.extend_from_slice(&[s.lane, s.lanes, s.at, hop_count(&s.hops)]);
                out.extend_from_slice(&s.budget_ms.to_le_bytes());
                for hop in s.hops.iter().take(MAX_HOPS) {
                    out.extend_from_slice(&hop.from.octets());
                    out.extend_from_slice(&hop.to.octets());
                    out.extend_from_slice(&hop.agent.to_le_bytes());
                }
            }
            Self::Ready { stream, key, base, slots, stride, chunk } => {
                out.push(READY);
                out.extend_from_slice(&stream.to_le_bytes());
                out.extend_from_slice(&key.to_le_bytes());
                out.extend_from_slice(&base.to_le_bytes());
                out.extend_from_slice(&slots.to_le_bytes());
                out.extend_from_slice(&stride.to_le_bytes());
                out.extend_from_slice(&chunk.to_le_bytes());
            }
            Self::Refused { stream, why } => {
                out.push(REFUSED);
                out.extend_from_slice(&stream.to_le_bytes());
                out.extend_from_slice(&why.code.to_le_bytes());
                let text = clip(&why.text);
                // The cast is exact: at most MAX_TEXT.
                out.extend_from_slice(&(text.len() as u16).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            Self::Cts { stream, clear } => {
                out.push(CTS);
                out.extend_from_slice(&stream.to_le_bytes());
                out.extend_from_slice(&clear.seq.to_le_bytes());
                out.extend_from_slice(&clear.base.to_le_bytes());
                out.extend_from_slice(&clear.capacity.to_le_bytes());
                out.push(clear.lanes);
                for key in clear.keys.iter().take(usize::from(clear.lanes)) {
                    out.extend_from_slice(&key.to_le_bytes());
                }
            }
            Self::Ack { stream, count } => {
                out.push(ACK);
                out.extend_from_slice(&stream.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
            }
            Self::Done { stream, count } => {
                out.push(DONE);
                out.extend_from_slice(&stream.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
            }
            Self::Credit { n, slots } => {
                out.extend_from_slice(&[CREDIT, *n]);
                for slot in slots.iter().take(usize::from(*n)) {
                    out.extend_from_slice(&slot.to_le_bytes());
                }
            }
            Self::Close { stream, code } => {
                out.push(CLOSE);
                out.extend_from_slice(&stream.to_le_bytes());
                out.extend_from_slice(&code.to_le_bytes());
            }
            Self::TrunkHello { node } => {
                preface(out, TRUNK_HELLO);
                out.extend_from_slice(&node.to_le_bytes());
            }
            Self::TrunkReady { key, base, slots, classes, stride, chunk } => {
                out.push(TRUNK_READY);
                out.extend_from_slice(&key.to_le_bytes());
                out.extend_from_slice(&base.to_le_bytes());
                out.extend_from_slice(&slots.to_le_bytes());
                out.push(*classes);
                out.extend_from_slice(&stride.to_le_bytes());
                out.extend_from_slice(&chunk.to_le_bytes());
            }
        }
    }

    /// Decodes a frame of one message.
    ///
    /// # Errors
    /// Any [`WireError`]; [`WireError::Magic`] and [`WireError::Protocol`] only for the two messages that open a leg.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (msg, rest) = Self::decode_first(bytes)?;
        bound("bytes after a message", rest.len() as u64, 0)?;
        Ok(msg)
    }

    /// Decodes the first message of a frame, and answers what follows it.
    fn decode_first(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        bound("frame length", bytes.len() as u64, MAX_MESSAGE as u64)?;
        let mut r = Reader { bytes };
        let kind = r.u8()?;
        let msg = match kind {
            SETUP => Self::Setup(decode_setup(&mut r)?),
            READY => Self::Ready {
                stream: r.u32()?,
                key: r.u32()?,
                base: r.u64()?,
                slots: r.u16()?,
                stride: r.u32()?,
                chunk: r.u32()?,
            },
            REFUSED => {
                let stream = r.u32()?;
                let code = r.u16()?;
                let len = r.u16()?;
                bound("refusal text", len.into(), MAX_TEXT as u64)?;
                let text = String::from_utf8_lossy(r.slice(len.into())?).into_owned();
                Self::Refused { stream, why: Refusal { code, text } }
            }
            CTS => {
                let stream = r.u32()?;
                let (seq, base, capacity, lanes) = (r.u32()?, r.u64()?, r.u64()?, r.u8()?);
                bound("lanes", lanes.into(), MAX_LANES as u64)?;
                let mut keys = [0; MAX_LANES];
                for key in keys.iter_mut().take(usize::from(lanes)) {
                    *key = r.u32()?;
                }
                Self::Cts { stream, clear: Clear { seq, lanes, keys, base, capacity } }
            }
            DONE => Self::Done { stream: r.u32()?, count: r.u32()? },
            ACK => Self::Ack { stream: r.u32()?, count: r.u32()? },
            CREDIT => {
                let n = r.u8()?;
                bound("credits", u64::from(n), MAX_CREDITS as u64)?;
                let mut slots = [0; MAX_CREDITS];
                for slot in slots.iter_mut().take(usize::from(n)) {
                    *slot = r.u16()?;
                }
                Self::Credit { n, slots }
            }
            CLOSE => Self::Close { stream: r.u32()?, code: r.u16()? },
            TRUNK_HELLO => {
                preface_of(&mut r)?;
                Self::TrunkHello { node: r.u64()? }
            }
            TRUNK_READY => Self::TrunkReady {
                key: r.u32()?,
                base: r.u64()?,
                slots: r.u16()?,
                classes: r.u8()?,
                stride: r.u32()?,
                chunk: r.u32()?,
            },
            kind => return Err(WireError::Kind { kind }),
        };
        Ok((msg, r.bytes))
    }
}

/// The messages of a frame, in order; ends with the first error. An empty frame is one.
pub fn messages(frame: &[u8]) -> Messages<'_> {
    Messages { rest: Some(frame) }
}

/// See [`messages`].
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: Option<&'a [u8]>,
}

impl Iterator for Messages<'_> {
    type Item = Result<Msg, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        match Msg::decode_first(self.rest.take()?) {
            Ok((msg, rest)) => {
                self.rest = (!rest.is_empty()).then_some(rest);
                Some(Ok(msg))
            }
            Err(e) => Some(Err(e)),
        }
    }
}

fn decode_setup(r: &mut Reader<'_>) -> Result<Setup, WireError> {
    preface_of(r)?;
    let stream = r.u32()?;
    let conn = r.array()?;
    let token = r.array()?;
    let [lane, lanes, at, count] = r.array()?;
    let budget_ms = r.u32()?;
    bound("hops", u64::from(count), MAX_HOPS as u64)?;
    let mut hops = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let from = Ipv4Addr::from(r.array::<4>()?);
        let to = Ipv4Addr::from(r.array::<4>()?);
        hops.push(HopAddr { from, to, agent: r.u16()? });
    }
    if at >= count {
        return Err(WireError::Bounds { field: "hop", value: at.into(), limit: u64::from(count).saturating_sub(1) });
    }
    if lane >= lanes {
        return Err(WireError::Bounds { field: "lane", value: lane.into(), limit: u64::from(lanes).saturating_sub(1) });
    }
    Ok(Setup { stream, conn, token, lane, lanes, at, budget_ms, hops })
}

fn preface(out: &mut Vec<u8>, kind: u8) {
    out.push(kind);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&PROTOCOL.to_le_bytes());
}

fn preface_of(r: &mut Reader<'_>) -> Result<(), WireError> {
    let magic = r.u32()?;
    if magic != MAGIC {
        return Err(WireError::Magic { got: magic });
    }
    let theirs = r.u16()?;
    if theirs != PROTOCOL { Err(WireError::Protocol { theirs, ours: PROTOCOL }) } else { Ok(()) }
}

fn hop_count(hops: &[HopAddr]) -> u8 {
    hops.len().min(MAX_HOPS) as u8
}

fn clip(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn bound(field: &'static str, value: u64, limit: u64) -> Result<(), WireError> {
    if value > limit { Err(WireError::Bounds { field, value, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
