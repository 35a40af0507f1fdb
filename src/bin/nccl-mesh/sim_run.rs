//! `nccl-mesh sim`: a fabric of processes on this machine. Turns options into what the harness runs, and knows no more of it.
//! Runs on the command's main thread, which lives as long as the nodes.

use crate::fabric_args::FabricArgs;
use crate::routes::fail;
use crate::shape_args::ShapeArgs;
use mesh_routing::AddressPlan;
use mesh_sim::harness::{
    Agents, Algo, Collective, CollectiveArgs, Fault, JobArgs, JobEnding, LinkKind, RunArgs, Work, parse_sizes, run,
    run_keeper, run_node,
};
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// What to do with a simulated fabric.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a checked collective, or a command once a node, on a fabric of processes
    ///
    /// Every node is a process of this machine that can reach only what the topology cables it to. Without a command after
    /// `--`, each loads the plugin through its C interface and the collective runs as NCCL would run it, every byte checked.
    /// Exit status 0 only if every byte was right and nothing failed; with a command, the worst of its own.
    Run(Box<Args>),
    /// A node of `sim run` or `bench`, which start it
    #[command(hide = true)]
    Node,
    /// Removes the network namespaces of `sim run --netns`, which starts it, when that has ended
    #[command(hide = true)]
    Keeper {
        /// Its process
        run: u32,
    },
}

/// Options of `nccl-mesh sim run`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    fabric: FabricArgs,
    /// Use ports that this machine really has, at the addresses of --topology, with the system's own libibverbs: no make-believe
    /// fabric and no soft verbs. What joins the ports is the machine's affair
    #[arg(long, requires = "topology", conflicts_with_all = ["shape", "nodes", "rails", "soft_verbs", "soft_verbs_set"])]
    real_ports: bool,
    /// Each node in a network namespace of its own, a pair of virtual Ethernet devices a cable, with the topology's addresses: real
    /// interfaces, routes and carriers instead of the make-believe fabric (see docs/netns.md). Needs root and iproute2
    #[arg(long, conflicts_with = "real_ports")]
    netns: bool,
    /// Give nodes no topology file: they find one another
    #[arg(long, conflicts_with = "real_ports")]
    discover: bool,
    /// Run the daemon `nccl-mesh agent` on nodes: idle (those without a rank, see --rank-order) or all
    #[arg(long, value_name = "NODES")]
    agents: Option<Agents>,
    /// Run the same in N jobs at once, each with processes of its own on every node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    jobs: u16,
    /// Let a job end in order before its time, after the size it is at; with a command, by SIGTERM: 1@2.5 (jobs count from 0); may be repeated
    #[arg(long, value_name = "JOB@SECONDS")]
    end_job: Vec<JobEnding>,
    /// Kill all processes of a job: 1@2.5; it is not missed, all others must pass; may be repeated
    #[arg(long, value_name = "JOB@SECONDS")]
    kill_job: Vec<JobEnding>,
    /// all-reduce, all-gather, reduce-scatter, broadcast, all-to-all or send-recv
    #[arg(long, default_value = "all-reduce", conflicts_with = "command")]
    collective: Collective,
    /// ring, tree, pat or direct [default: the collective's first]
    #[arg(long, conflicts_with = "command")]
    algo: Option<Algo>,
    /// Sizes as nccl-tests counts them, with K, M or G
    #[arg(long, value_name = "LIST", default_value = "0,4,8K,1M,64M", conflicts_with = "command")]
    sizes: String,
    /// Timed iterations a size, after one to warm up [default: 5, fewer above 4M]
    #[arg(long, value_name = "N", conflicts_with = "command")]
    iters: Option<usize>,
    /// Channels, each with connections of its own; trees differ between even and odd ones
    #[arg(long, value_name = "C", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=32),
          conflicts_with = "command")]
    channels: u16,
    /// For send-recv: ranks from sender to receiver [default: every distance, a row each]
    #[arg(long, value_name = "D", conflicts_with = "command")]
    distance: Option<usize>,
    /// Run the list of sizes N times
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "command")]
    repeat: usize,
    /// Then stay connected for so long, and measure the processor time that costs
    #[arg(long, value_name = "SECONDS", conflicts_with = "command")]
    idle: Option<u64>,
    /// Version of the plugin's table
    #[arg(long, value_name = "VERSION", default_value_t = 12, value_parser = clap::value_parser!(u32).range(8..=12),
          conflicts_with = "command")]
    abi: u32,
    /// Node of every rank, by number or name: 0,2,1,3; nodes left out only relay [default: as listed]
    #[arg(long, value_name = "ORDER", value_delimiter = ',')]
    rank_order: Vec<String>,
    /// Something that goes wrong: "0 absent NODE" (the node never starts), "WHEN cut A B", "WHEN mend A B" (one rail alone with its
    /// number behind), and with
    /// --netns "WHEN kill NODE", WHEN in seconds after the start (2, 1.5s, 500ms); may be repeated
    #[arg(long, value_name = "WHEN WHAT")]
    fault: Vec<Fault>,
    /// Most seconds that all may take, idling not counted [default: 120; 3600 with a command]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// With a command: do not begin its lines with the node's name
    #[arg(long, requires = "command")]
    no_prefix: bool,
    /// With a command: do not tell it to use the plugin
    #[arg(long, requires = "command")]
    no_plugin: bool,
    /// A command to run once a node instead of a collective, with RANK, WORLD_SIZE, MASTER_ADDR, NCCL_HOSTID and the plugin set
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
pub(crate) fn run_command(command: Command) -> ExitCode {
    match command {
        Command::Node => run_node(),
        Command::Keeper { run } => run_keeper(run),
        Command::Run(args) => match arguments(*args) {
            Err(message) => fail(&format!("mesh[E30] {message}")),
            Ok(args) => sim_run(&args),
        },
    }
}

