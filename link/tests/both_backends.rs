//! What every backend must do, run over each: the layers above know no difference.
#![allow(unsafe_code, reason = "a window longer than any memory, which must be refused")]

mod fixture;

use fixture::{Fixture, Seen, contents, drive, failure, fill, pattern, poll, settle, strict, until};
use mesh_link::poller::{Interest, Poller, Ready};
use mesh_link::tcp::Limits;
use mesh_link::verbs::VerbsLimits;
use mesh_link::{Endpoint, Key, LinkError, MAX_MESSAGE, MAX_WRITE, PostError, Target, Window};

macro_rules! conformance {
    ($($test:ident),* $(,)?) => {
        mod tcp {
            $(#[test]
            fn $test() {
                super::$test(&super::Fixture::tcp());
            })*
        }
        mod verbs {
            $(#[test]
            fn $test() {
                if let Some(fixture) = super::Fixture::verbs() {
                    super::$test(&fixture);
                }
            })*
        }
    };
}

conformance!(
    every_size_arrives,
    long_writes_notify_once_with_their_whole_length,
    writes_notify_in_the_order_posted,
    messages_keep_their_order_and_go_before_writes_queued_with_them,
    queues_hold_exactly_their_limits,
    too_long_posts_are_refused,
    unregistered_memory_works_too,
    both_directions_at_once,
    threads_that_sleep_miss_nothing,
    a_blocked_thread_that_sleeps_is_woken,
    thousands_of_messages_through_few_receives,
    both_ends_talk_through_tiny_queues,
    the_last_words_come_before_the_end,
    a_dropped_end_is_noticed,
    an_abort_is_final_and_noticed,
    a_revoked_window_is_written_no_more,
    keys_are_counted,
);

const CANARY: u8 = 0xa5;

fn sizes(fixture: &Fixture, verbs: VerbsLimits, sizes: &[usize]) {
    let largest = sizes.iter().copied().max().unwrap_or(0) + 32;
    let (from, into) = (fixture.slab(1, largest), fixture.slab(1, largest + 512));
    let payload = pattern(largest, 7);
    assert!(from.slot(0).write_from(0, &payload));
    let (mut near, mut far) = fixture.pair_with(Limits::default(), verbs);
    let window = into.slot(0);
    let (key, base) = far.expose(window).unwrap();
    for (round, (&size, with_header)) in sizes.iter().flat_map(|size| [(size, false), (size, true)]).enumerate() {
        // given a target full of canaries
        fill(window, CANARY);
        let (offset, imm) = (131_usize, round as u32 | 0x8000_0000);
        // when written
        let body = from.slot(0).sub(0, size).unwrap();
        let header = with_header.then_some(&[0x11; 32]);
        near.post_write(round as u64, header, body, Target { key, offset: base + offset as u64 }, Some(imm)).unwrap();
        assert_eq!(near.has_payload_queued(), size > 0);
        let (written, notified) = drive(&mut near, &mut far, 1);
        // then it is reported once on both sides, all bytes are there, and no byte beside them
        let len = size + header.map_or(0, |h| h.len());
        assert_eq!(written, [Seen::Written(round as u64)]);
        assert_eq!(notified, [Seen::Notified { len: len as u32, imm }]);
        assert!(!near.has_payload_queued());
        let bytes = contents(window);
        let expected = [header.map_or(&[][..], |h| h), &payload[..size]].concat();
        assert!(bytes[offset..offset + len] == expected, "size {size}, header {with_header}");
        let mut around = bytes[..offset].iter().chain(&bytes[offset + len..]);
        assert!(around.all(|&byte| byte == CANARY), "size {size}, header {with_header}");
    }
    assert_eq!(near.counters().payload_bytes_out, far.counters().payload_bytes_in);
    assert_eq!(far.counters().frames_in, 2 * sizes.len() as u64);
}

fn every_size_arrives(fixture: &Fixture) {
    let all = [0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 65_536, 1_048_577];
    sizes(fixture, strict(), &all);
    sizes(fixture, VerbsLimits { inline: 0, ..strict() }, &[0, 1, 64, 4096]);
}

