//! Bookkeeping of the pool: which run of slots belongs to which leg, which slots are filled, and when a run can be given back.
//!
//! Memory itself is the driver's. A run outlives its leg while slots of it are still being read by another leg.

use super::{LegId, Time};

/// How much of the pool is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Slots in all.
    pub slots: u32,
    /// Slots that belong to a leg's run.
    pub lent: u32,
    /// Slots that hold a chunk.
    pub filled: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The upstream node may fill it, or it belongs to nobody.
    Free,
    /// Holds a chunk in a stream's queue.
    Filled,
    /// Holds a chunk that `leg` is reading.
    Posted { leg: LegId, stream: usize, serial: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) state: SlotState,
    pub(super) run: usize,
    pub(super) arrived: Time,
    pub(super) len: u32,
    /// Being delivered, and the last chunk of its message on this path.
    pub(super) last: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u16,
    pub(super) leg: Option<LegId>,
    busy: u16,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) slots: Vec<Slot>,
    runs: Vec<Option<Run>>,
}

const NOBODY: usize = usize::MAX;

impl Pool {
    pub(super) fn new(slots: u32) -> Self {
        let slot = Slot { state: SlotState::Free, run: NOBODY, arrived: 0, len: 0, last: false };
        Self { slots: vec![slot; slots as usize], runs: Vec::new() }
    }

    /// The first run of `count` neighbouring slots that belong to nobody.
    pub(super) fn lend(&mut self, leg: LegId, count: u16) -> Option<usize> {
        let want = usize::from(count);
        let mut start = 0;
        while start + want <= self.slots.len() {
            match self.slots[start..start + want].iter().rposition(|s| s.run != NOBODY) {
                Some(taken) => start += taken + 1,
                None => {
                    let index = self.runs.iter().position(Option::is_none).unwrap_or(self.runs.len());
                    if index == self.runs.len() {
                        self.runs.push(None);
                    }
                    self.runs[index] = Some(Run { first: start as u32, count, leg: Some(leg), busy: 0 });
                    for slot in &mut self.slots[start..start + want] {
                        slot.run = index;
                    }
                    return (want > 0).then_some(index);
                }
            }
        }
        None
    }

    /// `wish` slots, or fewer if the pool has no such run, at least one.
    pub(super) fn lend_up_to(&mut self, leg: LegId, wish: u16) -> Option<usize> {
        let mut count = wish.max(1);
        loop {
            match self.lend(leg, count) {
                Some(run) => return Some(run),
                None if count > 1 => count /= 2,
                None => return None,
            }
        }
    }

    pub(super) fn run(&self, index: usize) -> Option<Run> {
        self.runs.get(index).copied().flatten()
    }

    /// The pool slot behind slot `n` of a run.
    pub(super) fn slot_of(&self, run: usize, n: u16) -> Option<u32> {
        self.run(run).filter(|r| n < r.count).map(|r| r.first + u32::from(n))
    }

    /// Marks a slot as holding a chunk; `false` if it holds one already.
    pub(super) fn fill(&mut self, slot: u32, now: Time, len: u32) -> bool {
        let s = &mut self.slots[slot as usize];
        if s.state != SlotState::Free {
            return false;
        }
        (s.state, s.arrived, s.len, s.last) = (SlotState::Filled, now, len, false);
        if let Some(run) = self.runs[s.run].as_mut() {
            run.busy += 1;
        }
        true
    }

    /// The chunk is gone; answers the leg to credit and the slot's number there.
    pub(super) fn empty(&mut self, slot: u32) -> Option<(LegId, u16)> {
        let s = &mut self.slots[slot as usize];
        if s.state == SlotState::Free {
            return None;
        }
        s.state = SlotState::Free;
        let index = s.run;
        let run = self.runs[index].as_mut()?;
        run.busy -= 1;
        let answer = run.leg.map(|leg| (leg, (slot - run.first) as u16));
        if run.leg.is_none() && run.busy == 0 {
            self.give_back(index);
        }
        answer
    }

    /// Whether the leg is reading a slot.
    pub(super) fn is_read_by(&self, leg: LegId) -> bool {
        self.slots.iter().any(|s| matches!(s.state, SlotState::Posted { leg: reader, .. } if reader == leg))
    }

    /// The leg is gone: its run returns to the pool once its last chunk has left.
    pub(super) fn orphan(&mut self, index: usize) {
        if let Some(run) = self.runs.get_mut(index).and_then(Option::as_mut) {
            run.leg = None;
            if run.busy == 0 {
                self.give_back(index);
            }
        }
    }

    fn give_back(&mut self, index: usize) {
        if let Some(run) = self.runs[index].take() {
            for slot in &mut self.slots[run.first as usize..][..usize::from(run.count)] {
                slot.run = NOBODY;
            }
        }
    }

    /// Slots of a run that hold a chunk, and how many it has.
    pub(super) fn filled_of(&self, index: usize) -> (usize, usize) {
        let Some(run) = self.run(index) else { return (0, 0) };
        let slots = &self.slots[run.first as usize..][..usize::from(run.count)];
        (slots.iter().filter(|s| s.state != SlotState::Free).count(), slots.len())
    }

    pub(super) fn usage(&self) -> PoolUse {
        PoolUse {
            slots: self.slots.len() as u32,
            lent: self.slots.iter().filter(|s| s.run != NOBODY).count() as u32,
            filled: self.slots.iter().filter(|s| s.state != SlotState::Free).count() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_shrink_when_the_pool_is_nearly_full_and_fail_when_it_is() {
        let mut pool = Pool::new(7);
        let leg = LegId(1);
        let a = pool.lend_up_to(leg, 4).unwrap();
        let b = pool.lend_up_to(leg, 4).unwrap();
        let c = pool.lend_up_to(leg, 4).unwrap();
        let counts: Vec<_> = [a, b, c].iter().map(|r| pool.run(*r).unwrap().count).collect();
        assert_eq!(counts, [4, 2, 1]);
        assert_eq!(pool.lend_up_to(leg, 4), None);
        pool.orphan(b);
        let again = pool.lend_up_to(leg, 4).unwrap();
        assert_eq!(pool.run(again).unwrap().count, 2);
    }

    #[test]
    fn an_orphaned_run_returns_with_its_last_chunk() {
        let mut pool = Pool::new(2);
        let run = pool.lend(LegId(1), 2).unwrap();
        let slot = pool.slot_of(run, 1).unwrap();
        assert!(pool.fill(slot, 5, 10));
        assert!(!pool.fill(slot, 5, 10), "filled twice");
        pool.orphan(run);
        assert_eq!(pool.usage(), PoolUse { slots: 2, lent: 2, filled: 1 });
        assert_eq!(pool.empty(slot), None, "nobody to credit");
        assert_eq!(pool.usage(), PoolUse { slots: 2, lent: 0, filled: 0 });
    }

    #[test]
    fn a_leg_is_credited_with_its_own_slot_number() {
        let mut pool = Pool::new(8);
        pool.lend(LegId(1), 3).unwrap();
        let run = pool.lend(LegId(2), 3).unwrap();
        let slot = pool.slot_of(run, 2).unwrap();
        assert_eq!(slot, 5);
        assert_eq!(pool.slot_of(run, 3), None);
        pool.fill(slot, 0, 0);
        assert_eq!(pool.empty(slot), Some((LegId(2), 2)));
        assert_eq!(pool.empty(slot), None, "emptied twice");
    }
}
