//! The two ends of a leg and what travels between them.
//!
//! In each direction messages keep their order and writes keep theirs; messages may overtake writes that were posted before them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use mesh_relay::engine::{LegId, Time};
use mesh_relay::wire::HEADER_BYTES;

use super::memory::Payload;

/// One end of one pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PipeEnd {
    pub(super) pipe: usize,
    pub(super) side: usize,
}

impl PipeEnd {
    pub(super) fn peer(self) -> Self {
        Self { pipe: self.pipe, side: 1 - self.side }
    }
}

/// Whose the end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Engine,
    Sender { conn: usize, lane: u8 },
    Receiver { conn: usize },
}

/// What a key gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// A run of the node's pool.
    Slots { first: u32, count: u16, stride: u32 },
    /// A receive buffer.
    Buffer { conn: usize, seq: u32 },
}

/// A one-sided write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) key: u32,
    pub(super) offset: u64,
    pub(super) header: Option<[u8; HEADER_BYTES]>,
    pub(super) payload: Payload,
    pub(super) imm: u32,
    /// Reported when the memory is read no more.
    pub(super) id: u64,
    /// When its last byte has left.
    pub(super) out_at: Time,
}

impl Write {
    /// Header and payload.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.payload.len) + self.header.map_or(0, |h| h.len() as u64)
    }
}

#[derive(Debug)]
pub(super) struct Side {
    pub(super) node: usize,
    pub(super) leg: LegId,
    pub(super) address: Ipv4Addr,
    pub(super) owner: Owner,
    pub(super) open: bool,
    pub(super) exposed: BTreeMap<u32, Region>,
    /// Key of the run that the engine exposed, or 0.
    pub(super) run_key: u32,
    /// Slots of the node's pool that this end reads.
    pub(super) reads: Vec<u32>,
    /// It was closed at once: what had not left by then never arrives.
    pub(super) cut: Option<Time>,
    pub(super) trunk: bool,
    /// Arrivals of what was sent last, to keep the order.
    pub(super) last_message: Time,
    pub(super) last_write: Time,
    pub(super) last_written: Time,
}

impl Side {
    pub(super) fn new(node: usize, leg: LegId, address: Ipv4Addr, from: Time) -> Self {
        Self {
            node,
            leg,
            address,
            owner: Owner::Engine,
            open: true,
            exposed: BTreeMap::new(),
            run_key: 0,
            reads: Vec::new(),
            cut: None,
            trunk: false,
            last_message: from,
            last_write: from,
            last_written: from,
        }
    }
}

/// Two ends.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) sides: [Side; 2],
}
