//! Tables and pictures for the operator.

use mesh_routing::render::{
    Down, Picture, STANDARD_LOADS, loads_table, outages, outages_table, ring_note, routes_table, summary, svg,
};
use mesh_routing::{
    AddressPlan, Algo, Collective, NodeId, NodeSpec, Policy, RankOrder, Router, Shape, Topology, flows, link_load,
};

fn shape(shape: Shape, nodes: usize, rails: usize) -> Topology {
    Topology::from_shape(shape, nodes, rails, &AddressPlan::default()).expect("a shape that can be built")
}

fn picture(topology: &Topology, title: &str, collective: Collective, algo: Algo, one: Option<(u16, u16)>) -> String {
    let router = Router::new(topology);
    let flows = flows(collective, algo, topology.nodes().len()).expect("a combination that exists");
    let load = link_load(topology, &router, &RankOrder::as_listed(topology), &flows);
    let route = one.and_then(|(a, b)| router.choose(NodeId(a), NodeId(b)));
    svg(topology, &router, &Picture { title, load_name: "test", load: &load, route: route.as_ref() })
}

#[test]
fn routes_and_their_fall_backs() {
    let topology = shape(Shape::Ring, 4, 2);
    let text = routes_table(&topology, &Router::new(&topology), &[(NodeId(0), NodeId(1)), (NodeId(2), NodeId(0))]);
    assert_eq!(
        text,
        "from   to     hops  relays  lanes  cost  other way\n\
         node0  node1     1  -           2  1.00  3 hops via node3, node2\n\
         node2  node0     2  node3       4  2.00  2 hops via node1\n"
    );
}

#[test]
fn loads_of_a_line() {
    let topology = shape(Shape::Line, 3, 1);
    let router = Router::new(&topology);
    // Tree joins 0-1, 1-2, and 2-0 twice: three edges of half the payload on either cable.
    let text = loads_table(&topology, &router, &RankOrder::as_listed(&topology)).expect("standard collectives");
    assert_eq!(
        text,
        "link            subnet                ring         tree          pat   all-to-all\n\
         node0-node1     10.200.0.0/30  1.33 / 1.33  1.50 / 1.50  0.67 / 0.67  0.67 / 0.67\n\
         node1-node2     10.200.0.4/30  1.33 / 1.33  1.50 / 1.50  0.67 / 0.67  0.67 / 0.67\n\
         busiest link                          1.33         1.50         0.67         0.67\n\
         through relays                        33 %         50 %         33 %         33 %\n\
         ms/GiB at 100G                       114.5        128.8         57.3         57.3\n"
    );
    // 4/3 of a GiB over 25 Gbit/s
    let known = loads_table(&topology.with_speed(25_000), &router, &RankOrder::as_listed(&shape(Shape::Line, 3, 1)));
    assert!(known.expect("standard collectives").contains("least ms/GiB                         458.1 "));
    assert_eq!(STANDARD_LOADS.len(), 4);
}

#[test]
fn a_note_only_where_ring_edges_are_relayed() {
    let topology = shape(Shape::Ring, 5, 1);
    let router = Router::new(&topology);
    let note = |order: &str| ring_note(&topology, &router, &RankOrder::parse(&topology, order).expect("an order"));
    assert_eq!(note("0,1,2,3,4"), None);
    assert_eq!(note("4,3,2,1,0"), None);
    assert_eq!(
        note("0,2,4,1,3").as_deref(),
        Some("rank order 0,2,4,1,3 makes 5 of 5 ring edges relayed; better, with 0: --rank-order 0,1,2,3,4")
    );
}

