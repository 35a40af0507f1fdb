//! What breaks if a link or a node does.

use crate::{LinkId, NodeId, Router, Topology};

/// What an outage does to routes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Impact {
    /// Pairs that had a route and have none; pairs with a node that is itself down are not among them.
    pub cut: Vec<(NodeId, NodeId)>,
    /// Pairs whose route becomes longer, with the hops before and after.
    pub longer: Vec<(NodeId, NodeId, usize, usize)>,
}

/// Links each of which is the only one between two parts of the cabling, in order. A second rail, or a second way
/// round, keeps a link from being one. Looks at cables alone: see [`impact`] for what relays and policy make of it.
pub fn bridges(topology: &Topology) -> Vec<LinkId> {
    let mut links = Vec::new();
    for edge in topology.graph.bridges() {
        if let [only] = topology.links_of_edge(edge) {
            links.push(*only);
        }
    }
    links.sort_unstable();
    links
}

/// Nodes without which the cabling of the rest falls apart, in order.
pub fn articulation_nodes(topology: &Topology) -> Vec<NodeId> {
    topology.graph.articulation_nodes()
}

/// What changes when these links and nodes are down, by the routes that relays and policy allow.
pub fn impact(topology: &Topology, links: &[LinkId], nodes: &[NodeId]) -> Impact {
    impact_on(&Router::new(topology), topology, links, nodes)
}

/// As [`impact`], against a router that already avoids nothing: for many outages in turn.
pub fn impact_on(whole: &Router, topology: &Topology, links: &[LinkId], nodes: &[NodeId]) -> Impact {
    let broken = Router::avoiding(topology, links, nodes);
    let mut impact = Impact::default();
    for (at, &a) in broken.order.iter().enumerate() {
        let (before, after) = (whole.distances(a), broken.distances(a));
        for &b in &broken.order[at + 1..] {
            match (before[b.index()], after[b.index()]) {
                (Some(_), None) => impact.cut.push((a, b)),
                (Some(was), Some(is)) if is > was => impact.longer.push((a, b, was, is)),
                _ => {}
            }
        }
    }
    impact
}
