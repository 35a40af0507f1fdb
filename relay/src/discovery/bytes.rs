//! Reading and writing the fields of datagrams. All integers are little endian; every length is bounded before it is used.
//!
//! Knows no message. Runs on the thread of whoever decodes.

use std::net::Ipv4Addr;

use thiserror::Error;

use crate::reader::{Reader, Short};

/// Why bytes from the network are refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, PartialOrd, Ord)]
pub enum WireError {
    /// The datagram ended before its fields did.
    #[error("it ends before its fields do")]
    Short,
    /// Bytes were left over.
    #[error("{left} bytes follow its end")]
    Trailing {
        /// How many.
        left: usize,
    },
    /// The first word is not ours.
    #[error("its first word is 0x{got:08x}: no beacon of nccl-mesh")]
    Magic {
        /// The word.
        got: u32,
    },
    /// Another version of the discovery protocol.
    #[error(
        "it speaks version {theirs} of the discovery protocol, this node {ours}: install the same build on all nodes"
    )]
    Version {
        /// The sender's version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// No such kind of datagram.
    #[error("its kind {kind} is unknown")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// A field outside its bounds.
    #[error("its field {field} is {value}, at most {limit} is allowed")]
    Bounds {
        /// Name of the field.
        field: &'static str,
        /// What it said.
        value: u64,
        /// The most allowed.
        limit: u64,
    },
    /// A text that is empty, no UTF-8, or has control characters or commas.
    #[error("its field {field} is no plain text")]
    Text {
        /// Name of the field.
        field: &'static str,
    },
    /// An address or prefix length that no port may have.
    #[error("{address}/{prefix} is no address of a port")]
    Port {
        /// The address.
        address: Ipv4Addr,
        /// The prefix length.
        prefix: u8,
    },
    /// A list that is not in ascending order, or names what the datagram does not hold.
    #[error("its list of {field} is not in order")]
    Order {
        /// What the list is of.
        field: &'static str,
    },
}

impl From<Short> for WireError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

/// What only datagrams have.
impl<'a> Reader<'a> {
    pub(super) fn address(&mut self) -> Result<Ipv4Addr, WireError> {
        Ok(Ipv4Addr::from(self.array::<4>()?))
    }

    /// A number of things that follow.
    pub(super) fn count(&mut self, field: &'static str, limit: usize) -> Result<usize, WireError> {
        let value = self.u8()?;
        bound(field, value.into(), limit as u64)?;
        Ok(usize::from(value))
    }

    /// A text of at most `limit` bytes behind its length; may be empty only if `empty`.
    pub(super) fn text(&mut self, field: &'static str, limit: usize, empty: bool) -> Result<&'a str, WireError> {
        let len = self.count(field, limit)?;
        let text = std::str::from_utf8(self.slice(len)?).map_err(|_| WireError::Text { field })?;
        if is_plain(text) && (empty || !text.is_empty()) { Ok(text) } else { Err(WireError::Text { field }) }
    }

    pub(super) fn end(&self) -> Result<(), WireError> {
        match self.bytes.len() {
            0 => Ok(()),
            left => Err(WireError::Trailing { left }),
        }
    }
}

/// Whether people can read the text on one line of a log and write it into a list.
pub(super) fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || c == ',')
}

pub(super) fn bound(field: &'static str, value: u64, limit: u64) -> Result<(), WireError> {
    if value > limit { Err(WireError::Bounds { field, value, limit }) } else { Ok(()) }
}

/// Puts a text behind its length. The caller has bounded it to 255 bytes.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    debug_assert!(text.len() <= 255);
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}
