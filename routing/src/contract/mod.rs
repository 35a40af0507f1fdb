//! A declared topology as a contract: how what is found differs from it. Knows nothing of how anything is found, nor of
//! what is done about a difference. Any thread; the same answer whatever the order in which nodes are listed.
//!
//! Nodes are matched by their ids, those left by their names; ports by their addresses; cables by the addresses of their
//! ends. What follows from something already said is not said again: a missing node's ports and cables, a missing or
//! misplaced port's cables, an extra node's ports. What is not known of the found ones is no difference.

mod cables;
mod difference;

pub use difference::{Difference, PortAt, Severity};

use crate::{Node, NodeId, Port, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// How a found topology differs from the declared one: first what concerns nodes and ports, in natural order of the
/// declared nodes, then nodes that are found only, then cables in order of their addresses. The found one has a cable
/// wherever it has a link.
pub fn compare(declared: &Topology, found: &Topology) -> Vec<Difference> {
    let cables: Vec<_> = found.links().iter().map(|link| link.ends.map(|end| end.address)).collect();
    compare_cables(declared, found, &cables)
}

/// As [`compare`], where it is known which ports are really joined, whatever their subnets say: pairs of addresses, in
/// any order. Shared subnets alone cannot tell that a cable is pulled or in another port.
pub fn compare_cables(declared: &Topology, found: &Topology, cables: &[[Ipv4Addr; 2]]) -> Vec<Difference> {
    let comparison = Comparison { declared, found, pairs: matched(declared, found) };
    let mut differences = Vec::new();
    let mut sound = BTreeSet::new();
    for &id in declared.canonical_order() {
        let node = declared.node(id);
        match comparison.pairs.get(&id) {
            None => differences.push(Difference::MissingNode { node: node.name.clone(), id: node.stable_id.clone() }),
            Some(&there) => comparison.node(node, found.node(there), &mut differences, &mut sound),
        }
    }
    let known: BTreeSet<_> = comparison.pairs.values().copied().collect();
    for node in found.canonical_order().iter().filter(|&id| !known.contains(id)).map(|&id| found.node(id)) {
        differences.push(Difference::ExtraNode { node: node.name.clone(), id: node.stable_id.clone() });
    }
    cables::compare(&comparison, &sound, cables, &mut differences);
    differences
}

/// The found node of every declared one: by id, then by name among those left.
fn matched(declared: &Topology, found: &Topology) -> BTreeMap<NodeId, NodeId> {
    let by_id = |node: &Node| found.node_by_key(node.key).map(|there| (node.id, there));
    let mut pairs: BTreeMap<_, _> = declared.nodes().iter().filter_map(by_id).collect();
    let taken: BTreeSet<_> = pairs.values().copied().collect();
    // Names of discovered nodes may occur twice: the last one entered is the first in natural order.
    let free = found.canonical_order().iter().rev().filter(|&id| !taken.contains(id));
    let by_name: BTreeMap<_, _> = free.map(|&id| (found.name(id), id)).collect();
    for node in declared.nodes() {
        if let (false, Some(&there)) = (pairs.contains_key(&node.id), by_name.get(node.name.as_str())) {
            pairs.insert(node.id, there);
        }
    }
    pairs
}

/// Two topologies, and which nodes are the same.
struct Comparison<'a> {
    declared: &'a Topology,
    found: &'a Topology,
    pairs: BTreeMap<NodeId, NodeId>,
}

impl Comparison<'_> {
    /// What differs on one node. Adds to `sound` the addresses that are where they should be.
    fn node(&self, node: &Node, there: &Node, differences: &mut Vec<Difference>, sound: &mut BTreeSet<Ipv4Addr>) {
        if node.stable_id == there.stable_id && node.name != there.name {
            let (declared, found) = (node.name.clone(), there.name.clone());
            differences.push(Difference::RenamedNode { id: node.stable_id.clone(), declared, found });
        }
        if node.relay != there.relay {
            differences.push(Difference::RelayDiffers { node: node.name.clone(), declared: node.relay });
        }
        for port in &node.ports {
            match self.found.port_by_address(port.address) {
                None => {
                    differences.push(Difference::MissingPort { port: PortAt::of(node, port), prefix: port.prefix });
                }
                Some((other, index)) if other != there.id => {
                    let found = self.found.node(other);
                    let found = PortAt::of(found, &found.ports[index]);
                    differences.push(Difference::AddressOnAnotherNode { declared: PortAt::of(node, port), found });
                }
                Some((_, index)) => {
                    if port.prefix == there.ports[index].prefix {
                        sound.insert(port.address);
                    }
                    values(node, port, &there.ports[index], differences);
                }
            }
        }
        for port in &there.ports {
            match self.declared.port_by_address(port.address) {
                None => {
                    let prefix = port.prefix;
                    differences.push(Difference::PortNotDeclared { port: PortAt::of(node, port), prefix });
                }
                // Of an address of another node that is there, that one's turn tells.
                Some((owner, index)) if owner != node.id && !self.pairs.contains_key(&owner) => {
                    let owner = self.declared.node(owner);
                    let declared = PortAt::of(owner, &owner.ports[index]);
                    differences.push(Difference::AddressOnAnotherNode { declared, found: PortAt::of(node, port) });
                }
                Some(_) => {}
            }
        }
    }
}

/// What differs between a port and what is found with its address on its node.
fn values(node: &Node, declared: &Port, found: &Port, differences: &mut Vec<Difference>) {
    let port = || PortAt::of(node, if found.device.is_empty() { declared } else { found });
    if found.prefix != declared.prefix {
        let (declared, found) = (declared.prefix, found.prefix);
        differences.push(Difference::WrongPrefix { port: port(), declared, found });
    }
    let below = |(declared, found): &(u32, u32)| found < declared;
    if let Some((declared, found)) = declared.speed_mbps.zip(found.speed_mbps).filter(below) {
        differences.push(Difference::LowerSpeed { port: port(), declared_mbps: declared, found_mbps: found });
    }
    if let Some((declared, found)) = declared.mtu.zip(found.mtu).filter(below) {
        differences.push(Difference::SmallerMtu { port: port(), declared, found });
    }
}
