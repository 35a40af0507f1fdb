//! The operator's command end to end: collectives and commands on a make-believe fabric, and the commands that need none.
//!
//! Knows nothing of the plugin: what is checked is what an operator reads, and the exit status.
#![cfg(feature = "cli")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::{Ran, nccl_mesh, nccl_mesh_with, plugin_file};
use serde_json::Value;

/// Every collective with each of its algorithms.
const ALL: [(&str, &[&str]); 6] = [
    ("all-reduce", &["ring", "tree", "direct"]),
    ("all-gather", &["ring", "pat", "direct"]),
    ("reduce-scatter", &["ring", "pat", "direct"]),
    ("broadcast", &["ring"]),
    ("all-to-all", &["direct"]),
    ("send-recv", &["direct"]),
];
/// Fields that users' scripts may rely on.
const FIELDS: [&str; 18] = [
    "collective",
    "algo",
    "nodes",
    "link",
    "size_bytes",
    "iterations",
    "time_us",
    "time_min_us",
    "time_max_us",
    "algbw_gbps",
    "busbw_gbps",
    "checked_bytes",
    "wrong_bytes",
    "direct_bytes",
    "relayed_bytes",
    "relays",
    "worst_link",
    "worst_link_bytes",
];

/// Rows of a run that must be right in every byte.
#[track_caller]
fn rows(words: &str) -> Vec<Value> {
    let plugin = plugin_file();
    let words = format!("sim run --json --plugin {} {words}", plugin.display());
    let ran = nccl_mesh(&words).ends(0).leaves_nothing();
    let rows: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!rows.is_empty(), "{}", ran.told());
    for row in rows.iter().filter(|row| row.get("collective").is_some()) {
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        assert!(row["size_bytes"] == 0 || number(row, "checked_bytes") > 0, "nothing was checked: {row}");
    }
    rows
}

#[track_caller]
fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("{field} of {row}"))
}

/// Every collective and algorithm on a fabric; `relaying`: whether some pairs that talk share no cable, by collective and algorithm.
fn all_collectives(fabric: &str, relaying: impl Fn(&str, &str) -> bool) {
    for (collective, algos) in ALL {
        for algo in algos {
            let rows = rows(&format!("{fabric} --collective {collective} --algo {algo} --sizes 0,8K,300K --iters 1"));
            let relayed: u64 = rows.iter().map(|row| number(row, "relayed_bytes")).sum();
            let direct: u64 = rows.iter().map(|row| number(row, "direct_bytes")).sum();
            assert_eq!(
                relayed > 0,
                relaying(collective, algo),
                "{fabric} {collective} {algo}: {relayed} bytes were relayed"
            );
            // What was relayed was passed on by somebody, and is told by name.
            let passed = rows.iter().flat_map(|row| row["relays"].as_object().expect("an object").values());
            assert!(passed.filter_map(Value::as_u64).sum::<u64>() >= relayed, "{rows:?}");
            assert!(direct + relayed > 0, "{rows:?}");
        }
    }
}

#[test]
fn every_collective_is_right_on_a_ring() {
    all_collectives("--shape ring --nodes 6", |_, algo| algo != "ring");
}

#[test]
fn every_collective_is_right_on_a_line() {
    // The way from the last to the first goes through all others, except for a broadcast, which ends at the last.
    all_collectives("--shape line --nodes 6", |collective, _| collective != "broadcast");
}

#[test]
fn every_collective_is_right_on_a_star() {
    all_collectives("--shape star --nodes 5", |_, _| true);
}

#[test]
fn nothing_is_relayed_where_all_share_cables() {
    all_collectives("--shape full --nodes 4", |_, _| false);
}

#[test]
fn rings_of_all_sizes_work() {
    for nodes in 3..=8 {
        for row in rows(&format!("--shape ring --nodes {nodes} --collective all-to-all --sizes 100K --iters 1")) {
            assert_eq!(row["nodes"], nodes);
            assert_eq!(number(&row, "relayed_bytes") > 0, nodes > 3, "{row}");
        }
    }
}

