//! The way of a new connection: over all rails to a neighbour, else over relays, by what is known of the cluster then.
//!
//! At the set-up of a connection only. Any thread; nothing waits.

use std::net::Ipv4Addr;
use std::sync::PoisonError;

use mesh_relay::agent::Incoming;
use mesh_relay::wire::HopAddr;

use super::NetError;
use super::handle::Handle;
use super::mesh::Known;
use super::node::{Node, list};

/// A connection's way to its peer.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// One a leg; either all are single hops or none is.
    pub(crate) lanes: Vec<Vec<HopAddr>>,
    /// Rates of the lanes; only their ratios mean anything.
    pub(crate) weights: Vec<u32>,
    /// For people: `a - b - c`, or `a - b - c and a - d - c`.
    pub(crate) text: String,
}

impl Node {
    /// Whether a handle can be of a node that goes by the same topology file.
    pub(crate) fn suits(&self, handle: &Handle) -> Result<(), NetError> {
        let ours = self.knowledge.declared().map_or(0, |k| k.hash);
        if ours != 0 && handle.topology != 0 && ours != handle.topology {
            return Err(NetError::OtherTopology { node: self.name.clone(), peer: self.name_of(handle) });
        }
        Ok(())
    }

    /// The way of a new connection to a handle: over all rails if it is a neighbour, else by the equal routes that share no link, the next
    /// of them first. `patient`: more may become known yet, so `None` is an answer.
    pub(crate) fn way_to(&self, handle: &Handle, patient: bool) -> Result<Option<Way>, NetError> {
        let peer = self.name_of(handle);
        let known = self.knowledge.now();
        if handle.node == self.key {
            let own = self.ports.first().map_or(Ipv4Addr::LOCALHOST, |p| p.0);
            let hop = HopAddr { from: own, to: own, agent: self.agent_of(handle) };
            return Ok(Some(way(None, vec![vec![hop]], self.name.clone())));
        }
        let there = known.as_ref().is_some_and(|k| k.topology.node_by_key(handle.node).is_some());
        if !there && patient && self.knowledge.may_come(handle.node) {
            return Ok(None);
        }
        let lanes = self.neighbour_lanes(handle, known.as_deref());
        if !lanes.is_empty() {
            return Ok(Some(way(known.as_deref(), lanes, format!("{} - {peer}", self.name))));
        }
        match self.relayed(handle, &peer, known.as_deref()) {
            // A route may come with the next view.
            Err(_) if patient && self.knowledge.may_come(handle.node) => Ok(None),
            way => way.map(Some),
        }
    }

    /// Whether a handle names a port in a subnet of ours that only a cable can have: one that has room for two.
    pub(crate) fn is_neighbour(&self, handle: &Handle) -> bool {
        let lanes = self.neighbour_lanes(handle, None);
        let cabled = |lane: &Vec<HopAddr>| {
            let prefix = self.ports.iter().find(|port| port.0 == lane[0].from).map_or(0, |port| port.1);
            prefix >= 30
        };
        !lanes.is_empty() && lanes.iter().all(cabled)
    }

    /// Who sends on a connection to here, and its route, by the hops that the sender has said in its set-up.
    pub(crate) fn way_from(&self, incoming: &Incoming) -> (String, String) {
        let mut texts: Vec<String> = Vec::new();
        for lane in &incoming.hops {
            let ports = lane.first().map(|hop| hop.from).into_iter().chain(lane.iter().map(|hop| hop.to));
            let mut names: Vec<_> = ports.map(|port| self.name_of_port(port)).collect();
            names.dedup();
            let text = names.join(" - ");
            if texts.last() != Some(&text) {
                texts.push(text);
            }
        }
        let first = incoming.hops.iter().flatten().next().map_or(incoming.peer, |hop| hop.from);
        (self.name_of_port(first), texts.join(" and "))
    }

    /// TCP port of the agent that a handle means, as hops name it.
    fn agent_of(&self, handle: &Handle) -> u16 {
        if handle.port == self.settings.port { 0 } else { handle.port }
    }

