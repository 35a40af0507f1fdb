//! Calls a plugin as NCCL does, whatever version of the table it exports.
//!
//! For: tests and the simulator's harness. Must not know: which plugin it is.
//! Threads: a [`Plugin`] is shared freely; the data path of one connection is for one thread at a time, as with NCCL.
//!
//! Methods have the shape of version 12. For older versions they do what NCCL's adapters do: one `init` while any
//! context lives and no `finalize` (v6 to v10), the traffic class in `connect` (v10), `int` sizes and no mark for
//! optional completion (v6 to v8).
//!
//! Handles are copies of the plugin's pointers. Like NCCL, the user gives them back once and not while another call
//! with them runs; the types keep the kinds apart, the life time is the user's.

mod data;
mod error;
mod handles;
mod library;
mod normal;
mod properties;
mod setup;

pub use error::{CallError, OpenError, Result};
pub use handles::{Comm, Ctx, ListenComm, MHandle, RecvComm, Request, SendComm};
pub use library::Plugin;
pub use properties::Properties;

#[cfg(test)]
mod tests;
