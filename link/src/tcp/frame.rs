//! The bytes on the wire. Pure; any thread.
//!
//! A connection carries frames back to back, each a header of 32 bytes, little endian, and `len` bytes of body:
//!
//! | bytes | field | write | message |
//! |---|---|---|---|
//! | 0 | magic | 0x4d | 0x4d |
//! | 1 | version | 1 | 1 |
//! | 2 | kind | 1 | 2 |
//! | 3 | flags | bit 0: has an immediate value; others 0 | 0 |
//! | 4..8 | `len`: bytes of body | 0 to [`MAX_BODY`] | 0 to [`MAX_MESSAGE`] |
//! | 8..12 | key | of the receiver's window | 0 |
//! | 12..16 | immediate value | 0 without flag bit 0 | 0 |
//! | 16..24 | offset in the window | any | 0 |
//! | 24..32 | reserved | 0 | 0 |
//!
//! Anything else is refused at once: a stream that is out of step once cannot be trusted again.

use crate::{Key, LinkError, MAX_MESSAGE, MAX_WRITE, Target, WRITE_HEADER};

/// Bytes of a frame's header.
pub const HEADER: usize = 32;

/// Longest body of a write: the longest payload with its header.
pub const MAX_BODY: usize = MAX_WRITE + WRITE_HEADER;

const MAGIC: u8 = 0x4d;
const VERSION: u8 = 1;
const KIND_WRITE: u8 = 1;
const KIND_MESSAGE: u8 = 2;
const HAS_IMM: u8 = 1;

/// A frame's header, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// `len` bytes for `target`, and then the notification if there is an immediate value.
    Write {
        /// Where the body lands.
        target: Target,
        /// Bytes of body.
        len: u32,
        /// The immediate value.
        imm: Option<u32>,
    },
    /// `len` bytes of message.
    Message {
        /// Bytes of body.
        len: u32,
    },
}

/// The header's bytes.
pub fn encode(header: &Header) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    (bytes[0], bytes[1]) = (MAGIC, VERSION);
    match *header {
        Header::Write { target, len, imm } => {
            bytes[2] = KIND_WRITE;
            bytes[3] = if imm.is_some() { HAS_IMM } else { 0 };
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
            bytes[8..12].copy_from_slice(&target.key.raw().to_le_bytes());
            bytes[12..16].copy_from_slice(&imm.unwrap_or(0).to_le_bytes());
            bytes[16..24].copy_from_slice(&target.offset.to_le_bytes());
        }
        Header::Message { len } => {
            bytes[2] = KIND_MESSAGE;
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
        }
    }
    bytes
}

