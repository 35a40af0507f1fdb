//! The clock engine's rate, latency and cuts with work in flight, and what strict mode refuses. Only lower bounds of time are
//! asserted: a machine may always be slower.

#![allow(unsafe_code, reason = "drives a C library")]

mod support;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mesh_soft_verbs::abi::*;
use mesh_soft_verbs::control::Control;
use support::Scene;
use support::ends::{End, Options, Verbs, pair, write_to};

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

const SCENARIOS: &[(&str, fn())] = &[
    ("rate", rate),
    ("shared_rate", shared_rate),
    ("latency", latency),
    ("posting_returns_at_once", posting_returns_at_once),
    ("cut_in_flight", cut_in_flight),
    ("slots_are_freed_by_polled_completions_only", slots_are_freed_by_polled_completions_only),
    ("slots_are_freed_at_once", slots_are_freed_at_once),
    ("queue_overrun", queue_overrun),
    ("solicited", solicited),
    ("many_threads", many_threads),
    ("nothing_arrives_after_error", nothing_arrives_after_error),
    ("nothing_arrives_after_deregistration", nothing_arrives_after_deregistration),
];

#[test]
#[ignore = "runs as a child of the other tests"]
fn scenarios() {
    support::play(SCENARIOS);
}

fn fabric(rate: &str, more: &str) -> String {
    format!("port a m0 10.0.0.1 {rate}\nport b m0 10.0.0.2 {rate}\ncable 10.0.0.1 10.0.0.2\n{more}\n")
}

fn control() -> Control {
    let folder: PathBuf = std::env::var_os("SCENE").expect("set by the parent").into();
    Control::open(&folder.join("fabric")).expect("opens")
}

#[test]
fn the_clock_keeps_rate_and_latency() {
    // given a cable of 1 Gb/s, when 5 MB are written, then it takes at least 40 ms
    Scene::new(&fabric("1G", "engine clock")).run("rate");
    Scene::new(&fabric("1G", "engine clock")).run("shared_rate");
    // given 20 ms one way, then an acknowledgement takes 40 ms
    Scene::new(&fabric("100G", "engine clock\nlatency 20000000")).run("latency");
    Scene::new(&fabric("10M", "engine clock")).run("posting_returns_at_once");
    Scene::new(&fabric("10M", "engine clock")).run("cut_in_flight");
}

#[test]
fn strictness_overruns_wake_ups_threads_and_fences() {
    for engine in ["inline", "clock"] {
        let with = |more: &str| Scene::new(&fabric("100G", &format!("engine {engine}\n{more}")));
        with("strict on").run("slots_are_freed_by_polled_completions_only");
        with("").run("queue_overrun");
        with("").run("solicited");
        with("").run("many_threads");
        with("").run("nothing_arrives_after_error");
        with("").run("nothing_arrives_after_deregistration");
        with("strict on").run("many_threads");
    }
    Scene::new(&fabric("100G", "")).run("slots_are_freed_at_once");
}

fn rate() {
    let verbs = Verbs::load();
    let (mut a, b) = pair(&verbs, 1_000_000, Options::default());
    a.memory.fill(7);
    let start = Instant::now();
    for id in 0..5 {
        assert_eq!(a.post(write_to(&b.address(), 0, id, IBV_SEND_SIGNALED), &mut [a.sge(0, 1_000_000)]), 0);
    }
    for id in 0..5 {
        assert_eq!(a.wait().wr_id, id);
        // Each at its own time, not all at the end.
        assert!(start.elapsed() >= Duration::from_millis(8 * (id + 1)), "{id} after {:?}", start.elapsed());
    }
    assert_eq!(a.memory, b.memory);
    // A port that is made ten times slower while it runs is.
    control().set_rate(A, 100_000_000).expect("a port");
    let start = Instant::now();
    assert_eq!(a.post(write_to(&b.address(), 0, 9, IBV_SEND_SIGNALED), &mut [a.sge(0, 1_000_000)]), 0);
    assert_eq!(a.wait().wr_id, 9);
    assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
}

