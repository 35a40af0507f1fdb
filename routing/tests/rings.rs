//! Routes and load on the shapes that people build.

use mesh_routing::{
    AddressPlan, Algo, Collective, LinkLoad, NodeId, RankOrder, Router, Shape, Topology, flows, link_load,
};

fn shape(shape: Shape, nodes: usize, rails: usize) -> Topology {
    Topology::from_shape(shape, nodes, rails, &AddressPlan::default()).expect("a shape that can be built")
}

fn load(topology: &Topology, collective: Collective, algo: Algo) -> LinkLoad {
    let n = topology.nodes().len();
    let flows = flows(collective, algo, n).expect("a combination that exists");
    link_load(topology, &Router::new(topology), &RankOrder::as_listed(topology), &flows)
}

fn names(topology: &Topology, nodes: &[NodeId]) -> String {
    nodes.iter().map(|&node| topology.name(node).trim_start_matches("node")).collect()
}

#[test]
fn tree_on_a_ring_of_four_puts_two_edges_on_every_link() {
    // given a ring of four, where the diagonals 0-2 and 1-3 have two ways each
    let topology = shape(Shape::Ring, 4, 1);
    let router = Router::new(&topology);
    // when the ties are broken, then the diagonals share the one link that no other tree edge needs
    let chosen = |a, b| names(&topology, router.choose(NodeId(a), NodeId(b)).expect("connected").nodes());
    assert_eq!([chosen(0, 2), chosen(2, 0), chosen(1, 3), chosen(3, 1)], ["032", "230", "103", "301"]);
    // and no link carries more than two tree edges of half the payload each
    let load = load(&topology, Collective::AllReduce, Algo::Tree);
    for link in topology.links() {
        assert_eq!(load.links[link.id.index()], [1.0, 1.0], "{}", link.subnet);
    }
    assert_eq!(load.unroutable, 0);
    assert!((load.relayed_share() - 1.0 / 3.0).abs() < 1e-9);
}

#[test]
fn opposite_pairs_of_a_ring_of_six_go_both_ways_round() {
    // given a ring of six, whose opposite pairs have two ways of three hops
    let topology = shape(Shape::Ring, 6, 1);
    let router = Router::new(&topology);
    let mut uses = vec![0; topology.edges().len()];
    for a in 0..3 {
        let route = router.choose(NodeId(a), NodeId(a + 3)).expect("connected");
        assert_eq!(route.hops(), 3);
        for (from, to) in route.steps() {
            uses[topology.edge_between(from, to).expect("adjacent").index()] += 1;
        }
    }
    // then three routes of three hops put one or two on each of six edges
    uses.sort_unstable();
    assert_eq!(uses, [1, 1, 1, 2, 2, 2]);
}

#[test]
fn connections_of_a_pair_rotate_over_both_ways() {
    let topology = shape(Shape::Ring, 6, 1);
    let router = Router::new(&topology);
    let nth = |n| names(&topology, router.choose_nth(NodeId(0), NodeId(3), n).expect("connected").nodes());
    let first = nth(0);
    assert_ne!(nth(1), first);
    assert_eq!([nth(2), nth(3)], [nth(0), nth(1)]);
    // An adjacent pair has nothing to rotate over.
    assert_eq!(router.choose_nth(NodeId(0), NodeId(1), 5).map(|route| route.hops()), Some(1));
}

#[test]
fn known_worst_loads_of_tree_on_rings() {
    // Tree edges on the busiest link, with the best shortest routes; each is half of the payload each way.
    for (n, edges) in [(3, 2.0), (4, 2.0), (5, 3.0), (6, 4.0)] {
        let topology = shape(Shape::Ring, n, 1);
        let (_, worst) = load(&topology, Collective::AllReduce, Algo::Tree).worst().expect("links");
        assert!((worst - edges / 2.0).abs() < 1e-9, "ring of {n}: {worst}");
    }
}

