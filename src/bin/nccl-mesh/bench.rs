//! `nccl-mesh bench`: latency, bandwidth and cost of a connection, directly and over relays. Turns options into runs of the harness,
//! one a fabric, and knows no more of them. Runs on the command's main thread, which lives as long as the nodes.

use crate::fabric_args::FabricArgs;
use crate::routes::fail;
use crate::shape_args::ShapeArgs;
use mesh_routing::{AddressPlan, Router, Shape, Topology};
use mesh_sim::harness::bench::point::Check;
use mesh_sim::harness::bench::{DEEPEST, LARGEST};
use mesh_sim::harness::{BenchArgs, LinkKind, Pin, Report, RunArgs, Work, parse_sizes, run};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// Most relays of a line.
const MOST_RELAYS: usize = 62;

/// Options of `nccl-mesh bench`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Relays between the two ends, a line of nodes for each number; the first is what `x direct` is told by, if it is 0
    #[arg(long, value_name = "LIST", default_value = "0,1,2,3", value_delimiter = ',',
          conflicts_with_all = ["topology", "shape", "nodes"])]
    relays: Vec<usize>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// With --topology or --shape: the node that sends first
    #[arg(long, value_name = "NODE")]
    from: Option<String>,
    /// With --topology or --shape: the node at the other end
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
    #[command(flatten)]
    fabric: FabricArgs,
    /// Bytes of messages, with K or M; at most 64M
    #[arg(long, value_name = "LIST", default_value = "8,8K,64K,1M")]
    sizes: String,
    /// Round trips that count [default: 10000 up to 16K, 5000 up to 128K, 1000 up to 2M, else 100; fewer if they take long]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rounds: Option<u32>,
    /// Messages under way when streaming, 1 to 8
    #[arg(long, value_name = "LIST", default_value = "1,8", value_delimiter = ',')]
    depth: Vec<usize>,
    /// Least time of a stream
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    seconds: f64,
    /// Tests with nothing to do, at each end
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// How much of each message the ends write and read while it counts: ends (two words), lines (a word in each cache line, as who uses the
    /// data brings every line to its core) or all
    #[arg(long, value_name = "WHAT", default_value = "ends")]
    touch: Check,
    /// Cores of their own: auto (if there are two a node), on (the ends at least) or off
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pin: Pin,
    /// Run perftest's ib_write_lat and ib_write_bw on the first cable too, for comparison; with --link verbs
    #[arg(long)]
    perftest: bool,
    /// Version of the plugin's table
    #[arg(long, value_name = "VERSION", default_value_t = 12, value_parser = clap::value_parser!(u32).range(8..=12))]
    abi: u32,
    /// Most seconds that each line of nodes may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

/// Runs the command.
pub(crate) fn run_command(args: &Args) -> ExitCode {
    let fabrics = match fabrics(args) {
        Ok(fabrics) => fabrics,
        Err(message) => return fail(&format!("mesh[E30] {message}")),
    };
    let mut direct = Vec::new();
    for (mut fabric, relays) in fabrics {
        if let Work::Bench(asked) = &mut fabric.work {
            asked.direct.clone_from(&direct);
        }
        let report = match run(&fabric, &mut io::stdout()) {
            Ok(report) => report,
            Err(error) => return fail(&format!("mesh[E30] {error}")),
        };
        if report.status() != 0 {
            for problem in report.problems() {
                fail(&format!("mesh[E31] {problem}"));
            }
            return ExitCode::from(report.status());
        }
        if let (0, Report::Bench(report)) = (relays, report) {
            direct = report.rows;
        }
    }
    ExitCode::SUCCESS
}

/// A run for each fabric, with the relays between its ends.
fn fabrics(args: &Args) -> Result<Vec<(RunArgs, usize)>, String> {
    let sizes = parse_sizes(&args.sizes).map_err(|error| error.to_string())?;
    if let Some(large) = sizes.iter().find(|bytes| **bytes > LARGEST) {
        return Err(format!("--sizes: {large} bytes are more than the {LARGEST} that a message may have here"));
    }
    if args.depth.iter().any(|depth| !(1..=DEEPEST).contains(depth)) {
        return Err(format!("--depth: at least 1 and at most {DEEPEST}, the slots of a connection of NCCL's"));
    }
    if !(0.0..=3600.0).contains(&args.seconds) {
        return Err("--seconds: from 0 to 3600".to_owned());
    }
    if args.perftest && args.fabric.link != Some(LinkKind::Verbs) {
        return Err("--perftest needs --link verbs: it measures RDMA devices".to_owned());
    }
    let asked = |relays| BenchArgs {
        relays,
        sizes: sizes.clone(),
        rounds: args.rounds.map(|rounds| rounds as usize),
        depths: args.depth.clone(),
        seconds: args.seconds,
        calls: args.calls as usize,
        abi: args.abi,
        pin: args.pin,
        touch: args.touch,
        perftest: false,
        direct: Vec::new(),
    };
    let mut fabrics: Vec<(RunArgs, usize)> = Vec::new();
    for (topology, from, to, relays) in lines(args)? {
        let work = Work::Bench(BenchArgs { perftest: args.perftest && fabrics.is_empty(), ..asked(relays) });
        let run = args.fabric.run_args(topology, work, Duration::from_secs(args.timeout));
        fabrics.push((RunArgs { rank_order: vec![from, to], ..run }, relays));
    }
    Ok(fabrics)
}

