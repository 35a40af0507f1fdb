//! What real clusters have wrong with their RDMA ports, one test a fault, through the whole plugin on soft verbs: each is told by its
//! code, with the facts and what to do, or does no harm.
//!
//! Most faults are statements of soft verbs' fabric file; a library that is missing or old is made with the C compiler. Needs no RDMA
//! device, no root and no GPU. What nodes do themselves is in `verbs/nodes.rs`.
#![cfg(feature = "cli")]
#![allow(unsafe_code, reason = "nodes play NCCL's part and lower limits of their own process")]

mod common;
#[path = "conformance/hub.rs"]
#[allow(dead_code, reason = "a part is used here")]
mod hub;
#[path = "conformance/memory.rs"]
#[allow(dead_code, reason = "a part is used here")]
mod memory;
#[path = "conformance/node.rs"]
#[allow(dead_code, reason = "a part is used here")]
mod node;
#[path = "verbs/nodes.rs"]
mod nodes;
#[path = "verbs/stage.rs"]
mod stage;

use stage::{Run, Scratch, library, preload};

/// A collective on two nodes, 10.200.0.1 and 10.200.0.2.
fn pair() -> Run {
    Run::new("--shape line --nodes 2 --sizes 4K --iters 1 --timeout 30")
}

/// The same two nodes, each of which does what [`nodes`] has by this name.
fn each_node(what: &str) -> Run {
    Run::new("--shape line --nodes 2 --timeout 60").program(what)
}

/// Limits that make waiting short.
const SHORT: [&str; 2] = ["NCCL_MESH_CONNECT_TIMEOUT_SEC=3", "NCCL_MESH_ACCEPT_TIMEOUT_SEC=6"];

#[test]
fn no_library_at_all() {
    // given hosts where the dynamic linker finds no libibverbs
    let auditor = library("no_library.c", "no_library.so", &[]);
    let ran = pair().env(&format!("LD_AUDIT={}", auditor.display())).run();
    // then each node says so once, with the names that were tried and what to install; and nothing falls back
    let words = ["no libibverbs: ", "libibverbs.so.1", "cannot open", "install rdma-core", "libibverbs1"];
    ran.refused_by_any("E04", &words);
}

#[test]
fn a_library_that_is_too_old() {
    // given a libibverbs whose functions have the versions of before 2006
    let script = concat!("-Wl,--version-script=", env!("CARGO_MANIFEST_DIR"), "/tests/verbs/old_library.map");
    let old = library("old_library.c", "old/libibverbs.so.1", &[script]);
    let ran = pair().verbs(old.parent().unwrap()).run();
    // then the file, the function and the version are named
    let line =
        ran.refused_by_any("E04", &["ibv_get_device_list of version IBVERBS_1.1", "too old", "update rdma-core"]);
    assert!(line.contains(old.to_str().unwrap()), "{line}");
}

#[test]
fn no_device() {
    // given a library that finds none
    let ran = pair().env("MESH_SOFT_VERBS=").run();
    let there = std::path::Path::new("/dev/infiniband").exists();
    let remedy = if there { "rdma link" } else { "--device=/dev/infiniband to the container" };
    ran.refused_by_any("E28", &["libibverbs.so.1 finds no RDMA device", remedy]);
}

#[test]
fn a_port_without_gids() {
    let ran = pair().fault("gids=10.200.0.1 none").run();
    ran.refused("E19", "node0", &["GID of 10.200.0.1", "mesh0 port 1 (active, no GID)", "ip addr add 10.200.0.1/"]);
    assert_eq!(ran.lines("mesh[E19]").len(), 1, "{}", ran.told());
}

#[test]
fn a_port_with_link_local_gids_only() {
    let ran = pair().fault("gids=10.200.0.1 link-local").run();
    ran.refused(
        "E19",
        "node0",
        &["mesh0 port 1 (active, only link-local GIDs: no IPv4 address on", "ip addr add 10.200.0.1/"],
    );
}

