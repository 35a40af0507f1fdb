//! Cables that are cut and mended while a run lasts.

use std::time::{Duration, Instant};

use crate::common::nccl_mesh_with;
use crate::stage::{kinds, line, may, over};

#[test]
fn a_cut_cable_takes_the_carrier_of_both_ends_until_it_is_mended() {
    if !may() {
        return;
    }
    // given nodes that write down all changes of their first port's carrier
    let script = "old=; for i in $(seq 40); do new=$(cat /sys/class/net/port0/carrier 2>/dev/null || echo down); \
                  [ $new = \"$old\" ] || echo carrier $new; old=$new; sleep 0.05; done";
    // when the cable of a pair is cut, at the end of the second, and mended
    let faults = ["--fault", "400ms cut node1 node0", "--fault", "1.2s mend node1 node0"];
    let words = line("--shape line --nodes 2 --no-plugin");
    let words: Vec<&str> = words.split_whitespace().chain(faults).chain(["--", "sh", "-c", script]).collect();
    let ran = over(nccl_mesh_with(&words, &[], Duration::from_secs(60)).ends(0));
    // then one sees no carrier, the other one its port down, and in the end all is as before
    let told =
        |node: &str| ran.lines_with(&format!("{node}: carrier ")).join(" ").replace(&format!("{node}: carrier "), "");
    assert_eq!([told("node0"), told("node1")], ["1 0 1", "1 down 1"], "{}", ran.told());
}

#[test]
fn a_cut_cable_ends_the_run_with_its_name() {
    if !may() {
        return;
    }
    for (kind, link) in kinds() {
        // given a ring of four under a collective that would last for ever, when a cable is cut
        let words =
            line(&format!("{link} --nodes 4 --sizes 256K --iters 1000000 --env NCCL_MESH_TIMEOUT_SEC=5 --timeout 60"));
        let words: Vec<&str> = words.split_whitespace().chain(["--fault", "700ms cut node0 node1"]).collect();
        let began = Instant::now();
        let ran = over(nccl_mesh_with(&words, &[], Duration::from_secs(90)));
        // then the run ends long before its own limit, and a line names one end's peer and the addresses of the cable
        assert_eq!(ran.status, Some(1), "{}", ran.told());
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}: {}", began.elapsed(), ran.told());
        let named = |ends: [&str; 2], peer: &str| {
            let cable = format!("{} - {}", ends[0], ends[1]);
            ran.stderr.lines().any(|line| line.contains("mesh[E") && line.contains(&cable) && line.contains(peer))
        };
        let (a, b) = ("10.200.0.1", "10.200.0.2");
        assert!(named([a, b], "node1") || named([b, a], "node0"), "{kind}: {}", ran.told());
    }
}

#[test]
fn who_wants_to_know_fast_is_not_kept_for_the_limit_of_an_operation() {
    if !may() {
        return;
    }
    let (_, link) = &kinds()[0];
    // given sockets, and 30 s for an operation, when a cable is cut and FAST_FAIL is set
    let words =
        line(&format!("{link} --nodes 4 --sizes 256K --iters 1000000 --env NCCL_MESH_FAST_FAIL=1 --timeout 60"));
    let words: Vec<&str> = words.split_whitespace().chain(["--fault", "700ms cut node0 node1"]).collect();
    let began = Instant::now();
    let ran = over(nccl_mesh_with(&words, &[], Duration::from_secs(90)).ends(1));
    // then the kernel's word that nothing is acknowledged comes after 5 s, long before
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}: {}", began.elapsed(), ran.told());
    assert!(ran.stderr.contains("mesh[E59]"), "{}", ran.told());
}

#[test]
fn a_device_whose_netdev_has_no_carrier_is_told_and_gone_round() {
    if !may() {
        return;
    }
    let (_, link) = &kinds()[1];
    // given RDMA links, and a cable that is missing from the start, with and without a file that declares it
    for how in ["", "--discover"] {
        let words = line(&format!("{link} {how} --nodes 4 --collective all-to-all --sizes 4,20K --timeout 60"));
        let words: Vec<&str> = words.split_whitespace().chain(["--fault", "0 cut node0 node1"]).collect();
        // then everything passes the other way round, and each end says once that its port is down, and what to look at; without a
        // file, node0, whose interface is down and not only dark, has no such port
        let ran = over(nccl_mesh_with(&words, &[], Duration::from_secs(90)).ends(0));
        let ends = [("node1", "10.200.0.2"), ("node0", "10.200.0.1")];
        for (node, address) in ends.into_iter().take(if how.is_empty() { 2 } else { 1 }) {
            let named = |line: &&str| line.contains(node) && line.contains(&format!("{address}, is down"));
            assert_eq!(ran.lines_with("mesh[W06]").into_iter().filter(named).count(), 1, "{}", ran.told());
        }
        // and where no file declares the cable nothing else is said of it
        assert!(how.is_empty() || ran.lines_with("mesh[W76]").is_empty(), "{}", ran.told());
    }
    // given a node none of whose ports is up, then it refuses to start
    let words = line(&format!("{link} --shape line --nodes 2 --sizes 4 --timeout 60"));
    let words: Vec<&str> = words.split_whitespace().chain(["--fault", "0 cut node0 node1"]).collect();
    let ran = over(nccl_mesh_with(&words, &[], Duration::from_secs(90)).ends(1));
    assert!(ran.lines_with("mesh[E06]").iter().any(|line| line.contains("is down")), "{}", ran.told());
}

#[test]
fn a_cable_that_is_back_in_time_does_not_end_the_run() {
    if !may() {
        return;
    }
    let (_, link) = &kinds()[1];
    // given queue pairs that try again for some seconds, when a cable is away for half a second in the middle of a run
    let words = line(&format!("{link} --nodes 4 --sizes 256K --iters 1500"));
    let faults = ["--fault", "300ms cut node0 node1", "--fault", "800ms mend node0 node1"];
    let words: Vec<&str> = words.split_whitespace().chain(faults).collect();
    // then it ends well
    over(nccl_mesh_with(&words, &[], Duration::from_secs(120)).ends(0));
}

#[test]
fn faults_that_cannot_be_are_refused_and_those_not_reached_are_told() {
    if !may() {
        return;
    }
    let with = |fault: &str, words: &str| {
        let words = line(words);
        let words: Vec<&str> = words.split_whitespace().chain(["--fault", fault]).collect();
        over(nccl_mesh_with(&words, &[], Duration::from_secs(60)).ends(1))
    };
    let ran = with("1 cut node0 node2", "--nodes 4 --sizes 4");
    assert_eq!(ran.lines_with("mesh[E30]").len(), 1, "{}", ran.told());
    assert_eq!(ran.lines_with("no cable between node0 and node2").len(), 1, "{}", ran.told());
    let ran = with("50 cut node0 node1", "--nodes 3 --sizes 4");
    assert_eq!(ran.lines_with("the run was over before the fault \"50 cut node0 node1\"").len(), 1, "{}", ran.told());
    // A node that is killed is named, as any that ends.
    let ran = with("500ms kill node1", "--nodes 3 --sizes 4K --iters 1000000");
    assert_eq!(ran.lines_with("mesh[E31] node1: process ended while").len(), 1, "{}", ran.told());
}
