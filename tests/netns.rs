//! `nccl-mesh sim run --netns`: nodes in network namespaces of their own, on the kernel's interfaces, with links of both kinds.
//!
//! Needs root and iproute2; where they are missing each test says that it is skipped and why. Builds soft verbs first.
#![cfg(feature = "cli")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::verbs::soft_verbs;
use common::{COMMAND, Ran, nccl_mesh, nccl_mesh_with, plugin_file};
use serde_json::Value;

/// Whether this user of this machine may make namespaces; says so if not.
fn may() -> bool {
    static REASON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let reason = REASON.get_or_init(|| {
        let name = format!("mesh-test-{}", std::process::id());
        let inside = |kind: &str| format!("-n {name} link add try-{kind} type {kind}");
        let tried =
            ip(&format!("netns add {name}")).and_then(|()| ip(&inside("veth"))).and_then(|()| ip(&inside("bridge")));
        let _ = ip(&format!("netns del {name}"));
        tried.err()
    });
    if let Some(reason) = reason {
        println!("SKIPPED: no network namespaces here: {reason}");
    }
    reason.is_none()
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// What follows `sim run` for links of both kinds.
fn kinds() -> [(&'static str, String); 2] {
    [("tcp", "--link tcp".to_owned()), ("verbs", format!("--link verbs --soft-verbs {}", soft_verbs().display()))]
}

fn line(words: &str) -> String {
    format!("sim run --netns --plugin {} {words}", plugin_file().display())
}

/// Names of the namespaces of a run, or of all runs that are gone.
fn namespaces(of: Option<u32>) -> Vec<String> {
    let names = std::fs::read_dir("/var/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let process = |name: &str| name.strip_prefix("nccl-mesh-")?.split('-').next()?.parse::<u32>().ok();
    let wanted = |name: &String| match of {
        Some(run) => process(name) == Some(run),
        None => process(name).is_some_and(|run| !Path::new(&format!("/proc/{run}")).exists()),
    };
    names.filter(wanted).collect()
}

/// Neither processes nor namespaces are left.
#[track_caller]
fn over(ran: Ran) -> Ran {
    let ran = ran.leaves_nothing();
    assert_eq!(namespaces(None), [""; 0], "{}", ran.told());
    ran
}

/// Rows of a run that must be right in every byte.
#[track_caller]
fn rows(words: &str) -> Vec<Value> {
    let ran = over(nccl_mesh(&line(&format!("--json {words}"))).ends(0));
    let rows: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!rows.is_empty(), "{}", ran.told());
    for row in &rows {
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        assert!(row["size_bytes"] == 0 || row["checked_bytes"].as_u64() > Some(0), "nothing was checked: {row}");
    }
    rows
}

fn relayed(rows: &[Value]) -> u64 {
    rows.iter().filter_map(|row| row["relayed_bytes"].as_u64()).sum()
}

/// A command once a node; its words must not hold quotes.
#[track_caller]
fn job(options: &str, script: &str) -> Ran {
    let words = line(&format!("{options} -- sh -c"));
    let words: Vec<&str> = words.split_whitespace().chain([script]).collect();
    nccl_mesh_with(&words, &[], Duration::from_secs(120))
}

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
    // and a node reaches it there, over no cable: nodes 0 and 2 of a line, through bash's own sockets
    let script = "if [ $RANK = 0 ]; then ip -o route get 198.18.0.3; else ip -o route get $MASTER_ADDR; fi";
    let ran = over(job("--shape line --nodes 3", script).ends(0));
    assert_eq!(ran.lines_with("dev mgmt0 src 198.18.0.").len(), 2, "{}", ran.told());
}

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

/// A run of a command that would last for ever, with children that nobody waits for.
fn endless() -> Child {
    let script = "sleep 601 & setsid sleep 602 & exec sleep 603";
    let words = line("--link tcp --nodes 3");
    let mut command = Command::new(COMMAND);
    command.args(words.split_whitespace()).args(["--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("starts");
    // Three sleeps a node, in the namespaces of three nodes.
    let deadline = Instant::now() + Duration::from_secs(20);
    while inside(child.id()).len() < 9 {
        assert!(Instant::now() < deadline, "only {:?} run", inside(child.id()));
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Processes in the namespaces of a run.
fn inside(run: u32) -> Vec<u32> {
    let pids = |name: String| {
        let output = Command::new("ip").args(["netns", "pids", &name]).output().expect("ip");
        String::from_utf8_lossy(&output.stdout)
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect::<Vec<_>>()
    };
    namespaces(Some(run)).into_iter().flat_map(pids).collect()
}

/// Waits for what `run` left to go, and panics if it takes longer than `limit`.
#[track_caller]
fn goes_within(limit: Duration, run: u32, processes: &[u32]) {
    let began = Instant::now();
    let lives = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    let folders = || {
        let all =
            ["/tmp", "/dev/shm"].into_iter().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("nccl-mesh-") && name.contains(&format!("-{run}-"))).count()
    };
    while !namespaces(Some(run)).is_empty() || processes.iter().any(lives) || folders() > 0 {
        let left: Vec<_> = processes.iter().filter(|process| lives(process)).collect();
        assert!(began.elapsed() < limit, "{:?}, {left:?} and {} folders are left", namespaces(Some(run)), folders());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn nothing_is_left_when_the_command_is_killed() {
    if !may() {
        return;
    }
    // given a run whose nodes started processes that are in no group and no session of theirs
    let mut child = endless();
    let (run, processes) = (child.id(), inside(child.id()));
    // when the command gets no chance to do anything
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
    // then all goes soon
    goes_within(Duration::from_secs(2), run, &processes);
}

#[test]
fn nothing_is_left_when_the_command_is_asked_to_end() {
    if !may() {
        return;
    }
    for signal in ["INT", "TERM"] {
        let mut child = endless();
        let (run, processes) = (child.id(), inside(child.id()));
        let kill = Command::new("sh").args(["-c", &format!("kill -{signal} {run}")]).status().expect("a shell");
        assert!(kill.success());
        assert!(child.wait().expect("it is ours").code().is_some_and(|code| code > 128), "by itself");
        // it has waited for all, but dead processes may take a moment to go
        assert_eq!(namespaces(Some(run)), [""; 0]);
        goes_within(Duration::from_secs(2), run, &processes);
    }
    // nor when its time is over
    over(job("--nodes 3 --timeout 1", "sleep 600").ends(124));
}

#[test]
fn what_a_run_and_its_keeper_left_goes_with_the_next() {
    if !may() {
        return;
    }
    // given a namespace of a run that is no process any more, and one of somebody else's
    let dead = (2..).find(|process| !Path::new(&format!("/proc/{process}")).exists()).expect("a free number");
    let (left, others) = (format!("nccl-mesh-{dead}-node0"), format!("mesh-test-others-{}", std::process::id()));
    ip(&format!("netns add {left}")).expect("root");
    ip(&format!("netns add {others}")).expect("root");
    // when another run begins, then the first goes and the other stays
    let ran = job("--nodes 3 --no-plugin", "true");
    let there = Path::new("/var/run/netns").join(&others).exists();
    ip(&format!("netns del {others}")).expect("root");
    over(ran.ends(0));
    assert!(there && !Path::new("/var/run/netns").join(&left).exists());
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
