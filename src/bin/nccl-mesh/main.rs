//! `nccl-mesh`, the operator's command. Here are only the names of its commands; each has a module of its own.

mod agent;
mod bench;
mod discover;
mod env_cmd;
mod fabric_args;
mod launch;
mod rank_order;
mod routes;
mod shape_args;
mod sim_run;
mod status;
mod topology;
mod topology_diff;
mod topology_import;

use clap::Parser;
use std::process::ExitCode;

/// Looks after NCCL on clusters without a switch.
#[derive(Parser, Debug)]
#[command(name = "nccl-mesh", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Run collectives, or any command, on a fabric of processes on this machine
    #[command(subcommand)]
    Sim(sim_run::Command),
    /// How fast a connection is, directly and over relays
    ///
    /// Starts lines of nodes on this machine, as `sim run` does; the first sends to the last through the plugin's C interface, the
    /// nodes between them relay. docs/bench.md says what each figure means. Exit status 0 only if nothing failed and every byte that
    /// was compared was right.
    Bench(Box<bench::Args>),
    /// Routes for all pairs or one, the load of every link, what breaks if one does
    Routes(routes::Args),
    /// Check, find or print a topology
    #[command(subcommand)]
    Topology(topology::Command),
    /// An order of ranks that puts Ring on real cables
    RankOrder(rank_order::Args),
    /// The daemon: owns this host's node, so that jobs may come and go, and relays for jobs that have no process here
    Agent(agent::Args),
    /// What the processes of this host's node see now: ports, nodes, connections with their routes, what they relay
    Status(status::Args),
    /// The variables to set, and those set that contradict
    Env(env_cmd::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Sim(command) => sim_run::run_command(command),
        Command::Bench(args) => bench::run_command(&args),
        Command::Routes(args) => routes::run(&args),
        Command::Topology(command) => topology::run(&command),
        Command::RankOrder(args) => rank_order::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Env(args) => env_cmd::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn all_options_fit_together() {
        Cli::command().debug_assert();
    }
}
