//! What the executor needs of a connection: two ends with a few slots each.
//!
//! A slot is filled, posted, tested until done, and then free again; messages arrive in posted order. Both ends are used by one
//! thread at a time (NCCL's progress thread).

use std::fmt;

/// Slots of a connection's buffer, as many as NCCL has steps.
pub const SLOTS: usize = 8;

/// The sending end.
pub trait Outgoing {
    /// Why it fails.
    type Error: fmt::Display;

    /// A slot's first `bytes` bytes, to be filled; the slot is not posted.
    fn slot(&mut self, slot: usize, bytes: usize) -> &mut [u8];

    /// Sends a slot's first `bytes` bytes. `false`: not now, try again.
    ///
    /// # Errors
    /// The connection is broken.
    fn post(&mut self, slot: usize, bytes: usize) -> Result<bool, Self::Error>;

    /// Whether a posted slot may be filled again.
    ///
    /// # Errors
    /// The connection is broken.
    fn test(&mut self, slot: usize) -> Result<bool, Self::Error>;
}

/// The receiving end.
pub trait Incoming {
    /// Why it fails.
    type Error: fmt::Display;

    /// Offers a slot for the next message. `false`: not now, try again.
    ///
    /// # Errors
    /// The connection is broken.
    fn post(&mut self, slot: usize) -> Result<bool, Self::Error>;

    /// The size of the message that arrived in a posted slot.
    ///
    /// # Errors
    /// The connection is broken.
    fn test(&mut self, slot: usize) -> Result<Option<usize>, Self::Error>;

    /// A slot's first `bytes` bytes, which arrived.
    fn slot(&self, slot: usize, bytes: usize) -> &[u8];
}
