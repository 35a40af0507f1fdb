//! Buffers with guards on both sides, and contents that can be told apart.
//!
//! Knows nothing of plugins. An [`Area`] belongs to one thread; the plugin writes to it through its address.

use std::alloc::{Layout, alloc, dealloc};
use std::ops::Range;

/// Bytes of each guard, and the alignment of what is between them.
const GUARD: usize = 4096;
/// What untouched memory holds.
pub(crate) const CANARY: u8 = 0xC5;

/// Memory for messages between two guards.
#[derive(Debug)]
pub(crate) struct Area {
    base: *mut u8,
    len: usize,
}

impl Area {
    /// `len` bytes, all of them canaries.
    pub(crate) fn new(len: usize) -> Self {
        // SAFETY: the layout has a size.
        let base = unsafe { alloc(Self::layout(len)) };
        assert!(!base.is_null(), "no memory for {len} bytes");
        // SAFETY: just allocated with this size.
        unsafe { base.write_bytes(CANARY, len + 2 * GUARD) };
        Self { base, len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len + 2 * GUARD, GUARD).unwrap()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Address of a byte; `offset` may be one past the end.
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.len);
        // SAFETY: inside the allocation, or at the guard behind.
        unsafe { self.base.add(GUARD + offset) }
    }

    /// What is there. Only for bytes that nobody writes meanwhile.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the allocation; the callers ask for bytes whose transfers are done.
        unsafe { std::slice::from_raw_parts(self.at(range.start), range.len()) }
    }

    /// As [`bytes`](Self::bytes), to be written.
    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at(range.start), range.len()) }
    }

    /// Panics if a byte around the area has changed.
    #[track_caller]
    pub(crate) fn check_guards(&self) {
        // SAFETY: the guards are part of the allocation.
        let guards = unsafe {
            [
                std::slice::from_raw_parts(self.base, GUARD),
                std::slice::from_raw_parts(self.base.add(GUARD + self.len), GUARD),
            ]
        };
        for (guard, place) in guards.into_iter().zip(["before", "behind"]) {
            let hit = guard.iter().position(|byte| *byte != CANARY);
            assert_eq!(hit, None, "a byte {place} the buffer of {} bytes was overwritten", self.len);
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return; // transfers may be under way
        }
        // SAFETY: allocated with this layout, freed once; tests close connections before they drop buffers.
        unsafe { dealloc(self.base, Self::layout(self.len)) };
    }
}

/// A number that looks random.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Word `index` of the content named `key`.
fn word(key: u64, index: usize) -> [u8; 8] {
    key.wrapping_add((index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes()
}

/// Writes the content named `key`.
pub(crate) fn fill(bytes: &mut [u8], key: u64) {
    let key = mix(key);
    for (index, part) in bytes.chunks_mut(8).enumerate() {
        part.copy_from_slice(&word(key, index)[..part.len()]);
    }
}

/// Offset of the first byte that differs from the content named `key`.
pub(crate) fn differs(bytes: &[u8], key: u64) -> Option<usize> {
    let key = mix(key);
    let part = bytes.chunks(8).enumerate().position(|(index, part)| *part != word(key, index)[..part.len()]);
    part.map(|part| part * 8)
}

/// Offset of the first byte that is not `value`.
pub(crate) fn not_all(bytes: &[u8], value: u8) -> Option<usize> {
    bytes.iter().position(|byte| *byte != value)
}
