//! Soft verbs: a shared library that takes the place of `libibverbs.so.1`, so that unmodified RDMA programs run on a
//! make-believe fabric on one machine, without RDMA hardware, kernel module or root.
//!
//! A text file says which nodes have which ports and what is cabled ([`plan`]); two environment variables name the file and
//! the process's node. Processes share queue pairs, completion queues and memory regions through one file ([`shared`]), and
//! whoever posts a request copies its data straight into the other process ([`copying`], [`engine`]). [`surface`] is the C
//! interface, [`abi`] its types, [`symbols`] its names. [`artefact`] makes the shared library, [`control`] changes a fabric
//! while programs run on it.
//!
//! Linked as an ordinary Rust package it defines no `ibv_*` symbol: then it is the way to make the library and to control it.

#![allow(unsafe_code, reason = "a C interface on shared memory; each block names who upholds what it needs")]

pub mod abi;
pub mod artefact;
pub mod control;
pub mod copying;
pub mod engine;
pub mod plan;
pub mod process;
pub mod shared;
pub mod surface;
pub mod symbols;
pub mod wake;
