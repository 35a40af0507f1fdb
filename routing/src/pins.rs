//! Pinned routes: what is wrong with them, and which of them can be used. Knows nothing of topology files beyond where
//! in one a route stands. Any thread.

use crate::check::Places;
use crate::{NodeId, NodeSpec, PinnedRoute, Policy, Problem, ProblemCode, Route, Topology, nearest};
use std::collections::{HashMap, HashSet};

/// Everything that is wrong with the pinned routes. `cabling` is the topology of the nodes, if their ports are sound.
pub(crate) fn check(nodes: &[NodeSpec], cabling: Option<&Topology>, policy: &Policy, places: &Places) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut given = HashSet::new();
    for (at, route) in policy.routes.iter().enumerate() {
        let (index, line) = places.routes.get(at).copied().unwrap_or((at, None));
        let mut problem = |key: &str, message: String| {
            let field = format!("policy.route[{index}].{key}");
            problems.push(Problem::new(ProblemCode::BadRoute, "", &field, message).at_line(line));
        };
        if !given.insert((&route.from, &route.to)) {
            let (from, to) = (&route.from, &route.to);
            problem("to", format!("the route from {from:?} to {to:?} is pinned twice; remove one"));
        }
        let keys = std::iter::once("from").chain(route.via.iter().map(|_| "via")).chain(std::iter::once("to"));
        let mut seen = HashSet::new();
        for (key, name) in keys.zip(route.names()) {
            if !nodes.iter().any(|node| node.name == name) {
                problem(key, format!("no node is named {name:?}; {}", hint(nodes, name)));
            } else if !seen.insert(name) {
                problem(key, format!("node {name:?} stands twice in the route; a route passes a node once"));
            }
        }
        let relays = |name: &String| nodes.iter().all(|node| node.name != *name || node.relay);
        for name in route.via.iter().filter(|name| !relays(name)) {
            problem("via", format!("node {name:?} does not relay (relay = false); leave it out, or let it relay"));
        }
        if let Some(most) = policy.max_relays.map(usize::from).filter(|&most| route.via.len() > most) {
            let relays = route.via.len();
            problem("via", format!("{relays} relays, and policy.max_relays is {most}; shorten it or raise the limit"));
        }
        let names: Vec<_> = route.names().collect();
        let Some(cabling) = cabling else { continue };
        for (a, b) in names.windows(2).map(|step| (step[0], step[1])).filter(|(a, b)| a != b) {
            let ends = cabling.node_by_name(a).zip(cabling.node_by_name(b));
            if ends.is_some_and(|(a, b)| cabling.edge_between(a, b).is_none()) {
                problem("via", format!("no link joins {a:?} and {b:?}; pin a route along cables"));
            }
        }
    }
    problems
}

fn hint(nodes: &[NodeSpec], name: &str) -> String {
    let known: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
    match nearest(name, &known) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "use a name from the file".to_owned(),
    }
}

/// The pinned route of each pair and direction that has one, whose every step is up by `edge_up`.
pub(crate) fn usable(
    topology: &Topology,
    edge_up: impl Fn(NodeId, NodeId) -> bool,
) -> HashMap<(NodeId, NodeId), Route> {
    let policy = topology.policy();
    let mut found = HashMap::new();
    let mut given = HashSet::new();
    let mut back = Vec::new();
    for (ends, nodes) in policy.routes.iter().filter_map(|route| resolved(topology, route)) {
        // The first of two for one pair; a file does not have two.
        if !given.insert(ends) {
            continue;
        }
        let relays = &nodes[1..nodes.len() - 1];
        let allowed = policy.max_relays.is_none_or(|most| relays.len() <= usize::from(most));
        let once = nodes.iter().collect::<HashSet<_>>().len() == nodes.len();
        let up = nodes.windows(2).all(|step| edge_up(step[0], step[1]));
        if once && allowed && up && relays.iter().all(|&relay| topology.node(relay).relay) {
            let route = Route::new(nodes);
            back.push(((ends.1, ends.0), route.reversed()));
            found.insert(ends, route);
        }
    }
    back.retain(|(ends, _)| !given.contains(ends));
    found.extend(back);
    found
}

/// The nodes that a pinned route names; `None` if one of them is not there, or not the only one of its name.
fn resolved(topology: &Topology, route: &PinnedRoute) -> Option<((NodeId, NodeId), Vec<NodeId>)> {
    let only = |name: &str| {
        let mut named = topology.nodes().iter().filter(|node| node.name == name);
        named.next().filter(|_| named.next().is_none()).map(|node| node.id)
    };
    let nodes = route.names().map(only).collect::<Option<Vec<_>>>()?;
    Some(((nodes[0], nodes[nodes.len() - 1]), nodes))
}
