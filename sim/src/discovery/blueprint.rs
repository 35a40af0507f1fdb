//! Random clusters as plans: who has which ports, and which of them are cabled or on a switch, with and without mistakes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use mesh_relay::discovery::{Config, PortInfo};

use super::{Weather, World};
use crate::virtual_time::Rng;

/// Most ports that a node has.
const MAX_PORTS: usize = 8;

/// A port of a plan: node and index.
type Place = (usize, usize);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Blueprint {
    /// Ids.
    ids: Vec<String>,
    /// Addresses and prefix lengths of each node's ports.
    ports: Vec<Vec<(Ipv4Addr, u8)>>,
    /// The ports that each cable joins.
    cables: Vec<Vec<Place>>,
    /// The ports that each switch joins, and that are declared to be on it, but for those forgotten.
    switches: Vec<Vec<Place>>,
    /// Ports of switches whose nodes take them for ports of cables.
    forgotten: Vec<Place>,
}

impl Blueprint {
    /// Two to twelve nodes: a random tree, then some more cables, some of them in parallel, and in every third cluster one or two switches.
    pub(super) fn random(rng: &mut Rng) -> Self {
        let nodes = rng.between(2, 12) as usize;
        let ids = (0..nodes).map(|node| format!("id-{node}")).collect();
        let mut plan = Self { ids, ports: vec![Vec::new(); nodes], ..Self::default() };
        let more = rng.below(nodes as u64 + 1) as usize;
        for at in 1..nodes + more {
            let any = |rng: &mut Rng| rng.below(nodes as u64) as usize;
            let (a, b) = if at < nodes { (at, rng.below(at as u64) as usize) } else { (any(rng), any(rng)) };
            if a == b || plan.ports[a].len() >= MAX_PORTS || plan.ports[b].len() >= MAX_PORTS {
                continue;
            }
            let [low, high] = random_subnet(rng, plan.cables.len() as u32);
            plan.cables.push(vec![(a, plan.ports[a].len()), (b, plan.ports[b].len())]);
            plan.ports[a].push(low);
            plan.ports[b].push(high);
        }
        if rng.percent(33) {
            for _ in 0..rng.between(1, 2) {
                plan.add_switch(rng);
            }
        }
        plan
    }

    /// A switch between some of the nodes, or all.
    fn add_switch(&mut self, rng: &mut Rng) {
        let (number, share) = (self.switches.len() as u32, rng.pick(&[40, 70, 100]));
        let base = Ipv4Addr::new(10, 100, 0, 0).to_bits() + number * 65_536;
        let prefix = rng.pick(&[16, 24, 28]);
        let mut ports = Vec::new();
        for node in 0..self.ids.len() {
            if self.ports[node].len() < MAX_PORTS && rng.percent(share) {
                ports.push((node, self.ports[node].len()));
                self.ports[node].push((Ipv4Addr::from_bits(base + 1 + node as u32), prefix));
            }
        }
        self.switches.push(ports);
    }

    /// Does what people do wrong: copies an address, an id or a subnet, puts cables where they do not belong, or does not tell a node of a switch.
    pub(super) fn err(&mut self, rng: &mut Rng) {
        let cables = self.cables.len() as u64;
        let (one, two) = (rng.below(cables) as usize, rng.below(cables) as usize);
        let ((a, port_a), (b, port_b)) = (self.cables[one][0], self.cables[two][1]);
        let switch = self.switches.first().filter(|ports| ports.len() > 1).cloned().unwrap_or_default();
        match rng.below(8) {
            0 => self.ports[b][port_b] = self.ports[a][port_a],
            1 => self.ids[b] = self.ids[a].clone(),
            2 => {
                // The subnet of one cable is given to another, by other hosts of it if they are to differ.
                let (base, _) = self.ports[a][port_a];
                for (end, (node, port)) in self.cables[two].clone().into_iter().enumerate() {
                    let host = 100 + 10 * end as u32 + rng.below(2) as u32;
                    self.ports[node][port] = (Ipv4Addr::from_bits((base.to_bits() & !255) + host), 24);
                }
            }
            3 => {
                let end = self.cables[one][0];
                self.cables[one][0] = self.cables[two][1];
                self.cables[two][1] = end;
            }
            4 => {
                // A hub: a third port, of whatever node, on a cable.
                let (base, prefix) = self.ports[a][port_a];
                let node = rng.below(self.ids.len() as u64) as usize;
                self.cables[one].push((node, self.ports[node].len()));
                self.ports[node].push((Ipv4Addr::from_bits((base.to_bits() & !255) + 250), prefix.min(24)));
            }
            5 if !switch.is_empty() => self.forgotten.push(rng.pick(&switch)),
            6 if !switch.is_empty() => {
                let [(a, port_a), (b, port_b)] = [rng.pick(&switch), rng.pick(&switch)];
                self.ports[b][port_b] = self.ports[a][port_a];
            }
            _ => {
                let (_, prefix) = &mut self.ports[a][port_a];
                *prefix = rng.pick(&[16, 24, 29, 31]);
            }
        }
    }

    /// The cluster, not started.
    pub(super) fn build(self, seed: u64, weather: Weather) -> World {
        let mut world = World::new(seed, weather);
        let mut on_switch: BTreeSet<Place> = self.switches.iter().flatten().copied().collect();
        on_switch.retain(|place| !self.forgotten.contains(place));
        for (node, (id, ports)) in self.ids.into_iter().zip(self.ports).enumerate() {
            world.add_node(Config::new(id, format!("node{node}"), 1_000_000 + node as u64));
            for (port, (address, prefix)) in ports.into_iter().enumerate() {
                let switched = on_switch.contains(&(node, port));
                let info = PortInfo { speed_mbps: 100_000, mtu: 9000, switched, ..PortInfo::new("f", address, prefix) };
                world.add_port(node, info);
            }
        }
        for mut ends in self.cables {
            // What is in a port twice after cables were moved is in it once.
            ends.dedup();
            world.cable(&ends);
        }
        for ports in self.switches {
            world.switch(&ports);
        }
        world
    }
}

/// The two ends of a cable of its own: prefix lengths of all kinds, also two that differ.
fn random_subnet(rng: &mut Rng, number: u32) -> [(Ipv4Addr, u8); 2] {
    let base = Ipv4Addr::new(10, 0, 0, 0).to_bits() + number * 256;
    let (low, high, prefixes) = match rng.below(4) {
        0 => (0, 1, [31, 31]),
        1 => (1, 2, [30, 30]),
        2 => (rng.between(1, 100) as u32, rng.between(101, 254) as u32, [24, 24]),
        _ => (1, 2, [30, 24]),
    };
    [(Ipv4Addr::from_bits(base + low), prefixes[0]), (Ipv4Addr::from_bits(base + high), prefixes[1])]
}
