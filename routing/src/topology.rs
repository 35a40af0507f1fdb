//! The topology: nodes, ports, and the links and edges that follow from shared subnets.

use crate::check::{Places, check};
use crate::derive;
use crate::fnv::Fnv;
use crate::graph::Graph;
use crate::{
    AddressPlan, Edge, EdgeId, Link, LinkId, Node, NodeId, NodeSpec, Policy, Problem, Shape, ShapeError, Subnet,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// A fixed picture of the cluster. Cheap to share (`Arc`), never changed; what is down just now is told to
/// [`Router::avoiding`](crate::Router::avoiding) instead.
#[derive(Clone, Debug)]
pub struct Topology {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Link>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) switches: Vec<Subnet>,
    pub(crate) policy: Policy,
    pub(crate) by_name: HashMap<String, NodeId>,
    pub(crate) by_key: HashMap<u64, NodeId>,
    pub(crate) by_address: BTreeMap<Ipv4Addr, (NodeId, usize)>,
    pub(crate) by_pair: HashMap<[NodeId; 2], EdgeId>,
    pub(crate) by_node: Vec<Vec<LinkId>>,
    /// Nodes in natural order of their stable ids: the same on whatever node it is computed.
    pub(crate) canonical: Vec<NodeId>,
    pub(crate) graph: Graph,
}

impl Topology {
    /// The most nodes that a topology may have. A switched segment has a link for every two of its ports, so this
    /// also bounds the links to about half a million a rail.
    pub const MAX_NODES: usize = 1024;

    /// The most ports of a node that [`discovered`](Self::discovered) looks at: bounds what one node can make of
    /// everybody's memory.
    pub const MAX_DISCOVERED_PORTS: usize = 256;

    /// From nodes as a file or a caller describes them.
    ///
    /// # Errors
    /// Everything that is wrong, at once.
    pub fn from_nodes(nodes: Vec<NodeSpec>, switches: Vec<Subnet>, policy: Policy) -> Result<Self, Vec<Problem>> {
        let problems = check(&nodes, &switches, &policy, &Places::default());
        if problems.is_empty() { Ok(derive::build(nodes, switches, policy)) } else { Err(problems) }
    }

    /// From what nodes advertise about themselves while the picture may still be incomplete or wrong.
    ///
    /// Never fails: what cannot be used is left out (nodes with an id already seen, ports with an impossible or an
    /// ambiguous address, ports beyond the limit), and the problems are returned for the log. Nodes that are not connected stay, without
    /// routes. Any two ports of different nodes that share a subnet become a link, also where a copied address plan
    /// makes more of them than there are cables: the caller knows from its beacons which exist and rules the others
    /// out with [`Router::avoiding`](crate::Router::avoiding).
    pub fn discovered(nodes: Vec<NodeSpec>, switches: Vec<Subnet>, policy: Policy) -> (Self, Vec<Problem>) {
        let problems = check(&nodes, &switches, &policy, &Places::default());
        (derive::build(derive::usable(nodes), switches, policy), problems)
    }

    /// From the text of a topology file.
    ///
    /// # Errors
    /// Everything that is wrong, at once, in the order of the file.
    pub fn from_toml(text: &str) -> Result<Self, Vec<Problem>> {
        let read = crate::file::read(text);
        let mut problems = read.problems;
        // Where nodes are there and none could be read, that has been said.
        let unread = read.places.incomplete || problems.iter().any(|problem| problem.field == "node");
        if !read.nodes.is_empty() || !unread {
            problems.extend(check(&read.nodes, &read.switches, &read.policy, &read.places));
        }
        if problems.is_empty() {
            return Ok(derive::build(read.nodes, read.switches, read.policy));
        }
        problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        problems.dedup();
        Err(problems)
    }

    /// A generated shape of `nodes` nodes named node0, node1, …, with `rails` links an edge.
    ///
    /// # Errors
    /// When the shape cannot have that many nodes or rails, or the plan runs out of addresses.
    pub fn from_shape(shape: Shape, nodes: usize, rails: usize, plan: &AddressPlan) -> Result<Self, ShapeError> {
        let (specs, switches) = shape.nodes(nodes, rails, plan)?;
        Ok(derive::build(specs, switches, Policy::default()))
    }

    /// The text of a topology file from which [`from_toml`](Self::from_toml) makes an equal topology.
    pub fn to_toml(&self) -> String {
        crate::file::write(self)
    }

    /// The same nodes under another policy.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Nodes, indexed by [`NodeId`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Links, indexed by [`LinkId`]: by subnet, then by address.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Edges, indexed by [`EdgeId`]: by their first link.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Subnets declared as switched segments, ordered.
    pub fn switches(&self) -> &[Subnet] {
        &self.switches
    }

    /// What routes must respect.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Nodes in natural order of their stable ids (`node2` before `node10`): an order that does not depend on who
    /// listed them.
    pub fn canonical_order(&self) -> &[NodeId] {
        &self.canonical
    }

    /// The node of an id.
    ///
    /// # Panics
    /// If the id is of another, larger topology.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The link of an id.
    ///
    /// # Panics
    /// If the id is of another, larger topology.
    pub fn link(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }

