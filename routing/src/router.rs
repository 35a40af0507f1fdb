//! Which way a connection goes.
//!
//! The rule, in this order; every node that knows the same topology and the same outages comes to the same route:
//!
//! 1. Only nodes that relay stand in the middle, and no more of them than the policy allows.
//! 2. Fewest hops. Two adjacent nodes are always joined directly.
//! 3. Among those, the widest narrowest edge (sum of the speeds of its links).
//! 4. Among those, the route that spreads load best, see [`crate::spread`]: pairs are settled one after the other in
//!    natural order of the nodes' stable ids, first the pairs that the double binary tree joins when ranks follow
//!    that order, then all others; each takes the route whose most loaded edge stays least loaded, then the least
//!    load in sum, then the first in natural order of its nodes.
//!
//! Before all of these comes a route that the policy pins, if all of it is up.
//!
//! Both directions of a pair use the same route, unless the policy pins one for each. Nothing here depends on the order in which nodes were listed.

use crate::search::{Banned, FAR};
use crate::spread::{self, Spread};
use crate::topology::ordered;
use crate::{Cost, EdgeId, End, LinkId, NodeId, Route, Topology, pins};
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

/// The most routes that [`Router::all_equal_cost`] lists and [`Router::choose_nth`] rotates over.
pub const MAX_EQUAL_COST: usize = 64;

/// Finds routes and lanes. Holds its own copy of what it needs, so it outlives the topology; share it with `Arc`. The
/// first call that has to break a tie computes the tie-break of all pairs (up to [`Router::SPREAD_NODES`] nodes).
#[derive(Debug)]
pub struct Router {
    /// Neighbours over edges that are up, in natural order of their stable ids.
    pub(crate) neighbours: Vec<Vec<(NodeId, EdgeId)>>,
    /// Place of each node in natural order.
    pub(crate) place: Vec<usize>,
    /// Nodes in natural order, those that are down left out.
    pub(crate) order: Vec<NodeId>,
    pub(crate) keys: Vec<u64>,
    pub(crate) relay: Vec<bool>,
    /// Sum of the speeds of the links that are up, by edge.
    pub(crate) capacity: Vec<u64>,
    /// The largest of those; at least 1.
    pub(crate) widest: u64,
    /// Links that are up, by edge, in rail order.
    pub(crate) rails: Vec<Vec<(LinkId, [End; 2])>>,
    pub(crate) by_pair: HashMap<[NodeId; 2], EdgeId>,
    pub(crate) max_relays: Option<u16>,
    /// Routes that hold by policy and are up, by their ends.
    pub(crate) pinned: HashMap<(NodeId, NodeId), Route>,
    pub(crate) spread: OnceLock<Spread>,
}

impl Router {
    /// Up to this many nodes, ties are broken by the load of all pairs; beyond, by a hash of the pair.
    pub const SPREAD_NODES: usize = 128;

    /// A router over a topology with everything up.
    pub fn new(topology: &Topology) -> Self {
        Self::avoiding(topology, &[], &[])
    }

    /// A router that uses neither these links nor these nodes. Ids stay those of the topology.
    pub fn avoiding(topology: &Topology, links: &[LinkId], nodes: &[NodeId]) -> Self {
        let (links, nodes): (HashSet<_>, HashSet<_>) = (links.iter().collect(), nodes.iter().collect());
        let mut place = vec![0; topology.nodes().len()];
        for (at, &node) in topology.canonical_order().iter().enumerate() {
            place[node.index()] = at;
        }
        let up = |edge: EdgeId| {
            let usable = topology.edge(edge).nodes.iter().all(|node| !nodes.contains(node));
            let rails = topology.links_of_edge(edge).iter().filter(|link| usable && !links.contains(*link));
            rails.map(|&link| (link, topology.link(link).ends)).collect::<Vec<_>>()
        };
        let rails: Vec<_> = topology.edges().iter().map(|edge| up(edge.id)).collect();
        let fastest = topology.links().iter().filter_map(|link| link.speed_mbps).max().unwrap_or(1);
        let speed = |&(link, _): &(LinkId, _)| u64::from(topology.link(link).speed_mbps.unwrap_or(fastest));
        let capacity: Vec<u64> = rails.iter().map(|rails| rails.iter().map(speed).sum()).collect();
        let neighbours = (0..place.len())
            .map(|node| {
                let all = topology.graph.neighbours(NodeId::at(node));
                let mut up: Vec<_> = all.filter(|(_, edge)| !rails[edge.index()].is_empty()).collect();
                up.sort_unstable_by_key(|(other, _)| place[other.index()]);
                up
            })
            .collect();
        let pinned = pins::usable(topology, |a, b| {
            topology.edge_between(a, b).is_some_and(|edge| !rails[edge.index()].is_empty())
        });
        Self {
            neighbours,
            place,
            order: topology.canonical_order().iter().copied().filter(|node| !nodes.contains(node)).collect(),
            keys: topology.nodes().iter().map(|node| node.key).collect(),
            relay: topology.nodes().iter().map(|node| node.relay).collect(),
            widest: capacity.iter().copied().max().unwrap_or(1).max(1),
            capacity,
            rails,
            by_pair: topology.by_pair.clone(),
            max_relays: topology.policy().max_relays,
            pinned,
            spread: OnceLock::new(),
        }
    }

