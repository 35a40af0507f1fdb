//! What this process sees now, for whoever of this host asks: `nccl-mesh status`.
//!
//! On a thread of its own, `mesh-status`, which sleeps until somebody connects to the process's name ([`name`]), writes everything it
//! knows, a JSON object a line, and closes. Nothing is read from who asks. The relay thread copies its counters when it is asked, as for
//! the statistics file; nobody else is disturbed, and beacons do not wait for who is slow to read. Only the same user or root is answered.

use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mesh_link::local;
use mesh_relay::agent::Report;
use mesh_relay::discovery::{LinkEnd, View};
use mesh_relay::node::Scope;

use super::json::Row;
use super::mesh::Known;
use super::node::{DAEMON, Node};
use super::register::Entry;

/// What an answer begins with; its length in bytes follows, as 32 bits, little endian.
pub(super) const MAGIC: [u8; 4] = *b"MSHS";
/// Longest that one who asks may take to read; others wait meanwhile.
const SLOWEST: Duration = Duration::from_secs(1);
/// Longest wait for the relay thread.
const RELAY: Duration = Duration::from_millis(300);
/// Connections that are told one by one.
const MOST: usize = 2048;

/// The name, in the abstract namespace, that a process of a node answers by. Names of nodes have no commas.
pub(super) fn name(scope: &Scope, process: u32) -> String {
    format!("{},{process}", scope.name())
}

/// Starts the thread of a node that has just been started. Without it all else works.
pub(super) fn start(node: &Arc<Node>) {
    let Some(scope) = &node.scope else { return };
    let started = local::listen(&name(scope, std::process::id())).and_then(|listener| {
        listener.set_nonblocking(false)?;
        let node = Arc::clone(node);
        std::thread::Builder::new().name("mesh-status".into()).spawn(move || run(&listener, &node))
    });
    if let Err(e) = started {
        tracing::warn!("mesh[W78] node {}: nccl-mesh status will not see this process: {e}; all else works", node.name);
    }
}

fn run(listener: &UnixListener, node: &Node) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => answer(&stream, node),
            // Out of descriptors, or who asked is gone: neither may make this thread spin.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Answers one who asks, as far as that one may know and reads.
fn answer(stream: &UnixStream, node: &Node) {
    let may = local::peer_user(stream).is_ok_and(|user| user == 0 || user == local::own_user());
    if may {
        let text = tell(node, node.agent.report(RELAY).as_ref());
        write(stream, &frame(&text), SLOWEST);
    }
}

