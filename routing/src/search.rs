//! The search behind routes: how far nodes are from a root, which ways lead there, and what a search must not touch.
//! Knows nothing of ties between ways of equal cost, nor of pinned routes. Any thread.

use crate::router::MAX_EQUAL_COST;
use crate::{EdgeId, NodeId, Route, Router};
use std::collections::VecDeque;

/// How far every node is from a root, and how wide the way is.
#[derive(Debug)]
pub(crate) struct Levels {
    root: NodeId,
    /// Hops to the root; [`FAR`] where there is no way within the policy.
    pub(crate) hops: Vec<u32>,
    /// The widest narrowest edge of the ways with that many hops.
    pub(crate) width: Vec<u64>,
}

/// What a search must not touch, by index; an empty list bans nothing.
#[derive(Debug, Default)]
pub(crate) struct Banned {
    pub(crate) nodes: Vec<bool>,
    pub(crate) edges: Vec<bool>,
}

impl Banned {
    fn node(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).copied().unwrap_or(false)
    }

    fn edge(&self, edge: EdgeId) -> bool {
        self.edges.get(edge.index()).copied().unwrap_or(false)
    }
}

/// Where there is no way.
pub(crate) const FAR: u32 = u32::MAX;

impl Router {
    pub(crate) fn levels_from(&self, root: NodeId) -> Levels {
        self.levels(root, None, &Banned::default())
    }

    /// The next nodes on the ways of least cost from `at`, where the narrowest edge of the whole way is `width`; in
    /// natural order. Every one of them leads on to the root.
    pub(crate) fn onward(&self, levels: &Levels, at: NodeId, width: u64) -> impl Iterator<Item = (NodeId, EdgeId)> {
        let fits = move |&&(next, edge): &&(NodeId, EdgeId)| {
            levels.hops[next.index()] != FAR
                && levels.hops[next.index()] + 1 == levels.hops[at.index()]
                && (next == levels.root || self.relay[next.index()])
                && self.capacity[edge.index()] >= width
                && levels.width[next.index()] >= width
        };
        self.neighbours[at.index()].iter().filter(fits).copied()
    }

    /// The width that a way from `at` to the root has, see [`Router::onward`].
    pub(crate) fn width(&self, levels: &Levels, at: NodeId) -> u64 {
        levels.width[at.index()]
    }

    /// Walks from `from` to the root; where several ways lead on, `pick` says which.
    pub(crate) fn walk(
        &self,
        levels: &Levels,
        from: NodeId,
        pick: impl Fn(NodeId, &[(NodeId, EdgeId)]) -> usize,
    ) -> Route {
        let width = levels.width[from.index()];
        let (mut at, mut nodes) = (from, vec![from]);
        while at != levels.root {
            let ways: Vec<_> = self.onward(levels, at, width).collect();
            at = ways[if ways.len() == 1 { 0 } else { pick(at, &ways) }].0;
            nodes.push(at);
        }
        Route::new(nodes)
    }

    /// The first way of least cost in natural order that touches nothing banned.
    pub(crate) fn search(&self, from: NodeId, to: NodeId, banned: &Banned) -> Option<Route> {
        let (low, high) = self.ends(from, to)?;
        let levels = self.levels(high, Some(low), banned);
        if levels.hops[low.index()] == FAR {
            return None;
        }
        let width = levels.width[low.index()];
        let (mut at, mut nodes) = (low, vec![low]);
        while at != high {
            let mut ways = self.onward(&levels, at, width);
            at = ways.find(|&(next, edge)| !banned.edge(edge) && !banned.node(next))?.0;
            nodes.push(at);
        }
        let route = Route::new(nodes);
        Some(if low == from { route } else { route.reversed() })
    }

    /// A breadth-first search from the root. Only nodes that relay pass it on; the policy bounds its depth. Goes no
    /// further than needed for the ways from `until`, if that is given.
    pub(crate) fn levels(&self, root: NodeId, until: Option<NodeId>, banned: &Banned) -> Levels {
        let count = self.neighbours.len();
        let mut levels = Levels { root, hops: vec![FAR; count], width: vec![0; count] };
        levels.hops[root.index()] = 0;
        levels.width[root.index()] = u64::MAX;
        let most_hops = self.max_relays.map_or(FAR - 1, |relays| u32::from(relays) + 1);
        let mut open = VecDeque::from([root]);
        while let Some(at) = open.pop_front() {
            let hops = levels.hops[at.index()];
            if until.is_some_and(|until| hops >= levels.hops[until.index()]) {
                break;
            }
            if hops >= most_hops || (at != root && !self.relay[at.index()]) {
                continue;
            }
            for &(next, edge) in &self.neighbours[at.index()] {
                if banned.edge(edge) || banned.node(next) {
                    continue;
                }
                if levels.hops[next.index()] == FAR {
                    levels.hops[next.index()] = hops + 1;
                    open.push_back(next);
                }
                // A node's own width is final before it is taken from the queue: all of a level is queued before the
                // next level begins.
                if levels.hops[next.index()] == hops + 1 {
                    let through = levels.width[at.index()].min(self.capacity[edge.index()]);
                    let width = &mut levels.width[next.index()];
                    *width = through.max(*width);
                }
            }
        }
        levels
    }

    /// Adds the ways of least cost that go on from the path, at most [`MAX_EQUAL_COST`] in all.
    pub(crate) fn collect(&self, levels: &Levels, path: &mut Vec<NodeId>, width: u64, found: &mut Vec<Route>) {
        let at = path[path.len() - 1];
        if at == levels.root {
            found.push(Route::new(path.clone()));
            return;
        }
        for (next, _) in self.onward(levels, at, width) {
            if found.len() == MAX_EQUAL_COST {
                return;
            }
            path.push(next);
            self.collect(levels, path, width, found);
            path.pop();
        }
    }
}
