//! Peers that break rules, break off, or fall silent: refused at once, and no byte lands where it may not.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use common::{Random, Seen, contents, drive, failure, fill, pair, poll, streams, tiny, until};
use mesh_link::memory::Slab;
use mesh_link::tcp::frame::{self, Header};
use mesh_link::tcp::{Limits, TcpEndpoint};
use mesh_link::{Key, LinkError, MAX_MESSAGE, PostError, Target, Window};

const CANARY: u8 = 0x5a;

/// An endpoint with one exposed window inside canaries, and the raw stream of its peer.
struct Victim {
    slab: Slab,
    endpoint: TcpEndpoint,
    peer: TcpStream,
    key: Key,
}

impl Victim {
    const SIZE: usize = 1000;

    fn new(ordered: bool) -> Self {
        let slab = Slab::new(1, 3 * Self::SIZE).unwrap();
        fill(slab.slot(0), CANARY);
        let (near, peer) = streams();
        let mut endpoint = TcpEndpoint::new(near, Limits::default()).unwrap();
        let window = slab.slot(0).sub(Self::SIZE, Self::SIZE).unwrap();
        let key = if ordered { endpoint.expose_ordered(window) } else { endpoint.expose(window) }.unwrap();
        Self { slab, endpoint, peer, key }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.peer.write_all(bytes).unwrap();
    }

    fn untouched(&self) -> bool {
        contents(self.slab.slot(0)).iter().all(|&byte| byte == CANARY)
    }
}

fn write_frame(key: Key, offset: u64, len: u32, body: usize) -> Vec<u8> {
    let mut bytes = frame::encode(&Header::Write { target: Target { key, offset }, len, imm: Some(1) }).to_vec();
    bytes.resize(bytes.len() + body, 0xff);
    bytes
}

#[test]
fn writes_out_of_bounds_touch_nothing() {
    let size = Victim::SIZE as u64;
    for ordered in [false, true] {
        for (offset, len) in [
            (0, 1001),
            (1, 1000),
            (999, 2),
            (1000, 1),
            (1001, 0),
            (size, 500),
            (u64::MAX, 1),
            (u64::MAX - 999, 1000),
            (u64::MAX - 3, 4),
            (1 << 63, 0),
            (1 << 32, 8),
            (0, 1 << 30),
        ] {
            // given a victim, when a write outside its window arrives with its body
            let mut victim = Victim::new(ordered);
            let frame = write_frame(victim.key, offset, len, 2000);
            victim.send(&frame);
            let (error, seen) = failure(&mut victim.endpoint);
            // then it is refused with its facts, and no byte landed
            let expected = LinkError::OutOfBounds { key: victim.key, offset, len: len.into(), allowed: size };
            assert_eq!((error, seen), (expected, vec![]));
            assert!(victim.untouched(), "offset {offset} length {len}");
        }
    }
}

#[test]
fn writes_up_to_the_bounds_land() {
    for (offset, len) in [(0, 1000), (999, 1), (1000, 0), (0, 0), (1, 999)] {
        // given a victim, when a write that just fits arrives
        let mut victim = Victim::new(false);
        let frame = write_frame(victim.key, offset, len, len as usize);
        victim.send(&frame);
        let mut seen = Vec::new();
        until("a notification", || {
            poll(&mut victim.endpoint, &mut seen).unwrap();
            !seen.is_empty()
        });
        // then exactly its bytes changed
        let bytes = contents(victim.slab.slot(0));
        let changed = bytes.iter().filter(|&&byte| byte != CANARY).count();
        let begin = Victim::SIZE + offset as usize;
        assert_eq!(changed, len as usize);
        assert!(bytes[begin..begin + len as usize].iter().all(|&byte| byte == 0xff));
    }
}

