//! What breaks if one link or one node does, as rows and as a table.

use super::{Table, counted, link_name};
use crate::cuts::{Impact, articulation_nodes, bridges, impact_on};
use crate::{LinkId, NodeId, Router, Topology};

/// What is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Down {
    /// A cable.
    Link(LinkId),
    /// A node's port on a switch, by its index in [`Node::ports`](crate::Node::ports); all links of that port with it.
    Port(NodeId, usize),
    /// A node with all its ports.
    Node(NodeId),
}

/// One outage and what it does to routes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// What is down.
    pub down: Down,
    /// What that does.
    pub impact: Impact,
}

/// Work, in looks at a pair of nodes, beyond which only the outages that can cut something are gone through.
const MAX_WORK: usize = 20_000_000;

/// The outage of each single cable, port on a switch, and node. On large topologies only of those links and nodes
/// whose loss takes the cabling apart.
pub fn outages(topology: &Topology) -> Vec<Outage> {
    let whole = Router::new(topology);
    let (n, links) = (topology.nodes().len(), topology.links().len());
    let single: Vec<Down> = if n * (n + links) * (n + links) <= MAX_WORK {
        let cables = topology.links().iter().filter(|link| !link.switched).map(|link| Down::Link(link.id));
        let ports = topology.nodes().iter().flat_map(|node| {
            let switched =
                |port: &usize| node.ports[*port].subnet().is_some_and(|subnet| topology.switches().contains(&subnet));
            (0..node.ports.len()).filter(switched).map(|port| Down::Port(node.id, port))
        });
        cables.chain(ports).chain(topology.nodes().iter().map(|node| Down::Node(node.id))).collect()
    } else {
        let links = bridges(topology).into_iter().map(Down::Link);
        links.chain(articulation_nodes(topology).into_iter().map(Down::Node)).collect()
    };
    let outage = |down| {
        let links = match down {
            Down::Link(link) => vec![link],
            Down::Port(node, port) => links_of_port(topology, node, port),
            Down::Node(_) => Vec::new(),
        };
        let nodes = if let Down::Node(node) = down { vec![node] } else { Vec::new() };
        Outage { down, impact: impact_on(&whole, topology, &links, &nodes) }
    };
    single.into_iter().map(outage).collect()
}

fn links_of_port(topology: &Topology, node: NodeId, port: usize) -> Vec<LinkId> {
    let here = |link: &LinkId| topology.link(*link).end_of(node).is_some_and(|end| end.port == port);
    topology.links_of_node(node).iter().copied().filter(here).collect()
}

/// One row an outage: links that the edge keeps, pairs cut off, pairs with a longer way, the longest way of those.
pub fn outages_table(topology: &Topology, outages: &[Outage]) -> String {
    let mut table = Table::new(&["down", "links left", "cuts off", "longer way"]);
    for outage in outages {
        let (name, left) = match outage.down {
            Down::Link(link) => {
                let link = topology.link(link);
                let rails = topology.links_of_edge(link.edge).len();
                (link_name(topology, link), format!("{} of {rails}", rails - 1))
            }
            Down::Port(node, port) => {
                let described = topology.node(node);
                let ports = described.ports.len();
                (format!("{} {}", described.name, described.ports[port].device), format!("{} of {ports}", ports - 1))
            }
            Down::Node(node) => (topology.name(node).to_owned(), "-".to_owned()),
        };
        let impact = &outage.impact;
        let cut = match impact.cut.len() {
            0 => "nothing".to_owned(),
            1..=3 => pair_names(topology, &impact.cut),
            more => counted(more, "pair", "pairs"),
        };
        let longer = match impact.longer.iter().map(|&(.., is)| is).max() {
            None => "none".to_owned(),
            Some(most) => {
                format!("{}, up to {}", counted(impact.longer.len(), "pair", "pairs"), counted(most, "hop", "hops"))
            }
        };
        table.row([name, left, cut, longer]);
    }
    table.render()
}

fn pair_names(topology: &Topology, pairs: &[(NodeId, NodeId)]) -> String {
    let name = |&(a, b): &(NodeId, NodeId)| format!("{}-{}", topology.name(a), topology.name(b));
    pairs.iter().map(name).collect::<Vec<_>>().join(", ")
}