#[test]
fn ring_loads_one_direction_of_each_cable_and_rails_halve_it() {
    for rails in [1, 2] {
        let topology = shape(Shape::Ring, 4, rails);
        let load = load(&topology, Collective::AllReduce, Algo::Ring);
        for link in topology.links() {
            let [out, back] = load.links[link.id.index()];
            assert!((out.max(back) - 1.5 / rails as f64).abs() < 1e-9 && out.min(back) == 0.0, "{out} {back}");
        }
        assert_eq!(load.total_relayed, 0.0);
        // 1.5 payloads of 100 MB over 100 Gbit/s for each rail
        let least = load.least_seconds(&topology, 100_000_000, 100_000);
        assert!((least - 0.012 / rails as f64).abs() < 1e-12, "{least}");
    }
}

#[test]
fn a_switch_counts_ports_where_links_share_them() {
    let topology = shape(Shape::Switch, 4, 1);
    assert_eq!(topology.links().len(), 6);
    let load = load(&topology, Collective::AllToAll, Algo::Direct);
    assert!((load.worst().expect("links").1 - 0.25).abs() < 1e-9);
    assert!((load.worst_port() - 0.75).abs() < 1e-9);
}

#[test]
fn lanes_of_a_connection_share_no_link_and_go_both_ways_round() {
    for (nodes, rails, to, expected) in
        [(4, 1, 2, 2), (4, 2, 2, 4), (6, 1, 3, 2), (6, 1, 2, 1), (6, 2, 1, 2), (5, 1, 2, 1)]
    {
        let topology = shape(Shape::Ring, nodes, rails);
        let router = Router::new(&topology);
        let lanes = |turn, most| router.lanes_apart(NodeId(0), NodeId(to), turn, most);
        // given a pair, then it has a lane for each rail each way round, and no two share a link
        let found = lanes(0, 8);
        assert_eq!(found.len(), expected, "ring of {nodes}, {rails} rails, to {to}");
        let mut links: Vec<_> = found.iter().flat_map(|(_, lane)| lane.hops.iter().map(|hop| hop.link)).collect();
        let hops = links.len();
        links.sort_unstable();
        links.dedup();
        assert_eq!(links.len(), hops);
        // and the first is by the route that a connection of one lane would take, in its turn
        for turn in 0..3 {
            assert_eq!(lanes(turn, 1)[0].0, router.choose_nth(NodeId(0), NodeId(to), turn).expect("connected"));
        }
    }
    // an unknown node, and a node itself, have none
    let router = Router::new(&shape(Shape::Ring, 4, 1));
    assert!(router.lanes_apart(NodeId(0), NodeId(9), 0, 8).is_empty());
    assert!(router.lanes_apart(NodeId(0), NodeId(0), 0, 8).is_empty());
}

#[test]
fn opposite_pairs_split_over_both_ways_as_far_as_that_helps() {
    // given a ring of four on which only one opposite pair sends, then half goes each way
    let topology = shape(Shape::Ring, 4, 1);
    let order = RankOrder::as_listed(&topology);
    let one = [mesh_routing::Flow { from_rank: 0, to_rank: 2, weight: 1.0 }];
    let (_, worst) = link_load(&topology, &Router::new(&topology), &order, &one).worst().expect("links");
    assert!((worst - 0.5).abs() < 1e-6, "{worst}");
    // and an all-to-all on a ring of six puts the same on every link: 1 + 2 + 1.5 parts of a sixth
    let load = load(&shape(Shape::Ring, 6, 1), Collective::AllToAll, Algo::Direct);
    assert!(load.links.iter().flatten().all(|l| (l - 4.5 / 6.0).abs() < 1e-3), "{:?}", load.links);
}

