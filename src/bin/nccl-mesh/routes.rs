//! `nccl-mesh routes`: the routes of all pairs or of one, the load of every link, what breaks if one does, a picture.
//! Knows nothing of running agents: what it prints follows from the topology alone. Runs on the command's main thread.

use crate::shape_args::ShapeArgs;
use mesh_relay::wire::MAX_LANES;
use mesh_routing::render::{
    Down, Outage, Picture, STANDARD_LOADS, loads_table, outages, outages_table, ring_note, route_detail, routes_table,
    svg,
};
use mesh_routing::{
    AddressPlan, Algo, Collective, Lane, LinkLoad, NodeId, RankOrder, Router, Topology, USUAL_MBPS, flows, link_load,
    nearest,
};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `nccl-mesh routes`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Only routes from this node (name)
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
    /// Only routes to this node (name)
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
    /// Node of every rank, by number or name: 0,2,1,3 [default: as listed]
    #[arg(long, value_name = "ORDER")]
    rank_order: Option<String>,
    /// Write a picture with the load of every link
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Collective whose load the picture shows
    #[arg(long, default_value = "all-reduce", requires = "svg")]
    collective: Collective,
    /// Its algorithm [default: tree for all-reduce, else the collective's first]
    #[arg(long, requires = "svg")]
    algo: Option<Algo>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs the command; fails if a pair asked for has no route.
pub(crate) fn run(args: &Args) -> ExitCode {
    match output(args) {
        Ok((text, complete)) => {
            let written = emit(&text);
            if complete { written } else { ExitCode::FAILURE }
        }
        Err(message) => fail(&message),
    }
}

/// What goes to standard output, and whether every pair asked for has a route.
fn output(args: &Args) -> Result<(String, bool), String> {
    let topology = args.shape.load(AddressPlan::default().base).map_err(|error| error.to_string())?;
    let router = Router::new(&topology);
    let order = match &args.rank_order {
        None => RankOrder::as_listed(&topology),
        Some(text) => RankOrder::parse(&topology, text).map_err(|error| coded("E24", &error))?,
    };
    let from = args.from.as_deref().map(|name| find(&topology, name)).transpose()?;
    let to = args.to.as_deref().map(|name| find(&topology, name)).transpose()?;
    if let (Some(from), Some(to)) = (from, to)
        && from == to
    {
        return Err(coded("E23", &format!("--from and --to name the same node, {}", topology.name(from))));
    }
    let pairs = pairs(&topology, from, to);
    let complete = pairs.iter().all(|&(from, to)| router.choose(from, to).is_some());
    if let Some(path) = &args.svg {
        let picture = picture(args, &topology, &router, &order, from.zip(to))?;
        std::fs::write(path, picture).map_err(|error| coded("E25", &format!("{}: {error}", path.display())))?;
    }
    let text = if args.json {
        let outages = if from.or(to).is_some() { Vec::new() } else { outages(&topology) };
        let rows = routes_json(&topology, &router, &pairs)
            .into_iter()
            .chain(loads_json(&topology, &router, &order)?)
            .chain(outages_json(&topology, &outages));
        rows.map(|row| format!("{row}\n")).collect()
    } else {
        tables(&args.shape.title(), &topology, &router, &order, &pairs, from.zip(to))?
    };
    Ok((text, complete))
}

/// Pairs to show: all once in natural order, or those of the given ends.
fn pairs(topology: &Topology, from: Option<NodeId>, to: Option<NodeId>) -> Vec<(NodeId, NodeId)> {
    let order = topology.canonical_order();
    let others = |node: NodeId| order.iter().copied().filter(move |&other| other != node);
    match (from, to) {
        (Some(from), Some(to)) => vec![(from, to)],
        (Some(from), None) => others(from).map(|to| (from, to)).collect(),
        (None, Some(to)) => others(to).map(|from| (from, to)).collect(),
        (None, None) => {
            let later = |(at, &a): (usize, &NodeId)| order[at + 1..].iter().map(move |&b| (a, b)).collect::<Vec<_>>();
            order.iter().enumerate().flat_map(later).collect()
        }
    }
}

fn tables(
    title: &str,
    topology: &Topology,
    router: &Router,
    order: &RankOrder,
    pairs: &[(NodeId, NodeId)],
    one: Option<(NodeId, NodeId)>,
) -> Result<String, String> {
    let counts = (topology.nodes().len(), topology.edges().len(), topology.links().len());
    let mut text = format!("{title}: nodes {}, edges {}, links {}\n\n", counts.0, counts.1, counts.2);
    text += &routes_table(topology, router, pairs);
    if let Some((from, to)) = one {
        text += &format!("\n{}", route_detail(topology, router, from, to));
        return Ok(text);
    }
    text += &format!(
        "\nload of every link, there / back, in multiples of the payload; ranks on nodes {}\n\n",
        order.numbers()
    );
    text += &loads_table(topology, router, order).map_err(|error| coded("E26", &error))?;
    if let Some(note) = ring_note(topology, router, order) {
        text += &format!("note: {note}\n");
    }
    text += "\nwhat breaks if one link or node is down\n\n";
    text += &outages_table(topology, &outages(topology));
    Ok(text)
}

