//! Relay engine, connection flows, path set-up and the agent of nccl-mesh.
//!
//! From the bottom up:
//!
//! - [`wire`]: chunk headers and control messages, as bytes;
//! - [`board`]: clear-to-sends where links need no message for them;
//! - [`send`], [`recv`]: the two ends of a connection, as state machines;
//! - [`engine`]: the node's agent as one state machine: path set-up, relaying, teardown;
//! - [`agent`]: the thread that runs the engine over real links;
//! - [`discovery`]: beacons and link state, from which all nodes come to one view of the cluster;
//! - [`node`]: who owns a node on its host, and the thread that runs discovery over real sockets;
//! - [`stats`], [`code`]: what is counted, and the numbers of faults.
//!
//! Protocol logic is sans-I/O: events in, actions out, time passed in. Below [`agent`] nothing knows memory, sockets, threads
//! or clocks.

pub mod agent;
pub mod board;
pub mod code;
pub mod discovery;
pub mod engine;
pub mod node;
mod reader;
pub mod recv;
pub mod send;
pub mod stats;
pub mod wire;