#[test]
fn lanes_take_one_rail_a_hop() {
    let topology = shape(Shape::Ring, 4, 2);
    let router = Router::new(&topology);
    let route = router.choose(NodeId(0), NodeId(2)).expect("connected");
    let lanes = router.lanes(&route);
    assert_eq!(lanes.len(), 2);
    for (n, lane) in lanes.iter().enumerate() {
        assert_eq!(router.lane(&route, n + 2).as_ref(), Some(lane), "rails repeat");
        assert_eq!(lane.reversed().reversed(), *lane);
        for (hop, (from, to)) in lane.hops.iter().zip(route.steps()) {
            let links = topology.links_of_edge(topology.edge_between(from, to).expect("adjacent"));
            assert_eq!(hop.link, links[n]);
            assert_eq!(topology.port_by_address(hop.from).map(|(node, _)| node), Some(from));
            assert_eq!(topology.port_by_address(hop.to).map(|(node, _)| node), Some(to));
            assert_eq!(topology.link_between(hop.to, hop.from), Some(hop.link));
        }
    }
    assert_eq!(router.lanes_of_edge(NodeId(0), NodeId(1)).len(), 2);
    assert!(router.lanes_of_edge(NodeId(0), NodeId(2)).is_empty());
}

#[test]
fn an_outage_turns_traffic_the_other_way_round() {
    let topology = shape(Shape::Ring, 4, 1);
    let cable = topology.links_of_edge(topology.edge_between(NodeId(0), NodeId(1)).expect("adjacent"))[0];
    let router = Router::avoiding(&topology, &[cable], &[]);
    let route = router.choose(NodeId(0), NodeId(1)).expect("the other way round");
    assert_eq!(names(&topology, route.nodes()), "0321");
    assert!(router.unreachable_pairs().is_empty());
    // A node that is down is neither end nor relay.
    let router = Router::avoiding(&topology, &[cable], &[NodeId(2)]);
    assert_eq!(router.choose(NodeId(0), NodeId(2)), None);
    assert_eq!(router.unreachable_pairs(), [(NodeId(0), NodeId(1)), (NodeId(1), NodeId(3))]);
}

#[test]
fn fall_back_routes_share_nothing_with_the_chosen_one() {
    let topology = shape(Shape::Ring, 6, 1);
    let router = Router::new(&topology);
    for (a, b) in [(0, 1), (0, 2), (0, 3)] {
        let chosen = router.choose(NodeId(a), NodeId(b)).expect("connected");
        let other = router.next_best_disjoint(NodeId(a), NodeId(b)).expect("two ways round");
        assert_eq!(chosen.hops() + other.hops(), 6);
        assert!(other.relays().iter().all(|node| !chosen.relays().contains(node)));
    }
    // A line has one way only.
    let line = shape(Shape::Line, 6, 2);
    assert_eq!(Router::new(&line).next_best_disjoint(NodeId(0), NodeId(5)), None);
}

#[test]
fn large_shapes_do_not_blow_up() {
    // given shapes whose corners are joined by thousands of shortest routes
    for (kind, nodes, hops) in [(Shape::Ring, 64, 32), (Shape::Grid, 64, 14), (Shape::Grid, 400, 38)] {
        let topology = shape(kind, nodes, 2);
        let router = Router::new(&topology);
        let mut longest = 0;
        let step = nodes / 64;
        for a in (0..nodes).step_by(step) {
            for b in (0..nodes).step_by(step).filter(|&b| b != a) {
                let route = router.choose(NodeId(a as u16), NodeId(b as u16)).expect("connected");
                longest = longest.max(route.hops());
                assert!(router.cost(&route).is_some());
            }
        }
        // then all are found, the listing is bounded, and the rotation holds the chosen one
        let (a, b) = (NodeId(0), NodeId((nodes - 1) as u16));
        assert!(router.all_equal_cost(a, b).len() <= mesh_routing::MAX_EQUAL_COST);
        assert_eq!(router.choose_nth(a, b, 0), router.choose(a, b));
        if step == 1 {
            assert_eq!(longest, hops);
        }
    }
}
