//! Generated shapes: cabling, addresses, limits.

use mesh_routing::{AddressPlan, RankOrder, Router, Shape, ShapeError, Topology, grid_sides};
use std::net::Ipv4Addr;

fn build(shape: Shape, nodes: usize, rails: usize) -> Result<Topology, ShapeError> {
    Topology::from_shape(shape, nodes, rails, &AddressPlan::default())
}

#[test]
fn edges_and_links_of_each_shape() {
    for (shape, nodes, edges) in [
        (Shape::Ring, 1, 0),
        (Shape::Ring, 2, 1),
        (Shape::Ring, 3, 3),
        (Shape::Ring, 6, 6),
        (Shape::Line, 6, 5),
        (Shape::Star, 6, 5),
        (Shape::Full, 6, 15),
        (Shape::Grid, 6, 7),
        (Shape::Grid, 7, 6),
        (Shape::Grid, 64, 112),
        (Shape::Switch, 6, 15),
    ] {
        for rails in [1, 2, 3] {
            let topology = build(shape, nodes, rails).expect("a shape that can be built");
            let name = shape.name();
            assert_eq!(topology.edges().len(), edges, "{name} of {nodes}");
            assert_eq!(topology.links().len(), edges * rails, "{name} of {nodes}, {rails} rails");
            assert_eq!(name.parse::<Shape>(), Ok(shape));
            // What is generated would pass as a file.
            assert_eq!(Topology::from_toml(&topology.to_toml()).ok(), Some(topology), "{name} of {nodes}");
        }
    }
}

#[test]
fn a_ring_is_addressed_edge_by_edge_and_rail_by_rail() {
    let plan = AddressPlan { base: Ipv4Addr::new(192, 168, 100, 0) };
    let topology = Topology::from_shape(Shape::Ring, 3, 2, &plan).expect("a ring");
    let found: Vec<_> = topology
        .links()
        .iter()
        .map(|link| {
            let [a, b] = link.ends.map(|end| format!("{} {}", topology.name(end.node), end.address));
            format!("{a} - {b}")
        })
        .collect();
    assert_eq!(
        found,
        [
            "node0 192.168.100.1 - node1 192.168.100.2",
            "node0 192.168.100.5 - node1 192.168.100.6",
            "node1 192.168.100.9 - node2 192.168.100.10",
            "node1 192.168.100.13 - node2 192.168.100.14",
            "node2 192.168.100.17 - node0 192.168.100.18",
            "node2 192.168.100.21 - node0 192.168.100.22",
        ]
    );
    for edge in topology.edges() {
        assert_eq!(edge.links.len(), 2);
        assert!(edge.links.is_sorted());
    }
}

#[test]
fn a_switch_has_room_for_all_and_one_subnet_a_rail() {
    for (nodes, prefix) in [(2, 30), (3, 29), (6, 29), (7, 28), (254, 24), (255, 23)] {
        let topology = build(Shape::Switch, nodes, 2).expect("a switch");
        assert_eq!(topology.switches().len(), 2);
        assert_eq!(topology.switches()[0].prefix(), prefix, "{nodes} nodes");
        assert!(topology.nodes().iter().all(|node| node.ports.len() == 2));
    }
}

#[test]
fn limits() {
    assert!(matches!(build(Shape::Ring, 0, 1), Err(ShapeError::Nodes { .. })));
    assert!(build(Shape::Line, Topology::MAX_NODES, 1).is_ok());
    assert!(matches!(build(Shape::Line, Topology::MAX_NODES + 1, 1), Err(ShapeError::Nodes { .. })));
    assert!(matches!(build(Shape::Ring, 4, 0), Err(ShapeError::Rails { .. })));
    assert!(build(Shape::Ring, 4, Shape::MAX_RAILS).is_ok());
    assert!(matches!(build(Shape::Ring, 4, Shape::MAX_RAILS + 1), Err(ShapeError::Rails { .. })));
    let at =
        |base| Topology::from_shape(Shape::Line, 3, 1, &AddressPlan { base }).map(|topology| topology.links().len());
    assert_eq!(at(Ipv4Addr::new(223, 255, 255, 248)), Ok(2));
    assert!(matches!(at(Ipv4Addr::new(223, 255, 255, 252)), Err(ShapeError::Addresses { .. })));
    assert!(at(Ipv4Addr::new(255, 255, 255, 255)).is_err());
    assert!(at(Ipv4Addr::new(126, 255, 255, 252)).is_err());
    assert_eq!(at(Ipv4Addr::new(128, 0, 0, 0)), Ok(2));
}

