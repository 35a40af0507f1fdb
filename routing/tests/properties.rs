//! Routes, ties and cuts against brute force, on random topologies of up to eight nodes. A failure prints the shrunk
//! topology and the seed.

use mesh_routing::cuts::{articulation_nodes, bridges, impact};
use mesh_routing::{
    LinkId, MAX_EQUAL_COST, NodeId, NodeSpec, Policy, PortSpec, RankOrder, Route, Router, Subnet, Topology,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// A random topology, as data.
#[derive(Clone, Debug)]
struct Plan {
    nodes: usize,
    /// Rails of each pair, in order of pairs; 0 is no edge.
    rails: Vec<usize>,
    /// Speed of each pair's links.
    speeds: Vec<Option<u32>>,
    relay: Vec<bool>,
    max_relays: Option<u16>,
    /// The order in which the nodes are listed the second time.
    shuffled: Vec<usize>,
}

fn plans() -> impl Strategy<Value = Plan> {
    (1..=8_usize).prop_flat_map(|nodes| {
        let pairs = nodes * (nodes - 1) / 2;
        let rails = proptest::collection::vec(prop_oneof![3 => Just(0), 3 => Just(1), 1 => Just(2)], pairs);
        let speed = prop_oneof![4 => Just(None), 1 => Just(Some(25_000)), 1 => Just(Some(100_000))];
        let speeds = prop_oneof![
            2 => Just(vec![None; pairs]),
            1 => proptest::collection::vec(speed, pairs)
        ];
        let relay = proptest::collection::vec(prop_oneof![4 => Just(true), 1 => Just(false)], nodes);
        let max_relays = prop_oneof![3 => Just(None), 1 => (0..4_u16).prop_map(Some)];
        let shuffled = Just((0..nodes).collect::<Vec<_>>()).prop_shuffle();
        (rails, speeds, relay, max_relays, shuffled).prop_map(move |(rails, speeds, relay, max_relays, shuffled)| {
            Plan { nodes, rails, speeds, relay, max_relays, shuffled }
        })
    })
}

impl Plan {
    fn specs(&self) -> Vec<NodeSpec> {
        let mut specs: Vec<_> = (0..self.nodes).map(|node| NodeSpec::new(format!("n{node}"))).collect();
        for (spec, &relay) in specs.iter_mut().zip(&self.relay) {
            spec.relay = relay;
        }
        let mut subnet = 0;
        let mut pair = 0;
        for a in 0..self.nodes {
            for b in a + 1..self.nodes {
                for _ in 0..self.rails[pair] {
                    for (host, node) in [(1, a), (2, b)] {
                        let address = Ipv4Addr::from_bits((10 << 24) + subnet * 4 + host);
                        let mut port = PortSpec::new(format!("p{subnet}"), address, 30);
                        port.speed_mbps = self.speeds[pair];
                        specs[node].ports.push(port);
                    }
                    subnet += 1;
                }
                pair += 1;
            }
        }
        specs
    }

    fn policy(&self) -> Policy {
        Policy { max_relays: self.max_relays }
    }

    fn topology(&self) -> Topology {
        Topology::discovered(self.specs(), vec![], self.policy()).0
    }

    fn topology_in_other_order(&self) -> Topology {
        let specs = self.specs();
        let mut listed: Vec<_> = self.shuffled.iter().map(|&node| specs[node].clone()).collect();
        listed.iter_mut().for_each(|node| node.ports.reverse());
        Topology::discovered(listed, vec![], self.policy()).0
    }
}

/// Capacity between two nodes, by looking at every link; 0 if not adjacent.
fn capacity(topology: &Topology, a: NodeId, b: NodeId) -> u64 {
    let fastest = topology.links().iter().filter_map(|link| link.speed_mbps).max().unwrap_or(1);
    let joins = |nodes: [NodeId; 2]| nodes == [a, b] || nodes == [b, a];
    let links = topology.links().iter().filter(|link| joins(link.ends.map(|end| end.node)));
    links.map(|link| u64::from(link.speed_mbps.unwrap_or(fastest))).sum()
}

/// The nodes of a way; its hops and the capacity of its narrowest edge.
type Way = (Vec<NodeId>, (usize, std::cmp::Reverse<u64>));

/// Every loop-free way that relays and policy allow, with its cost.
fn all_ways(topology: &Topology, from: NodeId, to: NodeId) -> Vec<Way> {
    fn extend(topology: &Topology, to: NodeId, path: &mut Vec<NodeId>, found: &mut Vec<Vec<NodeId>>) {
        let at = path[path.len() - 1];
        if at == to {
            found.push(path.clone());
            return;
        }
        if path.len() > 1 && !topology.node(at).relay {
            return;
        }
        for next in topology.nodes() {
            if !path.contains(&next.id) && capacity(topology, at, next.id) > 0 {
                path.push(next.id);
                extend(topology, to, path, found);
                path.pop();
            }
        }
    }
    let mut found = Vec::new();
    extend(topology, to, &mut vec![from], &mut found);
    let most = topology.policy().max_relays.map_or(usize::MAX, usize::from);
    found.retain(|path| path.len() - 2 <= most);
    let cost = |path: &[NodeId]| {
        let narrowest = path.windows(2).map(|step| capacity(topology, step[0], step[1])).min().unwrap_or(0);
        (path.len() - 1, std::cmp::Reverse(narrowest))
    };
    found.into_iter().map(|path| (path.clone(), cost(&path))).collect()
}

fn edges_of(path: &[NodeId]) -> BTreeSet<[NodeId; 2]> {
    path.windows(2).map(|step| [step[0].min(step[1]), step[0].max(step[1])]).collect()
}

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

fn pairs(topology: &Topology) -> Vec<(NodeId, NodeId)> {
    let ids = || topology.nodes().iter().map(|node| node.id);
    ids().flat_map(|a| ids().filter(move |&b| b != a).map(move |b| (a, b))).collect()
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
