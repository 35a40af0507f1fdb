//! `nccl-mesh bench` end to end, over TCP and over RDMA queue pairs on soft verbs, with small numbers: what is told, that every byte was
//! right and that relays relayed. How fast anything is depends on the machine, so no figure is asserted beyond being one.
#![cfg(feature = "cli")]

mod common;

use std::collections::BTreeSet;

use common::verbs::soft_verbs;
use common::{nccl_mesh, plugin_file};
use serde_json::Value;

const BETWEEN: [&str; 6] = ["what", "link", "relays", "from", "to", "touch"];
const FOUND: [&str; 4] = ["checked_bytes", "wrong_bytes", "forwarded_chunks", "relay_cpu_us_per_chunk"];
const LATENCY: [&str; 8] = ["size_bytes", "rounds", "p50_us", "p99_us", "p999_us", "max_us", "min_us", "x_direct"];
const BANDWIDTH: [&str; 7] =
    ["size_bytes", "depth", "messages", "seconds", "bandwidth_gbps", "bandwidth_p90_gbps", "x_direct"];
const IDLE_TEST: [&str; 3] = ["calls", "receive_test_ns", "send_test_ns"];
const PERFTEST: [&str; 8] =
    ["what", "program", "from", "to", "size_bytes", "typical_us", "bandwidth_gbps", "ours_by_theirs"];

/// Small numbers: a few seconds.
const SMALL: &str = "--sizes 0,8,200K --rounds 50 --depth 1,8 --seconds 0.02 --calls 2000";

#[track_caller]
fn rows(words: &str) -> Vec<Value> {
    let words = format!("bench --json --plugin {} {words}", plugin_file().display());
    let ran = nccl_mesh(&words).ends(0).leaves_nothing();
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{}", ran.told()))).collect()
}

#[track_caller]
fn fields(row: &Value, expected: &[&[&str]]) {
    let found: BTreeSet<&str> = row.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(found, expected.concat().into_iter().collect(), "{row}");
}

#[track_caller]
fn positive(row: &Value, names: &[&str]) {
    for name in names {
        assert!(row[name].as_f64().is_some_and(|value| value > 0.0), "{name} of {row}");
    }
}

/// Looks at every row of a run of `SMALL` without and with one relay.
#[track_caller]
fn is_sound(rows: &[Value], link: &str) {
    // 3 sizes, then 3 sizes at 2 depths, then the tests: for each of two lines.
    let kinds: Vec<_> = rows.iter().map(|row| row["what"].as_str().expect("a kind")).collect();
    let one = [vec!["latency"; 3], vec!["bandwidth"; 6], vec!["idle-test"]].concat();
    assert_eq!(kinds, [&one[..], &one[..]].concat());
    for (at, row) in rows.iter().enumerate() {
        let relays = at / 10;
        assert_eq!((row["link"].as_str(), row["relays"].as_u64()), (Some(link), Some(relays as u64)), "{row}");
        assert_eq!((&row["from"], row["to"].as_str()), (&"node0".into(), Some(["node1", "node2"][relays])), "{row}");
        if row["what"] == "idle-test" {
            fields(row, &[&BETWEEN, &IDLE_TEST]);
            positive(row, &IDLE_TEST);
            continue;
        }
        let size = row["size_bytes"].as_u64().expect("a size");
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        // The warm-up compares every byte, the timed part eight of each message.
        assert!(row["checked_bytes"].as_u64() >= Some(size * 2), "{row}");
        if row["what"] == "latency" {
            fields(row, &[&BETWEEN, &FOUND, &LATENCY]);
            assert_eq!(row["rounds"], 50);
            positive(row, &["p50_us", "p99_us", "p999_us", "max_us", "min_us", "x_direct"]);
            let ordered = ["min_us", "p50_us", "p99_us", "p999_us", "max_us"].map(|name| row[name].as_f64().unwrap());
            assert!(ordered.is_sorted(), "{row}");
        } else {
            fields(row, &[&BETWEEN, &FOUND, &BANDWIDTH]);
            positive(row, &["depth", "messages"]);
            assert!(row["seconds"].as_f64() >= Some(0.02), "{row}");
            if size > 0 {
                positive(row, &["bandwidth_gbps", "x_direct"]);
            }
        }
        if relays == 0 {
            assert_eq!((&row["x_direct"], &row["forwarded_chunks"]), (&1.0.into(), &Value::Null), "{row}");
        } else {
            positive(row, &["relay_cpu_us_per_chunk"]);
            // Larger messages than a chunk are several.
            let messages = row["messages"].as_u64().unwrap_or(2 * 50);
            let chunks = row["forwarded_chunks"].as_u64().expect("relays count");
            assert!(chunks >= messages && (size <= 128 << 10 || chunks >= 2 * messages), "{row}");
        }
    }
}

