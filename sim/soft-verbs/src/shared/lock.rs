//! A spinlock in shared memory that survives the death of its holder.
//!
//! What it guards must stay usable if the holder dies at any point: rings publish an entry before they move their end.
//! Any thread of any process; held for well under a microsecond, except the inbound lock of a queue pair, which is held for a
//! copy.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::Identity;

/// The lock; all zero is free.
#[derive(Debug)]
#[repr(transparent)]
pub struct ShmLock {
    holder: AtomicU64,
}

/// Holds the lock until dropped.
#[derive(Debug)]
#[must_use]
pub struct Held<'a>(&'a ShmLock);

impl ShmLock {
    /// A free lock.
    pub const fn new() -> Self {
        Self { holder: AtomicU64::new(0) }
    }

    /// Takes the lock, waiting for a live holder and taking it over from a dead one.
    pub fn lock(&self) -> Held<'_> {
        let own = Identity::own().raw();
        let mut tries = 0u32;
        loop {
            match self.holder.compare_exchange_weak(0, own, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Held(self),
                Err(holder) => {
                    tries = tries.wrapping_add(1);
                    // On few cores the holder may need ours to get done.
                    if tries < 64 {
                        std::hint::spin_loop();
                    } else {
                        std::thread::yield_now();
                    }
                    if tries.is_multiple_of(2048) && self.take_over(holder, own) {
                        return Held(self);
                    }
                }
            }
        }
    }

    fn take_over(&self, holder: u64, own: u64) -> bool {
        let dead = Identity::from_raw(holder).is_some_and(|identity| !identity.alive());
        dead && self.holder.compare_exchange(holder, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Default for ShmLock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.holder.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_taken_over_from_the_dead_only() {
        // given a lock that a process held which is gone (an id above any that Linux gives)
        let lock = ShmLock { holder: AtomicU64::new(0x7fff_ffff << 32 | 7) };
        // when another takes it, then it gets it
        drop(lock.lock());
        assert_eq!(lock.holder.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn excludes_threads_of_one_process() {
        // given a counter that two threads raise in two steps under the lock
        static LOCK: ShmLock = ShmLock::new();
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let raise = || {
            for _ in 0..10_000 {
                let _held = LOCK.lock();
                let seen = COUNT.load(Ordering::Relaxed);
                COUNT.store(seen + 1, Ordering::Relaxed);
            }
        };
        // when both are through, then nothing was lost
        std::thread::scope(|scope| {
            scope.spawn(raise);
            scope.spawn(raise);
        });
        assert_eq!(COUNT.load(Ordering::Relaxed), 20_000);
    }
}
