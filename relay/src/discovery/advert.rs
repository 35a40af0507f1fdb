//! Link-state advertisements: what a node says to all about itself, its ports and its adjacencies, as data and as bytes.
//!
//! Must not know who holds an advertisement, or when it dies. Pure; runs on the thread of the node's owner.

use std::net::Ipv4Addr;

use mesh_routing::{NodeSpec, Subnet};

use super::bytes::{WireError, bound, put_text};
use crate::reader::Reader;

/// Longest id and longest name, in bytes.
pub const MAX_TEXT: usize = 64;
/// Longest label of a device, in bytes.
pub const MAX_DEVICE: usize = 24;
/// Most ports of a node.
pub const MAX_PORTS: usize = 16;
/// Most adjacencies of a node: one for each port at a cable, the rest for neighbours on switched segments.
pub const MAX_ADJACENCIES: usize = 32;
/// Most processes of jobs that a node tells of.
pub const MAX_AGENTS: usize = 8;
/// Longest encoded advertisement, in bytes: any advertisement fits into one datagram.
pub const MAX_ADVERT: usize = 2 * (1 + MAX_TEXT)
    + 8
    + 4
    + 1
    + 4
    + (1 + MAX_PORTS * (16 + MAX_DEVICE))
    + (1 + MAX_ADJACENCIES * 16)
    + (1 + MAX_AGENTS * 8);

const _: () = assert!(MAX_PORTS <= MAX_ADJACENCIES, "each cable has a place");

const RELAY: u8 = 1;
const CONFLICT: u8 = 2;
const DAEMON: u8 = 4;

const CARRIER: u8 = 1;
const SWITCHED: u8 = 2;

/// How new an advertisement is. Compared with [`newer_than`](Self::newer_than) alone: numbers may wrap, so this is no order of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Which life of the node.
    pub incarnation: u64,
    /// Counts the advertisements of a life.
    pub seq: u32,
    /// A sum of all bytes: two nodes with one id may use equal numbers, and then all must still keep the same one.
    pub sum: u32,
}

impl Version {
    /// Whether this replaces the other. Of two that differ exactly one replaces the other.
    pub const fn newer_than(self, other: Self) -> bool {
        if self.incarnation != other.incarnation {
            after_64(self.incarnation, other.incarnation)
        } else if self.seq != other.seq {
            after(self.seq, other.seq)
        } else {
            self.sum > other.sum
        }
    }
}

/// Whether `a` comes after `b` on a circle of 2^32 numbers; opposite points are ordered by value.
pub(super) const fn after(a: u32, b: u32) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && (ahead < 1 << 31 || (ahead == 1 << 31 && a > b))
}

/// The same for 64 bits.
pub(super) const fn after_64(a: u64, b: u64) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && (ahead < 1 << 63 || (ahead == 1 << 63 && a > b))
}

/// A port as its node advertises it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertPort {
    /// Address.
    pub address: Ipv4Addr,
    /// Prefix length, 1 to 31.
    pub prefix: u8,
    /// Whether it has carrier.
    pub up: bool,
    /// Whether its subnet is declared to be a switched segment.
    pub switched: bool,
    /// Speed in Mbit/s, 0 if not known.
    pub speed_mbps: u32,
    /// MTU in bytes, 0 if not known.
    pub mtu: u32,
    /// Which rail its owner takes it for, 0 if it does not say.
    pub rail: u8,
    /// Name of the device, for people.
    pub device: String,
}

/// A neighbour that a node hears on a port and is heard by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Adjacency {
    /// The node's own port.
    pub local: Ipv4Addr,
    /// Key of the neighbour.
    pub node: u64,
    /// The neighbour's port.
    pub remote: Ipv4Addr,
}

/// A process of a node that belongs to a job, and relays for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentAt {
    /// TCP port that it listens on, the same on all ports of the node.
    pub port: u16,
    /// The job that it belongs to.
    pub job: u32,
    /// Its rank in the job, [`NO_RANK`] if that is not known.
    pub rank: u16,
}

/// The rank of a process of which it is not known.
pub const NO_RANK: u16 = u16::MAX;

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advert {
    /// Stable id; its hash is the node's key.
    pub id: String,
    /// Name, for people.
    pub name: String,
    /// Which life of the node.
    pub incarnation: u64,
    /// Counts the advertisements of a life.
    pub seq: u32,
    /// Whether traffic of others may pass.
    pub relay: bool,
    /// Another node uses the same id: none of the two is to be used.
    pub conflict: bool,
    /// The agent on the port that all nodes share is a daemon: it outlives every job.
    pub daemon: bool,
    /// What the node can do beyond the protocol's version.
    pub features: u32,
    /// Its ports by address, each address once.
    pub ports: Vec<AdvertPort>,
    /// Its adjacencies in order, each once; a port that is not on a switched segment has one at most.
    pub adjacencies: Vec<Adjacency>,
    /// Its processes of jobs, in order, each once.
    pub agents: Vec<AgentAt>,
}

/// The key that names a node between nodes: [`mesh_routing::Node::key`].
pub fn key_of(id: &str) -> u64 {
    NodeSpec::new(id).key()
}

/// The subnet of a port, if a port may have this address and prefix length.
pub(super) fn port_subnet(address: Ipv4Addr, prefix: u8) -> Option<Subnet> {
    let names_none =
        address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast();
    Subnet::of(address, prefix).filter(|subnet| !names_none && subnet.is_host(address))
}

/// Whether two ports may be the ends of one link: each lies in the other's subnet, and they are not one address.
pub(super) fn share(a: (Ipv4Addr, Subnet), b: (Ipv4Addr, Subnet)) -> bool {
    a.0 != b.0 && a.1.is_host(b.0) && b.1.is_host(a.0)
}