#[test]
fn grids_are_as_square_as_they_can_be() {
    assert_eq!([1, 2, 6, 7, 12, 64].map(grid_sides), [(1, 1), (1, 2), (2, 3), (1, 7), (3, 4), (8, 8)]);
}

#[test]
fn rank_orders_along_the_cables() {
    let relayed = |shape, nodes| {
        let topology = build(shape, nodes, 1).expect("a shape that can be built");
        let router = Router::new(&topology);
        let order = RankOrder::along_cables(&topology, &router);
        (order.ring_edges_relayed(&router).len(), order)
    };
    // Rings, full meshes and even grids have a way round on cables; lines and stars cannot.
    for nodes in [1, 2, 3, 6, 12, 13, 64] {
        assert_eq!(relayed(Shape::Ring, nodes).0, 0, "ring of {nodes}");
        assert_eq!(relayed(Shape::Full, nodes).0, 0, "full mesh of {nodes}");
    }
    assert_eq!(relayed(Shape::Ring, 6).1.numbers(), "0,1,2,3,4,5");
    for nodes in [4, 6, 12, 16, 36, 64] {
        assert_eq!(relayed(Shape::Grid, nodes).0, 0, "grid of {nodes}");
    }
    // Nine squares of a chessboard: one colour has one more, so one step must be relayed.
    assert_eq!(relayed(Shape::Grid, 9).0, 1);
    // The two ends of a line meet over relays; or, at no more relayed edges, not at all far from each other.
    assert_eq!(relayed(Shape::Line, 6).0, 1);
    assert_eq!(relayed(Shape::Star, 6).0, 4);
    assert_eq!(relayed(Shape::Line, 30).0, 1);
    assert_eq!(relayed(Shape::Star, 30).0, 28);
}

#[test]
fn a_shuffled_ring_is_put_in_order() {
    // given a ring whose cabling does not follow the names
    let mut specs = Shape::Ring.nodes(20, 1, &AddressPlan::default()).expect("a ring").0;
    for (at, spec) in specs.iter_mut().enumerate() {
        spec.name = format!("host-{}", at * 7 % 20);
    }
    let topology = Topology::from_nodes(specs, vec![], mesh_routing::Policy::default()).expect("sound");
    let router = Router::new(&topology);
    // when the ranks follow the names, then all ring edges are relayed; along the cables none is
    let by_name = RankOrder::from_nodes(&topology, topology.canonical_order().to_vec()).expect("a permutation");
    assert_eq!(by_name.ring_edges_relayed(&router).len(), 20);
    assert!(RankOrder::along_cables(&topology, &router).ring_edges_relayed(&router).is_empty());
}

#[test]
fn rank_orders_are_read_by_name_and_number() {
    let topology = build(Shape::Ring, 4, 1).expect("a ring");
    let parse = |text: &str| RankOrder::parse(&topology, text).map(|order| order.numbers());
    assert_eq!(parse("0,2,1,3").as_deref(), Ok("0,2,1,3"));
    assert_eq!(parse("node3, node2,1,0").as_deref(), Ok("3,2,1,0"));
    let told = |text: &str| parse(text).expect_err("no order").to_string();
    assert_eq!(told("0,1,2"), "nodes missing from the rank order: node3");
    assert_eq!(told("0,1,2,2"), "node \"node2\" stands twice in the rank order");
    assert_eq!(told("0,1,2,4"), "\"4\" is neither a node's name nor the number of a node");
    assert_eq!(told(""), "\"\" is neither a node's name nor the number of a node");
    let router = Router::new(&topology);
    let swapped = RankOrder::parse(&topology, "0,2,1,3").expect("an order");
    assert_eq!(swapped.ring_edges_relayed(&router), [(0, 1), (2, 3)]);
}
