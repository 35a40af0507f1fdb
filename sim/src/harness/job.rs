//! A user's command on the fabric: once a node, with everything a distributed program looks for.
//! A job that is to end before its time is asked with SIGTERM, or killed; how its processes end then does not count.
//!
//! Lives on the thread that runs the harness.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::{ArgsError, JobArgs, RunArgs, resolve_rank_order};
use super::children::{Children, Output, describe};
use super::collective_run::absent_nodes;
use super::jobs::Job;
use super::report::human;
use super::scene::Scene;
use super::snapshot::Snapshot;
use super::sys;

/// How long the others may go on after one failed: they often have more to say about it.
const GRACE: Duration = Duration::from_secs(3);

/// What a node's plugin counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobRow {
    /// Which of several jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<usize>,
    /// The node's name.
    pub node: String,
    /// Its rank; `None`: it took no part.
    pub rank: Option<usize>,
    /// How its process ended, as a shell says it (128 and more: by a signal); `None`: it was ended by us.
    pub exit_status: Option<i32>,
    /// Payload sent on connections without a relay; `None` if nothing was counted.
    pub direct_bytes: Option<u64>,
    /// Payload sent on connections with relays.
    pub relayed_bytes: Option<u64>,
    /// Payload of others passed on.
    pub forwarded_bytes: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct JobReport {
    /// A row a node.
    pub rows: Vec<JobRow>,
    /// One line a cause, if anything went wrong.
    pub problems: Vec<String>,
    /// The worst of the nodes' statuses, as a shell says it.
    pub status: i32,
}

/// Runs it to its end and writes the counters to `out`.
///
/// # Errors
/// Arguments that do not fit the topology.
pub(super) fn run(
    args: &RunArgs,
    asked: &JobArgs,
    scene: &Scene,
    job: Job,
    out: &mut dyn Write,
) -> Result<JobReport, ArgsError> {
    let order = resolve_rank_order(&args.rank_order, scene.names())?;
    let absent = absent_nodes(args, scene.names())?;
    let mut report = JobReport::default();
    let mut children = Children::default();
    for (rank, &node) in order.iter().enumerate() {
        report.rows.push(JobRow {
            job: job.mark(),
            node: scene.names()[node].clone(),
            rank: Some(rank),
            exit_status: None,
            direct_bytes: None,
            relayed_bytes: None,
            forwarded_bytes: None,
        });
    }
    match start_all(args, asked, scene, job, &order, &absent, &mut children) {
        Ok(()) => watch(args, scene, job, &order, &mut children, &mut report),
        Err(error) => {
            let program = asked.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            report.problems.push(format!("{program} does not start: {error}"));
            report.status = 127;
        }
    }
    for node in &absent {
        report.problems.push(format!("{}: absent from the start as asked", scene.names()[*node]));
        report.status = report.status.max(1);
    }
    children.end(if report.problems.is_empty() { Duration::ZERO } else { Duration::from_secs(1) });
    children.drain();
    for row in &mut report.rows {
        let Some(node) = scene.names().iter().position(|name| *name == row.node) else { continue };
        // A command without the plugin leaves no statistics.
        if let Ok(counted) = Snapshot::read(&scene.statistics_file(node, job.number)) {
            row.direct_bytes = Some(counted.direct_bytes);
            row.relayed_bytes = Some(counted.relayed_out_bytes);
            row.forwarded_bytes = Some(counted.forwarded_bytes);
        }
    }
    print(out, args.json, &report);
    Ok(report)
}

fn start_all(
    args: &RunArgs,
    asked: &JobArgs,
    scene: &Scene,
    job: Job,
    order: &[usize],
    absent: &[usize],
    children: &mut Children,
) -> std::io::Result<()> {
    let [program, arguments @ ..] = &asked.command[..] else {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "no command"));
    };
    // Free now; NCCL and PyTorch take the number, not the socket.
    let master_port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    for (rank, &node) in order.iter().enumerate() {
        if absent.contains(&node) {
            continue;
        }
        let name = &scene.names()[node];
        let mut command = scene.program(node, program);
        command.args(arguments).stdin(Stdio::null());
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", order.len().to_string())
            .env("LOCAL_RANK", "0")
            .env("NCCL_HOSTID", name)
            .env("NCCL_SOCKET_IFNAME", "lo")
            .env("MASTER_ADDR", scene.meeting_address(order[0]).to_string())
            .env("MASTER_PORT", master_port.to_string());
        if asked.plugin {
            command.env("NCCL_NET_PLUGIN", scene.plugin()).env("NCCL_NET", "Mesh");
            // NCCL 2.28 forgets the plugin when its last communicator goes, and then cannot make another one.
            command.env("NCCL_NET_PLUGIN_REF_COUNT", "1");
        }
        // Last, so that the user's settings win.
        scene.enter(&mut command, node, job.number);
        let output = Output { prefix: asked.prefix, shown: |_| true, own_stdout: !args.json };
        children.start(command, node, &job.label(name), output)?;
    }
    Ok(())
}

/// Waits for all to end; one that fails, a signal, the time limit or the time at which the job is to end ends the others.
fn watch(args: &RunArgs, scene: &Scene, job: Job, order: &[usize], children: &mut Children, report: &mut JobReport) {
    let deadline = Instant::now() + args.timeout;
    let mut end_at: Option<Instant> = None;
    while children.running() > 0 {
        while let Some((index, status)) = children.ended() {
            let node = children.get(index).node;
            let code = shell_status(status);
            if let Some(rank) = order.iter().position(|other| *other == node) {
                report.rows[rank].exit_status = Some(code);
            }
            report.status = report.status.max(code);
            if !status.success() {
                report.problems.push(format!("{}: {}", scene.names()[node], describe(status)));
                end_at.get_or_insert_with(|| Instant::now() + GRACE);
            }
        }
        if let Some(ending) = job.ending.filter(|ending| Instant::now() >= ending.at) {
            children.end(if ending.killed { Duration::ZERO } else { GRACE });
            return;
        }
        if let Some(signal) = sys::stopped_by() {
            report.problems.push(format!("stopped by signal {signal}"));
            report.status = report.status.max(128 + signal);
            return;
        }
        if Instant::now() >= deadline {
            let seconds = args.timeout.as_secs_f64();
            report.problems.push(format!("{} nodes still ran after {seconds:.0} s", children.running()));
            report.status = report.status.max(124);
            return;
        }
        if end_at.is_some_and(|end_at| Instant::now() >= end_at) {
            if children.running() > 0 {
                report.problems.push(format!("{} other nodes were ended after that", children.running()));
            }
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn shell_status(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// Nobody reading is no reason to fail.
fn print(out: &mut dyn Write, json: bool, report: &JobReport) {
    if json {
        for row in &report.rows {
            let _ = serde_json::to_string(row).map(|text| writeln!(out, "{text}"));
        }
        return;
    }
    if report.rows.iter().all(|row| row.direct_bytes.is_none()) {
        return;
    }
    let count = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), human);
    let _ = writeln!(out, "{:<16} {:>5} {:>12} {:>12} {:>12}", "node", "rank", "direct", "relayed", "forwarded");
    for row in &report.rows {
        let rank = row.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let (direct, relayed) = (count(row.direct_bytes), count(row.relayed_bytes));
        let _ =
            writeln!(out, "{:<16} {rank:>5} {direct:>12} {relayed:>12} {:>12}", row.node, count(row.forwarded_bytes));
    }
}
