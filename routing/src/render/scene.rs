//! What a picture shows: wires with their load, nodes, switches. Places are final; how it looks is decided elsewhere.

use super::layout::{Layout, Point};
use crate::{LinkLoad, NodeId, Route, Topology};

/// One cable, or one port's cable to a switch.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) ends: [Point; 2],
    /// What the first end sends, and the second.
    pub(super) load: [f64; 2],
    /// Shown when pointed at.
    pub(super) title: String,
    /// Whether the marked route passes it.
    pub(super) marked: bool,
    /// Its place among the wires beside it, from 0.
    pub(super) rail: usize,
    /// Whether the second end is a switch.
    pub(super) to_switch: bool,
    /// The port at each end; none at a switch.
    pub(super) ports: [Option<(NodeId, usize)>; 2],
    /// Speed of the link, or of the port at a switch, in Mbit/s.
    pub(super) speed_mbps: Option<u32>,
}

/// A switched segment.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) place: Point,
    pub(super) name: String,
}

/// Everything in a picture besides its heading.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) wires: Vec<Wire>,
    pub(super) switches: Vec<Switch>,
}

/// Pixels between the rails of an edge.
pub(super) const RAIL_GAP: f64 = 16.0;
/// Pixels between switches, to the right and down: side by side they would hide each other's wires, and so they would
/// one above the other.
const SWITCH_GAP: (f64, f64) = (150.0, 90.0);

pub(super) fn scene(topology: &Topology, layout: &Layout, load: &LinkLoad, route: Option<&Route>) -> Scene {
    let mut wires = Vec::new();
    let on_route =
        |a: NodeId, b: NodeId| route.is_some_and(|route| route.steps().any(|step| step == (a, b) || step == (b, a)));
    for edge in topology.edges() {
        let [a, b] = edge.nodes;
        let cables: Vec<_> = edge.links.iter().map(|&id| topology.link(id)).filter(|link| !link.switched).collect();
        for (rail, link) in cables.iter().enumerate() {
            let aside = (rail as f64 - (cables.len() - 1) as f64 / 2.0) * RAIL_GAP;
            let ends = shifted([layout.nodes[a.index()], layout.nodes[b.index()]], aside);
            let [out, back] = load.links[link.id.index()];
            let load = if link.ends[0].node == a { [out, back] } else { [back, out] };
            let title = format!("{} ({})", super::link_name(topology, link), link.subnet);
            let ports = [a, b].map(|node| link.end_of(node).map(|end| (node, end.port)));
            wires.push(Wire {
                ends,
                load,
                title,
                marked: on_route(a, b),
                rail,
                to_switch: false,
                ports,
                speed_mbps: link.speed_mbps,
            });
        }
    }
    let mut switches = Vec::new();
    let count = topology.switches().len();
    for (index, subnet) in topology.switches().iter().enumerate() {
        let step = index as f64 - (count - 1) as f64 / 2.0;
        let place = Point { x: layout.centre.x + step * SWITCH_GAP.0, y: layout.centre.y + step * SWITCH_GAP.1 };
        switches.push(Switch { place, name: subnet.to_string() });
        for node in topology.nodes() {
            for (port, spec) in node.ports.iter().enumerate().filter(|(_, port)| port.subnet() == Some(*subnet)) {
                let [sent, received] = load.ports[node.id.index()][port];
                // The switch sends what the port receives.
                wires.push(Wire {
                    ends: [layout.nodes[node.id.index()], place],
                    load: [sent, received],
                    title: format!("{} {} ({})", node.name, spec.device, spec.address),
                    marked: route.is_some_and(|route| switched_step(topology, route, node.id, *subnet)),
                    rail: index,
                    to_switch: true,
                    ports: [Some((node.id, port)), None],
                    speed_mbps: spec.speed_mbps,
                });
            }
        }
    }
    Scene { wires, switches }
}

/// Whether the route passes this node over this switch.
fn switched_step(topology: &Topology, route: &Route, node: NodeId, subnet: crate::Subnet) -> bool {
    route.steps().filter(|&(a, b)| a == node || b == node).any(|(a, b)| {
        let links = topology.edge_between(a, b).map_or(&[][..], |edge| topology.links_of_edge(edge));
        links.iter().any(|&link| topology.link(link).subnet == subnet)
    })
}

/// The line moved sideways.
pub(super) fn shifted([a, b]: [Point; 2], aside: f64) -> [Point; 2] {
    let (x, y) = (b.x - a.x, b.y - a.y);
    let length = x.hypot(y).max(1.0);
    let (dx, dy) = (-y / length * aside, x / length * aside);
    [Point { x: a.x + dx, y: a.y + dy }, Point { x: b.x + dx, y: b.y + dy }]
}