fn shared_rate() {
    // Two queue pairs of one port share its rate; the other direction does not suffer.
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 1_000_000, Options::default());
    let (c, d) = pair(&verbs, 1_000_000, Options::default());
    let start = Instant::now();
    assert_eq!(a.post(write_to(&b.address(), 0, 1, IBV_SEND_SIGNALED), &mut [a.sge(0, 1_000_000)]), 0);
    assert_eq!(c.post(write_to(&d.address(), 0, 2, IBV_SEND_SIGNALED), &mut [c.sge(0, 1_000_000)]), 0);
    // The other way round, so that only the order tells: it is posted last and is through before the second.
    assert_eq!(d.post(write_to(&c.address(), 0, 3, IBV_SEND_SIGNALED), &mut [d.sge(0, 1000)]), 0);
    assert_eq!(d.wait().wr_id, 3);
    assert!(c.poll().is_none() || start.elapsed() >= Duration::from_millis(16));
    assert_eq!((a.wait().wr_id, c.wait().wr_id), (1, 2));
    assert!(start.elapsed() >= Duration::from_millis(16), "{:?}", start.elapsed());
}

fn latency() {
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 64, Options::default());
    assert_eq!(b.receive(5, &mut []), 0);
    let start = Instant::now();
    let wr = SendWr { opcode: IBV_WR_RDMA_WRITE_WITH_IMM, ..write_to(&b.address(), 0, 1, IBV_SEND_SIGNALED) };
    assert_eq!(a.post(wr, &mut [a.sge(0, 8)]), 0);
    assert_eq!(b.wait().wr_id, 5);
    assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
    assert_eq!(a.wait().wr_id, 1);
    assert!(start.elapsed() >= Duration::from_millis(40), "{:?}", start.elapsed());
    // Changed while it runs: the longer of both ends holds.
    control().set_latency(B, 50_000_000).expect("a port");
    let start = Instant::now();
    let wr = SendWr { opcode: IBV_WR_RDMA_READ, ..write_to(&b.address(), 0, 2, IBV_SEND_SIGNALED) };
    assert_eq!(a.post(wr, &mut [a.sge(0, 8)]), 0);
    assert_eq!(a.wait().wr_id, 2);
    assert!(start.elapsed() >= Duration::from_millis(100), "{:?}", start.elapsed());
}

fn posting_returns_at_once() {
    // At 10 Mb/s this takes 160 ms: the completion is not there when posting returns, nor the data.
    let verbs = Verbs::load();
    let (mut a, b) = pair(&verbs, 200_000, Options::default());
    a.memory.fill(1);
    let start = Instant::now();
    assert_eq!(a.post(write_to(&b.address(), 0, 1, IBV_SEND_SIGNALED), &mut [a.sge(0, 200_000)]), 0);
    assert!(start.elapsed() >= Duration::from_millis(160) || a.poll().is_none());
    let first = b.memory.as_ptr();
    // SAFETY: inside the buffer, which a thread of the library may be writing.
    let early = unsafe { first.read_volatile() };
    assert!(start.elapsed() >= Duration::from_millis(160) || early == 0);
    assert_eq!(a.wait().wr_id, 1);
    assert_eq!(a.memory, b.memory);
}

