//! The picture of a topology: nodes, rails as parallel lines with the ports at their ends, and the routes of one node.
//! Where things stand is decided in the layout; load is another picture's. Any thread.

use super::layout::{Layout, Point, layout};
use super::scene::{RAIL_GAP, Scene, Wire, scene};
use super::svg::{HEAD, LEAST_WIDTH, NODE_RADIUS, Picture, begin, draw_switches, escaped, line, nodes};
use super::{counted, names};
use crate::file::speed_text;
use crate::load::MOST_LANES;
use crate::{EdgeId, NodeId, RankOrder, Router, Topology, link_load};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Width of a letter in a label, and room beside labels on a wire: its speed and the ends' clearance.
const LETTER: f64 = 5.9;
const ROOM: f64 = 74.0;
/// Neighbours in a layout are at least so far apart.
const NEAREST: f64 = 220.0;
/// With more ports than this at one node, labels would cover each other: pointing at a line still tells.
const MOST_PORTS: usize = 12;
/// Routes in the legend before the rest is only counted, and the height of its lines.
const MOST_LISTED: usize = 24;
const LEGEND_LINE: f64 = 22.0;
/// Between the outermost rail and the first route beside it, and between routes.
const ROUTE_GAP: (f64, f64) = (11.0, 7.0);
/// Colours of routes, told apart by lightness too.
const COLOURS: [&str; 8] = ["#d64545", "#2680c2", "#3f9142", "#8719e0", "#de911d", "#0b69a3", "#a30664", "#54d1db"];

/// The picture as a standalone SVG document; with the routes from a node to all others, if one is given.
pub fn cabling_svg(topology: &Topology, router: &Router, title: &str, from: Option<NodeId>) -> String {
    let labelled = topology.nodes().iter().all(|node| node.ports.len() <= MOST_PORTS);
    let longest = topology.nodes().iter().flat_map(|node| &node.ports).map(|port| label_of(port).len()).max();
    let needed = 2.0 * (longest.unwrap_or(0) as f64 * LETTER + NODE_RADIUS) + ROOM;
    let stretch = if labelled { (needed / NEAREST).max(1.0) } else { 1.0 };
    let layout = stretched(layout(topology, router), stretch);
    let nothing = link_load(topology, router, &RankOrder::as_listed(topology), &[]);
    let scene = scene(topology, &layout, &nothing, None);
    let routes = from.map_or_else(Vec::new, |from| routes(topology, router, from));
    let listed = routes.len().min(MOST_LISTED + 1);
    let width = layout.width.max(LEAST_WIDTH);
    let mut out = begin(width, layout.height + HEAD + 70.0 + listed as f64 * LEGEND_LINE);
    heading(&mut out, topology, title, from);
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "<g transform=\"translate({:.1} {HEAD})\">", (width - layout.width) / 2.0);
    draw_routes(&mut out, topology, router, &layout, &routes);
    draw_wires(&mut out, topology, &scene, labelled);
    if let Some(from) = from {
        let Point { x, y } = layout.nodes[from.index()];
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{:.1}\" fill=\"#7cc4fa\"/>", NODE_RADIUS + 6.0);
    }
    nodes(&mut out, topology, &layout, &Picture { title, load_name: "", load: &nothing, route: None });
    out.push_str("</g>\n");
    legend(&mut out, topology, router, &routes, HEAD + layout.height + 24.0);
    out.push_str("</svg>\n");
    out
}

fn stretched(mut layout: Layout, by: f64) -> Layout {
    // The margin grows with the rest: labels of nodes need no more, but they may have it.
    for point in layout.nodes.iter_mut().chain(std::iter::once(&mut layout.centre)) {
        *point = Point { x: point.x * by, y: point.y * by };
    }
    Layout { width: layout.width * by, height: layout.height * by, ..layout }
}

fn heading(out: &mut String, topology: &Topology, title: &str, from: Option<NodeId>) {
    let counts = [
        counted(topology.nodes().len(), "node", "nodes"),
        counted(topology.edges().len(), "edge", "edges"),
        counted(topology.links().len(), "link", "links"),
    ];
    let routes = from.map_or_else(String::new, |from| format!("; coloured: routes from {}", topology.name(from)));
    let _ = writeln!(
        out,
        "<text class=\"h\" x=\"24\" y=\"34\">{}</text>\n<text class=\"s\" x=\"24\" y=\"56\">{}{}</text>",
        escaped(title),
        counts.join(", "),
        escaped(&routes)
    );
}

fn draw_wires(out: &mut String, topology: &Topology, scene: &Scene, labelled: bool) {
    for wire in &scene.wires {
        let ports: Vec<_> = wire.ports.iter().flatten().map(|&port| full_label(topology, port)).collect();
        line(out, wire.ends, "#627d98", 2.0, &format!("{}: {}", wire.title, ports.join(", ")));
    }
    draw_switches(out, scene);
    for wire in scene.wires.iter().filter(|_| labelled) {
        wire_labels(out, topology, wire);
    }
}

