//! What routes cost on rings and grids of up to 256 nodes. Times are printed and never asserted; what a router holds
//! is, as it is the same on every machine.
//!
//! `cargo test --release -p mesh-routing --test scale -- --nocapture` prints the table of docs/routing.md.

use mesh_routing::{AddressPlan, NodeId, Router, Shape, Topology};
use std::time::{Duration, Instant};

/// Repetitions, of which the quickest counts.
const ROUNDS: usize = 5;

struct Row {
    shape: Shape,
    nodes: usize,
    build: Duration,
    /// The first route that has a choice, with all that is computed for it.
    first: Duration,
    /// The quickest of those after it, on average.
    next: Duration,
    /// All lanes of the first pair.
    lanes: Duration,
    /// Bytes held before the first route and after it.
    bytes: [usize; 2],
}

fn quickest<T>(mut run: impl FnMut() -> T) -> (Duration, T) {
    let mut once = || {
        let begin = Instant::now();
        let result = run();
        (begin.elapsed(), result)
    };
    (1..ROUNDS).fold(once(), |best, _| {
        let now = once();
        if now.0 < best.0 { now } else { best }
    })
}

fn measure(shape: Shape, nodes: usize) -> Row {
    let topology = Topology::from_shape(shape, nodes, 2, &AddressPlan::default()).expect("a shape");
    let (build, router) = quickest(|| Router::new(&topology));
    let held = router.bytes_held();
    // Opposite corners of a grid, opposite nodes of a ring: as many ways as there can be.
    let (from, to) = (NodeId(0), NodeId(if shape == Shape::Ring { nodes / 2 } else { nodes - 1 } as u16));
    let first = (0..ROUNDS).map(|_| {
        let router = Router::new(&topology);
        let begin = Instant::now();
        assert!(router.choose(from, to).is_some());
        (begin.elapsed(), router)
    });
    let (first, router) = first.min_by_key(|(took, _)| *took).expect("some rounds");
    let others = (1..nodes).map(|to| NodeId(to as u16));
    let (all, _) = quickest(|| others.clone().filter(|&to| router.choose(from, to).is_some()).count());
    let (lanes, found) = quickest(|| router.lanes_apart(from, to, 0, 8).len());
    assert!(found >= 2);
    Row { shape, nodes, build, first, lanes, next: all / (nodes as u32 - 1), bytes: [held, router.bytes_held()] }
}

#[test]
fn what_routes_cost() {
    println!(
        "| shape, two rails | nodes | Router::new, us | first route, us | each other, us | its lanes, us | KiB held | with the first route |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let us = |took: Duration| took.as_nanos() as f64 / 1e3;
    for shape in [Shape::Ring, Shape::Grid] {
        let rows: Vec<Row> = [4, 16, 64, 128, 256].into_iter().map(|nodes| measure(shape, nodes)).collect();
        for row in &rows {
            println!(
                "| {} | {} | {:.0} | {:.0} | {:.2} | {:.0} | {:.1} | {:.1} |",
                row.shape.name(),
                row.nodes,
                us(row.build),
                us(row.first),
                us(row.next),
                us(row.lanes),
                row.bytes[0] as f64 / 1024.0,
                row.bytes[1] as f64 / 1024.0
            );
        }
        // A router grows with its nodes and edges, no faster.
        let per_node = |row: &Row| row.bytes[0] as f64 / row.nodes as f64;
        let (small, large) = (&rows[2], &rows[4]);
        assert!(per_node(large) < 1.2 * per_node(small), "{}: {} {}", shape.name(), per_node(small), per_node(large));
        // The table of ties has a route a pair at most, and none beyond its limit.
        for row in &rows {
            let most = row.nodes * (row.nodes - 1) / 2 * (40 + 2 * row.nodes);
            assert!(row.bytes[1] - row.bytes[0] <= most, "{} of {}", shape.name(), row.nodes);
            assert!(row.nodes <= Router::SPREAD_NODES || row.bytes[0] == row.bytes[1]);
        }
    }
}
