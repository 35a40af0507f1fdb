//! Several processes: data between them, sleeping and waking, cables that are cut, processes that are killed.

#![allow(unsafe_code, reason = "drives a C library")]

mod support;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use mesh_soft_verbs::abi::*;
use mesh_soft_verbs::control::{Control, ControlError};
use support::ends::{Address, End, Options, Verbs, write_to};
use support::{Scene, succeed};

const FABRIC: &str = "port a m0 10.0.0.1 100G\nport b m0 10.0.0.2 100G\ncable 10.0.0.1 10.0.0.2\n";
const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

const SCENARIOS: &[(&str, fn())] = &[
    ("sender", sender),
    ("receiver", receiver),
    ("poller_of_memory", poller_of_memory),
    ("writer_of_memory", writer_of_memory),
    ("idle", idle),
    ("survivor", || survivor(0)),
    ("survivor_with_data", || survivor(4096)),
    ("victim_of_the_cable", victim_of_the_cable),
];

#[test]
#[ignore = "runs as a child of the other tests"]
fn scenarios() {
    support::play(SCENARIOS);
}

fn scene_folder() -> PathBuf {
    std::env::var_os("SCENE").expect("set by the parent").into()
}

/// Leaves a text for other processes; it appears whole.
fn tell(folder: &Path, name: &str, text: &str) {
    let scratch = folder.join(format!("{name}.part"));
    std::fs::write(&scratch, text).expect("written");
    std::fs::rename(&scratch, folder.join(name)).expect("renamed");
}

