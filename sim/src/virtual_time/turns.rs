//! Links on which legs take turns: each sends some bytes of its oldest write, then the next one does.
//!
//! A NIC serves its queue pairs so, and a kernel its sockets more or less: whoever has posted a lot waits for itself, not the others for it.
//! Knows neither engines nor what is written. Run by the caller's thread.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use super::pipe::{PipeEnd, Write};
use super::world::{What, World};

/// One direction of a link.
pub(super) type Link = (Ipv4Addr, Ipv4Addr);

/// Legs with something to send, in the order of their turns: the first one is sending.
pub(super) type Turns = VecDeque<Waiting>;

/// What a leg has to send.
#[derive(Debug)]
pub(super) struct Waiting {
    end: PipeEnd,
    writes: VecDeque<Write>,
    /// Bytes of the first write that have left.
    left: u64,
}

impl World {
    pub(super) fn wait_for_turn(&mut self, link: Link, end: PipeEnd, write: Write) {
        let turns = self.turns.entry(link).or_default();
        if let Some(waiting) = turns.iter_mut().find(|waiting| waiting.end == end) {
            return waiting.writes.push_back(write);
        }
        turns.push_back(Waiting { end, writes: [write].into(), left: 0 });
        if turns.len() == 1 {
            self.begin_turn(link);
        }
    }

    fn begin_turn(&mut self, link: Link) {
        let Some((end, bytes)) = self.turns.get(&link).and_then(|turns| turns.front()?.next(self.physics.turn)) else {
            return;
        };
        self.schedule(self.now + self.time_on_link(end, bytes), What::Turn { link });
    }

    pub(super) fn turn_over(&mut self, link: Link) {
        let most = self.physics.turn;
        let Some(turns) = self.turns.get_mut(&link) else { return };
        let Some(mut waiting) = turns.pop_front() else { return };
        let end = waiting.end;
        let gone = waiting.sent(most);
        if !waiting.writes.is_empty() {
            turns.push_back(waiting);
        }
        if let Some(write) = gone {
            self.write_leaves(end, Write { out_at: self.now, ..write });
        }
        self.begin_turn(link);
    }
}

impl Waiting {
    /// Whose turn it would be, and how many bytes it would send.
    fn next(&self, most: u64) -> Option<(PipeEnd, u64)> {
        self.writes.front().map(|write| (self.end, (write.bytes() - self.left).min(most)))
    }

    /// A turn is over; answers the write whose last byte has left with it.
    fn sent(&mut self, most: u64) -> Option<Write> {
        self.left += self.next(most)?.1;
        if self.left < self.writes.front()?.bytes() {
            return None;
        }
        self.left = 0;
        self.writes.pop_front()
    }
}