fn picture(
    args: &Args,
    topology: &Topology,
    router: &Router,
    order: &RankOrder,
    one: Option<(NodeId, NodeId)>,
) -> Result<String, String> {
    let algo = args.algo.unwrap_or(match args.collective {
        Collective::AllReduce => Algo::Tree,
        Collective::AllToAll | Collective::SendRecv { .. } => Algo::Direct,
        _ => Algo::Ring,
    });
    let flows = flows(args.collective, algo, topology.nodes().len()).map_err(|error| coded("E26", &error))?;
    let load = link_load(topology, router, order, &flows);
    let route = one.and_then(|(from, to)| router.choose(from, to));
    let (title, load_name) = (args.shape.title(), format!("{} by {algo}", args.collective));
    let picture = Picture { title: &title, load_name: &load_name, load: &load, route: route.as_ref() };
    Ok(svg(topology, router, &picture))
}

fn routes_json(topology: &Topology, router: &Router, pairs: &[(NodeId, NodeId)]) -> Vec<Value> {
    let row = |&(from, to): &(NodeId, NodeId)| {
        let (a, b) = (topology.name(from), topology.name(to));
        let Some(route) = router.choose(from, to) else {
            return json!({"kind": "route", "from": a, "to": b, "hops": null, "relays": [], "lanes": [], "cost": null});
        };
        let lanes = router.lanes_apart(from, to, 0, MAX_LANES);
        let lanes: Vec<_> = lanes.iter().map(|(_, lane)| lane_json(topology, lane)).collect();
        let fall_back = router.next_best_disjoint(from, to);
        let fall_back = fall_back.map(|route| names(topology, route.nodes()));
        json!({
            "kind": "route", "from": a, "to": b, "hops": route.hops(), "relays": names(topology, route.relays()),
            "lanes": lanes, "cost": router.cost(&route).map(|cost| cost.value()), "fall_back": fall_back,
        })
    };
    pairs.iter().map(row).collect()
}

fn lane_json(topology: &Topology, lane: &Lane) -> Value {
    let hop = |hop: &mesh_routing::Hop| {
        let subnet = topology.link(hop.link).subnet.to_string();
        json!({"subnet": subnet, "from": hop.from.to_string(), "to": hop.to.to_string()})
    };
    lane.hops.iter().map(hop).collect()
}

/// One row for each standard collective and link, and one for the whole of each collective.
fn loads_json(topology: &Topology, router: &Router, order: &RankOrder) -> Result<Vec<Value>, String> {
    let mut rows = Vec::new();
    for (collective, algo) in STANDARD_LOADS {
        let flows = flows(collective, algo, topology.nodes().len()).map_err(|error| coded("E26", &error))?;
        let load: LinkLoad = link_load(topology, router, order, &flows);
        let (collective, algo) = (collective.name(), algo.name());
        for link in topology.links() {
            let [out, back] = load.links[link.id.index()];
            let ends = names(topology, &link.ends.map(|end| end.node));
            rows.push(json!({
                "kind": "load", "collective": collective, "algo": algo, "subnet": link.subnet.to_string(),
                "nodes": ends, "payloads_out": out, "payloads_back": back,
            }));
        }
        rows.push(json!({
            "kind": "load_total", "collective": collective, "algo": algo, "worst_payloads": load.worst_port(),
            "worst_link": load.worst().map(|(link, _)| topology.link(link).subnet.to_string()),
            "relayed_share": load.relayed_share(), "unroutable_flows": load.unroutable,
            "least_ms_per_gib": load.least_seconds(topology, 1 << 30, USUAL_MBPS) * 1e3,
        }));
    }
    Ok(rows)
}

fn outages_json(topology: &Topology, outages: &[Outage]) -> Vec<Value> {
    let pair = |&(a, b): &(NodeId, NodeId)| names(topology, &[a, b]);
    let row = |outage: &Outage| {
        let cut: Vec<_> = outage.impact.cut.iter().map(pair).collect();
        let most = outage.impact.longer.iter().map(|&(.., is)| is).max();
        let (subnet, node, device) = match outage.down {
            Down::Link(link) => (Some(topology.link(link).subnet.to_string()), None, None),
            Down::Node(node) => (None, Some(topology.name(node)), None),
            Down::Port(node, port) => {
                let device = topology.node(node).ports[port].device.as_str();
                (None, Some(topology.name(node)), Some(device))
            }
        };
        json!({
            "kind": "outage", "subnet": subnet, "node": node, "device": device, "cut": cut,
            "longer_pairs": outage.impact.longer.len(), "longest_hops": most,
        })
    };
    outages.iter().map(row).collect()
}

