//! One queue pair of this process: its send queue, and the changes of its state.
//!
//! Any thread; the queue's lock orders posting, polls and the progress thread, and makes the order of completions that of
//! posting. Lock order: send queue, a peer's inbound lock, its receives, a completion queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Fabric;
use super::attempt::Attempt;
use super::request::Request;
use crate::abi;
use crate::plan::Engine;
use crate::process::now_ns;
use crate::shared::layout::QpCell;
use crate::shared::rings::Completion;

/// How soon a request that cannot go on is tried again, ns.
pub const RETRY: u64 = 50_000;

/// What the program asked for when it made the pair.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests that may be outstanding.
    pub sends: u32,
    /// Receives that may be posted.
    pub receives: u32,
    /// Scatter entries of a request.
    pub send_sges: u32,
    /// Scatter entries of a receive.
    pub recv_sges: u32,
    /// Bytes of an inline request.
    pub inline: u32,
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patience {
    /// Exponent of the acknowledgement timeout, 0 for ever.
    pub timeout: u8,
    /// Retries when nobody answers.
    pub retries: u8,
    /// Retries when there is no receive, 7 for ever.
    pub rnr_retries: u8,
}

/// One queue pair.
#[derive(Debug)]
pub struct Pair {
    fabric: &'static Fabric,
    /// What peers see of it.
    pub cell: &'static QpCell,
    /// Its number.
    pub number: u32,
    /// Slot of the send completion queue.
    pub send_cq: u32,
    /// What was asked for.
    pub limits: Limits,
    /// The struct that the program holds; null once destroyed. Used for its `state` only, under the queue's lock.
    pub public: AtomicPtr<abi::Qp>,
    /// Whether the progress thread has it on its list.
    pub waiting: AtomicBool,
    /// Strict mode: requests whose slots were freed by polled completions.
    pub freed: AtomicU64,
    queue: Mutex<SendQueue>,
}

#[derive(Debug, Default)]
struct SendQueue {
    requests: VecDeque<Request>,
    /// Requests at the front that are carried out but not yet acknowledged (clock engine).
    carried: usize,
    posted: u64,
    patience: Patience,
    /// Since when nobody answers, ns.
    silent_since: Option<u64>,
    /// Since when there is no receive, ns.
    unready_since: Option<u64>,
    pulse: u64,
}

