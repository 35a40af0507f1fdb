//! What one rank does in a collective, as a list of steps.
//!
//! An algorithm writes the steps of each channel in an order that would be right if they ran one after the other. What may
//! overlap follows from the bytes they touch ([`Hazards`]): a step waits for earlier ones of its channel whose bytes it reads
//! or overwrites, and for nothing else. So algorithms stay short and pipelining is the executor's.
//!
//! Pure: knows no transport and no thread.

use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of one element, a little-endian unsigned integer.
pub const ELEMENT: usize = 4;

/// Which of a rank's two areas of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Data to send to others, where that is not done in place.
    Source,
    /// Data to receive, and all data of collectives that work in place.
    Data,
}

/// Bytes of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The area.
    pub area: Area,
    /// Offsets in it, in bytes; may be empty.
    pub range: Range<usize>,
}

/// What a step does with its span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends it to a rank.
    Send {
        /// The rank.
        to: usize,
    },
    /// Overwrites it with what a rank sent.
    Receive {
        /// The rank.
        from: usize,
    },
    /// Adds to it what a rank sent.
    Reduce {
        /// The rank.
        from: usize,
    },
    /// Overwrites it with bytes of this rank.
    Copy {
        /// Those bytes; as many.
        from: Span,
    },
}

/// One step of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The channel; each has connections of its own.
    pub channel: usize,
    /// What is done.
    pub action: Action,
    /// With which bytes; at most a slice.
    pub span: Span,
}

/// Everything one rank does in one collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The steps; those of one channel are in order.
    pub steps: Vec<Step>,
}

/// One direction between two ranks, as seen by one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way {
    /// The channel.
    pub channel: usize,
    /// The other rank.
    pub peer: usize,
}

impl Program {
    /// The ways on which this rank sends.
    #[must_use]
    pub fn outgoing(&self) -> BTreeSet<Way> {
        let way = |step: &Step| match step.action {
            Action::Send { to } => Some(Way { channel: step.channel, peer: to }),
            _ => None,
        };
        self.steps.iter().filter_map(way).collect()
    }

    /// The ways on which this rank receives.
    #[must_use]
    pub fn incoming(&self) -> BTreeSet<Way> {
        let way = |step: &Step| match step.action {
            Action::Receive { from } | Action::Reduce { from } => Some(Way { channel: step.channel, peer: from }),
            _ => None,
        };
        self.steps.iter().filter_map(way).collect()
    }
}

/// Part `index` of `parts` nearly equal parts of a range, cut between elements. Some are empty if there are too few elements.
#[must_use]
pub fn part(range: &Range<usize>, parts: usize, index: usize) -> Range<usize> {
    let elements = range.len() / ELEMENT;
    let at = |index: usize| range.start + elements * index / parts * ELEMENT;
    at(index)..at(index + 1)
}

/// The slices of a range: as many as are needed, and one if it is empty, because an empty message is a message.
pub fn slices(range: Range<usize>, slice: usize) -> impl Iterator<Item = Range<usize>> {
    let count = range.len().div_ceil(slice).max(1);
    (0..count).map(move |index| {
        let start = range.start + index * slice;
        start..range.end.min(start + slice)
    })
}

/// Which steps wait for which.
#[derive(Clone, Debug)]
pub struct Hazards {
    /// Per step: how many earlier steps it waits for.
    pub waits: Vec<u32>,
    /// Per step: the later steps that wait for it.
    pub frees: Vec<Vec<u32>>,
}

impl Hazards {
    /// Finds them: two steps of a channel must keep their order if they touch the same bytes and one of them writes.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        let steps = &program.steps;
        let mut hazards = Self { waits: vec![0; steps.len()], frees: vec![Vec::new(); steps.len()] };
        for (later, step) in steps.iter().enumerate() {
            for (earlier, before) in steps[..later].iter().enumerate() {
                if before.channel == step.channel && ordered(before, step) {
                    hazards.waits[later] += 1;
                    hazards.frees[earlier].push(later as u32);
                }
            }
        }
        hazards
    }
}

fn ordered(a: &Step, b: &Step) -> bool {
    accesses(a).any(|(first, write)| accesses(b).any(|(second, also)| (write || also) && touch(first, second)))
}

/// What a step touches, and whether it writes there.
fn accesses(step: &Step) -> impl Iterator<Item = (&Span, bool)> {
    let writes = !matches!(step.action, Action::Send { .. });
    let read = match &step.action {
        Action::Copy { from } => Some((from, false)),
        _ => None,
    };
    std::iter::once((&step.span, writes)).chain(read)
}

/// Empty spans touch where they start at the same byte: so collectives of nothing still have the order of others.
fn touch(a: &Span, b: &Span) -> bool {
    let overlap = a.range.start < b.range.end && b.range.start < a.range.end;
    a.area == b.area && (overlap || a.range.start == b.range.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(channel: usize, action: Action, range: Range<usize>) -> Step {
        Step { channel, action, span: Span { area: Area::Data, range } }
    }

    #[test]
    fn parts_cover_a_range_without_gaps() {
        for (bytes, parts) in [(0, 3), (4, 6), (8, 3), (100, 7), (4096, 5), (4, 1)] {
            let range = 40..40 + bytes;
            let mut end = range.start;
            for index in 0..parts {
                let part = part(&range, parts, index);
                assert_eq!(part.start, end);
                assert_eq!(part.len() % ELEMENT, 0);
                end = part.end;
            }
            assert_eq!(end, range.end);
        }
    }

    #[test]
    fn an_empty_range_has_one_slice() {
        let all = |range| slices(range, 16).map(|slice| (slice.start, slice.end)).collect::<Vec<_>>();
        assert_eq!(all(8..8), [(8, 8)]);
        assert_eq!(all(8..24), [(8, 24)]);
        assert_eq!(all(8..28), [(8, 24), (24, 28)]);
    }

    #[test]
    fn steps_wait_for_the_bytes_they_touch_only() {
        // given: receive, forward the same bytes, send others, overwrite the forwarded ones, all on a channel and one on another
        let program = Program {
            steps: vec![
                step(0, Action::Receive { from: 1 }, 0..8),
                step(0, Action::Send { to: 2 }, 0..8),
                step(0, Action::Send { to: 2 }, 8..16),
                step(0, Action::Reduce { from: 1 }, 4..12),
                step(1, Action::Send { to: 2 }, 0..8),
                step(0, Action::Copy { from: Span { area: Area::Data, range: 12..16 } }, 16..20),
            ],
        };
        // when hazards are sought, then reads wait for writes, writes for reads, and channels for nothing of each other
        let hazards = Hazards::of(&program);
        assert_eq!(hazards.waits, [0, 1, 0, 3, 0, 0]);
        assert_eq!(hazards.frees[0], [1, 3]);
        assert_eq!(hazards.frees[2], [3]);
        assert_eq!(program.outgoing().len(), 2);
        assert_eq!(program.incoming().into_iter().collect::<Vec<_>>(), [Way { channel: 0, peer: 1 }]);
    }
}
