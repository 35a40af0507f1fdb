//! Generated topologies: the shapes that the commands accept in place of a file.

use crate::{NodeSpec, PortSpec, Subnet};
use std::net::Ipv4Addr;
use std::str::FromStr;
use thiserror::Error;

/// How the nodes of a generated topology are cabled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// Node k to node k+1, the last to the first. Two nodes have one edge; otherwise three or more.
    Ring,
    /// Node k to node k+1.
    Line,
    /// Node 0 to every other.
    Star,
    /// Every node to every other.
    Full,
    /// Rows and columns as near to a square as the number of nodes divides, see [`grid_sides`]; no wrap-around.
    Grid,
    /// Every node on a switch: one port a rail, one subnet a rail.
    Switch,
}

/// Where a generated topology takes its addresses from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressPlan {
    /// The first address; the first subnet begins here, or at the next multiple of its own size.
    pub base: Ipv4Addr,
}

/// Why a shape cannot be had.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum ShapeError {
    /// The name of the shape is not known.
    #[error("unknown shape {0:?}; known: ring, line, star, full, grid, switch")]
    Unknown(String),
    /// Too few or too many nodes.
    #[error("a {shape} of {nodes} nodes cannot be built; use {least} to {most} nodes")]
    Nodes {
        /// Name of the shape.
        shape: &'static str,
        /// Nodes asked for.
        nodes: usize,
        /// The least possible.
        least: usize,
        /// The most possible.
        most: usize,
    },
    /// Too few or too many rails.
    #[error("{rails} rails an edge cannot be built; use 1 to {most}")]
    Rails {
        /// Rails asked for.
        rails: usize,
        /// The most possible.
        most: usize,
    },
    /// The subnets do not fit behind the first address.
    #[error("not enough addresses from {base} on for {subnets} subnets of /{prefix}; use a lower base address")]
    Addresses {
        /// The plan's first address.
        base: Ipv4Addr,
        /// Subnets needed.
        subnets: usize,
        /// Their prefix length.
        prefix: u8,
    },
}

impl Default for AddressPlan {
    /// From 10.200.0.0 on.
    fn default() -> Self {
        Self { base: Ipv4Addr::new(10, 200, 0, 0) }
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let found = Self::ALL.into_iter().find(|shape| shape.name() == text);
        found.ok_or_else(|| ShapeError::Unknown(text.to_owned()))
    }
}

impl Shape {
    /// All shapes, in the order in which help lists them.
    pub const ALL: [Self; 6] = [Self::Ring, Self::Line, Self::Star, Self::Full, Self::Grid, Self::Switch];
    /// The most rails an edge of a shape can have.
    pub const MAX_RAILS: usize = 16;

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Line => "line",
            Self::Star => "star",
            Self::Full => "full",
            Self::Grid => "grid",
            Self::Switch => "switch",
        }
    }

    /// Which nodes are cabled to which; empty for a switch.
    pub fn cables(self, nodes: usize) -> Vec<(usize, usize)> {
        match self {
            Self::Ring if nodes <= 2 => Self::Line.cables(nodes),
            Self::Ring => (0..nodes).map(|node| (node, (node + 1) % nodes)).collect(),
            Self::Line => (1..nodes).map(|node| (node - 1, node)).collect(),
            Self::Star => (1..nodes).map(|node| (0, node)).collect(),
            Self::Full => (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b))).collect(),
            Self::Grid => {
                let (rows, columns) = grid_sides(nodes);
                let at = |row: usize, column: usize| row * columns + column;
                let mut cables = Vec::new();
                for row in 0..rows {
                    for column in 0..columns {
                        if column + 1 < columns {
                            cables.push((at(row, column), at(row, column + 1)));
                        }
                        if row + 1 < rows {
                            cables.push((at(row, column), at(row + 1, column)));
                        }
                    }
                }
                cables
            }
            Self::Switch => Vec::new(),
        }
    }

    /// The nodes of the shape, named node0, node1, …, with devices mesh0, mesh1, … in order of cabling, and its
    /// switched subnets.
    ///
    /// # Errors
    /// When the shape cannot have that many nodes or rails, or the plan runs out of addresses.
    pub fn nodes(
        self,
        nodes: usize,
        rails: usize,
        plan: &AddressPlan,
    ) -> Result<(Vec<NodeSpec>, Vec<Subnet>), ShapeError> {
        // A full mesh has as many cables as pairs; the limit keeps it at a size that a machine can hold.
        let most = if matches!(self, Self::Full | Self::Switch) { 256 } else { crate::Topology::MAX_NODES };
        if nodes == 0 || nodes > most {
            return Err(ShapeError::Nodes { shape: self.name(), nodes, least: 1, most });
        }
        if rails == 0 || rails > Self::MAX_RAILS {
            return Err(ShapeError::Rails { rails, most: Self::MAX_RAILS });
        }
        let mut specs: Vec<_> = (0..nodes).map(|node| NodeSpec::new(format!("node{node}"))).collect();
        let mut switches = Vec::new();
        if self == Self::Switch {
            // Room for every node besides network and broadcast address.
            let prefix = 32 - (nodes + 2).next_power_of_two().trailing_zeros() as u8;
            for subnet in subnets(plan.base, prefix, rails)? {
                for (node, spec) in specs.iter_mut().enumerate() {
                    add_port(spec, subnet, node as u32 + 1);
                }
                switches.push(subnet);
            }
        } else {
            let cables = self.cables(nodes);
            let mut subnets = subnets(plan.base, 30, cables.len() * rails)?.into_iter();
            for (a, b) in cables {
                for subnet in subnets.by_ref().take(rails) {
                    add_port(&mut specs[a], subnet, 1);
                    add_port(&mut specs[b], subnet, 2);
                }
            }
        }
        Ok((specs, switches))
    }
}

/// Rows and columns of a grid: the divisors nearest to each other, rows at most columns. A prime number of nodes
/// makes a single row.
pub fn grid_sides(nodes: usize) -> (usize, usize) {
    let rows = (1..=nodes.isqrt()).rev().find(|&rows| nodes.is_multiple_of(rows)).unwrap_or(1);
    (rows, nodes / rows)
}

fn add_port(node: &mut NodeSpec, subnet: Subnet, host: u32) {
    let device = format!("mesh{}", node.ports.len());
    let address = Ipv4Addr::from_bits(subnet.network().to_bits() + host);
    node.ports.push(PortSpec::new(device, address, subnet.prefix()));
}

/// Consecutive subnets from the base on.
fn subnets(base: Ipv4Addr, prefix: u8, count: usize) -> Result<Vec<Subnet>, ShapeError> {
    let size = 1_u64 << (32 - prefix);
    let first = u64::from(base.to_bits()).next_multiple_of(size);
    let end = first + size * count as u64;
    // Multicast begins at 224.0.0.0 and loopback lies in 127/8: no port can have those.
    let loopback = 127_u64 << 24..128_u64 << 24;
    let forbidden = first == 0 || end > 224 << 24 || (first < loopback.end && end > loopback.start);
    let all = (0..count as u64).map(|k| Subnet::of(Ipv4Addr::from_bits((first + k * size) as u32), prefix));
    match all.collect() {
        Some(subnets) if !forbidden => Ok(subnets),
        _ => Err(ShapeError::Addresses { base, subnets: count, prefix }),
    }
}
