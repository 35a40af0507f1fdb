//! Simulated fabrics for nccl-mesh.
//!
//! Node processes on one machine, each with the real plugin: [`harness`]. All nodes in one thread and in virtual time:
//! [`virtual_time`] for relaying, [`discovery`] for finding one another.

pub mod discovery;
pub mod harness;
pub mod virtual_time;