#[test]
fn a_late_write_to_a_withdrawn_key_is_refused() {
    // given a key that was withdrawn and whose index and memory were exposed again
    let slab = Slab::new(1, 4096).unwrap();
    fill(slab.slot(0), CANARY);
    let (near, mut peer) = streams();
    let mut endpoint = TcpEndpoint::new(near, Limits { exposures: 1, ..Limits::default() }).unwrap();
    let old = endpoint.expose(slab.slot(0)).unwrap();
    assert!(endpoint.withdraw(old));
    assert!(!endpoint.withdraw(old));
    let new = endpoint.expose(slab.slot(0)).unwrap();
    assert_ne!(old, new);
    // when a write to the old key arrives
    peer.write_all(&write_frame(old, 0, 100, 100)).unwrap();
    let (error, _) = failure(&mut endpoint);
    // then it is a violation, and no byte landed
    assert!(matches!(error, LinkError::Protocol { value, .. } if value == u64::from(old.raw())), "{error}");
    assert!(contents(slab.slot(0)).iter().all(|&byte| byte == CANARY));
}

#[test]
fn a_key_withdrawn_during_a_write_stops_it() {
    for ordered in [false, true] {
        // given a write of which half has landed
        let mut victim = Victim::new(ordered);
        let frame = write_frame(victim.key, 0, 1000, 1000);
        victim.send(&frame[..532]);
        until("the first half", || {
            poll(&mut victim.endpoint, &mut Vec::new()).unwrap();
            contents(victim.slab.slot(0))[1200] == 0xff
        });
        // when the key is withdrawn and the other half arrives
        assert!(victim.endpoint.withdraw(victim.key));
        let at_withdrawal = contents(victim.slab.slot(0));
        victim.peer.write_all(&frame[532..]).unwrap();
        let (error, seen) = failure(&mut victim.endpoint);
        // then no byte of it lands
        assert!(matches!(error, LinkError::Protocol { .. }), "{error}");
        assert_eq!(seen, []);
        assert_eq!(contents(victim.slab.slot(0)), at_withdrawal);
    }
}

#[test]
fn keys_never_given_out_are_refused() {
    let mut random = Random::new(0x4e75);
    for round in 0..200 {
        // given a victim, when a write to a random key arrives, or to one with a wrong index or generation
        let mut victim = Victim::new(false);
        let good = victim.key.raw();
        let raw = match round {
            0 => 0,
            1 => good + 1,
            2 => good ^ 1 << 16,
            3 => u32::MAX,
            _ => random.next() as u32,
        };
        if raw == good {
            continue;
        }
        victim.send(&write_frame(Key::from_raw(raw), 0, 8, 8));
        // then it is a violation
        let (error, _) = failure(&mut victim.endpoint);
        assert!(matches!(error, LinkError::Protocol { .. }), "{raw:#x}: {error}");
        assert!(victim.untouched());
    }
}