fn sim_run(args: &RunArgs) -> ExitCode {
    match run(args, &mut io::stdout()) {
        Err(error) => fail(&format!("mesh[E30] {error}")),
        Ok(report) => {
            for problem in report.problems() {
                fail(&format!("mesh[E31] {problem}"));
            }
            ExitCode::from(report.status())
        }
    }
}

fn arguments(args: Args) -> Result<RunArgs, String> {
    let topology = args.shape.load_or_ring(AddressPlan::default().base).map_err(|error| error.to_string())?;
    let with_command = !args.command.is_empty();
    let work = if with_command {
        Work::Job(JobArgs { command: args.command, prefix: !args.no_prefix, plugin: !args.no_plugin })
    } else {
        if args.distance.is_some() && args.collective != Collective::SendRecv {
            return Err("--distance is for --collective send-recv".to_owned());
        }
        Work::Collective(CollectiveArgs {
            collective: args.collective,
            algo: args.collective.algo(args.algo).map_err(|error| error.to_string())?,
            sizes: parse_sizes(&args.sizes).map_err(|error| error.to_string())?,
            iterations: args.iters,
            channels: usize::from(args.channels),
            distance: args.distance,
            repeat: args.repeat,
            idle: args.idle.map(Duration::from_secs),
            abi: args.abi,
        })
    };
    let timeout = args.timeout.unwrap_or(if with_command { 3600 } else { 120 });
    let run = args.fabric.run_args(topology, work, Duration::from_secs(timeout));
    // Real ports are there to be used as they are: for RDMA, unless sockets are asked for.
    let link = if args.real_ports { args.fabric.link.unwrap_or(LinkKind::Verbs) } else { run.link };
    let netns = args.netns;
    let killed = args.kill_job.into_iter().map(|ending| JobEnding { killed: true, ..ending });
    let run = RunArgs {
        discover: args.discover,
        agents: args.agents.unwrap_or_default(),
        jobs: usize::from(args.jobs),
        endings: args.end_job.into_iter().chain(killed).collect(),
        ..run
    };
    Ok(RunArgs { link, real_ports: args.real_ports, netns, rank_order: args.rank_order, faults: args.fault, ..run })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Sim {
        #[command(subcommand)]
        command: Command,
    }

    fn parse(line: &str) -> Result<RunArgs, String> {
        let words = ["sim", "run"].into_iter().chain(line.split_whitespace());
        match Sim::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Run(args) => arguments(*args),
            Command::Node | Command::Keeper { .. } => Err("not a run".to_owned()),
        }
    }

    #[test]
    fn a_run_without_options_is_an_all_reduce_on_a_ring_of_four() {
        let args = parse("").expect("defaults");
        assert_eq!((args.topology.nodes().len(), args.timeout), (4, Duration::from_secs(120)));
        let Work::Collective(asked) = args.work else { panic!("a collective") };
        assert_eq!((asked.collective, asked.algo, asked.channels), (Collective::AllReduce, Algo::Ring, 2));
        assert_eq!(asked.sizes, [0, 4, 8 << 10, 1 << 20, 64 << 20]);
    }

    #[test]
    fn a_command_behind_dashes_is_taken_as_it_is() {
        let args = parse("--nodes 3 --no-prefix --env A=b=c -- python train.py --json").expect("sound");
        assert_eq!((args.environment, args.json), (vec![("A".to_owned(), "b=c".to_owned())], false));
        let Work::Job(job) = args.work else { panic!("a command") };
        assert_eq!(job.command, ["python", "train.py", "--json"]);
        assert!(!job.prefix && job.plugin);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let wrong = [
            "--collective broadcast --algo tree",
            "--collective all-reduce --distance 2",
            "--sizes 8X",
            "--link rope",
            "--abi 7",
            "--abi 13",
            "--channels 0",
            "--timeout 0",
            "--env =x",
            "--no-prefix",
            "--algo ring -- true",
            "--shape ring --nodes 0",
            "--fault=cut",
            "--real-ports",
            "--real-ports --shape ring --nodes 4",
            "--netns --real-ports --topology x.toml",
        ];
        for line in wrong {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--abi 8 --timeout 1 --channels 32").is_ok());
    }

    #[test]
    fn real_ports_are_those_of_a_topology_file_and_leave_no_room_for_soft_verbs() {
        // given a file, as only there the machine's own addresses can stand
        let topology = mesh_routing::Topology::from_shape(mesh_routing::Shape::Ring, 3, 1, &AddressPlan::default());
        let file = std::env::temp_dir().join(format!("nccl-mesh-real-ports-{}.toml", std::process::id()));
        std::fs::write(&file, topology.expect("a ring").to_toml()).expect("a temporary file");
        let with = |more: &str| parse(&format!("--topology {} {more}", file.display()));
        // when real ports are asked for, then links may be of either kind
        for (link, kind) in [("tcp", LinkKind::Tcp), ("verbs", LinkKind::Verbs)] {
            let args = with(&format!("--real-ports --link {link}")).expect("sound");
            assert!(args.real_ports && args.link == kind);
        }
        assert!(!with("--link verbs").expect("sound").real_ports);
        // and what only a make-believe fabric has is refused, and named
        for soft in ["--soft-verbs /tmp", "--soft-verbs-set strict=on"] {
            let refused = with(&format!("--real-ports --link verbs {soft}")).expect_err(soft);
            assert!(refused.contains("--real-ports") && refused.contains("--soft-verbs"), "{refused}");
        }
        std::fs::remove_file(file).expect("its own");
    }
}
