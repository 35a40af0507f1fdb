//! The registered regions that one endpoint remembers.
//!
//! The look-up on the data path: a handful of regions, the one used last first, no lock. What is not here is looked for in the device's
//! table, and what is not there either is registered for one use. Used by the thread that owns the endpoint.

use std::sync::Arc;

use super::mr::{DeviceRegistration, Mr, MrCache, RegisterError};
use crate::Window;

/// Regions remembered: buffers of a few channels, and a relay's slots.
const REMEMBERED: usize = 16;

#[derive(Debug)]
pub(super) struct Regions {
    cache: Arc<MrCache>,
    known: [Option<Arc<Mr>>; REMEMBERED],
    /// Where the next one goes.
    next: usize,
    last: usize,
    deaths: u64,
}

/// Memory that a request may name.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    /// Registered for this use only; to be kept until it is over.
    pub(super) temporary: Option<DeviceRegistration>,
}

impl Regions {
    pub(super) fn new(cache: Arc<MrCache>) -> Self {
        let deaths = cache.deaths();
        Self { cache, known: [const { None }; REMEMBERED], next: 0, last: 0, deaths }
    }

    /// The region around a window that is not empty.
    pub(super) fn find(&mut self, window: &Window) -> Result<Found, RegisterError> {
        if let Some(mr) = &self.known[self.last]
            && mr.covers(window)
        {
            return Ok(Found { lkey: mr.lkey, rkey: mr.rkey, temporary: None });
        }
        self.forget_dead();
        for (at, mr) in self.known.iter().enumerate() {
            if let Some(mr) = mr
                && mr.covers(window)
            {
                self.last = at;
                return Ok(Found { lkey: mr.lkey, rkey: mr.rkey, temporary: None });
            }
        }
        self.miss(window)
    }

    #[cold]
    fn miss(&mut self, window: &Window) -> Result<Found, RegisterError> {
        if let Some(mr) = self.cache.find(window) {
            let found = Found { lkey: mr.lkey, rkey: mr.rkey, temporary: None };
            self.last = self.next;
            self.known[self.next] = Some(mr);
            self.next = (self.next + 1) % REMEMBERED;
            return Ok(found);
        }
        let temporary = self.cache.register(*window)?;
        Ok(Found { lkey: temporary.mr.lkey, rkey: temporary.mr.rkey, temporary: Some(temporary) })
    }

    /// Lets go of regions that nobody vouches for any more, so that their pages are unpinned. One load if none died anywhere.
    pub(super) fn forget_dead(&mut self) {
        let deaths = self.cache.deaths();
        if deaths != self.deaths {
            self.deaths = deaths;
            for known in &mut self.known {
                if known.as_ref().is_some_and(|mr| !mr.live()) {
                    *known = None;
                }
            }
        }
    }
}
