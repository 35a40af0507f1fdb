//! A sender's board: where the receiver of a direct connection leaves clear-to-sends, if the link has boards.
//!
//! Layout only, sizes in bytes. Written by the receiver's NIC, looked at by the thread that owns the sending end; nobody is told. Knows nothing
//! of links.

use crate::send::DEPTH;

/// Places of a board. The receiver is at most twice [`DEPTH`] messages ahead of what the sender knows to be done.
pub const BOARD_PLACES: u32 = 2 * DEPTH as u32;
/// Bytes of a place: four words, so that it lies in one cache line and a NIC writes it in one piece; several may be written at once.
pub const BOARD_ENTRY: usize = 32;

const _: () = assert!(BOARD_PLACES as usize * BOARD_ENTRY <= mesh_link::BOARD, "the board of a link holds all places");

/// A clear-to-send as it lies on the sender's board, at place `seq % BOARD_PLACES`: base, capacity, key, and the message's number plus one
/// as the mark that the rest is there. Words, each little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoardEntry {
    /// Message.
    pub seq: u32,
    /// Key of the receive buffer.
    pub key: u32,
    /// What is to be added to offsets in the buffer.
    pub base: u64,
    /// Bytes the buffer holds.
    pub capacity: u64,
}

impl BoardEntry {
    /// Offset of the place of message `seq`.
    pub const fn place(seq: u32) -> usize {
        (seq % BOARD_PLACES) as usize * BOARD_ENTRY
    }

    /// The last word of the place of message `seq`, once its entry is there. Never 0 or what an earlier round left.
    pub const fn mark(seq: u32) -> u64 {
        seq as u64 + 1
    }

    /// As it is written.
    pub fn encode(&self) -> [u8; BOARD_ENTRY] {
        let mut bytes = [0; BOARD_ENTRY];
        bytes[0..8].copy_from_slice(&self.base.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[16..24].copy_from_slice(&u64::from(self.key).to_le_bytes());
        bytes[24..32].copy_from_slice(&Self::mark(self.seq).to_le_bytes());
        bytes
    }

    /// From the words of a place whose mark is that of `seq`.
    pub const fn decode(seq: u32, base: u64, capacity: u64, key: u64) -> Self {
        // The cast is exact for what a peer of ours wrote; a wrong key is refused by the NIC.
        Self { seq, key: key as u32, base, capacity }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_the_board_tells_its_rounds_apart() {
        // given entries of two messages that share a place
        let entry = |seq| BoardEntry { seq, key: 9, base: u64::MAX - 1, capacity: 1 << 40 };
        for seq in [0, 1, BOARD_PLACES - 1, u32::MAX] {
            let next = seq.wrapping_add(BOARD_PLACES);
            assert_eq!(BoardEntry::place(seq), BoardEntry::place(next));
            // then their marks differ, from each other and from memory that was never written
            assert!(BoardEntry::mark(seq) != 0 && BoardEntry::mark(seq) != BoardEntry::mark(next));
            // and an entry reads as it was written, the mark in the last word
            let bytes = entry(seq).encode();
            let word = |k: usize| u64::from_le_bytes(bytes[8 * k..8 * k + 8].try_into().unwrap());
            assert_eq!(word(3), BoardEntry::mark(seq));
            assert_eq!(BoardEntry::decode(seq, word(0), word(1), word(2)), entry(seq));
        }
        assert_eq!(BoardEntry::place(BOARD_PLACES - 1) + BOARD_ENTRY, BOARD_PLACES as usize * BOARD_ENTRY);
    }
}