#[test]
fn tcp_links_are_measured_directly_and_over_a_relay() {
    is_sound(&rows(&format!("--relays 0,1 {SMALL}")), "tcp");
}

#[test]
fn verbs_links_are_measured_and_perftest_beside_them() {
    let verbs = format!("--link verbs --soft-verbs {}", soft_verbs().display());
    let rows = rows(&format!("--relays 0,1 {SMALL} {verbs} --perftest"));
    let (perftest, ours): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row["what"] == "perftest");
    is_sound(&ours, "verbs");
    if let [row] = &perftest[..]
        && let Some(reason) = row["skipped"].as_str()
    {
        println!("skipped: {reason}");
        return;
    }
    let told: Vec<_> = perftest.iter().map(|row| (row["program"].as_str(), row["size_bytes"].as_u64())).collect();
    let bandwidth = Some("ib_write_bw");
    assert_eq!(told, [(Some("ib_write_lat"), Some(8)), (bandwidth, Some(8)), (bandwidth, Some(200 << 10))]);
    for row in &perftest {
        fields(row, &[&PERFTEST]);
        let figure = if row["program"] == "ib_write_lat" { "typical_us" } else { "bandwidth_gbps" };
        positive(row, &[figure, "ours_by_theirs"]);
    }
}

#[test]
fn any_fabric_is_measured_between_two_of_its_nodes() {
    // given a ring, when the nodes that face each other are measured, then there are two relays, and nothing to compare with
    let few = "--sizes 4K --rounds 20 --depth 8 --seconds 0.01 --calls 100";
    let rows = rows(&format!("--shape ring --nodes 6 --rails 2 --from node1 --to node4 --abi 8 {few}"));
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_eq!((&row["from"], &row["to"], &row["relays"]), (&"node1".into(), &"node4".into(), &2.into()), "{row}");
    }
    assert_eq!(rows[0]["x_direct"], Value::Null);
}

#[test]
fn people_get_a_table_and_failures_a_reason() {
    let plugin = plugin_file();
    let few = format!("--relays 0 --sizes 8 --rounds 5 --depth 1 --seconds 0 --calls 10 --plugin {}", plugin.display());
    let ran = nccl_mesh(&format!("bench {few}")).ends(0);
    assert_eq!(ran.stdout.lines().count(), 6, "{}", ran.told());
    for text in ["node0 to node1 directly, tcp links", "x direct", "test with nothing to do, 10 calls"] {
        assert!(!ran.lines_with(text).is_empty(), "{text}: {}", ran.told());
    }
    // What does not fit is refused before anything starts; a node that does not connect fails the run.
    let ran = nccl_mesh("bench --perftest").ends(1);
    assert_eq!(ran.lines_with("mesh[E30]").len(), 1, "{}", ran.told());
    let ran = nccl_mesh(&format!("bench {few} --timeout 20 --env NCCL_MESH_LINK=verbs --env NCCL_MESH_DISABLE_RDMA=0"))
        .ends(1)
        .leaves_nothing();
    assert!(!ran.lines_with("mesh[E31]").is_empty(), "{}", ran.told());
}