fn long_writes_notify_once_with_their_whole_length(fixture: &Fixture) {
    // both sides of where a request is cut, with and without the header
    let all = [4063, 4064, 4065, 4096, 4097, 8160, 8161, 8192, 8193, 200_001];
    let (from, into) = (fixture.slab(1, 300_000), fixture.slab(1, 300_000));
    let payload = pattern(300_000, 9);
    assert!(from.slot(0).write_from(0, &payload));
    let (mut near, mut far) = fixture.pair_with(Limits::default(), VerbsLimits { longest: 4096, ..strict() });
    let (key, base) = far.expose(into.slot(0)).unwrap();
    for (id, &size) in all.iter().enumerate() {
        for header in [None, Some(&[0x22; 32])] {
            fill(into.slot(0), CANARY);
            let body = from.slot(0).sub(1, size).unwrap();
            near.post_write(id as u64, header, body, Target { key, offset: base + 3 }, Some(id as u32)).unwrap();
            let (written, seen) = drive(&mut near, &mut far, 1);
            let len = size + header.map_or(0, |h| h.len());
            assert_eq!(written, [Seen::Written(id as u64)]);
            assert_eq!(seen, [Seen::Notified { len: len as u32, imm: id as u32 }]);
            let bytes = contents(into.slot(0));
            assert!(bytes[3 + len - size..3 + len] == payload[1..=size], "size {size}");
            assert!(bytes[3 + len..].iter().all(|&byte| byte == CANARY), "size {size}");
        }
    }
}

fn writes_notify_in_the_order_posted(fixture: &Fixture) {
    // given many small writes, each third without notification, through few slots
    let limits = Limits { writes: 24, ..Limits::default() };
    let (mut near, mut far) = fixture.pair_with(limits, VerbsLimits { receives: 16, ..strict() });
    let (from, into) = (fixture.slab(1, 8192), fixture.slab(1, 8192));
    assert!(from.slot(0).write_from(0, &pattern(8192, 3)));
    let (key, base) = far.expose(into.slot(0)).unwrap();
    let (mut posted, mut written, mut seen, mut expected) = (0_u64, Vec::new(), Vec::new(), Vec::new());
    // when posted as fast as the queue takes them
    until("all writes", || {
        while posted < 2000 {
            let len = (posted * 37 % 4097) as usize;
            let imm = (posted % 3 != 0).then_some(posted as u32);
            let body = from.slot(0).sub(posted as usize % 64, len).unwrap();
            if near.post_write(posted, None, body, Target { key, offset: base }, imm).is_err() {
                break;
            }
            expected.extend(imm.map(|imm| Seen::Notified { len: len as u32, imm }));
            posted += 1;
        }
        poll(&mut near, &mut written).unwrap();
        poll(&mut far, &mut seen).unwrap();
        written.len() == 2000 && seen.len() == expected.len()
    });
    // then both ends see all in order
    assert_eq!(written, (0..2000).map(Seen::Written).collect::<Vec<_>>());
    assert_eq!(seen, expected);
}

fn messages_keep_their_order_and_go_before_writes_queued_with_them(fixture: &Fixture) {
    let (mut near, mut far) = fixture.pair(Limits::default());
    let (from, into) = (fixture.slab(1, 64), fixture.slab(1, 64));
    let (key, base) = far.expose(into.slot(0)).unwrap();
    // given a write, and messages of all lengths behind it
    near.post_write(1, None, from.slot(0), Target { key, offset: base }, Some(5)).unwrap();
    let messages = [0, 1, 63, 64, 65, MAX_MESSAGE - 1, MAX_MESSAGE].map(|len| pattern(len, len as u64));
    for message in &messages {
        near.post_message(message).unwrap();
    }
    // when they are sent
    let (_, seen) = drive(&mut near, &mut far, 8);
    // then the messages come first, in order
    let mut expected: Vec<_> = messages.into_iter().map(Seen::Message).collect();
    expected.push(Seen::Notified { len: 64, imm: 5 });
    assert_eq!(seen, expected);
}

