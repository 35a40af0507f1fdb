//! What the tests of network namespaces share: whether they can be had, runs with links of both kinds, and what is left of them.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::common::verbs::soft_verbs;
use crate::common::{Ran, nccl_mesh, nccl_mesh_with, plugin_file};

/// Whether this user of this machine may make namespaces; says so if not.
pub(crate) fn may() -> bool {
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

pub(crate) fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// What follows `sim run` for links of both kinds.
pub(crate) fn kinds() -> [(&'static str, String); 2] {
    [("tcp", "--link tcp".to_owned()), ("verbs", format!("--link verbs --soft-verbs {}", soft_verbs().display()))]
}

pub(crate) fn line(words: &str) -> String {
    format!("sim run --netns --plugin {} {words}", plugin_file().display())
}

/// Names of the namespaces of a run.
pub(crate) fn namespaces(run: u32) -> Vec<String> {
    let names = std::fs::read_dir("/var/run/netns").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("nccl-mesh-{run}-"))).collect()
}

/// Neither processes nor namespaces are left.
#[track_caller]
pub(crate) fn over(ran: Ran) -> Ran {
    let ran = ran.leaves_nothing();
    assert_eq!(namespaces(ran.process), [""; 0], "{}", ran.told());
    ran
}

/// Rows of a run that must be right in every byte.
#[track_caller]
pub(crate) fn rows(words: &str) -> Vec<Value> {
    let ran = over(nccl_mesh(&line(&format!("--json {words}"))).ends(0));
    let rows: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!rows.is_empty(), "{}", ran.told());
    for row in &rows {
        assert_eq!(row["wrong_bytes"], 0, "{row}");
        assert!(row["size_bytes"] == 0 || row["checked_bytes"].as_u64() > Some(0), "nothing was checked: {row}");
    }
    rows
}

pub(crate) fn relayed(rows: &[Value]) -> u64 {
    rows.iter().filter_map(|row| row["relayed_bytes"].as_u64()).sum()
}

/// A shell's script once a node.
#[track_caller]
pub(crate) fn job(options: &str, script: &str) -> Ran {
    let words = line(&format!("{options} -- sh -c"));
    let words: Vec<&str> = words.split_whitespace().chain([script]).collect();
    nccl_mesh_with(&words, &[], Duration::from_secs(120))
}
