//! Adds completions to queues of any process and wakes who waits for them; tells of errors by asynchronous events.
//!
//! Any thread; takes the queue's push lock.

use std::sync::atomic::{Ordering, fence};

use super::Fabric;
use crate::abi;
use crate::shared::layout::{CqCell, QpCell};
use crate::shared::rings::Completion;

/// What a completion queue waits for.
pub const ARMED_SOLICITED: u32 = 1;
/// The same: any completion.
pub const ARMED_ANY: u32 = 2;

impl Fabric {
    /// Adds a completion to queue `slot` and wakes its channel if armed for it. Data of the request must be in place.
    pub fn complete(&self, slot: u32, entry: &Completion, solicited: bool) {
        let Some(cell) = self.shared.tables().cqs.get(slot as usize) else { return };
        if cell.owner.load(Ordering::Acquire) == 0 {
            return;
        }
        let added = {
            let _held = cell.push.lock.lock();
            cell.capacity.load(Ordering::Relaxed) != 0 && self.shared.push_completion(cell, entry)
        };
        if !added {
            self.overrun(slot, cell);
            return;
        }
        // Entry first, then the look at `armed`; the owner arms first and then looks for entries.
        fence(Ordering::SeqCst);
        self.wake(slot, cell, solicited || entry.wc.status != abi::IBV_WC_SUCCESS);
    }

    fn wake(&self, slot: u32, cell: &CqCell, solicited: bool) {
        let armed = cell.armed.load(Ordering::SeqCst);
        let wanted = armed == ARMED_ANY || (armed == ARMED_SOLICITED && solicited);
        // Only the one who disarms it writes: one event an arming.
        if wanted && cell.armed.compare_exchange(armed, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            let generation = cell.generation.load(Ordering::Relaxed);
            let port = &self.shared.tables().ports[cell.port.load(Ordering::Relaxed) as usize % crate::plan::MAX_PORTS];
            port.wakes.fetch_add(1, Ordering::Relaxed);
            if self.plan.wake_delay_ns > 0 {
                std::thread::sleep(std::time::Duration::from_nanos(self.plan.wake_delay_ns));
            }
            self.wakers.wake(&self.shared, cell.fifo.load(Ordering::Relaxed), [cookie(slot, generation), 0]);
        }
    }

    fn overrun(&self, slot: u32, cell: &CqCell) {
        if cell.overrun.swap(1, Ordering::Relaxed) == 0 {
            let element = cookie(slot, cell.generation.load(Ordering::Relaxed));
            self.wakers.wake(
                &self.shared,
                cell.events.load(Ordering::Relaxed),
                [u64::from(abi::IBV_EVENT_CQ_ERR), element],
            );
        }
    }

    /// Completes all receives of a queue pair as flushed. The caller holds the cell's inbound lock.
    pub fn flush_receives(&self, cell: &QpCell) {
        let _held = cell.receives.lock();
        let number = cell.number.load(Ordering::Relaxed);
        while let Some(receive) = self.shared.peek_receive(cell) {
            self.shared.drop_receive(cell);
            let wc = abi::Wc {
                wr_id: receive.wr_id,
                status: abi::IBV_WC_WR_FLUSH_ERR,
                opcode: abi::IBV_WC_RECV,
                qp_num: number,
                ..abi::Wc::default()
            };
            self.complete(cell.recv_cq.load(Ordering::Relaxed), &Completion::new(wc, 0), false);
        }
    }

    /// Tells the owner of a queue pair of an event.
    pub fn pair_event(&self, cell: &QpCell, event: u32) {
        let number = cell.number.load(Ordering::Relaxed);
        self.wakers.wake(&self.shared, cell.events.load(Ordering::Relaxed), [u64::from(event), u64::from(number)]);
    }
}

/// Names one use of a completion queue's slot.
pub fn cookie(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}
