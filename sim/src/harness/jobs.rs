//! Several jobs at once on one fabric: the same work, each with processes of its own on every node.
//!
//! One job runs on the caller's thread; of several each has a thread, which lives as long as its job's processes: they end with the thread
//! that started them.

use std::io::Write;
use std::time::{Duration, Instant};

use super::args::{ArgsError, CollectiveArgs, JobArgs, RunArgs};
use super::collective_run::{self, CollectiveReport};
use super::daemons::Counting;
use super::job::{self, JobReport};
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
    /// Whether there are others.
    pub(super) one_of_several: bool,
    pub(super) ending: Option<Ending>,
}

impl Job {
    /// What lines of its processes begin with, on a node of this name.
    pub(super) fn label(&self, node: &str) -> String {
        if self.one_of_several { format!("job{} {node}", self.number) } else { node.to_owned() }
    }

    /// Its number, if there are others.
    pub(super) fn mark(&self) -> Option<usize> {
        self.one_of_several.then_some(self.number)
    }
}

/// Runs collectives; the rows of one job come after those of another. A job that is to be killed is not missed.
///
/// # Errors
/// Arguments that do not fit the topology.
pub(super) fn run(
    args: &RunArgs,
    asked: &CollectiveArgs,
    scene: &Scene,
    daemons: &Counting,
    out: &mut dyn Write,
) -> Result<CollectiveReport, ArgsError> {
    let reports = all(args, out, |job, out| collective_run::run(args, asked, scene, daemons, job, out))?;
    let mut whole = CollectiveReport::default();
    for (job, report) in reports {
        whole.problems.extend(marked(job, report.problems));
        whole.rows.extend(report.rows);
        whole.idle = whole.idle.or(report.idle);
    }
    Ok(whole)
}

/// As [`run`], with a command.
///
/// # Errors
/// As [`run`].
pub(super) fn run_commands(
    args: &RunArgs,
    asked: &JobArgs,
    scene: &Scene,
    out: &mut dyn Write,
) -> Result<JobReport, ArgsError> {
    let reports = all(args, out, |job, out| job::run(args, asked, scene, job, out))?;
    let mut whole = JobReport::default();
    for (job, report) in reports {
        whole.problems.extend(marked(job, report.problems));
        whole.rows.extend(report.rows);
        whole.status = whole.status.max(report.status);
    }
    Ok(whole)
}

/// Problems of a job, with its number if there are others.
fn marked(job: Job, problems: Vec<String>) -> impl Iterator<Item = String> {
    problems.into_iter().map(move |problem| match job.mark() {
        Some(number) => format!("job {number}: {problem}"),
        None => problem,
    })
}

/// Runs all jobs. Of one alone the results go to `out` as they come; of several, those of one job after those of another.
fn all<R: Send>(
    args: &RunArgs,
    out: &mut dyn Write,
    one: impl Fn(Job, &mut dyn Write) -> Result<R, ArgsError> + Sync,
) -> Result<Vec<(Job, R)>, ArgsError> {
    let jobs = args.jobs.max(1);
    if let Some(wrong) = args.endings.iter().find(|ending| ending.job >= jobs) {
        return Err(ArgsError::Fault(format!(
            "there is no job {}: jobs are numbered from 0 to {}",
            wrong.job,
            jobs - 1
        )));
    }
    let began = Instant::now();
    let job = |number: usize| {
        let found = args.endings.iter().find(|ending| ending.job == number);
        let ending = found.map(|ending| Ending { at: began + ending.after, killed: ending.killed });
        Job { number, one_of_several: jobs > 1, ending }
    };
    if jobs == 1 {
        return Ok(vec![(job(0), one(job(0), out)?)]);
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..jobs {
            let (one, job) = (&one, job(number));
            let work = move || {
                let mut rows = Vec::new();
                one(job, &mut rows).map(|report| (rows, report))
            };
            threads.push((job, scope.spawn(work)));
            // Jobs that begin together would all own a part of the nodes; here the first one owns them, which is what is to be endured.
            std::thread::sleep(Duration::from_millis(300));
        }
        let mut reports = Vec::new();
        for (job, thread) in threads {
            let (rows, report) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            if !args.json && !rows.is_empty() {
                let _ = writeln!(out, "job {}:", job.number);
            }
            // Nobody reading is no reason to fail.
            let _ = out.write_all(&rows);
            reports.push((job, report));
        }
        Ok(reports)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_its_number_only_among_others() {
        let alone = Job::default();
        assert_eq!((alone.label("node1"), alone.mark()), ("node1".to_owned(), None));
        let second = Job { number: 1, one_of_several: true, ending: None };
        assert_eq!((second.label("node1"), second.mark()), ("job1 node1".to_owned(), Some(1)));
        let problems = |job| marked(job, vec!["node1: exit status 3".to_owned()]).collect::<Vec<_>>();
        assert_eq!(problems(alone), ["node1: exit status 3"]);
        assert_eq!(problems(second), ["job 1: node1: exit status 3"]);
    }
}
