//! Writes and messages between two endpoints over loopback: every byte, in order, whatever the sizes and buffers.

mod common;

use std::io::Write;

use common::{Random, Seen, contents, drive, fill, pair, poll, tiny, until};
use mesh_link::memory::Slab;
use mesh_link::poller::{Interest, Poller, Ready};
use mesh_link::tcp::frame::{self, Header};
use mesh_link::tcp::{Limits, TcpEndpoint};
use mesh_link::{Event, MAX_MESSAGE, MAX_WRITE, PostError, Target, Window};

const CANARY: u8 = 0xa5;

/// Sends one write of every size, with and without a header, into the middle of a window with canaries on both sides.
fn all_sizes(limits: Limits, sizes: &[usize], ordered: bool, shift: usize) {
    let largest = sizes.iter().copied().max().unwrap_or(0) + 32;
    let (from, into) = (Slab::new(1, largest).unwrap(), Slab::new(1, largest + 512).unwrap());
    let mut random = Random::new(0x51_2e5);
    let payload = random.bytes(largest);
    assert!(from.slot(0).write_from(0, &payload));
    let header = [0x11; 32];
    let (mut near, mut far) = pair(limits);
    let window = into.slot(0);
    let key = if ordered { far.expose_ordered(window) } else { far.expose(window) }.unwrap();
    for (round, (&size, with_header)) in sizes.iter().flat_map(|size| [(size, false), (size, true)]).enumerate() {
        // given a target full of canaries
        fill(window, CANARY);
        let (offset, imm) = (128 + shift, round as u32);
        // when written
        let body = from.slot(0).sub(0, size).unwrap();
        let header = with_header.then_some(&header);
        near.post_write(round as u64, header, body, Target { key, offset: offset as u64 }, Some(imm)).unwrap();
        assert_eq!(near.has_payload_queued(), size > 0);
        let (written, notified) = drive(&mut near, &mut far, 1);
        // then it is reported once on both sides, all bytes are there, and no byte beside them
        let len = size + header.map_or(0, |h| h.len());
        assert_eq!(written, [Seen::Written(round as u64)]);
        assert_eq!(notified, [Seen::Notified { key, offset: offset as u64, len: len as u32, imm }]);
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

const SIZES: [usize; 18] =
    [0, 1, 7, 8, 31, 32, 33, 127, 128, 129, 4095, 4096, 4097, 65_535, 65_536, 1_048_575, 1_048_576, 1_048_577];

#[test]
fn every_size_arrives() {
    all_sizes(Limits::default(), &SIZES, false, 0);
    all_sizes(Limits::default(), &[16 << 20], false, 3);
}

#[test]
fn every_size_arrives_in_order_within_lines() {
    all_sizes(Limits::default(), &SIZES, true, 0);
    all_sizes(Limits::default(), &SIZES, true, 5);
    all_sizes(Limits { staging: 1, ..Limits::default() }, &SIZES, true, 121);
}

#[test]
fn every_size_arrives_through_tiny_socket_buffers() {
    all_sizes(tiny(), &SIZES, false, 1);
    all_sizes(tiny(), &SIZES, true, 1);
}

#[test]
fn every_size_arrives_through_small_budgets() {
    let limits = Limits { poll_bytes: 1, poll_frames: 1, ..Limits::default() };
    all_sizes(limits, &SIZES, false, 0);
    all_sizes(limits, &SIZES, true, 0);
}

#[test]
fn frames_may_be_cut_anywhere() {
    for ordered in [false, true] {
        // given a stream of writes and messages
        let (near, mut peer) = common::streams();
        peer.set_nodelay(true).unwrap();
        let mut endpoint = TcpEndpoint::new(near, Limits::default()).unwrap();
        let into = Slab::new(1, 1024).unwrap();
        let window = into.slot(0);
        let key = if ordered { endpoint.expose_ordered(window) } else { endpoint.expose(window) }.unwrap();
        let mut random = Random::new(0xc07);
        let (mut stream, mut expected, mut image) = (Vec::new(), Vec::new(), vec![0; 1024]);
        for imm in 0..60_u32 {
            let (offset, body) = (random.below(300), random.next());
            let body = random.bytes(body as usize % 700);
            let len = body.len() as u32;
            let target = Target { key, offset: offset as u64 };
            stream.extend(frame::encode(&Header::Write { target, len, imm: Some(imm) }));
            stream.extend(&body);
            image[offset..offset + body.len()].copy_from_slice(&body);
            expected.push(Seen::Notified { key, offset: target.offset, len, imm });
            let text = random.bytes(imm as usize);
            stream.extend(frame::encode(&Header::Message { len: imm }));
            stream.extend(&text);
            expected.push(Seen::Message(text));
        }
        // when it arrives in pieces of random lengths, many shorter than a header
        let (mut seen, mut rest) = (Vec::new(), &stream[..]);
        while !rest.is_empty() {
            let longest = if random.below(2) == 0 { 20 } else { 400 };
            let (piece, after) = rest.split_at(rest.len().min(1 + random.below(longest)));
            peer.write_all(piece).unwrap();
            rest = after;
            poll(&mut endpoint, &mut seen).unwrap();
        }
        until("all events", || {
            poll(&mut endpoint, &mut seen).unwrap();
            seen.len() >= expected.len()
        });
        // then it makes no difference
        assert_eq!(seen, expected);
        assert_eq!(contents(window), image);
    }
}

#[test]
fn an_ordered_body_lands_in_whole_lines() {
    // given an ordered exposure that begins in the middle of a line, full of canaries
    let (near, mut peer) = common::streams();
    let mut endpoint = TcpEndpoint::new(near, Limits::default()).unwrap();
    let into = Slab::new(1, 1024).unwrap();
    let window = into.slot(0).sub(40, 900).unwrap();
    let key = endpoint.expose_ordered(window).unwrap();
    fill(window, CANARY);
    let header = frame::encode(&Header::Write { target: Target { key, offset: 0 }, len: 500, imm: Some(1) });
    peer.write_all(&header).unwrap();
    // when its body arrives byte by byte, then what has landed ends at a line, until all has arrived
    for arrived in 1..=500_usize {
        peer.write_all(&[1]).unwrap();
        let mut seen = Vec::new();
        let before = endpoint.counters().syscalls_in;
        until("the byte", || poll(&mut endpoint, &mut seen).unwrap() && endpoint.counters().syscalls_in > before);
        let landed = if arrived == 500 { 500 } else { ((40 + arrived) / 128 * 128).saturating_sub(40) };
        let bytes = contents(window);
        assert!(bytes[..landed].iter().all(|&byte| byte == 1), "{arrived}");
        assert!(bytes[landed..].iter().all(|&byte| byte == CANARY), "{arrived}");
        assert_eq!(seen.len(), usize::from(arrived == 500));
    }
}

#[test]
fn writes_notify_in_the_order_posted_over_many_exposures() {
    // given as many exposures as the limit allows, and one too many
    let limits = Limits { exposures: 500, writes: 64, ..Limits::default() };
    let (mut near, mut far) = pair(limits);
    let (from, into) = (Slab::new(1, 4096).unwrap(), Slab::new(500, 4096).unwrap());
    let keys: Vec<_> = (0..500).map(|k| far.expose(into.slot(k)).unwrap()).collect();
    assert_eq!(far.expose(into.slot(0)), Err(PostError::QueueFull));
    let mut random = Random::new(0x0de5);
    let bytes = random.bytes(4096);
    assert!(from.slot(0).write_from(0, &bytes));
    // when writes of random sizes go to random keys, some without notification
    let (mut expected, mut notified, mut images) = (Vec::new(), Vec::new(), vec![vec![0; 4096]; 500]);
    for round in 0..5000_u32 {
        let (slot, len) = (random.below(500), random.below(4097));
        let body = from.slot(0).sub(0, len).unwrap();
        let target = Target { key: keys[slot], offset: (4096 - len) as u64 };
        let imm = (round % 3 != 0).then_some(round);
        until("room", || {
            poll(&mut near, &mut Vec::new()).unwrap();
            poll(&mut far, &mut notified).unwrap();
            near.post_write(0, None, body, target, imm) != Err(PostError::QueueFull)
        });
        images[slot][4096 - len..].copy_from_slice(&bytes[..len]);
        if let Some(imm) = imm {
            expected.push(Seen::Notified { key: target.key, offset: target.offset, len: len as u32, imm });
        }
    }
    until("all", || {
        poll(&mut near, &mut Vec::new()).unwrap();
        poll(&mut far, &mut notified).unwrap();
        far.counters().frames_in == 5000
    });
    // then the notifications are in that order, and every slot has what was written last
    assert_eq!(notified, expected);
    assert!(images.iter().enumerate().all(|(slot, image)| contents(into.slot(slot)) == *image));
}

#[test]
fn messages_overtake_writes_that_have_not_begun() {
    // given a far end that does not read, so that the first write gets stuck in the middle
    let (mut near, mut far) = pair(tiny());
    let (from, into) = (Slab::new(1, 8 << 20).unwrap(), Slab::new(1, 8 << 20).unwrap());
    let key = far.expose(into.slot(0)).unwrap();
    for imm in 0..3 {
        near.post_write(imm.into(), None, from.slot(0), Target { key, offset: 0 }, Some(imm)).unwrap();
    }
    until("a stuck write", || !near.flush().unwrap());
    assert_eq!(near.queued_writes(), 3);
    // when messages of all lengths are posted behind three writes
    let messages = [vec![], vec![1], vec![2; MAX_MESSAGE - 1], vec![3; MAX_MESSAGE]];
    for message in &messages {
        near.post_message(message).unwrap();
    }
    let (_, mut seen) = drive(&mut near, &mut far, 7);
    // then they come in order right after the first write
    let order: Vec<Seen> = seen.drain(1..5).collect();
    assert_eq!(order, messages.map(Seen::Message));
    let imms: Vec<_> =
        seen.iter().map(|e| if let Seen::Notified { imm, .. } = e { *imm } else { panic!("{e:?}") }).collect();
    assert_eq!(imms, [0, 1, 2]);
}

#[test]
fn messages_leave_before_writes_queued_with_them() {
    // given a write and a message queued together
    let (mut near, mut far) = pair(Limits::default());
    let into = Slab::new(1, 64).unwrap();
    let key = far.expose(into.slot(0)).unwrap();
    near.post_write(0, Some(&[7; 32]), Window::empty(), Target { key, offset: 32 }, Some(9)).unwrap();
    near.post_message(b"first").unwrap();
    // when they are sent
    let (_, seen) = drive(&mut near, &mut far, 2);
    // then the message is first, and both left in one system call
    assert_eq!(seen[0], Seen::Message(b"first".to_vec()));
    assert_eq!(seen[1], Seen::Notified { key, offset: 32, len: 32, imm: 9 });
    assert_eq!(contents(into.slot(0))[32..], [7; 32]);
    assert_eq!(near.counters().syscalls_out, 1);
}

#[test]
fn queues_hold_exactly_their_limits() {
    // given room for three writes and two messages
    let (mut near, mut far) = pair(Limits { writes: 3, messages: 2, ..Limits::default() });
    let into = Slab::new(1, 64).unwrap();
    let key = far.expose(into.slot(0)).unwrap();
    let target = Target { key, offset: 0 };
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

#[test]
fn too_long_posts_are_refused() {
    let (mut near, _far) = pair(Limits::default());
    let target = Target { key: mesh_link::Key::from_raw(1), offset: 0 };
    assert_eq!(
        near.post_message(&[0; MAX_MESSAGE + 1]),
        Err(PostError::TooLong { len: MAX_MESSAGE + 1, max: MAX_MESSAGE })
    );
    // Only touched pages cost memory.
    let slab = Slab::new(1, MAX_WRITE + 1).unwrap();
    let error = near.post_write(0, None, slab.slot(0), target, None);
    assert_eq!(error, Err(PostError::TooLong { len: MAX_WRITE + 1, max: MAX_WRITE }));
    assert_eq!(near.post_write(0, None, slab.slot(0).sub(0, MAX_WRITE).unwrap(), target, None), Ok(()));
    assert!(near.has_payload_queued());
    near.abort();
    assert!(!near.has_payload_queued());
}

#[test]
fn both_directions_at_once() {
    // given two ends that both have much to send through small buffers
    const SIZE: usize = 1 << 20;
    let (mut a, mut b) = pair(tiny());
    let slabs: Vec<Slab> = (0..4).map(|_| Slab::new(1, SIZE).unwrap()).collect();
    let mut random = Random::new(0xd0b1e);
    let bytes = [random.bytes(SIZE), random.bytes(SIZE)];
    assert!(slabs[0].slot(0).write_from(0, &bytes[0]) && slabs[1].slot(0).write_from(0, &bytes[1]));
    let (into_a, into_b) = (a.expose(slabs[2].slot(0)).unwrap(), b.expose(slabs[3].slot(0)).unwrap());
    for id in 0..8_u32 {
        a.post_write(id.into(), None, slabs[0].slot(0), Target { key: into_b, offset: 0 }, Some(id)).unwrap();
        b.post_write(id.into(), None, slabs[1].slot(0), Target { key: into_a, offset: 0 }, Some(id)).unwrap();
        a.post_message(&[id as u8]).unwrap();
        b.post_message(&[id as u8]).unwrap();
    }
    // when both are polled
    let (mut at_a, mut at_b) = (Vec::new(), Vec::new());
    until("both directions", || {
        poll(&mut a, &mut at_a).unwrap();
        poll(&mut b, &mut at_b).unwrap();
        at_a.len() == 24 && at_b.len() == 24
    });
    // then both have everything
    assert_eq!(contents(slabs[2].slot(0)), bytes[1]);
    assert_eq!(contents(slabs[3].slot(0)), bytes[0]);
    let sorts = |seen: &[Seen]| seen.iter().filter(|event| matches!(event, Seen::Notified { .. })).count();
    assert_eq!((sorts(&at_a), sorts(&at_b)), (8, 8));
}

#[test]
fn threads_that_sleep_miss_nothing() {
    // given two threads that sleep on a poller whenever a poll says that there was no progress
    const COUNT: u32 = 300;
    let limits = Limits { poll_frames: 1, writes: 4, ..tiny() };
    let (mut near, mut far) = pair(limits);
    let (from, into) = (Slab::new(1, 1 << 16).unwrap(), Slab::new(1, 1 << 16).unwrap());
    let key = far.expose(into.slot(0)).unwrap();
    let rest = |poller: &Poller, endpoint: &TcpEndpoint| {
        let interest = Interest { read: true, write: endpoint.wants_write() };
        poller.modify(endpoint.fd(), 1, interest).unwrap();
        let count = poller.wait(&mut [Ready::default(); 2], Some(common::PATIENCE)).unwrap();
        assert_eq!(count, 1, "slept through the other's bytes");
    };
    std::thread::scope(|scope| {
        // when one sends small and large writes, and the other answers each with a message
        scope.spawn(|| {
            let poller = Poller::new().unwrap();
            poller.add(far.fd(), 1, Interest::READ).unwrap();
            let (mut next, mut answered) = (0, 0);
            while answered < COUNT || far.wants_write() {
                let progress = far.poll(|event| {
                    assert!(matches!(event, Event::Notified { imm, .. } if imm == next));
                    next += 1;
                });
                while answered < next && far.post_message(b"got it").is_ok() {
                    answered += 1;
                }
                if !progress.unwrap() {
                    rest(&poller, &far);
                }
            }
        });
        let poller = Poller::new().unwrap();
        poller.add(near.fd(), 1, Interest::READ).unwrap();
        let (mut posted, mut answers) = (0, 0);
        while answers < COUNT {
            while posted < COUNT {
                let body = from.slot(0).sub(0, if posted % 3 == 0 { 1 << 16 } else { posted as usize }).unwrap();
                if near.post_write(0, None, body, Target { key, offset: 0 }, Some(posted)).is_err() {
                    break;
                }
                posted += 1;
            }
            if !near.poll(|event| answers += u32::from(matches!(event, Event::Message(_)))).unwrap() {
                rest(&poller, &near);
            }
        }
        // then both come to the end
        assert_eq!(answers, COUNT);
    });
}

#[test]
fn a_million_small_writes() {
    // given two threads, and a receiver that answers every 1000th write with a message
    const COUNT: u64 = 1_000_000;
    let (mut near, mut far) = pair(Limits::default());
    let (from, into) = (Slab::new(1, 64).unwrap(), Slab::new(1, 4096).unwrap());
    assert!(from.slot(0).write_from(0, &[0x3c; 64]));
    let key = far.expose(into.slot(0)).unwrap();
    std::thread::scope(|scope| {
        // when one thread writes and the other polls
        let receiver = scope.spawn(|| {
            let (mut next, mut wrong, mut pending) = (0_u64, 0_u64, 0_u64);
            until("a million notifications", || {
                let progress = far.poll(|event| {
                    let Event::Notified { offset, len, imm, .. } = event else { return };
                    wrong +=
                        u64::from(u64::from(imm) != next || u64::from(len) != next % 65 || offset != next % 64 * 63);
                    next += 1;
                    pending += u64::from(next % 1000 == 0);
                });
                while pending > 0 && far.post_message(b"thousand").is_ok() {
                    pending -= 1;
                }
                if !progress.unwrap() {
                    std::thread::yield_now();
                }
                next == COUNT && pending == 0 && !far.wants_write()
            });
            wrong
        });
        let (mut posted, mut written, mut thousands) = (0, 0, 0);
        until("a million writes", || {
            while posted < COUNT {
                let body = from.slot(0).sub(0, (posted % 65) as usize).unwrap();
                let target = Target { key, offset: posted % 64 * 63 };
                if near.post_write(posted, None, body, target, Some(posted as u32)).is_err() {
                    break;
                }
                posted += 1;
            }
            let progress = near.poll(|event| match event {
                Event::Written { id } => {
                    assert_eq!(id, written);
                    written += 1;
                }
                Event::Message(bytes) => thousands += u64::from(bytes == b"thousand"),
                Event::Notified { .. } => panic!("nobody writes here"),
            });
            if !progress.unwrap() {
                std::thread::yield_now();
            }
            written == COUNT && thousands == COUNT / 1000
        });
        // then all came in order, once
        assert_eq!(receiver.join().unwrap(), 0);
    });
    assert_eq!(far.counters().frames_in, COUNT);
    assert!(near.counters().syscalls_out < COUNT / 4, "many frames leave in one system call");
}