#[test]
fn two_rails_and_a_rank_order_off_the_cables_work() {
    for algo in ["ring", "tree"] {
        let fabric = "--shape ring --nodes 6 --rails 2 --rank-order 0,2,4,1,3,5";
        for row in rows(&format!("{fabric} --algo {algo} --sizes 4,3M --iters 1")) {
            assert!(number(&row, "relayed_bytes") > 0, "{row}");
        }
    }
    // A large message to a neighbour uses both rails.
    let rows = rows("--shape ring --nodes 3 --rails 2 --collective send-recv --distance 1 --sizes 4M --iters 1");
    let row = &rows[0];
    assert!(number(row, "worst_link_bytes") <= number(row, "direct_bytes") / 4, "{row}");
}

#[test]
fn rows_have_the_documented_fields_and_no_others() {
    for (collective, further) in [("all-reduce", None), ("send-recv", Some("distance"))] {
        let rows = rows(&format!("--nodes 3 --collective {collective} --sizes 4K --iters 2"));
        let fields: BTreeSet<&str> = rows[0].as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields, FIELDS.into_iter().chain(further).collect(), "{collective}");
        assert_eq!((number(&rows[0], "size_bytes"), number(&rows[0], "iterations")), (4096, 2));
    }
    // As a table there is a line a row under a heading.
    let plugin = plugin_file();
    let words = format!("sim run --nodes 3 --sizes 4K,8K --iters 1 --plugin {}", plugin.display());
    let ran = nccl_mesh(&words).ends(0);
    assert_eq!(ran.stdout.lines().count(), 4, "{}", ran.told());
}

#[test]
fn every_version_of_the_table_serves_a_collective() {
    for abi in 8..=12 {
        rows(&format!("--nodes 4 --abi {abi} --algo tree --sizes 0,100K --iters 1"));
    }
}

#[test]
fn saturation_with_one_slot_a_class_ends() {
    let slots = "--env NCCL_MESH_RELAY_SLOTS=1 --env NCCL_MESH_TRUNK_SLOTS=1";
    let work = "--collective all-to-all --sizes 2M --iters 2";
    for _ in 0..3 {
        rows(&format!("--shape ring --nodes 6 {slots} {work}"));
    }
    rows(&format!("--shape ring --nodes 8 {slots} {work}"));
}

/// Load of the machine over the last minute, a core.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / cores as f64
}

#[test]
fn idle_nodes_cost_next_to_nothing() {
    let rows = rows("--shape ring --nodes 4 --sizes 64K --iters 1 --idle 2");
    let idle = rows.last().expect("rows");
    let percent = idle["idle_cpu_percent"].as_f64().unwrap_or_else(|| panic!("{idle}"));
    assert!(number(idle, "open_connections") > 0, "{idle}");
    if percent >= 2.0 && load() > 0.5 {
        // A busy machine may charge processes for its interrupts.
        eprintln!("skipped: {percent} % on a machine that is loaded");
        return;
    }
    assert!(percent < 2.0, "{idle}");
}

fn job(options: &str, command: &[&str]) -> Ran {
    let plugin = plugin_file();
    let words = format!("sim run {options} --plugin {}", plugin.display());
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.push("--");
    words.extend(command);
    nccl_mesh_with(&words, &[], Duration::from_secs(60)).leaves_nothing()
}

#[test]
fn a_command_is_told_who_and_where_it_is() {
    let script = "echo $RANK/$WORLD_SIZE $NCCL_HOSTID $NCCL_NET $MASTER_ADDR; test -f $NCCL_NET_PLUGIN && echo there";
    let ran = job("--nodes 3 --rank-order 2,0,1", &["sh", "-c", script]).ends(0);
    for (rank, node) in [2, 0, 1].into_iter().enumerate() {
        let line = format!("node{node}: {rank}/3 node{node} Mesh 127.0.0.1");
        assert!(ran.stdout.lines().any(|told| told == line), "{line}: {}", ran.told());
    }
    assert_eq!(ran.lines_with(": there").len(), 3, "{}", ran.told());
    // Without names, and without the plugin.
    let ran = job("--nodes 3 --no-prefix --no-plugin", &["sh", "-c", "echo plain ${NCCL_NET_PLUGIN-none}"]).ends(0);
    assert_eq!(ran.stdout.lines().filter(|line| *line == "plain none").count(), 3, "{}", ran.told());
}

