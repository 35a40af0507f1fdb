//! Cables of make-believe fabrics that are cut and mended while a run lasts, for sockets and for RDMA queue pairs.
//!
//! Knows nothing of the plugin's inside: what is checked is what an operator reads, and the exit status.
#![cfg(feature = "cli")]

mod common;

use std::time::{Duration, Instant};

use common::verbs::soft_verbs;
use common::{COMMAND, Ran, nccl_mesh_with, plugin_file};

/// Links of both kinds, as options.
fn links() -> [String; 2] {
    ["--link tcp".to_owned(), format!("--link verbs --soft-verbs {}", soft_verbs().display())]
}

#[track_caller]
fn run(words: &str, faults: &[&str], command: &[&str]) -> Ran {
    let words = format!("sim run --plugin {} {words}", plugin_file().display());
    let mut words: Vec<&str> = words.split_whitespace().collect();
    words.extend(faults.iter().flat_map(|fault| ["--fault", fault]));
    words.extend(command);
    nccl_mesh_with(&words, &[], Duration::from_secs(90)).leaves_nothing()
}

#[test]
fn nodes_that_find_one_another_go_round_a_cable_that_is_cut() {
    // given a ring of five with one cable cut from the start, which the nodes are not told of
    let words = "--link tcp --discover --nodes 5 --algo ring --sizes 4,300K --iters 2 --json";
    let ran = run(words, &["0 cut node0 node1"], &[]).ends(0);
    // then every byte is right, and those of the two that had the cable came over the three others
    for line in ran.stdout.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        assert!(row["relayed_bytes"].as_u64() > Some(0), "{row}");
        let relays = row["relays"].as_object().expect("an object");
        assert!(["node2", "node3", "node4"].iter().all(|relay| relays.contains_key(*relay)), "{row}");
    }
}

#[test]
fn a_cut_is_seen_while_nodes_run_and_so_is_its_end() {
    // given daemons on a line of three, and on each node somebody who counts the nodes that are found, before the fault, during it and after
    let look = format!("{COMMAND} topology discover --wait 1 2>/dev/null | grep -c ^name");
    let script = format!("echo all $({look}); sleep 2; echo cut $({look}); sleep 2; echo mended $({look})");
    let words = "--link tcp --shape line --nodes 3 --discover --agents all --no-plugin";
    let faults = ["2s cut node1 node2", "5s mend node1 node2"];
    // when the second cable is cut and mended
    let ran = run(words, &faults, &["--", "sh", "-c", &script]).ends(0);
    // then each sees those it is joined with at the time
    for (node, cut) in [("node0", 2), ("node1", 2), ("node2", 1)] {
        for line in [format!("{node}: all 3"), format!("{node}: cut {cut}"), format!("{node}: mended 3")] {
            assert!(
                ran.stdout.lines().any(|told| told.split_whitespace().eq(line.split_whitespace())),
                "{line}: {}",
                ran.told()
            );
        }
    }
}

#[test]
fn over_a_topology_file_a_cable_that_is_cut_is_named() {
    for link in links() {
        // given nodes that are told of a cable that is not there
        let began = Instant::now();
        let words = format!("{link} --nodes 4 --sizes 4 --timeout 40 --env NCCL_MESH_CONNECT_TIMEOUT_SEC=3");
        let ran = run(&words, &["0 cut node0 node1"], &[]).ends(1);
        // then the run ends soon, with an address of the cable
        let ends = ["10.200.0.1", "10.200.0.2"];
        let named = |line: &str| line.contains("mesh[E") && ends.iter().any(|end| line.contains(end));
        assert!(ran.stderr.lines().any(named) && began.elapsed() < Duration::from_secs(35), "{}", ran.told());
    }
}

#[test]
fn a_cut_breaks_queue_pairs_and_leaves_sockets_that_are_connected() {
    let [sockets, queue_pairs] = links();
    let faults = ["700ms cut node0 node1"];
    // given a collective that lasts longer than its cable
    let ran = run(&format!("{sockets} --nodes 3 --sizes 256K --repeat 300 --idle 1 --json"), &faults, &[]).ends(0);
    // then over sockets it goes on, for what is connected stays so
    assert_eq!(ran.stdout.lines().count(), 301, "{}", ran.told());
    // and over queue pairs it ends with the cable's addresses
    let endless = "--nodes 3 --sizes 256K --iters 1000000 --env NCCL_MESH_TIMEOUT_SEC=5 --timeout 60";
    let ran = run(&format!("{queue_pairs} {endless}"), &faults, &[]).ends(1);
    let named = |a: &str, b: &str| {
        ran.stderr.lines().any(|line| line.contains("mesh[E") && line.contains(&format!("{a} - {b}")))
    };
    let (a, b) = ("10.200.0.1", "10.200.0.2");
    assert!(named(a, b) || named(b, a), "{}", ran.told());
}

#[test]
fn what_cannot_be_cut_is_refused_before_anything_starts() {
    for (fault, told) in [
        ("1 cut node0 node2", "no cable between node0 and node2"),
        ("1 cut node0 node1 1", "no rail 1"),
        ("1 kill node0", "needs --netns"),
    ] {
        let ran = run("--nodes 4 --sizes 4", &[fault], &[]).ends(1);
        let lines = ran.lines_with("mesh[E30]");
        assert!(lines.len() == 1 && lines[0].contains(told) && lines[0].contains(fault), "{}", ran.told());
    }
}