#[test]
fn a_port_with_roce_v1_only() {
    let ran = pair().fault("gids=10.200.0.2 v1").run();
    ran.refused("E19", "node1", &["10.200.0.2 as RoCE v1 only", "firmware and driver that offer RoCE v2"]);
}

#[test]
fn an_address_on_an_interface_without_rdma() {
    // given a topology file that names the address of another interface of the host
    let file = Scratch::new("netdev.toml", &stage::topology(&["10.99.0.1/30"], &["10.99.0.2/30"]));
    let ran = pair()
        .env(&format!("NCCL_MESH_TOPOLOGY={file}"))
        .env("MESH_TEST_INTERFACES=10.99.0.1,10.99.0.2")
        .with(&[("LD_PRELOAD", preload().to_str().unwrap())])
        .run();
    // then the interface is named beside the ports that would do
    let words = ["GID of 10.99.0.", " (the address of test", "mesh0 port 1 (active, 10.200.0.", "topology file"];
    ran.refused_by_any("E19", &words);
}

#[test]
fn a_port_that_is_down_at_the_start() {
    let ran = pair().fault("down=10.200.0.2").run();
    ran.refused("E06", "node1", &["port 1 of mesh0, which has 10.200.0.2, is down", "ip link", "cable plugged in"]);
}

#[test]
fn a_port_that_goes_down_before_the_connection() {
    // given nodes that have started, when a port goes down, then connecting says so; when it is up again, then it works
    let ran = each_node("goes_down").envs(&SHORT).run().passed();
    let line = ran.line("mesh[E50]", &["node node0", "cannot reach 10.200.0.2", "10.200.0.1, is down"]);
    assert!(line.contains("connecting node node0 to node node1"), "{line}");
    assert_eq!(ran.lines("mesh[E06]").len(), 1, "said once, however often it was tried: {}", ran.told());
}

#[test]
fn an_address_that_goes_before_the_connection() {
    // given nodes that have started, when an interface loses its address, then connecting says so; when it has it again, then it works
    let ran = each_node("loses_address").envs(&SHORT).run().passed();
    let words =
        ["node node0", "GID of 10.200.0.1 is gone from port 1 of mesh0 (it was at index 3)", "only link-local GIDs"];
    ran.line("mesh[E50]", &words);
    ran.line("mesh[E19]", &words);
}

#[test]
fn ports_that_no_cable_joins() {
    // given ports in one subnet, both up, and their cables elsewhere: the change to RTR fails with 110
    let ran = pair().fault("uncable=10.200.0.1 10.200.0.2").envs(&SHORT).run();
    let mut at_the_end = 0;
    for (node, here, there) in [("node0", "10.200.0.1", "10.200.0.2"), ("node1", "10.200.0.2", "10.200.0.1")] {
        // then each node tells the two ports and what to check, once, when it is seen
        let way = format!("between ::ffff:{here} and ::ffff:{there}: Connection timed out (os error 110)");
        let ping = format!("ping -I {here} {there}");
        let words = ["ibv_modify_qp to RTR", &way, "cabled to each other", &ping];
        ran.line(&format!("mesh[E50] node {node}: leg between {here} and {there}: "), &words);
        // and again when the time is up, if it is not the other node's failure that ends the run
        let end = format!("mesh[E50] node {node}: cannot reach {there} from {here}");
        let told = ran.lines(&end);
        assert!(told.iter().all(|line| words.iter().all(|word| line.contains(word))), "{}", ran.told());
        at_the_end += told.len();
    }
    assert!(at_the_end > 0 && ran.status() != Some(0), "{}", ran.told());
    assert!(ran.lines("mesh[W42]").len() <= 2, "neighbours are no strangers: {}", ran.told());
}

