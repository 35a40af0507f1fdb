//! A fabric in virtual time that runs the state machines of every node under one seed.
//!
//! ```text
//!   World ── events by (time, order) ──▶ one input to one state machine ──▶ its outputs, carried out ──▶ more events
//! ```
//!
//! The nodes are [`mesh_relay::engine::Engine`]s, the ends of connections [`mesh_relay::send::SendFlow`] and
//! [`mesh_relay::recv::RecvFlow`]: the very code of a real node. What is made up here is what lies between and around them: legs with
//! latency, rate and late completions; memory, as records of whose bytes lie where; and users that post, pause, close and die.
//! Messages travel encoded. Everything is checked while it runs, and the same seed gives the same run, event by event.
//!
//! It knows no thread, socket or real clock, and is run by the caller's thread.

mod carry;
mod check;
mod ends;
mod fabric;
mod memory;
mod nodes;
mod pipe;
mod receiver;
mod report;
mod rng;
mod sender;
mod spec;
mod turns;
mod workload;
mod world;

pub use report::{ConnReport, Ending, Failure, Summary};
pub use rng::Rng;
pub use spec::{Closing, ConnSpec, MessageSpec, Pace, Physics, Who};
pub use workload::{Workload, all_pairs, random_pairs};
pub use world::World;