/// Understands a header, or says which rule it breaks. Whatever it accepts, [`encode`] turns into the same bytes again.
pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, LinkError> {
    let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let refuse = |what, value| Err(LinkError::Protocol { what, value });
    let [magic, version, kind, flags, ..] = *bytes;
    if bytes.starts_with(&crate::verbs::handshake::MAGIC) {
        let what = "the peer uses the verbs backend on this link, this end tcp: choose the same on both nodes";
        return refuse(what, magic.into());
    }
    if magic != MAGIC {
        return refuse("frame does not begin with the magic byte", magic.into());
    }
    if version != VERSION {
        return refuse("unknown frame version", version.into());
    }
    let (len, key, imm, offset, reserved) = (u32_at(4), u32_at(8), u32_at(12), u64_at(16), u64_at(24));
    if reserved != 0 {
        return refuse("reserved bytes are not zero", reserved);
    }
    match kind {
        KIND_WRITE => {
            if flags & !HAS_IMM != 0 {
                return refuse("unknown flags on a write", flags.into());
            }
            let has_imm = flags & HAS_IMM != 0;
            if !has_imm && imm != 0 {
                return refuse("immediate value without its flag", imm.into());
            }
            if len as usize > MAX_BODY {
                return refuse("write is too long", len.into());
            }
            Ok(Header::Write { target: Target { key: Key::from_raw(key), offset }, len, imm: has_imm.then_some(imm) })
        }
        KIND_MESSAGE => {
            if flags != 0 || key != 0 || imm != 0 || offset != 0 {
                return refuse("message with fields of a write", flags.into());
            }
            if len as usize > MAX_MESSAGE {
                return refuse("message is too long", len.into());
            }
            Ok(Header::Message { len })
        }
        _ => refuse("unknown frame kind", kind.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(len: u32, imm: Option<u32>) -> Header {
        Header::Write { target: Target { key: Key::from_raw(0x0102_0304), offset: 0x1112_1314_1516_1718 }, len, imm }
    }

    #[test]
    fn a_peer_of_the_other_backend_is_told_apart_from_noise() {
        // given what an end over verbs says first, then the error names both backends
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&crate::verbs::handshake::MAGIC);
        let text = parse(&bytes).unwrap_err().to_string();
        assert!(text.contains("verbs backend") && text.contains("this end tcp"), "{text}");
        // and anything else does not
        bytes[7] ^= 1;
        assert!(parse(&bytes).unwrap_err().to_string().contains("magic byte"));
    }

    #[test]
    fn the_layout_is_as_documented() {
        let bytes = encode(&write(0x2122_2324, Some(0x3132_3334)));
        assert_eq!(bytes[..8], [0x4d, 1, 1, 1, 0x24, 0x23, 0x22, 0x21]);
        assert_eq!(bytes[8..16], [4, 3, 2, 1, 0x34, 0x33, 0x32, 0x31]);
        assert_eq!(bytes[16..24], [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        assert_eq!(bytes[24..], [0; 8]);
    }

    #[test]
    fn lengths_are_bounded() {
        // given both sides of both limits
        let (body, message) = (MAX_BODY as u32, MAX_MESSAGE as u32);
        for header in
            [write(0, None), write(body, Some(0)), Header::Message { len: 0 }, Header::Message { len: message }]
        {
            assert_eq!(parse(&encode(&header)), Ok(header));
        }
        for header in [write(body + 1, None), write(u32::MAX, None), Header::Message { len: message + 1 }] {
            assert!(matches!(parse(&encode(&header)), Err(LinkError::Protocol { .. })), "{header:?}");
        }
    }

    #[test]
    fn every_field_that_must_be_zero_is_checked() {
        // given good headers, when any bit that has no meaning in them is set, then they are refused
        let zero_in_write =
            (1..8).map(|bit| (3, bit)).chain((12..16).chain(24..32).flat_map(|b| (0..8).map(move |bit| (b, bit))));
        let zero_in_message = std::iter::once(3).chain(8..32).flat_map(|byte| (0..8).map(move |bit| (byte, bit)));
        let cases = zero_in_write.map(|at| (write(5, None), at));
        for (header, (byte, bit)) in cases.chain(zero_in_message.map(|at| (Header::Message { len: 5 }, at))) {
            let mut bytes = encode(&header);
            bytes[byte] |= 1 << bit;
            assert!(parse(&bytes).is_err(), "{header:?} byte {byte} bit {bit}");
        }
    }

    #[test]
    fn random_bytes_are_refused_or_round_trip() {
        // given random headers, half of them with a good beginning so that the later checks are reached
        let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_0001_u64);
        println!("seed {seed}");
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut accepted = 0;
        for round in 0..200_000 {
            let mut bytes = [0; HEADER];
            bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|chunk| *chunk = next().to_le_bytes());
            if round % 2 == 0 {
                (bytes[0], bytes[1], bytes[2], bytes[3]) = (MAGIC, VERSION, 1 + bytes[2] % 2, bytes[3] % 2);
                bytes[7] %= 0x60;
                bytes[24..].fill(0);
            }
            // when parsed, then what is accepted is the only encoding of what it says
            if let Ok(header) = parse(&bytes) {
                assert_eq!(encode(&header), bytes);
                accepted += 1;
            }
        }
        assert!(accepted > 1000, "the good half was reached: {accepted}");
    }
}
