//! What a sending end knows of one of its lanes: how much is under way there, which slots it may fill, what the last relay still has to
//! report.
//!
//! A part of [`super::SendFlow`], on the same thread. Knows no message but by number.

use std::collections::VecDeque;

use super::{CUT, DEPTH, FlowError};

/// One lane of a connection to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendLane {
    /// Rate, in a unit that all lanes share; only the ratios count.
    pub weight: u32,
    /// Slots that may be filled at the first relay; 0 if there is none.
    pub slots: u16,
}

#[derive(Debug)]
pub(super) struct Lane {
    /// 1 to 255.
    pub(super) weight: u64,
    /// Bytes under way: not known to have reached the next node (direct), or to have left it (relayed).
    pub(super) load: u64,
    /// The one given back last is taken first: its memory is still in caches, here and there.
    pub(super) free: Vec<u16>,
    /// Bytes in each slot that is not free.
    filled: Vec<Option<u32>>,
    /// Messages whose last chunk went out on this lane, until the last relay has counted them.
    lasts: VecDeque<u32>,
    /// Count last heard of the last relay.
    done: u32,
}

impl Lane {
    pub(super) fn all(lanes: &[SendLane]) -> Vec<Self> {
        let most = lanes.iter().map(|lane| lane.weight).max().unwrap_or(1).max(1);
        let new = |lane: &SendLane| Self {
            // Small numbers, so that products with lengths stay within 64 bits.
            weight: (u64::from(lane.weight) * 255).div_ceil(u64::from(most)).max(1),
            load: 0,
            free: (0..lane.slots).rev().collect(),
            filled: vec![None; usize::from(lane.slots)],
            lasts: VecDeque::with_capacity(DEPTH),
            done: 0,
        };
        lanes.iter().map(new).collect()
    }

    /// Takes a free slot for a chunk.
    pub(super) fn fill(&mut self, len: u32) -> Option<u16> {
        let slot = self.free.pop()?;
        self.filled[usize::from(slot)] = Some(len);
        self.load += u64::from(len);
        Some(slot)
    }

    pub(super) fn credit(&mut self, slot: u16) -> Result<(), FlowError> {
        let Some(len) = self.filled.get_mut(usize::from(slot)).and_then(Option::take) else {
            return Err(FlowError::Protocol { what: "credit for slot", value: slot.into() });
        };
        self.load -= u64::from(len);
        self.free.push(slot);
        Ok(())
    }

    pub(super) fn ends(&mut self, seq: u32) {
        self.lasts.push_back(seq);
    }

    /// The last relay has delivered the last chunks of so many messages in all; hands each that is new to `each`.
    pub(super) fn delivered(&mut self, count: u32, mut each: impl FnMut(u32)) -> Result<(), FlowError> {
        let fresh = count.wrapping_sub(self.done) as usize;
        if fresh > self.lasts.len() {
            return Err(FlowError::Protocol { what: "count of deliveries", value: count.into() });
        }
        self.done = count;
        self.lasts.drain(..fresh).for_each(&mut each);
        Ok(())
    }
}

/// The lane with the least under way for its rate, of those that `may` take something; the first of equals.
pub(super) fn least_loaded(lanes: &[Lane], may: impl Fn(&Lane) -> bool) -> Option<usize> {
    let mut best: Option<usize> = None;
    for (n, lane) in lanes.iter().enumerate().filter(|(_, lane)| may(lane)) {
        // a/b < c/d without a division.
        if best.is_none_or(|b| lane.load * lanes[b].weight < lanes[b].load * lane.weight) {
            best = Some(n);
        }
    }
    best
}

/// Lane `n`'s share of `len` bytes, by weight: start and length. Cut at multiples of [`CUT`]; the last takes what is left, possibly nothing.
pub(super) fn share(lanes: &[Lane], len: u64, n: usize) -> (u64, u64) {
    let total: u64 = lanes.iter().map(|lane| lane.weight).sum();
    let cut = |n: usize| match n {
        n if n == lanes.len() => len,
        n => {
            let before: u64 = lanes[..n].iter().map(|lane| lane.weight).sum();
            (len * before).div_ceil(total).next_multiple_of(CUT).min(len)
        }
    };
    let start = cut(n);
    (start, cut(n + 1) - start)
}

/// The most bytes of which no lane's [`share`] is more than a chunk.
pub(super) fn shared_at_most(lanes: &[Lane], chunk: u32) -> u64 {
    let total: u64 = lanes.iter().map(|lane| lane.weight).sum();
    let most = lanes.iter().map(|lane| lane.weight).max().unwrap_or(1);
    u64::from(chunk) * total / most
}
