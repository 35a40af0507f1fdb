//! The loops over connections in memory, and the arithmetic of points.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::duplex::{Duplex, DuplexError, Messages, Waiting};
use super::point::{Check, Measure, SETTLE};
use super::*;
use crate::harness::transport::{Incoming, Outgoing};

const ROOM: usize = 64;

/// One direction: a message leaves only when its receive is posted.
#[derive(Debug, Default)]
struct Pipe {
    posted: usize,
    sent: VecDeque<Vec<u8>>,
    arrived: VecDeque<Vec<u8>>,
    gone: usize,
}

#[derive(Debug)]
struct Out {
    pipe: Arc<Mutex<Pipe>>,
    slots: Vec<[u8; ROOM]>,
    done: usize,
}

#[derive(Debug)]
struct In {
    pipe: Arc<Mutex<Pipe>>,
    slots: Vec<Vec<u8>>,
    /// Bytes of every message to spoil.
    spoil: Option<usize>,
}

impl Outgoing for Out {
    type Error = &'static str;

    fn slot(&mut self, slot: usize, bytes: usize) -> &mut [u8] {
        &mut self.slots[slot][..bytes]
    }

    fn post(&mut self, slot: usize, bytes: usize) -> Result<bool, &'static str> {
        self.pipe.lock().unwrap().sent.push_back(self.slots[slot][..bytes].to_vec());
        Ok(true)
    }

    fn test(&mut self, _slot: usize) -> Result<bool, &'static str> {
        let mut pipe = self.pipe.lock().unwrap();
        if pipe.posted > 0
            && let Some(message) = pipe.sent.pop_front()
        {
            pipe.posted -= 1;
            pipe.gone += 1;
            pipe.arrived.push_back(message);
        }
        let done = pipe.gone > self.done;
        self.done += usize::from(done);
        Ok(done)
    }
}

impl Incoming for In {
    type Error = &'static str;

    fn post(&mut self, _slot: usize) -> Result<bool, &'static str> {
        self.pipe.lock().unwrap().posted += 1;
        Ok(true)
    }

    fn test(&mut self, slot: usize) -> Result<Option<usize>, &'static str> {
        let Some(mut message) = self.pipe.lock().unwrap().arrived.pop_front() else { return Ok(None) };
        if let Some(byte) = self.spoil.and_then(|at| message.get_mut(at)) {
            *byte ^= 1;
        }
        self.slots[slot] = message;
        Ok(Some(self.slots[slot].len()))
    }

    fn slot(&self, slot: usize, bytes: usize) -> &[u8] {
        &self.slots[slot][..bytes]
    }
}

const WAITING: Waiting = Waiting { spins: 4, limit: Duration::from_secs(20) };

fn pair(waiting: Waiting) -> [Duplex<Out, In>; 2] {
    let pipes = [(); 2].map(|()| Arc::new(Mutex::new(Pipe::default())));
    [0, 1].map(|rank: usize| {
        let out = Out { pipe: Arc::clone(&pipes[rank]), slots: vec![[0; ROOM]; SLOTS], done: 0 };
        let into = In { pipe: Arc::clone(&pipes[1 - rank]), slots: vec![Vec::new(); SLOTS], spoil: None };
        Duplex::new(out, into, waiting)
    })
}

fn messages(rank: u32, bytes: usize, check: Check) -> Messages {
    Messages { bytes, out: 100 + rank, into: 101 - rank, check }
}

#[test]
fn messages_go_there_and_back_and_are_compared() {
    for (bytes, check, each) in [(8, Check::Ends, 8), (ROOM, Check::All, 64), (0, Check::All, 0)] {
        for rounds in [1, SLOTS, 3 * SLOTS + 1] {
            let [mut first, mut second] = pair(WAITING);
            let mut moments = vec![Instant::now(); rounds];
            first.post_ahead(rounds).unwrap();
            second.post_ahead(rounds).unwrap();
            std::thread::scope(|scope| {
                let other = scope.spawn(|| second.pong(messages(1, bytes, check), rounds));
                first.ping(messages(0, bytes, check), &mut moments).unwrap();
                other.join().unwrap().unwrap();
            });
            assert!(moments.is_sorted());
            let expected = (each * rounds as u64, 0);
            assert_eq!((first.take_checked(), second.take_checked()), (expected, expected), "{bytes} {rounds}");
        }
    }
}