fn queues_hold_exactly_their_limits(fixture: &Fixture) {
    // given room for three writes and two messages
    let (mut near, mut far) = fixture.pair(Limits { writes: 3, messages: 2, exposures: 1, ..Limits::default() });
    settle(&mut near, &mut far);
    let into = fixture.slab(1, 64);
    let (key, base) = far.expose(into.slot(0)).unwrap();
    assert_eq!(far.expose(into.slot(0)), Err(PostError::QueueFull));
    let target = Target { key, offset: base };
    // when both are filled, then the next is refused, and refused posts leave nothing behind
    for id in 0..3 {
        assert_eq!(near.post_write(id, None, Window::empty(), target, Some(id as u32)), Ok(()));
    }
    assert_eq!(near.post_write(3, None, Window::empty(), target, None), Err(PostError::QueueFull));
    assert_eq!(near.post_message(b"a"), Ok(()));
    assert_eq!(near.post_message(b"b"), Ok(()));
    assert_eq!(near.post_message(b"c"), Err(PostError::QueueFull));
    // when flushed without a poll, then writes stay outstanding until they are reported, messages do not
    near.flush().unwrap();
    assert!(!near.wants_write());
    assert_eq!(near.post_write(3, None, Window::empty(), target, None), Err(PostError::QueueFull));
    assert_eq!(near.post_message(b"c"), Ok(()));
    // when polled, then there is room
    let (written, seen) = drive(&mut near, &mut far, 6);
    assert_eq!(written, [Seen::Written(0), Seen::Written(1), Seen::Written(2)]);
    assert_eq!(seen.len(), 6);
    assert_eq!(near.post_write(3, None, Window::empty(), target, None), Ok(()));
}

fn too_long_posts_are_refused(fixture: &Fixture) {
    let (mut near, _far) = fixture.pair(Limits::default());
    let too_long = PostError::TooLong { len: MAX_MESSAGE + 1, max: MAX_MESSAGE };
    assert_eq!(near.post_message(&[0; MAX_MESSAGE + 1]), Err(too_long));
    // SAFETY: a post that is refused touches nothing of the window, and no other is made with it.
    let window = unsafe { Window::new(std::ptr::dangling_mut(), MAX_WRITE + 1) };
    let target = Target { key: Key::from_raw(1), offset: 0 };
    let too_long = PostError::TooLong { len: MAX_WRITE + 1, max: MAX_WRITE };
    assert_eq!(near.post_write(0, None, window, target, None), Err(too_long));
    assert_eq!((near.queued_writes(), near.has_payload_queued()), (0, false));
}

fn unregistered_memory_works_too(fixture: &Fixture) {
    // given memory that nobody registered, at both ends
    let (mut near, mut far) = fixture.pair(Limits::default());
    let slab = mesh_link::memory::Slab::new(2, 100_000).unwrap();
    let (from, into) = (slab.slot(0), slab.slot(1));
    for round in 0..3 {
        let bytes = pattern(100_000, round);
        assert!(from.write_from(0, &bytes));
        let (key, base) = far.expose(into).unwrap();
        // when written
        near.post_write(round, None, from, Target { key, offset: base }, Some(1)).unwrap();
        drive(&mut near, &mut far, 1);
        // then it arrives
        assert!(contents(into) == bytes);
        assert!(far.withdraw(key));
    }
}

fn both_directions_at_once(fixture: &Fixture) {
    const SIZE: usize = 1 << 20;
    let (mut a, mut b) = fixture.pair(Limits::default());
    let memory = fixture.slab(4, SIZE);
    let bytes = [pattern(SIZE, 1), pattern(SIZE, 2)];
    assert!(memory.slot(0).write_from(0, &bytes[0]) && memory.slot(1).write_from(0, &bytes[1]));
    let (into_a, base_a) = a.expose(memory.slot(2)).unwrap();
    let (into_b, base_b) = b.expose(memory.slot(3)).unwrap();
    for id in 0..8_u32 {
        a.post_write(id.into(), None, memory.slot(0), Target { key: into_b, offset: base_b }, Some(id)).unwrap();
        b.post_write(id.into(), None, memory.slot(1), Target { key: into_a, offset: base_a }, Some(id)).unwrap();
        a.post_message(&[id as u8]).unwrap();
        b.post_message(&[id as u8]).unwrap();
    }
    let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
    until("both directions", || {
        poll(&mut a, &mut at_a).unwrap();
        poll(&mut b, &mut at_b).unwrap();
        at_a.len() == 24 && at_b.len() == 24
    });
    assert!(contents(memory.slot(2)) == bytes[1] && contents(memory.slot(3)) == bytes[0]);
}

