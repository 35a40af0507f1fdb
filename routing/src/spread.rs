//! The tie-break between routes of equal cost: spreads load, and is the same on every node.
//!
//! A table of all pairs that have a choice, filled in two passes over the pairs in natural order:
//!
//! 1. the pairs that the double binary tree joins when ranks follow the natural order: Tree is the algorithm that
//!    NCCL takes for small and middling all-reduces, and its few edges are what piles up. Counted against each other;
//! 2. all other pairs, as in an all-to-all. Counted against every pair with a single route and all settled before.
//!
//! Each pair takes the route whose most loaded edge stays least loaded, then the one with the least load in sum, then
//! the first in natural order. An edge's load counts in inverse proportion to its capacity.

use crate::flows::tree_edges;
use crate::fnv::Fnv;
use crate::router::Router;
use crate::search::{FAR, Levels};
use crate::topology::ordered;
use crate::{EdgeId, NodeId, Route};
use std::collections::{HashMap, HashSet};

/// The settled routes of pairs that had a choice.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    settled: HashMap<[NodeId; 2], Route>,
}

impl Spread {
    /// Settles all pairs; nothing beyond [`Router::SPREAD_NODES`] nodes.
    pub(crate) fn over(router: &Router) -> Self {
        if router.order.len() > Router::SPREAD_NODES {
            return Self::default();
        }
        let levels: HashMap<NodeId, Levels> =
            router.order.iter().map(|&root| (root, router.levels_from(root))).collect();
        let mut table = Self::default();
        let unit = router.capacity.iter().map(|&capacity| 1024 * router.widest / capacity.max(1)).collect();
        let mut load = Load { edges: vec![0; router.capacity.len()], unit };

        let tree = tree_pairs(router);
        table.pass(router, &levels, &mut load, tree.iter().copied());

        load.edges.fill(0);
        let settled: Vec<_> = table.settled.values().cloned().collect();
        settled.iter().for_each(|route| load.add(router, route));
        let done: HashSet<_> = table.settled.keys().copied().collect();
        let pairs = router
            .order
            .iter()
            .enumerate()
            .flat_map(|(at, &low)| router.order[at + 1..].iter().map(move |&high| (low, high)));
        table.pass(router, &levels, &mut load, pairs.filter(|&(a, b)| !done.contains(&ordered(a, b))));
        table
    }

    /// The settled route from the lower to the higher node in natural order, if the pair had a choice.
    pub(crate) fn route(&self, low: NodeId, high: NodeId) -> Option<&Route> {
        self.settled.get(&ordered(low, high))
    }

    /// All settled routes, in no promised order.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.settled.values()
    }

    /// Counts the pairs that have one route, then settles those that have more. A pair given twice counts twice.
    fn pass(
        &mut self,
        router: &Router,
        levels: &HashMap<NodeId, Levels>,
        load: &mut Load,
        pairs: impl Iterator<Item = (NodeId, NodeId)>,
    ) {
        let mut open = Vec::new();
        for (low, high) in pairs {
            if let Some(pinned) = router.pinned(low, high) {
                load.add(router, pinned);
                continue;
            }
            let levels = &levels[&high];
            if levels.hops[low.index()] == FAR {
                continue;
            }
            match only_route(router, levels, low) {
                Some(route) => load.add(router, &route),
                None => open.push((low, high)),
            }
        }
        for (low, high) in open {
            let route = match self.route(low, high) {
                Some(settled) => settled.clone(),
                None => least_loaded(router, &levels[&high], low, load),
            };
            load.add(router, &route);
            self.settled.insert(ordered(low, high), route);
        }
    }
}

/// Load of every edge so far.
struct Load {
    edges: Vec<u64>,
    /// What one more route adds to an edge.
    unit: Vec<u64>,
}

impl Load {
    fn add(&mut self, router: &Router, route: &Route) {
        for edge in router.edges(route) {
            self.edges[edge.index()] += self.unit[edge.index()];
        }
    }

    fn with_one_more(&self, edge: EdgeId) -> u64 {
        self.edges[edge.index()] + self.unit[edge.index()]
    }
}

/// The pairs that both trees join, each as often as it is joined, in natural order.
fn tree_pairs(router: &Router) -> Vec<(NodeId, NodeId)> {
    let mut pairs: Vec<_> = tree_edges(router.order.len())
        .into_iter()
        .flatten()
        .map(|(child, parent)| (child.min(parent), child.max(parent)))
        .collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(low, high)| (router.order[low], router.order[high])).collect()
}

/// The route, if there is only one of least cost.
fn only_route(router: &Router, levels: &Levels, low: NodeId) -> Option<Route> {
    let width = router.width(levels, low);
    let (mut at, mut nodes) = (low, vec![low]);
    while levels.hops[at.index()] > 0 {
        let mut ways = router.onward(levels, at, width);
        at = ways.next()?.0;
        if ways.next().is_some() {
            return None;
        }
        nodes.push(at);
    }
    Some(Route::new(nodes))
}

/// The route whose most loaded edge stays least loaded, then least in sum, then first in natural order.
fn least_loaded(router: &Router, levels: &Levels, low: NodeId, load: &Load) -> Route {
    let width = router.width(levels, low);
    // The nodes on ways of least cost, each before those it leads to.
    let count = levels.hops.len();
    let (mut nodes, mut seen, mut next) = (vec![low], vec![false; count], 0);
    while next < nodes.len() {
        for (on, _) in router.onward(levels, nodes[next], width) {
            if !std::mem::replace(&mut seen[on.index()], true) {
                nodes.push(on);
            }
        }
        next += 1;
    }
    // From the root outwards: the least possible maximum, then the least sum that keeps to it.
    let mut peak = vec![0; count];
    for &at in nodes.iter().rev() {
        let ways = router.onward(levels, at, width);
        peak[at.index()] = ways.map(|(on, edge)| peak[on.index()].max(load.with_one_more(edge))).min().unwrap_or(0);
    }
    let limit = peak[low.index()];
    let mut sum = vec![0; count];
    let through = |sum: &[u64], on: NodeId, edge: EdgeId| {
        let one = load.with_one_more(edge);
        if one > limit { u64::MAX } else { sum[on.index()].saturating_add(one) }
    };
    for &at in nodes.iter().rev() {
        let ways = router.onward(levels, at, width);
        sum[at.index()] = ways.map(|(on, edge)| through(&sum, on, edge)).min().unwrap_or(0);
    }
    router.walk(levels, low, |_, ways| {
        // The first of equals: ways come in natural order.
        (0..ways.len()).min_by_key(|&way| through(&sum, ways[way].0, ways[way].1)).unwrap_or(0)
    })
}

/// Picks by a hash of the pair and the place: for topologies too large for the table. Spreads by chance.
pub(crate) fn hashed(router: &Router, at: NodeId, low: NodeId, high: NodeId, ways: &[(NodeId, EdgeId)]) -> usize {
    let score = |way: &usize| {
        let mut hash = Fnv::new();
        for node in [low, high, at, ways[*way].0] {
            hash.bytes(&router.keys[node.index()].to_le_bytes());
        }
        // The last steps of FNV mix the high bits poorly into the low ones: fold them.
        hash.finish() ^ (hash.finish() >> 32)
    };
    (0..ways.len()).max_by_key(score).unwrap_or(0)
}
