//! The graph of nodes and edges on petgraph. Its indices equal ours by construction and never leave this crate.

use crate::{Edge, EdgeId, NodeId};
use petgraph::algo::{articulation_points::articulation_points, bridges::bridges, connected_components};
use petgraph::graph::{NodeIndex, UnGraph};
use petgraph::visit::EdgeRef;

/// Nodes and edges, without what hangs on them.
#[derive(Clone, Debug)]
pub(crate) struct Graph(UnGraph<(), EdgeId>);

impl Graph {
    /// A graph of `nodes` nodes and the given edges.
    pub(crate) fn new<'a>(nodes: usize, edges: impl IntoIterator<Item = &'a Edge>) -> Self {
        let mut graph = UnGraph::default();
        for _ in 0..nodes {
            graph.add_node(());
        }
        for edge in edges {
            graph.add_edge(index(edge.nodes[0]), index(edge.nodes[1]), edge.id);
        }
        Self(graph)
    }

    /// Neighbours of a node with the edge that leads there, in no promised order.
    pub(crate) fn neighbours(&self, node: NodeId) -> impl Iterator<Item = (NodeId, EdgeId)> + '_ {
        self.0.edges(index(node)).map(move |edge| {
            let other = if edge.source() == index(node) { edge.target() } else { edge.source() };
            (NodeId::at(other.index()), *edge.weight())
        })
    }

    /// How many pieces the graph falls into.
    pub(crate) fn components(&self) -> usize {
        connected_components(&self.0)
    }

    /// Edges without which the graph falls into more pieces, ordered.
    pub(crate) fn bridges(&self) -> Vec<EdgeId> {
        let mut found: Vec<_> = bridges(&self.0).map(|edge| *edge.weight()).collect();
        found.sort_unstable();
        found
    }

    /// Nodes without which the rest falls into more pieces, ordered.
    pub(crate) fn articulation_nodes(&self) -> Vec<NodeId> {
        let mut found: Vec<_> = articulation_points(&self.0).iter().map(|node| NodeId::at(node.index())).collect();
        found.sort_unstable();
        found
    }
}

fn index(node: NodeId) -> NodeIndex {
    NodeIndex::new(node.index())
}
