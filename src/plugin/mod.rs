//! NCCL's C interface to this library.
//!
//! For: NCCL, which finds the tables [`ncclNetPlugin_v12`] and older by name.
//! Must not know: how data move; that is behind `inner::Transport`.
//! Threads: NCCL's, see each file. Two threads on one connection are refused, never undefined behaviour.
//!
//! ```text
//!   exports        the statics that NCCL looks up
//!   adapters       C functions of each version, thin, over
//!   context          init and finalize, the banner
//!   properties       getProperties
//!   setup            listen, connect, accept, registration, close
//!   data             isend, irecv, test, iflush
//!   comm           the objects behind NCCL's pointers, with their requests
//!   registration   registered memory
//!   exclusive      one thread at a time, without waiting
//!   fault          errors, and the frame around every entry point
//!   fork           children of fork are turned away
//!   inner          what an implementation offers
//! ```
//!
//! NCCL promises, and every function here relies on: pointers to outputs are valid or NULL where the interface allows NULL;
//! comms, registrations and requests come from this library and are given back once; a buffer stays valid until its request
//! is done or its registration is taken back.

#![allow(
    unsafe_code,
    reason = "a C interface: pointers from NCCL are followed, and pointers given to it are taken back"
)]

mod adapters;
mod comm;
mod context;
mod data;
mod exclusive;
mod exports;
mod extra;
mod fault;
mod fork;
mod inner;
mod mesh;
mod properties;
mod registration;
mod setup;

#[cfg(test)]
mod loopback;
#[cfg(test)]
mod tests;

pub use exports::*;
pub use extra::nccl_mesh_snapshot;

pub(crate) use extra::drain_at_exit;

pub(crate) use inner::Properties;
pub(crate) use registration::Pinned;
