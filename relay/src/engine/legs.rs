//! The engine's legs by number: looked up several times a chunk, so a table and not a tree. In order of numbers, like everything here.
//!
//! Knows nothing of what a leg is for. On the thread that runs the engine.

use super::{Leg, LegId};

#[derive(Debug, Default)]
pub(super) struct LegTable {
    places: Vec<Option<Leg>>,
    len: usize,
}

impl LegTable {
    pub(super) fn get(&self, id: &LegId) -> Option<&Leg> {
        self.places.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: &LegId) -> Option<&mut Leg> {
        self.places.get_mut(id.0 as usize)?.as_mut()
    }

    pub(super) fn contains_key(&self, id: &LegId) -> bool {
        self.get(id).is_some()
    }

    /// Numbers are small, as their owner uses them again.
    pub(super) fn insert(&mut self, id: LegId, leg: Leg) -> Option<Leg> {
        let place = id.0 as usize;
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        let old = self.places[place].replace(leg);
        self.len += usize::from(old.is_none());
        old
    }

    pub(super) fn remove(&mut self, id: &LegId) -> Option<Leg> {
        let leg = self.places.get_mut(id.0 as usize)?.take()?;
        self.len -= 1;
        Some(leg)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LegId, &Leg)> {
        self.places.iter().enumerate().filter_map(|(n, leg)| Some((LegId(n as u32), leg.as_ref()?)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Leg> {
        self.places.iter().flatten()
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }
}