impl Advert {
    /// Whether it says the same about the node, at whatever time it was said.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.id == other.id
            && self.name == other.name
            && (self.relay, self.conflict, self.daemon) == (other.relay, other.conflict, other.daemon)
            && (self.features, &self.agents) == (other.features, &other.agents)
            && self.ports == other.ports
            && self.adjacencies == other.adjacencies
    }

    /// As bytes. Texts and lists must be within their bounds, which [`super::Discovery`] sees to.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        put_text(&mut out, &self.id);
        put_text(&mut out, &self.name);
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.push(
            (u8::from(self.relay) * RELAY) | (u8::from(self.conflict) * CONFLICT) | (u8::from(self.daemon) * DAEMON),
        );
        out.extend_from_slice(&self.features.to_le_bytes());
        out.push(self.ports.len() as u8);
        for port in &self.ports {
            out.extend_from_slice(&port.address.octets());
            let flags = (u8::from(port.up) * CARRIER) | (u8::from(port.switched) * SWITCHED);
            out.extend_from_slice(&[port.prefix, flags]);
            out.extend_from_slice(&port.speed_mbps.to_le_bytes());
            out.extend_from_slice(&port.mtu.to_le_bytes());
            out.push(port.rail);
            put_text(&mut out, &port.device);
        }
        out.push(self.adjacencies.len() as u8);
        for adjacency in &self.adjacencies {
            out.extend_from_slice(&adjacency.local.octets());
            out.extend_from_slice(&adjacency.node.to_le_bytes());
            out.extend_from_slice(&adjacency.remote.octets());
        }
        out.push(self.agents.len() as u8);
        for agent in &self.agents {
            out.extend_from_slice(&agent.port.to_le_bytes());
            out.extend_from_slice(&agent.job.to_le_bytes());
            out.extend_from_slice(&agent.rank.to_le_bytes());
        }
        out
    }

    /// Whose it is and how new: enough to drop a copy of what is held already.
    pub(super) fn peek(body: &[u8]) -> Result<(u64, Version), WireError> {
        let mut r = Reader { bytes: body };
        let id = r.text("id", MAX_TEXT, false)?;
        r.text("name", MAX_TEXT, false)?;
        Ok((key_of(id), Version { incarnation: r.u64()?, seq: r.u32()?, sum: sum(body) }))
    }

    /// From bytes. Only what [`encode`](Self::encode) writes is taken, so equal contents have equal bytes.
    ///
    /// # Errors
    /// Any [`WireError`] but those about the datagram's head.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        bound("advertisement length", body.len() as u64, MAX_ADVERT as u64)?;
        let mut r = Reader { bytes: body };
        let id = r.text("id", MAX_TEXT, false)?.to_owned();
        let name = r.text("name", MAX_TEXT, false)?.to_owned();
        let (incarnation, seq, flags, features) = (r.u64()?, r.u32()?, r.u8()?, r.u32()?);
        bound("flags", flags.into(), (RELAY | CONFLICT | DAEMON).into())?;
        let mut ports: Vec<AdvertPort> = Vec::new();
        for _ in 0..r.count("ports", MAX_PORTS)? {
            let port = decode_port(&mut r)?;
            if ports.last().is_some_and(|last| last.address >= port.address) {
                return Err(WireError::Order { field: "ports" });
            }
            ports.push(port);
        }
        let mut adjacencies: Vec<Adjacency> = Vec::new();
        for _ in 0..r.count("adjacencies", MAX_ADJACENCIES)? {
            let adjacency = Adjacency { local: r.address()?, node: r.u64()?, remote: r.address()? };
            let port = ports.iter().find(|port| port.address == adjacency.local);
            let follows = |port: &AdvertPort| match adjacencies.last() {
                Some(last) if port.switched => *last < adjacency,
                Some(last) => last.local < adjacency.local,
                None => true,
            };
            if !port.is_some_and(follows) {
                return Err(WireError::Order { field: "adjacencies" });
            }
            adjacencies.push(adjacency);
        }
        let mut agents: Vec<AgentAt> = Vec::new();
        for _ in 0..r.count("agents", MAX_AGENTS)? {
            let agent = AgentAt { port: r.u16()?, job: r.u32()?, rank: r.u16()? };
            if agents.last().is_some_and(|last| *last >= agent) {
                return Err(WireError::Order { field: "agents" });
            }
            agents.push(agent);
        }
        r.end()?;
        let (relay, conflict, daemon) = (flags & RELAY != 0, flags & CONFLICT != 0, flags & DAEMON != 0);
        Ok(Self { id, name, incarnation, seq, relay, conflict, daemon, features, ports, adjacencies, agents })
    }
}

fn decode_port(r: &mut Reader<'_>) -> Result<AdvertPort, WireError> {
    let (address, prefix, carrier) = (r.address()?, r.u8()?, r.u8()?);
    if port_subnet(address, prefix).is_none() {
        return Err(WireError::Port { address, prefix });
    }
    bound("carrier", carrier.into(), (CARRIER | SWITCHED).into())?;
    let (up, switched) = (carrier & CARRIER != 0, carrier & SWITCHED != 0);
    let (speed_mbps, mtu, rail) = (r.u32()?, r.u32()?, r.u8()?);
    let device = r.text("device", MAX_DEVICE, true)?.to_owned();
    Ok(AdvertPort { address, prefix, up, switched, speed_mbps, mtu, rail, device })
}

/// A sum over bytes that differs when they do, except by chance or intent.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    (hash >> 32) as u32
}

/// Spreads every bit over all others (the finish of SplitMix64).
pub(super) const fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
