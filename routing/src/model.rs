//! What a topology consists of: nodes with ports, links between ports, edges between nodes.

use crate::fnv::fnv1a;
use crate::{EdgeId, LinkId, NodeId, Subnet};
use std::net::Ipv4Addr;

/// A node as its owner describes it; [`Topology`](crate::Topology) turns it into a [`Node`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// Unique name, for people.
    pub name: String,
    /// Unique stable id; the name if `None`.
    pub id: Option<String>,
    /// Management address.
    pub control: Option<Ipv4Addr>,
    /// Whether traffic of others may pass.
    pub relay: bool,
    /// Ports, in any order.
    pub ports: Vec<PortSpec>,
}

impl NodeSpec {
    /// A node that relays, without ports and without a management address.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), id: None, control: None, relay: true, ports: Vec::new() }
    }

    /// The id that holds: the given one, else the name.
    pub fn stable_id(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.name)
    }

    /// The key that belongs to the stable id, see [`Node::key`].
    pub fn key(&self) -> u64 {
        fnv1a(self.stable_id())
    }
}

/// A port as its owner describes it. The same type serves in a finished topology.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PortSpec {
    /// IPv4 address.
    pub address: Ipv4Addr,
    /// Prefix length, 1 to 31.
    pub prefix: u8,
    /// RDMA device or netdev: a label, ports are matched by address.
    pub device: String,
    /// Expected speed in Mbit/s.
    pub speed_mbps: Option<u32>,
    /// Expected MTU in bytes.
    pub mtu: Option<u32>,
}

/// One RDMA device port (or netdev) with its address.
pub type Port = PortSpec;

impl PortSpec {
    /// A port without expectations.
    pub fn new(device: impl Into<String>, address: Ipv4Addr, prefix: u8) -> Self {
        Self { address, prefix, device: device.into(), speed_mbps: None, mtu: None }
    }

    /// The subnet of the port; `None` if the prefix length is out of range, which no port of a topology has.
    pub fn subnet(&self) -> Option<Subnet> {
        Subnet::of(self.address, self.prefix)
    }
}

/// One host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its place in the topology.
    pub id: NodeId,
    /// Unique name, for people.
    pub name: String,
    /// Unique stable id; by default the name.
    pub stable_id: String,
    /// FNV-1a, 64 bits, of the stable id: what names the node between nodes.
    pub key: u64,
    /// Management address.
    pub control: Option<Ipv4Addr>,
    /// Whether traffic of others may pass.
    pub relay: bool,
    /// Ports, ordered by address.
    pub ports: Vec<Port>,
}

/// One end of a link: a port of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    /// The node.
    pub node: NodeId,
    /// Index into [`Node::ports`].
    pub port: usize,
    /// The port's address.
    pub address: Ipv4Addr,
}

/// Two ports of different nodes that share a subnet: one rail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its place in the topology.
    pub id: LinkId,
    /// The edge it belongs to.
    pub edge: EdgeId,
    /// The shared subnet.
    pub subnet: Subnet,
    /// The two ends, the lower address first.
    pub ends: [End; 2],
    /// Expected speed in Mbit/s: the lower of the two ports', where given.
    pub speed_mbps: Option<u32>,
    /// Whether the subnet is a switched segment, so that other links may share these ports.
    pub switched: bool,
}

impl Link {
    /// The end on this node, if it has one.
    pub fn end_of(&self, node: NodeId) -> Option<&End> {
        self.ends.iter().find(|end| end.node == node)
    }

    /// The end that is not on this node.
    pub fn other_end(&self, node: NodeId) -> &End {
        if self.ends[0].node == node { &self.ends[1] } else { &self.ends[0] }
    }
}

/// All links between the same two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// Its place in the topology.
    pub id: EdgeId,
    /// The two nodes, the lower id first.
    pub nodes: [NodeId; 2],
    /// Its links in rail order, which is the order of their subnets; never empty.
    pub links: Vec<LinkId>,
}

impl Edge {
    /// The node at the other side.
    pub fn other(&self, node: NodeId) -> NodeId {
        if self.nodes[0] == node { self.nodes[1] } else { self.nodes[0] }
    }
}
