//! What is left of a run: nothing, however it ends.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::COMMAND;
use crate::stage::{ip, job, line, may, namespaces, over};

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
    namespaces(run).into_iter().flat_map(pids).collect()
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
    while !namespaces(run).is_empty() || processes.iter().any(lives) || folders() > 0 {
        let left: Vec<_> = processes.iter().filter(|process| lives(process)).collect();
        assert!(began.elapsed() < limit, "{:?}, {left:?} and {} folders are left", namespaces(run), folders());
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
        assert_eq!(namespaces(run), [""; 0]);
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