/// Along the wire: the port at each end, the speed in between.
fn wire_labels(out: &mut String, topology: &Topology, wire: &Wire) {
    let [a, b] = wire.ends;
    let angle = (b.y - a.y).atan2(b.x - a.x).to_degrees();
    // Never upside down.
    let turned = !(-90.0..=90.0).contains(&angle);
    let angle = if turned { angle + 180.0 } else { angle };
    let length = (b.x - a.x).hypot(b.y - a.y).max(1.0);
    // Each on a ground of its own, which hides the wire; `from` is the share of the wire at which the text begins.
    let mut put = |from: f64, back: bool, text: &str| {
        let width = text.chars().count() as f64 * LETTER;
        let along = if back { from - width / 2.0 } else { from + width / 2.0 } / length;
        let (x, y) = (a.x + (b.x - a.x) * along, a.y + (b.y - a.y) * along);
        let _ = writeln!(
            out,
            "<g transform=\"translate({x:.1} {y:.1}) rotate({angle:.1})\"><rect x=\"{:.1}\" y=\"-6\" width=\"{width:.1}\" \
             height=\"12\" fill=\"#ffffff\"/><text class=\"p\" y=\"3.5\">{}</text></g>",
            -width / 2.0,
            escaped(text)
        );
    };
    let text = |end: usize| wire.ports[end].map(|(node, port)| label_of(&topology.node(node).ports[port]));
    let clear = NODE_RADIUS + 8.0;
    if let Some(text) = text(0) {
        // Wires to several switches run close together at the node: their labels stand one behind the other.
        let behind = if wire.to_switch { wire.rail as f64 * (text.chars().count() as f64 * LETTER + 8.0) } else { 0.0 };
        put((clear + behind).min(length * 0.6), false, &text);
    }
    if let Some(text) = text(1) {
        put(length - clear, true, &text);
    }
    if let Some(speed) = wire.speed_mbps.map(speed_text) {
        // On a wire to a switch nearer the switch, whose ports all lead to one place.
        let middle = length * if wire.to_switch { 0.75 } else { 0.5 };
        put(middle - speed.len() as f64 * LETTER / 2.0, false, &speed);
    }
}

fn label_of(port: &crate::Port) -> String {
    format!("{} {}/{}", port.device, port.address, port.prefix)
}

fn full_label(topology: &Topology, (node, port): (NodeId, usize)) -> String {
    let port = &topology.node(node).ports[port];
    let speed = port.speed_mbps.map_or_else(String::new, |mbps| format!(" {}", speed_text(mbps)));
    format!("{} {}{speed}", topology.name(node), label_of(port))
}

/// The chosen route to every other node that can be reached, in natural order.
fn routes(topology: &Topology, router: &Router, from: NodeId) -> Vec<crate::Route> {
    topology.canonical_order().iter().filter_map(|&to| router.choose(from, to)).collect()
}

/// Each route in its colour beside the rails that it takes, the later ones further out.
fn draw_routes(out: &mut String, topology: &Topology, router: &Router, layout: &Layout, routes: &[crate::Route]) {
    let mut beside: HashMap<EdgeId, usize> = HashMap::new();
    for (at, route) in routes.iter().enumerate() {
        let to = format!("{} to {}", topology.name(route.from()), topology.name(route.to()));
        for edge in router.edges(route) {
            let [a, b] = topology.edge(edge).nodes;
            let cables = topology.links_of_edge(edge).iter().filter(|&&link| !topology.link(link).switched).count();
            let rails = cables.saturating_sub(1) as f64 / 2.0 * RAIL_GAP;
            let place = beside.entry(edge).or_default();
            let aside = rails + ROUTE_GAP.0 + *place as f64 * ROUTE_GAP.1;
            *place += 1;
            let ends = super::scene::shifted([layout.nodes[a.index()], layout.nodes[b.index()]], aside);
            line(out, ends, COLOURS[at % COLOURS.len()], 4.0, &to);
        }
    }
}

fn legend(out: &mut String, topology: &Topology, router: &Router, routes: &[crate::Route], top: f64) {
    let mut y = top;
    for (at, route) in routes.iter().take(MOST_LISTED).enumerate() {
        let ends = [Point { x: 24.0, y: y - 4.0 }, Point { x: 64.0, y: y - 4.0 }];
        line(out, ends, COLOURS[at % COLOURS.len()], 4.0, "");
        let way = match route.relays() {
            [] => "direct".to_owned(),
            relays => format!("via {}", names(topology, relays, ", ")),
        };
        let lanes = router.lanes_apart(route.from(), route.to(), 0, MOST_LANES).len();
        let text = format!("to {}: {way}; {}", topology.name(route.to()), counted(lanes, "lane", "lanes"));
        let _ = writeln!(out, "<text class=\"s\" x=\"76\" y=\"{y:.1}\">{}</text>", escaped(&text));
        y += LEGEND_LINE;
    }
    if routes.len() > MOST_LISTED {
        let more = routes.len() - MOST_LISTED;
        let _ = writeln!(out, "<text class=\"s\" x=\"76\" y=\"{y:.1}\">and {more} more</text>");
        y += LEGEND_LINE;
    }
    let _ = writeln!(
        out,
        "<text class=\"s\" x=\"24\" y=\"{:.1}\">A line: one link, with device and address of the port at each end and \
         its speed where given. Dashed: does not relay.</text>",
        y + 10.0
    );
}