#[test]
fn garbage_is_refused_at_once_and_for_ever() {
    let mut random = Random::new(0x6a_4ba6e);
    for _ in 0..200 {
        // given a victim with a write and a message queued, when 32 bytes that are no header arrive and the peer keeps silent
        let mut victim = Victim::new(false);
        let mut garbage = random.bytes(32);
        garbage[0] |= 0x80;
        victim.send(&garbage);
        let (error, seen) = failure(&mut victim.endpoint);
        // then it is a violation, the same on every call, and nothing can be posted any more
        assert!(matches!(error, LinkError::Protocol { .. }), "{error}");
        assert_eq!(seen, []);
        assert!(victim.untouched());
        let endpoint = &mut victim.endpoint;
        assert_eq!(poll(endpoint, &mut Vec::new()), Err(error));
        assert_eq!(endpoint.flush(), Err(error));
        assert_eq!(endpoint.error(), Some(error));
        assert_eq!(endpoint.post_message(b"x"), Err(PostError::Broken));
        let target = Target { key: Key::from_raw(1), offset: 0 };
        assert_eq!(endpoint.post_write(1, None, Window::empty(), target, None), Err(PostError::Broken));
        assert_eq!(endpoint.expose(Window::empty()), Err(PostError::Broken));
        assert!(!endpoint.wants_write());
        // then the peer learns it as the end of the stream, or as a reset
        assert!(matches!(victim.peer.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
}

#[test]
fn random_cuts_and_flips_never_write_outside() {
    let mut random = Random::new(0xf11b);
    for _ in 0..500 {
        // given a stream of good frames
        let mut victim = Victim::new(random.below(2) == 0);
        let mut bytes = Vec::new();
        for _ in 0..10 {
            let (offset, len) = (random.below(500), random.below(500));
            bytes.extend(write_frame(victim.key, offset as u64, len as u32, len));
            bytes.extend(frame::encode(&Header::Message { len: 5 }));
            bytes.extend(b"hello");
        }
        // when a bit is flipped somewhere, and it arrives in pieces and breaks off somewhere
        let flip = random.below(bytes.len());
        bytes[flip] ^= 1 << random.below(8);
        bytes.truncate(random.below(bytes.len()));
        for piece in bytes.chunks(1 + random.below(400)) {
            // The victim may have hung up already.
            let _ = victim.peer.write_all(piece);
            let _ = poll(&mut victim.endpoint, &mut Vec::new());
        }
        let _ = victim.peer.shutdown(Shutdown::Write);
        // then it ends with an error, and nothing outside the window changed
        let (_, seen) = failure(&mut victim.endpoint);
        assert!(seen.len() <= 20);
        let all = contents(victim.slab.slot(0));
        let mut outside = all[..Victim::SIZE].iter().chain(&all[2 * Victim::SIZE..]);
        assert!(outside.all(|&byte| byte == CANARY));
    }
}

#[test]
fn a_peer_that_breaks_off_is_told_from_one_that_closes() {
    let message = [frame::encode(&Header::Message { len: 8 }).as_slice(), b"complete"].concat();
    let long_message = frame::encode(&Header::Message { len: MAX_MESSAGE as u32 });
    for ordered in [false, true] {
        let key = Victim::new(ordered).key;
        let write = write_frame(key, 0, 1000, 600);
        for (tail, missing) in [
            (&[][..], 0),
            (&write[..1], 31),
            (&write[..31], 1),
            (&write[..32], 1000),
            (&write[..33], 999),
            (&write[..], 400),
            (&long_message[..], 1024),
        ] {
            // given a victim, when a complete message, and then a part of a frame arrive, then silence
            let mut victim = Victim::new(ordered);
            victim.send(&message);
            victim.send(tail);
            let mut seen = Vec::new();
            until("the message", || {
                poll(&mut victim.endpoint, &mut seen).unwrap();
                !seen.is_empty()
            });
            for _ in 0..10 {
                // then silence alone is no error
                poll(&mut victim.endpoint, &mut seen).unwrap();
            }
            // when the peer closes, then what was complete has been delivered, and what lacks is told
            victim.peer.shutdown(Shutdown::Write).unwrap();
            let (error, _) = failure(&mut victim.endpoint);
            assert_eq!(error, LinkError::ClosedByPeer { missing });
            assert_eq!(seen, [Seen::Message(b"complete".to_vec())]);
        }
    }
}

#[test]
fn a_peer_that_dies_during_a_transfer_is_noticed_by_the_sender() {
    // given a write that is stuck half way
    let (mut near, mut far) = pair(tiny());
    let slab = Slab::new(1, 8 << 20).unwrap();
    let key = far.expose(slab.slot(0)).unwrap();
    near.post_write(1, None, slab.slot(0), Target { key, offset: 0 }, Some(1)).unwrap();
    until("a stuck write", || !near.flush().unwrap());
    assert!(near.has_payload_queued() && near.wants_write());
    // when the peer dies with bytes unread
    drop(far);
    let (error, seen) = failure(&mut near);
    // then that is told, the write is not reported as written, and its memory is free
    assert!(matches!(error, LinkError::Reset { .. } | LinkError::ClosedByPeer { .. }), "{error}");
    assert_eq!(seen, []);
    assert!(!near.has_payload_queued() && !near.wants_write() && near.queued_writes() == 0);
}

#[test]
fn what_a_peer_sent_before_it_closed_is_delivered_although_sending_fails() {
    // given a peer that sent messages and is gone, so that our sends fail
    let (mut near, mut far) = pair(Limits::default());
    for k in 0..20 {
        far.post_message(&[k]).unwrap();
    }
    until("flushed", || {
        far.flush().unwrap();
        !far.wants_write()
    });
    drop(far);
    until("a failing send", || near.post_message(b"into the void").is_err() || near.flush().is_err());
    assert_eq!(near.post_message(b"more"), Err(PostError::Broken));
    // when we poll
    let (error, seen) = failure(&mut near);
    // then all messages come before the error
    assert!(matches!(error, LinkError::Reset { .. } | LinkError::ClosedByPeer { missing: 0 }), "{error}");
    assert_eq!(seen.len(), 20);
}

#[test]
fn a_graceful_end_loses_nothing() {
    // given much queued through tiny buffers
    let (mut near, mut far) = pair(tiny());
    let (from, into) = (Slab::new(1, 1 << 20).unwrap(), Slab::new(1, 1 << 20).unwrap());
    let key = far.expose(into.slot(0)).unwrap();
    for imm in 0..4 {
        near.post_write(0, None, from.slot(0), Target { key, offset: 0 }, Some(imm)).unwrap();
    }
    // when this side says it is done
    near.shutdown_write();
    assert_eq!(near.post_message(b"late"), Err(PostError::Broken));
    assert!(near.wants_write());
    let (mut seen, mut error) = (Vec::new(), None);
    until("the end", || {
        poll(&mut near, &mut Vec::new()).unwrap();
        error = poll(&mut far, &mut seen).err();
        error.is_some()
    });
    // then everything arrived before the end, and the end is a clean one
    assert_eq!(error, Some(LinkError::ClosedByPeer { missing: 0 }));
    assert_eq!(seen.len(), 4);
    assert!(!near.wants_write());
    // then this side hears of the other's end
    assert_eq!(failure(&mut near).0, LinkError::ClosedByPeer { missing: 0 });
}

#[test]
fn an_abort_stops_both_sides() {
    let (mut near, mut far) = pair(Limits::default());
    near.post_message(b"never sent").unwrap();
    near.abort();
    near.abort();
    assert_eq!(failure(&mut near), (LinkError::Aborted, vec![]));
    assert_eq!(failure(&mut far), (LinkError::ClosedByPeer { missing: 0 }, vec![]));
}

#[test]
fn the_stream_can_be_taken_back() {
    // given an endpoint that has been used
    let (mut near, mut far) = pair(Limits::default());
    near.post_message(b"through the endpoint").unwrap();
    drive(&mut near, &mut far, 1);
    assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
    // when the streams are taken out of both
    let (mut near, mut far) = (near.into_stream(), far.into_stream());
    // then they carry raw bytes
    near.write_all(b"raw").unwrap();
    far.set_nonblocking(false).unwrap();
    let mut bytes = [0; 3];
    far.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"raw");
}

#[test]
fn memory_given_back_too_early_is_an_error() {
    // given a slab that is dropped while a write from it is queued
    let (mut near, mut far) = pair(Limits::default());
    let from = Slab::new(1, 1 << 16).unwrap();
    let target = Target { key: Key::from_raw(1 << 16), offset: 0 };
    near.post_write(1, None, from.slot(0), target, None).unwrap();
    drop(from);
    // when it is to leave, then the link breaks instead of sending what lies there now
    let (error, seen) = failure(&mut near);
    assert_eq!((error, seen), (LinkError::Io { op: "send", errno: libc::EFAULT }, vec![]));
    assert!(matches!(failure(&mut far).0, LinkError::ClosedByPeer { .. }));

    // given a slab that is dropped while the peer may write it
    let (near, mut peer) = streams();
    let mut endpoint = TcpEndpoint::new(near, Limits::default()).unwrap();
    let into = Slab::new(1, 1 << 20).unwrap();
    let key = endpoint.expose(into.slot(0)).unwrap();
    peer.write_all(&write_frame(key, 0, 1 << 20, 0)).unwrap();
    until("the header", || {
        poll(&mut endpoint, &mut Vec::new()).unwrap();
        endpoint.counters().syscalls_in > 1
    });
    drop(into);
    // when bytes arrive, then the link breaks instead of writing what has become somebody else's
    peer.write_all(&[1; 100]).unwrap();
    assert_eq!(failure(&mut endpoint).0, LinkError::Io { op: "receive", errno: libc::EFAULT });
}
