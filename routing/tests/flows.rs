//! The flows of collectives against what NCCL's graphs are known to be.

use mesh_routing::flows::tree_edges;
use mesh_routing::{Algo, Collective, flows};

/// Child and parent, for trees 0 and 1, in order of the children.
type Known = (usize, &'static [(usize, usize)], &'static [(usize, usize)]);

#[test]
fn double_binary_trees_of_three_to_eight_ranks() {
    // given the trees that NCCL builds for one GPU a node
    let known: [Known; 6] = [
        (3, &[(1, 2), (2, 0)], &[(0, 1), (2, 0)]),
        (4, &[(1, 2), (2, 0), (3, 2)], &[(0, 1), (1, 3), (2, 1)]),
        (5, &[(1, 2), (2, 4), (3, 2), (4, 0)], &[(0, 1), (2, 3), (3, 0), (4, 3)]),
        (6, &[(1, 2), (2, 4), (3, 2), (4, 0), (5, 4)], &[(0, 1), (1, 5), (2, 3), (3, 1), (4, 3)]),
        (7, &[(1, 2), (2, 4), (3, 2), (4, 0), (5, 6), (6, 4)], &[(0, 5), (2, 3), (3, 5), (4, 3), (5, 1), (6, 0)]),
        (
            8,
            &[(1, 2), (2, 4), (3, 2), (4, 0), (5, 6), (6, 4), (7, 6)],
            &[(0, 1), (1, 3), (2, 1), (3, 7), (4, 5), (5, 3), (6, 5)],
        ),
    ];
    for (n, first, second) in known {
        // when ours are computed, then they are the same
        assert_eq!(tree_edges(n), [first.to_vec(), second.to_vec()], "{n} ranks");
    }
}

#[test]
fn trees_span_all_ranks_for_any_number() {
    for n in 0..200 {
        for tree in tree_edges(n) {
            // then each rank but one has one parent, and every way up ends at that one
            assert_eq!(tree.len(), n.saturating_sub(1), "{n} ranks");
            let mut parents = vec![None; n];
            for (child, parent) in tree {
                assert_eq!(parents[child].replace(parent), None, "{n} ranks: two parents of {child}");
            }
            let root = parents.iter().position(Option::is_none);
            for start in 0..n {
                let mut at = start;
                for _ in 0..n {
                    at = parents[at].unwrap_or(at);
                }
                assert_eq!(Some(at), root, "{n} ranks: way up from {start}");
            }
        }
    }
}

#[test]
fn what_each_rank_sends_adds_up() {
    for n in 2..20 {
        let sent = |collective, algo| {
            let mut sent = vec![0.0; n];
            let mut received = vec![0.0; n];
            for flow in flows(collective, algo, n).expect("a combination that exists") {
                assert_ne!(flow.from_rank, flow.to_rank, "{collective} by {algo}, {n} ranks");
                sent[flow.from_rank] += flow.weight;
                received[flow.to_rank] += flow.weight;
            }
            (sent, received)
        };
        let share = (n - 1) as f64 / n as f64;
        for (collective, algo, each) in [
            (Collective::AllReduce, Algo::Ring, 2.0 * share),
            (Collective::AllGather, Algo::Ring, share),
            (Collective::ReduceScatter, Algo::Ring, share),
            (Collective::AllGather, Algo::Pat, share),
            (Collective::ReduceScatter, Algo::Pat, share),
            (Collective::AllToAll, Algo::Direct, share),
        ] {
            let (out, back) = sent(collective, algo);
            for amount in out.into_iter().chain(back) {
                assert!((amount - each).abs() < 1e-9, "{collective} by {algo}, {n} ranks: {amount} for {each}");
            }
        }
        // Each tree carries half of the data over n-1 edges, both ways.
        let total: f64 = sent(Collective::AllReduce, Algo::Tree).0.iter().sum();
        assert!((total - 2.0 * (n - 1) as f64).abs() < 1e-9, "tree, {n} ranks: {total}");
        let total: f64 = sent(Collective::Broadcast, Algo::Ring).0.iter().sum();
        assert!((total - (n - 1) as f64).abs() < 1e-9, "broadcast, {n} ranks: {total}");
    }
}

#[test]
fn pat_reaches_powers_of_two_only() {
    for (n, distances) in [(4, vec![1, 2]), (5, vec![1, 2, 4]), (6, vec![1, 2, 4]), (8, vec![1, 2, 4])] {
        let mut seen: Vec<usize> = flows(Collective::AllGather, Algo::Pat, n)
            .expect("all-gather runs by pat")
            .iter()
            .map(|flow| (flow.to_rank + n - flow.from_rank) % n)
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, distances, "{n} ranks");
    }
}

#[test]
fn limits_and_combinations_that_do_not_exist() {
    assert!(flows(Collective::AllReduce, Algo::Pat, 4).is_err());
    assert!(flows(Collective::AllToAll, Algo::Ring, 4).is_err());
    let error = flows(Collective::Broadcast, Algo::Tree, 4).expect_err("broadcast by tree is gone");
    assert_eq!(error.to_string(), "no broadcast by tree; broadcast runs by ring");
    assert_eq!(flows(Collective::AllReduce, Algo::Ring, 0), Ok(vec![]));
    assert_eq!(flows(Collective::AllReduce, Algo::Tree, 1), Ok(vec![]));
    assert_eq!(flows(Collective::SendRecv { distance: 4 }, Algo::Direct, 4), Ok(vec![]));
    assert_eq!(flows(Collective::SendRecv { distance: 5 }, Algo::Direct, 4).map(|flows| flows.len()), Ok(4));
}
