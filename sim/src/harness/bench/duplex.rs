//! The timed loops: two connections between two ranks, one each way, and what goes over them.
//!
//! Runs on the progress thread. Between two readings of the clock there is nothing but the plugin's calls, two words of each message
//! and a few counters: no allocation, no map, no log. Knows the transport only as [`Outgoing`] and [`Incoming`].

use std::time::{Duration, Instant};

use thiserror::Error;

use super::pattern;
use super::point::Check;
use crate::harness::transport::{Incoming, Outgoing, SLOTS};

/// Why a loop cannot go on.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum DuplexError {
    /// The sending connection broke.
    #[error("sending: {0}")]
    Outgoing(String),
    /// The receiving connection broke.
    #[error("receiving: {0}")]
    Incoming(String),
    /// A message has another size.
    #[error("a message of {found} bytes arrived where one of {expected} was due")]
    Size {
        /// Bytes that arrived.
        found: usize,
        /// Bytes due.
        expected: usize,
    },
    /// Nothing moves.
    #[error("nothing moved for {seconds} s; waiting for {what}")]
    Stuck {
        /// The time allowed.
        seconds: u64,
        /// For what.
        what: &'static str,
    },
    /// A request that nothing can have happened to is done.
    #[error("a request was done that nothing was sent for")]
    Early,
}

/// How a thread waits that has its core to itself, or has not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Tests in a row without news until the core is given away for a moment.
    pub(super) spins: u32,
    /// How long nothing may move.
    pub(super) limit: Duration,
}

/// Messages of a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Messages {
    pub(super) bytes: usize,
    /// Number of this rank's next message out, and of the next one in; they go up by two.
    pub(super) out: u32,
    pub(super) into: u32,
    pub(super) check: Check,
}

/// A connection each way. Counts are over its whole life; a message lies in the slot of its count.
#[derive(Debug)]
pub(super) struct Duplex<O, I> {
    outgoing: O,
    incoming: I,
    waiting: Waiting,
    sent: usize,
    /// Sends that are done, so that their slots are free.
    gone: usize,
    posted: usize,
    arrived: usize,
    checked: u64,
    wrong: u64,
}

/// Looks without news in a row.
struct Spin {
    waiting: Waiting,
    what: &'static str,
    empty: u32,
    deadline: Option<Instant>,
}

impl Spin {
    const fn new(waiting: Waiting, what: &'static str) -> Self {
        Self { waiting, what, empty: 0, deadline: None }
    }

    #[inline]
    fn nothing(&mut self) -> Result<(), DuplexError> {
        self.empty += 1;
        if self.empty < self.waiting.spins { Ok(()) } else { self.give_way() }
    }

    #[cold]
    fn give_way(&mut self) -> Result<(), DuplexError> {
        self.empty = 0;
        std::thread::yield_now();
        let now = Instant::now();
        if now < *self.deadline.get_or_insert_with(|| now + self.waiting.limit) {
            return Ok(());
        }
        Err(DuplexError::Stuck { seconds: self.waiting.limit.as_secs(), what: self.what })
    }
}

impl<O: Outgoing, I: Incoming> Duplex<O, I> {
    pub(super) const fn new(outgoing: O, incoming: I, waiting: Waiting) -> Self {
        let (sent, gone, posted, arrived, checked, wrong) = (0, 0, 0, 0, 0, 0);
        Self { outgoing, incoming, waiting, sent, gone, posted, arrived, checked, wrong }
    }

    pub(super) fn into_ends(self) -> (O, I) {
        (self.outgoing, self.incoming)
    }

