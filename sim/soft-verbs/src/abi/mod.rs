//! The C types of libibverbs, as programs compiled against rdma-core's headers lay them out.
//!
//! Sizes and offsets are asserted at compile time on x86-64; other 64-bit Linux targets share them except where a pthread
//! mutex differs in size. Knows nothing of how the verbs are carried out. Plain data: any thread.

#![allow(clippy::use_self, reason = "C structs name their own pointers as the headers do")]
#![allow(missing_docs, reason = "field names are those of the public C headers, where they are documented")]

pub mod attributes;
pub mod constants;
pub mod objects;
pub mod work;

pub use attributes::*;
pub use constants::*;
pub use objects::*;
pub use work::*;

/// Fails to compile unless `$kind` has `$size` bytes and each named field its offset.
macro_rules! layout {
    ($kind:ty, $size:expr $(, $field:ident = $offset:expr)*) => {
        #[cfg(target_arch = "x86_64")]
        const _: () = {
            assert!(size_of::<$kind>() == $size);
            $(assert!(std::mem::offset_of!($kind, $field) == $offset);)*
        };
    };
}
pub(crate) use layout;