#[test]
fn outages_of_lines_rings_and_switches() {
    // given a line, then every link cuts; with a second rail, none does
    let line = shape(Shape::Line, 3, 1);
    assert_eq!(
        outages_table(&line, &outages(&line)),
        "down         links left  cuts off                  longer way\n\
         node0-node1  0 of 1      node0-node1, node0-node2  none\n\
         node1-node2  0 of 1      node0-node2, node1-node2  none\n\
         node0        -           nothing                   none\n\
         node1        -           node0-node2               none\n\
         node2        -           nothing                   none\n"
    );
    let rails = shape(Shape::Line, 3, 2);
    assert!(outages(&rails).iter().all(|outage| outage.impact.cut.is_empty() || outage.down == Down::Node(NodeId(1))));
    // given a ring, then a cut link lengthens ways
    let ring = shape(Shape::Ring, 5, 1);
    assert!(
        outages_table(&ring, &outages(&ring)).contains("node0-node1  0 of 1      nothing   3 pairs, up to 4 hops\n")
    );
    // given a switch with one rail, then a port takes its node's links with it
    let switch = shape(Shape::Switch, 3, 1);
    let text = outages_table(&switch, &outages(&switch));
    assert!(text.contains("node0 mesh0  0 of 1      node0-node1, node0-node2  none\n"), "{text}");
    // given more nodes than all can be gone through, then what can cut is still told
    let long = shape(Shape::Line, 200, 1);
    let found = outages(&long);
    assert_eq!(found.len(), 199 + 198);
}

#[test]
fn a_summary_names_what_holds_it_together() {
    let text = summary(&shape(Shape::Line, 3, 1));
    assert!(text.starts_with("3 nodes, 2 edges, 2 links, hash "), "{text}");
    assert!(text.contains("node1  -        yes     mesh0   10.200.0.2/30  -      -    node0\n"), "{text}");
    assert!(text.contains("farthest nodes: 2 hops apart\n"), "{text}");
    assert!(text.contains("links that alone hold it together: node0-node1, node1-node2\n"), "{text}");
    assert!(text.ends_with("nodes that alone hold it together: node1\n"), "{text}");
    assert!(summary(&shape(Shape::Switch, 9, 1)).contains("switch, 8 nodes\n"));
    let lone =
        Topology::from_nodes(vec![NodeSpec::new("a")], vec![], Policy { max_relays: Some(1), ..Policy::default() })
            .expect("sound");
    assert!(summary(&lone).contains("policy: at most 1 relay\n"));
}

#[test]
fn pictures_show_every_wire_and_node() {
    for (kind, nodes, rails, wires) in
        [(Shape::Ring, 6, 2, 12), (Shape::Grid, 12, 1, 17), (Shape::Switch, 5, 2, 10), (Shape::Full, 4, 1, 6)]
    {
        let topology = shape(kind, nodes, rails);
        let text = picture(&topology, "a & <b>", Collective::AllReduce, Algo::Tree, None);
        // then there is a titled line for each wire, and a circle for each node
        assert_eq!(text.matches("</title></line>").count(), wires, "{kind:?}");
        assert_eq!(text.matches("<circle ").count(), nodes, "{kind:?}");
        assert_eq!(text.matches("#7cc4fa").count(), 0, "no route is marked");
        assert!(text.contains("a &amp; &lt;b&gt;"));
        well_formed(&text);
    }
}

#[test]
fn pictures_mark_the_route_and_those_who_do_not_relay() {
    let mut topology = shape(Shape::Ring, 6, 2);
    let text = picture(&topology, "ring", Collective::AllReduce, Algo::Ring, Some((0, 3)));
    // Three hops of two rails, and four nodes.
    assert_eq!(text.matches("#7cc4fa").count(), 6);
    assert_eq!(text.matches("fill=\"#bae3ff\"").count(), 4);
    assert_eq!(text.matches("stroke-dasharray").count(), 0);
    let file = topology.to_toml().replacen("name = \"node1\"", "name = \"node1\"\nrelay = false", 1);
    topology = Topology::from_toml(&file).expect("a sound file");
    let text = picture(&topology, "ring", Collective::AllToAll, Algo::Direct, None);
    assert_eq!(text.matches("stroke-dasharray").count(), 1);
    well_formed(&text);
}

#[test]
fn empty_and_single_topologies_have_pictures() {
    for kind in Shape::ALL {
        well_formed(&picture(&shape(kind, 1, 1), "one", Collective::AllReduce, Algo::Ring, None));
    }
}

/// Every tag is closed in order, and no number is missing.
fn well_formed(text: &str) {
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    let mut open = Vec::new();
    for tag in text.split('<').skip(1) {
        let tag = &tag[..tag.find('>').expect("a tag ends")];
        let name = tag.split_whitespace().next().expect("a tag has a name");
        if let Some(closed) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{text}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
