//! A route: which nodes a connection passes, and what that costs.

use crate::NodeId;
use std::cmp::{Ordering, Reverse};

/// A loop-free sequence of at least two nodes, each adjacent to the next. Made by a [`Router`](crate::Router).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Route {
    nodes: Vec<NodeId>,
}

impl Route {
    /// The caller promises two or more nodes, none twice.
    pub(crate) const fn new(nodes: Vec<NodeId>) -> Self {
        Self { nodes }
    }

    /// All nodes, both ends included.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The node where it begins.
    pub fn from(&self) -> NodeId {
        self.nodes[0]
    }

    /// The node where it ends.
    pub fn to(&self) -> NodeId {
        self.nodes[self.nodes.len() - 1]
    }

    /// Edges it passes; 1 for a direct route.
    pub const fn hops(&self) -> usize {
        self.nodes.len() - 1
    }

    /// The nodes in the middle; none on a direct route.
    pub fn relays(&self) -> &[NodeId] {
        &self.nodes[1..self.nodes.len() - 1]
    }

    /// Whether it has no relay.
    pub const fn is_direct(&self) -> bool {
        self.nodes.len() == 2
    }

    /// Each hop as the node it leaves and the node it reaches.
    pub fn steps(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        self.nodes.windows(2).map(|pair| (pair[0], pair[1]))
    }

    /// The same way back.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { nodes: self.nodes.iter().rev().copied().collect() }
    }
}

/// What a route costs. Fewer hops are cheaper whatever their speed, since each relay stores and forwards; among equal
/// hops, the wider narrowest edge is cheaper.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cost {
    /// Edges passed.
    pub hops: usize,
    /// Capacity of the narrowest edge: the sum of its links' speeds in Mbit/s. A link without a given speed counts as
    /// the fastest given one; where none is given at all, each link counts 1.
    pub capacity: u64,
    /// Capacity of the widest edge of the topology, in the same unit.
    pub widest: u64,
}

impl Cost {
    /// One number: the hops, plus the share (0 to 1) of the topology's widest edge that the narrowest edge lacks.
    pub fn value(&self) -> f64 {
        self.hops as f64 + 1.0 - self.capacity as f64 / self.widest.max(1) as f64
    }
}

impl Ord for Cost {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |cost: &Self| (cost.hops, Reverse(cost.capacity), cost.widest);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