#[test]
fn streams_of_every_depth_arrive() {
    for depth in 1..=SLOTS {
        let started = Instant::now();
        let mut moments = vec![started; 3];
        let [mut first, mut second] = pair(WAITING);
        second.post_ahead(100).unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| second.stream_in(messages(1, 16, Check::All), 100));
            first.stream_out(messages(0, 16, Check::All), 100, depth, &mut moments).unwrap();
            assert!(moments.iter().all(|moment| *moment > started), "each was written");
            other.join().unwrap().unwrap();
        });
        assert_eq!(second.take_checked(), (1600, 0), "{depth}");
    }
}

#[test]
fn a_spoilt_byte_is_counted() {
    let [mut first, second] = pair(WAITING);
    let (out, mut into) = second.into_ends();
    into.spoil = Some(0);
    let mut second = Duplex::new(out, into, WAITING);
    second.post_ahead(1).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| second.stream_in(messages(1, 16, Check::Ends), 1));
        first.stream_out(messages(0, 16, Check::Ends), 1, 1, &mut []).unwrap();
        other.join().unwrap().unwrap();
    });
    assert_eq!(second.take_checked(), (8, 1));
}

#[test]
fn what_never_comes_ends_in_an_error_that_says_so() {
    let waiting = Waiting { limit: Duration::from_millis(20), ..WAITING };
    let [mut first, mut second] = pair(waiting);
    second.post_ahead(1).unwrap();
    let error = second.receive(&mut messages(1, 8, Check::All)).unwrap_err();
    assert_eq!(error, DuplexError::Stuck { seconds: 0, what: "a message" });
    // and a message of another size is refused
    std::thread::scope(|scope| {
        scope.spawn(|| first.stream_out(messages(0, 12, Check::All), 1, 1, &mut []));
        let error = second.receive(&mut messages(1, 8, Check::All)).unwrap_err();
        assert_eq!(error, DuplexError::Size { found: 12, expected: 8 });
    });
}

#[test]
fn tests_with_nothing_to_do_see_nothing() {
    let [mut first, mut second] = pair(WAITING);
    second.post_ahead(1).unwrap();
    assert!(second.idle_receive(10).is_ok());
    // a message that comes nevertheless is an error, not a figure
    first.stream_out(messages(0, 8, Check::All), 1, 1, &mut []).unwrap();
    assert_eq!(second.idle_receive(10), Err(DuplexError::Early));
    first.send(&mut messages(0, 8, Check::All)).unwrap();
    assert!(first.idle_send(10).is_ok());
    second.post_ahead(1).unwrap();
    assert_eq!(first.idle_send(10), Err(DuplexError::Early));
}

#[test]
fn numbers_of_points_do_not_meet() {
    assert_eq!(Measure::Stream { messages: 10, depth: 1 }.numbers(), 20);
    assert_eq!(Measure::PingPong { rounds: 5 }.numbers(), 2 * (5 + SETTLE as u32));
    assert_eq!(Measure::Idle { calls: 9 }.numbers(), 4);
}

#[test]
fn streams_last_as_long_as_they_should() {
    // as fast as in the warm-up: a fifth more than needed
    assert!((5990..=6010).contains(&more_messages(1000, 0.1, 0.5)));
    // too slow by far, and too fast by far: within bounds
    assert_eq!(more_messages(1000, 100.0, 0.5), 10);
    assert_eq!(more_messages(1000, 0.0, 0.5), 50_000);
    assert_eq!(more_messages(1, 1.0, 0.5), SLOTS);
    assert_eq!(more_messages(MOST_MESSAGES, 0.1, 0.5), MOST_MESSAGES);
}

#[test]
fn small_messages_have_many_rounds() {
    assert_eq!([8, 16 << 10, 64 << 10, 1 << 20, 64 << 20].map(usual_rounds), [10_000, 10_000, 5_000, 1_000, 100]);
}
