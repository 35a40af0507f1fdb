//! What travels with payload: the header of a chunk in a slot, and the notification of a write into a receive buffer.
//!
//! Pure; any thread. Knows no slot and no memory.

use super::{HEADER_BYTES, WireError, bound};
use crate::reader::Reader;

/// In front of every chunk in a slot: whose bytes they are and where they go. The sender says all that the last relay must know to write
/// into the receive buffer, so relays keep nothing of clear-to-sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ChunkHeader {
    /// Stream of the leg the chunk travels on (0 on a connection's own leg).
    pub stream: u32,
    /// Number of the message within its connection, from 0, wrapping.
    pub seq: u32,
    /// Where the payload goes in the receive buffer, base included.
    pub at: u64,
    /// Payload bytes behind the header.
    pub len: u32,
    /// Key of the receive buffer.
    pub key: u32,
    /// Lanes that carry a part of the message, 1 to 15.
    pub parts: u8,
    /// Whether this is the message's last chunk on this lane.
    pub last: bool,
}

impl ChunkHeader {
    /// Encodes into the fixed form.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut b = [0; HEADER_BYTES];
        b[0..4].copy_from_slice(&self.stream.to_le_bytes());
        b[4..8].copy_from_slice(&self.seq.to_le_bytes());
        b[8..16].copy_from_slice(&self.at.to_le_bytes());
        b[16..20].copy_from_slice(&self.len.to_le_bytes());
        b[20..24].copy_from_slice(&self.key.to_le_bytes());
        b[24] = u8::from(self.last);
        b[25] = self.parts;
        b
    }

    /// Decodes and bounds: `limit` is the payload room of a slot.
    ///
    /// # Errors
    /// [`WireError::Bounds`] if the length exceeds `limit`, the flag is not 0 or 1, or there are more than 15 parts.
    pub fn decode(b: &[u8; HEADER_BYTES], limit: u32) -> Result<Self, WireError> {
        let mut r = Reader { bytes: b };
        let (stream, seq, at, len, key) = (r.u32()?, r.u32()?, r.u64()?, r.u32()?, r.u32()?);
        let (last, parts) = (r.u8()?, r.u8()?);
        bound("chunk length", len.into(), limit.into())?;
        bound("chunk flag", last.into(), 1)?;
        bound("chunk parts", parts.into(), 15)?;
        Ok(Self { stream, seq, at, len, key, parts, last: last == 1 })
    }

    /// What the write of this chunk into the receive buffer notifies.
    pub const fn note(&self) -> Note {
        Note { seq: self.seq as u8, last: self.last, parts: self.parts }
    }
}

/// What the notification of a write into a receive buffer says, in the 32 bits of an immediate: the message's number (8 bits), whether
/// this was its last write on this lane, and over how many lanes the message was spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// Low byte of the message's number.
    pub seq: u8,
    /// Last write of the message on this lane.
    pub last: bool,
    /// Lanes that carry a part of the message, 1 to 15.
    pub parts: u8,
}

impl Note {
    /// As an immediate.
    pub fn encode(self) -> u32 {
        u32::from(self.seq) | u32::from(self.last) << 8 | u32::from(self.parts & 15) << 9
    }

    /// From an immediate; unknown bits or zero parts are `None`.
    pub fn decode(imm: u32) -> Option<Self> {
        let parts = (imm >> 9 & 15) as u8;
        (imm >> 13 == 0 && parts > 0).then_some(Self { seq: imm as u8, last: imm >> 8 & 1 == 1, parts })
    }
}
