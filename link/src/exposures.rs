//! The windows that a peer may write, by key.
//!
//! Knows nothing of sockets. Runs on the thread that owns the endpoint.

use std::collections::VecDeque;

use crate::{Key, LinkError, PostError, Window};

/// Most windows that one endpoint can expose: an index has 16 bits.
pub(crate) const MAX_EXPOSURES: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Entry {
    window: Window,
    generation: u16,
    ordered: bool,
    live: bool,
}

/// A checked place to land a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) window: Window,
    pub(crate) ordered: bool,
}

/// Table of exposed windows. The free list is first in, first out, so that a withdrawn key stays unused as long as possible.
#[derive(Debug)]
pub(crate) struct Exposures {
    entries: Box<[Entry]>,
    free: VecDeque<u16>,
}

impl Exposures {
    pub(crate) fn new(count: usize) -> Self {
        let count = count.min(MAX_EXPOSURES);
        let entry = Entry { window: Window::empty(), generation: 1, ordered: false, live: false };
        // The cast keeps every index: count is at most 2^16.
        Self { entries: vec![entry; count].into_boxed_slice(), free: (0..count).map(|i| i as u16).collect() }
    }

    pub(crate) fn expose(&mut self, window: Window, ordered: bool) -> Result<Key, PostError> {
        let index = self.free.pop_front().ok_or(PostError::QueueFull)?;
        let entry = &mut self.entries[usize::from(index)];
        (entry.window, entry.ordered, entry.live) = (window, ordered, true);
        Ok(Key(u32::from(entry.generation) << 16 | u32::from(index)))
    }

    /// Whether the key was live.
    pub(crate) fn withdraw(&mut self, key: Key) -> bool {
        let Some(index) = self.index(key) else { return false };
        let entry = &mut self.entries[index];
        (entry.window, entry.live) = (Window::empty(), false);
        // Generation 0 is left out, so that no key is 0.
        entry.generation = entry.generation.checked_add(1).unwrap_or(1);
        self.free.push_back(key.0 as u16);
        true
    }

    /// Where `len` bytes at `offset` of `key` land, if they may.
    pub(crate) fn place(&self, key: Key, offset: u64, len: u32) -> Result<Place, LinkError> {
        let Some(index) = self.index(key) else {
            return Err(LinkError::Protocol { what: "write to a key that is not exposed", value: key.0.into() });
        };
        let Entry { window, ordered, .. } = self.entries[index];
        let part = usize::try_from(offset).ok().and_then(|offset| window.sub(offset, len as usize));
        let window =
            part.ok_or_else(|| LinkError::OutOfBounds { key, offset, len: len.into(), allowed: window.len() as u64 })?;
        Ok(Place { window, ordered })
    }

    fn index(&self, key: Key) -> Option<usize> {
        let (index, generation) = ((key.0 & 0xffff) as usize, key.0 >> 16);
        let entry = self.entries.get(index)?;
        (entry.live && u32::from(entry.generation) == generation).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawn_key_stays_dead_while_its_index_is_reused() {
        // given a table of one entry, so that the index is reused at once
        let mut table = Exposures::new(1);
        let first = table.expose(Window::empty(), false).unwrap();
        assert_eq!(table.expose(Window::empty(), false), Err(PostError::QueueFull));
        // when it is withdrawn and exposed again through every generation but its own
        let mut key = first;
        for _ in 1..u16::MAX {
            assert!(table.withdraw(key));
            assert!(!table.withdraw(key), "a second time does nothing");
            key = table.expose(Window::empty(), false).unwrap();
            // then the old key is refused and no key is 0
            assert!(table.place(first, 0, 0).is_err());
            assert!(table.place(key, 0, 0).is_ok());
            assert_ne!(key.raw(), 0);
        }
    }

    #[test]
    fn the_free_list_rests_a_key_as_long_as_it_can() {
        // given three entries, one in use
        let mut table = Exposures::new(3);
        let key = table.expose(Window::empty(), false).unwrap();
        // when it is withdrawn
        assert!(table.withdraw(key));
        // then the two others come first
        let next: Vec<_> = (0..3).map(|_| table.expose(Window::empty(), false).unwrap().raw() & 0xffff).collect();
        assert_eq!(next, [1, 2, 0]);
    }

    #[test]
    fn all_indices_of_the_largest_table_differ() {
        // given more entries asked for than keys can name
        let mut table = Exposures::new(MAX_EXPOSURES + 1);
        // when all are exposed
        let mut keys: Vec<_> = std::iter::from_fn(|| table.expose(Window::empty(), false).ok()).collect();
        keys.sort_unstable();
        keys.dedup();
        // then there are as many keys as there are indices
        assert_eq!(keys.len(), MAX_EXPOSURES);
    }
}
