//! The NCCL network plugin of nccl-mesh: `libnccl-net-mesh.so`.
//!
//! NCCL loads the library and calls it through the tables in [`plugin`]; connections live in `net`, which uses the layers
//! below (relay, routing, link). The library is also linked by the command `nccl-mesh`, which uses [`settings`], [`whole`] and [`ask`].
//!
//! ```text
//!   plugin     NCCL's C interface: tables of versions 6 to 12, adapters, requests, registrations
//!   net        connections: one internal implementation behind all versions
//!   settings   what users can set
//!   log        events to NCCL's logger or standard error
//! ```

pub mod log;
pub mod plugin;
pub mod settings;

mod net;

pub use net::{ask, whole};
