//! Where the nodes of a picture stand. Recognizes the shapes that have a drawing of their own; all else stands on a
//! circle in the order in which the cables go round.

use crate::{NodeId, RankOrder, Router, Shape, Topology, grid_sides};
use std::collections::BTreeSet;
use std::f64::consts::TAU;

/// A point in pixels, from the top left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// Places of all nodes, and the size of the area that they need with room for labels.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// By node.
    pub(super) nodes: Vec<Point>,
    /// Where switches stand, if there are any.
    pub(super) centre: Point,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Room around the outermost nodes.
const MARGIN: f64 = 75.0;
/// Between neighbours in a row.
const STEP: f64 = 230.0;
/// The smallest circle, and the smallest around switches.
const LEAST_RADIUS: f64 = 165.0;
const LEAST_RADIUS_SWITCHED: f64 = 290.0;

pub(super) fn layout(topology: &Topology, router: &Router) -> Layout {
    let n = topology.nodes().len();
    let order = topology.canonical_order();
    let is = |shape: Shape| {
        let place = |at: usize| order[at];
        let cables: BTreeSet<_> = shape.cables(n).into_iter().map(|(a, b)| ordered(place(a), place(b))).collect();
        let edges: BTreeSet<_> = topology.edges().iter().map(|edge| ordered(edge.nodes[0], edge.nodes[1])).collect();
        !cables.is_empty() && cables == edges && topology.switches().is_empty()
    };
    if is(Shape::Line) && n <= 8 {
        return rows(order, n);
    }
    if is(Shape::Grid) && grid_sides(n).0 > 1 {
        return rows(order, grid_sides(n).1);
    }
    // A star's hub stands in the middle, all others around it.
    let hub = topology.nodes().iter().map(|node| node.id).find(|&node| {
        n > 3 && topology.edges().len() == n - 1 && topology.edges().iter().all(|edge| edge.nodes.contains(&node))
    });
    let ring = RankOrder::along_cables(topology, router);
    let around: Vec<_> = ring.nodes().iter().copied().filter(|&node| Some(node) != hub).collect();
    let least = if topology.switches().is_empty() { LEAST_RADIUS } else { LEAST_RADIUS_SWITCHED };
    circle(n, &around, hub, least)
}

fn rows(order: &[NodeId], columns: usize) -> Layout {
    let mut nodes = vec![Point { x: 0.0, y: 0.0 }; order.len()];
    for (at, node) in order.iter().enumerate() {
        let (row, column) = (at / columns, at % columns);
        nodes[node.index()] = Point { x: MARGIN + column as f64 * STEP, y: MARGIN + row as f64 * STEP };
    }
    let width = 2.0 * MARGIN + (columns - 1) as f64 * STEP;
    let height = 2.0 * MARGIN + (order.len().div_ceil(columns) - 1) as f64 * STEP;
    Layout { nodes, centre: Point { x: width / 2.0, y: height / 2.0 }, width, height }
}

fn circle(n: usize, around: &[NodeId], hub: Option<NodeId>, least: f64) -> Layout {
    let count = around.len().max(2);
    // Neighbours on the circle are about a step apart, but a small circle still has room inside.
    let radius = (STEP / (TAU / 2.0 / count as f64).sin() / 2.0).clamp(least, 6000.0);
    let centre = Point { x: radius + MARGIN, y: radius + MARGIN };
    let mut nodes = vec![centre; n];
    for (at, node) in around.iter().enumerate() {
        // The first stands on top; an even ring of four stands on its corners, so that its cables lie level.
        let turn = if count == 4 { -0.125 } else { 0.0 };
        let angle = TAU * (at as f64 / count as f64 - 0.25 + turn);
        nodes[node.index()] = Point { x: centre.x + radius * angle.cos(), y: centre.y + radius * angle.sin() };
    }
    if let Some(hub) = hub {
        nodes[hub.index()] = centre;
    }
    Layout { nodes, centre, width: 2.0 * centre.x, height: 2.0 * centre.y }
}

fn ordered(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

#[cfg(test)]
mod tests {
    use super::layout;
    use crate::{AddressPlan, Router, Shape, Topology};

    #[test]
    fn no_two_nodes_touch_and_all_lie_inside() {
        for shape in Shape::ALL {
            for nodes in 1..=20 {
                // given every shape in many sizes
                let topology = Topology::from_shape(shape, nodes, 2, &AddressPlan::default()).expect("a shape");
                let found = layout(&topology, &Router::new(&topology));
                for (at, a) in found.nodes.iter().enumerate() {
                    // then each node has room to the border and to each other
                    let inside = |place: f64, size: f64| (60.0..=size - 60.0).contains(&place);
                    assert!(inside(a.x, found.width) && inside(a.y, found.height), "{shape:?} {nodes}: {a:?}");
                    for b in &found.nodes[at + 1..] {
                        assert!((a.x - b.x).hypot(a.y - b.y) > 100.0, "{shape:?} {nodes}: {a:?} {b:?}");
                    }
                }
            }
        }
    }
}
