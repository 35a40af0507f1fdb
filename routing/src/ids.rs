//! Numbers that name nodes, links and edges inside one [`Topology`](crate::Topology). They index its lists and mean
//! nothing in another topology; what travels between nodes is [`Node::key`](crate::Node::key) and port addresses.

use std::fmt;

/// A node: its place in the list from which the topology was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

/// A link: its place in the list of links, which is ordered by subnet and address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// An edge: its place in the list of edges, which is ordered by each edge's first link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EdgeId(pub u32);

impl NodeId {
    /// As an index into a list with one entry a node.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// From an index into the list of nodes. A topology never has more nodes than fit, see
    /// [`MAX_NODES`](crate::Topology::MAX_NODES).
    pub(crate) const fn at(index: usize) -> Self {
        Self(index as u16)
    }
}

impl LinkId {
    /// As an index into a list with one entry a link.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) const fn at(index: usize) -> Self {
        Self(index as u32)
    }
}

impl EdgeId {
    /// As an index into a list with one entry an edge.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) const fn at(index: usize) -> Self {
        Self(index as u32)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node #{}", self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link #{}", self.0)
    }
}

impl fmt::Display for EdgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "edge #{}", self.0)
    }
}
