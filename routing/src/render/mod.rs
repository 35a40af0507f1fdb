//! Text and pictures of what this crate knows, for the operator's command. Strings out; where they go is the
//! caller's concern.

mod cabling;
mod layout;
mod outages;
mod routes;
mod scene;
mod summary;
mod svg;
mod table;

pub use cabling::cabling_svg;
pub use outages::{Down, Outage, outages, outages_table};
pub use routes::{STANDARD_LOADS, loads_table, ring_note, route_detail, routes_table};
pub use summary::summary;
pub use svg::{Picture, svg};
pub use table::Table;

use crate::{Link, NodeId, Topology};

/// A link by its nodes, and by its rail where its edge has more than one: `node0-node1`, `node0-node1 rail 1`.
pub fn link_name(topology: &Topology, link: &Link) -> String {
    let [a, b] = link.ends.map(|end| topology.name(end.node));
    let rails = topology.links_of_edge(link.edge);
    match rails.iter().position(|&rail| rail == link.id) {
        Some(rail) if rails.len() > 1 => format!("{a}-{b} rail {rail}"),
        _ => format!("{a}-{b}"),
    }
}

/// Names of nodes with a separator; a dash for none.
pub fn names(topology: &Topology, nodes: &[NodeId], separator: &str) -> String {
    if nodes.is_empty() {
        return "-".to_owned();
    }
    nodes.iter().map(|&node| topology.name(node)).collect::<Vec<_>>().join(separator)
}

/// `1 node`, `2 nodes`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}