/// A thread's two descriptors in a poller.
struct Sleeper(Poller);

impl Sleeper {
    fn new(endpoint: &Endpoint) -> Self {
        let poller = Poller::new().unwrap();
        poller.add(endpoint.fd(), 1, Interest::READ).unwrap();
        if let Some(fd) = endpoint.completion_fd() {
            poller.add(fd, 2, Interest::READ).unwrap();
        }
        Self(poller)
    }

    fn sleep(&self, endpoint: &mut Endpoint) {
        self.0.modify(endpoint.fd(), 1, endpoint.interest()).unwrap();
        let count = self.0.wait(&mut [Ready::default(); 2], Some(fixture::PATIENCE)).unwrap();
        assert!(count > 0, "slept through it");
        endpoint.on_ready();
    }
}

/// Polls, and sleeps when there was nothing to do.
fn poll_or_sleep(endpoint: &mut Endpoint, sleeper: &Sleeper, seen: &mut Vec<Seen>) {
    if poll(endpoint, seen).unwrap() {
        return;
    }
    endpoint.arm().unwrap();
    if !poll(endpoint, seen).unwrap() {
        sleeper.sleep(endpoint);
    }
}

fn threads_that_sleep_miss_nothing(fixture: &Fixture) {
    // given two threads that sleep whenever a poll says that there was no progress
    const COUNT: usize = 300;
    let limits = Limits { writes: 4, messages: 4, ..Limits::default() };
    let (mut near, mut far) = fixture.pair_with(limits, VerbsLimits { receives: 8, ..strict() });
    let (from, into) = (fixture.slab(1, 1 << 16), fixture.slab(1, 1 << 16));
    let (key, base) = far.expose(into.slot(0)).unwrap();
    std::thread::scope(|scope| {
        // when one sends small and large writes, and the other answers each with a message
        scope.spawn(|| {
            let sleeper = Sleeper::new(&far);
            let (mut seen, mut answered) = (Vec::new(), 0);
            while answered < COUNT || far.wants_write() {
                while answered < seen.len() && far.post_message(b"got it").is_ok() {
                    answered += 1;
                }
                if answered < COUNT || far.wants_write() {
                    poll_or_sleep(&mut far, &sleeper, &mut seen);
                }
            }
            let imms = |seen: &Seen| if let Seen::Notified { imm, .. } = seen { *imm } else { panic!("{seen:?}") };
            assert!(seen.iter().map(imms).eq(0..COUNT as u32));
        });
        let sleeper = Sleeper::new(&near);
        let (mut seen, mut posted) = (Vec::new(), 0);
        let answers = |seen: &[Seen]| seen.iter().filter(|e| matches!(e, Seen::Message(_))).count();
        while answers(&seen) < COUNT {
            while posted < COUNT {
                let body = from.slot(0).sub(0, if posted % 3 == 0 { 1 << 16 } else { posted }).unwrap();
                if near.post_write(0, None, body, Target { key, offset: base }, Some(posted as u32)).is_err() {
                    break;
                }
                posted += 1;
            }
            poll_or_sleep(&mut near, &sleeper, &mut seen);
        }
        // then both come to the end
    });
}

