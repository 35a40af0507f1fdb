//! How a thread that polls waits when nothing moved: it yields at first, and sleeps for moments when that lasts.
//!
//! Several nodes share the cores of one machine here. Threads that only ever yield are put back again and again behind one another
//! for whole time slices, so a message of microseconds can take milliseconds; a thread that sleeps leaves its core to the one that has
//! something to do.

use std::time::{Duration, Instant};

/// Looks without a clock.
const EAGER: u32 = 64;
/// How long a thread yields before it sleeps.
const YIELDS: Duration = Duration::from_micros(100);
/// A moment; the kernel adds its slack, usually 50 µs.
const MOMENT: Duration = Duration::from_micros(10);

/// Of one thread.
#[derive(Debug, Default)]
pub(super) struct Patience {
    looks: u32,
    since: Option<Instant>,
}

impl Patience {
    /// Something moved.
    pub(super) const fn moved(&mut self) {
        self.looks = 0;
        self.since = None;
    }

    /// Nothing moved. Answers how long that has lasted, zero while it is not measured yet.
    pub(super) fn wait(&mut self) -> Duration {
        self.looks = self.looks.saturating_add(1);
        if self.looks < EAGER {
            std::thread::yield_now();
            return Duration::ZERO;
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(MOMENT);
        }
        waited
    }
}