/// Topologies with their ends and the relays between those.
fn lines(args: &Args) -> Result<Vec<(Topology, String, String, usize)>, String> {
    let plan = AddressPlan::default();
    let line_of_relays = args.shape.topology.is_none() && args.shape.shape.is_none() && args.shape.nodes.is_none();
    match (line_of_relays, &args.from, &args.to) {
        (true, None, None) => {
            let line = |&relays: &usize| {
                if relays > MOST_RELAYS {
                    return Err(format!("--relays: {relays} are more than {MOST_RELAYS}"));
                }
                let topology = Topology::from_shape(Shape::Line, relays + 2, args.shape.rails.unwrap_or(1), &plan);
                let topology = args.shape.at_speed(topology.map_err(|error| error.to_string())?);
                let name = |at: usize| topology.nodes()[at].name.clone();
                let (from, to) = (name(0), name(relays + 1));
                Ok((topology, from, to, relays))
            };
            args.relays.iter().map(line).collect()
        }
        (false, Some(from), Some(to)) => {
            let topology = args.shape.load(plan.base).map_err(|error| error.to_string())?;
            let find = |name: &str| topology.node_by_name(name).ok_or_else(|| format!("no node {name:?}"));
            let route = Router::new(&topology).choose(find(from)?, find(to)?);
            let nodes = route.ok_or_else(|| format!("no route from {from} to {to}"))?.nodes().len();
            Ok(vec![(topology, from.clone(), to.clone(), nodes.saturating_sub(2))])
        }
        (true, ..) => Err("--from and --to go with --topology or --shape".to_owned()),
        (false, ..) => Err("--topology and --shape need --from NODE and --to NODE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Bench {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Vec<(RunArgs, usize)>, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        fabrics(&Bench::try_parse_from(words).map_err(|error| error.to_string())?.args)
    }

    fn asked(run: &RunArgs) -> &BenchArgs {
        let Work::Bench(asked) = &run.work else { panic!("a measurement") };
        asked
    }

    #[test]
    fn without_options_there_are_lines_with_none_to_three_relays() {
        let fabrics = parse("").expect("defaults");
        let nodes: Vec<_> = fabrics.iter().map(|(run, relays)| (run.topology.nodes().len(), *relays)).collect();
        assert_eq!(nodes, [(2, 0), (3, 1), (4, 2), (5, 3)]);
        let (last, _) = &fabrics[3];
        assert_eq!((&last.rank_order[..], asked(last).relays), (&["node0", "node4"].map(str::to_owned)[..], 3));
        assert_eq!((&asked(last).sizes[..], &asked(last).depths[..]), (&[8, 8192, 65_536, 1 << 20][..], &[1, 8][..]));
        assert_eq!((asked(last).pin, asked(last).rounds, asked(last).perftest), (Pin::Auto, None, false));
    }

    #[test]
    fn a_topology_has_the_relays_of_its_route() {
        let fabrics = parse("--shape ring --nodes 6 --from node1 --to node4 --sizes 4").expect("sound");
        assert_eq!((fabrics.len(), fabrics[0].1, asked(&fabrics[0].0).relays), (1, 2, 2));
        assert_eq!(fabrics[0].0.rank_order, ["node1", "node4"]);
        // rails alone are those of the lines
        assert_eq!(parse("--relays 1 --rails 2").expect("sound")[0].0.topology.links().len(), 4);
    }

    #[test]
    fn perftest_is_run_once() {
        let fabrics = parse("--link verbs --perftest --relays 0,1").expect("sound");
        assert_eq!([0, 1].map(|at| asked(&fabrics[at].0).perftest), [true, false]);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let wrong = [
            ("--relays 1,x", "invalid digit"),
            ("--relays 63", "63 are more than 62"),
            ("--relays 1 --nodes 4", "cannot be used with"),
            ("--from node0 --to node1", "--from and --to go with"),
            ("--nodes 4 --from node0", "need --from NODE and --to NODE"),
            ("--shape line --from node0 --to node9", "no node \"node9\""),
            ("--shape line --from node0 --to node0", "no route"),
            ("--sizes 65M", "more than the 67108864"),
            ("--sizes 8X", "8X"),
            ("--depth 0", "--depth"),
            ("--depth 1,9", "--depth"),
            ("--rounds 0", "rounds"),
            ("--seconds=-1", "--seconds: from 0"),
            ("--seconds NaN", "--seconds: from 0"),
            ("--calls 0", "calls"),
            ("--pin maybe", "auto, on, off"),
            ("--perftest", "--link verbs"),
            ("--link rope", "unknown link"),
            ("--abi 7", "abi"),
            ("--rails 0", "0 rails"),
        ];
        for (line, word) in wrong {
            let error = parse(line).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
        assert!(parse("--relays 62 --sizes 0,64M --depth 8 --seconds 0 --rounds 1").is_ok());
    }
}