fn names<'a>(topology: &'a Topology, nodes: &[NodeId]) -> Vec<&'a str> {
    nodes.iter().map(|&node| topology.name(node)).collect()
}

/// The node of this name.
///
/// # Errors
/// When there is none, with its code and the nearest name.
pub(crate) fn find(topology: &Topology, name: &str) -> Result<NodeId, String> {
    topology.node_by_name(name).ok_or_else(|| {
        let known: Vec<_> = topology.nodes().iter().map(|node| node.name.as_str()).collect();
        let hint = match nearest(name, &known) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("nodes: {}", known.join(", ")),
        };
        coded("E23", &format!("no node is named {name:?}; {hint}"))
    })
}

/// An error with its code, as people read it.
pub(crate) fn coded(code: &str, error: &impl Display) -> String {
    format!("mesh[{code}] {error}")
}

/// Writes to standard output. A reader that has gone, as under `head`, is no failure.
pub(crate) fn emit(text: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(&format!("standard output: {error}")),
        _ => ExitCode::SUCCESS,
    }
}

/// Says on standard error why the command fails.
pub(crate) fn fail(message: &str) -> ExitCode {
    // Where standard error is gone as well, the exit status has to do.
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::{Args, output};
    use clap::Parser;
    use serde_json::Value;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn run(line: &str) -> Result<(String, bool), String> {
        let words = std::iter::once("routes").chain(line.split_whitespace());
        output(&Command::try_parse_from(words).expect("options that parse").args)
    }

    #[test]
    fn rows_have_the_promised_fields() {
        // given a ring of four with two rails
        let (text, complete) = run("--shape ring --nodes 4 --rails 2 --json").expect("a report");
        assert!(complete);
        let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
        let of_kind = |kind: &str| rows.iter().filter(|row| row["kind"] == kind).collect::<Vec<_>>();
        // then every pair stands there once, with its way
        assert_eq!(of_kind("route").len(), 6);
        let diagonal = of_kind("route")[1];
        assert_eq!((&diagonal["from"], &diagonal["to"]), (&"node0".into(), &"node2".into()));
        assert_eq!((&diagonal["hops"], &diagonal["cost"]), (&2.into(), &2.0.into()));
        assert_eq!(diagonal["relays"], Value::from(vec!["node3"]));
        // by both rails, both ways round
        assert_eq!(diagonal["lanes"].as_array().map(Vec::len), Some(4));
        assert_eq!(diagonal["lanes"][0][0]["from"], "10.200.0.26");
        // and every link under every collective, and every outage
        assert_eq!(of_kind("load").len(), 4 * 8);
        assert_eq!(of_kind("load_total").len(), 4);
        assert_eq!(of_kind("outage").len(), 8 + 4);
    }

    #[test]
    fn one_pair_is_told_in_full() {
        let (text, _) = run("--shape ring --nodes 6 --from node0 --to node3").expect("a report");
        assert!(text.contains("route      node0 > node1 > node2 > node3\n"), "{text}");
        assert!(text.contains("as good    node0 > node5 > node4 > node3\n"), "{text}");
        assert!(text.contains("fall-back  node0 > node5 > node4 > node3\n"), "{text}");
        assert!(text.contains("  lane 0   10.200.0.1 > 10.200.0.2 (10.200.0.0/30), "), "{text}");
    }

    #[test]
    fn a_bad_rank_order_is_noticed_and_a_better_one_named() {
        let (text, _) = run("--shape ring --nodes 4 --rank-order 0,2,1,3").expect("a report");
        assert!(
            text.contains(
                "note: rank order 0,2,1,3 makes 2 of 4 ring edges relayed; better, with 0: --rank-order 0,1,2,3\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn faults_carry_codes_and_remedies() {
        let told = |line: &str| run(line).expect_err("a fault");
        assert!(told("").starts_with("mesh[E77]"));
        assert_eq!(told("--nodes 4 --from nod1"), "mesh[E23] no node is named \"nod1\"; did you mean \"node1\"?");
        assert!(told("--nodes 4 --from node1 --to node1").starts_with("mesh[E23]"));
        assert!(told("--nodes 4 --rank-order 0,1").starts_with("mesh[E24]"));
        assert!(told("--nodes 4 --svg /nonexistent/x.svg").starts_with("mesh[E25]"));
        assert!(told("--nodes 4 --svg /nonexistent/x.svg --algo pat").starts_with("mesh[E26]"));
    }
}
