//! Entries of the queues in shared memory: completions, and posted receives.
//!
//! The locks in the cells order those who write and read; the functions here say which lock each needs. Any thread.

use std::sync::atomic::{AtomicU32, Ordering};

use super::layout::{CqCell, MAX_SGE, QpCell};
use super::memory::Shared;
use crate::abi::{Sge, Wc};

/// One entry of a completion queue.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Completion {
    /// What the program gets.
    pub wc: Wc,
    /// For completions of the send queue: requests posted up to and with this one; 0 for receives.
    pub posted: u64,
    padding: u64,
}

impl Completion {
    /// An entry.
    pub fn new(wc: Wc, posted: u64) -> Self {
        Self { wc, posted, padding: 0 }
    }
}

/// One posted receive.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Receive {
    /// The program's number.
    pub wr_id: u64,
    /// Entries used of `sges`.
    pub count: u32,
    /// Where what arrives goes.
    pub sges: [Sge; MAX_SGE],
}

/// Bytes of the ring of a completion queue.
pub fn completion_bytes(capacity: u32) -> usize {
    capacity as usize * size_of::<Completion>()
}

/// Bytes of the ring of receives.
pub fn receive_bytes(capacity: u32) -> usize {
    capacity as usize * size_of::<Receive>()
}

impl Shared {
    /// Adds a completion; false if there is no room. The caller holds `cell.push.lock`.
    pub fn push_completion(&self, cell: &CqCell, entry: &Completion) -> bool {
        let capacity = cell.capacity.load(Ordering::Relaxed);
        let tail = cell.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(cell.push.head_seen.load(Ordering::Relaxed)) >= capacity {
            let head = cell.head.load(Ordering::Acquire);
            cell.push.head_seen.store(head, Ordering::Relaxed);
            if tail.wrapping_sub(head) >= capacity {
                return false;
            }
        }
        let Some(slot) = self.slot::<Completion>(cell.ring.load(Ordering::Relaxed), capacity, tail) else {
            return false;
        };
        // SAFETY: `slot` is inside the heap block of this ring; nobody else writes it under the push lock, and readers stay
        // behind the tail.
        unsafe { slot.write(*entry) };
        // After all data of the request and the entry itself.
        cell.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes the oldest completion. The caller holds `cell.pop`.
    pub fn pop_completion(&self, cell: &CqCell) -> Option<Completion> {
        let head = cell.head.load(Ordering::Relaxed);
        if is_empty(&cell.head, &cell.tail) {
            return None;
        }
        let slot =
            self.slot::<Completion>(cell.ring.load(Ordering::Relaxed), cell.capacity.load(Ordering::Relaxed), head)?;
        // SAFETY: the slot lies in the ring between head and tail: written completely, and not written again before the head
        // moves.
        let entry = unsafe { slot.read() };
        cell.head.store(head.wrapping_add(1), Ordering::Release);
        Some(entry)
    }

    /// Adds a receive; false if the queue is full. The caller holds `cell.receives`.
    pub fn push_receive(&self, cell: &QpCell, wr_id: u64, sges: &[Sge]) -> bool {
        let capacity = cell.capacity.load(Ordering::Relaxed);
        let tail = cell.tail.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `drop_receive`, after which the slot is not read any more.
        if sges.len() > MAX_SGE || tail.wrapping_sub(cell.head.load(Ordering::Acquire)) >= capacity {
            return false;
        }
        let Some(slot) = self.slot::<Receive>(cell.ring.load(Ordering::Relaxed), capacity, tail) else { return false };
        // SAFETY: the slot is inside this ring and, behind the tail, nobody's but ours under the lock; only the entries in use
        // are written, so that short receives touch little memory.
        unsafe {
            (&raw mut (*slot).wr_id).write(wr_id);
            (&raw mut (*slot).count).write(sges.len() as u32);
            (&raw mut (*slot).sges).cast::<Sge>().copy_from_nonoverlapping(sges.as_ptr(), sges.len());
        }
        cell.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// The oldest receive, which stays. The caller holds `cell.inbound`.
    pub fn peek_receive(&self, cell: &QpCell) -> Option<Receive> {
        if is_empty(&cell.head, &cell.tail) {
            return None;
        }
        let head = cell.head.load(Ordering::Relaxed);
        let slot =
            self.slot::<Receive>(cell.ring.load(Ordering::Relaxed), cell.capacity.load(Ordering::Relaxed), head)?;
        // SAFETY: between head and tail: `push_receive` has written it, and any bytes are valid for its unused entries.
        let mut receive = unsafe { slot.read() };
        receive.count = receive.count.min(MAX_SGE as u32);
        Some(receive)
    }

    /// Drops the oldest receive. The caller holds `cell.inbound` and has seen it with [`Self::peek_receive`].
    pub fn drop_receive(&self, cell: &QpCell) {
        let head = cell.head.load(Ordering::Relaxed);
        cell.head.store(head.wrapping_add(1), Ordering::Release);
    }

    fn slot<T>(&self, ring: u64, capacity: u32, index: u32) -> Option<*mut T> {
        if !capacity.is_power_of_two() {
            return None;
        }
        let place = ring + u64::from(index & (capacity - 1)) * size_of::<T>() as u64;
        self.at(place, size_of::<T>()).map(|address| address.cast().as_ptr())
    }
}

/// Whether nothing lies between head and tail: two loads, no lock.
pub fn is_empty(head: &AtomicU32, tail: &AtomicU32) -> bool {
    head.load(Ordering::Relaxed) == tail.load(Ordering::Acquire)
}
