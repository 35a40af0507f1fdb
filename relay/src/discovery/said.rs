//! Says each fault once while it lasts, however often it is noticed.
//!
//! Must not know what is said. Bounded. Runs on the thread of the node's owner.

use std::collections::BTreeMap;

use super::event::Event;
use super::types::{MS, Time};

/// Faults remembered at once. Beyond that new ones are not said: who floods us with faults gets no room in the log either.
const MAX: usize = 64;
/// A fault that was not noticed for so long is over, and is said anew when it comes back.
const OVER: Time = 10_000 * MS;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Said(BTreeMap<Event, Time>);

impl Said {
    /// Whether the fault is to be said now.
    pub(super) fn first(&mut self, now: Time, event: &Event) -> bool {
        if let Some(last) = self.0.get_mut(event) {
            let over = now >= last.saturating_add(OVER);
            *last = now;
            return over;
        }
        if self.0.len() >= MAX {
            self.0.retain(|_, last| now < last.saturating_add(OVER));
        }
        let room = self.0.len() < MAX;
        if room {
            self.0.insert(event.clone(), now);
        }
        room
    }
}