#[test]
fn a_process_that_may_lock_too_little_for_the_relay() {
    if !nodes::may_lock_4_mib() {
        return;
    }
    // given processes that may lock 4 MiB, without the capability to lock more, and 64 MiB of slots
    let ran = each_node("little_memory").fault("memlock=limit").run().passed();
    ran.line(
        "mesh[E05]",
        &["node node0: relay slots: ", " bytes with mesh0", "may lock 4096 KiB (RLIMIT_MEMLOCK)", "ulimit -l"],
    );
    ran.line("mesh[E05]", &["node node1", "LimitMEMLOCK=infinity", "--ulimit memlock=-1 --cap-add IPC_LOCK"]);
}

#[test]
fn a_buffer_that_is_too_large_to_lock() {
    if !nodes::may_lock_4_mib() {
        return;
    }
    // given slots that fit, then a buffer that fits is registered, and one that does not is an error with the same facts
    let ran = each_node("large_buffer").fault("memlock=limit").env("NCCL_MESH_RELAY_MEMORY_MB=1").run().passed();
    let line = ran.line(
        "mesh[E05]",
        &["node node0: cannot register 4194304 bytes", "may lock 4096 KiB (RLIMIT_MEMLOCK) and holds "],
    );
    assert!(line.contains("(in regMr)"), "{line}");
}

#[test]
fn memory_that_is_refused_although_the_limit_would_allow_it() {
    if !nodes::may_lock_4_mib() {
        return;
    }
    // given processes that may lock 4 MiB, and a kernel that refuses more than 1 MiB for a reason of its own
    let ran = each_node("little_memory").fault("memlock=1048576").env("NCCL_MESH_RELAY_MEMORY_MB=2").run().passed();
    // then the limit is not blamed
    let line = ran.line(
        "mesh[E05]",
        &[
            "node node0",
            "cannot allocate memory, although RLIMIT_MEMLOCK (4096 KiB) would allow it",
            "KiB are available",
        ],
    );
    assert!(!line.contains("ulimit -l"), "{line}");
}

#[test]
fn two_ports_of_a_node_in_one_subnet_of_the_topology() {
    let file = Scratch::new("subnet.toml", &stage::topology(&["10.200.0.1/24", "10.200.0.5/24"], &["10.200.0.2/24"]));
    let ran = pair().env(&format!("NCCL_MESH_TOPOLOGY={file}")).run();
    ran.refused_by_any("E71", &["10.200.0.1", "10.200.0.5", "node0"]);
}

#[test]
fn two_ports_of_a_node_in_one_subnet_without_a_topology() {
    // given two rails, whose addresses have the prefix of a wider network
    let run = |link, prefix| {
        Run::new("--shape line --nodes 2 --rails 2 --timeout 30")
            .program("starts")
            .envs(&["NCCL_MESH_TOPOLOGY=", "NCCL_MESH_DEBUG=1", link])
            .with(&[("LD_PRELOAD", preload().to_str().unwrap()), ("MESH_TEST_PREFIX", prefix)])
            .run()
    };
    let ran = run("NCCL_MESH_LINK=verbs", "24");
    ran.refused_by_any("E11", &["subnet 10.200.0.0/24 is on both test", "(10.200.0.", "a subnet of its own"]);
    // over TCP the kernel finds some way: a warning
    let ran = run("NCCL_MESH_LINK=tcp", "24").passed();
    ran.line("mesh[W11] node node0: ", &["subnet 10.200.0.0/24 is on both test", "(10.200.0.1)", "(10.200.0.5)"]);
    // and with subnets of their own nothing is said
    let ran = run("NCCL_MESH_LINK=verbs", "30").passed();
    assert!(ran.lines("mesh[W11]").is_empty() && ran.lines("mesh[E11]").is_empty(), "{}", ran.told());
}

