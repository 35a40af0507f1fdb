//! What the data of a collective are, and whether the result is right.
//!
//! Every element depends on the rank that made it, on its index and on a serial number that no two runs share, so that data
//! that are stale, shifted, doubled or from the wrong rank are all seen. Sums over ranks have a closed form and wrap, so results
//! are exact and checking costs one multiplication an element.
//!
//! Pure. Any thread.

use std::ops::Range;

use super::algorithms::Task;
use super::collective::Collective;
use super::program::{ELEMENT, part};

/// What is in places that must be overwritten.
const POISON: u8 = 0xA5;

/// A rank's two areas.
#[derive(Debug, Default)]
pub struct Areas {
    /// [`super::program::Area::Source`].
    pub source: Vec<u8>,
    /// [`super::program::Area::Data`].
    pub data: Vec<u8>,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Bytes compared.
    pub bytes: u64,
    /// Bytes that differ.
    pub wrong: u64,
}

fn base(serial: u32, index: usize) -> u32 {
    ((index as u32).wrapping_mul(0x9E37_79B1) ^ serial.wrapping_mul(0x85EB_CA6B)).rotate_left(13) | 1
}

fn value(rank: u32, serial: u32, index: usize) -> u32 {
    base(serial, index).wrapping_mul(rank + 1).wrapping_add(rank.wrapping_mul(0x0100_0193))
}

/// The sum of [`value`] over all ranks.
fn sum(ranks: u32, serial: u32, index: usize) -> u32 {
    let offsets = (ranks * ranks.wrapping_sub(1) / 2).wrapping_mul(0x0100_0193);
    base(serial, index).wrapping_mul(ranks * (ranks + 1) / 2).wrapping_add(offsets)
}

fn fill(data: &mut [u8], range: Range<usize>, rank: usize, serial: u32) {
    let first = range.start / ELEMENT;
    for (offset, word) in data[range].chunks_exact_mut(ELEMENT).enumerate() {
        word.copy_from_slice(&value(rank as u32, serial, first + offset).to_le_bytes());
    }
}

fn compare(data: &[u8], range: Range<usize>, expected: impl Fn(usize) -> u32) -> Checked {
    let first = range.start / ELEMENT;
    let bytes = range.len() as u64;
    let mut wrong = 0;
    for (offset, word) in data[range].chunks_exact(ELEMENT).enumerate() {
        let found = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let difference = found ^ expected(first + offset);
        if difference != 0 {
            wrong += difference.to_le_bytes().iter().filter(|byte| **byte != 0).count() as u64;
        }
    }
    Checked { bytes, wrong }
}

impl Areas {
    /// Puts in place what `rank` starts the collective with.
    pub fn prepare(&mut self, task: &Task, rank: usize, serial: u32) {
        self.data.resize(task.bytes, 0);
        let all = 0..task.bytes;
        match task.collective {
            Collective::AllReduce | Collective::ReduceScatter => fill(&mut self.data, all, rank, serial),
            Collective::AllGather => {
                self.data.fill(POISON);
                fill(&mut self.data, task.block(rank), rank, serial);
            }
            Collective::Broadcast if rank == 0 => fill(&mut self.data, all, rank, serial),
            Collective::Broadcast => self.data.fill(POISON),
            Collective::AllToAll | Collective::SendRecv => {
                self.source.resize(task.bytes, 0);
                fill(&mut self.source, all, rank, serial);
                self.data.fill(POISON);
            }
        }
    }

    /// Compares every byte that `rank` must have now.
    #[must_use]
    pub fn check(&self, task: &Task, rank: usize, serial: u32) -> Checked {
        let all = 0..task.bytes;
        let ranks = task.ranks;
        let from = |rank: usize| move |index: usize| value(rank as u32, serial, index);
        let total = |index: usize| sum(ranks as u32, serial, index);
        let over_ranks = |each: &dyn Fn(usize) -> Checked| {
            (0..ranks)
                .map(each)
                .fold(Checked::default(), |a, b| Checked { bytes: a.bytes + b.bytes, wrong: a.wrong + b.wrong })
        };
        match task.collective {
            Collective::AllReduce => compare(&self.data, all, total),
            Collective::ReduceScatter => compare(&self.data, task.block(rank), total),
            Collective::AllGather => over_ranks(&|owner| compare(&self.data, task.block(owner), from(owner))),
            Collective::Broadcast => compare(&self.data, all, from(0)),
            Collective::AllToAll => over_ranks(&|distance| {
                let sender = (rank + ranks - distance) % ranks;
                compare(&self.data, part(&all, ranks, distance), from(sender))
            }),
            Collective::SendRecv => compare(&self.data, all, from((rank + ranks - task.distance % ranks) % ranks)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_form_is_the_sum() {
        for ranks in 1..=12 {
            for index in [0, 1, 77, 1 << 24] {
                let added = (0..ranks).fold(0_u32, |sum, rank| sum.wrapping_add(value(rank, 9, index)));
                assert_eq!(added, sum(ranks, 9, index));
            }
        }
    }

    #[test]
    fn a_single_wrong_byte_is_counted() {
        let mut data = vec![0; 64];
        fill(&mut data, 0..64, 3, 5);
        let expected = |index| value(3, 5, index);
        assert_eq!(compare(&data, 0..64, expected), Checked { bytes: 64, wrong: 0 });
        data[63] ^= 0x10;
        assert_eq!(compare(&data, 0..64, expected), Checked { bytes: 64, wrong: 1 });
        // and data of another serial number, rank or place are wrong
        assert!(compare(&data, 0..60, |index| value(3, 6, index)).wrong > 0);
        assert!(compare(&data, 0..60, |index| value(2, 5, index)).wrong > 0);
        assert!(compare(&data, 0..60, |index| value(3, 5, index + 1)).wrong > 0);
    }
}
