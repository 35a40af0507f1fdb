//! Several jobs at once on one fabric: the same collective, each with processes of its own on every node.
//!
//! One thread a job besides the caller's, which lives as long as its job's processes: they end with the thread that started them.

use std::io::Write;
use std::time::{Duration, Instant};

use super::args::{ArgsError, CollectiveArgs, RunArgs};
use super::collective_run::{self, CollectiveReport};
use super::scene::Scene;

/// When and how a job ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) at: Instant,
    /// By a signal that leaves no time; otherwise it does no further size, and closes.
    pub(super) killed: bool,
}

/// How a job is to be run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Job {
    /// From 0.
    pub(super) number: usize,
    pub(super) ending: Option<Ending>,
}

/// Runs all of them; the rows of one job come after those of another. A job that is to be killed is not missed.
///
/// # Errors
/// Arguments that do not fit the topology.
pub(super) fn run(
    args: &RunArgs,
    asked: &CollectiveArgs,
    scene: &Scene,
    out: &mut dyn Write,
) -> Result<CollectiveReport, ArgsError> {
    let jobs = args.jobs.max(1);
    let began = Instant::now();
    let ending = |number: usize| {
        let found = args.endings.iter().find(|ending| ending.job == number);
        found.map(|ending| Ending { at: began + ending.after, killed: ending.killed })
    };
    let job = |number| Job { number, ending: ending(number) };
    if let Some(wrong) = args.endings.iter().find(|ending| ending.job >= jobs) {
        return Err(ArgsError::Fault(format!(
            "there is no job {}: jobs are numbered from 0 to {}",
            wrong.job,
            jobs - 1
        )));
    }
    std::thread::scope(|scope| {
        let mut others = Vec::new();
        for number in 1..jobs {
            let work = move || {
                let mut rows = Vec::new();
                let report = collective_run::run(args, asked, scene, job(number), &mut rows);
                (rows, report)
            };
            others.push((number, scope.spawn(work)));
            // Jobs that begin together would all own a part of the nodes; here the first one owns them, which is what is to be endured.
            std::thread::sleep(Duration::from_millis(300));
        }
        let mut all = collective_run::run(args, asked, scene, job(0), out)?;
        for (number, thread) in others {
            let Ok((rows, report)) = thread.join() else {
                all.problems.push(format!("job {number}: its thread panicked"));
                continue;
            };
            let report = report?;
            if !args.json {
                let _ = writeln!(out, "job {number}:");
            }
            let _ = out.write_all(&rows);
            all.problems.extend(report.problems.iter().map(|problem| format!("job {number}: {problem}")));
            all.rows.extend(report.rows);
        }
        Ok(all)
    })
}
