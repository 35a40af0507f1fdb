//! Nodes that are told nothing: they find one another, all collectives run, and the topology file that discovery writes is the fabric's own.
//! Daemons, several jobs at once, the file as a contract, the order of ranks.
//!
//! On the make-believe fabric, and where this user may make them, in network namespaces too; otherwise it is said that these are skipped.
#![cfg(feature = "cli")]

mod common;
#[path = "netns/stage.rs"]
#[allow(dead_code, reason = "shared with the tests of network namespaces, of which this uses a part")]
mod stage;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{COMMAND, Ran, nccl_mesh, nccl_mesh_with, plugin_file};

/// A folder that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nccl-mesh-discovery-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn run(words: &str) -> Ran {
    nccl_mesh(&format!("sim run --plugin {} {words}", plugin_file().display())).leaves_nothing()
}

/// A ring whose cables have subnets of these lengths.
fn ring_of(prefixes: &[u8]) -> String {
    let nodes = prefixes.len();
    let mut ports = vec![Vec::new(); nodes];
    for (n, prefix) in prefixes.iter().enumerate() {
        let hosts = match prefix {
            31 => [0, 1],
            30 => [1, 2],
            _ => [3, 4],
        };
        ports[n].push(format!("10.210.{n}.{}/{prefix}", hosts[0]));
        ports[(n + 1) % nodes].push(format!("10.210.{n}.{}/{prefix}", hosts[1]));
    }
    topology(&ports)
}

fn topology(ports: &[Vec<String>]) -> String {
    let mut text = "schema = 1\n".to_owned();
    for (n, ports) in ports.iter().enumerate() {
        let _ = write!(text, "\n[[node]]\nname = \"node{n}\"\n");
        for (p, port) in ports.iter().enumerate() {
            let _ = write!(text, "\n[[node.port]]\ndevice = \"mesh{p}\"\naddress = \"{port}\"\n");
        }
    }
    text
}

/// A ring of six with a chord.
fn chord() -> String {
    let mut ports = vec![Vec::new(); 6];
    let cables = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3)];
    for (n, (a, b)) in cables.into_iter().enumerate() {
        let (a, b): (usize, usize) = (a, b);
        ports[a].push(format!("10.211.{n}.1/30"));
        ports[b].push(format!("10.211.{n}.2/30"));
    }
    topology(&ports)
}

/// Every collective passes among nodes that know nothing, and every node writes the fabric's own topology file.
#[track_caller]
fn all_find_one_another(name: &str, shape: &str, fabric: &str) {
    let folder = Folder::new(&format!("{name}{}", fabric.trim_start_matches('-')));
    // given a fabric that the nodes do not know
    let collectives = [
        "all-reduce --algo ring",
        "all-reduce --algo tree",
        "all-gather --algo ring",
        "all-gather --algo pat",
        "reduce-scatter --algo ring",
        "reduce-scatter --algo pat",
        "broadcast",
        "all-to-all",
        "send-recv",
    ];
    // when each collective runs, then every byte is right
    for collective in collectives {
        run(&format!("{fabric} --discover {shape} --collective {collective} --sizes 4,8K,200K --iters 2 --json"))
            .ends(0);
    }
    // when a daemon runs on each node, then what it knows is the file that the fabric was made of
    let truth = nccl_mesh(&format!("topology show {shape} --toml")).ends(0).stdout;
    let truth = folder.write("truth.toml", &truth);
    let script = format!(
        "{COMMAND} topology discover --out {0}/found-$RANK.toml && {COMMAND} topology diff {1} {0}/found-$RANK.toml",
        folder.0.display(),
        truth.display()
    );
    let script = folder.write("discover.sh", &script);
    let job =
        format!("sim run {fabric} --discover --agents all {shape} --no-plugin --link tcp -- sh {}", script.display());
    nccl_mesh(&job).leaves_nothing().ends(0);
    let nodes = std::fs::read_to_string(&truth).expect("a file").matches("[[node]]").count();
    for rank in 0..nodes {
        let found = folder.0.join(format!("found-{rank}.toml"));
        // and the other way round nothing is missing either
        nccl_mesh(&format!("topology diff {} {}", found.display(), truth.display())).ends(0);
    }
}

