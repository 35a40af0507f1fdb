//! What the tests of the TCP backend share: connected pairs, a watchdog, random bytes, and owned copies of events.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use mesh_link::tcp::{Limits, TcpEndpoint};
use mesh_link::{Event, Key, LinkError, Window};

/// Longest a test may wait for something before it is called hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An event that outlives its poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Written(u64),
    Notified { key: Key, offset: u64, len: u32, imm: u32 },
    Message(Vec<u8>),
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Written { id } => Self::Written(id),
            Event::Notified { key, offset, len, imm } => Self::Notified { key, offset, len, imm },
            Event::Message(bytes) => Self::Message(bytes.to_vec()),
        }
    }
}

/// Two connected streams over loopback.
pub(crate) fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// Two connected endpoints.
pub(crate) fn pair(limits: Limits) -> (TcpEndpoint, TcpEndpoint) {
    let (near, far) = streams();
    (TcpEndpoint::new(near, limits).unwrap(), TcpEndpoint::new(far, limits).unwrap())
}

/// A send buffer as small as the kernel allows, and little room on the receiving side, so that hardly any frame passes in one
/// piece. A still smaller receive buffer would only measure the timers of TCP's window probes.
pub(crate) fn tiny() -> Limits {
    Limits { send_buffer: Some(1), receive_buffer: Some(32 << 10), staging: 1, ..Limits::default() }
}

/// One poll whose events are added to `seen`.
pub(crate) fn poll(endpoint: &mut TcpEndpoint, seen: &mut Vec<Seen>) -> Result<bool, LinkError> {
    endpoint.poll(|event| seen.push(event.into()))
}

/// Repeats until `done`, or panics when the patience is over.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "hung: {what}");
    }
}

/// Polls both ends until the far end has seen `count` events and the near end has nothing queued.
pub(crate) fn drive(near: &mut TcpEndpoint, far: &mut TcpEndpoint, count: usize) -> (Vec<Seen>, Vec<Seen>) {
    let (mut at_near, mut at_far) = (Vec::new(), Vec::new());
    until("events at the far end", || {
        let progress = poll(near, &mut at_near).unwrap() | poll(far, &mut at_far).unwrap();
        if !progress {
            std::thread::yield_now();
        }
        at_far.len() >= count && !near.wants_write()
    });
    (at_near, at_far)
}

/// Polls until the endpoint fails; returns the error and what was seen before.
pub(crate) fn failure(endpoint: &mut TcpEndpoint) -> (LinkError, Vec<Seen>) {
    let (mut seen, mut error) = (Vec::new(), None);
    until("an error", || {
        error = poll(endpoint, &mut seen).err();
        error.is_some()
    });
    (error.unwrap(), seen)
}

/// A small generator of pseudo-random numbers (xorshift), seeded from SEED or a constant, and printed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(default: u64) -> Self {
        let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(default);
        println!("seed {seed}");
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }
}

pub(crate) fn contents(window: Window) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    assert!(window.read_into(0, &mut bytes));
    bytes
}

pub(crate) fn fill(window: Window, byte: u8) {
    assert!(window.write_from(0, &vec![byte; window.len()]));
}
