//! A run of a collective: rows of sizes, then perhaps a while of idling.
//!
//! Lives on the thread that runs the harness.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use super::args::{ArgsError, CollectiveArgs, FaultKind, RunArgs, resolve_rank_order};
use super::collective::Collective;
use super::daemons::Counting;
use super::hub::{Failed, Hub};
use super::jobs::Job;
use super::messages::{CollectiveWork, FromNode, NodeWork, Row, RowResult, Setup, ToNode};
use super::report::{RowContext, RowReport};
use super::scene::Scene;
use super::snapshot::Snapshot;

/// Sizes above which ranks meet before every iteration: preparing and checking takes each a different time then.
const MEET_ABOVE: usize = 256 << 10;

/// What idling cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleReport {
    /// Seconds measured.
    pub idle_seconds: f64,
    /// Processor time of all nodes together, as percent of one core.
    pub idle_cpu_percent: f64,
    /// Connections that were open, over all nodes.
    pub open_connections: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct CollectiveReport {
    /// The rows that were completed.
    pub rows: Vec<RowReport>,
    /// If idling was asked for and reached.
    pub idle: Option<IdleReport>,
    /// One line a cause, if anything went wrong.
    pub problems: Vec<String>,
}

/// Runs it; rows are written to `out` as they come.
///
/// # Errors
/// Arguments that do not fit the topology.
pub(super) fn run(
    args: &RunArgs,
    asked: &CollectiveArgs,
    scene: &Scene,
    daemons: &Counting,
    job: Job,
    out: &mut dyn Write,
) -> Result<CollectiveReport, ArgsError> {
    let order = resolve_rank_order(&args.rank_order, scene.names())?;
    let absent = absent_nodes(args, scene.names())?;
    let distances: Vec<usize> = match (asked.collective, asked.distance) {
        (Collective::SendRecv, Some(distance)) => vec![distance],
        (Collective::SendRecv, None) => (1..order.len()).collect(),
        _ => vec![0],
    };
    let setup = |rank| Setup {
        rank,
        names: order.iter().map(|node| scene.names()[*node].clone()).collect(),
        plugin: scene.plugin().to_owned(),
        abi: asked.abi,
        // The same on all ranks and, for whoever compares, different from run to run.
        comm_id: u64::from(std::process::id()) << 16 | (job.number as u64 + 1),
        work: NodeWork::Collective(CollectiveWork {
            collective: asked.collective,
            algo: asked.algo,
            channels: asked.channels,
            distances: distances.clone(),
        }),
        limit: node_limit(args.timeout),
    };
    let mut report = CollectiveReport::default();
    let mut hub = match Hub::start(args, scene, &order, &absent, job, setup) {
        Ok(hub) => hub,
        Err(error) => {
            report.problems.push(format!("a node's process did not start: {error}"));
            return Ok(report);
        }
    };
    let context = RowContext {
        collective: asked.collective,
        algo: asked.algo,
        ranks: order.len(),
        link: args.link.name(),
        job: job.mark(),
        topology: &args.topology,
    };
    // What daemons count is of all jobs together, so it is no single one's.
    let daemons = Daemons { counting: (args.jobs <= 1).then_some(daemons), scene };
    let mut printer = Printer { json: args.json, out };
    let done = rows(&mut hub, &context, asked, &distances, &daemons, &mut report, &mut printer);
    let done = done.and_then(|()| hub.finish());
    hub.end(done.is_err());
    if hub.ended {
        // What its nodes had to say before they were killed is no problem of the run.
        hub.problems.clear();
    }
    report.problems.append(&mut hub.problems);
    for row in report.rows.iter().filter(|row| row.wrong_bytes > 0) {
        report
            .problems
            .push(format!("{} of {} bytes: {} bytes wrong", row.collective, row.size_bytes, row.wrong_bytes));
    }
    Ok(report)
}

/// The daemons of the run, if their counters are this job's.
struct Daemons<'a> {
    counting: Option<&'a Counting>,
    scene: &'a Scene,
}

impl Daemons<'_> {
    /// What they have counted so far, by node.
    fn read(&self, hub: &mut Hub) -> Result<Vec<(String, Snapshot)>, Failed> {
        let counted = self.counting.map(|counting| counting.read(self.scene)).transpose();
        counted.map(Option::unwrap_or_default).map_err(|problem| {
            hub.problems.push(problem);
            Failed
        })
    }
}

/// Adds to the results of a row what the daemons counted meanwhile, each to its node's.
fn add(results: &mut Vec<(String, RowResult)>, before: &[(String, Snapshot)], after: &[(String, Snapshot)]) {
    for ((name, before), (_, after)) in before.iter().zip(after) {
        let counted = after.since(before);
        match results.iter_mut().find(|(node, _)| node == name) {
            Some((_, RowResult { counted: Some(own), .. })) => own.add(&counted),
            Some((_, RowResult { counted: own, .. })) => *own = Some(counted),
            None => {
                let nothing =
                    RowResult { times_us: Vec::new(), checked_bytes: 0, wrong_bytes: 0, counted: Some(counted) };
                results.push((name.clone(), nothing));
            }
        }
    }
}

