//! Counters of this process: as JSON on demand, in the file of `NCCL_MESH_STATS_FILE`, and as a line in the log from time to time.
//!
//! A thread of its own, `mesh-metrics`, does the last two; it sleeps between. Nothing here is on the data path.

use std::fmt::Write as _;
use std::sync::{Arc, Once};
use std::time::Duration;

use mesh_relay::agent::Report;

use super::json::quote;
use super::node::{self, Node};

/// Everything as one JSON object; empty if this node has not been started. May wait a moment for the relay thread.
pub(crate) fn snapshot() -> String {
    let Some(node) = node::get() else { return String::new() };
    match node.agent.report(Duration::from_secs(2)) {
        Some(report) => render(&node, &report),
        None => String::new(),
    }
}

fn render(node: &Node, r: &Report) -> String {
    let [direct, relayed] = node.connections.sent();
    let mut out = format!(
        "{{\"node\":{},\"direct_bytes\":{direct},\"relayed_out_bytes\":{relayed},\"forwarded_bytes\":{},\"forwarded_chunks\":{},\
         \"streams\":{},\"slots\":{},\"slots_lent\":{},\"slots_filled\":{},\"residence_p50_ns\":{},\"residence_p99_ns\":{},\
         \"residence_p999_ns\":{},\"residence_max_ns\":{},\"queue_p50\":{},\"queue_p99\":{},\"queue_max\":{},\"links\":{{",
        quote(&node.name),
        r.forwarded_bytes,
        r.forwarded_chunks,
        r.streams,
        r.pool.slots,
        r.pool.lent,
        r.pool.filled,
        r.residence_ns[0],
        r.residence_ns[1],
        r.residence_ns[2],
        r.residence_ns[3],
        r.queue[0],
        r.queue[1],
        r.queue[2],
    );
    for (n, ((local, remote), bytes)) in r.links.iter().enumerate() {
        let comma = if n > 0 { "," } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(out, "{comma}\"{local}-{remote}\":{bytes}");
    }
    out.push_str("}}");
    out
}

/// Starts the thread, if the settings want it; once a process.
pub(super) fn start(node: &Arc<Node>) {
    static STARTED: Once = Once::new();
    let settings = node.settings;
    if settings.stats_file.is_none() && !settings.metrics {
        return;
    }
    STARTED.call_once(|| {
        let node = Arc::clone(node);
        let spawned = std::thread::Builder::new().name("mesh-metrics".into()).spawn(move || run(&node));
        if let Err(e) = spawned {
            tracing::warn!("mesh[W83] no thread for metrics: {e}");
        }
    });
}

fn run(node: &Node) {
    let mut last = (0, 0, 0);
    loop {
        std::thread::sleep(node.settings.metrics_interval.max(Duration::from_millis(100)));
        if !node.agent.alive() {
            return;
        }
        let Some(report) = node.agent.report(Duration::from_secs(2)) else { continue };
        let [direct, relayed] = node.connections.sent();
        let now = (direct, relayed, report.forwarded_bytes);
        // A node without traffic says nothing.
        if now != last {
            last = now;
            write_file(node, &report);
            if node.settings.metrics {
                tracing::info!(
                    "mesh[I04] node {}: sent {} bytes direct, {} by relays; forwarded {} bytes for others; {} paths; chunk p99 {} us",
                    node.name,
                    now.0,
                    now.1,
                    now.2,
                    report.streams,
                    report.residence_ns[1] / 1000
                );
            }
        }
    }
}

fn write_file(node: &Node, report: &Report) {
    let Some(path) = &node.settings.stats_file else { return };
    // A reader never sees half a file.
    let mut draft = path.clone().into_os_string();
    draft.push(".new");
    let text = render(node, report) + "\n";
    if let Err(e) = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, path)) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| tracing::warn!("mesh[W88] NCCL_MESH_STATS_FILE {}: {e}", path.display()));
    }
}

/// Writes the file now, if there is one.
pub(super) fn write_now() {
    let Some(node) = node::get() else { return };
    if node.settings.stats_file.is_some()
        && let Some(report) = node.agent.report(Duration::from_millis(500))
    {
        write_file(&node, &report);
    }
}

/// For the end of the process: drains, then writes the last counters.
pub(crate) fn at_exit() {
    super::drain();
    write_now();
}
