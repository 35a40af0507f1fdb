//! What can go wrong on a link, as facts.
//!
//! It must not know which node or route is concerned: the layers above add that and the stable code.

use crate::Key;
use crate::verbs::{CompletionFault, SetupFault};

/// The link is unusable. Sticky: once an endpoint has returned it, it returns it for ever and touches no window any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The peer closed its side.
    #[error("closed by peer, {missing} bytes before the end of a frame")]
    ClosedByPeer {
        /// Bytes at least that were still missing of a begun frame; 0 after a clean close.
        missing: u64,
    },
    /// The connection was reset by the peer or by something on the way.
    #[error("connection reset during {op}")]
    Reset {
        /// The operation that noticed it.
        op: &'static str,
    },
    /// The peer's kernel did not answer within the time set on the socket.
    #[error("timed out during {op}")]
    TimedOut {
        /// The operation that noticed it.
        op: &'static str,
    },
    /// The peer sent what the protocol forbids.
    #[error("protocol violation: {what} (value {value:#x})")]
    Protocol {
        /// The rule that was broken.
        what: &'static str,
        /// The offending value.
        value: u64,
    },
    /// The peer tried to write outside the window it was given. Not a byte of it landed.
    #[error("out of bounds write: {len} bytes at offset {offset} of key {:#x}, window has {allowed} bytes", .key.raw())]
    OutOfBounds {
        /// The key that was named.
        key: Key,
        /// Offset asked for, in bytes.
        offset: u64,
        /// Length asked for, in bytes.
        len: u64,
        /// Length of the window, in bytes.
        allowed: u64,
    },
    /// A system call failed in another way.
    #[error("{op} failed: {}", std::io::Error::from_raw_os_error(*.errno))]
    Io {
        /// The operation.
        op: &'static str,
        /// Its errno.
        errno: i32,
    },
    /// A NIC could not carry out a request.
    #[error(transparent)]
    Completion(CompletionFault),
    /// A queue pair could not be connected.
    #[error(transparent)]
    Setup(SetupFault),
    /// This side gave the link up.
    #[error("aborted on this side")]
    Aborted,
}

impl LinkError {
    /// Sorts a failed system call.
    pub(crate) fn from_io(op: &'static str, error: &std::io::Error) -> Self {
        match error.raw_os_error().unwrap_or(0) {
            libc::ECONNRESET | libc::EPIPE | libc::ECONNABORTED => Self::Reset { op },
            libc::ETIMEDOUT => Self::TimedOut { op },
            errno => Self::Io { op, errno },
        }
    }
}

/// A post was refused; nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// All entries are taken: poll, then post again.
    #[error("queue full")]
    QueueFull,
    /// Longer than one post may be.
    #[error("{len} bytes are too long for one post, at most {max}")]
    TooLong {
        /// Bytes asked for.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The memory is not registered with the NIC, and registering it for this use failed: most often the limit on locked memory
    /// (`ulimit -l`), or memory that is not this process's.
    #[error("{len} bytes are not registered with the NIC and cannot be (is ulimit -l too low?)")]
    NotRegistered {
        /// Bytes.
        len: usize,
    },
    /// The backend has no such post.
    #[error("links of this kind do not offer this")]
    NotOffered,
    /// The link has failed, was aborted, or this side has said that it writes no more.
    #[error("link is broken or closed for writing")]
    Broken,
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn errno_values_are_sorted() {
        let sorted = |errno| LinkError::from_io("send", &Error::from_raw_os_error(errno));
        for errno in [libc::EPIPE, libc::ECONNRESET, libc::ECONNABORTED] {
            assert_eq!(sorted(errno), LinkError::Reset { op: "send" });
        }
        assert_eq!(sorted(libc::ETIMEDOUT), LinkError::TimedOut { op: "send" });
        assert_eq!(sorted(libc::EHOSTUNREACH), LinkError::Io { op: "send", errno: libc::EHOSTUNREACH });
    }

    #[test]
    fn messages_hold_the_facts() {
        let error = LinkError::OutOfBounds { key: Key::from_raw(0x1_0002), offset: 9, len: 8, allowed: 16 };
        assert_eq!(error.to_string(), "out of bounds write: 8 bytes at offset 9 of key 0x10002, window has 16 bytes");
        let error = LinkError::Io { op: "send", errno: libc::ENETUNREACH };
        assert!(error.to_string().starts_with("send failed: Network is unreachable"), "{error}");
    }
}
