//! A cluster in virtual time whose nodes have to find one another, under one seed.
//!
//! The nodes are [`mesh_relay::discovery::Discovery`]s: the very code of a real node. What is made up is what lies between and around them:
//! cables that lose, delay, repeat and reorder datagrams, are cut and mended, with and without the ends noticing; nodes that stop and
//! start; clocks that leap. The same seed gives the same run, event by event.
//!
//! It knows what there really is ([`World::truth`]) without asking discovery, and so can say whether a node's view is right.
//! It knows no thread, socket or real clock, and is run by the caller's thread.

mod blueprint;
mod cable;
mod node;
mod plan;
mod truth;
mod world;

pub use cable::{Cut, Weather};
pub use plan::{BOUND, Outcome, random_mistakes, random_run};
pub use truth::Picture;
pub use world::{Traffic, World};
