//! Slots of the tables: taken, given back, and freed when their process is dead.
//!
//! Any thread; takes the allocation lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::layout::{CqCell, MAX_CONTEXTS, MAX_CQS, MAX_QPS, MAX_REGIONS, QpCell, RegionCell};
use super::memory::Shared;
use super::rings::{completion_bytes, receive_bytes};
use crate::process::Identity;

impl Shared {
    /// The first free slot, marked as the calling process's; sweeps once if there is none.
    fn take<'a, T>(
        &'a self,
        cells: &'a [T],
        high: &AtomicU32,
        owner: impl Fn(&T) -> &AtomicU64,
    ) -> Option<(usize, &'a T)> {
        for attempt in 0..2 {
            if attempt == 1 {
                self.sweep();
            }
            let _held = self.tables().allocation.lock();
            let used = (high.load(Ordering::Relaxed) as usize).min(cells.len());
            let found = cells[..used].iter().position(|cell| owner(cell).load(Ordering::Relaxed) == 0);
            let slot = found.unwrap_or(used);
            if let Some(cell) = cells.get(slot) {
                owner(cell).store(Identity::own().raw(), Ordering::Relaxed);
                high.fetch_max(slot as u32 + 1, Ordering::Relaxed);
                return Some((slot, cell));
            }
        }
        None
    }

    /// A slot for an open device.
    pub fn take_context(&self) -> Option<usize> {
        let tables = self.tables();
        self.take(&tables.contexts, &tables.contexts_high, |cell| &cell.owner).map(|(slot, _)| slot)
    }

    /// A slot for a region, still without a key, and the key to publish.
    pub fn take_region(&self) -> Option<(&RegionCell, u32)> {
        let tables = self.tables();
        let (slot, cell) = self.take(&tables.regions, &tables.regions_high, |cell| &cell.owner)?;
        // Generations 1 to 255: no key is 0, and a stale one misses for a long time.
        let generation = cell.generation.fetch_add(1, Ordering::Relaxed) % 255 + 1;
        cell.users.store(0, Ordering::Relaxed);
        Some((cell, (slot as u32) << 8 | generation))
    }

    /// The region of a key, if the key is valid.
    pub fn region(&self, key: u32) -> Option<&RegionCell> {
        let cell = self.tables().regions.get((key >> 8) as usize)?;
        (key != 0 && cell.key.load(Ordering::Acquire) == key).then_some(cell)
    }

    /// A slot for a completion queue with a ring of `capacity` (a power of two) entries.
    pub fn take_cq(&self, capacity: u32) -> Option<(u32, &CqCell)> {
        let tables = self.tables();
        let (slot, cell) = self.take(&tables.cqs, &tables.cqs_high, |cell| &cell.owner)?;
        let ring = {
            let _held = tables.allocation.lock();
            self.allocate(completion_bytes(capacity))
        };
        let Some(ring) = ring else {
            cell.owner.store(0, Ordering::Release);
            return None;
        };
        cell.generation.fetch_add(1, Ordering::Relaxed);
        for word in [&*cell.tail, &cell.head, &cell.push.head_seen, &cell.armed, &cell.fifo, &cell.overrun] {
            word.store(0, Ordering::Relaxed);
        }
        cell.capacity.store(capacity, Ordering::Relaxed);
        cell.ring.store(ring, Ordering::Release);
        Some((slot as u32, cell))
    }

    /// Gives a completion queue back.
    pub fn free_cq(&self, cell: &CqCell) {
        let push = cell.push.lock.lock();
        let _held = self.tables().allocation.lock();
        let capacity = cell.capacity.swap(0, Ordering::Relaxed);
        if capacity != 0 {
            self.release(cell.ring.load(Ordering::Relaxed), completion_bytes(capacity));
        }
        drop(push);
        cell.owner.store(0, Ordering::Release);
    }

    /// A slot for a queue pair with room for `capacity` (a power of two) receives; its number is set.
    pub fn take_qp(&self, capacity: u32) -> Option<&QpCell> {
        let tables = self.tables();
        let (slot, cell) = self.take(&tables.qps, &tables.qps_high, |cell| &cell.owner)?;
        let ring = {
            let _held = tables.allocation.lock();
            self.allocate(receive_bytes(capacity))
        };
        let Some(ring) = ring else {
            cell.owner.store(0, Ordering::Release);
            return None;
        };
        for word in [&cell.tail, &*cell.head, &cell.state, &cell.access, &cell.peer, &cell.peer_port] {
            word.store(0, Ordering::Relaxed);
        }
        cell.capacity.store(capacity, Ordering::Relaxed);
        cell.ring.store(ring, Ordering::Relaxed);
        // 10 bits of generation above 14 of slot: all 24 bits of a number are used, and none is below 16384.
        let generation = cell.generation.fetch_add(1, Ordering::Relaxed) % 1023 + 1;
        cell.number.store(generation << 14 | slot as u32, Ordering::Release);
        Some(cell)
    }

    /// The queue pair of a number, if there is one.
    pub fn qp(&self, number: u32) -> Option<&QpCell> {
        let cell = self.tables().qps.get(number as usize % MAX_QPS)?;
        (number != 0 && cell.number.load(Ordering::Acquire) == number).then_some(cell)
    }

    /// Gives a queue pair back, once no peer is writing through it.
    pub fn free_qp(&self, cell: &QpCell) {
        cell.number.store(0, Ordering::SeqCst);
        drop(cell.inbound.lock());
        let receives = cell.receives.lock();
        let _held = self.tables().allocation.lock();
        let capacity = cell.capacity.swap(0, Ordering::Relaxed);
        if capacity != 0 {
            self.release(cell.ring.load(Ordering::Relaxed), receive_bytes(capacity));
        }
        drop(receives);
        cell.owner.store(0, Ordering::Release);
    }

    /// Frees everything that belongs to dead processes, and removes their FIFOs. Returns how many slots were freed.
    pub fn sweep(&self) -> usize {
        let tables = self.tables();
        // Alone: a slot judged dead must not be freed and taken anew by others before it is freed here.
        let _sweeping = tables.sweeping.lock();
        let mut known = HashMap::new();
        let mut dead = |owner: &AtomicU64| {
            let raw = owner.load(Ordering::Acquire);
            Identity::from_raw(raw).is_some_and(|identity| !*known.entry(raw).or_insert_with(|| identity.alive()))
        };
        let mut freed = 0;
        for cell in used(&tables.qps, &tables.qps_high, MAX_QPS).iter().filter(|cell| dead(&cell.owner)) {
            self.free_qp(cell);
            freed += 1;
        }
        for cell in used(&tables.regions, &tables.regions_high, MAX_REGIONS).iter().filter(|cell| dead(&cell.owner)) {
            cell.key.store(0, Ordering::SeqCst);
            cell.owner.store(0, Ordering::Release);
            freed += 1;
        }
        for cell in used(&tables.cqs, &tables.cqs_high, MAX_CQS).iter().filter(|cell| dead(&cell.owner)) {
            self.remove_fifo(&cell.fifo);
            self.free_cq(cell);
            freed += 1;
        }
        for cell in used(&tables.contexts, &tables.contexts_high, MAX_CONTEXTS).iter().filter(|cell| dead(&cell.owner))
        {
            self.remove_fifo(&cell.fifo);
            cell.owner.store(0, Ordering::Release);
            freed += 1;
        }
        freed
    }

    fn remove_fifo(&self, number: &AtomicU32) {
        let number = number.swap(0, Ordering::Relaxed);
        if number != 0 {
            // Gone already is fine: queues of one channel share a FIFO.
            let _ = std::fs::remove_file(self.fifo(number));
        }
    }
}

fn used<'a, T>(cells: &'a [T], high: &AtomicU32, most: usize) -> &'a [T] {
    &cells[..(high.load(Ordering::Acquire) as usize).min(most)]
}
