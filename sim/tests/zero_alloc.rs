//! Once warm, moving chunks allocates nothing: neither a relay's engine nor the two ends of a connection.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Ipv4Addr;

use mesh_relay::engine::{Action, Config, DialId, Engine, LegId, MS};
use mesh_relay::recv::RecvFlow;
use mesh_relay::send::{Acks, SendFlow, SendLane, SendMode, SendTarget};
use mesh_relay::wire::{ChunkHeader, Clear, HEADER_BYTES, HopAddr, MAX_CREDITS, Msg, Setup};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting what each thread asks of it.
struct Counting;

fn count() {
    // A thread that is going away has no counter any more; nobody asks for it then.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

#[allow(unsafe_code, reason = "a global allocator cannot be had without; it only counts and passes on")]
// SAFETY: every call is passed on unchanged to the system's allocator, which upholds the contract; counting touches a thread-local
// cell without a destructor and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System`, since every allocation here does.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations rounds 1000 to 5000 make.
fn allocations(mut round: impl FnMut(u32)) -> u64 {
    (0..1000).for_each(&mut round);
    let before = ALLOCATIONS.get();
    (1000..5000).for_each(&mut round);
    ALLOCATIONS.get() - before
}

fn ip(subnet: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, subnet, host)
}

fn relay() -> Engine {
    Engine::new(Config {
        node: 1,
        name: "relay".into(),
        addresses: vec![ip(0, 2), ip(1, 1)],
        relay: true,
        chunk: 256,
        pool_slots: 64,
        entry_slots: 4,
        trunk_slots: 8,
        classes: 2,
        hello: 1000 * MS,
        retry: MS,
        strangers: 4,
        acks: Acks::Receiver,
        ignore_classes: false,
    })
}

fn say(engine: &mut Engine, leg: LegId, msg: &Msg, bytes: &mut Vec<u8>) {
    msg.encode(bytes);
    engine.on_message(1, leg, bytes);
}

fn dial(engine: &mut Engine) -> DialId {
    let mut dials = std::iter::from_fn(|| engine.poll()).filter_map(|a| match a {
        Action::Dial { dial, .. } => Some(dial),
        _ => None,
    });
    dials.next().expect("a dial")
}

const UP: LegId = LegId(1);
const DOWN: LegId = LegId(2);

/// A relay with a path that stands, over so many hops; the second is a trunk if there is a third.
fn with_path(hops: u8, bytes: &mut Vec<u8>) -> Engine {
    let mut engine = relay();
    engine.on_accepted(1, UP, ip(0, 2), ip(0, 1));
    let hops: Vec<_> = (0..hops).map(|n| HopAddr::new(ip(n, 1), ip(n, 2))).collect();
    let trunk = hops.len() > 2;
    let setup = Setup { stream: 0, conn: [1; 16], token: [2; 16], lane: 0, lanes: 1, at: 0, budget_ms: 1000, hops };
    say(&mut engine, UP, &Msg::Setup(setup), bytes);
    let dial = dial(&mut engine);
    engine.on_dialed(1, dial, Ok(DOWN));
    if trunk {
        let lent = Msg::TrunkReady { key: 9, base: 0, slots: 8, classes: 2, stride: 4096, chunk: 256 };
        say(&mut engine, DOWN, &lent, bytes);
    }
    let stream = u32::from(trunk);
    say(&mut engine, DOWN, &Msg::Ready { stream, key: 0, base: 0, slots: 0, stride: 0, chunk: u32::MAX }, bytes);
    while engine.poll().is_some() {}
    engine
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|n| drop(std::hint::black_box(Box::new(n)))), 4000);
}

#[test]
fn a_relay_moves_chunks_without_allocating() {
    for hops in [2, 3] {
        let mut bytes = Vec::with_capacity(1024);
        let mut engine = with_path(hops, &mut bytes);
        let stream = u32::from(hops == 3);
        let (mut forwarded, mut credits) = (0, 0);
        // A round is a message of four chunks: cleared, filled, sent on, read, credited, acknowledged.
        let made = allocations(|seq| {
            say(&mut engine, DOWN, &Msg::Cts { stream, clear: Clear::new(seq, &[5], 0, 1024) }, &mut bytes);
            for n in 0..4u16 {
                let at = u64::from(n) * 256;
                let header = ChunkHeader { stream: 0, seq, at, len: 256, key: 5, parts: 1, last: n == 3 };
                engine.on_chunk(1, UP, n, &header.encode(), 256 + HEADER_BYTES as u32);
            }
            let mut used = [0; MAX_CREDITS];
            let mut count = 0;
            while let Some(action) = engine.poll() {
                match action {
                    Action::Forward { slot, remote, .. } => {
                        used[count] = remote;
                        count += 1;
                        engine.on_written(2, DOWN, u64::from(slot));
                    }
                    Action::Deliver { slot, .. } => {
                        count += 1;
                        engine.on_written(2, DOWN, u64::from(slot));
                    }
                    Action::Send { leg: UP, msg: Msg::Credit { n, .. } } => credits += u32::from(n),
                    _ => {}
                }
            }
            forwarded += count;
            if stream == 1 {
                say(&mut engine, DOWN, &Msg::Credit { n: count as u8, slots: used }, &mut bytes);
            }
            say(&mut engine, DOWN, &Msg::Ack { stream, count: seq.wrapping_add(1) }, &mut bytes);
            while let Some(action) = engine.poll() {
                drop(action);
            }
        });
        assert_eq!((forwarded, credits), (20_000, 20_000), "every round moved its chunks");
        assert_eq!(made, 0, "{hops} hops");
    }
}

#[test]
fn the_ends_of_a_connection_send_and_receive_without_allocating() {
    let two_ways = SendMode { chunk: Some(256), ..SendMode::direct(2, 512, Acks::Receiver) };
    let two_ways = SendMode { lanes: vec![SendLane { weight: 3, slots: 2 }; 2], ..two_ways };
    for mode in [
        SendMode::direct(2, 512, Acks::Receiver),
        SendMode::relayed(256, 4, Acks::Receiver),
        two_ways.clone(),
        SendMode { acks: Acks::Link, ..two_ways },
    ] {
        let keys = vec![7; mode.lanes.len()];
        let acks = mode.acks;
        let (mut send, mut recv) = (SendFlow::new(mode.clone()), RecvFlow::new(acks, u8::from(mode.chunk.is_some())));
        let mut counts = [0; 2];
        let mut done = 0;
        let made = allocations(|_| {
            let (there, seq) = recv.post(1000).expect("room");
            let here = send.post(1000).expect("room");
            send.on_cts(&Clear::new(seq, &keys, 0, 1000)).expect("in turn");
            while let Some(write) = send.poll().expect("no fault") {
                send.on_written(write.lane, write.id);
                let note = match write.target {
                    SendTarget::Buffer { note, .. } => note,
                    SendTarget::Slot { slot, header } => {
                        send.on_credit(write.lane, slot).expect("a slot that was used");
                        counts[usize::from(write.lane)] += u32::from(header.last);
                        header.note()
                    }
                };
                recv.on_note(note, u64::from(write.len)).expect("no fault");
            }
            match acks {
                Acks::Receiver => send.on_ack(recv.poll_ack().expect("complete")).expect("sent"),
                Acks::Link => (0..2).for_each(|lane| send.on_done(lane, counts[usize::from(lane)]).expect("sent")),
            }
            assert_eq!((send.take(here), recv.take(there)), (Some(1000), Some(1000)));
            done += 1;
        });
        assert_eq!((made, done), (0, 5000), "{mode:?}");
    }
}
