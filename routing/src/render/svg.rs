//! The picture: nodes, rails, and the load of every link under one collective, as SVG.

use super::layout::{Layout, Point, layout};
use super::scene::{Scene, Wire, scene};
use crate::{LinkLoad, Route, Router, Topology};
use std::fmt::Write as _;

/// What to draw.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// Heading: what the topology is.
    pub title: &'a str,
    /// What the load is of: `all-reduce by tree`.
    pub load_name: &'a str,
    /// The load.
    pub load: &'a LinkLoad,
    /// A route to mark.
    pub route: Option<&'a Route>,
}

pub(super) const NODE_RADIUS: f64 = 36.0;
/// Height of the heading and of the legend.
pub(super) const HEAD: f64 = 84.0;
const FOOT: f64 = 96.0;
pub(super) const LEAST_WIDTH: f64 = 620.0;
/// With more wires than this at one node, numbers would cover each other: colour and width alone tell.
const MOST_LABELS: usize = 6;
/// Size of the ground of a label.
const LABEL: (f64, f64) = (30.0, 14.0);
const STYLE: &str = "text{font-family:'DejaVu Sans','Helvetica Neue',Arial,sans-serif;fill:#1f2933}\
.h{font-size:18px;font-weight:bold}.s{font-size:13px;fill:#52606d}.n{font-size:13px;text-anchor:middle}\
.l{font-size:11px;text-anchor:middle}.r{font-size:10px;text-anchor:middle;fill:#52606d}\
.p{font-size:10px;text-anchor:middle}";

/// The picture as a standalone SVG document.
pub fn svg(topology: &Topology, router: &Router, picture: &Picture<'_>) -> String {
    let layout = layout(topology, router);
    let scene = scene(topology, &layout, picture.load, picture.route);
    let width = layout.width.max(LEAST_WIDTH);
    let height = layout.height + HEAD + FOOT;
    let most = scene.wires.iter().flat_map(|wire| wire.load).fold(0.0, f64::max);
    let mut out = begin(width, height);
    // Writing to a string cannot fail, here and below.
    heading(&mut out, picture, most);
    let _ = writeln!(out, "<g transform=\"translate({:.1} {HEAD})\">", (width - layout.width) / 2.0);
    // Marked wires first: the mark lies below the wire.
    for wire in scene.wires.iter().filter(|wire| wire.marked) {
        line(&mut out, wire.ends, "#7cc4fa", 14.0, "");
    }
    for wire in &scene.wires {
        let busiest = wire.load[0].max(wire.load[1]);
        let share = if most > 0.0 { busiest / most } else { 0.0 };
        line(&mut out, wire.ends, &colour(share), 2.0 + 4.0 * share, &wire.title);
    }
    draw_switches(&mut out, &scene);
    let ports = topology.nodes().iter().map(|node| node.ports.len()).max().unwrap_or(0);
    let labelled = ports <= MOST_LABELS;
    if labelled {
        scene.wires.iter().for_each(|wire| labels(&mut out, wire));
    }
    nodes(&mut out, topology, &layout, picture);
    out.push_str("</g>\n");
    legend(&mut out, most, height - FOOT + 10.0, labelled, !scene.switches.is_empty());
    out.push_str("</svg>\n");
    out
}

/// The beginning of a document of this size, up to its ground.
pub(super) fn begin(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    )
}

fn heading(out: &mut String, picture: &Picture<'_>, most: f64) {
    let relayed = picture.load.relayed_share() * 100.0;
    let _ = writeln!(
        out,
        "<text class=\"h\" x=\"24\" y=\"34\">{}</text>\n<text class=\"s\" x=\"24\" y=\"56\">{}: at most {most:.2} S on a \
         link, {relayed:.0} % of the data through relays</text>",
        escaped(picture.title),
        escaped(picture.load_name)
    );
    if let Some(route) = picture.route {
        let hops = super::counted(route.hops(), "hop", "hops");
        let _ = writeln!(out, "<text class=\"s\" x=\"24\" y=\"76\">marked: the chosen route, {hops}</text>");
    }
}

pub(super) fn nodes(out: &mut String, topology: &Topology, layout: &Layout, picture: &Picture<'_>) {
    for node in topology.nodes() {
        let Point { x, y } = layout.nodes[node.id.index()];
        let on_route = picture.route.is_some_and(|route| route.nodes().contains(&node.id));
        let fill = if on_route { "#bae3ff" } else { "#ffffff" };
        let dash = if node.relay { "" } else { " stroke-dasharray=\"5 4\"" };
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{NODE_RADIUS}\" fill=\"{fill}\" stroke=\"#243b53\" \
             stroke-width=\"2\"{dash}><title>{}</title></circle>",
            escaped(&node.name)
        );
        let relayed = picture.load.relayed[node.id.index()];
        if relayed > 0.0 {
            let _ = writeln!(out, "<text class=\"r\" x=\"{x:.1}\" y=\"{:.1}\">relays {relayed:.2}</text>", y + 15.0);
        }
        // Long names stand below the circle, on a ground of their own.
        let fits = node.name.chars().count() <= 8;
        let down = if fits { y + if relayed > 0.0 { 1.0 } else { 5.0 } } else { y + NODE_RADIUS + 15.0 };
        if !fits {
            let width = node.name.chars().count() as f64 * 8.0 + 6.0;
            let (left, top) = (x - width / 2.0, down - 12.0);
            let _ = write!(
                out,
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"16\" rx=\"3\" fill=\"#ffffff\" \
                 fill-opacity=\"0.92\"/>"
            );
        }
        let _ = writeln!(out, "<text class=\"n\" x=\"{x:.1}\" y=\"{down:.1}\">{}</text>", escaped(&node.name));
    }
}