fn cut_in_flight() {
    // Three writes of 80 ms each; the cable is cut while the first is on its way.
    let verbs = Verbs::load();
    let (mut a, b) = pair(&verbs, 100_000, Options { timeout: 12, retries: 1, ..Options::default() });
    a.memory.fill(1);
    let to = b.address();
    for id in 1..=3 {
        assert_eq!(a.post(write_to(&to, 0, id, 0), &mut [a.sge(0, 100_000)]), 0);
    }
    let start = Instant::now();
    control().set_cable(A, B, false).expect("a cable");
    // Cut before the first could arrive, else the machine was too slow for the scene.
    let in_time = start.elapsed() < Duration::from_millis(80);
    let statuses = [a.wait(), a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status));
    let flushed = IBV_WC_WR_FLUSH_ERR;
    assert_eq!(statuses, [(1, IBV_WC_RETRY_EXC_ERR), (2, flushed), (3, flushed)]);
    assert!(!in_time || b.memory.iter().all(|&byte| byte == 0), "data crossed a cable that was cut");
    assert_eq!(a.state(), IBV_QPS_ERR);
}

fn slots_are_freed_by_polled_completions_only() {
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 64, Options { sends: 4, ..Options::default() });
    let to = b.address();
    let post = |id: u64, flags: u32| a.post(write_to(&to, 0, id, flags), &mut [a.sge(0, 8)]);
    // given three unsignalled and a signalled request: the queue is full, however long one waits without polling
    assert_eq!([post(1, 0), post(2, 0), post(3, 0), post(4, IBV_SEND_SIGNALED)], [0; 4]);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(post(5, 0), libc::ENOMEM);
    // when the completion is polled, then all four are free
    assert_eq!(a.wait().wr_id, 4);
    assert_eq!([post(5, 0), post(6, 0), post(7, 0), post(8, 0)], [0; 4]);
    // and four without a signalled one block the queue for good: that is the mistake this mode finds
    std::thread::sleep(Duration::from_millis(5));
    assert!(a.poll().is_none());
    assert_eq!(post(9, IBV_SEND_SIGNALED), libc::ENOMEM);
    // a reset pair begins anew
    a.to(IBV_QPS_RESET);
    a.connect(&to);
    assert_eq!(post(10, IBV_SEND_SIGNALED), 0);
    assert_eq!(a.wait().wr_id, 10);
}

fn slots_are_freed_at_once() {
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 64, Options { sends: 4, ..Options::default() });
    for id in 0..100 {
        assert_eq!(a.post(write_to(&b.address(), 0, id, 0), &mut [a.sge(0, 8)]), 0);
    }
}

fn queue_overrun() {
    // given a completion queue of four and five signalled requests
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 64, Options { cqe: 4, ..Options::default() });
    for id in 0..5 {
        assert_eq!(a.post(write_to(&b.address(), 0, id, IBV_SEND_SIGNALED), &mut [a.sge(0, 8)]), 0);
    }
    // then the program is told, once, and the four that fit can be polled
    let event = a.event();
    assert_eq!((event.event_type, event.element), (IBV_EVENT_CQ_ERR, a.cq.addr() as u64));
    for id in 0..4 {
        assert_eq!(a.wait().wr_id, id);
    }
    assert!(a.poll().is_none());
}

fn solicited() {
    // given a queue armed for solicited completions only
    let verbs = Verbs::load();
    let (a, mut b) = pair(&verbs, 64, Options { channel: true, ..Options::default() });
    b.options.channel = true;
    for id in 0..4 {
        assert_eq!(b.receive(id, &mut []), 0);
    }
    // SAFETY: the channel's descriptor, made not to block.
    unsafe { libc::fcntl((*b.channel).fd, libc::F_SETFL, libc::O_NONBLOCK) };
    let woken = || {
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live channel and pointers to fill.
        unsafe { (verbs.get_cq_event)(b.channel, &raw mut cq, &raw mut context) == 0 }
    };
    let send = |flags: u32| {
        let wr = SendWr { opcode: IBV_WR_SEND, send_flags: flags | IBV_SEND_SIGNALED, ..SendWr::default() };
        assert_eq!(a.post(wr, &mut []), 0);
        assert_eq!(a.wait().status, IBV_WC_SUCCESS);
        assert_eq!(b.wait().status, IBV_WC_SUCCESS);
    };
    b.arm(true);
    send(0);
    assert!(!woken(), "by a completion that was not solicited");
    send(IBV_SEND_SOLICITED);
    assert!(woken());
    // One event an arming.
    send(IBV_SEND_SOLICITED);
    assert!(!woken());
    b.arm(false);
    send(0);
    assert!(woken());
}

