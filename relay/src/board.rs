//! A sender's board: where the receiver of a direct connection leaves clear-to-sends, if the link has boards.
//!
//! Layout only, sizes in bytes. The board of the first lane serves all lanes. Written by the receiver's NIC, looked at by the thread that
//! owns the sending end; nobody is told. Knows nothing of links.

use crate::send::DEPTH;
use crate::wire::{Clear, MAX_LANES};

/// Places of a board. The receiver is at most twice [`DEPTH`] messages ahead of what the sender knows to be done.
pub const BOARD_PLACES: u32 = 2 * DEPTH as u32;
/// Bytes of the largest place.
const MOST: usize = 64;

const _: () = assert!(BOARD_PLACES as usize * MOST <= mesh_link::BOARD, "the board of a link holds all places");
const _: () = assert!(16 + 4 * MAX_LANES + 8 <= MOST, "a place holds base, capacity, a key a lane, and the mark");

/// How the entries of one connection lie on the board: entry of message `seq` at place `seq % BOARD_PLACES`, in it base, capacity, a key
/// a lane, and in the last word the message's number plus one as the mark that the rest is there. All little endian. A place lies in one
/// cache line, so a NIC writes it in one piece; several may be written at once.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    lanes: u8,
    place: usize,
}

impl Layout {
    /// For a connection of so many lanes, 1 to [`MAX_LANES`].
    pub const fn new(lanes: u8) -> Self {
        Self { lanes, place: if lanes <= 2 { 32 } else { MOST } }
    }

    /// Bytes of a place.
    pub const fn place(&self) -> usize {
        self.place
    }

    /// Offset of the place of message `seq`.
    pub const fn offset(&self, seq: u32) -> usize {
        (seq % BOARD_PLACES) as usize * self.place
    }

    /// Writes an entry, as it is to lie on the board, to the front of `into`, which has at least [`place`](Self::place) bytes.
    pub fn encode(&self, clear: &Clear, into: &mut [u8]) {
        into[..self.place].fill(0);
        into[0..8].copy_from_slice(&clear.base.to_le_bytes());
        into[8..16].copy_from_slice(&clear.capacity.to_le_bytes());
        for (bytes, key) in into[16..].chunks_exact_mut(4).zip(&clear.keys[..usize::from(self.lanes)]) {
            bytes.copy_from_slice(&key.to_le_bytes());
        }
        into[self.place - 8..self.place].copy_from_slice(&mark(clear.seq).to_le_bytes());
    }

    /// The entry of message `seq`, if it is there. `load` reads the word at an offset of the board, and `acquire` keeps later loads behind
    /// earlier ones. One load if it is not there.
    pub fn read(&self, seq: u32, load: impl Fn(usize) -> u64, acquire: impl FnOnce()) -> Option<Clear> {
        let at = self.offset(seq);
        if load(at + self.place - 8) != mark(seq) {
            return None;
        }
        acquire();
        let mut keys = [0; MAX_LANES];
        for (pair, keys) in keys.chunks_exact_mut(2).take(usize::from(self.lanes).div_ceil(2)).enumerate() {
            let word = load(at + 16 + 8 * pair);
            // The casts cut a word into its two halves.
            (keys[0], keys[1]) = (word as u32, (word >> 32) as u32);
        }
        Some(Clear { seq, lanes: self.lanes, keys, base: load(at), capacity: load(at + 8) })
    }
}

/// The last word of the place of message `seq`, once its entry is there. Never 0 or what an earlier round left.
const fn mark(seq: u32) -> u64 {
    seq as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clear(seq: u32, lanes: u8) -> Clear {
        let keys = std::array::from_fn(|lane| if lane < usize::from(lanes) { 0xffff_fff0 + lane as u32 } else { 0 });
        Clear { seq, lanes, keys, base: u64::MAX - 1, capacity: 1 << 40 }
    }

    #[test]
    fn an_entry_reads_as_it_was_written_and_only_once_it_is_there() {
        for lanes in 1..=MAX_LANES as u8 {
            let layout = Layout::new(lanes);
            for seq in [0, 1, BOARD_PLACES - 1, u32::MAX] {
                // given a board that was never written, then nothing is there
                let mut board = [0; BOARD_PLACES as usize * MOST];
                let read = |board: &[u8], seq| {
                    let load = |at: usize| u64::from_le_bytes(board[at..at + 8].try_into().unwrap());
                    layout.read(seq, load, || {})
                };
                assert_eq!(read(&board, seq), None);
                // when an entry is written, then it is found as it was, and its neighbours are untouched
                let at = layout.offset(seq);
                layout.encode(&clear(seq, lanes), &mut board[at..]);
                assert_eq!(read(&board, seq), Some(clear(seq, lanes)));
                assert!(board[..at].iter().chain(&board[at + layout.place()..]).all(|byte| *byte == 0));
                // and it is not taken for that of the message that has the place next, or had it before
                assert_eq!(layout.offset(seq), layout.offset(seq.wrapping_add(BOARD_PLACES)));
                assert_eq!(read(&board, seq.wrapping_add(BOARD_PLACES)), None);
                assert_eq!(read(&board, seq.wrapping_sub(BOARD_PLACES)), None);
            }
            // and no place lies across two cache lines
            assert!(
                (0..BOARD_PLACES).all(|seq| layout.offset(seq) / 64 == (layout.offset(seq) + layout.place() - 1) / 64)
            );
        }
    }
}
