//! From descriptions of nodes to a topology: derives links and edges from shared subnets.

use crate::graph::Graph;
use crate::natural::natural_cmp;
use crate::topology::ordered;
use crate::{Edge, EdgeId, End, Link, LinkId, Node, NodeId, NodeSpec, Policy, Subnet, Topology};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// Leaves out what no topology can hold.
pub(crate) fn usable(mut nodes: Vec<NodeSpec>) -> Vec<NodeSpec> {
    let mut keys = BTreeSet::new();
    nodes.retain(|node| keys.insert(node.key()));
    nodes.truncate(Topology::MAX_NODES);
    nodes.iter_mut().for_each(|node| node.ports.truncate(Topology::MAX_DISCOVERED_PORTS));
    let mut count: HashMap<Ipv4Addr, usize> = HashMap::new();
    for port in nodes.iter().flat_map(|node| &node.ports) {
        *count.entry(port.address).or_default() += 1;
    }
    for node in &mut nodes {
        // Of two ports with one address neither can be told from the other: neither is used.
        node.ports.retain(|port| {
            let sound = port.subnet().is_some_and(|subnet| subnet.is_host(port.address));
            sound && usable_address(port.address) && count[&port.address] == 1
        });
    }
    nodes
}

/// Builds the topology. Ports must be sound and addresses unique, which [`check`](crate::check::check) or [`usable`] has seen to.
pub(crate) fn build(specs: Vec<NodeSpec>, mut switches: Vec<Subnet>, policy: Policy) -> Topology {
    switches.sort_unstable();
    switches.dedup();
    let nodes: Vec<Node> = specs.into_iter().enumerate().map(|(index, spec)| finish(NodeId::at(index), spec)).collect();
    let mut by_address = BTreeMap::new();
    let mut subnets: BTreeMap<Subnet, Vec<End>> = BTreeMap::new();
    for node in &nodes {
        for (port, spec) in node.ports.iter().enumerate() {
            by_address.insert(spec.address, (node.id, port));
            if let Some(subnet) = spec.subnet() {
                subnets.entry(subnet).or_default().push(End { node: node.id, port, address: spec.address });
            }
        }
    }
    let (links, edges) = join(&nodes, &switches, subnets);
    let mut canonical: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    canonical.sort_by(|&a, &b| natural_cmp(&nodes[a.index()].stable_id, &nodes[b.index()].stable_id));
    let mut by_node = vec![Vec::new(); nodes.len()];
    for link in &links {
        link.ends.iter().for_each(|end| by_node[end.node.index()].push(link.id));
    }
    let mut by_name = HashMap::new();
    for node in &nodes {
        by_name.entry(node.name.clone()).or_insert(node.id);
    }
    Topology {
        by_name,
        by_key: nodes.iter().map(|node| (node.key, node.id)).collect(),
        by_address,
        by_pair: edges.iter().map(|edge| (edge.nodes, edge.id)).collect(),
        by_node,
        canonical,
        graph: Graph::new(nodes.len(), &edges),
        nodes,
        links,
        edges,
        switches,
        policy,
    }
}

fn finish(id: NodeId, mut spec: NodeSpec) -> Node {
    spec.ports.sort_unstable();
    let (stable_id, key) = (spec.stable_id().to_owned(), spec.key());
    Node { id, key, stable_id, name: spec.name, control: spec.control, relay: spec.relay, ports: spec.ports }
}

/// A link for every two ports of different nodes in one subnet, and an edge for every two nodes with a link.
fn join(nodes: &[Node], switches: &[Subnet], subnets: BTreeMap<Subnet, Vec<End>>) -> (Vec<Link>, Vec<Edge>) {
    let mut links: Vec<Link> = Vec::new();
    let mut edges: Vec<Edge> = Vec::new();
    let mut by_pair: HashMap<[NodeId; 2], EdgeId> = HashMap::new();
    for (subnet, mut ends) in subnets {
        ends.sort_unstable_by_key(|end| end.address);
        for (first, &a) in ends.iter().enumerate() {
            for &b in ends[first + 1..].iter().filter(|end| end.node != a.node) {
                let pair = ordered(a.node, b.node);
                let edge = *by_pair.entry(pair).or_insert_with(|| {
                    edges.push(Edge { id: EdgeId::at(edges.len()), nodes: pair, links: Vec::new() });
                    EdgeId::at(edges.len() - 1)
                });
                let id = LinkId::at(links.len());
                edges[edge.index()].links.push(id);
                let speed = |end: End| nodes[end.node.index()].ports[end.port].speed_mbps;
                let speed_mbps = speed(a).into_iter().chain(speed(b)).min();
                links.push(Link { id, edge, subnet, ends: [a, b], speed_mbps, switched: switches.contains(&subnet) });
            }
        }
    }
    (links, edges)
}

/// Neither unspecified, loopback, multicast nor broadcast: those name no port.
pub(crate) fn usable_address(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || address.is_broadcast())
}