#[test]
fn without_a_topology_only_addresses_of_rdma_ports_are_used() {
    // given hosts with another interface, of no RDMA port
    let ran = each_node("starts")
        .envs(&["NCCL_MESH_TOPOLOGY=", "NCCL_MESH_DEBUG=1", "MESH_TEST_INTERFACES=192.0.2.7"])
        .with(&[("LD_PRELOAD", preload().to_str().unwrap())])
        .run()
        .passed();
    let line = ran.line("mesh[I03]", &["node node0: ports 10.200.0.1/30; verbs links"]);
    assert!(!line.contains("192.0.2.7"), "{line}");
    ran.line("node node0: not used, as no RDMA port has these addresses: 192.0.2.7/30", &[]);
    // and each port is told with its device
    ran.line("mesh[I05]", &["10.200.0.1 is mesh0 port 1: 100000 Mbit/s, RDMA MTU 4096, GID index 3"]);
}

#[test]
fn ends_of_unequal_mtu() {
    // given a port with packets of 1024 bytes in a line of three, so that direct legs, entry legs and trunks use it
    let ran = Run::new("--shape line --nodes 4 --sizes 0,4,300K --iters 2 --collective all-to-all --timeout 60")
        .fault("mtu=10.200.0.6 1024")
        .run();
    // then all is right with the smaller, and the end that is in the way says so once, with both values
    assert_eq!(ran.status(), Some(0), "{}", ran.told());
    let words = [
        "node node2",
        "between 10.200.0.6 (RDMA MTU 1024) and 10.200.0.5 (RDMA MTU 4096)",
        "lower rate",
        "ip link set",
    ];
    ran.line("mesh[W20]", &words);
    assert_eq!(ran.lines("mesh[W20]").len(), 1, "{}", ran.told());
}

#[test]
fn a_gid_that_moves_between_start_and_connection() {
    each_node("moves").run().passed();
}

#[test]
fn a_gid_that_moves_in_the_middle_of_connecting() {
    each_node("moves_late").run().passed();
}

#[test]
fn traffic_class_and_service_level_reach_the_queue_pairs() {
    // given none, NCCL's, or settings, which win
    each_node("classes").env("MESH_TEST_CLASSES=-1 0 0").run().passed();
    each_node("classes").env("MESH_TEST_CLASSES=96 96 0").run().passed();
    let set = ["MESH_TEST_CLASSES=96 106 3", "NCCL_MESH_TRAFFIC_CLASS=106", "NCCL_MESH_SERVICE_LEVEL=3"];
    each_node("classes").envs(&set).run().passed();
}

#[test]
fn a_forced_gid_index_must_be_the_ports() {
    // given indices of another GID, of the right one as RoCE v1, and of nothing
    for (index, holds) in [("1", "fe80::"), ("2", "::ffff:10.200.0."), ("9", "empty")] {
        let ran = pair().env(&format!("NCCL_MESH_GID_INDEX={index}")).run();
        let entry =
            format!("NCCL_MESH_GID_INDEX={index}, but entry {index} of the GID table of port 1 of mesh0 is {holds}");
        ran.refused_by_any("E16", &[&entry, "the RoCE v2 GID of 10.200.0.", "which is at 3", "unset it"]);
    }
    // and the right one is as good as none
    let ran = pair().env("NCCL_MESH_GID_INDEX=3").run();
    assert_eq!(ran.status(), Some(0), "{}", ran.told());
}

#[test]
fn a_port_that_is_slower_than_the_topology_says() {
    let text =
        stage::topology(&["10.200.0.1/30"], &["10.200.0.2/30"]).replacen("address", "speed = \"200G\"\naddress", 1);
    let file = Scratch::new("speed.toml", &text);
    // given 100 Gbit/s ports, one of which ought to have 200, then that one is told, and NCCL hears what there is
    let ran = each_node("starts").env(&format!("NCCL_MESH_TOPOLOGY={file}")).run().passed();
    ran.line("mesh[W25]", &["node node0: 10.200.0.1 (mesh0 port 1) runs at 100000 Mbit/s", "says 200000", "PCIe"]);
    assert_eq!(ran.lines("mesh[W25]").len(), 1, "{}", ran.told());
    assert_eq!(ran.lines("speed 100000").len(), 2, "{}", ran.told());
}
