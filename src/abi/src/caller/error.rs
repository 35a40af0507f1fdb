//! What can go wrong on the host side. For: callers of a plugin. Must not know: the plugin. Threads: plain data.

use core::ffi::c_int;
use std::path::PathBuf;

use thiserror::Error;

use crate::NcclResult;

/// A plugin could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Versions outside 6 to 12 have no table here.
    #[error("version {version} of the net interface is not known (6 to 12 are)")]
    UnknownVersion {
        /// The version asked for.
        version: u32,
    },
    /// A path with a NUL byte.
    #[error("path {path:?} holds a NUL byte")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// `dlopen` refused.
    #[error("cannot open {path:?}: {reason}")]
    Load {
        /// The path.
        path: PathBuf,
        /// The loader's words.
        reason: String,
    },
    /// The table is not exported.
    #[error("{path:?} exports no {symbol}: {reason}")]
    NoSymbol {
        /// The path.
        path: PathBuf,
        /// Name of the symbol.
        symbol: String,
        /// The loader's words.
        reason: String,
    },
    /// A member of the table that may not be NULL is.
    #[error("the table of version {version} has no {member}")]
    NoMember {
        /// Version of the table.
        version: u32,
        /// Name of the member.
        member: &'static str,
    },
}

/// A call into a plugin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// The plugin returned an error.
    #[error("{call} returned {code}")]
    Failed {
        /// Name of the function.
        call: &'static str,
        /// Its result.
        code: NcclResult,
    },
    /// The plugin returned a number that is no result code.
    #[error("{call} returned {raw}, which is no result code")]
    UnknownCode {
        /// Name of the function.
        call: &'static str,
        /// Its result.
        raw: c_int,
    },
    /// The function is NULL in this plugin.
    #[error("the plugin has no {call}")]
    Missing {
        /// Name of the function.
        call: &'static str,
    },
    /// More bytes than this version of the interface can express.
    #[error("{call}: {bytes} bytes are more than the {limit} of this version")]
    TooLarge {
        /// Name of the function.
        call: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes possible.
        limit: usize,
    },
    /// The plugin said success and left an output as it was.
    #[error("{call} left {what} unwritten")]
    Unwritten {
        /// Name of the function.
        call: &'static str,
        /// Name of the output.
        what: &'static str,
    },
    /// The plugin said failure and left a comm, which NCCL would use and close twice.
    #[error("{call} returned {raw} and left a comm that is not NULL")]
    CommOnError {
        /// Name of the function.
        call: &'static str,
        /// Its result.
        raw: c_int,
    },
}

impl CallError {
    /// The plugin's result code, if the plugin returned a known one.
    pub fn code(&self) -> Option<NcclResult> {
        match self {
            Self::Failed { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// Result of a call into a plugin.
pub type Result<T> = core::result::Result<T, CallError>;

/// Turns a raw result into `Ok` or the error that names `call`.
pub(super) fn check(call: &'static str, raw: c_int) -> Result<()> {
    match NcclResult::from_raw(raw) {
        Some(NcclResult::Success) => Ok(()),
        Some(code) => Err(CallError::Failed { call, code }),
        None => Err(CallError::UnknownCode { call, raw }),
    }
}
