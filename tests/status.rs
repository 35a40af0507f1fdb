//! `nccl-mesh status` on nodes that work: it names every process, port and node, and the very route of each connection; who is stopped is
//! told in time; nobody else's processes are shown, and nobody is disturbed.
//!
//! On the make-believe fabric, whose nodes share this host's names as several nodes of one host would.
#![cfg(feature = "cli")]

mod common;

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{COMMAND, Ran, nccl_mesh_with, plugin_file};
use serde_json::Value;

const NODES: usize = 6;

/// A run of nodes that goes on meanwhile; its nodes end with it.
struct Fabric(Child);

impl Fabric {
    fn start(words: &str) -> Self {
        let mut command = Command::new(COMMAND);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NCCL_")) {
            command.env_remove(name);
        }
        command.args(["sim", "run", "--link", "tcp", "--discover", "--plugin"]).arg(plugin_file());
        command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().expect("the command"))
    }

    /// What `status` says on a node.
    fn status(&self, node: usize, words: &str) -> Ran {
        let (node, cluster) = (format!("node{node}"), format!("nccl-mesh-sim-{}-0", self.0.id()));
        let env = [("NCCL_MESH_NODE", node.as_str()), ("NCCL_MESH_CLUSTER", &cluster)];
        let arguments: Vec<&str> = ["status"].into_iter().chain(words.split_whitespace()).collect();
        nccl_mesh_with(&arguments, &env, Duration::from_secs(60))
    }

    /// Its rows, once `wanted` is so.
    #[track_caller]
    fn rows_once(&self, node: usize, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let ran = self.status(node, "--json");
            let rows = rows_of(&ran);
            if ran.status == Some(0) && wanted(&rows) {
                return rows;
            }
            assert!(Instant::now() < until, "in vain: {}", ran.told());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for its end, which must be a good one.
    #[track_caller]
    fn passes(mut self) {
        let until = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return assert!(status.success(), "the run was disturbed: {status}");
            }
            assert!(Instant::now() < until, "the run does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // Harmless where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn rows_of(ran: &Ran) -> Vec<Value> {
    ran.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {}", ran.told())))
        .collect()
}

fn of<'a>(rows: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    rows.iter().filter(move |row| row["kind"] == kind)
}

fn all_open(rows: &[Value], connections: usize) -> bool {
    of(rows, "connection").count() == connections
        && of(rows, "connection").all(|row| {
            row["state"] == "open" && (row["sent_bytes"].as_u64() > Some(0) || row["received_bytes"].as_u64() > Some(0))
        })
}

/// The lanes of the way between two nodes of a ring of six: the short way round, or both.
fn lanes(from: usize, to: usize) -> BTreeSet<String> {
    let way = |step: usize| {
        let mut nodes = vec![from];
        while nodes.last() != Some(&to) {
            nodes.push((nodes[nodes.len() - 1] + step) % NODES);
        }
        nodes
    };
    let both = [way(1), way(NODES - 1)];
    let least = both.iter().map(Vec::len).min();
    let shortest = both.into_iter().filter(|nodes| Some(nodes.len()) == least);
    shortest.map(|nodes| nodes.iter().map(|n| format!("node{n}")).collect::<Vec<_>>().join(" - ")).collect()
}