    fn neighbour_lanes(&self, handle: &Handle, known: Option<&Known>) -> Vec<Vec<HopAddr>> {
        let shares = |a: Ipv4Addr, b: Ipv4Addr, prefix: u8| {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            (u32::from(a) ^ u32::from(b)) & mask == 0
        };
        // What was found says which rails have carrier; the subnets alone say what should be cabled.
        let found = known.filter(|k| k.hash == 0 && k.topology.node_by_key(handle.node).is_some());
        let link = |&(own, prefix): &(Ipv4Addr, u8)| {
            let theirs = match found {
                Some(k) => handle.ports.iter().find(|(a, _)| k.topology.link_between(own, *a).is_some()),
                None => handle.ports.iter().find(|(a, p)| *p == prefix && shares(own, *a, prefix)),
            };
            let to = theirs?.0;
            let down = known.is_some_and(|k| k.down.contains(&if own < to { [own, to] } else { [to, own] }));
            (!down).then_some((own, to))
        };
        let mut links: Vec<_> = self.ports.iter().filter_map(link).collect();
        if !links.is_empty() {
            // Drivers may take a while to say it: who waits for a peer that is no neighbour does not ask them again and again.
            let up = self.ports_up();
            links.retain(|link| up.iter().any(|port| port.0 == link.0));
        }
        let lane = |(from, to)| vec![HopAddr { from, to, agent: self.agent_of(handle) }];
        links.into_iter().take(self.settings.lanes).map(lane).collect()
    }

    fn relayed(&self, handle: &Handle, peer: &str, known: Option<&Known>) -> Result<Way, NetError> {
        let no_path = |hint| NetError::NoPath {
            node: self.name.clone(),
            peer: peer.to_owned(),
            own: list(&self.ports),
            theirs: list(&handle.ports),
            hint,
        };
        let Some(known) = known else {
            return Err(no_path(
                "they share no subnet, and without a topology file (NCCL_MESH_TOPOLOGY) or discovery (NCCL_MESH_DISCOVERY) no relay can be \
                 found",
            ));
        };
        let absent = if known.hash == 0 {
            "it was not found: does every node between run a job or `nccl-mesh agent`, and are the cables in? (`nccl-mesh topology discover`)"
        } else {
            "the peer is not in the topology file"
        };
        let to = known.topology.node_by_key(handle.node).ok_or_else(|| no_path(absent))?;
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = turns.entry(handle.node).or_default();
            *turn += 1;
            *turn - 1
        };
        let found = known.router.lanes_apart(known.me, to, turn, self.settings.lanes);
        if found.is_empty() {
            return Err(no_path(
                "no sequence of cables between nodes that relay leads there (relay = false, max_relays, or a cable out)",
            ));
        }
        let mut texts: Vec<String> = Vec::new();
        let mut lanes = Vec::new();
        for (route, lane) in &found {
            let names: Vec<_> = route.nodes().iter().map(|n| known.topology.name(*n)).collect();
            let text = names.join(" - ");
            if texts.last() != Some(&text) {
                texts.push(text);
            }
            let last = lane.hops.len() - 1;
            let hop = |(n, h): (usize, &mesh_routing::Hop)| {
                let at = known.topology.port_by_address(h.to).map_or(0, |(node, _)| known.topology.node(node).key);
                let agent =
                    if n == last { self.agent_of(handle) } else { known.relay_port(at, self.job, self.settings.port) };
                HopAddr { from: h.from, to: h.to, agent }
            };
            lanes.push(lane.hops.iter().enumerate().map(hop).collect());
        }
        Ok(way(Some(known), lanes, texts.join(" and ")))
    }
}

fn way(known: Option<&Known>, lanes: Vec<Vec<HopAddr>>, text: String) -> Way {
    let speed = |hop: &HopAddr| {
        let topology = &known?.topology;
        topology.link(topology.link_between(hop.from, hop.to)?).speed_mbps
    };
    // A lane is as fast as its slowest link; where one is unknown, all count the same.
    let slowest = |hops: &Vec<HopAddr>| hops.iter().map(speed).collect::<Option<Vec<_>>>()?.into_iter().min();
    let weights = lanes.iter().map(slowest).collect::<Option<Vec<_>>>().unwrap_or_else(|| vec![1; lanes.len()]);
    Way { lanes, weights, text }
}
