//! A view as a topology, from which routes are computed.
//!
//! Must not know how the view came to be. A pure function of it. Any thread.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use mesh_routing::{Link, LinkId, NodeSpec, Policy, PortSpec, Problem, Subnet, Topology};

use super::advert::AdvertPort;
use super::view::{LinkEnd, View};

impl View {
    /// As a topology for routes. Its links are the view's: where prefix lengths differ the longer one holds, and ports that would make a link
    /// which the view does not have are left out. A switched segment has all its ports that have a link there, and so may have links that
    /// the view has not: [`Self::lacking`]. Nodes are ordered by id.
    pub fn topology(&self, policy: Policy) -> (Topology, Vec<Problem>) {
        let mut prefixes: BTreeMap<LinkEnd, u8> = BTreeMap::new();
        let mut ports: Vec<(LinkEnd, &AdvertPort)> = Vec::new();
        for (&node, spec) in &self.nodes {
            for port in &spec.ports {
                let end = LinkEnd { address: port.address, node };
                prefixes.insert(end, port.prefix);
                ports.push((end, port));
            }
        }
        for ends in &self.links {
            let longer = ends.iter().filter_map(|end| prefixes.get(end)).copied().max().unwrap_or(Subnet::MAX_PREFIX);
            prefixes.extend(ends.map(|end| (end, longer)));
        }
        let mut subnets: BTreeMap<Subnet, Vec<LinkEnd>> = BTreeMap::new();
        for (end, prefix) in &prefixes {
            subnets.entry(subnet_of(end.address, *prefix)).or_default().push(*end);
        }
        let linked: BTreeSet<LinkEnd> = self.links.iter().flatten().copied().collect();
        let on_switch: BTreeSet<LinkEnd> =
            ports.iter().filter(|(_, port)| port.switched).map(|(end, _)| *end).collect();
        let is_switch = |ends: &[LinkEnd]| ends.iter().all(|end| on_switch.contains(end));
        let kept = |end: &LinkEnd| match subnets[&subnet_of(end.address, prefixes[end])].as_slice() {
            [_] => true,
            all if is_switch(all) => linked.contains(end),
            &[a, b] => self.links.contains(&[a.min(b), a.max(b)]),
            _ => false,
        };
        let switches = subnets.iter().filter(|(_, ends)| is_switch(ends) && ends.iter().any(kept));
        let switches = switches.map(|(subnet, _)| *subnet).collect();
        let mut specs: BTreeMap<&str, NodeSpec> = BTreeMap::new();
        for node in self.nodes.values() {
            let id = (node.id != node.name).then(|| node.id.clone());
            specs.insert(&node.id, NodeSpec { id, relay: node.relay, ..NodeSpec::new(&*node.name) });
        }
        for (end, port) in ports.into_iter().filter(|(end, _)| kept(end)) {
            if let Some(spec) = specs.get_mut(&*self.nodes[&end.node].id) {
                let some = |value: u32| (value > 0).then_some(value);
                spec.ports.push(PortSpec {
                    speed_mbps: some(port.speed_mbps),
                    mtu: some(port.mtu),
                    ..PortSpec::new(&*port.device, end.address, prefixes[&end])
                });
            }
        }
        let (topology, problems) = Topology::discovered(specs.into_values().collect(), switches, policy);
        debug_assert!(
            topology.links().len() - self.lacking(&topology).len() == self.links.len()
                && self.lacking(&topology).iter().all(|id| topology.link(*id).switched),
            "routes must see the links of the view and no others, but between ports of a switched segment"
        );
        (topology, problems)
    }

    /// Links of its topology that the view has not: two ports of a switched segment of which one does not hear the other. No route may use
    /// them.
    pub fn lacking(&self, topology: &Topology) -> Vec<LinkId> {
        let present: BTreeSet<_> = self.links.iter().map(|ends| ends.map(|end| end.address)).collect();
        let ends = |link: &Link| {
            let [a, b] = link.ends.map(|end| end.address);
            [a.min(b), a.max(b)]
        };
        topology.links().iter().filter(|link| !present.contains(&ends(link))).map(|link| link.id).collect()
    }
}

fn subnet_of(address: Ipv4Addr, prefix: u8) -> Subnet {
    // Ports are decoded with their prefix length in range; otherwise none of their links would be here.
    Subnet::of(address, prefix).unwrap_or_else(|| Subnet::of(address, Subnet::MAX_PREFIX).expect("in range"))
}
