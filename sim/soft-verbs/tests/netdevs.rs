//! Ports that have the carrier of a netdev, in a network namespace with a pair of veths. Needs root and `ip`; skipped without.

#![allow(unsafe_code, reason = "drives a C library")]

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use mesh_soft_verbs::abi::*;
use support::Scene;
use support::ends::{End, Options, Verbs, pair};

const FABRIC: &str = "port a m0 10.0.0.1 100G\nport b m0 10.0.0.2 100G\ncable 10.0.0.1 10.0.0.2\n\
                      netdev 10.0.0.1 veth-a\nnetdev 10.0.0.2 veth-b\n";

/// A network namespace that goes with its value.
struct Namespace(String);

impl Namespace {
    /// With two veths that are up and joined; the error is why this user of this machine cannot have one.
    fn new() -> Result<Self, String> {
        let namespace = Self(format!("soft-verbs-test-{}", std::process::id()));
        ip(&["netns", "add", &namespace.0])?;
        let inside = |words: &str| {
            let words = format!("-n {} link {words}", namespace.0);
            ip(&words.split(' ').collect::<Vec<_>>()).expect("what the owner of a namespace may");
        };
        inside("add veth-a type veth peer veth-b");
        inside("set veth-a up");
        inside("set veth-b up");
        Ok(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.0]);
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

#[test]
#[ignore = "runs as a child of the other test"]
fn scenarios() {
    support::play(&[("pulled", pulled)]);
}

#[test]
fn ports_follow_their_netdevs() {
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(reason) => return println!("SKIPPED: no network namespace: {reason}"),
    };
    let scene = Scene::new(FABRIC);
    let mut command = scene.program("ip", "a,b");
    command.args(["netns", "exec", &namespace.0]).arg(std::env::current_exe().expect("own path"));
    command.args(["--exact", "scenarios", "--ignored", "--nocapture"]).env("SCENARIO", "pulled");
    support::succeed("pulled", command.spawn().expect("starts"));
}

fn states(a: &End<'_>, b: &End<'_>) -> [u32; 2] {
    [a.port_state(), b.port_state()]
}

/// Waits until both ports are in this state.
fn both_become(a: &End<'_>, b: &End<'_>, state: u32) {
    let start = Instant::now();
    while states(a, b) != [state; 2] {
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}, not {state}", states(a, b));
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn pulled() {
    // given two connected ends whose netdevs are up
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 64, Options::default());
    assert_eq!(states(&a, &b), [IBV_PORT_ACTIVE; 2]);
    for _ in 0..2 {
        // when one netdev is set down, then both ports lose their carrier, and their devices tell
        ip(&["link", "set", "veth-a", "down"]).expect("root here");
        both_become(&a, &b, IBV_PORT_DOWN);
        assert_eq!([a.event().event_type, b.event().event_type], [IBV_EVENT_PORT_ERR; 2]);
        // and when it is up again, so are they
        ip(&["link", "set", "veth-a", "up"]).expect("root here");
        both_become(&a, &b, IBV_PORT_ACTIVE);
        assert_eq!([a.event().event_type, b.event().event_type], [IBV_EVENT_PORT_ACTIVE; 2]);
    }
}