    /// The route that the policy pins for this pair in this direction, if all of it is up.
    pub fn pinned(&self, from: NodeId, to: NodeId) -> Option<&Route> {
        self.pinned.get(&(from, to))
    }

    /// The first route in natural order of those with least cost. `None` if there is no way, for an unknown node, or
    /// from a node to itself. Cheap: one search, no tie-break; [`choose`](Self::choose) is what connections take.
    pub fn shortest(&self, from: NodeId, to: NodeId) -> Option<Route> {
        self.search(from, to, &Banned::default())
    }

    /// Every route of least cost, in natural order, at most [`MAX_EQUAL_COST`] of them.
    pub fn all_equal_cost(&self, from: NodeId, to: NodeId) -> Vec<Route> {
        let Some((low, high)) = self.ends(from, to) else { return Vec::new() };
        let levels = self.levels(high, Some(low), &Banned::default());
        let mut found = Vec::new();
        if levels.hops[low.index()] != FAR {
            self.collect(&levels, &mut vec![low], levels.width[low.index()], &mut found);
        }
        if low != from {
            found.iter_mut().for_each(|route| *route = route.reversed());
        }
        found
    }

    /// The route that a connection takes, by the rule above.
    pub fn choose(&self, from: NodeId, to: NodeId) -> Option<Route> {
        if let Some(pinned) = self.pinned(from, to) {
            return Some(pinned.clone());
        }
        if self.edge_up(from, to).is_some() {
            return Some(Route::new(vec![from, to]));
        }
        let (low, high) = self.ends(from, to)?;
        let route = match self.spread().route(low, high) {
            Some(settled) => settled.clone(),
            None => {
                let levels = self.levels(high, Some(low), &Banned::default());
                if levels.hops[low.index()] == FAR {
                    return None;
                }
                // Unique, or too many nodes for the table: then the pair's hash decides at each fork.
                self.walk(&levels, low, |at, ways| spread::hashed(self, at, low, high, ways))
            }
        };
        Some(if low == from { route } else { route.reversed() })
    }

    /// The route for the `n`-th connection of a pair: the chosen one for the first, then the other routes of equal
    /// cost, each time the one that shares fewest edges with those before it, and round again.
    pub fn choose_nth(&self, from: NodeId, to: NodeId, n: usize) -> Option<Route> {
        if n == 0 {
            return self.choose(from, to);
        }
        let mut all = self.rotation(from, to);
        let turn = n % all.len().max(1);
        (turn < all.len()).then(|| all.swap_remove(turn))
    }

    /// All routes of a pair in the order of [`choose_nth`](Self::choose_nth); none if there is no way.
    pub(crate) fn rotation(&self, from: NodeId, to: NodeId) -> Vec<Route> {
        let Some(chosen) = self.choose(from, to) else { return Vec::new() };
        if chosen.is_direct() || self.pinned(from, to).is_some() {
            return vec![chosen];
        }
        let mut left = self.all_equal_cost(from, to);
        left.retain(|route| *route != chosen);
        // With more routes than are listed, the chosen one may not be among them and takes the place of one.
        left.truncate(MAX_EQUAL_COST - 1);
        let edges = |route: &Route| self.edges(route).collect::<Vec<_>>();
        let mut left: Vec<_> = left.into_iter().map(|route| (edges(&route), route)).collect();
        let mut used = vec![0_usize; self.capacity.len()];
        edges(&chosen).into_iter().for_each(|edge| used[edge.index()] += 1);
        let mut all = vec![chosen];
        // Symmetric: the first of equals is the same seen from either end, as the list is.
        let shared = |used: &[usize], edges: &[EdgeId]| edges.iter().map(|edge| used[edge.index()]).sum::<usize>();
        while let Some(at) = (0..left.len()).min_by_key(|&at| shared(&used, &left[at].0)) {
            let (edges, route) = left.remove(at);
            edges.into_iter().for_each(|edge| used[edge.index()] += 1);
            all.push(route);
        }
        all
    }

