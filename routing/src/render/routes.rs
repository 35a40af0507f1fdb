//! Routes and load as tables.

use super::{Table, link_name, names};
use crate::load::{MOST_LANES, USUAL_MBPS};
use crate::{Algo, Collective, FlowError, LinkLoad, NodeId, RankOrder, Router, Topology, flows, link_load};

/// The collectives whose load is shown for every link: what training and inference on NCCL mostly ask for.
pub const STANDARD_LOADS: [(Collective, Algo); 4] = [
    (Collective::AllReduce, Algo::Ring),
    (Collective::AllReduce, Algo::Tree),
    (Collective::AllGather, Algo::Pat),
    (Collective::AllToAll, Algo::Direct),
];

/// One row a pair: hops, relays, lanes, cost, and the hops of the fall-back that shares no edge with it.
pub fn routes_table(topology: &Topology, router: &Router, pairs: &[(NodeId, NodeId)]) -> String {
    let mut table = Table::new(&["from", "to", ">hops", "relays", ">lanes", ">cost", "other way"]);
    for &(from, to) in pairs {
        let (a, b) = (topology.name(from).to_owned(), topology.name(to).to_owned());
        let Some(route) = router.choose(from, to) else {
            table.row([a, b, "-".to_owned(), "no route".to_owned()]);
            continue;
        };
        let other = router.next_best_disjoint(from, to).map_or_else(
            || "none".to_owned(),
            |other| match other.relays() {
                [] => "direct".to_owned(),
                relays => format!("{} hops via {}", other.hops(), names(topology, relays, ", ")),
            },
        );
        let cost = router.cost(&route).map_or(0.0, |cost| cost.value());
        let (hops, lanes) = (route.hops().to_string(), router.lanes_apart(from, to, 0, MOST_LANES).len().to_string());
        table.row([a, b, hops, names(topology, route.relays(), ", "), lanes, format!("{cost:.2}"), other]);
    }
    table.render()
}

/// One pair in full: every route of equal cost, the chosen one's lanes link by link, and the fall-back.
pub fn route_detail(topology: &Topology, router: &Router, from: NodeId, to: NodeId) -> String {
    let Some(chosen) = router.choose(from, to) else {
        return format!("no route from {} to {}\n", topology.name(from), topology.name(to));
    };
    let way = |nodes: &[NodeId]| names(topology, nodes, " > ");
    let mut text = format!("route      {}\n", way(chosen.nodes()));
    for (n, (_, lane)) in router.lanes_apart(from, to, 0, MOST_LANES).iter().enumerate() {
        let hops: Vec<_> = lane
            .hops
            .iter()
            .map(|hop| format!("{} > {} ({})", hop.from, hop.to, topology.link(hop.link).subnet))
            .collect();
        text += &format!("  lane {n}   {}\n", hops.join(", "));
    }
    for equal in router.all_equal_cost(from, to).iter().filter(|route| **route != chosen) {
        text += &format!("as good    {}\n", way(equal.nodes()));
    }
    match router.next_best_disjoint(from, to) {
        Some(other) => text += &format!("fall-back  {}\n", way(other.nodes())),
        None => text += "fall-back  none: every other way shares an edge with this one\n",
    }
    text
}

/// One row a link: its load under each standard collective, there and back, in multiples of the payload; then the
/// busiest link, the busiest port where it differs, the share that relays carry, and the least time that the links allow
/// for a payload of 1 GiB.
///
/// # Errors
/// Never for the standard collectives; passes on what [`flows`](fn@flows) says.
pub fn loads_table(topology: &Topology, router: &Router, order: &RankOrder) -> Result<String, FlowError> {
    let n = topology.nodes().len();
    let mut loads: Vec<LinkLoad> = Vec::new();
    let mut heads = vec!["link".to_owned(), "subnet".to_owned()];
    for (collective, algo) in STANDARD_LOADS {
        loads.push(link_load(topology, router, order, &flows(collective, algo, n)?));
        heads.push(format!(">{}", column(collective, algo)));
    }
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for link in topology.links() {
        let cells = loads.iter().map(|load| {
            let [out, back] = load.links[link.id.index()];
            format!("{out:.2} / {back:.2}")
        });
        table.row([link_name(topology, link), link.subnet.to_string()].into_iter().chain(cells));
    }
    let mut foot = |name: &str, cell: &dyn Fn(&LinkLoad) -> String| {
        table.row([name.to_owned(), String::new()].into_iter().chain(loads.iter().map(cell)));
    };
    foot("busiest link", &|load| format!("{:.2}", load.worst().map_or(0.0, |(_, load)| load)));
    if topology.links().iter().any(|link| link.switched) {
        foot("busiest port", &|load| format!("{:.2}", load.worst_port()));
    }
    foot("through relays", &|load| format!("{:.0} %", load.relayed_share() * 100.0));
    foot(&least_label(topology), &|load| format!("{:.1}", load.least_seconds(topology, 1 << 30, USUAL_MBPS) * 1e3));
    if loads.iter().any(|load| load.unroutable > 0) {
        foot("flows without route", &|load| load.unroutable.to_string());
    }
    Ok(table.render())
}

/// What the row of least times is called: with the speed that was taken where none is given.
fn least_label(topology: &Topology) -> String {
    let known = topology.links().iter().all(|link| link.speed_mbps.is_some());
    if known { "least ms/GiB".to_owned() } else { format!("ms/GiB at {}G", USUAL_MBPS / 1000) }
}

/// A word on the rank order, if ring edges need relays: how many, and a better order if there is one.
pub fn ring_note(topology: &Topology, router: &Router, order: &RankOrder) -> Option<String> {
    let relayed = order.ring_edges_relayed(router).len();
    if relayed == 0 {
        return None;
    }
    let better = RankOrder::along_cables(topology, router);
    let least = better.ring_edges_relayed(router).len();
    let found = format!("rank order {} makes {relayed} of {} ring edges relayed", order.numbers(), order.nodes().len());
    Some(if least < relayed {
        format!("{found}; better, with {least}: --rank-order {}", better.numbers())
    } else {
        format!("{found}; no order does better")
    })
}

/// All-reduce by its algorithm, the others by their own name.
fn column(collective: Collective, algo: Algo) -> String {
    match collective {
        Collective::AllReduce => algo.name().to_owned(),
        Collective::AllGather if algo == Algo::Pat => "pat".to_owned(),
        other => other.name().to_owned(),
    }
}
