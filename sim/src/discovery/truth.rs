//! What there really is, from cables and nodes alone, to hold views against.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use mesh_relay::discovery::{Time, View, key_of};

use super::World;
use super::cable::CableEnd;

/// Nodes, ports and links of one connected part.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Picture {
    /// Keys.
    pub nodes: BTreeSet<u64>,
    /// All ports of the nodes: node, address, prefix length, whether with carrier.
    pub ports: BTreeSet<(u64, Ipv4Addr, u8, bool)>,
    /// Links as pairs of addresses, the lower one first.
    pub links: BTreeSet<[Ipv4Addr; 2]>,
}

impl Picture {
    /// As a node sees it.
    pub fn of(view: &View) -> Self {
        let ports = view
            .nodes
            .iter()
            .flat_map(|(key, node)| node.ports.iter().map(|port| (*key, port.address, port.prefix, port.up)));
        Self {
            nodes: view.nodes.keys().copied().collect(),
            ports: ports.collect(),
            links: view.links.iter().map(|ends| ends.map(|end| end.address)).collect(),
        }
    }
}

impl World {
    /// What a running node is to see once nothing changes any more, if no cable is a mistake.
    pub fn truth(&self, node: usize) -> Picture {
        let mut next: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut links = Vec::new();
        for cable in self.cables.iter().filter(|cable| cable.switched || cable.ends.len() == 2) {
            let runs = |end: &&CableEnd| self.nodes[end.node].machine.is_some();
            let ends: Vec<_> = cable.joined().into_iter().filter(runs).collect();
            for (at, a) in ends.iter().enumerate() {
                for b in &ends[at + 1..] {
                    next.entry(a.node).or_default().push(b.node);
                    next.entry(b.node).or_default().push(a.node);
                    links.push((a.node, [a.address.min(b.address), a.address.max(b.address)]));
                }
            }
        }
        let mut part = BTreeSet::from([node]);
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            open.extend(next.get(&node).into_iter().flatten().copied().filter(|other| part.insert(*other)));
        }
        let mut picture = Picture::default();
        for &node in &part {
            let it = &self.nodes[node];
            let key = key_of(&it.config.id);
            picture.nodes.insert(key);
            for ((_, info), cable) in it.ports.iter().zip(&it.cables) {
                let carrier = cable.is_some_and(|(cable, end)| self.cables[cable].carrier(end));
                picture.ports.insert((key, info.address, info.prefix, carrier));
            }
        }
        picture.links = links.into_iter().filter(|(node, _)| part.contains(node)).map(|(_, link)| link).collect();
        picture
    }

    /// Every running node whose view is not the truth.
    pub fn wrong(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|&node| self.view(node).is_some_and(|view| Picture::of(view) != self.truth(node)))
            .collect()
    }

    /// Whether every running node sees the truth.
    pub fn agrees(&self) -> bool {
        self.wrong().is_empty()
    }

    /// Runs for so long; answers how long it took until the last view changed, if every running node sees the truth in the end.
    pub fn settle(&mut self, time: Time) -> Option<Time> {
        let began = self.now;
        self.run_for(time);
        let last = self.nodes.iter().map(|node| node.changed).max().unwrap_or(began);
        self.agrees().then(|| last.saturating_sub(began))
    }
}
