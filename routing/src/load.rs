//! What the flows of a collective put on every link.

use crate::split;
use crate::{Flow, LinkId, NodeId, RankOrder, Router, Topology};

/// Most lanes of a connection.
pub(crate) const MOST_LANES: usize = 8;
/// Speed of links of which none is given, in Mbit/s.
pub const USUAL_MBPS: u32 = 100_000;

/// Load in multiples of the payload. A flow is spread over the lanes that a connection of its ends has, so that the busiest of their links
/// is as little busy as it can be: connections put more on the lane that has less under way.
#[derive(Clone, Debug)]
pub struct LinkLoad {
    /// By link: from its first end to its second, and back.
    pub links: Vec<[f64; 2]>,
    /// By node, by port: sent and received. Differs from the link's only on a switched segment, where one port serves
    /// many links.
    pub ports: Vec<Vec<[f64; 2]>>,
    /// By node: what it forwards for others.
    pub relayed: Vec<f64>,
    /// Sum over all flows, each counted once.
    pub total: f64,
    /// Sum over the flows that pass a relay, each counted once.
    pub total_relayed: f64,
    /// Flows without a route.
    pub unroutable: usize,
}

/// The load of flows between ranks, each over the lanes of the first connection between its ends.
pub fn link_load(topology: &Topology, router: &Router, order: &RankOrder, flows: &[Flow]) -> LinkLoad {
    let mut load = LinkLoad {
        links: vec![[0.0; 2]; topology.links().len()],
        ports: topology.nodes().iter().map(|node| vec![[0.0; 2]; node.ports.len()]).collect(),
        relayed: vec![0.0; topology.nodes().len()],
        total: 0.0,
        total_relayed: 0.0,
        unroutable: 0,
    };
    let mut ways = Vec::with_capacity(flows.len());
    for flow in flows {
        let ends = order.nodes().get(flow.from_rank).zip(order.nodes().get(flow.to_rank));
        let lanes = ends.map(|(&from, &to)| router.lanes_apart(from, to, 0, MOST_LANES)).unwrap_or_default();
        let Some((first, _)) = lanes.first() else {
            load.unroutable += 1;
            continue;
        };
        load.total += flow.weight;
        if !first.is_direct() {
            load.total_relayed += flow.weight;
        }
        let of_first = lanes.iter().filter(|(route, _)| route == first).count() as f64;
        let shares = lanes.iter().map(|(route, _)| if route == first { flow.weight / of_first } else { 0.0 }).collect();
        let hops = lanes.iter().map(|(_, lane)| split::directions(topology, lane)).collect();
        ways.push((lanes, split::Way { weight: flow.weight, shares, hops }));
    }
    split::balance(topology, ways.iter_mut().map(|(_, way)| way).collect());
    for (lanes, way) in &ways {
        for ((route, lane), &share) in lanes.iter().zip(&way.shares) {
            for node in route.relays() {
                load.relayed[node.index()] += share;
            }
            for ((from, _), hop) in route.steps().zip(&lane.hops) {
                load.add(topology, hop.link, from, share);
            }
        }
    }
    load
}

impl LinkLoad {
    fn add(&mut self, topology: &Topology, id: LinkId, from: NodeId, weight: f64) {
        let link = topology.link(id);
        let forward = link.ends[0].node == from;
        let [near, far] = if forward { link.ends } else { [link.ends[1], link.ends[0]] };
        self.links[id.index()][usize::from(!forward)] += weight;
        self.ports[near.node.index()][near.port][0] += weight;
        self.ports[far.node.index()][far.port][1] += weight;
    }

    /// The load of the busiest direction of a link.
    pub fn of(&self, link: LinkId) -> f64 {
        self.links.get(link.index()).map_or(0.0, |[out, back]| out.max(*back))
    }

    /// The busiest link and the load of its busier direction; the first of equals. `None` without links.
    pub fn worst(&self) -> Option<(LinkId, f64)> {
        let mut worst = None;
        for index in 0..self.links.len() {
            let id = LinkId::at(index);
            let load = self.of(id);
            if worst.is_none_or(|(_, most)| load > most + 1e-9) {
                worst = Some((id, load));
            }
        }
        worst
    }

    /// The load of the busiest direction of the busiest port: equals [`worst`](Self::worst) but on switched segments.
    pub fn worst_port(&self) -> f64 {
        self.ports.iter().flatten().flatten().copied().fold(0.0, f64::max)
    }

    /// The share of the data that passes a relay, 0 to 1.
    pub fn relayed_share(&self) -> f64 {
        if self.total > 0.0 { self.total_relayed / self.total } else { 0.0 }
    }

    /// No less than this many seconds does a payload of `bytes` take: the time that the slowest port needs for its
    /// load. Ports without a given speed count as `default_mbps`. Latency, protocol and reduction come on top.
    pub fn least_seconds(&self, topology: &Topology, bytes: u64, default_mbps: u32) -> f64 {
        let mut least = 0.0_f64;
        for (node, ports) in topology.nodes().iter().zip(&self.ports) {
            for (port, load) in node.ports.iter().zip(ports) {
                let bits_per_second = f64::from(port.speed_mbps.unwrap_or(default_mbps).max(1)) * 1e6;
                least = least.max(load[0].max(load[1]) * bytes as f64 * 8.0 / bits_per_second);
            }
        }
        least
    }
}
