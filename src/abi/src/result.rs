//! `ncclResult_t`.
//!
//! For: both sides of the interface. Must not know: the errors that lead to a code. Threads: none.

use core::ffi::c_int;
use core::fmt;

/// NCCL's result code, the value every function of the interface returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum NcclResult {
    /// All went well.
    Success = 0,
    /// A CUDA call failed.
    UnhandledCudaError = 1,
    /// A system call or local device failed.
    SystemError = 2,
    /// A broken invariant, or misuse by NCCL.
    InternalError = 3,
    /// An argument is wrong.
    InvalidArgument = 4,
    /// Size mismatch or contradictory settings.
    InvalidUsage = 5,
    /// The peer or the way to it is lost.
    RemoteError = 6,
    /// Still under way.
    InProgress = 7,
}

impl NcclResult {
    /// The C value.
    pub const fn as_raw(self) -> c_int {
        self as c_int
    }

    /// The code with this C value, if there is one.
    pub const fn from_raw(raw: c_int) -> Option<Self> {
        Some(match raw {
            0 => Self::Success,
            1 => Self::UnhandledCudaError,
            2 => Self::SystemError,
            3 => Self::InternalError,
            4 => Self::InvalidArgument,
            5 => Self::InvalidUsage,
            6 => Self::RemoteError,
            7 => Self::InProgress,
            _ => return None,
        })
    }
}

impl fmt::Display for NcclResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Success => "ncclSuccess",
            Self::UnhandledCudaError => "ncclUnhandledCudaError",
            Self::SystemError => "ncclSystemError",
            Self::InternalError => "ncclInternalError",
            Self::InvalidArgument => "ncclInvalidArgument",
            Self::InvalidUsage => "ncclInvalidUsage",
            Self::RemoteError => "ncclRemoteError",
            Self::InProgress => "ncclInProgress",
        };
        write!(f, "{name} ({})", *self as c_int)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_way_through_c() {
        // given all values around the known range
        for raw in -2..12 {
            // when converted there and back, then known values stay and others are refused
            match NcclResult::from_raw(raw) {
                Some(code) => assert_eq!(code.as_raw(), raw),
                None => assert!(!(0..=7).contains(&raw)),
            }
        }
    }
}
