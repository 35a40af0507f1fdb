//! `nccl-mesh sim run --netns`: nodes in network namespaces of their own, on the kernel's interfaces, with links of both kinds.
//!
//! Needs root and iproute2; where they are missing each test says that it is skipped and why. Builds soft verbs first.
#![cfg(feature = "cli")]

#[path = "netns/cables.rs"]
mod cables;
mod common;
#[path = "netns/ending.rs"]
mod ending;
#[path = "netns/stage.rs"]
mod stage;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::COMMAND;
use stage::{job, kinds, may, over, relayed, rows};

/// A file that goes with its value.
struct File(PathBuf);

impl File {
    fn with(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nccl-mesh-netns-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A ring of three whose cables have these subnets and MTUs: the two addresses, and what follows them.
fn ring_of_three(cables: [[&str; 3]; 3], mtu: [u32; 3]) -> String {
    let mut text = "schema = 1\n".to_owned();
    for node in 0..3 {
        text += &format!("[[node]]\nname = \"host-{node}\"\n");
        let before = (node + 2) % 3;
        for (address, cable) in [(cables[node][0], node), (cables[before][1], before)] {
            let (prefix, mtu) = (cables[cable][2], mtu[cable]);
            text += &format!("[[node.port]]\ndevice = \"p{cable}\"\naddress = \"{address}/{prefix}\"\nmtu = {mtu}\n");
        }
    }
    text
}

#[test]
fn every_collective_is_right_on_rings() {
    if !may() {
        return;
    }
    for (kind, link) in kinds() {
        for nodes in [3, 4] {
            for what in [
                "all-reduce --algo ring",
                "all-reduce --algo tree",
                "all-gather --algo pat",
                "reduce-scatter --algo pat",
                "broadcast",
                "all-to-all",
                "send-recv",
            ] {
                let rows = rows(&format!(
                    "{link} --shape ring --nodes {nodes} --collective {what} --sizes 0,4,8K,100K --iters 2"
                ));
                assert!(rows.iter().all(|row| row["link"] == kind), "{rows:?}");
                // Neighbours have cables in both; only a ring of four has nodes that are none.
                let neighbours = nodes == 3 || what.contains("ring") || what == "broadcast";
                assert_eq!(relayed(&rows) > 0, !neighbours, "{kind} {nodes} {what}");
            }
        }
    }
}

#[test]
fn two_rails_lines_and_a_switch_are_right() {
    if !may() {
        return;
    }
    for (_, link) in kinds() {
        let rails = rows(&format!(
            "{link} --shape ring --nodes 3 --rails 2 --collective send-recv --distance 1 --sizes 4M --iters 1"
        ));
        // A large message uses both rails.
        let bytes = |field: &str| rails[0][field].as_u64().expect("a number");
        assert!(bytes("worst_link_bytes") <= bytes("direct_bytes") / 4, "{rails:?}");
        assert!(
            relayed(&rows(&format!("{link} --shape line --nodes 4 --collective all-to-all --sizes 64K --iters 1"))) > 0
        );
        assert_eq!(
            relayed(&rows(&format!("{link} --shape switch --nodes 3 --collective all-to-all --sizes 64K --iters 1"))),
            0
        );
    }
}

#[test]
fn prefixes_and_mtu_are_those_of_the_topology() {
    if !may() {
        return;
    }
    let plans = [
        (
            "31",
            [["10.1.0.0", "10.1.0.1", "31"], ["10.1.0.2", "10.1.0.3", "31"], ["10.1.0.4", "10.1.0.5", "31"]],
            [9000; 3],
        ),
        (
            "24",
            [["10.1.0.1", "10.1.0.2", "24"], ["10.1.1.1", "10.1.1.2", "24"], ["10.1.2.1", "10.1.2.2", "24"]],
            [1500; 3],
        ),
        // one of them where the management network would be
        (
            "mixed",
            [["10.1.0.0", "10.1.0.1", "31"], ["198.18.0.5", "198.18.0.6", "30"], ["172.16.9.7", "172.16.200.1", "16"]],
            [9000, 1500, 4200],
        ),
    ];
    for (name, cables, mtu) in plans {
        // given a ring with such an address plan
        let file = File::with(name, &ring_of_three(cables, mtu));
        let topology = format!("--topology {}", file.0.display());
        // when a node looks, then it has the addresses with their prefixes and the MTU, beside the one for management
        let ran = over(job(&format!("{topology} --no-plugin"), "ip -o -4 addr; cat /sys/class/net/port*/mtu").ends(0));
        for (cable, [a, b, prefix]) in cables.iter().enumerate() {
            for (node, address) in [(cable, a), ((cable + 1) % 3, b)] {
                let own = ran.lines_with(&format!(" {address}/{prefix} "));
                assert_eq!(own.len(), 1, "{address}: {}", ran.told());
                assert!(own[0].starts_with(&format!("host-{node}: ")) && own[0].contains(" port"), "{}", ran.told());
            }
            assert_eq!(ran.lines_with("mgmt0").len(), 3, "{}", ran.told());
            let same = mtu.iter().filter(|other| **other == mtu[cable]).count();
            let seen = ran.stdout.lines().filter(|line| line.ends_with(&format!(": {}", mtu[cable]))).count();
            assert_eq!(seen, 2 * same, "{}", ran.told());
        }
        // and links of both kinds work over them
        for (_, link) in kinds() {
            rows(&format!("{link} {topology} --algo tree --sizes 4,100K --iters 1"));
        }
    }
}

#[test]
fn a_command_meets_the_others_over_the_management_network() {
    if !may() {
        return;
    }
    // given a ring of three, when each node says what it was told, then all know the first one's address there
    let ran = over(job("--nodes 3 --rank-order 1,0,2", "echo $RANK at $MASTER_ADDR by $NCCL_SOCKET_IFNAME").ends(0));
    assert_eq!(ran.lines_with(" at 198.18.0.2 by mgmt0").len(), 3, "{}", ran.told());
    // and the far end of a line reaches it there, over no cable: a host that is reached refuses a port that nobody listens on
    let script =
        "[ $RANK = 2 ] || exec sleep 1; ip -o route get $MASTER_ADDR; bash -c 'exec 3<>/dev/tcp/$MASTER_ADDR/9' 2>&1";
    let ran = over(job("--shape line --nodes 3", script));
    assert_eq!(ran.lines_with("node2: 198.18.0.1 dev mgmt0 src 198.18.0.3").len(), 1, "{}", ran.told());
    assert!(!ran.lines_with("Connection refused").is_empty(), "{}", ran.told());
}

#[test]
fn runs_at_the_same_time_do_not_disturb_each_other_and_start_soon() {
    if !may() {
        return;
    }
    // given two runs at once on the same addresses, with links of both kinds
    let run = |link: String| {
        move || {
            let began = Instant::now();
            let rows = rows(&format!("{link} --shape ring --nodes 6 --collective all-to-all --sizes 8K --iters 2"));
            assert!(relayed(&rows) > 0);
            began.elapsed()
        }
    };
    let threads = kinds().map(|(_, link)| std::thread::spawn(run(link)));
    // then both are right, and neither takes long to start
    for took in threads.map(|thread| thread.join().expect("both are right")) {
        println!("a ring of six from start to end: {took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn without_root_one_line_says_what_to_do() {
    // given somebody without rights: nobody, if this is root and can become that
    let copy = std::env::temp_dir().join(format!("nccl-mesh-nobody-{}", std::process::id()));
    std::fs::copy(COMMAND, &copy).expect("a temporary file");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]).arg(&copy);
    let output = command.args(["sim", "run", "--netns", "--no-plugin", "--nodes", "3", "--", "true"]).output();
    let _ = std::fs::remove_file(&copy);
    let Ok(output) = output else { return println!("SKIPPED: no setpriv to become nobody with") };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if told.starts_with("setpriv:") {
        return println!("SKIPPED: {}", told.trim());
    }
    // then the command says in one line what is missing and what to do
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("CAP_SYS_ADMIN") && told.contains("sudo"), "{told}");
}
