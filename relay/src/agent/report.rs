//! What can be read of an agent from outside its thread.

use std::net::Ipv4Addr;

use crate::engine::{PoolUse, TrunkUse};

/// A copy of an agent's counters and gauges at one moment.
#[derive(Clone, Debug)]
pub struct Report {
    /// Payload bytes forwarded for others.
    pub forwarded_bytes: u64,
    /// Chunks forwarded for others.
    pub forwarded_chunks: u64,
    /// Nanoseconds a chunk stays, at the 50th, 99th, 99.9th percentile and at most.
    pub residence_ns: [u64; 4],
    /// Chunks waiting in a stream's queue, at the 50th, 99th percentile and at most.
    pub queue: [u64; 3],
    /// Paths of others through this node.
    pub streams: usize,
    /// Closed legs that still send.
    pub lingering: usize,
    /// Slots.
    pub pool: PoolUse,
    /// Payload bytes sent over each link by this process.
    pub links: Vec<((Ipv4Addr, Ipv4Addr), u64)>,
    /// Trunks that stand, by their ports.
    pub trunks: Vec<TrunkUse>,
}
