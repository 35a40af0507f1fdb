//! Which cables are cut now: a byte a cable, in memory that is shared with whoever cuts and mends them.
//!
//! Any thread; an answer costs one load.

use std::sync::atomic::{AtomicU8, Ordering};

/// A byte a cable, in the order of the fabric file; 0: whole. A cable without a byte cannot be cut.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cuts(&'static [AtomicU8]);

impl Cuts {
    /// With these bytes.
    #[must_use]
    pub const fn new(bytes: &'static [AtomicU8]) -> Self {
        Self(bytes)
    }

    /// Is cable number `cable`, from 0, cut?
    #[must_use]
    pub fn is_cut(self, cable: usize) -> bool {
        // Relaxed: nothing else is read because of it.
        self.0.get(cable).is_some_and(|byte| byte.load(Ordering::Relaxed) != 0)
    }
}
