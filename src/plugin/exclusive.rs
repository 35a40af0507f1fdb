//! Exclusive access without waiting.
//!
//! For: the state of a connection, which NCCL promises to enter from one thread at a time.
//! Must not know: what it guards. Threads: any; the second one at a time is refused, never undefined behaviour.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that one thread at a time may use; others are turned away.
pub(crate) struct Exclusive<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `enter` hands out at most one guard at a time (`busy`, acquire and release), so sharing moves the value between
// threads and never shares it: `Send` is enough.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, unless another thread (or this one, further up) is using it.
    pub(crate) fn enter(&self) -> Option<Guard<'_, T>> {
        if self.busy.swap(true, Ordering::Acquire) { None } else { Some(Guard(self)) }
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> fmt::Debug for Exclusive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exclusive").field("busy", &self.busy).finish_non_exhaustive()
    }
}

/// The right to use the value; ends when dropped.
pub(crate) struct Guard<'a, T>(&'a Exclusive<T>);

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while `busy` is set by it, so this is the only access.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_entry_is_refused_until_the_first_ends() {
        // given a value in use
        let cell = Exclusive::new(1);
        let mut first = cell.enter().unwrap();
        *first += 1;
        // when entered again, by this thread and another, then it is refused
        assert!(cell.enter().is_none());
        std::thread::scope(|scope| scope.spawn(|| assert!(cell.enter().is_none())).join().unwrap());
        // and when the first use ends, then it is free again
        drop(first);
        assert_eq!(*cell.enter().unwrap(), 2);
        assert_eq!(cell.into_inner(), 2);
    }

    #[test]
    fn threads_that_retry_lose_no_update() {
        // given two threads that add without any other lock
        let cell = Exclusive::new(0u64);
        const EACH: u64 = 20_000;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut left = EACH;
                    while left > 0 {
                        match cell.enter() {
                            Some(mut value) => {
                                *value += 1;
                                left -= 1;
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        // then every addition counted
        assert_eq!(cell.into_inner(), 2 * EACH);
    }
}
