//! Simulated fabrics for nccl-mesh.
//!
//! Node processes on one machine, each with the real plugin: [`harness`]. All nodes in one thread and in virtual time:
//! [`virtual_time`].

pub mod harness;
pub mod virtual_time;
