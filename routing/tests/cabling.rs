//! The picture of a topology with its ports and the routes of one node.

use mesh_routing::render::cabling_svg;
use mesh_routing::{AddressPlan, NodeId, Router, Shape, Topology};

fn picture(shape: Shape, nodes: usize, rails: usize, from: Option<u16>) -> String {
    let topology =
        Topology::from_shape(shape, nodes, rails, &AddressPlan::default()).expect("a shape").with_speed(50_000);
    cabling_svg(&topology, &Router::new(&topology), "a & <b>", from.map(NodeId))
}

#[test]
fn every_wire_has_both_ports_and_its_speed() {
    for (shape, nodes, rails, wires, ports) in [
        (Shape::Ring, 6, 2, 12, 24),
        (Shape::Grid, 12, 1, 17, 34),
        (Shape::Switch, 5, 2, 10, 10),
        (Shape::Full, 4, 1, 6, 12),
    ] {
        let text = picture(shape, nodes, rails, None);
        assert_eq!(text.matches("</title></line>").count(), wires, "{shape:?}");
        assert_eq!(text.matches("<text class=\"p\"").count(), ports + wires, "{shape:?}");
        assert_eq!(text.matches(">50G</text>").count(), wires, "{shape:?}");
        assert_eq!(text.matches("<circle ").count(), nodes, "{shape:?}");
        assert!(text.contains("a &amp; &lt;b&gt;"));
    }
    // given many ports at a node, then labels would cover each other; pointing at a wire still tells
    let text = picture(Shape::Star, 14, 1, None);
    assert!(!text.contains("class=\"p\""));
    assert!(text.contains("<title>node0-node1 (10.200.0.0/30): node0 mesh0 10.200.0.1/30 50G, node1 mesh0"), "{text}");
    assert!(picture(Shape::Star, 13, 1, None).contains("class=\"p\""), "one fewer is labelled");
}

#[test]
fn routes_of_a_node_are_drawn_hop_by_hop_and_listed() {
    // given a ring of six, then the ways from one node have 1 + 2 + 3 + 2 + 1 hops
    let text = picture(Shape::Ring, 6, 2, Some(0));
    assert_eq!(text.matches("<title>node0 to ").count(), 9);
    assert!(text.contains(">to node1: direct; 2 lanes<"), "{text}");
    assert!(text.contains(">to node3: via node1, node2; 4 lanes<"), "{text}");
    // given more than can be listed, then the rest is counted
    let text = picture(Shape::Ring, 30, 1, Some(0));
    assert_eq!(text.matches(">to node").count(), 24);
    assert!(text.contains(">and 5 more<"), "{text}");
}
