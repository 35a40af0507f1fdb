//! The plugin over RDMA queue pairs, direct and relayed, on soft verbs: the same command as over TCP, every byte checked.
//!
//! Builds soft verbs first (cargo and cc are at hand where tests are built). Needs no RDMA device and no root.
#![cfg(feature = "cli")]

mod common;

use common::verbs::soft_verbs;
use common::{nccl_mesh, plugin_file};
use serde_json::Value;

#[track_caller]
fn rows(words: &str) -> Vec<Value> {
    let (plugin, verbs) = (plugin_file(), soft_verbs());
    let words =
        format!("sim run --link verbs --soft-verbs {} --json --plugin {} {words}", verbs.display(), plugin.display());
    let ran = nccl_mesh(&words).ends(0).leaves_nothing();
    let rows: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!rows.is_empty(), "{}", ran.told());
    for row in &rows {
        assert_eq!(row["link"], "verbs", "{row}");
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        assert!(row["size_bytes"] == 0 || row["checked_bytes"].as_u64() > Some(0), "nothing was checked: {row}");
    }
    rows
}

fn relayed(rows: &[Value]) -> u64 {
    rows.iter().filter_map(|row| row["relayed_bytes"].as_u64()).sum()
}

#[test]
fn every_collective_passes_on_a_ring_of_six() {
    for what in [
        "all-reduce --algo tree",
        "all-reduce --algo ring",
        "all-gather --algo pat",
        "reduce-scatter --algo pat",
        "broadcast",
        "all-to-all",
        "send-recv",
    ] {
        let rows = rows(&format!("--shape ring --nodes 6 --collective {what} --sizes 0,4,8K,300K --iters 2"));
        // Ring and broadcast go from neighbour to neighbour; everything else needs relays.
        let neighbours = what.contains("ring") || what == "broadcast";
        assert_eq!(relayed(&rows) > 0, !neighbours, "{what}");
    }
}

#[test]
fn long_routes_several_rails_and_scarce_slots_pass() {
    assert!(relayed(&rows("--shape line --nodes 6 --collective all-to-all --sizes 8K,1M --iters 2")) > 0);
    assert!(
        relayed(&rows("--shape ring --nodes 4 --rails 2 --collective all-reduce --algo tree --sizes 4,1M --iters 2"))
            > 0
    );
    assert_eq!(
        relayed(&rows("--shape full --nodes 3 --rails 2 --collective all-reduce --algo tree --sizes 4,1M --iters 2")),
        0
    );
    let scarce = "--env NCCL_MESH_RELAY_SLOTS=1 --env NCCL_MESH_TRUNK_SLOTS=1";
    assert!(
        relayed(&rows(&format!("--shape ring --nodes 6 --collective all-to-all --sizes 1M --iters 2 {scarce}"))) > 0
    );
}

#[test]
fn every_version_of_the_interface_passes() {
    for abi in 8..=12 {
        assert!(
            relayed(&rows(&format!(
                "--shape line --nodes 3 --collective all-to-all --sizes 64K --iters 2 --abi {abi}"
            ))) > 0
        );
    }
}

#[test]
fn a_missing_library_is_said_and_nothing_falls_back() {
    // given no soft verbs for the harness
    let ran =
        nccl_mesh("sim run --link verbs --soft-verbs /nonexistent --shape line --nodes 2 --sizes 4").leaves_nothing();
    assert_ne!(ran.status, Some(0), "{}", ran.told());
    assert!(ran.told().contains("/nonexistent"), "{}", ran.told());
    // given verbs asked for on a fabric without devices, then the plugin says what is missing
    let plugin = plugin_file();
    let words = format!(
        "sim run --shape line --nodes 2 --sizes 4 --timeout 20 --plugin {} --env NCCL_MESH_LINK=verbs --env NCCL_MESH_DISABLE_RDMA=0",
        plugin.display()
    );
    let ran = nccl_mesh(&words).leaves_nothing();
    assert_ne!(ran.status, Some(0), "{}", ran.told());
    // Whether this machine has a libibverbs or not.
    assert!(ran.told().contains("mesh[E04]") || ran.told().contains("mesh[E28]"), "{}", ran.told());
}

#[test]
fn events_that_come_late_wake_relays_all_the_same() {
    // given devices whose events come well after the completions that they announce, as interrupts do,
    // when messages pass two relays one by one, so that each relay falls asleep in between,
    // then none is left lying
    let what = "--shape ring --nodes 6 --collective send-recv --distance 3 --sizes 4,8K --repeat 3 --iters 400";
    assert!(relayed(&rows(&format!("{what} --soft-verbs-set wake-delay=20000"))) > 0);
}

#[test]
fn devices_that_are_slow_to_free_their_queues_pass() {
    // given devices that carry out requests later, at a rate, and free a place in a queue only when its completion was taken
    let slow = "--soft-verbs-set strict=on --soft-verbs-set engine=clock --soft-verbs-set latency=2000";
    for what in
        ["--shape ring --nodes 6 --collective all-to-all", "--shape ring --nodes 4 --rails 2 --collective all-reduce"]
    {
        assert!(!rows(&format!("{what} --sizes 4,8K,1M --iters 4 {slow}")).is_empty());
    }
}
