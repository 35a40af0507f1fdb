//! A lane: a route pinned to one link a hop.

use crate::{LinkId, NodeId, Route, Router};
use std::collections::HashSet;
use std::net::Ipv4Addr;

/// One hop of a lane: a link in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hop {
    /// The link.
    pub link: LinkId,
    /// Address of the port that sends.
    pub from: Ipv4Addr,
    /// Address of the port that receives.
    pub to: Ipv4Addr,
}

/// One link for each hop of a route, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lane {
    /// The hops; at least one.
    pub hops: Vec<Hop>,
}

impl Lane {
    /// The same way back.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let back = |hop: &Hop| Hop { link: hop.link, from: hop.to, to: hop.from };
        Self { hops: self.hops.iter().rev().map(back).collect() }
    }
}

impl Router {
    /// The route pinned to one link a hop: rail `n` of each edge, modulo its rails that are up. `None` if an edge of
    /// the route has none.
    pub fn lane(&self, route: &Route, n: usize) -> Option<Lane> {
        let mut hops = Vec::with_capacity(route.hops());
        for (from, to) in route.steps() {
            let rails = &self.rails[self.edge_up(from, to)?.index()];
            let (link, ends) = &rails[n % rails.len()];
            let (near, far) = if ends[0].node == from { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
            hops.push(Hop { link: *link, from: near.address, to: far.address });
        }
        Some(Lane { hops })
    }

    /// As many lanes of a route as share no link: one for each rail of its edge with the fewest.
    pub fn lanes(&self, route: &Route) -> Vec<Lane> {
        let rails = |(a, b)| self.edge_up(a, b).map_or(0, |edge| self.rails[edge.index()].len());
        let count = route.steps().map(rails).min().unwrap_or(0);
        (0..count).filter_map(|n| self.lane(route, n)).collect()
    }

    /// The lanes of one connection: of the routes of least cost, in the order of [`choose_nth`](Self::choose_nth) from the `turn`th on, all
    /// rails, as long as no two lanes share a link; at most `most`. On a ring these are both ways round for nodes that are as far apart
    /// either way; a pinned route stands alone. The first lane is by the `turn`th route, so that what uses one lane only alternates too.
    pub fn lanes_apart(&self, from: NodeId, to: NodeId, turn: usize, most: usize) -> Vec<(Route, Lane)> {
        let routes = self.rotation(from, to);
        let mut used = HashSet::new();
        let mut found = Vec::new();
        for route in routes.iter().cycle().skip(turn % routes.len().max(1)).take(routes.len()) {
            for lane in self.lanes(route) {
                if found.len() == most {
                    return found;
                }
                if lane.hops.iter().all(|hop| !used.contains(&hop.link)) {
                    used.extend(lane.hops.iter().map(|hop| hop.link));
                    found.push((route.clone(), lane));
                }
            }
        }
        found
    }

    /// A lane for each link between two adjacent nodes, in rail order; none if they are not adjacent.
    pub fn lanes_of_edge(&self, from: NodeId, to: NodeId) -> Vec<Lane> {
        if self.edge_up(from, to).is_none() { Vec::new() } else { self.lanes(&Route::new(vec![from, to])) }
    }

    /// The links that are up on the edge between two nodes, in rail order.
    pub fn links_up(&self, a: NodeId, b: NodeId) -> impl Iterator<Item = LinkId> + '_ {
        let rails = self.edge_up(a, b).map_or(&[][..], |edge| &self.rails[edge.index()]);
        rails.iter().map(|&(link, _)| link)
    }
}
