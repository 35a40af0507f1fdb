//! Takes fields off the front of bytes that a stranger may have sent.

use super::{MAGIC, PROTOCOL, WireError};

pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(WireError::Short { got: self.bytes.len() })?;
        self.bytes = tail;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next `len` bytes.
    pub(super) fn slice(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (head, tail) = self.bytes.split_at_checked(len).ok_or(WireError::Short { got: self.bytes.len() })?;
        self.bytes = tail;
        Ok(head)
    }

    pub(super) fn preface(&mut self) -> Result<(), WireError> {
        let magic = self.u32()?;
        if magic != MAGIC {
            return Err(WireError::Magic { got: magic });
        }
        let theirs = self.u16()?;
        if theirs != PROTOCOL { Err(WireError::Protocol { theirs, ours: PROTOCOL }) } else { Ok(()) }
    }
}
