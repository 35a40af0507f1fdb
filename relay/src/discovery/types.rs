//! The face of discovery: configuration, ports, actions.
//!
//! Must not know how anything is found out. Plain data; handed between the owner's thread and the machine.

use std::net::Ipv4Addr;

use thiserror::Error;

use super::advert::{MAX_DEVICE, MAX_TEXT};
use super::bytes::is_plain;
use super::event::Event;
pub use crate::engine::{MS, Time};

/// A port of this node, named by the driver (on Linux, the interface's index does).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// What the driver knows of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// IPv4 address.
    pub address: Ipv4Addr,
    /// Prefix length, 1 to 31.
    pub prefix: u8,
    /// RDMA device or netdev: a label for people. Cut to [`MAX_DEVICE`] bytes.
    pub device: String,
    /// Speed in Mbit/s, 0 if not known.
    pub speed_mbps: u32,
    /// MTU in bytes, 0 if not known.
    pub mtu: u32,
    /// Which rail it is taken for, 0 to say nothing: ports are matched by subnet, never by this.
    pub rail: u8,
    /// Whether its subnet is declared to be a switched segment: any two ports there are adjacent. Otherwise it is a cable's.
    pub switched: bool,
}

impl PortInfo {
    /// A port of which no more is known.
    pub fn new(device: impl Into<String>, address: Ipv4Addr, prefix: u8) -> Self {
        Self { address, prefix, device: device.into(), speed_mbps: 0, mtu: 0, rail: 0, switched: false }
    }
}

/// Something happened to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortChange {
    /// It is there with carrier, or has changed.
    Up(PortId, PortInfo),
    /// It is there without carrier.
    Dark(PortId, PortInfo),
    /// It has lost its carrier, or was set down. It stays a port of the node.
    Down(PortId),
    /// It is no port of the node any more.
    Gone(PortId),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum To {
    /// To one address in the port's subnet.
    Address(Ipv4Addr),
    /// To all on the link: multicast that does not leave it, or broadcast.
    Everyone,
}

/// What the driver must do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a datagram from a port. May be lost.
    Send {
        /// From which port.
        port: PortId,
        /// To whom.
        to: To,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// [`Discovery::view`](super::Discovery::view) is another one now.
    Changed,
    /// Something worth a line in the log.
    Note(Event),
}

/// Intervals, in nanoseconds. The same on all nodes, or nodes that wait longer take others for dead that do not speak as often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// From one beacon to the next.
    pub hello: Time,
    /// A beacon that has not come so long after it should have was lost, and is asked for.
    pub late: Time,
    /// From one such question to the next.
    pub ask: Time,
    /// Silence after which a neighbour is gone.
    pub dead: Time,
    /// After a change of what is held, its summary goes to the neighbours within so long: what was lost on the way is then sent again.
    pub repair: Time,
    /// From one advertisement of a node that does not change to the next.
    pub refresh: Time,
    /// Age at which an advertisement is dropped; at most 65 s.
    pub age: Time,
    /// Two nodes with one id: from one advertisement of the conflict to the next.
    pub conflict: Time,
    /// Silence of the other one after which the conflict is over, and within which a second answer makes one.
    pub settled: Time,
    /// Shortest time between two advertisements of this node: what changes meanwhile goes out together.
    pub gap: Time,
    /// Shortest time between two beacons on a port.
    pub beacon_gap: Time,
    /// Shortest time between two changes of the view: while much comes in, what is computed from it is not computed for each datagram.
    pub view_gap: Time,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            hello: 200 * MS,
            late: 50 * MS,
            ask: 25 * MS,
            dead: 380 * MS,
            repair: 25 * MS,
            refresh: 9000 * MS,
            age: 30_000 * MS,
            conflict: 3000 * MS,
            settled: 10_000 * MS,
            gap: 20 * MS,
            beacon_gap: 10 * MS,
            view_gap: 5 * MS,
        }
    }
}

/// What the machine must know of its node; fixed for its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Stable id, 1 to [`MAX_TEXT`] bytes, unique in the cluster.
    pub id: String,
    /// Name for people, 1 to [`MAX_TEXT`] bytes.
    pub name: String,
    /// A number that grows with every start of the node's agent, such as the time of the start in nanoseconds.
    pub life: u64,
    /// Whether traffic of others may pass.
    pub relay: bool,
    /// Whether the node's agent is a daemon, which outlives every job.
    pub daemon: bool,
    /// What the node can do beyond the protocol's version, a bit each.
    pub features: u32,
    /// Most nodes that are remembered, this one included. Bounds the memory.
    pub max_nodes: usize,
    /// Intervals.
    pub timers: Timers,
}

impl Config {
    /// A node that relays, with the default bounds and intervals.
    pub fn new(id: impl Into<String>, name: impl Into<String>, life: u64) -> Self {
        let (id, name, timers) = (id.into(), name.into(), Timers::default());
        Self { id, name, life, relay: true, daemon: false, features: 0, max_nodes: 1024, timers }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for (field, text) in [("id", &self.id), ("name", &self.name)] {
            if text.is_empty() || text.len() > MAX_TEXT || !is_plain(text) {
                return Err(ConfigError::Text { field, text: text.clone() });
            }
        }
        let t = &self.timers;
        let sane = t.hello >= MS
            && t.ask >= MS
            && t.dead > t.hello + t.late
            && t.refresh > t.gap
            && t.age > t.refresh
            && t.age <= 65_000 * MS;
        if sane { Ok(()) } else { Err(ConfigError::Timers) }
    }
}

/// Why there can be no such node.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A text that others could not take.
    #[error("{text:?} is no {field} of a node; use 1 to {MAX_TEXT} bytes without commas or control characters")]
    Text {
        /// Which text.
        field: &'static str,
        /// What it is.
        text: String,
    },
    /// Intervals that cannot work together.
    #[error(
        "the intervals of discovery do not fit one another: hello + late < dead, gap < refresh < age, age at most 65 s"
    )]
    Timers,
}

/// The label as it is advertised: without what does not fit.
pub(super) fn label(device: &str) -> String {
    let mut label: String = device.chars().map(|c| if c.is_control() || c == ',' { '_' } else { c }).collect();
    while label.len() > MAX_DEVICE {
        label.pop();
    }
    label
}