/// An answer as it travels.
fn frame(text: &str) -> Vec<u8> {
    // The cast is exact: what is told is bounded, by nodes, ports and `MOST` connections.
    [&MAGIC[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// Writes what fits in the time.
fn write(stream: &UnixStream, mut bytes: &[u8], limit: Duration) {
    let until = Instant::now() + limit;
    while !bytes.is_empty() && Instant::now() < until {
        match local::send(stream, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Everything, always in the same order.
fn tell(node: &Node, report: Option<&Report>) -> String {
    let mut out = String::new();
    let (found, owns) = node.knowledge.found().unwrap_or_default();
    let mut connections = node.connections.all();
    connections.sort_by(|a, b| (&a.peer, a.sends, a.number).cmp(&(&b.peer, b.sends, b.number)));
    process(node, report, owns, connections.len(), &mut out);
    ports(node, &found.view, &mut out);
    nodes(node, &found.view, node.knowledge.now().as_deref(), &mut out);
    links(&found.view, &mut out);
    for begun in super::begun(node) {
        let row = mine("connection", node).value("number", 0).text("direction", "send").text("peer", &begun.peer);
        let row = match &begun.route {
            Some(route) => row.text("route", route),
            None => row.maybe("route", None::<u8>),
        };
        row.value("age_s", seconds(begun.waited)).text("state", "connecting").end(&mut out);
    }
    for entry in connections.iter().take(MOST) {
        connection(node, entry, &mut out);
    }
    for ((local, remote), bytes) in report.iter().flat_map(|report| &report.links) {
        mine("traffic", node).text("link", &format!("{local}-{remote}")).value("sent_bytes", bytes).end(&mut out);
    }
    for trunk in report.iter().flat_map(|report| &report.trunks) {
        mine("trunk", node)
            .text("direction", if trunk.out { "out" } else { "in" })
            .text("peer", &node.name_of_port(trunk.remote))
            .text("link", &format!("{}-{}", trunk.local, trunk.remote))
            .value("streams", trunk.streams)
            .value("slots", trunk.slots)
            .value("slots_filled", trunk.filled)
            .end(&mut out);
    }
    out
}

/// A row about this process, and not about the node.
fn mine(kind: &str, node: &Node) -> Row {
    Row::new(kind).value("pid", std::process::id()).text("node", &node.name)
}

fn process(node: &Node, report: Option<&Report>, owns: bool, connections: usize, out: &mut String) {
    // Relaxed: it was set before the node started.
    let role = match (DAEMON.load(Ordering::Relaxed), owns) {
        (true, _) => "daemon",
        (false, true) => "owner",
        (false, false) => "guest",
    };
    let [direct, relayed] = node.connections.sent();
    mine("process", node)
        .text("id", &node.id)
        .text("role", role)
        .value("owns_node", owns)
        .maybe("job", (node.job != 0).then_some(node.job))
        .maybe("rank", node.rank)
        .value("tcp_port", node.answers)
        .text("link", node.backend().name())
        .text("version", env!("CARGO_PKG_VERSION"))
        .value("age_s", seconds(node.since.elapsed()))
        .value("connections", connections)
        .value("connections_left_out", connections.saturating_sub(MOST))
        .value("direct_bytes", direct)
        .value("relayed_out_bytes", relayed)
        // Unknown where the relay thread is too busy to say.
        .maybe("forwarded_bytes", report.map(|r| r.forwarded_bytes))
        .maybe("forwarded_chunks", report.map(|r| r.forwarded_chunks))
        .maybe("streams", report.map(|r| r.streams))
        .maybe("slots", report.map(|r| r.pool.slots))
        .maybe("slots_lent", report.map(|r| r.pool.lent))
        .maybe("slots_filled", report.map(|r| r.pool.filled))
        .maybe("closing_legs", report.map(|r| r.lingering))
        .end(out);
}

/// The node's ports: what the view says of them, or, before there is one, what the process was started with.
fn ports(node: &Node, view: &View, out: &mut String) {
    let Some(own) = view.nodes.get(&node.key) else {
        for (address, prefix) in &node.ports {
            Row::new("port").text("address", &format!("{address}/{prefix}")).maybe("carrier", None::<bool>).end(out);
        }
        return;
    };
    for port in &own.ports {
        let at = LinkEnd { address: port.address, node: node.key };
        let link = view.links.iter().find(|ends| ends.contains(&at));
        let across = link.map(|ends| if ends[0] == at { ends[1] } else { ends[0] });
        let known = |number: u32| (number > 0).then_some(number);
        let row = Row::new("port")
            .text("device", &port.device)
            .text("address", &format!("{}/{}", port.address, port.prefix))
            .value("carrier", port.up)
            .maybe("speed_mbps", known(port.speed_mbps))
            .maybe("mtu_bytes", known(port.mtu));
        match across {
            Some(end) => row.text("neighbour", name_of(view, end)).text("neighbour_address", &end.address.to_string()),
            None => row.maybe("neighbour", None::<u8>).maybe("neighbour_address", None::<u8>),
        }
        .end(out);
    }
}

fn name_of(view: &View, end: LinkEnd) -> &str {
    view.nodes.get(&end.node).map_or("?", |node| &node.name)
}

/// All nodes that are known, from the file or by what is found.
fn nodes(node: &Node, view: &View, known: Option<&Known>, out: &mut String) {
    let Some(known) = known else { return };
    let mut all: Vec<_> = known.topology.nodes().iter().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    for other in all {
        let to = known.topology.node_by_key(other.key);
        let hops = to.and_then(|to| known.router.distance(known.me, to));
        let found = view.nodes.get(&other.key);
        Row::new("node")
            .text("name", &other.name)
            .text("id", &other.stable_id)
            .value("self", other.key == node.key)
            .value("found", found.is_some())
            .maybe("relays", hops.map(|hops| hops.saturating_sub(1)))
            .value("lets_pass", other.relay)
            .maybe("daemon", found.map(|found| found.daemon))
            .end(out);
    }
}

fn links(view: &View, out: &mut String) {
    for ends in &view.links {
        let [a, b] = ends.map(|end| (name_of(view, end), end.address.to_string()));
        Row::new("link").text("a", a.0).text("b", b.0).text("a_address", &a.1).text("b_address", &b.1).end(out);
    }
}

fn connection(node: &Node, entry: &Entry, out: &mut String) {
    // Relaxed: statistics, each read on its own.
    let (bytes, closing) = (entry.bytes.load(Ordering::Relaxed), entry.closing.load(Ordering::Relaxed));
    let failed = entry.failed.get();
    let state = match (failed, closing) {
        (Some(_), _) => "failed",
        (None, true) => "closing",
        (None, false) => "open",
    };
    let row = mine("connection", node)
        .value("number", entry.number)
        .text("direction", if entry.sends { "send" } else { "receive" })
        .text("peer", &entry.peer)
        .text("route", &entry.route)
        // Who has chosen it. A receiver knows of its own which link it ends with.
        .text("route_said_by", if entry.sends { "self" } else { "sender" })
        .value("relays", entry.relays)
        .value("lanes", entry.links.len())
        .list("links", entry.links.iter().map(|(local, remote)| format!("{local}-{remote}")))
        .value(if entry.sends { "sent_bytes" } else { "received_bytes" }, bytes)
        .value("age_s", seconds(entry.since.elapsed()))
        .text("state", state);
    match failed {
        Some(error) => row.text("code", code_of(error)).text("error", error),
        None => row,
    }
    .end(out);
}

/// The code of an error's line, `E59`.
fn code_of(line: &str) -> &str {
    line.strip_prefix("mesh[").and_then(|rest| rest.split(']').next()).unwrap_or("?")
}

fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn an_answer_is_whole_and_who_does_not_read_is_given_up() {
        // given somebody who reads
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let text = "x".repeat(1 << 20);
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).map(|_| bytes)
        });
        write(&ours, &frame(&text), Duration::from_secs(20));
        drop(ours);
        // then all comes, with its length
        let bytes = reader.join().expect("no panic").expect("it reads");
        assert_eq!((&bytes[..4], bytes.len()), (&MAGIC[..], 8 + text.len()));
        assert_eq!(bytes[4..8], (text.len() as u32).to_le_bytes());
        // given one who does not, then it holds up the thread for the time, and no longer
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let began = Instant::now();
        write(&ours, &frame(&text), Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50) && began.elapsed() < Duration::from_secs(10));
        // and one who is gone not at all
        drop(theirs);
        write(&ours, &frame(&text), Duration::from_secs(3600));
    }

    #[test]
    fn a_line_has_its_code() {
        assert_eq!(code_of("mesh[E59] node a: …"), "E59");
        assert_eq!(code_of("something"), "?");
    }

    #[test]
    fn a_process_has_a_name_of_its_own_among_those_of_its_node() {
        let scope = Scope::new(17_917, Some("a"), None);
        assert_eq!(name(&scope, 42), "nccl-mesh-17917-a,42");
    }
}
