//! Several jobs and daemons, with programs in their place: what each is told, and what their ends mean for the run.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use super::tests::{Journal, args, job};
use super::*;

fn ending(job: usize, millis: u64, killed: bool) -> JobEnding {
    JobEnding { job, after: Duration::from_millis(millis), killed }
}

#[test]
fn every_job_has_its_own_processes_number_and_files() {
    // given two jobs on a ring of three, that write down what they are told
    let journal = Journal::new("jobs");
    let script = format!(
        "echo ${{NCCL_MESH_JOB##*-}} $RANK $WORLD_SIZE $NCCL_MESH_NODE ${{NCCL_MESH_STATS_FILE##*/}} >> {}; \
         echo '{{\"direct_bytes\": 5}}' > $NCCL_MESH_STATS_FILE",
        journal.path()
    );
    let mut out = Vec::new();
    // when they run
    let report = run(&RunArgs { jobs: 2, json: true, ..job(&script) }, &mut out).expect("begins");
    assert_eq!((report.problems(), report.status()), (&[][..], 0));
    // then each node had a process of each
    let expected: Vec<String> =
        (0..6).map(|n| (n / 3, n % 3)).map(|(job, n)| format!("{job} {n} 3 node{n} node{n}-{job}.json")).collect();
    assert_eq!(journal.lines(), expected);
    // and rows say of which job they are, one job after the other
    let rows = String::from_utf8(out).expect("text");
    let jobs: Vec<bool> = rows.lines().map(|row| row.contains("\"job\":1")).collect();
    assert_eq!(jobs, [false, false, false, true, true, true], "{rows}");
    assert!(rows.lines().all(|row| row.contains("\"direct_bytes\":5")), "{rows}");
}

#[test]
fn a_job_that_fails_is_named_by_its_number() {
    let script = "test \"${NCCL_MESH_JOB##*-} $RANK\" != '1 2' || exit 3";
    let report = run(&RunArgs { jobs: 2, ..job(script) }, &mut Vec::new()).expect("begins");
    assert_eq!((report.problems(), report.status()), (&["job 1: node2: exit status 3".to_owned()][..], 3));
}

#[test]
fn a_job_that_is_killed_or_asked_to_end_is_not_missed() {
    for killed in [true, false] {
        // given two jobs, of which the second would last for ever, and says so when it is asked to end
        let journal = Journal::new(if killed { "killed" } else { "asked" });
        let script = format!(
            "trap 'echo asked >> {0}; exit 7' TERM; echo began >> {0}; test \"${{NCCL_MESH_JOB##*-}}\" = 0 || while :; do sleep 0.05; done",
            journal.path()
        );
        // when it is to end
        let started = Instant::now();
        let two = RunArgs { jobs: 2, endings: vec![ending(1, 800, killed)], ..job(&script) };
        let report = run(&two, &mut Vec::new()).expect("begins");
        // then it does, and the run has not failed
        assert_eq!((report.problems(), report.status()), (&[][..], 0));
        assert!(started.elapsed() < Duration::from_secs(20), "long before the limit");
        let asked = journal.lines().iter().filter(|line| *line == "asked").count();
        assert_eq!(asked, if killed { 0 } else { 3 });
    }
}

#[test]
fn a_job_that_is_not_there_cannot_end() {
    let error = run(&RunArgs { jobs: 2, endings: vec![ending(2, 100, true)], ..job("true") }, &mut Vec::new());
    assert!(error.expect_err("no such job").to_string().contains("no job 2: jobs are numbered from 0 to 1"));
}

/// Runs `script` as the daemon of every node.
fn with_daemons(script: &str, work: RunArgs) -> Result<Report, RunError> {
    let file =
        std::env::temp_dir().join(format!("nccl-mesh-daemon-{}-{:?}", std::process::id(), std::thread::current().id()));
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a temporary file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&file, mode).expect("its own");
    let node_program = vec![OsString::from(&file)];
    let report = run(&RunArgs { agents: Agents::All, node_program, ..work }, &mut Vec::new());
    std::fs::remove_file(&file).expect("its own");
    report
}

#[test]
fn a_daemon_that_ends_before_it_owns_its_node_is_named() {
    let error = with_daemons("test \"$1\" = agent && exit 4", args(job("true").work)).expect_err("no daemon");
    let text = error.to_string();
    assert!(text.contains("daemon") && text.contains("agent ended: exit status 4"), "{text}");
}