#[test]
fn it_names_processes_ports_nodes_and_the_very_route_of_each_connection() {
    // given a ring of six where all send to all, with a daemon on each node
    let words = "--shape ring --nodes 6 --agents all --collective all-to-all --channels 1 --sizes 64K --repeat 100000 --end-job 0@12";
    let fabric = Fabric::start(words);
    let mut seen = BTreeSet::new();
    for node in 0..NODES {
        // when a node is asked
        let rows = fabric.rows_once(node, |rows| all_open(rows, 2 * (NODES - 1)));
        // then it has a daemon, which owns it and relays, and a process of the job with its rank, and both are of this node alone
        let processes: Vec<_> = of(&rows, "process").collect();
        let field = |name: &str| processes.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
        assert_eq!(field("role"), ["daemon", "guest"], "{rows:?}");
        assert_eq!(field("rank"), [Value::Null, node.into()]);
        assert_eq!(field("node"), [format!("node{node}"), format!("node{node}")]);
        assert!(
            processes[0]["forwarded_bytes"].as_u64() > Some(0) && processes[0]["streams"].as_u64() > Some(0),
            "{rows:?}"
        );
        assert!(processes.iter().all(|row| seen.insert(row["pid"].as_u64())), "a process of another node: {rows:?}");
        // and each port has its neighbour, and all nodes and links are there, with the relays between
        let neighbours: BTreeSet<_> = of(&rows, "port").map(|row| row["neighbour"].as_str().expect("a name")).collect();
        let around = [(node + 1) % NODES, (node + NODES - 1) % NODES].map(|n| format!("node{n}"));
        assert_eq!(neighbours, around.iter().map(String::as_str).collect());
        let relays: Vec<_> = of(&rows, "node").map(|row| row["relays"].as_u64().expect("a number") as usize).collect();
        let apart = |n: usize| ((n + NODES - node) % NODES).min((node + NODES - n) % NODES);
        assert_eq!(relays, (0..NODES).map(|n| apart(n).saturating_sub(1)).collect::<Vec<_>>());
        assert_eq!(of(&rows, "link").count(), NODES);
        // and each connection has its route, lane by lane, at the sender and at the receiver
        let told = of(&rows, "connection").map(|row| {
            let route =
                row["route"].as_str().expect("a route").split(" and ").map(str::to_owned).collect::<BTreeSet<_>>();
            assert_eq!(row["lanes"].as_u64(), Some(route.len() as u64), "{row}");
            assert_eq!(row["links"].as_array().map(Vec::len), Some(route.len()), "{row}");
            (
                row["direction"].as_str().expect("a word").to_owned(),
                row["peer"].as_str().expect("a name").to_owned(),
                route,
            )
        });
        let others = (0..NODES).filter(|n| *n != node);
        let expected = others.flat_map(|n| {
            let name = format!("node{n}");
            [("receive".to_owned(), name.clone(), lanes(n, node)), ("send".to_owned(), name, lanes(node, n))]
        });
        assert_eq!(told.collect::<BTreeSet<_>>(), expected.collect());
        // and the daemon has a trunk each way to both neighbours
        assert_eq!(of(&rows, "trunk").count(), 4, "{rows:?}");
    }
    // and people get tables, whose rates come with the second look, and which do not clear what is no terminal
    let ran = fabric.status(0, "").ends(0);
    assert!(ran.stdout.contains("node0 - node1 - node2 - node3"), "{}", ran.told());
    let watching = Command::new("timeout")
        .args(["2", COMMAND, "status", "--watch", "0.3"])
        .env("NCCL_MESH_NODE", "node0")
        .env("NCCL_MESH_CLUSTER", format!("nccl-mesh-sim-{}-0", fabric.0.id()))
        .output()
        .expect("timeout");
    let text = String::from_utf8_lossy(&watching.stdout);
    assert!(text.matches("links up: 6").count() >= 2 && text.contains(" MB/s") && !text.contains('\x1b'), "{text}");
    // and the job has not noticed
    fabric.passes();
}

#[test]
fn who_is_stopped_is_told_in_time_and_who_goes_on_is_shown() {
    // given two jobs on a ring of three, the first of which owns the nodes
    let words = "--shape ring --nodes 3 --jobs 2 --collective all-to-all --channels 1 --sizes 8K --repeat 100000 --end-job 0@10 --end-job 1@10";
    let fabric = Fabric::start(words);
    let rows = fabric.rows_once(1, |rows| of(rows, "process").count() == 2 && all_open(rows, 8));
    let processes: Vec<_> = of(&rows, "process").collect();
    assert_eq!([&processes[0]["role"], &processes[1]["role"]], ["owner", "guest"]);
    assert!(processes[0]["job"] != processes[1]["job"] && processes[0]["rank"] == processes[1]["rank"], "{rows:?}");
    // when the second one is stopped
    let (stopped, goes_on) = (processes[1]["pid"].to_string(), processes[0]["pid"].clone());
    let signal = |what: &str| Command::new("kill").args([what, &stopped]).status().is_ok_and(|status| status.success());
    assert!(signal("-STOP"));
    let began = Instant::now();
    let ran = fabric.status(1, "--json").ends(1);
    // then that is known within the time, with its number and state, and the other is shown with all it has
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let rows = rows_of(&ran);
    let silent: Vec<_> = of(&rows, "process").filter(|row| row["answers"] == false).collect();
    assert_eq!(silent.len(), 1, "{}", ran.told());
    assert_eq!(silent[0]["pid"].to_string(), stopped);
    assert!(silent[0]["why"].as_str().is_some_and(|why| why.contains("T (stopped)")), "{}", ran.told());
    assert!(!ran.lines_with(&format!("mesh[E34] process {stopped} ")).is_empty(), "{}", ran.told());
    let own = of(&rows, "connection").filter(|row| row["pid"] == goes_on).count();
    assert_eq!((own, of(&rows, "connection").count()), (4, 4), "{}", ran.told());
    // when it goes on, then it answers again, and neither job has noticed
    assert!(signal("-CONT"));
    fabric.rows_once(1, |rows| of(rows, "process").filter(|row| row["answers"] == true).count() == 2);
    fabric.passes();
}

#[test]
fn where_nobody_is_that_is_said() {
    let env = [("NCCL_MESH_CLUSTER", "of-nobody")];
    for words in [&["status"][..], &["status", "--json"]] {
        let ran = nccl_mesh_with(words, &env, Duration::from_secs(60)).ends(1);
        assert_eq!((ran.lines_with("mesh[E33] ").len(), &*ran.stdout), (1, ""), "{}", ran.told());
    }
}
