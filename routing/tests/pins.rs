//! The policy of a topology file: pinned routes and what to make of differences. Faults, files, and routes with pins
//! against every way there is.

mod common;

use common::{all_ways, edges_of, pairs, plans};
use mesh_routing::{
    AddressPlan, Differences, LinkId, NodeId, PinnedRoute, Policy, ProblemCode, Router, Shape, Topology,
};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

/// A ring of six with this policy in its file.
fn ring(policy: &str) -> Result<Topology, Vec<String>> {
    let ring = Topology::from_shape(Shape::Ring, 6, 2, &AddressPlan::default()).expect("a ring");
    let text = format!("{}\n{policy}", ring.to_toml());
    let first = ring.to_toml().lines().count() + 1;
    let told = |problem: mesh_routing::Problem| {
        let line = problem.line.map(|line| line - first);
        assert!(line.is_some(), "every fault has its line: {problem}");
        format!("{} {}: {}", problem.code.code(), problem.field, problem.message)
    };
    Topology::from_toml(&text).map_err(|problems| problems.into_iter().map(told).collect())
}

fn names(topology: &Topology, router: &Router, from: &str, to: &str) -> String {
    let find = |name| topology.node_by_name(name).expect("a node");
    let route = router.choose(find(from), find(to)).expect("a route");
    route.nodes().iter().map(|&node| topology.name(node)).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_pinned_route_holds_both_ways_and_on_all_rails() {
    // given the long way round pinned for one pair, between neighbours, and for one direction a way of its own
    let topology = ring(
        "[policy]\ndifferences = \"refuse\"\n\
         [[policy.route]]\nfrom = \"node0\"\nto = \"node2\"\nvia = [\"node5\", \"node4\", \"node3\"]\n\
         [[policy.route]]\nfrom = \"node3\"\nto = \"node4\"\nvia = [\"node2\", \"node1\", \"node0\", \"node5\"]\n\
         [[policy.route]]\nfrom = \"node4\"\nto = \"node3\"\nvia = []\n",
    )
    .expect("a sound file");
    assert_eq!(topology.policy().differences, Differences::Refuse);
    let router = Router::new(&topology);
    // then connections take them
    assert_eq!(names(&topology, &router, "node0", "node2"), "node0 node5 node4 node3 node2");
    assert_eq!(names(&topology, &router, "node2", "node0"), "node2 node3 node4 node5 node0");
    assert_eq!(names(&topology, &router, "node3", "node4"), "node3 node2 node1 node0 node5 node4");
    assert_eq!(names(&topology, &router, "node4", "node3"), "node4 node3");
    assert_eq!(names(&topology, &router, "node1", "node3"), "node1 node2 node3");
    // on both rails, and by no other way
    let lanes = router.lanes_apart(NodeId(0), NodeId(2), 1, 8);
    assert_eq!(lanes.len(), 2);
    assert!(lanes.iter().all(|(route, lane)| route.hops() == 4 && lane.hops.len() == 4));
    assert_eq!(router.most_hops(), 5);
    // and with one rail of it gone, on the other; with both, by the ordinary way
    let links = topology.links_of_edge(topology.edge_between(NodeId(4), NodeId(5)).expect("an edge"));
    let one = Router::avoiding(&topology, &links[..1], &[]);
    assert_eq!(one.lanes_apart(NodeId(0), NodeId(2), 0, 8).len(), 1);
    assert_eq!(names(&topology, &one, "node0", "node2"), "node0 node5 node4 node3 node2");
    let none = Router::avoiding(&topology, links, &[]);
    assert_eq!(names(&topology, &none, "node0", "node2"), "node0 node1 node2");
    assert_eq!(names(&topology, &none, "node4", "node3"), "node4 node3");
    // and a node that is down takes the pins through it with it
    let down = Router::avoiding(&topology, &[], &[NodeId(4)]);
    assert_eq!(names(&topology, &down, "node0", "node2"), "node0 node1 node2");
}

#[test]
fn the_policy_survives_a_file_and_counts_in_the_hash() {
    let plain = ring("").expect("a sound file");
    let pin = "[[policy.route]]\nfrom = \"node0\"\nto = \"node2\"\nvia = [\"node1\"]\n";
    let other = "[[policy.route]]\nfrom = \"node2\"\nto = \"node0\"\nvia = [\"node1\"]\n";
    let cases = [
        "[policy]\ndifferences = \"ignore\"\n".to_owned(),
        "[policy]\ndifferences = \"refuse\"\nmax_relays = 3\n".to_owned(),
        pin.to_owned(),
        other.to_owned(),
        format!("[policy]\nmax_relays = 1\n{pin}{other}"),
    ];
    let mut hashes = BTreeSet::from([plain.hash()]);
    for case in &cases {
        let topology = ring(case).expect("a sound file");
        assert_eq!(Topology::from_toml(&topology.to_toml()).as_ref(), Ok(&topology), "{case}");
        assert!(hashes.insert(topology.hash()), "{case}");
    }
    // The order in which routes are listed does not matter; what holds by default need not be written.
    let turned = ring(&format!("[policy]\nmax_relays = 1\n{other}{pin}")).expect("a sound file");
    assert!(hashes.contains(&turned.hash()));
    assert_eq!(ring("[policy]\ndifferences = \"warn\"\n").map(|topology| topology.hash()), Ok(plain.hash()));
}

#[test]
fn every_fault_of_the_policy_is_told_at_once() {
    let told = ring(
        "[policy]\nmax_relays = 1\ndifferences = \"refues\"\nroutes = 1\n\
         [[policy.route]]\nfrom = \"node0\"\nto = \"nod2\"\nvia = [\"node1\"]\n\
         [[policy.route]]\nfrom = \"node0\"\nto = \"node3\"\nvia = [\"node1\", \"node2\"]\n\
         [[policy.route]]\nfrom = \"node0\"\nto = \"node3\"\nvia = [\"node4\"]\n\
         [[policy.route]]\nfrom = \"node0\"\nto = \"node0\"\nvia = [\"node1\"]\n\
         [[policy.route]]\nfrom = 1\nto = \"node0\"\nover = []\n",
    )
    .expect_err("faults");
    assert_eq!(
        told,
        [
            "E63 policy.differences: \"refues\" is not known; did you mean \"refuse\"?",
            "E61 policy.routes: unknown key; did you mean \"route\"?",
            "E80 policy.route[0].to: no node is named \"nod2\"; did you mean \"node2\"?",
            "E80 policy.route[1].via: 2 relays, and policy.max_relays is 1; shorten it or raise the limit",
            "E80 policy.route[2].to: the route from \"node0\" to \"node3\" is pinned twice; remove one",
            "E80 policy.route[2].via: no link joins \"node0\" and \"node4\"; pin a route along cables",
            "E80 policy.route[3].to: node \"node0\" stands twice in the route; a route passes a node once",
            "E62 policy.route[4].via: missing; list the relays in between like [\"b\", \"c\"]",
            "E63 policy.route[4].from: a string wanted, integer found",
            "E61 policy.route[4].over: unknown key; known here: from, to, via",
        ]
    );
    let told = ring("[[policy.route]]\nfrom = \"node0\"\nto = \"node2\"\nvia = \"node1\"\n").expect_err("a fault");
    assert_eq!(told, ["E63 policy.route[0].via: a list of strings wanted, string found"]);
    // both sides of the limit
    let limited = |most| {
        format!(
            "[policy]\nmax_relays = {most}\n[[policy.route]]\nfrom = \"node0\"\nto = \"node3\"\nvia = [\"node1\", \"node2\"]\n"
        )
    };
    assert!(ring(&limited(2)).is_ok());
    assert_eq!(ring(&limited(1)).expect_err("one too many").len(), 1);
}

#[test]
fn relays_of_a_pinned_route_must_relay_and_its_ends_need_not() {
    let line = Topology::from_shape(Shape::Line, 3, 1, &AddressPlan::default()).expect("a line");
    let pin = "[[policy.route]]\nfrom = \"node0\"\nto = \"node2\"\nvia = [\"node1\"]\n";
    let without = |node: usize| {
        let name = format!("name = \"node{node}\"");
        let text = line.to_toml().replace(&name, &format!("{name}\nrelay = false"));
        Topology::from_toml(&format!("{text}\n{pin}"))
    };
    assert!(without(0).is_ok() && without(2).is_ok());
    let problems = without(1).expect_err("a fault");
    assert_eq!(problems.iter().map(|problem| problem.code).collect::<Vec<_>>(), [ProblemCode::BadRoute]);
    assert!(problems[0].message.starts_with("node \"node1\" does not relay"), "{}", problems[0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn pins_hold_where_they_are_up_and_all_else_is_ordinary(
        plan in plans(),
        picks in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..5),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        // given ways that exist, pinned for some pairs
        let plain = plan.topology();
        let all = pairs(&plain);
        let mut pins: HashMap<(NodeId, NodeId), Vec<NodeId>> = HashMap::new();
        for (pair, way) in picks {
            if all.is_empty() { continue }
            let (from, to) = *pair.get(&all);
            let ways = all_ways(&plain, from, to);
            if !ways.is_empty() {
                pins.entry((from, to)).or_insert_with(|| way.get(&ways).0.clone());
            }
        }
        let name = |node: &NodeId| plain.name(*node).to_owned();
        let pinned = |way: &Vec<NodeId>| PinnedRoute {
            from: name(&way[0]), to: name(&way[way.len() - 1]), via: way[1..way.len() - 1].iter().map(name).collect(),
        };
        let policy = Policy { routes: pins.values().map(pinned).collect(), ..plan.policy() };
        let topology = plain.clone().with_policy(policy);
        // when a link may be down
        let cut: Vec<LinkId> = match cut {
            Some(cut) if !plain.links().is_empty() => vec![cut.get(plain.links()).id],
            _ => Vec::new(),
        };
        let router = Router::avoiding(&topology, &cut, &[]);
        let ordinary = Router::avoiding(&plain, &cut, &[]);
        let up = |way: &[NodeId]| way.windows(2).all(|step| ordinary.links_up(step[0], step[1]).next().is_some());
        for (a, b) in all {
            let back = || pins.get(&(b, a)).map(|way| way.iter().rev().copied().collect::<Vec<_>>());
            let expected = pins.get(&(a, b)).cloned().or_else(back).filter(|way| up(way));
            let chosen = router.choose(a, b);
            match expected {
                // then a pin that is up is what every connection of its pair takes, on all its rails
                Some(way) => {
                    let chosen = chosen.expect("the pinned route");
                    prop_assert_eq!(chosen.nodes(), &way[..]);
                    prop_assert_eq!(router.choose_nth(a, b, 3), Some(chosen.clone()));
                    let lanes = router.lanes_apart(a, b, 1, 8);
                    prop_assert_eq!(lanes.len(), router.lanes(&chosen).len());
                    prop_assert!(lanes.iter().all(|(route, _)| *route == chosen));
                    if let Some(other) = router.next_best_disjoint(a, b) {
                        prop_assert!(edges_of(other.nodes()).is_disjoint(&edges_of(&way)));
                    }
                }
                // and all other pairs have one of their ordinary routes
                None => {
                    let equal = ordinary.all_equal_cost(a, b);
                    prop_assert_eq!(chosen.is_some(), !equal.is_empty());
                    prop_assert!(chosen.is_none_or(|route| equal.contains(&route)));
                    prop_assert_eq!(router.all_equal_cost(a, b), equal);
                }
            }
        }
        // and the file says the same
        if let Ok(read) = Topology::from_toml(&topology.to_toml()) {
            prop_assert_eq!(read, topology);
        }
    }
}
