//! What the two ends tell each other over the stream. Pure; any thread.
//!
//! Each end sends one [`Hello`] of 64 bytes, little endian, as soon as its queue pair takes receives:
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic `VERBSLNK` (a frame of the TCP backend begins with `M`) |
//! | 8..12 | version, 3 |
//! | 12..16 | number of the queue pair, 24 bits |
//! | 16..20 | first packet sequence number, 24 bits |
//! | 20..24 | MTU of the port in bytes |
//! | 24..40 | GID of the port |
//! | 40..44 | receives posted |
//! | 44..48 | longest message of the port in bytes |
//! | 48..56 | address of [`OPEN`] bytes that the peer may write: first the words for credits and needs, in the second half the board |
//! | 56..60 | their remote key |
//! | 60..64 | zero |
//!
//! and afterwards [`Control`] frames of 16 bytes: kind, seven zeros, and a number.

use super::port::Gid;
use crate::{BOARD, LinkError};

pub(super) const HELLO: usize = 64;
pub(super) const CONTROL: usize = 16;
/// Bytes of an end's memory that the peer may write without having been given a key by the layers above.
pub(super) const OPEN: u64 = 2 * BOARD as u64;

/// Begins every hello.
pub(crate) const MAGIC: [u8; 8] = *b"VERBSLNK";
const VERSION: u32 = 3;
/// First byte of every frame of the TCP backend.
const TCP_MAGIC: u8 = 0x4d;

/// Fewest and most receives that an end may post.
pub(super) const RECEIVES: std::ops::RangeInclusive<u32> = 8..=32_768;

/// One end of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) mtu: u32,
    pub(super) gid: Gid,
    pub(super) receives: u32,
    pub(super) max_message: u32,
    pub(super) credit_addr: u64,
    pub(super) credit_rkey: u32,
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        for (at, value) in [
            (8, VERSION),
            (12, self.qpn),
            (16, self.psn),
            (20, self.mtu),
            (40, self.receives),
            (44, self.max_message),
            (56, self.credit_rkey),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes[24..40].copy_from_slice(&self.gid.0);
        bytes[48..56].copy_from_slice(&self.credit_addr.to_le_bytes());
        bytes
    }

    /// Understands a hello, or says which rule it breaks. Whatever it accepts, [`encode`](Self::encode) turns into the same bytes again.
    pub(super) fn parse(bytes: &[u8; HELLO]) -> Result<Self, LinkError> {
        check_backend(bytes)?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[24..40]);
        let hello = Self {
            qpn: u32_at(12),
            psn: u32_at(16),
            mtu: u32_at(20),
            gid: Gid(gid),
            receives: u32_at(40),
            max_message: u32_at(44),
            credit_addr: u64::from(u32_at(48)) | u64::from(u32_at(52)) << 32,
            credit_rkey: u32_at(56),
        };
        for (wrong, what, value) in [
            (u32_at(8) != VERSION, "the peer's verbs handshake has another version", u32_at(8)),
            (hello.qpn >> 24 != 0, "queue pair number has more than 24 bits", hello.qpn),
            (hello.psn >> 24 != 0, "packet sequence number has more than 24 bits", hello.psn),
            (!matches!(hello.mtu, 256 | 512 | 1024 | 2048 | 4096), "unknown MTU", hello.mtu),
            (!RECEIVES.contains(&hello.receives), "impossible number of receives", hello.receives),
            (hello.max_message < 4096, "longest message is below 4096 bytes", hello.max_message),
            (!hello.credit_addr.is_multiple_of(8), "word for credits is not aligned", hello.credit_addr as u32),
            (hello.credit_addr.checked_add(OPEN).is_none(), "memory beyond the last address", hello.credit_addr as u32),
            (u32_at(60) != 0, "reserved bytes are not zero", u32_at(60)),
        ] {
            if wrong {
                return Err(LinkError::Protocol { what, value: value.into() });
            }
        }
        Ok(hello)
    }
}

/// Looks at the first bytes that came: is the peer of this backend at all? Any length.
pub(super) fn check_backend(bytes: &[u8]) -> Result<(), LinkError> {
    let known = bytes.len().min(MAGIC.len());
    match bytes.first() {
        Some(&TCP_MAGIC) => Err(LinkError::Protocol {
            what: "the peer uses the tcp backend on this link, this end verbs: choose the same on both nodes",
            value: TCP_MAGIC.into(),
        }),
        Some(&first) if bytes[..known] != MAGIC[..known] => {
            Err(LinkError::Protocol { what: "verbs handshake does not begin with its magic", value: first.into() })
        }
        _ => Ok(()),
    }
}

