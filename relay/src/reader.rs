//! Takes fields off the front of bytes that a stranger may have sent: integers, all little endian, and stretches of bytes.
//!
//! Pure; on the thread of whoever decodes. Knows no format: [`crate::wire`] and [`crate::discovery`] each have their own, and their own
//! errors, into which [`Short`] turns.

/// The bytes ended before a field did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    /// Bytes that were left.
    pub(crate) got: usize,
}

/// What is left to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(Short { got: self.bytes.len() })?;
        self.bytes = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The next `len` bytes.
    pub(crate) fn slice(&mut self, len: usize) -> Result<&'a [u8], Short> {
        let (head, tail) = self.bytes.split_at_checked(len).ok_or(Short { got: self.bytes.len() })?;
        self.bytes = tail;
        Ok(head)
    }
}
