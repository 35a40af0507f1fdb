//! The C interface between NCCL and a net plugin, versions 6 to 12, as Rust types.
//!
//! For: the plugin's exported tables, and everything that has to call a plugin the way NCCL does (tests, simulator).
//! Must not know: how the plugin moves data; this crate holds layouts, constants and the host side of the calls only.
//! Threads: plain data. [`caller`] says per call which of NCCL's threads makes it.
//!
//! Every size and offset is asserted while compiling, so a build that succeeds has NCCL's layout.

#![allow(unsafe_code, reason = "C layouts, function pointers and the loader that calls them")]

mod calls;
mod constants;
mod properties;
mod result;
mod support;
mod tables;

pub mod caller;
pub mod logger;

pub use calls::*;
pub use constants::*;
pub use properties::*;
pub use result::NcclResult;
pub use support::*;
pub use tables::*;

/// Asserts the size of a C structure and the offset of every field, while compiling.
macro_rules! assert_layout {
    ($type:ty, $size:expr, { $($field:ident: $offset:expr),+ $(,)? }) => {
        const _: () = {
            assert!(size_of::<$type>() == $size, concat!("size of ", stringify!($type)));
            $(assert!(
                core::mem::offset_of!($type, $field) == $offset,
                concat!("offset of ", stringify!($type), "::", stringify!($field))
            );)+
        };
    };
}
pub(crate) use assert_layout;
