//! Addresses, subnets and cables that do not go together: one address on two nodes, a subnet on two ports of one, three ends, a cable in the
//! wrong port.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Ran, nccl_mesh_with, plugin_file};
use crate::netns::{ip, may};
use crate::stage::{Agent, Fabric, Folder, Host, all_find, links, warned_only_of};

/// A ring of three, and a subnet in which each node has a port, which a topology file may say: as a switch.
const RING_AND_SWITCH: [(&str, [&str; 3]); 3] = [
    ("node0", ["10.6.0.1/30", "10.6.2.2/30", "10.6.9.1/24"]),
    ("node1", ["10.6.0.2/30", "10.6.1.1/30", "10.6.9.2/24"]),
    ("node2", ["10.6.1.2/30", "10.6.2.1/30", "10.6.9.3/24"]),
];

#[test]
fn a_link_with_three_ends_is_left_out_and_collectives_go_by_the_others() {
    let folder = Folder::new();
    let port = |(n, address): (usize, &&str)| format!("[[node.port]]\ndevice = \"mesh{n}\"\naddress = \"{address}\"\n");
    let node = |(name, ports): &(&str, [&str; 3])| {
        format!("[[node]]\nname = \"{name}\"\n{}", ports.iter().enumerate().map(port).collect::<String>())
    };
    let nodes: String = RING_AND_SWITCH.iter().map(node).collect();
    let file = folder.path.join("switch.toml");
    std::fs::write(&file, format!("schema = 1\n[[switch]]\nsubnet = \"10.6.9.0/24\"\n{nodes}")).expect("a file");
    for fabric in [&[][..], &["--netns"]] {
        if fabric.contains(&"--netns") && !may() {
            continue;
        }
        // when a collective runs among nodes that find one another, and are not told of the switch
        let (plugin, file) = (plugin_file(), file.to_string_lossy().into_owned());
        let mut words = vec!["sim", "run", "--plugin", plugin.to_str().expect("plain"), "--topology", &file];
        words.extend(
            "--discover --env NCCL_MESH_SWITCHES= --collective all-reduce --sizes 4,64K --idle 1 --json".split(' '),
        );
        words.extend(fabric);
        let ran = nccl_mesh_with(&words, &[], Duration::from_secs(60)).leaves_nothing().ends(0);
        // then it goes by the ring alone, over the cables between neighbours
        let rows = || ran.stdout.lines().filter(|line| line.contains("\"worst_link\""));
        assert!(rows().count() == 2 && !rows().any(|row| row.contains("10.6.9.")), "{}", ran.told());
        assert!(rows().all(|row| row.contains("\"wrong_bytes\":0") && row.contains("\"relayed_bytes\":0")));
        // and each node says once what it hears on its port, and once what all know
        for (name, ports) in RING_AND_SWITCH {
            let own = ports[2].trim_end_matches("/24");
            said_once(&ran, &[&format!("mesh[W68] node {name}: {own}: both"), "a cable has two ends"]);
            said_once(&ran, &[&format!("mesh[W68] node {name}: 10.6.9.0/24 is on more than two ports"), "not used"]);
        }
    }
}

#[track_caller]
fn said_once(ran: &Ran, facts: &[&str]) {
    let lines = ran.lines_with(facts[0]);
    assert!(lines.len() == 1 && facts.iter().all(|fact| lines[0].contains(fact)), "{facts:?}: {}", ran.told());
}

#[test]
fn a_subnet_on_two_ports_of_a_node_is_left_out_at_both() {
    // given a node with a wider prefix length on one port than its cable has, so that the subnet of another lies in it
    let lost = [["10.6.0.1", "10.6.0.2"], ["10.6.0.5", "10.6.0.6"]];
    let kept = [["10.6.1.1", "10.6.1.2"], ["10.6.2.1", "10.6.2.2"]];
    let fabric = Fabric::new(&[&lost[..], &kept].concat());
    let a = fabric.agent("a", "10.6.0.1/30,10.6.0.5/29,10.6.1.1/30");
    let b = fabric.agent("b", "10.6.0.2/30,10.6.2.1/30");
    let c = fabric.agent("c", "10.6.0.6/29,10.6.1.2/30,10.6.2.2/30");
    // then neither of the two makes a link, and all the others do
    for seen in all_find(&[&a, &b, &c], &links(&kept)) {
        assert!(seen.status == Some(1) && seen.text.contains("left out: ports 10.6.0.1 and 10.6.0.5 of a"), "{seen:?}");
    }
    // and each node says it once
    for node in [&a, &b, &c] {
        node.said_once("mesh[W71]", &["10.6.0.1", "10.6.0.5", " of a "]);
    }
    warned_only_of(&[&a, &b, &c], &["mesh[W71]"]);
    for node in [a, b, c] {
        node.ends();
    }
}

/// Cables of three nodes a, b, c, the last of which joins ports of a and c that were meant for others.
const WRONG: [[(usize, &str, &str); 2]; 3] = [
    [(0, "right", "10.6.0.1/30"), (1, "left", "10.6.0.2/30")],
    [(1, "right", "10.6.1.1/30"), (2, "left", "10.6.1.2/30")],
    [(0, "wrong", "10.6.2.1/30"), (2, "wrong", "10.6.3.2/24")],
];

