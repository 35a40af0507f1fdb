//! What NCCL expects of a net plugin, checked call by call through the plugin's C interface, on nodes that really relay.
//!
//! Every test starts this program again, once a node of a make-believe fabric (`nccl-mesh sim run -- …`), and there plays NCCL's
//! part: listen, connect, accept, register, post, test, close. Nodes agree on what to do through a small hub on rank 0, as NCCL's
//! ranks do through its bootstrap. The usual fabric is a line of four, where rank 0 has a neighbour, a peer behind one relay and
//! one behind two.
#![cfg(feature = "cli")]
#![allow(unsafe_code, reason = "a plugin reads and writes buffers by address")]

#[path = "../common/mod.rs"]
mod common;
mod hub;
mod memory;
mod node;
mod pump;
mod scenario;

mod connecting;
mod flags;
mod lifetime;
mod moving;
mod ordering;
mod registering;
mod relaying;
mod versions;