/// What passes over the stream once queue pairs are connected. Rare: nothing of it is on the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// The sender's queue pair takes what is sent to it.
    Ready,
    /// The sender is out of credits and goes to sleep: it wants a [`Ring`](Self::Ring) as soon as more receives than this many, which it
    /// knows of, were posted again.
    Need(u64),
    /// Receives that were posted again so far; the answer to [`Need`](Self::Need).
    Ring(u64),
    /// The sender has sent this many messages and notifications, all acknowledged, and sends no more.
    Bye(u64),
}

impl Control {
    pub(super) fn encode(self) -> [u8; CONTROL] {
        let (kind, number) = match self {
            Self::Ready => (1, 0),
            Self::Need(number) => (2, number),
            Self::Ring(number) => (3, number),
            Self::Bye(number) => (4, number),
        };
        let mut bytes = [0; CONTROL];
        bytes[0] = kind;
        bytes[8..].copy_from_slice(&u64::to_le_bytes(number));
        bytes
    }

    pub(super) fn parse(bytes: &[u8; CONTROL]) -> Result<Self, LinkError> {
        let [kind, z1, z2, z3, z4, z5, z6, z7, rest @ ..] = *bytes;
        let number = u64::from_le_bytes(rest);
        match (kind, [z1, z2, z3, z4, z5, z6, z7] == [0; 7]) {
            (1, true) if number == 0 => Ok(Self::Ready),
            (2, true) => Ok(Self::Need(number)),
            (3, true) => Ok(Self::Ring(number)),
            (4, true) => Ok(Self::Bye(number)),
            _ => Err(LinkError::Protocol { what: "unknown control frame", value: kind.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn hello() -> Hello {
        Hello {
            qpn: 0xff_ffff,
            psn: 0xab_cdef,
            mtu: 4096,
            gid: Gid::of(Ipv4Addr::new(10, 0, 0, 1)),
            receives: 256,
            max_message: 1 << 30,
            credit_addr: 0x7fff_0123_4567_89a8,
            credit_rkey: 0xdead_beef,
        }
    }

    #[test]
    fn a_hello_comes_back_and_every_bad_field_is_refused() {
        // given a hello, then it survives the wire
        assert_eq!(Hello::parse(&hello().encode()), Ok(hello()));
        // when one field is wrong, then it is refused
        for (at, value) in [(0, 0), (7, 0), (8, 1), (15, 1), (19, 1), (20, 1), (41, 0), (43, 1), (48, 1), (60, 1)] {
            let mut bytes = hello().encode();
            assert_ne!(bytes[at], value, "byte {at}");
            bytes[at] = value;
            assert!(Hello::parse(&bytes).is_err(), "byte {at} as {value}");
        }
        // both sides of the limits
        for (receives, good) in [(7, false), (8, true), (32_768, true), (32_769, false)] {
            assert_eq!(Hello::parse(&Hello { receives, ..hello() }.encode()).is_ok(), good, "{receives}");
        }
        let last = 0_u64.wrapping_sub(OPEN) - 8;
        for (credit_addr, good) in [(last, true), (last + 8, false), (u64::MAX - 7, false)] {
            assert_eq!(Hello::parse(&Hello { credit_addr, ..hello() }.encode()).is_ok(), good, "{credit_addr:#x}");
        }
        for (max_message, good) in [(4095, false), (4096, true)] {
            assert_eq!(Hello::parse(&Hello { max_message, ..hello() }.encode()).is_ok(), good, "{max_message}");
        }
    }

    #[test]
    fn the_other_backend_is_told_apart_from_noise() {
        assert!(check_backend(&[]).is_ok());
        assert!(check_backend(b"VERB").is_ok());
        let text = |bytes: &[u8]| check_backend(bytes).unwrap_err().to_string();
        assert!(text(&[TCP_MAGIC, 1]).contains("uses the tcp backend"));
        assert!(text(b"GET / HT").contains("magic"));
        assert!(text(b"VERBSLNX").contains("magic"));
    }

    #[test]
    fn control_frames_come_back_and_others_are_refused() {
        for control in [Control::Ready, Control::Need(1 << 40), Control::Ring(u64::MAX), Control::Bye(7)] {
            assert_eq!(Control::parse(&control.encode()), Ok(control));
        }
        for (at, value) in [(0, 0), (0, 5), (1, 1), (7, 1), (8, 1)] {
            let mut bytes = Control::Ready.encode();
            bytes[at] = value;
            assert!(Control::parse(&bytes).is_err(), "byte {at} as {value}");
        }
    }
}