fn on_both_fabrics(name: &str, shape: &str) {
    all_find_one_another(name, shape, "");
    if stage::may() {
        all_find_one_another(name, shape, "--netns");
    }
}

#[test]
fn rings_find_themselves() {
    for nodes in 3..=8 {
        all_find_one_another(&format!("ring{nodes}"), &format!("--shape ring --nodes {nodes}"), "");
    }
    if stage::may() {
        for nodes in [3, 6] {
            all_find_one_another(&format!("ring{nodes}"), &format!("--shape ring --nodes {nodes}"), "--netns");
        }
    }
}

#[test]
fn lines_stars_and_grids_find_themselves() {
    all_find_one_another("line", "--shape line --nodes 6", "");
    all_find_one_another("star", "--shape star --nodes 5", "");
    all_find_one_another("grid", "--shape grid --nodes 6", "");
}

#[test]
fn two_rails_and_a_chord_find_themselves() {
    on_both_fabrics("rails", "--shape ring --nodes 4 --rails 2");
    let folder = Folder::new("chord-file");
    let file = folder.write("chord.toml", &chord());
    on_both_fabrics("chord", &format!("--topology {}", file.display()));
}

#[test]
fn nodes_on_a_declared_switch_find_themselves() {
    on_both_fabrics("switch", "--shape switch --nodes 4");
    all_find_one_another("switches", "--shape switch --nodes 3 --rails 2", "");
}

#[test]
fn a_switch_that_is_as_the_file_says_is_no_word() {
    for fabric in fabrics() {
        // given nodes on a switch that have the topology file, when they are compared, then nobody warns
        let ran =
            run(&format!("{fabric} --shape switch --nodes 4 --collective all-reduce --sizes 8K --idle 3")).ends(0);
        assert!(ran.lines_with("mesh[W68]").is_empty() && ran.lines_with("mesh[W76]").is_empty(), "{}", ran.told());
    }
}

#[test]
fn prefix_lengths_of_any_kind_find_themselves() {
    let folder = Folder::new("prefix-files");
    for (name, prefixes) in [("p31", &[31; 4][..]), ("p24", &[24; 4][..]), ("mixed", &[31, 24, 30, 29, 31, 28][..])] {
        let file = folder.write(&format!("{name}.toml"), &ring_of(prefixes));
        on_both_fabrics(name, &format!("--topology {}", file.display()));
    }
}

#[test]
fn ranks_reach_one_another_over_nodes_that_have_only_a_daemon() {
    for fabric in fabrics() {
        // given ranks on two opposite nodes of a ring of six, and daemons on the four between
        let words = format!("{fabric} --discover --agents idle --rank-order 0,3 --shape ring --nodes 6");
        // when they run a collective, then every byte is right, and all of them went over relays
        let ran = run(&format!("{words} --collective all-reduce --sizes 4,8K,1M --json")).ends(0);
        for row in rows(&ran) {
            assert_eq!(row["direct_bytes"], 0, "{}", ran.told());
            assert!(row["relayed_bytes"].as_u64() > Some(0), "{}", ran.told());
            // and the daemons say what they passed on: each byte twice, as two lie between
            let relays = row["relays"].as_object().expect("by node");
            let passed_on: u64 = relays.values().filter_map(serde_json::Value::as_u64).sum();
            assert_eq!(Some(passed_on), row["relayed_bytes"].as_u64().map(|bytes| 2 * bytes), "{}", ran.told());
            assert!(!relays.contains_key("node0") && !relays.contains_key("node3"), "{}", ran.told());
        }
    }
}

#[test]
fn a_job_outlives_another_whose_processes_own_the_nodes() {
    for fabric in fabrics() {
        for (how, told) in
            [("kill", "--discover"), ("end", "--discover"), ("kill", "--discover --agents all"), ("kill", "")]
        {
            // given two jobs on one ring, with a topology file or without, the first of which came first and owns the nodes
            let words = format!("{fabric} {told} --shape ring --nodes 4 --jobs 2 --{how}-job 0@1.5");
            // when that is killed, or ends, then the other goes on and every byte of it is right
            let ran =
                run(&format!("{words} --collective all-to-all --sizes 8K,256K --repeat 60 --iters 10 --json")).ends(0);
            assert!(rows(&ran).len() >= 120, "the second job did all of its rows: {}", ran.told());
        }
    }
}