/// A pointer that threads may share: the library is made for it.
struct Everywhere<T>(T);

// SAFETY: ends are used by several threads at once only through calls that the verbs allow to be.
unsafe impl<T> Sync for Everywhere<T> {}

fn many_threads() {
    // given four threads that post on one pair while a fifth polls
    const EACH: u64 = 500;
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 64, Options { sends: 1024, cqe: 4096, ..Options::default() });
    let to = b.address();
    let (shared, to) = (Everywhere(&a), Everywhere(to));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (shared, to) = (&shared, &to);
            scope.spawn(move || {
                let mut number = 0;
                while number < EACH {
                    let wr = write_to(&to.0, 8 * thread, thread << 32 | number, IBV_SEND_SIGNALED);
                    match shared.0.post(wr, &mut [shared.0.sge(8 * thread as usize, 8)]) {
                        0 => number += 1,
                        code => {
                            assert_eq!(code, libc::ENOMEM);
                            std::thread::yield_now();
                        }
                    }
                }
            });
        }
        // then every request completes once, and those of one thread in its order
        let mut next = [0u64; 4];
        for _ in 0..4 * EACH {
            let wc = shared.0.wait();
            assert_eq!(wc.status, IBV_WC_SUCCESS);
            let thread = (wc.wr_id >> 32) as usize;
            assert_eq!(wc.wr_id & 0xffff_ffff, next[thread], "thread {thread}");
            next[thread] += 1;
        }
        assert_eq!(next, [EACH; 4]);
    });
    assert!(a.poll().is_none());
}

const BIG: usize = 4 << 20;

/// Writes over and over into a peer on another thread, calls `stop` in the middle of it, and checks that the peer's memory does
/// not change any more once `stop` has returned.
fn nothing_arrives_after(stop: fn(&End<'_>)) {
    let verbs = Verbs::load();
    for _ in 0..10 {
        let (mut a, b) = pair(&verbs, BIG, Options { sends: 1024, ..Options::default() });
        a.memory.fill(0x55);
        let (to, shared) = (b.address(), Everywhere(&a));
        let last = std::thread::scope(|scope| {
            let (to, shared) = (&to, &shared);
            let writer = scope.spawn(move || {
                loop {
                    assert_eq!(shared.0.post(write_to(to, 0, 1, IBV_SEND_SIGNALED), &mut [shared.0.sge(0, BIG)]), 0);
                    let status = shared.0.wait().status;
                    if status != IBV_WC_SUCCESS {
                        return status;
                    }
                }
            });
            let first = b.memory.as_ptr();
            // SAFETY: inside the buffer, read as memory that others write.
            while unsafe { first.read_volatile() } == 0 {
                std::thread::yield_now();
            }
            stop(&b);
            // SAFETY: as above; from here on nobody else may write, which is what is tested.
            unsafe { first.cast_mut().write_bytes(0, BIG) };
            writer.join().expect("ends")
        });
        assert!(matches!(last, IBV_WC_RETRY_EXC_ERR | IBV_WC_REM_ACCESS_ERR), "{last}");
        let first = b.memory.as_ptr();
        // SAFETY: as above.
        assert!((0..BIG).all(|at| unsafe { first.add(at).read_volatile() } == 0), "a late write");
    }
}

fn nothing_arrives_after_error() {
    nothing_arrives_after(|end| end.to(IBV_QPS_ERR));
}

fn nothing_arrives_after_deregistration() {
    // SAFETY: a live region, not used again.
    nothing_arrives_after(|end| unsafe { assert_eq!((end.verbs.dereg_mr)(end.mr), 0) });
}
