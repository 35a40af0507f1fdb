//! The symbols that NCCL looks up.
//!
//! For: NCCL. Must not know: anything but which implementation is behind. Threads: constant.

#![allow(non_upper_case_globals, reason = "names that NCCL gave")]

use mesh_abi::{NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12};

use super::adapters;
use super::mesh::Mesh;

/// For NCCL 2.13 to 2.18.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v6: NetV6 = adapters::v6::<Mesh>();

/// For NCCL 2.19.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v7: NetV7 = adapters::v7::<Mesh>();

/// For NCCL 2.20 to 2.23.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v8: NetV8 = adapters::v8::<Mesh>();

/// For NCCL 2.24 and 2.25.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v9: NetV9 = adapters::v9::<Mesh>();

/// For NCCL 2.26 and 2.27.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v10: NetV10 = adapters::v10::<Mesh>();

/// For NCCL 2.28 and 2.29.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v11: NetV11 = adapters::v11::<Mesh>();

/// For NCCL 2.30 and later.
#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: NetV12 = adapters::v12::<Mesh>();
