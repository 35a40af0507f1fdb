//! Random topologies of up to eight nodes, and every way through them by brute force: what routes are compared with.
#![allow(dead_code, reason = "every test program uses a part of it")]

use mesh_routing::{NodeId, NodeSpec, Policy, PortSpec, Topology};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// A random topology, as data.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    /// Rails of each pair, in order of pairs; 0 is no edge.
    pub(crate) rails: Vec<usize>,
    /// Speed of each pair's links.
    pub(crate) speeds: Vec<Option<u32>>,
    pub(crate) relay: Vec<bool>,
    pub(crate) max_relays: Option<u16>,
    /// The order in which the nodes are listed the second time.
    pub(crate) shuffled: Vec<usize>,
}

pub(crate) fn plans() -> impl Strategy<Value = Plan> {
    (1..=8_usize).prop_flat_map(|nodes| {
        let pairs = nodes * (nodes - 1) / 2;
        let rails = proptest::collection::vec(prop_oneof![3 => Just(0), 3 => Just(1), 1 => Just(2)], pairs);
        let speed = prop_oneof![4 => Just(None), 1 => Just(Some(25_000)), 1 => Just(Some(100_000))];
        let speeds = prop_oneof![
            2 => Just(vec![None; pairs]),
            1 => proptest::collection::vec(speed, pairs)
        ];
        let relay = proptest::collection::vec(prop_oneof![4 => Just(true), 1 => Just(false)], nodes);
        let max_relays = prop_oneof![3 => Just(None), 1 => (0..4_u16).prop_map(Some)];
        let shuffled = Just((0..nodes).collect::<Vec<_>>()).prop_shuffle();
        (rails, speeds, relay, max_relays, shuffled).prop_map(move |(rails, speeds, relay, max_relays, shuffled)| {
            Plan { nodes, rails, speeds, relay, max_relays, shuffled }
        })
    })
}

impl Plan {
    pub(crate) fn specs(&self) -> Vec<NodeSpec> {
        let mut specs: Vec<_> = (0..self.nodes).map(|node| NodeSpec::new(format!("n{node}"))).collect();
        for (spec, &relay) in specs.iter_mut().zip(&self.relay) {
            spec.relay = relay;
        }
        let mut subnet = 0;
        let mut pair = 0;
        for a in 0..self.nodes {
            for b in a + 1..self.nodes {
                for _ in 0..self.rails[pair] {
                    for (host, node) in [(1, a), (2, b)] {
                        let address = Ipv4Addr::from_bits((10 << 24) + subnet * 4 + host);
                        let mut port = PortSpec::new(format!("p{subnet}"), address, 30);
                        port.speed_mbps = self.speeds[pair];
                        specs[node].ports.push(port);
                    }
                    subnet += 1;
                }
                pair += 1;
            }
        }
        specs
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy { max_relays: self.max_relays, ..Policy::default() }
    }

    pub(crate) fn topology(&self) -> Topology {
        Topology::discovered(self.specs(), vec![], self.policy()).0
    }

    pub(crate) fn topology_in_other_order(&self) -> Topology {
        let specs = self.specs();
        let mut listed: Vec<_> = self.shuffled.iter().map(|&node| specs[node].clone()).collect();
        listed.iter_mut().for_each(|node| node.ports.reverse());
        Topology::discovered(listed, vec![], self.policy()).0
    }
}

/// Capacity between two nodes, by looking at every link; 0 if not adjacent.
fn capacity(topology: &Topology, a: NodeId, b: NodeId) -> u64 {
    let fastest = topology.links().iter().filter_map(|link| link.speed_mbps).max().unwrap_or(1);
    let joins = |nodes: [NodeId; 2]| nodes == [a, b] || nodes == [b, a];
    let links = topology.links().iter().filter(|link| joins(link.ends.map(|end| end.node)));
    links.map(|link| u64::from(link.speed_mbps.unwrap_or(fastest))).sum()
}

/// The nodes of a way; its hops and the capacity of its narrowest edge.
pub(crate) type Way = (Vec<NodeId>, (usize, std::cmp::Reverse<u64>));

/// Every loop-free way that relays and policy allow, with its cost.
pub(crate) fn all_ways(topology: &Topology, from: NodeId, to: NodeId) -> Vec<Way> {
    fn extend(topology: &Topology, to: NodeId, path: &mut Vec<NodeId>, found: &mut Vec<Vec<NodeId>>) {
        let at = path[path.len() - 1];
        if at == to {
            found.push(path.clone());
            return;
        }
        if path.len() > 1 && !topology.node(at).relay {
            return;
        }
        for next in topology.nodes() {
            if !path.contains(&next.id) && capacity(topology, at, next.id) > 0 {
                path.push(next.id);
                extend(topology, to, path, found);
                path.pop();
            }
        }
    }
    let mut found = Vec::new();
    extend(topology, to, &mut vec![from], &mut found);
    let most = topology.policy().max_relays.map_or(usize::MAX, usize::from);
    found.retain(|path| path.len() - 2 <= most);
    let cost = |path: &[NodeId]| {
        let narrowest = path.windows(2).map(|step| capacity(topology, step[0], step[1])).min().unwrap_or(0);
        (path.len() - 1, std::cmp::Reverse(narrowest))
    };
    found.into_iter().map(|path| (path.clone(), cost(&path))).collect()
}

pub(crate) fn edges_of(path: &[NodeId]) -> BTreeSet<[NodeId; 2]> {
    path.windows(2).map(|step| [step[0].min(step[1]), step[0].max(step[1])]).collect()
}

pub(crate) fn pairs(topology: &Topology) -> Vec<(NodeId, NodeId)> {
    let ids = || topology.nodes().iter().map(|node| node.id);
    ids().flat_map(|a| ids().filter(move |&b| b != a).map(move |b| (a, b))).collect()
}
