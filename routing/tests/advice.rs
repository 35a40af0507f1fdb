//! The word on the order of ranks, against every order there is.

mod common;

use common::plans;
use mesh_routing::{AddressPlan, NodeId, RingCost, Router, Shape, Topology, advice};
use proptest::prelude::*;

fn ring(nodes: usize) -> Topology {
    Topology::from_shape(Shape::Ring, nodes, 1, &AddressPlan::default()).expect("a ring")
}

fn ids(nodes: &[u16]) -> Vec<NodeId> {
    nodes.iter().copied().map(NodeId).collect()
}

#[test]
fn a_crossed_order_is_told_with_a_better_one() {
    let found = advice(&ring(4), &ids(&[0, 2, 1, 3])).expect("a better order");
    assert_eq!(found.order, ids(&[0, 1, 2, 3]));
    assert_eq!(found.now, RingCost { cut_steps: 0, relayed_steps: 2, relays: 2 });
    assert_eq!(
        found.to_string(),
        "the ring of the ranks crosses 2 relays on 2 steps; with ranks in this order it crosses no relay: \
         node0,node1,node2,node3"
    );
}

#[test]
fn nothing_is_told_where_nothing_is_better() {
    // along the cables, either way round and from any node
    for order in [&[0, 1, 2, 3][..], &[2, 1, 0, 3], &[0, 0, 1, 1, 2, 2, 3, 3], &[0, 1], &[1], &[]] {
        assert_eq!(advice(&ring(4), &ids(order)), None, "{order:?}");
    }
    // a line's ends must be joined over relays in whatever order
    let line = Topology::from_shape(Shape::Line, 3, 1, &AddressPlan::default()).expect("a line");
    assert_eq!(advice(&line, &ids(&[0, 1, 2])), None);
    // two ranks on opposite nodes have one order
    assert_eq!(advice(&ring(4), &ids(&[0, 2])), None);
    // a node of another topology
    assert_eq!(advice(&ring(4), &ids(&[0, 2, 1, 4])), None);
}

#[test]
fn several_ranks_a_node_and_jobs_on_some_nodes() {
    // given two ranks a node that alternate between nodes, then a node's ranks go together
    let found = advice(&ring(4), &ids(&[0, 2, 1, 3, 0, 2, 1, 3])).expect("a better order");
    assert_eq!((found.order, found.now.relayed_steps), (ids(&[0, 1, 2, 3]), 4));
    // given a job on four nodes in a row of six, then one step in place of two is relayed
    let found = advice(&ring(6), &ids(&[0, 2, 3, 1])).expect("a better order");
    assert_eq!((found.now.relays, found.then.relays), (2, 2));
    assert_eq!((found.now.relayed_steps, found.then.relayed_steps), (2, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_order_is_better_than_the_one_advised(plan in plans()) {
        prop_assume!(plan.nodes <= 6);
        let topology = plan.topology();
        let router = Router::new(&topology);
        prop_assume!(router.unreachable_pairs().is_empty());
        let mut order: Vec<_> = plan.shuffled.iter().map(|&node| NodeId(node as u16)).collect();
        let found = advice(&topology, &order);
        // given the cost of every order that begins with the same node
        let relayed = |order: &[NodeId]| {
            let steps = order.len() - usize::from(order.len() == 2);
            let mut cost = (0, 0);
            for at in 0..steps {
                let (a, b) = (order[at], order[(at + 1) % order.len()]);
                let hops = if a == b { 0 } else { router.distance(a, b).expect("reachable") };
                cost = (cost.0 + usize::from(hops > 1), cost.1 + hops.saturating_sub(1));
            }
            cost
        };
        let now = relayed(&order);
        let mut best = now;
        permute(&mut order, 1, &mut |order| best = best.min(relayed(order)));
        // then there is a word exactly if one of them is better, and it names one that none is better than
        prop_assert_eq!(found.is_some(), best < now);
        if let Some(found) = found {
            prop_assert_eq!((found.now.relayed_steps, found.now.relays), now);
            prop_assert_eq!((found.then.relayed_steps, found.then.relays), best);
            prop_assert_eq!(relayed(&found.order), best);
        }
    }
}

fn permute(items: &mut Vec<NodeId>, from: usize, visit: &mut impl FnMut(&[NodeId])) {
    if from >= items.len() {
        return visit(items);
    }
    for at in from..items.len() {
        items.swap(from, at);
        permute(items, from + 1, visit);
        items.swap(from, at);
    }
}
