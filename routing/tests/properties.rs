//! Routes, ties and cuts against brute force, on random topologies of up to eight nodes. A failure prints the shrunk
//! topology and the seed.

mod common;

use common::{all_ways, edges_of, pairs, plans};
use mesh_routing::cuts::{articulation_nodes, bridges, impact};
use mesh_routing::{
    LinkId, MAX_EQUAL_COST, NodeId, NodeSpec, Policy, PortSpec, RankOrder, Route, Router, Subnet, Topology,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Pieces that the cabling falls into without a link and a node.
fn pieces(topology: &Topology, without_link: Option<LinkId>, without_node: Option<NodeId>) -> usize {
    let mut piece: Vec<usize> = (0..topology.nodes().len()).collect();
    for link in topology.links().iter().filter(|link| Some(link.id) != without_link) {
        let [a, b] = link.ends.map(|end| end.node);
        if [Some(a), Some(b)].contains(&without_node) && without_node.is_some() {
            continue;
        }
        let (old, new) = (piece[a.index()], piece[b.index()]);
        piece.iter_mut().filter(|piece| **piece == old).for_each(|piece| *piece = new);
    }
    if let Some(node) = without_node {
        piece.remove(node.index());
    }
    piece.into_iter().collect::<BTreeSet<_>>().len()
}

fn named(topology: &Topology, route: Option<Route>) -> Vec<String> {
    route.map_or_else(Vec::new, |route| route.nodes().iter().map(|&node| topology.name(node).to_owned()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn routes_are_the_best_of_all_ways(plan in plans()) {
        let topology = plan.topology();
        let router = Router::new(&topology);
        for (a, b) in pairs(&topology) {
            let ways = all_ways(&topology, a, b);
            let best = ways.iter().map(|(_, cost)| *cost).min();
            let equal: BTreeSet<_> =
                ways.iter().filter(|(_, cost)| Some(*cost) == best).map(|(path, _)| path.clone()).collect();
            prop_assert!(equal.len() <= MAX_EQUAL_COST, "eight nodes never reach the limit");
            let listed = router.all_equal_cost(a, b);
            let listed_set: BTreeSet<_> = listed.iter().map(|route| route.nodes().to_vec()).collect();
            prop_assert_eq!(listed.len(), listed_set.len(), "a route listed twice");
            prop_assert_eq!(&listed_set, &equal);
            prop_assert_eq!(router.distance(a, b), best.map(|(hops, _)| hops));
            prop_assert_eq!(router.shortest(a, b), listed.first().cloned());
            let chosen = router.choose(a, b);
            prop_assert_eq!(chosen.is_some(), best.is_some());
            let Some(chosen) = chosen else { continue };
            prop_assert!(equal.contains(chosen.nodes()));
            prop_assert_eq!(router.choose(b, a), Some(chosen.reversed()), "both directions take one way");
            let cost = router.cost(&chosen).expect("all edges are up");
            prop_assert_eq!(Some((cost.hops, std::cmp::Reverse(cost.capacity))), best);
            // The rotation passes every route of equal cost before it comes round again.
            let turns: BTreeSet<_> =
                (0..equal.len()).filter_map(|n| router.choose_nth(a, b, n)).map(|route| route.nodes().to_vec()).collect();
            prop_assert_eq!(&turns, &equal);
            prop_assert_eq!(router.choose_nth(a, b, equal.len()), Some(chosen));
        }
    }

    #[test]
    fn fall_back_is_the_best_that_is_disjoint(plan in plans()) {
        let topology = plan.topology();
        let router = Router::new(&topology);
        for (a, b) in pairs(&topology) {
            let Some(chosen) = router.choose(a, b) else { continue };
            let used = edges_of(chosen.nodes());
            let ways: Vec<_> =
                all_ways(&topology, a, b).into_iter().filter(|(path, _)| edges_of(path).is_disjoint(&used)).collect();
            let apart = |path: &[NodeId]| chosen.relays().iter().all(|relay| !path.contains(relay));
            let best_apart = ways.iter().filter(|(path, _)| apart(path)).map(|(_, cost)| *cost).min();
            let best = best_apart.or_else(|| ways.iter().map(|(_, cost)| *cost).min());
            let found = router.next_best_disjoint(a, b);
            let cost = found.as_ref().and_then(|route| router.cost(route));
            prop_assert_eq!(cost.map(|cost| (cost.hops, std::cmp::Reverse(cost.capacity))), best);
            if let Some(found) = found {
                prop_assert!(ways.iter().any(|(path, _)| path == found.nodes()));
                prop_assert_eq!(apart(found.nodes()), best_apart.is_some());
            }
        }
    }

    #[test]
    fn answers_do_not_depend_on_the_order_of_listing(plan in plans()) {
        let (one, other) = (plan.topology(), plan.topology_in_other_order());
        prop_assert_eq!(one.hash(), other.hash());
        let (first, second) = (Router::new(&one), Router::new(&other));
        let there = |node: NodeId| other.node_by_name(one.name(node)).expect("the same names");
        for (a, b) in pairs(&one) {
            let (c, d) = (there(a), there(b));
            prop_assert_eq!(named(&one, first.choose(a, b)), named(&other, second.choose(c, d)));
            prop_assert_eq!(named(&one, first.choose_nth(a, b, 1)), named(&other, second.choose_nth(c, d, 1)));
            prop_assert_eq!(named(&one, first.next_best_disjoint(a, b)), named(&other, second.next_best_disjoint(c, d)));
            if let (Some(x), Some(y)) = (first.choose(a, b), second.choose(c, d)) {
                prop_assert_eq!(first.lane(&x, 1), second.lane(&y, 1), "links have the same ids as well");
            }
        }
        let ring = |topology: &Topology, router: &Router| {
            let order = RankOrder::along_cables(topology, router);
            order.nodes().iter().map(|&node| topology.name(node).to_owned()).collect::<Vec<_>>()
        };
        prop_assert_eq!(ring(&one, &first), ring(&other, &second));
    }

    #[test]
    fn cuts_are_what_removal_shows(plan in plans()) {
        let topology = plan.topology();
        let whole = pieces(&topology, None, None);
        let expected: Vec<_> = topology
            .links()
            .iter()
            .map(|link| link.id)
            .filter(|&link| pieces(&topology, Some(link), None) > whole)
            .collect();
        prop_assert_eq!(bridges(&topology), expected);
        let expected: Vec<_> = topology
            .nodes()
            .iter()
            .map(|node| node.id)
            // Without a node that stands alone there is one piece less.
            .filter(|&node| pieces(&topology, None, Some(node)) > whole)
            .collect();
        prop_assert_eq!(articulation_nodes(&topology), expected);
    }

    #[test]
    fn impact_is_what_a_topology_without_the_link_shows(plan in plans()) {
        let topology = plan.topology();
        let whole = Router::new(&topology);
        for link in topology.links() {
            // given the same nodes with the link's two ports gone
            let mut specs = plan.specs();
            for end in &link.ends {
                specs[end.node.index()].ports.retain(|port| port.address != end.address);
            }
            let without = Router::new(&Topology::discovered(specs, vec![], plan.policy()).0);
            let found = impact(&topology, &[link.id], &[]);
            for (a, b) in pairs(&topology).into_iter().filter(|(a, b)| a < b) {
                let (was, is) = (whole.distance(a, b), without.distance(a, b));
                prop_assert_eq!(found.cut.contains(&(a, b)), was.is_some() && is.is_none());
                let longer = found.longer.iter().find(|&&(c, d, ..)| (c, d) == (a, b)).map(|&(.., was, is)| (was, is));
                prop_assert_eq!(longer, was.zip(is).filter(|(was, is)| is > was));
            }
        }
    }

    #[test]
    fn the_rank_order_is_the_best_of_all(plan in plans()) {
        prop_assume!(plan.nodes <= 6);
        let topology = plan.topology();
        let router = Router::new(&topology);
        let order = RankOrder::along_cables(&topology, &router);
        let relayed = order.ring_edges_relayed(&router).len();
        // given every order that begins with the same node
        let mut best = usize::MAX;
        let mut rest: Vec<_> = order.nodes()[1..].to_vec();
        let first = order.nodes()[0];
        permute(&mut rest, 0, &mut |rest| {
            let nodes = std::iter::once(first).chain(rest.iter().copied()).collect();
            let other = RankOrder::from_nodes(&topology, nodes).expect("a permutation");
            // Pairs without any route count as worse than relayed ones; compare only where all have one.
            best = best.min(other.ring_edges_relayed(&router).len());
        });
        if router.unreachable_pairs().is_empty() {
            prop_assert_eq!(relayed, best);
        }
    }

    #[test]
    fn files_round_trip(plan in plans()) {
        let topology = plan.topology();
        let text = topology.to_toml();
        // Topologies that fall apart are refused as files; all others come back equal.
        match Topology::from_toml(&text) {
            Ok(read) => {
                prop_assert_eq!(read.hash(), topology.hash());
                prop_assert_eq!(read.to_toml(), text);
                prop_assert_eq!(read, topology);
            }
            Err(problems) => {
                prop_assert!(pieces(&topology, None, None) > 1, "{problems:?}");
                prop_assert_eq!(problems.len(), pieces(&topology, None, None) - 1);
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[\\[\\]a-z=\"#./0-9 \n_-]{0,200}") {
        let _ = Topology::from_toml(&text);
    }

    #[test]
    fn any_address_is_read_or_refused(text in "[0-9./]{0,20}", number in any::<i64>()) {
        let file = format!(
            "schema = {number}\n[[node]]\nname = \"a\"\n[[node.port]]\ndevice = \"d\"\naddress = \"{text}\"\n[policy]\nmax_relays = {number}"
        );
        if let Ok(topology) = Topology::from_toml(&file) {
            prop_assert!(topology.nodes()[0].ports[0].subnet().is_some());
        }
    }
}

fn permute(items: &mut Vec<NodeId>, from: usize, visit: &mut impl FnMut(&[NodeId])) {
    if from == items.len() {
        visit(items);
        return;
    }
    for at in from..items.len() {
        items.swap(from, at);
        permute(items, from + 1, visit);
        items.swap(from, at);
    }
}

#[test]
fn switched_segments_join_every_two_ports() {
    // given three nodes on one declared subnet
    let subnet = Subnet::of(Ipv4Addr::new(10, 10, 0, 0), 24).expect("prefix in range");
    let node = |k: u8| {
        let mut spec = NodeSpec::new(format!("n{k}"));
        spec.ports.push(PortSpec::new("eth0", Ipv4Addr::new(10, 10, 0, k + 1), 24));
        spec
    };
    let topology =
        Topology::from_nodes((0..3).map(node).collect(), vec![subnet], Policy::default()).expect("a sound topology");
    // then any two are adjacent, and the declaration survives a file
    assert_eq!(topology.edges().len(), 3);
    assert!(topology.links().iter().all(|link| link.switched));
    assert_eq!(Topology::from_toml(&topology.to_toml()).map_err(|problems| problems.len()), Ok(topology));
}