    /// The best route that shares no edge with the chosen one, and no relay either if there is such a route: what to
    /// fall back to when a link or a relay of the chosen route dies. `None` where no such route exists; two links of
    /// one edge are lanes, not routes.
    pub fn next_best_disjoint(&self, from: NodeId, to: NodeId) -> Option<Route> {
        let chosen = self.choose(from, to)?;
        let mut banned = Banned { nodes: vec![false; self.place.len()], edges: vec![false; self.capacity.len()] };
        self.edges(&chosen).for_each(|edge| banned.edges[edge.index()] = true);
        chosen.relays().iter().for_each(|node| banned.nodes[node.index()] = true);
        if let Some(apart) = self.search(from, to, &banned) {
            return Some(apart);
        }
        banned.nodes.clear();
        self.search(from, to, &banned)
    }

    /// What a route costs; `None` if one of its edges is down or unknown.
    pub fn cost(&self, route: &Route) -> Option<Cost> {
        let mut capacity = u64::MAX;
        for (a, b) in route.steps() {
            capacity = capacity.min(self.capacity[self.edge_up(a, b)?.index()]);
        }
        Some(Cost { hops: route.hops(), capacity, widest: self.widest })
    }

    /// Hops of the shortest route; `None` if there is no way. From a node to itself: 0.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<usize> {
        if from == to {
            return (from.index() < self.place.len()).then_some(0);
        }
        let (low, high) = self.ends(from, to)?;
        let hops = self.levels(high, Some(low), &Banned::default()).hops[low.index()];
        (hops != FAR).then_some(hops as usize)
    }

    /// Hops from every node to this one, `None` where there is no way; indexed by node.
    pub fn distances(&self, to: NodeId) -> Vec<Option<usize>> {
        if to.index() >= self.place.len() {
            return vec![None; self.place.len()];
        }
        let levels = self.levels(to, None, &Banned::default());
        levels.hops.iter().map(|&hops| (hops != FAR).then_some(hops as usize)).collect()
    }

    /// Hops of the longest route that a connection may take while nothing is down, pinned ones with it; 0 without any.
    pub fn most_hops(&self) -> usize {
        let shortest = self.order.iter().flat_map(|&to| self.distances(to)).flatten();
        shortest.chain(self.pinned.values().map(Route::hops)).max().unwrap_or(0)
    }

    /// Pairs of nodes without a route, each once, in natural order. Nodes that are down are left out.
    pub fn unreachable_pairs(&self) -> Vec<(NodeId, NodeId)> {
        let mut pairs = Vec::new();
        for (at, &a) in self.order.iter().enumerate() {
            let levels = self.levels(a, None, &Banned::default());
            let far = |b: &&NodeId| levels.hops[b.index()] == FAR;
            pairs.extend(self.order[at + 1..].iter().filter(far).map(|&b| (a, b)));
        }
        pairs
    }

    /// The edge between two nodes if one of its links is up.
    pub(crate) fn edge_up(&self, a: NodeId, b: NodeId) -> Option<EdgeId> {
        let edge = *self.by_pair.get(&ordered(a, b))?;
        (!self.rails[edge.index()].is_empty()).then_some(edge)
    }

    /// The edges of a route, as far as they are up.
    pub(crate) fn edges<'a>(&'a self, route: &'a Route) -> impl Iterator<Item = EdgeId> + 'a {
        route.steps().filter_map(|(a, b)| self.edge_up(a, b))
    }

    fn spread(&self) -> &Spread {
        self.spread.get_or_init(|| Spread::over(self))
    }

    /// The pair in natural order; `None` if a node is unknown or both are one.
    pub(crate) fn ends(&self, a: NodeId, b: NodeId) -> Option<(NodeId, NodeId)> {
        let (first, second) = (*self.place.get(a.index())?, *self.place.get(b.index())?);
        match first.cmp(&second) {
            std::cmp::Ordering::Less => Some((a, b)),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some((b, a)),
        }
    }
}