/// The load that each end sends, near that end; of a wire to a switch both, near the node.
fn labels(out: &mut String, wire: &Wire) {
    let [a, b] = wire.ends;
    let length = (b.x - a.x).hypot(b.y - a.y).max(1.0);
    // Clear of the circle, and of the labels of the rails beside it.
    let clear = NODE_RADIUS + if wire.to_switch { 34.0 } else { 20.0 };
    let share = (clear + wire.rail as f64 * (LABEL.0 + 2.0)) / length;
    let [sent, received] = wire.load;
    if wire.to_switch {
        let share = share + wire.rail as f64 * LABEL.0 / length;
        label(out, between(a, b, share.min(0.6)), &format!("{sent:.2}/{received:.2}"));
    } else {
        label(out, between(a, b, share.min(0.46)), &format!("{sent:.2}"));
        label(out, between(b, a, share.min(0.46)), &format!("{received:.2}"));
    }
}

fn between(a: Point, b: Point, share: f64) -> Point {
    Point { x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share }
}

fn label(out: &mut String, Point { x, y }: Point, text: &str) {
    let (width, height) = (LABEL.0.max(text.len() as f64 * 6.6 + 4.0), LABEL.1);
    let _ = writeln!(
        out,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height}\" rx=\"3\" fill=\"#ffffff\" \
         fill-opacity=\"0.92\"/><text class=\"l\" x=\"{x:.1}\" y=\"{:.1}\">{text}</text>",
        x - width / 2.0,
        y - height / 2.0,
        y + 4.0
    );
}

fn legend(out: &mut String, most: f64, y: f64, labelled: bool, switched: bool) {
    for step in 0..5 {
        let share = f64::from(step) / 4.0;
        let x = 24.0 + f64::from(step) * 74.0;
        let ends = [Point { x, y: y + 10.0 }, Point { x: x + 60.0, y: y + 10.0 }];
        line(out, ends, &colour(share), 2.0 + 4.0 * share, "");
        let _ =
            writeln!(out, "<text class=\"r\" x=\"{:.1}\" y=\"{:.1}\">{:.2}</text>", x + 30.0, y + 28.0, share * most);
    }
    let what = match (labelled, switched) {
        (true, false) => "At each end of a line: what that end sends.",
        (true, true) => "On a line to a switch: sent / received; else what that end sends.",
        (false, _) => "Colour and width: the busier direction of a link.",
    };
    let _ = writeln!(
        out,
        "<text class=\"s\" x=\"24\" y=\"{:.1}\">S: size of the payload. {what}</text>\n<text class=\"s\" x=\"24\" \
         y=\"{:.1}\">In a node: what it relays for others. Dashed: does not relay.</text>",
        y + 50.0,
        y + 70.0
    );
}

/// The boxes of switched segments.
pub(super) fn draw_switches(out: &mut String, scene: &Scene) {
    for switch in &scene.switches {
        let Point { x, y } = switch.place;
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"150\" height=\"40\" rx=\"6\" fill=\"#f0f4f8\" stroke=\"#486581\" \
             stroke-width=\"2\"/><text class=\"n\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
            x - 75.0,
            y - 20.0,
            y + 5.0,
            escaped(&switch.name)
        );
    }
}

pub(super) fn line(out: &mut String, [a, b]: [Point; 2], colour: &str, width: f64, title: &str) {
    let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) };
    let _ = writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width:.1}\" \
         stroke-linecap=\"round\">{title}</line>",
        a.x, a.y, b.x, b.y
    );
}

/// From grey, idle, over amber to dark red, busiest: told apart by lightness too.
fn colour(share: f64) -> String {
    const STOPS: [[f64; 3]; 3] = [[188.0, 198.0, 208.0], [240.0, 165.0, 40.0], [160.0, 25.0, 35.0]];
    let scaled = share.clamp(0.0, 1.0) * 2.0;
    let (from, to) = if scaled <= 1.0 { (STOPS[0], STOPS[1]) } else { (STOPS[1], STOPS[2]) };
    let part = if scaled <= 1.0 { scaled } else { scaled - 1.0 };
    let [r, g, b] = [0, 1, 2].map(|channel| (from[channel] + (to[channel] - from[channel]) * part).round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{colour, escaped};

    #[test]
    fn colours_run_from_idle_to_busiest() {
        assert_eq!([0.0, 0.5, 1.0].map(colour), ["#bcc6d0", "#f0a528", "#a01923"]);
        assert_eq!(colour(7.0), colour(1.0));
    }

    #[test]
    fn names_cannot_break_out_of_the_document() {
        assert_eq!(escaped("<a b=\"&\">"), "&lt;a b=&quot;&amp;&quot;&gt;");
    }
}