    /// Bytes compared since the last call, and how many were wrong.
    pub(super) fn take_checked(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.checked), std::mem::take(&mut self.wrong))
    }

    /// Posts receives for the next `messages`, as far as slots go.
    pub(super) fn post_ahead(&mut self, messages: usize) -> Result<(), DuplexError> {
        for _ in 0..messages.min(SLOTS) {
            self.post_receive()?;
        }
        Ok(())
    }

    /// One message out and one in, as often as `ends_of_rounds` has places, into which the moments go at which rounds ended. Receives
    /// have been posted ahead; here each is posted again while the other end works.
    pub(super) fn ping(&mut self, mut messages: Messages, ends_of_rounds: &mut [Instant]) -> Result<(), DuplexError> {
        let mut ahead = ends_of_rounds.len().saturating_sub(SLOTS);
        for (round, end) in ends_of_rounds.iter_mut().enumerate() {
            self.send(&mut messages)?;
            // The slot of the message before is free.
            if round > 0 && ahead > 0 {
                self.post_receive()?;
                ahead -= 1;
            }
            self.receive(&mut messages)?;
            *end = Instant::now();
        }
        self.await_gone()
    }

    /// The other side of [`Self::ping`].
    pub(super) fn pong(&mut self, mut messages: Messages, rounds: usize) -> Result<(), DuplexError> {
        let mut ahead = rounds.saturating_sub(SLOTS);
        for _ in 0..rounds {
            self.receive(&mut messages)?;
            self.send(&mut messages)?;
            if ahead > 0 {
                self.post_receive()?;
                ahead -= 1;
            }
        }
        self.await_gone()
    }

    /// Sends `count` messages, at most `depth` under way; returns when the last one is acknowledged. Into `moments` goes the time
    /// whenever another `count / moments.len()` were.
    pub(super) fn stream_out(
        &mut self,
        mut messages: Messages,
        count: usize,
        depth: usize,
        moments: &mut [Instant],
    ) -> Result<(), DuplexError> {
        let (end, depth) = (self.sent + count, depth.clamp(1, SLOTS));
        let every = count.checked_div(moments.len()).unwrap_or(count).max(1);
        let (mut moments, mut next) = (moments.iter_mut(), self.gone + every);
        let mut spin = Spin::new(self.waiting, "room for another message");
        while self.gone < end {
            let mut moved = false;
            while self.sent < end && self.sent - self.gone < depth && self.try_send(&mut messages)? {
                moved = true;
            }
            if self.test_oldest_send()? {
                moved = true;
                if self.gone == next {
                    next += every;
                    if let Some(moment) = moments.next() {
                        *moment = Instant::now();
                    }
                }
            }
            if moved {
                spin.empty = 0;
                spin.deadline = None;
            } else {
                spin.nothing()?;
            }
        }
        Ok(())
    }

    /// Receives `count` messages; receives have been posted ahead.
    pub(super) fn stream_in(&mut self, mut messages: Messages, count: usize) -> Result<(), DuplexError> {
        for done in 0..count {
            self.receive(&mut messages)?;
            if done + SLOTS < count {
                self.post_receive()?;
            }
        }
        Ok(())
    }

    /// Tests the oldest receive, to which nothing is sent, and says how long that took.
    pub(super) fn idle_receive(&mut self, calls: usize) -> Result<Duration, DuplexError> {
        let (slot, started) = (self.arrived % SLOTS, Instant::now());
        for _ in 0..calls {
            if self.incoming.test(slot).map_err(incoming)?.is_some() {
                return Err(DuplexError::Early);
            }
        }
        Ok(started.elapsed())
    }

    /// Tests the oldest send, for which no receive is posted, and says how long that took.
    pub(super) fn idle_send(&mut self, calls: usize) -> Result<Duration, DuplexError> {
        let (slot, started) = (self.gone % SLOTS, Instant::now());
        for _ in 0..calls {
            if self.outgoing.test(slot).map_err(outgoing)? {
                return Err(DuplexError::Early);
            }
        }
        Ok(started.elapsed())
    }

    /// Sends the next message as soon as that is possible.
    pub(super) fn send(&mut self, messages: &mut Messages) -> Result<(), DuplexError> {
        let mut spin = Spin::new(self.waiting, "a free slot to send from");
        while self.sent - self.gone >= SLOTS || !self.try_send(messages)? {
            if !self.test_oldest_send()? {
                spin.nothing()?;
            }
        }
        Ok(())
    }

    /// Waits for the next message and compares it.
    pub(super) fn receive(&mut self, messages: &mut Messages) -> Result<(), DuplexError> {
        let slot = self.arrived % SLOTS;
        let mut spin = Spin::new(self.waiting, "a message");
        let found = loop {
            // What was sent may need tests to leave.
            if self.gone < self.sent {
                self.test_oldest_send()?;
            }
            match self.incoming.test(slot).map_err(incoming)? {
                Some(found) => break found,
                None => spin.nothing()?,
            }
        };
        if found != messages.bytes {
            return Err(DuplexError::Size { found, expected: messages.bytes });
        }
        let (checked, wrong) = pattern::compare(self.incoming.slot(slot, found), messages.into, messages.check);
        self.checked += checked;
        self.wrong += wrong;
        messages.into = messages.into.wrapping_add(2);
        self.arrived += 1;
        Ok(())
    }

    /// Waits until all that was sent is acknowledged.
    pub(super) fn await_gone(&mut self) -> Result<(), DuplexError> {
        let mut spin = Spin::new(self.waiting, "an acknowledgement");
        while self.gone < self.sent {
            if !self.test_oldest_send()? {
                spin.nothing()?;
            }
        }
        Ok(())
    }

    fn try_send(&mut self, messages: &mut Messages) -> Result<bool, DuplexError> {
        let slot = self.sent % SLOTS;
        pattern::write(self.outgoing.slot(slot, messages.bytes), messages.out, messages.check);
        let taken = self.outgoing.post(slot, messages.bytes).map_err(outgoing)?;
        if taken {
            messages.out = messages.out.wrapping_add(2);
            self.sent += 1;
        }
        Ok(taken)
    }

    fn test_oldest_send(&mut self) -> Result<bool, DuplexError> {
        let done = self.gone < self.sent && self.outgoing.test(self.gone % SLOTS).map_err(outgoing)?;
        self.gone += usize::from(done);
        Ok(done)
    }

    fn post_receive(&mut self) -> Result<(), DuplexError> {
        let mut spin = Spin::new(self.waiting, "room for another receive");
        while !self.incoming.post(self.posted % SLOTS).map_err(incoming)? {
            spin.nothing()?;
        }
        self.posted += 1;
        Ok(())
    }
}

#[cold]
fn outgoing(reason: impl std::fmt::Display) -> DuplexError {
    DuplexError::Outgoing(reason.to_string())
}

#[cold]
fn incoming(reason: impl std::fmt::Display) -> DuplexError {
    DuplexError::Incoming(reason.to_string())
}