impl Pair {
    /// A pair in reset state around `cell`.
    pub fn new(fabric: &'static Fabric, cell: &'static QpCell, send_cq: u32, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            fabric,
            cell,
            number: cell.number.load(Ordering::Relaxed),
            send_cq,
            limits,
            public: AtomicPtr::new(std::ptr::null_mut()),
            waiting: AtomicBool::new(false),
            freed: AtomicU64::new(0),
            queue: Mutex::default(),
        })
    }

    /// `IBV_QPS_*`: peers change it too.
    pub fn state(&self) -> u32 {
        self.cell.state.load(Ordering::SeqCst)
    }

    fn queue(&self) -> MutexGuard<'_, SendQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time limits in force.
    pub fn patience(&self) -> Patience {
        self.queue().patience
    }

    /// Posts requests, all or none; carries them out at once if the engine is inline and nothing stands before them.
    ///
    /// # Errors
    /// The errno value: `EINVAL` in a state without sends, `ENOMEM` if the queue has no room for all.
    pub fn post(self: &Arc<Self>, requests: impl ExactSizeIterator<Item = Request>) -> Result<(), i32> {
        let mut queue = self.queue();
        let state = self.state();
        if !matches!(state, abi::IBV_QPS_RTS | abi::IBV_QPS_ERR) {
            return Err(libc::EINVAL);
        }
        let taken = if self.fabric.plan.strict {
            queue.posted - self.freed.load(Ordering::Acquire)
        } else {
            queue.requests.len() as u64
        };
        if taken + requests.len() as u64 > u64::from(self.limits.sends) {
            return Err(libc::ENOMEM);
        }
        let now = now_ns();
        let timed = self.fabric.plan.engine == Engine::Clock && state == abi::IBV_QPS_RTS;
        for mut request in requests {
            queue.posted += 1;
            request.posted = queue.posted;
            if timed {
                let (from, to) = (self.cell.port.load(Ordering::Relaxed), self.cell.peer_port.load(Ordering::Relaxed));
                self.fabric.reserve(&mut request, from, to, now);
            }
            queue.requests.push_back(request);
        }
        let again = self.advance(&mut queue, now);
        drop(queue);
        if again.is_some() {
            self.fabric.progress.wait_for(self.fabric, self);
        }
        Ok(())
    }

    /// Goes on with the requests that can; returns when to look again (ns), `None` if none is left.
    pub fn drive(&self) -> Option<u64> {
        let mut queue = self.queue();
        self.advance(&mut queue, now_ns())
    }

    /// The same, unless another thread is at it.
    pub fn try_drive(&self) {
        if let Ok(mut queue) = self.queue.try_lock() {
            self.advance(&mut queue, now_ns());
        }
    }

    fn advance(&self, queue: &mut SendQueue, now: u64) -> Option<u64> {
        loop {
            if self.state() == abi::IBV_QPS_ERR {
                self.show_state();
                self.flush_sends(queue);
                return None;
            }
            // Acknowledgements come back in order, and not over a dead cable.
            while queue.carried > 0 && queue.requests[0].acknowledged_at <= now {
                if !self.path_up() {
                    return self.silence(queue, now);
                }
                self.acknowledge(queue);
            }
            let Some(request) = queue.requests.get(queue.carried) else {
                return queue.requests.front().map(|first| first.acknowledged_at);
            };
            if request.arrives_at > now {
                return Some(queue.requests[0].acknowledged_at.min(request.arrives_at));
            }
            match self.fabric.attempt(self.cell, request, now, &mut queue.pulse) {
                Attempt::Done => {
                    (queue.silent_since, queue.unready_since) = (None, None);
                    queue.carried += 1;
                }
                Attempt::Failed(status) => {
                    // A refusal acknowledges all that went before.
                    while queue.carried > 0 {
                        self.acknowledge(queue);
                    }
                    self.fail(queue, status);
                }
                Attempt::NoAnswer => return self.silence(queue, now),
                Attempt::NoReceive => return self.unready(queue, now),
            }
        }
    }

    fn path_up(&self) -> bool {
        let cell = self.cell;
        self.fabric.path_up(cell.port.load(Ordering::Relaxed), cell.peer_port.load(Ordering::Relaxed))
    }

    fn acknowledge(&self, queue: &mut SendQueue) {
        if let Some(request) = queue.requests.pop_front() {
            queue.carried -= 1;
            queue.silent_since = None;
            if request.signalled {
                self.tell(&request, abi::IBV_WC_SUCCESS);
            }
        }
    }

    fn tell(&self, request: &Request, status: u32) {
        let wc = abi::Wc {
            wr_id: request.wr_id,
            status,
            opcode: request.operation.completion(),
            byte_len: request.length as u32,
            qp_num: self.number,
            ..abi::Wc::default()
        };
        self.fabric.complete(self.send_cq, &Completion::new(wc, request.posted), false);
    }

    /// Nobody answers: wait, or give up after the time that the attributes say.
    fn silence(&self, queue: &mut SendQueue, now: u64) -> Option<u64> {
        let since = *queue.silent_since.get_or_insert(now);
        let Patience { timeout, retries, .. } = queue.patience;
        // 4.096 µs × 2^timeout, once and for each retry.
        let limit = (4096u64 << timeout.min(31)) * (u64::from(retries) + 1);
        if timeout == 0 || now.saturating_sub(since) < limit {
            return Some(now + RETRY);
        }
        self.fail(queue, abi::IBV_WC_RETRY_EXC_ERR);
        self.flush_sends(queue);
        None
    }

    fn unready(&self, queue: &mut SendQueue, now: u64) -> Option<u64> {
        queue.silent_since = None;
        let since = *queue.unready_since.get_or_insert(now);
        let retries = u64::from(queue.patience.rnr_retries);
        let pause = self
            .fabric
            .shared
            .qp(self.cell.peer.load(Ordering::Relaxed))
            .map_or(0, |peer| rnr_pause(peer.rnr_timer.load(Ordering::Relaxed)));
        if retries >= 7 || now.saturating_sub(since) < pause * (retries + 1) {
            // A peer that dies while it is waited for must be noticed: it is looked at again, as for requests without data.
            return Some(now + RETRY);
        }
        while queue.carried > 0 {
            self.acknowledge(queue);
        }
        self.fail(queue, abi::IBV_WC_RNR_RETRY_EXC_ERR);
        self.flush_sends(queue);
        None
    }

    /// The oldest request fails with `status`, and the pair goes to error.
    fn fail(&self, queue: &mut SendQueue, status: u32) {
        if let Some(request) = queue.requests.pop_front() {
            queue.carried = queue.carried.saturating_sub(1);
            self.tell(&request, status);
        }
        self.stop_arrivals();
    }

    /// Error state; when this returns no peer writes through the pair any more, and its receives are flushed.
    fn stop_arrivals(&self) {
        self.cell.state.store(abi::IBV_QPS_ERR, Ordering::SeqCst);
        self.show_state();
        let _held = self.cell.inbound.lock();
        self.fabric.flush_receives(self.cell);
    }

    fn flush_sends(&self, queue: &mut SendQueue) {
        queue.carried = 0;
        (queue.silent_since, queue.unready_since) = (None, None);
        while let Some(request) = queue.requests.pop_front() {
            self.tell(&request, abi::IBV_WC_WR_FLUSH_ERR);
        }
    }

    /// Puts the state where the program reads it.
    fn show_state(&self) {
        let public = self.public.load(Ordering::Acquire);
        if !public.is_null() {
            // SAFETY: the pointer is the struct handed to the program, which lives until `retire` has set this to null under
            // the queue's lock, which our caller holds. Programs read the field without a lock, as with any library.
            unsafe { (&raw mut (*public).state).write_volatile(self.state()) };
        }
    }

    /// Changes from state `from` to initialised, ready to receive or ready to send, and keeps the time limits. False, and
    /// nothing is changed, if the state is another: a peer may break the pair at any moment.
    pub fn set_state(&self, from: u32, to: u32, patience: Patience) -> bool {
        let mut queue = self.queue();
        if self.cell.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return false;
        }
        queue.patience = patience;
        self.show_state();
        true
    }

    /// Changes to error: nothing arrives any more when this returns, and everything outstanding is flushed.
    pub fn set_error(&self) {
        let mut queue = self.queue();
        self.stop_arrivals();
        self.flush_sends(&mut queue);
    }

    /// Changes to reset: as error, but what was outstanding is forgotten.
    pub fn reset(&self) {
        let mut queue = self.queue();
        self.cell.state.store(abi::IBV_QPS_RESET, Ordering::SeqCst);
        self.show_state();
        let patience = queue.patience;
        *queue = SendQueue { patience, posted: queue.posted, ..SendQueue::default() };
        self.freed.store(queue.posted, Ordering::Release);
        let _inbound = self.cell.inbound.lock();
        let _receives = self.cell.receives.lock();
        self.cell.head.store(self.cell.tail.load(Ordering::Relaxed), Ordering::Release);
    }

    /// The program destroys the pair: the public struct is not touched again when this returns.
    pub fn retire(&self) {
        self.reset();
        let _queue = self.queue();
        self.public.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The errno value: `EINVAL` in reset state, `ENOMEM` if the queue is full.
    pub fn post_receive(&self, wr_id: u64, sges: &[abi::Sge]) -> Result<(), i32> {
        if self.state() == abi::IBV_QPS_RESET {
            return Err(libc::EINVAL);
        }
        {
            let _held = self.cell.receives.lock();
            let used = self.cell.tail.load(Ordering::Relaxed).wrapping_sub(self.cell.head.load(Ordering::Relaxed));
            if used >= self.limits.receives || !self.fabric.shared.push_receive(self.cell, wr_id, sges) {
                return Err(libc::ENOMEM);
            }
        }
        // Whoever sets the error state flushes what was posted before; what came after it, we do.
        if self.state() == abi::IBV_QPS_ERR {
            let _held = self.cell.inbound.lock();
            self.fabric.flush_receives(self.cell);
        }
        Ok(())
    }
}

/// The pause that a receiver-not-ready answer asks for, ns, by its code.
fn rnr_pause(code: u32) -> u64 {
    // In units of 10 µs, from the InfiniBand specification.
    const PAUSES: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
        4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    u64::from(PAUSES[code as usize % PAUSES.len()]) * 10_000
}
