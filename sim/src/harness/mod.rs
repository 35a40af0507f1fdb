//! The harness behind `nccl-mesh sim` and `nccl-mesh bench`: one process a node on this machine, on a make-believe fabric, in network
//! namespaces joined by virtual cables, or on ports that it has.
//!
//! [`run`] starts the nodes, on a make-believe fabric each with the preloaded library that lets only cabled ports talk, and runs either a
//! collective that is checked byte by byte, or a measurement of one connection ([`bench`](mod@bench)), or a command of the user's. A collective goes through the plugin's C interface exactly as NCCL would
//! use it: the parent stands in for NCCL's bootstrap, each node ([`run_node`]) for a rank with its main, service and progress
//! threads, [`program`]s for the kernels of the GPU.
//!
//! It must not know the plugin's inside: it sees the C interface, settings in the environment, one snapshot function, the
//! statistics files, and what `nccl-mesh status` says of daemons.

pub mod algorithms;
pub mod args;
pub mod bench;
mod cables;
pub mod children;
pub mod collective;
mod collective_run;
mod connect;
pub mod content;
mod counters;
mod daemons;
pub mod executor;
mod fault;
mod faults;
mod hub;
mod job;
mod jobs;
pub mod messages;
pub mod netns;
mod node;
mod patience;
mod plugin_ends;
pub mod program;
pub mod report;
pub mod scene;
pub mod snapshot;
mod sys;
pub mod transport;
mod verbs;

#[cfg(test)]
mod jobs_tests;
#[cfg(test)]
mod tests;

use std::io::Write;

pub use args::{
    Agents, ArgsError, Cable, CollectiveArgs, Fault, FaultKind, JobArgs, JobEnding, LinkKind, RunArgs, Work,
    parse_sizes,
};
pub use bench::{BenchArgs, BenchReport, Pin};
pub use collective::{Algo, Collective, NameError};
pub use collective_run::{CollectiveReport, IdleReport};
pub use job::{JobReport, JobRow};
pub use netns::run_keeper;
pub use node::run_node;
pub use report::RowReport;
pub use scene::SceneError;
pub use verbs::usual_link;

use scene::Scene;

/// What came of a run.
#[derive(Clone, Debug)]
pub enum Report {
    /// Of a collective.
    Collective(CollectiveReport),
    /// Of a user's command.
    Job(JobReport),
    /// Of a measurement.
    Bench(BenchReport),
}

impl Report {
    /// One line a cause; empty exactly if all went well.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        match self {
            Self::Collective(report) => &report.problems,
            Self::Job(report) => &report.problems,
            Self::Bench(report) => &report.problems,
        }
    }

    /// Adds causes that no node knows of.
    fn add(&mut self, causes: Vec<String>) {
        match self {
            Self::Collective(report) => report.problems.extend(causes),
            Self::Job(report) => report.problems.extend(causes),
            Self::Bench(report) => report.problems.extend(causes),
        }
    }

    /// The exit status: 0 only if every byte was right and nothing failed; of a user's command the worst of its own.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Collective(CollectiveReport { problems, .. }) | Self::Bench(BenchReport { problems, .. }) => {
                u8::from(!problems.is_empty())
            }
            Self::Job(report) => {
                let worst = u8::try_from(report.status).unwrap_or(1);
                if report.problems.is_empty() { worst } else { worst.max(1) }
            }
        }
    }
}

/// Why a run did not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The fabric could not be set up.
    #[error(transparent)]
    Scene(#[from] SceneError),
    /// A daemon does not own its node.
    #[error("a node's daemon did not start: {0}")]
    Daemon(#[source] std::io::Error),
    /// The arguments do not fit together.
    #[error(transparent)]
    Args(#[from] ArgsError),
}

/// Runs what is asked for. Results go to `out` as they come, what nodes print goes to standard error (a user's command has
/// its own standard output, unless JSON is asked for). Returns when all processes are gone and all files removed.
///
/// SIGINT, SIGTERM and SIGHUP end the run in order from here on; call it once from the main thread, which must live as long as
/// the nodes: they end with it.
///
/// # Errors
/// The run did not begin; failures after that are in the report.
pub fn run(args: &RunArgs, out: &mut dyn Write) -> Result<Report, RunError> {
    sys::catch_stop_signals();
    let scene = Scene::set_up(args)?;
    let faults = faults::begin(args, &scene)?;
    let order = args::resolve_rank_order(&args.rank_order, scene.names())?;
    let daemons = daemons::Daemons::start(args, &scene, &order).map_err(RunError::Daemon)?;
    let mut report = match &args.work {
        Work::Collective(asked) => Report::Collective(jobs::run(args, asked, &scene, &daemons.counting(), out)?),
        Work::Job(job) => Report::Job(jobs::run_commands(args, job, &scene, out)?),
        Work::Bench(asked) => Report::Bench(bench::run(args, asked, scene, out)?),
    };
    report.add(faults.end());
    report.add(daemons.end());
    Ok(report)
}