#[test]
fn a_cable_in_the_wrong_port_makes_no_link_and_both_ends_say_so() {
    let bare = |end: (usize, &'static str, &'static str)| end.2.split('/').next().unwrap_or_default();
    let fabric = Fabric::new(&WRONG.map(|ends| ends.map(bare)));
    let ports =
        |node| WRONG.iter().flatten().filter(|end| end.0 == node).map(|end| end.2).collect::<Vec<_>>().join(",");
    wrong_port(["a", "b", "c"].map(|name| fabric.agent(name, &ports(usize::from(name.as_bytes()[0] - b'a')))));
}

#[test]
fn on_the_kernels_interfaces_a_cable_in_the_wrong_port_is_seen_as_well() {
    if !may() {
        return;
    }
    let spaces = Spaces::new(3);
    for ends in WRONG {
        spaces.cable(ends);
    }
    let folder = Folder::new();
    wrong_port([("a", 0), ("b", 1), ("c", 2)].map(|(name, n)| spaces.agent(&folder, name, n)));
}

#[track_caller]
fn wrong_port([a, b, c]: [Agent; 3]) {
    // then it makes no link, the others do, and who stands at its ends says with whom he is joined, once
    all_find(&[&a, &b, &c], &links(&[["10.6.0.1", "10.6.0.2"], ["10.6.1.1", "10.6.1.2"]]));
    a.says("mesh[W64]");
    c.says("mesh[W64]");
    a.said_once("mesh[W64]", &["10.6.2.1/30", "c at 10.6.3.2/24"]);
    c.said_once("mesh[W64]", &["10.6.3.2/24", "a at 10.6.2.1/30"]);
    warned_only_of(&[&a, &b, &c], &["mesh[W64]"]);
    assert!(b.lines("mesh[W64]").is_empty(), "{}", b.log());
    for node in [a, b, c] {
        node.ends();
    }
}

/// Network namespaces, which go with the value. Their names are those of a run of this process, so that a later run removes what is left.
struct Spaces(Vec<String>);

impl Spaces {
    fn new(count: u32) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let first = MADE.fetch_add(count, Ordering::Relaxed);
        let names = (first..first + count).map(|n| format!("nccl-mesh-{}-node{n}", std::process::id()));
        let spaces = Self(names.collect());
        for name in &spaces.0 {
            spaces.ip(&format!("netns add {name}"));
            spaces.ip(&format!("-n {name} link set lo up"));
            // A kernel that looks whether it would answer by the same way drops what comes from a wrong address, and nobody can say so.
            let heard = "for of in all default; do echo 0 > /proc/sys/net/ipv4/conf/$of/rp_filter; done";
            let set = Command::new("ip").args(["netns", "exec", name, "sh", "-c", heard]).status().expect("ip");
            assert!(set.success());
        }
        spaces
    }

    #[track_caller]
    fn ip(&self, words: &str) {
        ip(words).unwrap_or_else(|why| panic!("ip {words}: {why}"));
    }

    fn port(&self, node: usize, netdev: &str, address: &str) {
        self.ip(&format!("-n {} addr add {address} dev {netdev}", self.0[node]));
        self.ip(&format!("-n {} link set {netdev} up", self.0[node]));
    }

    /// A daemon that is told no ports.
    fn agent(&self, folder: &Folder, name: &str, node: usize) -> Agent {
        Host::new(folder, name, &["ip", "netns", "exec", &self.0[node]]).agent()
    }

    fn cable(&self, ends: [(usize, &str, &str); 2]) {
        let [(a, one, _), (b, two, _)] = ends;
        let (a, b) = (&self.0[a], &self.0[b]);
        self.ip(&format!("link add name {one} netns {a} type veth peer name {two} netns {b}"));
        for (node, netdev, address) in ends {
            self.port(node, netdev, address);
        }
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

#[test]
fn an_address_on_two_nodes_is_left_out_on_both() {
    if !may() {
        return;
    }
    // given a ring of four hosts, the last of which has an interface with an address of the second
    let spaces = Spaces::new(4);
    let ends = |n: usize| [format!("10.6.{n}.1/30"), format!("10.6.{n}.2/30")];
    for n in 0..4 {
        let [one, two] = &ends(n);
        spaces.cable([(n, "right", one), ((n + 1) % 4, "left", two)]);
    }
    spaces.ip(&format!("-n {0} link add name spare type veth peer name nowhere netns {0}", spaces.0[3]));
    spaces.ip(&format!("-n {} link set nowhere up", spaces.0[3]));
    spaces.port(3, "spare", "10.6.0.2/30");
    // when each has a daemon that is told no ports
    let folder = Folder::new();
    let agents = [0, 1, 2, 3].map(|n| spaces.agent(&folder, &format!("host{n}"), n));
    // then the cable whose address it is makes no link, and the others do
    let all = agents.each_ref();
    let kept = [["10.6.1.1", "10.6.1.2"], ["10.6.2.1", "10.6.2.2"], ["10.6.3.1", "10.6.3.2"]];
    for seen in all_find(&all, &links(&kept)) {
        assert_eq!((seen.status, seen.nodes.len()), (Some(1), 4), "{}", seen.text);
        assert!(seen.text.contains("left out: 10.6.0.2 is on both host"), "{}", seen.text);
    }
    // and each node says it once
    for node in all {
        node.said_once("mesh[W66]", &["10.6.0.2", "host1", "host3"]);
    }
    warned_only_of(&all, &["mesh[W66]"]);
    for node in agents {
        node.ends();
    }
}
