//! A topology at a glance.

use super::{Table, counted, names};
use crate::cuts::{articulation_nodes, bridges};
use crate::{Router, Topology};

/// Nodes with their neighbours and ports; what is alone, and what a single outage would cut.
pub fn summary(topology: &Topology) -> String {
    let router = Router::new(topology);
    let mut text = format!(
        "{}, {}, {}, hash {:016x}\n\n",
        counted(topology.nodes().len(), "node", "nodes"),
        counted(topology.edges().len(), "edge", "edges"),
        counted(topology.links().len(), "link", "links"),
        topology.hash()
    );
    let mut table = Table::new(&["node", "control", "relays", "device", "address", "speed", "mtu", "to"]);
    for &id in topology.canonical_order() {
        let node = topology.node(id);
        let control = node.control.map_or_else(|| "-".to_owned(), |address| address.to_string());
        let mut head = [node.name.clone(), control, if node.relay { "yes" } else { "no" }.to_owned()];
        if node.ports.is_empty() {
            table.row(head.iter().map(String::as_str).chain(["-", "-", "-", "-", "nobody"]));
        }
        for (index, port) in node.ports.iter().enumerate() {
            let here = |link: &&crate::Link| link.end_of(id).is_some_and(|end| end.port == index);
            let links = topology.links_of_node(id).iter().map(|&link| topology.link(link));
            let others: Vec<_> = links.filter(here).map(|link| link.other_end(id).node).collect();
            let to = match others.as_slice() {
                [] => "nobody".to_owned(),
                few if few.len() <= 4 => names(topology, few, ", "),
                many => format!("switch, {}", counted(many.len(), "node", "nodes")),
            };
            let speed = port.speed_mbps.map_or_else(|| "-".to_owned(), crate::file::speed_text);
            let mtu = port.mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string());
            let address = format!("{}/{}", port.address, port.prefix);
            table.row(head.iter().cloned().chain([port.device.clone(), address, speed, mtu, to]));
            head = Default::default();
        }
    }
    text += &table.render();
    text.push('\n');
    let most = topology.nodes().iter().flat_map(|node| router.distances(node.id)).flatten().max().unwrap_or(0);
    text += &format!("farthest nodes: {} apart\n", counted(most, "hop", "hops"));
    if let Some(limit) = topology.policy().max_relays {
        text += &format!("policy: at most {}\n", counted(usize::from(limit), "relay", "relays"));
    }
    let apart = router.unreachable_pairs();
    if !apart.is_empty() {
        let (a, b) = apart[0];
        let (pairs, a, b) = (counted(apart.len(), "pair", "pairs"), topology.name(a), topology.name(b));
        text += &format!("without a route: {pairs}, the first {a}-{b}\n");
    }
    let single: Vec<_> =
        bridges(topology).iter().map(|&link| super::link_name(topology, topology.link(link))).collect();
    let cables = if single.is_empty() { "none".to_owned() } else { shortened(&single) };
    text += &format!("links that alone hold it together: {cables}\n");
    text += &format!("nodes that alone hold it together: {}\n", names(topology, &articulation_nodes(topology), ", "));
    for (node, port) in topology.unlinked_ports() {
        let (name, port) = (topology.name(node), &topology.node(node).ports[port]);
        text += &format!("note: {name} {} {}/{} meets no other port\n", port.device, port.address, port.prefix);
    }
    text
}

fn shortened(items: &[String]) -> String {
    match items.len() {
        0..=8 => items.join(", "),
        more => format!("{} and {} more", items[..8].join(", "), more - 8),
    }
}
