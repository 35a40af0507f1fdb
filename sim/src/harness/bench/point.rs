//! What a measurement is made of: points, and what nodes say of them.
//!
//! Pure. Any thread.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::harness::args::ArgsError;

/// Rounds at the start of a ping-pong that are not counted: the other end may still be waking up.
pub(super) const SETTLE: usize = 16;

/// Parts of a stream that are timed, and messages that each has at least: completions come in bursts, and a part must be many.
const PARTS: usize = 200;
const PART: usize = 32;

/// What a node must know from the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchWork {
    /// Most bytes of a message.
    pub capacity: usize,
    /// The core of this node's progress thread; `None`: the scheduler's choice.
    pub core: Option<usize>,
    /// Tests in a row without news until a thread gives its core away for a moment.
    pub spins: u32,
}

/// One figure, or the warm-up before it. Rank 0 sends first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// What is measured.
    pub measure: Measure,
    /// Bytes of a message.
    pub bytes: usize,
    /// Number of the first message; no two messages of a run share a number, except after 4 billion.
    pub first: u32,
    /// How much of each message is written anew and compared.
    pub check: Check,
}

/// What a point measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// One message there, one back, so many times.
    PingPong {
        /// Rounds that count; some more are run before.
        rounds: usize,
    },
    /// Messages from rank 0 to rank 1.
    Stream {
        /// How many.
        messages: usize,
        /// How many may be under way.
        depth: usize,
    },
    /// Tests of a request that nothing happens to, first a receive at rank 1, then a send at rank 0.
    Idle {
        /// Tests at each end.
        calls: usize,
    },
}

/// How much of each message is written anew and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// Every byte.
    All,
    /// The first and the last word.
    Ends,
    /// The first word of each 64 bytes, which is a cache line of most processors, and the last word.
    Lines,
}

impl Check {
    /// Its name in options and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Ends => "ends",
            Self::Lines => "lines",
        }
    }
}

impl FromStr for Check {
    type Err = ArgsError;

    fn from_str(text: &str) -> Result<Self, ArgsError> {
        let found = [Self::All, Self::Ends, Self::Lines].into_iter().find(|check| check.name() == text);
        found.ok_or_else(|| ArgsError::Bench(format!("--touch {text:?} is none of ends, lines, all")))
    }
}

/// What a node found at a point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// Of a ping-pong, from rank 0.
    pub latency: Option<Latency>,
    /// Of a stream, from rank 0: seconds from the first post until the last message was acknowledged.
    pub stream_seconds: Option<f64>,
    /// Of a stream, from rank 0: messages a second in parts of it, so that only a tenth of the parts were faster.
    pub stream_p90: Option<f64>,
    /// Nanoseconds of a test with nothing to do, of this rank's request.
    pub test_ns: Option<f64>,
    /// Bytes compared.
    pub checked_bytes: u64,
    /// Bytes that differ.
    pub wrong_bytes: u64,
    /// From a node that only relays, if its plugin counts.
    pub relay: Option<RelayCost>,
}

/// What relaying cost a process while a point was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayCost {
    /// Processor time of the process, all its threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Chunks that it passed on.
    pub chunks: u64,
}

/// Half of a round trip, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50_us: f64,
    /// One of a hundred took longer.
    pub p99_us: f64,
    /// One of a thousand took longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// The shortest.
    pub min_us: f64,
}

/// Parts of a stream of so many messages.
pub(super) fn parts(messages: usize) -> usize {
    (messages / PART).min(PARTS)
}

impl Measure {
    /// Numbers that the messages of a point take: those of rank 0 are even, those of rank 1 odd.
    pub(super) fn numbers(self) -> u32 {
        let each = match self {
            Self::PingPong { rounds } => rounds + SETTLE,
            Self::Stream { messages, .. } => messages,
            Self::Idle { .. } => 2,
        };
        (each as u32).wrapping_mul(2)
    }
}