fn rows(
    hub: &mut Hub,
    context: &RowContext<'_>,
    asked: &CollectiveArgs,
    distances: &[usize],
    daemons: &Daemons<'_>,
    report: &mut CollectiveReport,
    printer: &mut Printer<'_>,
) -> Result<(), Failed> {
    hub.await_all(|message| matches!(message, FromNode::Connected).then_some(()))?;
    if !printer.json {
        let _ = writeln!(
            printer.out,
            "{} ({}) among {} nodes over {} links, {} channels",
            context.collective, context.algo, context.ranks, context.link, asked.channels
        );
        let _ = writeln!(printer.out, "{}", RowReport::heading());
    }
    let mut before = daemons.read(hub)?;
    let mut serial = 1_u32;
    for _ in 0..asked.repeat.max(1) {
        for &bytes in &asked.sizes {
            for &distance in distances {
                if hub.is_over() {
                    return Ok(());
                }
                let (iterations, warm_up) = iterations(asked.iterations, bytes);
                let row = Row { bytes, distance, iterations, warm_up, serial, meet_each_time: bytes > MEET_ABOVE };
                serial = serial.wrapping_add((iterations + warm_up) as u32);
                hub.tell_all(&ToNode::Row(row.clone()));
                let mut results = hub.await_all(|message| match message {
                    FromNode::Row(result) => Some(result),
                    _ => None,
                })?;
                let after = daemons.read(hub)?;
                add(&mut results, &before, &after);
                before = after;
                let row = RowReport::of(context, &row, &results);
                printer.print(&row, &row.line());
                report.rows.push(row);
            }
        }
    }
    let Some(time) = asked.idle else { return Ok(()) };
    // What spins for a while after the last transfer is not idle yet.
    let settle = (time / 4).min(Duration::from_secs(1));
    hub.linger(settle)?;
    let before = hub.processor_seconds();
    hub.linger(time)?;
    let used = hub.processor_seconds() - before;
    let task = |distance: usize| super::algorithms::Task {
        collective: context.collective,
        algo: context.algo,
        ranks: context.ranks,
        channels: asked.channels,
        distance,
        bytes: 0,
        slice: context.collective.slice_bytes(),
    };
    let ways = |rank: usize| {
        let all = distances.iter().flat_map(|distance| task(*distance).program(rank).outgoing());
        all.collect::<std::collections::BTreeSet<_>>().len()
    };
    let idle = IdleReport {
        idle_seconds: time.as_secs_f64(),
        idle_cpu_percent: 100.0 * used / time.as_secs_f64().max(0.001),
        open_connections: (0..context.ranks).map(ways).sum(),
    };
    let line = format!(
        "idle for {:.0} s with {} connections: {:.1} % of one core, all nodes together",
        idle.idle_seconds, idle.open_connections, idle.idle_cpu_percent
    );
    printer.print(&idle, &line);
    report.idle = Some(idle);
    Ok(())
}

/// Where results go, as JSON or as lines.
struct Printer<'a> {
    json: bool,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    /// Nobody reading is no reason to fail.
    fn print(&mut self, value: &impl Serialize, line: &str) {
        let _ = match serde_json::to_string(value) {
            Ok(text) if self.json => writeln!(self.out, "{text}"),
            _ => writeln!(self.out, "{line}"),
        };
        let _ = self.out.flush();
    }
}

/// Iterations that count, and those before.
fn iterations(asked: Option<usize>, bytes: usize) -> (usize, usize) {
    match asked {
        Some(iterations) => (iterations.max(1), 1),
        None if bytes <= 4 << 20 => (5, 1),
        None if bytes <= 32 << 20 => (3, 1),
        None if bytes <= 256 << 20 => (2, 1),
        None => (1, 0),
    }
}

/// A node says what it waits for before the parent ends it.
pub(super) fn node_limit(timeout: Duration) -> Duration {
    (timeout / 2).max(timeout.saturating_sub(Duration::from_secs(3)))
}

/// The nodes that must not start.
///
/// # Errors
/// A fault names a node that does not exist.
pub(super) fn absent_nodes(args: &RunArgs, names: &[String]) -> Result<Vec<usize>, ArgsError> {
    let place = |fault: &super::args::Fault| {
        let FaultKind::Absent(name) = &fault.what else { return None };
        let place = names.iter().position(|other| other == name);
        Some(place.ok_or_else(|| ArgsError::Fault(format!("{fault}: no node {name}; nodes are {}", names.join(", ")))))
    };
    args.faults.iter().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_sizes_have_fewer_iterations_unless_asked_for() {
        assert_eq!(iterations(None, 4), (5, 1));
        assert_eq!(iterations(None, 64 << 20), (2, 1));
        assert_eq!(iterations(Some(7), 64 << 20), (7, 1));
        assert_eq!(iterations(Some(0), 4), (1, 1));
    }

    #[test]
    fn nodes_speak_before_the_parent_does() {
        assert_eq!(node_limit(Duration::from_secs(120)), Duration::from_secs(117));
        assert_eq!(node_limit(Duration::from_secs(4)), Duration::from_secs(2));
    }
}
