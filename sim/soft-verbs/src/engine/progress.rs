//! The queue pairs of this process, and the thread that goes on with those whose head request has to wait.
//!
//! The thread exists once something has waited (always with the clock engine) and sleeps while nothing does. Without it a
//! program asleep on a completion channel would never see its completion.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use super::Fabric;
use super::pair::Pair;
use crate::process::{keep_signals_away, now_ns};

/// Longest sleep of the thread while requests wait, ns.
const LONGEST_NAP: u64 = 1_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Progress {
    pairs: RwLock<HashMap<u32, Arc<Pair>>>,
    waiting: Mutex<Vec<Arc<Pair>>>,
    count: AtomicUsize,
    /// Times a pair was put on the list.
    added: AtomicUsize,
    started: AtomicBool,
    work: Condvar,
}

impl Progress {
    /// A new pair.
    pub fn add(&self, pair: &Arc<Pair>) {
        self.pairs.write().unwrap_or_else(PoisonError::into_inner).insert(pair.number, pair.clone());
    }

    /// A pair is destroyed.
    pub fn remove(&self, number: u32) {
        self.pairs.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// The pair of this process with this number.
    pub fn pair(&self, number: u32) -> Option<Arc<Pair>> {
        self.pairs.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Pair>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `pair` has requests that cannot go on now.
    pub fn wait_for(&self, fabric: &'static Fabric, pair: &Arc<Pair>) {
        if !pair.waiting.swap(true, Ordering::AcqRel) {
            let mut list = self.list();
            list.push(pair.clone());
            self.count.store(list.len(), Ordering::Release);
            self.added.fetch_add(1, Ordering::Relaxed);
            self.work.notify_one();
        }
        if !self.started.swap(true, Ordering::AcqRel) {
            let thread = std::thread::Builder::new().name("soft-verbs".to_owned());
            if let Err(error) = thread.spawn(move || fabric.progress.run()) {
                // Polls still make progress, and the next waiting request tries again.
                self.started.store(false, Ordering::Release);
                eprintln!("soft verbs: no thread for waiting requests: {error}");
            }
        }
    }

    /// A poll found completion queue `slot` empty: goes on with requests that complete there, if any wait.
    pub fn polled(&self, slot: u32) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        // Not while the thread copies its list; it drives them itself then.
        let Ok(list) = self.waiting.try_lock() else { return };
        let pairs: Vec<_> = list.iter().filter(|pair| pair.send_cq == slot).cloned().collect();
        drop(list);
        for pair in pairs {
            pair.try_drive();
        }
    }

    fn run(&self) {
        keep_signals_away();
        // The kernel otherwise adds 50 µs to every sleep of this thread.
        // SAFETY: changes the calling thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
        loop {
            let (pairs, added) = {
                let mut list = self.list();
                while list.is_empty() {
                    list = self.work.wait(list).unwrap_or_else(PoisonError::into_inner);
                }
                (list.clone(), self.added.load(Ordering::Relaxed))
            };
            let mut next = u64::MAX;
            for pair in pairs {
                // Cleared before the look, so that a request posted after it puts the pair on the list again.
                if let Some(again) = pair.drive() {
                    next = next.min(again);
                } else {
                    self.settle(&pair);
                }
            }
            let now = now_ns();
            if next > now && next != u64::MAX {
                // Others may add work that is due sooner: then no sleep, or the end of it.
                let list = self.list();
                if self.added.load(Ordering::Relaxed) != added {
                    continue;
                }
                let nap = Duration::from_nanos((next - now).min(LONGEST_NAP));
                drop(self.work.wait_timeout(list, nap).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Takes a pair without requests off the list, unless one has come meanwhile.
    fn settle(&self, pair: &Arc<Pair>) {
        let mut list = self.list();
        list.retain(|other| !Arc::ptr_eq(other, pair));
        self.count.store(list.len(), Ordering::Release);
        pair.waiting.store(false, Ordering::Release);
        drop(list);
        if pair.drive().is_some() && !pair.waiting.swap(true, Ordering::AcqRel) {
            let mut list = self.list();
            list.push(pair.clone());
            self.count.store(list.len(), Ordering::Release);
        }
    }
}
