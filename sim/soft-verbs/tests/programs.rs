//! Unmodified programs of rdma-core and perftest on the library. Skipped, and said so, where they are not installed
//! (Debian: `apt-get install ibverbs-utils perftest`).

#![allow(unsafe_code, reason = "the support module drives a C library")]

mod support;

use std::net::TcpListener;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use support::{Scene, finish, text};

const FABRIC: &str = "port a m0 10.0.0.1 100G\nport b m0 10.0.0.2 100G\ncable 10.0.0.1 10.0.0.2\n\
    port b m1 10.0.1.2 25G\nport c m0 10.0.1.3 25G\ncable 10.0.1.2 10.0.1.3\n";

fn installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().expect("sh runs");
    if !found.status.success() {
        println!("skipped: {program} is not installed");
    }
    found.status.success()
}

/// A TCP port that is free now, below those that the kernel gives to others meanwhile.
fn free_port() -> String {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(31).wrapping_add(SERIAL.fetch_add(1, Ordering::Relaxed));
        let port = 18_000 + number % 10_000;
        if TcpListener::bind(("0.0.0.0", port as u16)).is_ok() {
            return port.to_string();
        }
    }
}

/// Waits until a server listens, looking from outside: connecting would take the one connection it accepts.
fn listening(mut server: Child, port: &str) -> Child {
    let wanted = format!(":{:04X} ", port.parse::<u16>().expect("a number"));
    for _ in 0..3000 {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
        // Local address, remote address, state 0A: listening.
        let listens = |line: &str| line.contains(&wanted) && line.contains(" 0A ");
        if tables.iter().any(|table| table.lines().any(listens)) {
            return server;
        }
        if server.try_wait().expect("waits").is_some() {
            panic!("the server ended before it listened: {}", text(&finish(server)));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the server does not listen");
}

/// Runs a program as server on node a and as client on node b; returns both outputs and whether both succeeded.
fn both(scene: &Scene, program: &str, arguments: &[&str], client_device: &str) -> (String, String, bool) {
    let port = free_port();
    let with = |node: &str, device: &str| {
        let mut command = scene.program(program, node);
        command.args(["-p", &port, "-d", device]).args(arguments);
        command
    };
    let server = listening(with("a", "m0").spawn().expect("starts"), &port);
    let client = with("b", client_device).arg("127.0.0.1").spawn().expect("starts");
    let (client, server) = (finish(client), finish(server));
    (text(&client), text(&server), client.status.success() && server.status.success())
}

#[test]
fn devices_are_listed_and_described() {
    if !installed("ibv_devinfo") {
        return;
    }
    // given node b with two devices, when listed and described
    let scene = Scene::new(FABRIC);
    let list = text(&finish(scene.program("ibv_devices", "b").spawn().expect("starts")));
    let output = finish(scene.program("ibv_devinfo", "b").arg("-v").spawn().expect("starts"));
    let info = text(&output);
    // then both are there, with their GIDs
    assert!(output.status.success(), "{info}");
    assert!(list.contains("m0") && list.contains("m1"), "{list}");
    assert_eq!(info.matches("PORT_ACTIVE").count(), 2, "{info}");
    for part in ["::ffff:10.0.0.2, RoCE v2", "::ffff:10.0.1.2, RoCE v2", "link_layer:\t\tEthernet", "4096 (5)"] {
        assert!(info.contains(part), "no {part:?} in {info}");
    }
    // and without a fabric there are none
    let mut without = scene.program("ibv_devinfo", "b");
    let output = finish(without.env_remove("MESH_SOFT_VERBS").spawn().expect("starts"));
    assert!(!output.status.success() && text(&output).contains("No IB devices"), "{}", text(&output));
}

#[test]
fn ping_pong_polling_sleeping_and_in_the_newer_way() {
    if !installed("ibv_rc_pingpong") {
        return;
    }
    let scene = Scene::new(FABRIC);
    for way in [&["-c"][..], &["-e"], &["-N"], &["-s", "70000", "-m", "1024"]] {
        // given a cable, when both ends play, then a thousand round trips are done
        let arguments = [&["-g", "3", "-n", "500"], way].concat();
        let (client, server, fine) = both(&scene, "ibv_rc_pingpong", &arguments, "m0");
        assert!(fine && client.contains("500 iters"), "{way:?}: {client}{server}");
        assert!(!client.contains("invalid data") && !server.contains("invalid data"), "{client}{server}");
    }
    // given the wrong cable, then the change to ready-to-receive is refused
    let (client, server, fine) = both(&scene, "ibv_rc_pingpong", &["-g", "3"], "m1");
    assert!(!fine && format!("{client}{server}").contains("Failed to modify QP to RTR"), "{client}{server}");
}

#[test]
fn ping_pong_on_the_clock_engine() {
    if !installed("ibv_rc_pingpong") {
        return;
    }
    // given an engine with rates and a latency, when both ends play, polling and asleep, then all messages arrive
    let scene = Scene::new(&format!("{FABRIC}engine clock\nlatency 2000\nstrict on\n"));
    for way in ["-c", "-e"] {
        let (client, server, fine) = both(&scene, "ibv_rc_pingpong", &["-g", "3", "-n", "200", way], "m0");
        assert!(fine && client.contains("200 iters"), "{way}: {client}{server}");
    }
}

#[test]
fn perftest_measures() {
    if !installed("ib_write_bw") {
        return;
    }
    let scene = Scene::new(FABRIC);
    let runs: &[(&str, &[&str])] = &[
        ("ib_write_bw", &["-s", "65536", "-n", "500"]),
        ("ib_write_bw", &["-s", "4096", "-n", "500", "-q", "4", "-b"]),
        ("ib_write_lat", &["-s", "8", "-n", "500"]),
        ("ib_send_bw", &["-s", "65536", "-n", "300"]),
        ("ib_send_lat", &["-s", "64", "-n", "200", "-e"]),
        ("ib_read_bw", &["-s", "65536", "-n", "300"]),
        ("ib_atomic_lat", &["-n", "100"]),
    ];
    for (program, arguments) in runs {
        // given a cable, when the program measures, then it ends with a row of figures
        let arguments = [&["-F"], *arguments].concat();
        let (client, server, fine) = both(&scene, program, &arguments, "m0");
        assert!(fine, "{program} {arguments:?}: {client}{server}");
        let row = |line: &&str| line.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).count() >= 5;
        let row = client.lines().find(row);
        println!("{program} {arguments:?}: {}", row.unwrap_or_else(|| panic!("no row: {client}")));
    }
}
