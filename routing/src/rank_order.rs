//! Which rank runs on which node. NCCL's rings follow the ranks, so an order along the cables makes Ring direct.

mod search;

pub(crate) use search::best_ring;

use crate::{NodeId, Router, Topology};
use std::fmt;
use thiserror::Error;

/// A permutation: the node of every rank.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RankOrder {
    nodes: Vec<NodeId>,
}

/// Why a list is no order of ranks.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum OrderError {
    /// A word that names no node.
    #[error("{0:?} is neither a node's name nor the number of a node")]
    Unknown(String),
    /// A node that stands twice.
    #[error("node {0:?} stands twice in the rank order")]
    Twice(String),
    /// Nodes that do not stand in it.
    #[error("nodes missing from the rank order: {}", .0.join(", "))]
    Missing(Vec<String>),
}

impl RankOrder {
    /// Rank k on the k-th node of the topology.
    pub fn as_listed(topology: &Topology) -> Self {
        Self { nodes: topology.nodes().iter().map(|node| node.id).collect() }
    }

    /// The order with the fewest ring edges that need a relay, and the fewest hops in sum among those. Exact up to
    /// [`Self::EXACT_NODES`] nodes; beyond, a bounded search for a ring on cables alone, then local improvement.
    /// Deterministic, and independent of the order in which nodes were listed: it begins with the first node in
    /// natural order and, of both ways round, goes towards the lower neighbour.
    pub fn along_cables(topology: &Topology, router: &Router) -> Self {
        Self { nodes: best_ring(topology.canonical_order(), router) }
    }

    /// Up to this many nodes [`along_cables`](Self::along_cables) finds the best order there is.
    pub const EXACT_NODES: usize = 12;

    /// From nodes by rank.
    ///
    /// # Errors
    /// When it is not a permutation of the topology's nodes.
    pub fn from_nodes(topology: &Topology, nodes: Vec<NodeId>) -> Result<Self, OrderError> {
        let mut seen = vec![false; topology.nodes().len()];
        for &node in &nodes {
            match seen.get_mut(node.index()) {
                None => return Err(OrderError::Unknown(node.0.to_string())),
                Some(true) => return Err(OrderError::Twice(topology.name(node).to_owned())),
                Some(seen) => *seen = true,
            }
        }
        let missing = topology.nodes().iter().zip(seen).filter(|(_, seen)| !seen);
        let missing: Vec<_> = missing.map(|(node, _)| node.name.clone()).collect();
        if missing.is_empty() { Ok(Self { nodes }) } else { Err(OrderError::Missing(missing)) }
    }

    /// From a list with commas, of names or of places in the topology: `0,2,1,3`, `spark-a,spark-c,spark-b`.
    ///
    /// # Errors
    /// When it is not a permutation of the topology's nodes.
    pub fn parse(topology: &Topology, text: &str) -> Result<Self, OrderError> {
        let find = |word: &str| {
            let by_number = || word.parse::<u16>().ok().filter(|&at| usize::from(at) < topology.nodes().len());
            topology.node_by_name(word).or_else(|| by_number().map(NodeId))
        };
        let words = text.split(',').map(str::trim);
        let nodes = words.map(|word| find(word).ok_or_else(|| OrderError::Unknown(word.to_owned())));
        Self::from_nodes(topology, nodes.collect::<Result<_, _>>()?)
    }

    /// The node of every rank.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Ring edges (rank k to k+1, the last to the first) whose nodes share no link, as ranks.
    pub fn ring_edges_relayed(&self, router: &Router) -> Vec<(usize, usize)> {
        let n = self.nodes.len();
        // Two nodes make one edge, both ways; one node makes none.
        let edges = if n < 2 { 0 } else { n };
        let relayed = |&(a, b): &(usize, usize)| router.edge_up(self.nodes[a], self.nodes[b]).is_none();
        (0..edges).map(|rank| (rank, (rank + 1) % n)).filter(relayed).collect()
    }

    /// The order as numbers of nodes with commas, as `--rank-order` takes it.
    pub fn numbers(&self) -> String {
        self.nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for RankOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.numbers())
    }
}
