//! `nccl-mesh rank-order`: an order of ranks that puts Ring on real cables, and how to tell launchers. Knows nothing of
//! running jobs. Runs on the command's main thread.

use crate::launch::{Format, plain, rankfile, torchrun, vllm};
use crate::routes::{emit, fail};
use crate::shape_args::ShapeArgs;
use mesh_routing::render::Table;
use mesh_routing::{AddressPlan, RankOrder, Router, Topology};
use serde_json::json;
use std::process::ExitCode;

/// Options of `nccl-mesh rank-order`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    shape: ShapeArgs,
    /// Print only the lines for a launcher [default: a report for people]
    #[arg(long, value_enum, value_name = "WHOM", conflicts_with_all = ["rankfile", "json"])]
    format: Option<Format>,
    /// As --format mpirun
    #[arg(long, conflicts_with = "json")]
    rankfile: bool,
    /// As --format json: one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs the command; fails only if there is no topology.
pub(crate) fn run(args: &Args) -> ExitCode {
    let topology = match args.shape.load(AddressPlan::default().base) {
        Ok(topology) => topology,
        Err(error) => return fail(&error.to_string()),
    };
    let router = Router::new(&topology);
    let order = RankOrder::along_cables(&topology, &router);
    let format = args.format.or_else(|| args.json.then_some(Format::Json));
    emit(&match format.or_else(|| args.rankfile.then_some(Format::Mpirun)) {
        None => report(&topology, &router, &order),
        Some(Format::Torchrun) => torchrun(&topology, &order),
        Some(Format::Mpirun) => rankfile(&topology, &order),
        Some(Format::Vllm) => vllm(&topology, &order),
        Some(Format::Plain) => plain(&topology, &order),
        Some(Format::Json) => objects(&topology, &router, &order),
    })
}

fn report(topology: &Topology, router: &Router, order: &RankOrder) -> String {
    let n = order.nodes().len();
    let relayed = order.ring_edges_relayed(router);
    let mut text = format!("rank order {}: ", order.numbers());
    text += &match relayed.len() {
        0 => "every ring edge is a cable\n".to_owned(),
        some => format!("{some} of {n} ring edges need relays, no fewer were found\n"),
    };
    let listed = RankOrder::as_listed(topology).ring_edges_relayed(router).len();
    if listed > relayed.len() {
        text += &format!("as listed, {listed} of {n} would\n");
    }
    text.push('\n');
    let mut table = Table::new(&[">rank", "node", "to the next rank", "torchrun, on that node"]);
    for (rank, &node) in order.nodes().iter().enumerate() {
        let next = order.nodes()[(rank + 1) % n];
        let way = match router.choose(node, next) {
            _ if n < 2 => "-".to_owned(),
            None => "no route".to_owned(),
            Some(route) if route.is_direct() => "cable".to_owned(),
            Some(route) => {
                let via: Vec<_> = route.relays().iter().map(|&relay| topology.name(relay)).collect();
                format!("via {}", via.join(", "))
            }
        };
        table.row([rank.to_string(), topology.name(node).to_owned(), way, format!("--nnodes {n} --node-rank {rank}")]);
    }
    text += &table.render();
    text += "\nmpirun --rankfile FILE, with these lines (or: nccl-mesh rank-order --format mpirun > FILE)\n\n";
    text += &rankfile(topology, order);
    text += "\nwhole command lines: --format torchrun, --format vllm\n";
    text
}

fn objects(topology: &Topology, router: &Router, order: &RankOrder) -> String {
    let relayed = order.ring_edges_relayed(router);
    let object = |(rank, &node)| {
        let to_next = relayed.iter().any(|&(from, _)| from == rank);
        format!("{}\n", json!({"rank": rank, "node": topology.name(node), "relayed_to_next": to_next}))
    };
    order.nodes().iter().enumerate().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::{objects, report};
    use crate::launch::rankfile;
    use mesh_routing::{AddressPlan, NodeSpec, Policy, RankOrder, Router, Shape, Topology};

    /// A ring cabled a, c, b, d.
    fn crossed() -> Topology {
        let (specs, _) = Shape::Ring.nodes(4, 1, &AddressPlan::default()).expect("a ring");
        let named = |(spec, name): (NodeSpec, &str)| NodeSpec { name: name.to_owned(), ..spec };
        let mut specs: Vec<_> = specs.into_iter().zip(["a", "c", "b", "d"]).map(named).collect();
        specs.sort_by(|x, y| x.name.cmp(&y.name));
        Topology::from_nodes(specs, vec![], Policy::default()).expect("a sound topology")
    }

    #[test]
    fn the_order_follows_the_cables() {
        let topology = crossed();
        let router = Router::new(&topology);
        let order = RankOrder::along_cables(&topology, &router);
        let text = report(&topology, &router, &order);
        assert!(
            text.starts_with("rank order 0,2,1,3: every ring edge is a cable\nas listed, 2 of 4 would\n"),
            "{text}"
        );
        assert!(text.contains("   1  c     cable             --nnodes 4 --node-rank 1\n"), "{text}");
        assert_eq!(rankfile(&topology, &order), "rank 0=a slot=0\nrank 1=c slot=0\nrank 2=b slot=0\nrank 3=d slot=0\n");
        let first = objects(&topology, &router, &order);
        assert_eq!(first.lines().next(), Some(r#"{"node":"a","rank":0,"relayed_to_next":false}"#));
    }

    #[test]
    fn relayed_edges_are_named() {
        let topology = Topology::from_shape(Shape::Line, 4, 1, &AddressPlan::default()).expect("a line");
        let router = Router::new(&topology);
        let text = report(&topology, &router, &RankOrder::along_cables(&topology, &router));
        assert!(text.contains("1 of 4 ring edges need relays"), "{text}");
        assert!(text.contains("via node2, node1") || text.contains("via node1, node2"), "{text}");
    }
}
