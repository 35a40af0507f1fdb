//! What an entry point can return, and the frame around every one of them.
//!
//! For: all entry points. Must not know: what they do. Threads: any.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mesh_abi::NcclResult;
use thiserror::Error;

use super::fork;
use super::inner::Failure;

/// Why an entry point fails.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error("{what} is NULL")]
    Null { what: &'static str },
    #[error("{what} is not one of ours, or is closed already")]
    Foreign { what: &'static str },
    #[error("device {dev} does not exist ({count} reported)")]
    Device { dev: c_int, count: usize },
    #[error("a size of {size} bytes is not possible")]
    Size { size: i64 },
    #[error("{n} receives in one request; this network takes 1 (maxRecvs)")]
    Grouped { n: c_int },
    #[error("memory kind {kind:#x} cannot be registered; this network takes host memory only (ptrSupport)")]
    MemoryKind { kind: c_int },
    #[error("the range of {len} bytes at {base:#x} wraps around the address space")]
    Range { base: usize, len: usize },
    #[error("{len} bytes at {address:#x} are outside the registration of {registered} bytes at {base:#x}")]
    OutsideRegistration { address: usize, len: usize, base: usize, registered: usize },
    #[error("another thread is using this connection")]
    Concurrent,
    #[error("the request is not open: it was tested again after it was done")]
    NotOpen,
    #[error("slot {slot} is {reason}")]
    Slot { slot: u32, reason: &'static str },
    /// Said before: not logged again.
    #[error("the connection failed before with {0}")]
    Sticky(NcclResult),
    #[error("{text}")]
    Net { code: NcclResult, text: String },
}

impl Fault {
    pub(super) fn net(error: &impl Failure) -> Self {
        Self::Net { code: error.code(), text: error.to_string() }
    }

    pub(super) fn code(&self) -> NcclResult {
        match self {
            Self::Grouped { .. } | Self::MemoryKind { .. } | Self::Range { .. } | Self::OutsideRegistration { .. } => {
                NcclResult::InvalidUsage
            }
            Self::Device { .. } | Self::Size { .. } => NcclResult::InvalidArgument,
            Self::Sticky(code) | Self::Net { code, .. } => *code,
            Self::Null { .. } | Self::Foreign { .. } | Self::Concurrent | Self::NotOpen | Self::Slot { .. } => {
                NcclResult::InternalError
            }
        }
    }
}

impl Fault {
    /// The line for the log. Errors of the connections bring their code along; the others are of two kinds: what this network
    /// does not offer (E96), and calls that the interface does not allow (E97).
    fn line(&self, call: &str) -> String {
        match self {
            Self::Net { text, .. } => format!("{text} (in {call})"),
            Self::Null { .. } | Self::Foreign { .. } | Self::Concurrent | Self::NotOpen | Self::Slot { .. } => {
                format!("mesh[E97] {call}: {self}; this is a bug in the caller or in nccl-mesh, please report it")
            }
            _ => format!("mesh[E96] {call}: {self}"),
        }
    }
}

/// Runs the body of entry point `call`: nothing in a child of fork, no panic gets out, every fault is logged with the name of
/// the call, once.
pub(super) fn guarded(call: &'static str, body: impl FnOnce() -> Result<(), Fault>) -> c_int {
    if fork::in_child() {
        return NcclResult::SystemError.as_raw();
    }
    // A connection that was being used is marked as failed while unwinding (`Comm::with`); all other state is behind locks
    // whose content is valid after every single step.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        body().map_err(|fault| {
            if !matches!(fault, Fault::Sticky(_)) {
                tracing::warn!("{}", fault.line(call));
            }
            fault.code()
        })
    }));
    match outcome {
        Ok(Ok(())) => NcclResult::Success.as_raw(),
        Ok(Err(code)) => code.as_raw(),
        Err(panic) => {
            let text = panic_text(panic.as_ref());
            // Logging must not unwind into C either.
            let _ = catch_unwind(|| tracing::warn!("mesh[E98] {call}: internal error, please report it: {text}"));
            NcclResult::InternalError.as_raw()
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_code_and_the_call() {
        let net = Fault::Net { code: NcclResult::RemoteError, text: "mesh[E54] peer b is gone".to_owned() };
        assert_eq!(net.line("test"), "mesh[E54] peer b is gone (in test)");
        let misuse = Fault::Null { what: "request" }.line("isend");
        assert!(misuse.starts_with("mesh[E97] isend: request is NULL; "), "{misuse}");
        assert!(Fault::Grouped { n: 2 }.line("irecv").starts_with("mesh[E96] irecv: 2 receives "));
    }

    #[test]
    fn panics_and_faults_become_codes() {
        assert_eq!(guarded("x", || Ok(())), 0);
        assert_eq!(guarded("x", || Err(Fault::Grouped { n: 2 })), NcclResult::InvalidUsage.as_raw());
        assert_eq!(guarded("x", || panic!("boom")), NcclResult::InternalError.as_raw());
        assert_eq!(guarded("x", || panic!("{}", 3)), NcclResult::InternalError.as_raw());
        assert_eq!(guarded("x", || std::panic::panic_any(3u8)), NcclResult::InternalError.as_raw());
    }
}