#[test]
fn the_status_of_a_command_is_the_worst_of_its_nodes() {
    // given one node that fails while the others would go on for ever
    let ran = job("--nodes 3", &["sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 600"]);
    // then the status is its, unless what we did to the others is worse; its name is told and nothing is left
    assert!(ran.status.is_some_and(|status| status >= 7), "{}", ran.told());
    assert_eq!(ran.lines_with("mesh[E31] node1: exit status 7").len(), 1, "{}", ran.told());
    let ran = job("--nodes 3", &["sh", "-c", "[ $RANK = 1 ] && exit 7; exit 0"]).ends(7);
    assert_eq!(ran.lines_with("mesh[E31]").len(), 1, "{}", ran.told());
    job("--nodes 3", &["/nonexistent/program"]).ends(127);
    job("--nodes 3", &["sh", "-c", "kill -9 $$"]).ends(137);
    job("--nodes 3 --timeout 1", &["sleep", "600"]).ends(124);
}

#[test]
fn routes_are_told_as_a_table_and_as_json() {
    let ran = nccl_mesh("routes --shape ring --nodes 6").ends(0);
    for line in ["node0  node1     1  -", "node0  node2     2  node1", "node0  node3     3  "] {
        assert!(!ran.lines_with(line).is_empty(), "{line}: {}", ran.told());
    }
    let ran = nccl_mesh("routes --shape ring --nodes 6 --from node0 --to node2 --json").ends(0);
    let rows: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&rows[0]["from"], &rows[0]["to"], &rows[0]["hops"]), (&"node0".into(), &"node2".into(), &2.into()));
    assert_eq!(rows[0]["relays"], serde_json::json!(["node1"]));
    let ran = nccl_mesh("routes --nodes 4 --from nod1").ends(1);
    assert_eq!(ran.lines_with("mesh[E23]").len(), 1, "{}", ran.told());
    nccl_mesh("routes").ends(1);
}

#[test]
fn a_topology_is_shown_written_and_found_sound() {
    let ran = nccl_mesh("topology show --shape line --nodes 3").ends(0);
    assert!(!ran.lines_with("nodes that alone hold it together: node1").is_empty(), "{}", ran.told());
    let toml = nccl_mesh("topology show --shape grid --nodes 6 --rails 2 --toml").ends(0).stdout;
    let path = std::env::temp_dir().join(format!("nccl-mesh-sim-run-{}.toml", std::process::id()));
    std::fs::write(&path, toml).unwrap();
    let words = format!("topology validate {}", path.display());
    let ran = nccl_mesh(&words).ends(0);
    assert!(ran.stdout.starts_with("ok: nodes 6, edges 7, links 14, hash "), "{}", ran.told());
    // and a run takes the same file
    rows(&format!("--topology {} --sizes 4K --iters 1 --algo tree", path.display()));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_rank_order_follows_the_cables_where_it_can() {
    let ran = nccl_mesh("rank-order --shape ring --nodes 5").ends(0);
    assert!(ran.stdout.contains("every ring edge is a cable"), "{}", ran.told());
    let ran = nccl_mesh("rank-order --shape star --nodes 4 --json").ends(0);
    let relayed = ran.stdout.lines().filter(|line| line.contains("\"relayed_to_next\":true")).count();
    assert_eq!((ran.stdout.lines().count(), relayed), (4, 2), "{}", ran.told());
}

#[test]
fn the_variables_are_told_and_contradictions_found() {
    let ran = nccl_mesh("env").ends(0);
    assert!(ran.stdout.contains("export NCCL_NET=Mesh\n"), "{}", ran.told());
    assert!(ran.stdout.contains("export NCCL_NET_PLUGIN="), "{}", ran.told());
    let ran = nccl_mesh_with(&["env"], &[("NCCL_NET", "IB")], Duration::from_secs(60)).ends(1);
    assert_eq!(ran.lines_with("mesh[E32] NCCL_NET=IB").len(), 1, "{}", ran.told());
    // Every setting is listed, with where its value comes from.
    let ran = nccl_mesh_with(&["env", "--all"], &[("NCCL_MESH_TIMEOUT_SEC", "7")], Duration::from_secs(60)).ends(0);
    let line = ran.lines_with("NCCL_MESH_TIMEOUT_SEC").concat();
    assert!(line.contains('7') && line.contains("environment"), "{}", ran.told());
}