/// Waits for such a text.
fn hear(folder: &Path, name: &str) -> String {
    let start = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(folder.join(name)) {
            return text;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nobody told {name}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Exchanges addresses with the process that plays `other`.
fn meet(end: &End<'_>, own: &str, other: &str) -> Address {
    let Address { qpn, gid, address, rkey } = end.address();
    let [.., a, b, c, d] = gid.raw;
    tell(&scene_folder(), own, &format!("{qpn} {a} {b} {c} {d} {address} {rkey}"));
    let words: Vec<u64> = hear(&scene_folder(), other).split(' ').map(|word| word.parse().expect("a number")).collect();
    let ip = Ipv4Addr::new(words[1] as u8, words[2] as u8, words[3] as u8, words[4] as u8);
    let gid = Gid { raw: ip.to_ipv6_mapped().octets() };
    Address { qpn: words[0] as u32, gid, address: words[5], rkey: words[6] as u32 }
}

#[test]
fn messages_arrive_whole_and_in_order_between_processes() {
    // given a sender and a sleeping receiver in processes of their own, with both engines
    for engine in ["inline", "clock", "clock\nstrict on"] {
        let scene = Scene::new(&format!("{FABRIC}engine {engine}\n"));
        let (receiver, sender) = (scene.scenario("receiver", "b"), scene.scenario("sender", "a"));
        // when they run, then each finds what it must
        succeed("sender", sender);
        succeed("receiver", receiver);
        // and the port has counted them
        let counters = Control::open(&scene.file()).expect("opens").counters(A).expect("a port");
        assert!(counters.requests >= MESSAGES && counters.bytes >= MESSAGES * 1000, "{counters:?}");
    }
}

const MESSAGES: u64 = 400;

fn sender() {
    let verbs = Verbs::load();
    let mut end =
        End::open(&verbs, "m0", 1 << 16, Options { sends: 16, timeout: 20, retries: 7, ..Options::default() });
    let peer = meet(&end, "a", "b");
    end.connect(&peer);
    for number in 0..MESSAGES {
        let at = (number % 8) as usize * 4096;
        end.memory[at..at + 1000].fill(number as u8);
        let mut wr = write_to(&peer, at as u64, number, IBV_SEND_SIGNALED);
        (wr.opcode, wr.imm_data) = (IBV_WR_RDMA_WRITE_WITH_IMM, (number as u32).to_be());
        assert_eq!(end.post(wr, &mut [end.sge(at, 1000)]), 0);
        let wc = end.wait();
        assert_eq!((wc.status, wc.wr_id), (IBV_WC_SUCCESS, number));
    }
    hear(&scene_folder(), "received");
}

fn receiver() {
    let verbs = Verbs::load();
    let end = End::open(&verbs, "m0", 1 << 16, Options { channel: true, ..Options::default() });
    let peer = meet(&end, "b", "a");
    end.connect(&peer);
    for id in 0..8 {
        assert_eq!(end.receive(id, &mut []), 0);
    }
    let mut number = 0;
    while number < MESSAGES {
        // As programs that sleep do: arm, look once more, sleep.
        end.arm(false);
        let mut wc = end.poll();
        if wc.is_none() {
            let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: a live channel and pointers to fill.
            unsafe { assert_eq!((verbs.get_cq_event)(end.channel, &raw mut cq, &raw mut context), 0) };
            assert_eq!(cq, end.cq);
            wc = end.poll();
        }
        while let Some(found) = wc {
            assert_eq!((found.status, u64::from(u32::from_be(found.imm_data))), (IBV_WC_SUCCESS, number));
            let at = (number % 8) as usize * 4096;
            let first = end.memory.as_ptr();
            // SAFETY: inside the buffer; another process writes it, so it is read as memory that changes.
            let byte = |offset: usize| unsafe { first.add(at + offset).read_volatile() };
            assert!((0..1000).all(|offset| byte(offset) == number as u8), "message {number}");
            // The sender waits for its completion and fills the next place only then: eight are never overtaken.
            assert_eq!(end.receive(number, &mut []), 0);
            number += 1;
            wc = end.poll();
        }
    }
    tell(&scene_folder(), "received", "all");
}

#[test]
fn words_that_are_polled_in_memory_come_whole_and_rising() {
    // given a process that polls 64 bytes of its memory, as receivers of clear-to-send entries do
    let scene = Scene::new(FABRIC);
    let (poller, writer) = (scene.scenario("poller_of_memory", "b"), scene.scenario("writer_of_memory", "a"));
    // when another writes numbers into them, then no word is torn and none is newer than one before it
    succeed("writer", writer);
    succeed("poller", poller);
}

const ROUNDS: u64 = 20_000;

fn writer_of_memory() {
    let verbs = Verbs::load();
    let mut end = End::open(&verbs, "m0", 64, Options { timeout: 20, retries: 7, ..Options::default() });
    let peer = meet(&end, "a", "b");
    end.connect(&peer);
    for round in 1..=ROUNDS {
        for word in end.memory.chunks_mut(8) {
            word.copy_from_slice(&(round << 32 | round).to_ne_bytes());
        }
        assert_eq!(end.post(write_to(&peer, 0, round, IBV_SEND_SIGNALED), &mut [end.sge(0, 64)]), 0);
        assert_eq!(end.wait().status, IBV_WC_SUCCESS);
    }
    hear(&scene_folder(), "received");
}

fn poller_of_memory() {
    let verbs = Verbs::load();
    let end = End::open(&verbs, "m0", 64, Options::default());
    let peer = meet(&end, "b", "a");
    end.connect(&peer);
    let first = end.memory.as_ptr().cast::<u64>();
    assert!(first.is_aligned());
    let mut last = 0;
    let start = Instant::now();
    while last < ROUNDS {
        // Last to first: a word that is new makes all before it new.
        let mut floor = 0;
        for at in (0..8).rev() {
            // SAFETY: inside the buffer; read as memory that another process changes.
            let word = unsafe { first.add(at).read_volatile() };
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            assert_eq!(word >> 32, word & 0xffff_ffff, "a torn word");
            assert!(word >= floor, "word {at} is older than the one behind it");
            floor = word;
        }
        last = floor & 0xffff_ffff;
        assert!(start.elapsed() < Duration::from_secs(60), "at {last}");
        std::thread::yield_now();
    }
    tell(&scene_folder(), "received", "all");
}

#[test]
fn a_killed_peer_is_noticed_and_its_things_are_freed() {
    for (engine, player) in [("inline", "survivor"), ("inline", "survivor_with_data"), ("clock", "survivor")] {
        // given two connected processes that have talked
        let scene = Scene::new(&format!("{FABRIC}engine {engine}\n"));
        let mut idle = scene.scenario("idle", "b");
        let survivor = scene.scenario(player, "a");
        hear(&scene.folder, "written");
        let control = Control::open(&scene.file()).expect("opens");
        assert_eq!(control.sweep(), 0, "all live");
        // when one is killed, not even reaped
        idle.kill().expect("kills");
        wait_for_death(&idle);
        tell(&scene.folder, "killed", "");
        // then the other's requests run out of retries, with data and without
        succeed(player, survivor);
        // and everything of the dead is freed: context, queue, queue pair, region
        let freed = control.sweep();
        assert!(freed >= 4, "{freed} freed");
        assert_eq!(control.sweep(), 0);
        let fifos = std::fs::read_dir(scene.folder.join("fabric.fifos")).expect("a folder").count();
        assert_eq!(fifos, 0, "FIFOs left");
        idle.wait().expect("reaped");
    }
}

/// Waits until a child is dead, and leaves it to be reaped.
fn wait_for_death(child: &Child) {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: `info` is room for the call to fill.
    let code = unsafe { libc::waitid(libc::P_PID, child.id(), info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
    assert_eq!(code, 0);
}

fn idle() {
    let verbs = Verbs::load();
    let end = End::open(&verbs, "m0", 4096, Options::default());
    let peer = meet(&end, "b", "a");
    end.connect(&peer);
    for id in 0..20 {
        assert_eq!(end.receive(id, &mut []), 0);
    }
    tell(&scene_folder(), "connected", "");
    std::thread::sleep(Duration::from_secs(300));
}

fn survivor(bytes: usize) {
    let verbs = Verbs::load();
    let end = End::open(&verbs, "m0", 4096, Options { timeout: 10, ..Options::default() });
    let peer = meet(&end, "a", "b");
    end.connect(&peer);
    let write = |id: u64| {
        let mut wr = write_to(&peer, 0, id, IBV_SEND_SIGNALED);
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr
    };
    hear(&scene_folder(), "connected");
    assert_eq!(end.post(write(1), &mut [end.sge(0, 4096)]), 0);
    assert_eq!(end.wait().status, IBV_WC_SUCCESS);
    tell(&scene_folder(), "written", "");
    hear(&scene_folder(), "killed");
    // A peer that answered within the last millisecond counts as alive.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(end.post(write(2), &mut [end.sge(0, bytes)]), 0);
    let wc = end.wait();
    assert_eq!((wc.wr_id, wc.status), (2, IBV_WC_RETRY_EXC_ERR));
}

#[test]
fn a_cut_cable_is_told_and_work_on_it_fails_until_it_is_back() {
    for engine in ["inline", "clock"] {
        // given a process with both ends of a cable, when the cable is cut and restored from outside, then it sees all of it
        let scene = Scene::new(&format!("{FABRIC}engine {engine}\n"));
        let child = scene.scenario("victim_of_the_cable", "a,b");
        let control = Control::open(&scene.file()).expect("opens");
        hear(&scene.folder, "running");
        assert_eq!(control.set_cable(A, B, false), Ok(()));
        assert_eq!(control.is_up(A), Ok(false));
        hear(&scene.folder, "failed");
        assert_eq!(control.set_cable(A, B, true), Ok(()));
        succeed("victim_of_the_cable", child);
        // and what is not there cannot be cut
        let nowhere = Ipv4Addr::new(10, 9, 9, 9);
        assert_eq!(control.set_port(nowhere, false), Err(ControlError::NoPort { address: nowhere }));
    }
}

fn victim_of_the_cable() {
    let verbs = Verbs::load();
    let (a, b) = support::ends::pair(&verbs, 4096, Options::default());
    let to = b.address();
    assert_eq!(a.post(write_to(&to, 0, 1, IBV_SEND_SIGNALED), &mut [a.sge(0, 8)]), 0);
    assert_eq!((a.wait().status, a.port_state()), (IBV_WC_SUCCESS, IBV_PORT_ACTIVE));
    tell(&scene_folder(), "running", "");
    for end in [&a, &b] {
        let event = end.event();
        assert_eq!((event.event_type, event.element as u32, end.port_state()), (IBV_EVENT_PORT_ERR, 1, IBV_PORT_DOWN));
    }
    // The queue pairs do not notice until they are used.
    assert_eq!(a.state(), IBV_QPS_RTS);
    assert_eq!(a.post(write_to(&to, 0, 2, 0), &mut [a.sge(0, 8)]), 0);
    assert_eq!(a.wait().status, IBV_WC_RETRY_EXC_ERR);
    let late = End::open(&verbs, "a-m0", 64, Options::default());
    late.to_init();
    assert_eq!(late.to_rtr(&to), libc::ETIMEDOUT);
    tell(&scene_folder(), "failed", "");
    assert_eq!(a.event().event_type, IBV_EVENT_PORT_ACTIVE);
    assert_eq!(b.event().event_type, IBV_EVENT_PORT_ACTIVE);
    a.to(IBV_QPS_RESET);
    b.to(IBV_QPS_RESET);
    a.connect(&to);
    b.connect(&a.address());
    assert_eq!(a.post(write_to(&to, 0, 3, IBV_SEND_SIGNALED), &mut [a.sge(0, 8)]), 0);
    assert_eq!((a.wait().status, a.port_state()), (IBV_WC_SUCCESS, IBV_PORT_ACTIVE));
}
