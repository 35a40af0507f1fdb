//! Simulated fabrics for nccl-mesh.
//!
//! Node processes on one machine, each with the real plugin: [`harness`].

pub mod harness;
