//! What messages say: every word depends on the message's number and on its place, so bytes that are stale, shifted or another
//! message's are seen.
//!
//! Pure. Any thread. [`Check::Ends`] is for timed loops: two words, whatever the size. [`Check::Lines`] brings every cache line to whoever
//! writes or reads the message, as real use does, at little cost for the words.

use super::point::Check;

const WORD: usize = 4;
const LINE: usize = 64;

/// Different for different numbers at the same place: odd factors and rotations lose nothing.
const fn word(number: u32, index: usize) -> [u8; WORD] {
    let (number, index) = (number.wrapping_mul(0x9E37_79B1), (index as u32).wrapping_mul(0x85EB_CA6B));
    (number ^ index).rotate_left(13).wrapping_mul(0xC2B2_AE35).to_le_bytes()
}

/// Writes the words of message `number` that `check` will compare. The message has whole words.
pub(super) fn write(message: &mut [u8], number: u32, check: Check) {
    let last = (message.len() / WORD).saturating_sub(1);
    match check {
        Check::All => {
            for (index, place) in message.chunks_exact_mut(WORD).enumerate() {
                place.copy_from_slice(&word(number, index));
            }
        }
        Check::Ends | Check::Lines => {
            if check == Check::Lines {
                for (line, place) in message.chunks_mut(LINE).enumerate() {
                    if let Some(place) = place.first_chunk_mut() {
                        *place = word(number, line * LINE / WORD);
                    }
                }
            }
            if let Some(place) = message.first_chunk_mut() {
                *place = word(number, 0);
            }
            if let Some(place) = message.last_chunk_mut() {
                *place = word(number, last);
            }
        }
    }
}

/// Bytes compared, and how many of them differ from message `number`.
pub(super) fn compare(message: &[u8], number: u32, check: Check) -> (u64, u64) {
    let last = (message.len() / WORD).saturating_sub(1);
    match check {
        Check::All => {
            let words = message.chunks_exact(WORD).enumerate();
            (message.len() as u64, words.map(|(index, found)| differ(found, number, index)).sum())
        }
        Check::Ends => match (message.first_chunk::<WORD>(), message.last_chunk::<WORD>()) {
            (Some(first), Some(end)) => (2 * WORD as u64, differ(first, number, 0) + differ(end, number, last)),
            _ => (0, 0),
        },
        Check::Lines => {
            let (checked, wrong) = compare(message, number, Check::Ends);
            let lines = message.chunks(LINE).enumerate().skip(1);
            let words = lines.filter_map(|(line, bytes)| Some((line * LINE / WORD, bytes.first_chunk::<WORD>()?)));
            words.filter(|(index, _)| *index != last).fold((checked, wrong), |(checked, wrong), (index, found)| {
                (checked + WORD as u64, wrong + differ(found, number, index))
            })
        }
    }
}

fn differ(found: &[u8], number: u32, index: usize) -> u64 {
    let expected = word(number, index);
    if found == expected {
        0
    } else {
        found.iter().zip(expected).filter(|(found, expected)| *found != expected).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_itself_and_no_other() {
        for bytes in [4, 8, 12, 4096] {
            for check in [Check::All, Check::Ends, Check::Lines] {
                let mut message = vec![0; bytes];
                write(&mut message, 7, check);
                let (checked, wrong) = compare(&message, 7, check);
                assert!(checked > 0 && wrong == 0, "{bytes} {check:?}");
                // the message before, the one after, and one from the other end
                for other in [5, 6, 8, 9] {
                    assert!(compare(&message, other, check).1 > 0, "{bytes} {check:?} {other}");
                }
            }
        }
    }

    #[test]
    fn one_wrong_byte_is_one_wrong_byte() {
        let mut message = vec![0; 64];
        write(&mut message, 3, Check::All);
        message[33] ^= 0x10;
        assert_eq!(compare(&message, 3, Check::All), (64, 1));
        // in the middle it is not among those that a timed loop compares, at the end it is
        assert_eq!(compare(&message, 3, Check::Ends), (8, 0));
        message[63] ^= 1;
        assert_eq!(compare(&message, 3, Check::Ends), (8, 1));
    }

    #[test]
    fn a_word_of_every_line_is_compared() {
        for bytes in [4, 64, 68, 128, 4096, 4100] {
            let mut message = vec![0; bytes];
            write(&mut message, 3, Check::Lines);
            // the first word of each line, and the last word if it is not one of those; a single word counts as both ends
            let words = if bytes == 4 { 2 } else { bytes.div_ceil(64) + usize::from(bytes % 64 != 4) };
            assert_eq!(compare(&message, 3, Check::Lines), (4 * words as u64, 0), "{bytes}");
            for line in 0..bytes.div_ceil(64) {
                message[64 * line] ^= 1;
                assert_eq!(compare(&message, 3, Check::Lines).1, if bytes == 4 { 2 } else { 1 }, "{bytes} {line}");
                message[64 * line] ^= 1;
            }
        }
    }

    #[test]
    fn an_empty_message_has_nothing_to_compare() {
        write(&mut [], 1, Check::All);
        write(&mut [], 1, Check::Ends);
        assert_eq!((compare(&[], 1, Check::All), compare(&[], 1, Check::Ends)), ((0, 0), (0, 0)));
    }
}
