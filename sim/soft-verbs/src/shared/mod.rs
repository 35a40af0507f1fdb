//! The memory that all processes of a fabric share: one sparse file beside the fabric file.
//!
//! [`layout`] says what lies in it, [`memory`] maps it and hands out heap blocks, [`rings`] reads and writes the entries of
//! queues, [`lock`] is the lock that survives its holder, [`sweep`] frees what dead processes left.

pub mod layout;
pub mod lock;
pub mod memory;
pub mod rings;
pub mod sweep;

pub use memory::Shared;
