//! What a relay has done: counters, and histograms of how long chunks stay and how many wait.
//!
//! Owned by the engine's thread; readers get copies. Recording never allocates: both histograms have fixed bounds and saturate.

use hdrhistogram::Histogram;

/// Counters and histograms of one relay.
#[derive(Clone, Debug)]
pub struct RelayStats {
    /// Payload bytes forwarded.
    pub forwarded_bytes: u64,
    /// Chunks forwarded.
    pub forwarded_chunks: u64,
    /// Nanoseconds from a chunk's arrival until its slot was free, 1 ns to 60 s, two digits.
    pub residence: Histogram<u64>,
    /// Chunks in a stream's queue when another arrives, itself included.
    pub queue: Histogram<u64>,
}

impl Default for RelayStats {
    fn default() -> Self {
        Self::new()
    }
}

impl RelayStats {
    /// All zero.
    pub fn new() -> Self {
        // The bounds are constants that the constructor accepts: low ≥ 1, high ≥ 2 × low, digits ≤ 5.
        let histogram =
            |high| Histogram::new_with_bounds(1, high, 2).unwrap_or_else(|_| unreachable!("constant bounds"));
        Self { forwarded_bytes: 0, forwarded_chunks: 0, residence: histogram(60_000_000_000), queue: histogram(4096) }
    }

    pub(crate) fn forwarded(&mut self, bytes: u32) {
        self.forwarded_bytes += u64::from(bytes);
        self.forwarded_chunks += 1;
    }

    pub(crate) fn arrived(&mut self, waiting: usize) {
        self.queue.saturating_record(waiting as u64);
    }

    pub(crate) fn left(&mut self, stayed: u64) {
        self.residence.saturating_record(stayed.max(1));
    }
}