fn a_blocked_thread_that_sleeps_is_woken(fixture: &Fixture) {
    // given a sender that sleeps when it is out of credits, and a receiver that looks rarely
    const COUNT: usize = 200;
    let limits = Limits { messages: 8, ..Limits::default() };
    let (mut near, mut far) = fixture.pair_with(limits, VerbsLimits { receives: 8, ..strict() });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = Vec::new();
            until("all messages", || {
                std::thread::sleep(std::time::Duration::from_micros(300));
                poll(&mut far, &mut seen).unwrap();
                seen.len() == COUNT
            });
            assert!(seen.iter().enumerate().all(|(k, e)| *e == Seen::Message(vec![k as u8; 900])));
        });
        // when it has much to say, then it is woken whenever there is room
        let sleeper = Sleeper::new(&near);
        let (mut seen, mut posted) = (Vec::new(), 0);
        while posted < COUNT || near.wants_write() {
            while posted < COUNT && near.post_message(&[posted as u8; 900]).is_ok() {
                posted += 1;
            }
            if posted < COUNT || near.wants_write() {
                poll_or_sleep(&mut near, &sleeper, &mut seen);
            }
        }
    });
}

fn thousands_of_messages_through_few_receives(fixture: &Fixture) {
    const COUNT: usize = 5000;
    let limits = Limits { messages: 2, ..Limits::default() };
    let (mut near, mut far) = fixture.pair_with(limits, VerbsLimits { receives: 8, ..strict() });
    let (mut posted, mut seen) = (0, Vec::new());
    until("all messages", || {
        while posted < COUNT && near.post_message(&posted.to_le_bytes()).is_ok() {
            posted += 1;
        }
        poll(&mut near, &mut Vec::new()).unwrap();
        poll(&mut far, &mut seen).unwrap();
        seen.len() == COUNT
    });
    assert!(seen.iter().enumerate().all(|(k, e)| *e == Seen::Message(k.to_le_bytes().to_vec())));
    assert_eq!((near.counters().messages_out, far.counters().messages_in), (COUNT as u64, COUNT as u64));
}

fn both_ends_talk_through_tiny_queues(fixture: &Fixture) {
    // given queues so small that credits, messages and writes of both ends compete for every place
    const COUNT: usize = 1500;
    let limits = Limits { writes: 2, messages: 1, ..Limits::default() };
    let (mut a, mut b) = fixture.pair_with(limits, VerbsLimits { receives: 8, longest: 4096, ..strict() });
    let memory = fixture.slab(4, 20_000);
    let (to_a, to_b) = (a.expose(memory.slot(2)).unwrap(), b.expose(memory.slot(3)).unwrap());
    let (mut posted, mut told, mut seen) = ([0; 2], [0; 2], [Vec::new(), Vec::new()]);
    // when both post whatever is taken
    until("all of both", || {
        for (k, endpoint) in [&mut a, &mut b].into_iter().enumerate() {
            let (key, offset) = if k == 0 { to_b } else { to_a };
            while posted[k] < COUNT {
                let body = memory.slot(k).sub(0, posted[k] * 13 % 20_000).unwrap();
                let target = Target { key, offset };
                if endpoint.post_write(0, None, body, target, Some(posted[k] as u32)).is_err() {
                    break;
                }
                posted[k] += 1;
            }
            while told[k] < COUNT && endpoint.post_message(&told[k].to_le_bytes()).is_ok() {
                told[k] += 1;
            }
            poll(endpoint, &mut seen[k]).unwrap();
        }
        seen.iter().all(|seen| seen.len() == 3 * COUNT)
    });
    // then both have everything, each sort in order
    for seen in seen {
        let imms = seen.iter().filter_map(|e| if let Seen::Notified { imm, .. } = e { Some(*imm) } else { None });
        assert!(imms.eq(0..COUNT as u32));
        let texts = seen.iter().filter_map(|e| if let Seen::Message(bytes) = e { Some(bytes.clone()) } else { None });
        assert!(texts.eq((0..COUNT).map(|k| k.to_le_bytes().to_vec())));
    }
}