    /// The edge of an id.
    ///
    /// # Panics
    /// If the id is of another, larger topology.
    pub fn edge(&self, id: EdgeId) -> &Edge {
        &self.edges[id.index()]
    }

    /// The name of a node, for messages; `?` for an id of another topology.
    pub fn name(&self, id: NodeId) -> &str {
        self.nodes.get(id.index()).map_or("?", |node| node.name.as_str())
    }

    /// The node with this name.
    pub fn node_by_name(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The node with this key, see [`Node::key`].
    pub fn node_by_key(&self, key: u64) -> Option<NodeId> {
        self.by_key.get(&key).copied()
    }

    /// The node that has this address on a port, and the port's index in [`Node::ports`].
    pub fn port_by_address(&self, address: Ipv4Addr) -> Option<(NodeId, usize)> {
        self.by_address.get(&address).copied()
    }

    /// The edge between two nodes, whichever way round.
    pub fn edge_between(&self, a: NodeId, b: NodeId) -> Option<EdgeId> {
        self.by_pair.get(&ordered(a, b)).copied()
    }

    /// The links of an edge in rail order; none for an id of another topology.
    pub fn links_of_edge(&self, edge: EdgeId) -> &[LinkId] {
        self.edges.get(edge.index()).map_or(&[], |edge| &edge.links)
    }

    /// All links that end on a node, ordered by link.
    pub fn links_of_node(&self, node: NodeId) -> &[LinkId] {
        self.by_node.get(node.index()).map_or(&[], Vec::as_slice)
    }

    /// The same with every port, and so every link, of this speed, in Mbit/s.
    #[must_use]
    pub fn with_speed(mut self, mbps: u32) -> Self {
        self.nodes.iter_mut().flat_map(|node| &mut node.ports).for_each(|port| port.speed_mbps = Some(mbps));
        self.links.iter_mut().for_each(|link| link.speed_mbps = Some(mbps));
        self
    }

    /// The link between the ports of these two addresses, whichever way round.
    pub fn link_between(&self, local: Ipv4Addr, remote: Ipv4Addr) -> Option<LinkId> {
        let (a, _) = self.port_by_address(local)?;
        let (b, _) = self.port_by_address(remote)?;
        self.links_of_edge(self.edge_between(a, b)?).iter().copied().find(|&id| {
            self.link(id).end_of(a).map(|end| end.address) == Some(local)
                && self.link(id).end_of(b).map(|end| end.address) == Some(remote)
        })
    }

    /// Ports on which no other node is to be found, as node and index of port.
    pub fn unlinked_ports(&self) -> Vec<(NodeId, usize)> {
        let mut linked = vec![false; self.by_address.len()];
        let addresses: Vec<_> = self.by_address.keys().copied().collect();
        for end in self.links.iter().flat_map(|link| &link.ends) {
            if let Ok(at) = addresses.binary_search(&end.address) {
                linked[at] = true;
            }
        }
        self.by_address.values().zip(linked).filter(|(_, linked)| !linked).map(|(&port, _)| port).collect()
    }

    /// A hash of all that the topology says, the same for equal files in another order: two nodes compare it to know
    /// whether they hold the same file. Not a defence against a forger.
    pub fn hash(&self) -> u64 {
        let mut hash = Fnv::new();
        hash.bytes(b"nccl-mesh topology 1");
        let mut nodes: Vec<_> = self.nodes.iter().collect();
        nodes.sort_by(|a, b| a.stable_id.cmp(&b.stable_id));
        for node in nodes {
            text(&mut hash, 1, &node.stable_id);
            text(&mut hash, 2, &node.name);
            text(&mut hash, 3, &node.control.map_or_else(String::new, |address| address.to_string()));
            hash.bytes(&[u8::from(node.relay)]);
            for port in &node.ports {
                text(&mut hash, 4, &port.device);
                hash.bytes(&port.address.octets()).bytes(&[port.prefix]);
                hash.bytes(&port.speed_mbps.unwrap_or(0).to_le_bytes()).bytes(&port.mtu.unwrap_or(0).to_le_bytes());
            }
        }
        for switch in &self.switches {
            hash.bytes(&[5]).bytes(&switch.network().octets()).bytes(&[switch.prefix()]);
        }
        hash.bytes(&[6]).bytes(&self.policy.max_relays.map_or(u32::MAX, u32::from).to_le_bytes());
        text(&mut hash, 7, self.policy.differences.name());
        // In whatever order they are listed, as the first of two for one pair does not occur in a file.
        for route in self.policy.routes.iter().collect::<BTreeSet<_>>() {
            hash.bytes(&[8]);
            route.names().for_each(|name| text(&mut hash, 9, name));
        }
        hash.finish()
    }
}

impl PartialEq for Topology {
    /// Equal when they say the same in the same order of nodes; all else follows from that.
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes && self.switches == other.switches && self.policy == other.policy
    }
}

/// Feeds a field with its tag and length, so that no two different records feed the same bytes.
fn text(hash: &mut Fnv, tag: u8, value: &str) {
    hash.bytes(&[tag]).bytes(&(value.len() as u64).to_le_bytes()).bytes(value.as_bytes());
}

/// The pair with the lower id first.
pub(crate) const fn ordered(a: NodeId, b: NodeId) -> [NodeId; 2] {
    if a.0 <= b.0 { [a, b] } else { [b, a] }
}