#[test]
fn what_is_found_is_compared_with_the_file() {
    if !stage::may() {
        return;
    }
    let folder = Folder::new("contract");
    let truth = nccl_mesh("topology show --shape ring --nodes 4 --toml").ends(0).stdout;
    // given a file that expects more of a port than its interface has
    let faster = truth.replacen("10.200.0.5/30\"", "10.200.0.5/30\"\nspeed = \"400G\"\nmtu = 9216", 1);
    let job = |policy: &str| {
        let file = folder.write("declared.toml", &format!("{faster}\n[policy]\ndifferences = \"{policy}\"\n"));
        let topology = format!("NCCL_MESH_TOPOLOGY={}", file.display());
        let words = "sim run --netns --shape ring --nodes 4 --sizes 8K --idle 2 --env";
        let mut words: Vec<&str> = words.split(' ').collect();
        words.push(&topology);
        nccl_mesh_with(&words, &[], Duration::from_secs(120)).leaves_nothing()
    };
    // when the policy is to warn, then all runs, and each difference is one line on each node
    let ran = job("warn").ends(0);
    let lines = ran.lines_with("mesh[W76]");
    assert_eq!(lines.len(), 8, "{}", ran.told());
    assert!(lines.iter().all(|line| line.contains("10.200.0.5")), "{}", ran.told());
    // when it is to refuse, then no connection is made, for that reason
    let ran = job("refuse").ends(1);
    assert!(!ran.lines_with("mesh[E09]").is_empty(), "{}", ran.told());
    // when it is to ignore, then nothing is said
    let ran = job("ignore").ends(0);
    assert_eq!(ran.lines_with("mesh[W76]"), [""; 0], "{}", ran.told());
}

#[test]
fn a_better_order_of_ranks_is_said_once() {
    // given ranks in an order whose ring crosses relays
    let words = "--discover --shape ring --nodes 6 --collective all-reduce --sizes 8K --idle 2 --rank-order";
    let ran = run(&format!("{words} 0,2,4,1,3,5")).ends(0);
    // then the first rank says so, with an order to copy, in which nothing is relayed
    let lines = ran.lines_with("mesh[W77]");
    assert_eq!(lines.len(), 1, "{}", ran.told());
    assert!(lines[0].contains("node0,node1,node2,node3,node4,node5"), "{}", ran.told());
    // given an order that follows the cables, then nothing is said
    let ran = run(&format!("{words} 1,2,3,4,5,0")).ends(0);
    assert_eq!(ran.lines_with("mesh[W77]"), [""; 0], "{}", ran.told());
}

#[test]
fn who_is_alone_is_told_so() {
    // given a host whose neighbours are silent
    let ports = "NCCL_MESH_PORTS=10.200.0.1/30,10.200.0.10/30";
    let folder = Folder::new("alone");
    let script = folder.write("alone.sh", &format!("{COMMAND} topology discover --wait 1"));
    let words = format!(
        "sim run --discover --shape ring --nodes 3 --no-plugin --rank-order 0,1 --env NCCL_MESH_PORT=17999 --env {ports} -- sh {}",
        script.display()
    );
    let ran = nccl_mesh(&words).leaves_nothing();
    // then the command says what to look at, and fails
    assert!(ran.status != Some(0), "{}", ran.told());
    assert!(!ran.lines_with("mesh[E75]").is_empty(), "{}", ran.told());
}

fn fabrics() -> Vec<&'static str> {
    if stage::may() { vec!["", "--netns"] } else { vec![""] }
}

fn rows(ran: &Ran) -> Vec<serde_json::Value> {
    ran.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn the_files_of_these_tests_are_sound() {
    let folder = Folder::new("sound");
    for text in [chord(), ring_of(&[31, 24, 30, 29, 31, 28])] {
        let file = folder.write("t.toml", &text);
        assert!(Path::new(&file).exists());
        nccl_mesh(&format!("topology validate {}", file.display())).ends(0);
    }
}