fn the_last_words_come_before_the_end(fixture: &Fixture) {
    // given an end that says much and closes
    let (mut near, mut far) = fixture.pair(Limits::default());
    let (from, into) = (fixture.slab(1, 1 << 20), fixture.slab(1, 1 << 20));
    let (key, base) = far.expose(into.slot(0)).unwrap();
    near.post_write(9, None, from.slot(0), Target { key, offset: base }, Some(3)).unwrap();
    for k in 0..10 {
        near.post_message(&[k]).unwrap();
    }
    near.shutdown_write();
    assert_eq!(near.post_message(b"more"), Err(PostError::Broken));
    // when the other end is polled until it fails, then it has seen everything
    let mut seen = Vec::new();
    let mut ended = None;
    until("the end", || {
        poll(&mut near, &mut Vec::new()).unwrap();
        ended = poll(&mut far, &mut seen).err();
        ended.is_some()
    });
    assert_eq!(ended, Some(LinkError::ClosedByPeer { missing: 0 }));
    assert_eq!(seen.len(), 11);
    assert!(!near.wants_write());
    // and when it goes too, the first end learns that
    drop(far);
    let (error, _) = failure(&mut near);
    assert!(matches!(error, LinkError::ClosedByPeer { .. } | LinkError::Reset { .. }), "{error}");
}

fn a_dropped_end_is_noticed(fixture: &Fixture) {
    let (mut near, mut far) = fixture.pair(Limits::default());
    near.post_message(b"last").unwrap();
    let (_, seen) = drive(&mut near, &mut far, 1);
    assert_eq!(seen, [Seen::Message(b"last".to_vec())]);
    drop(near);
    let (error, seen) = failure(&mut far);
    assert!(matches!(error, LinkError::ClosedByPeer { .. } | LinkError::Reset { .. }), "{error}");
    assert!(seen.is_empty());
    assert_eq!(far.error(), Some(error));
}

fn an_abort_is_final_and_noticed(fixture: &Fixture) {
    let (mut near, mut far) = fixture.pair(Limits::default());
    settle(&mut near, &mut far);
    let (from, into) = (fixture.slab(1, 64), fixture.slab(1, 64));
    let (key, base) = far.expose(into.slot(0)).unwrap();
    near.post_write(1, None, from.slot(0), Target { key, offset: base }, None).unwrap();
    near.abort();
    assert!(!near.has_payload_queued() && !near.wants_write());
    assert_eq!(near.poll(|event| panic!("{event:?}")), Err(LinkError::Aborted));
    assert_eq!(near.poll(|event| panic!("{event:?}")), Err(LinkError::Aborted));
    assert_eq!(near.post_message(b"no"), Err(PostError::Broken));
    assert_eq!(near.expose(from.slot(0)), Err(PostError::Broken));
    let (error, _) = failure(&mut far);
    assert!(error != LinkError::Aborted, "{error}");
}

fn a_revoked_window_is_written_no_more(fixture: &Fixture) {
    // given a window that the peer may write
    let (mut near, mut far) = fixture.pair(Limits::default());
    settle(&mut near, &mut far);
    let (from, into) = (fixture.slab(1, 4096), fixture.slab(1, 4096));
    fill(from.slot(0), 1);
    let (key, base) = far.expose(into.slot(0)).unwrap();
    // when it is revoked before the write
    assert!(far.revoke(key));
    assert!(!far.revoke(key));
    near.post_write(1, None, from.slot(0), Target { key, offset: base }, Some(1)).unwrap();
    until("the end of the link", || {
        // Over TCP the receiver finds the write out, and over verbs the sender's own NIC.
        poll(&mut far, &mut Vec::new()).is_err() | poll(&mut near, &mut Vec::new()).is_err()
    });
    // then not a byte has landed
    assert!(contents(into.slot(0)).iter().all(|&byte| byte == 0));
}

fn keys_are_counted(fixture: &Fixture) {
    let (mut near, _far) = fixture.pair(Limits::default());
    let memory = fixture.slab(1, 4096);
    let (first, base) = near.expose(memory.slot(0)).unwrap();
    let (second, part) = near.expose(memory.slot(0).sub(128, 128).unwrap()).unwrap();
    assert_eq!(part - base, if base == 0 { 0 } else { 128 });
    assert!(near.withdraw(first) && near.withdraw(second));
    assert!(!near.withdraw(first) && !near.withdraw(second));
    let (empty, _) = near.expose(Window::empty()).unwrap();
    assert!(near.withdraw(empty));
}
