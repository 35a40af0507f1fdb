//! Runs a program over connections, as NCCL's progress thread and the GPU's kernels do together.
//!
//! Receives are posted ahead of their data as far as slots go; a send is posted when the bytes it reads are there; a message
//! that arrived is put to its place when nothing else needs that place any more. Nothing here sleeps: [`Executor::pass`] is one
//! look at everything. Used by one thread at a time; knows the transport only as [`Outgoing`] and [`Incoming`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use thiserror::Error;

use super::content::Areas;
use super::program::{Action, Area, ELEMENT, Hazards, Program, Span, Way};
use super::transport::{Incoming, Outgoing, SLOTS};

/// Why a program cannot go on.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ExecutorError {
    /// A connection broke.
    #[error("channel {channel}, {direction} rank {peer}: {reason}")]
    Transport {
        /// The channel.
        channel: usize,
        /// "to" or "from".
        direction: &'static str,
        /// The other rank.
        peer: usize,
        /// What the transport says.
        reason: String,
    },
    /// A message has another size than the program says.
    #[error("channel {channel}, from rank {peer}: a message of {found} bytes arrived where one of {expected} was due")]
    Size {
        /// The channel.
        channel: usize,
        /// The other rank.
        peer: usize,
        /// Bytes that arrived.
        found: usize,
        /// Bytes due.
        expected: usize,
    },
    /// The program uses a way without a connection.
    #[error("channel {channel}: no connection {direction} rank {peer}")]
    NoConnection {
        /// The channel.
        channel: usize,
        /// "to" or "from".
        direction: &'static str,
        /// The other rank.
        peer: usize,
    },
}

impl ExecutorError {
    /// The message with the peer's name in the place of its rank, `names` by rank.
    #[must_use]
    pub fn named(&self, names: &[String]) -> String {
        let (Self::Transport { peer, .. } | Self::Size { peer, .. } | Self::NoConnection { peer, .. }) = self;
        let text = self.to_string();
        names.get(*peer).map_or_else(|| text.clone(), |name| text.replacen(&format!("rank {peer}"), name, 1))
    }
}

/// A program with its hazards, ready to run any number of times.
#[derive(Debug)]
pub struct Prepared {
    program: Program,
    hazards: Hazards,
}

impl Prepared {
    /// Finds the hazards of a program.
    #[must_use]
    pub fn new(program: Program) -> Self {
        let hazards = Hazards::of(&program);
        Self { program, hazards }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// Ends of connections with their ways.
pub type Ends<T> = Vec<(Way, T)>;

/// One end of a connection: slots `done..posted` are with the transport, counted over the connection's whole life.
#[derive(Debug)]
struct End<T> {
    transport: T,
    posted: usize,
    done: usize,
    /// Sends: the next slot is filled but the transport would not take it yet.
    filled: bool,
    /// Receives: the size of the message in the oldest posted slot, once it arrived.
    arrived: Option<usize>,
    /// Steps of the running program that are not posted yet.
    ahead: VecDeque<u32>,
    /// Receives: steps that are posted and not put to their place.
    open: VecDeque<u32>,
}

impl<T> End<T> {
    fn new(transport: T) -> Self {
        let (ahead, open) = (VecDeque::new(), VecDeque::new());
        Self { transport, posted: 0, done: 0, filled: false, arrived: None, ahead, open }
    }

    fn has_slot(&self) -> bool {
        self.posted - self.done < SLOTS
    }
}

/// The connections of a rank, and the program that runs on them.
#[derive(Debug)]
pub struct Executor<O, I> {
    outgoing: BTreeMap<Way, End<O>>,
    incoming: BTreeMap<Way, End<I>>,
    waits: Vec<u32>,
    copies: Vec<u32>,
}

impl<O: Outgoing, I: Incoming> Executor<O, I> {
    /// Takes the connections of a rank.
    pub fn new(outgoing: impl IntoIterator<Item = (Way, O)>, incoming: impl IntoIterator<Item = (Way, I)>) -> Self {
        Self {
            outgoing: outgoing.into_iter().map(|(way, transport)| (way, End::new(transport))).collect(),
            incoming: incoming.into_iter().map(|(way, transport)| (way, End::new(transport))).collect(),
            waits: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// Gives the connections back, in no state to be used by another executor while a program is unfinished.
    pub fn into_ends(self) -> (Ends<O>, Ends<I>) {
        (
            self.outgoing.into_iter().map(|(way, end)| (way, end.transport)).collect(),
            self.incoming.into_iter().map(|(way, end)| (way, end.transport)).collect(),
        )
    }

    /// Begins a program; the one before must be finished.
    ///
    /// # Errors
    /// [`ExecutorError::NoConnection`] if the program needs a way that is not connected.
    pub fn start(&mut self, prepared: &Prepared) -> Result<(), ExecutorError> {
        self.waits.clone_from(&prepared.hazards.waits);
        self.copies.clear();
        for (index, step) in prepared.program.steps.iter().enumerate() {
            let channel = step.channel;
            let (queue, direction, peer) = match step.action {
                Action::Send { to: peer } => {
                    (self.outgoing.get_mut(&Way { channel, peer }).map(|end| &mut end.ahead), "to", peer)
                }
                Action::Receive { from: peer } | Action::Reduce { from: peer } => {
                    (self.incoming.get_mut(&Way { channel, peer }).map(|end| &mut end.ahead), "from", peer)
                }
                Action::Copy { .. } => (Some(&mut VecDeque::new()), "", 0),
            };
            let queue = queue.ok_or(ExecutorError::NoConnection { channel, direction, peer })?;
            queue.push_back(index as u32);
            if matches!(step.action, Action::Copy { .. }) {
                self.copies.push(index as u32);
            }
        }
        Ok(())
    }

    /// Whether all steps are done and all sends have left.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.copies.is_empty()
            && self.outgoing.values().all(|end| end.ahead.is_empty() && end.posted == end.done)
            && self.incoming.values().all(|end| end.ahead.is_empty() && end.open.is_empty())
    }

    /// Looks once at every connection; says whether anything moved.
    ///
    /// # Errors
    /// The first thing that breaks; the connections can only be closed then.
    pub fn pass(&mut self, prepared: &Prepared, areas: &mut Areas) -> Result<bool, ExecutorError> {
        let mut moved = false;
        for (way, end) in &mut self.outgoing {
            moved |= send_some(*way, end, prepared, &mut self.waits, areas)?;
        }
        for (way, end) in &mut self.incoming {
            moved |= receive_some(*way, end, prepared, &mut self.waits, areas)?;
        }
        if let Some(at) = self.copies.iter().position(|index| self.waits[*index as usize] == 0) {
            let index = self.copies.swap_remove(at);
            copy(&prepared.program.steps[index as usize].action, &prepared.program.steps[index as usize].span, areas);
            free(prepared, &mut self.waits, index);
            moved = true;
        }
        Ok(moved)
    }

    /// What is waited for, for people: one clause a connection that is not through.
    #[must_use]
    pub fn pending(&self, name: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for (way, end) in &self.outgoing {
            let (under_way, left) = (end.posted - end.done, end.ahead.len());
            if under_way + left > 0 {
                let peer = name(way.peer);
                let _ = write!(text, "to {peer} channel {}: {under_way} under way, {left} to post; ", way.channel);
            }
        }
        for (way, end) in &self.incoming {
            let missing = end.open.len() + end.ahead.len();
            if missing > 0 {
                let _ = write!(text, "from {} channel {}: {missing} missing; ", name(way.peer), way.channel);
            }
        }
        text.trim_end_matches("; ").to_owned()
    }
}

/// Marks a step as done for those that wait for it.
fn free(prepared: &Prepared, waits: &mut [u32], index: u32) {
    for later in &prepared.hazards.frees[index as usize] {
        waits[*later as usize] -= 1;
    }
}

fn send_some<O: Outgoing>(
    way: Way,
    end: &mut End<O>,
    prepared: &Prepared,
    waits: &mut [u32],
    areas: &Areas,
) -> Result<bool, ExecutorError> {
    let broken = |reason: O::Error| ExecutorError::Transport {
        channel: way.channel,
        direction: "to",
        peer: way.peer,
        reason: reason.to_string(),
    };
    let mut moved = false;
    while end.done < end.posted && end.transport.test(end.done % SLOTS).map_err(broken)? {
        end.done += 1;
        moved = true;
    }
    while let Some(&index) = end.ahead.front() {
        let span = &prepared.program.steps[index as usize].span;
        let (slot, bytes) = (end.posted % SLOTS, span.range.len());
        if !end.filled {
            if !end.has_slot() || waits[index as usize] != 0 {
                break;
            }
            end.transport.slot(slot, bytes).copy_from_slice(&area(areas, span.area)[span.range.clone()]);
            end.filled = true;
            // The bytes are read: they may be overwritten from here on.
            free(prepared, waits, index);
        }
        if !end.transport.post(slot, bytes).map_err(broken)? {
            break;
        }
        end.filled = false;
        end.posted += 1;
        end.ahead.pop_front();
        moved = true;
    }
    Ok(moved)
}

fn receive_some<I: Incoming>(
    way: Way,
    end: &mut End<I>,
    prepared: &Prepared,
    waits: &mut [u32],
    areas: &mut Areas,
) -> Result<bool, ExecutorError> {
    let Way { channel, peer } = way;
    let broken =
        |reason: I::Error| ExecutorError::Transport { channel, direction: "from", peer, reason: reason.to_string() };
    let mut moved = false;
    while let Some(&index) = end.ahead.front() {
        if !end.has_slot() || !end.transport.post(end.posted % SLOTS).map_err(broken)? {
            break;
        }
        end.posted += 1;
        end.ahead.pop_front();
        end.open.push_back(index);
        moved = true;
    }
    while let Some(&index) = end.open.front() {
        let step = &prepared.program.steps[index as usize];
        let slot = end.done % SLOTS;
        if end.arrived.is_none() {
            end.arrived = end.transport.test(slot).map_err(broken)?;
            moved |= end.arrived.is_some();
        }
        let Some(found) = end.arrived else { break };
        let expected = step.span.range.len();
        if found != expected {
            return Err(ExecutorError::Size { channel, peer, found, expected });
        }
        if waits[index as usize] != 0 {
            break;
        }
        let place = &mut area_mut(areas, step.span.area)[step.span.range.clone()];
        let message = end.transport.slot(slot, found);
        match step.action {
            Action::Reduce { .. } => add(place, message),
            _ => place.copy_from_slice(message),
        }
        free(prepared, waits, index);
        end.arrived = None;
        end.done += 1;
        end.open.pop_front();
        moved = true;
    }
    Ok(moved)
}

fn copy(action: &Action, to: &Span, areas: &mut Areas) {
    let Action::Copy { from } = action else { return };
    if from.area == to.area {
        area_mut(areas, to.area).copy_within(from.range.clone(), to.range.start);
    } else {
        let (source, data) = (&mut areas.source, &mut areas.data);
        let (read, write) = if from.area == Area::Source { (source, data) } else { (data, source) };
        write[to.range.clone()].copy_from_slice(&read[from.range.clone()]);
    }
}

fn area(areas: &Areas, area: Area) -> &[u8] {
    match area {
        Area::Source => &areas.source,
        Area::Data => &areas.data,
    }
}

fn area_mut(areas: &mut Areas, area: Area) -> &mut [u8] {
    match area {
        Area::Source => &mut areas.source,
        Area::Data => &mut areas.data,
    }
}

fn add(place: &mut [u8], message: &[u8]) {
    for (place, other) in place.chunks_exact_mut(ELEMENT).zip(message.chunks_exact(ELEMENT)) {
        let a = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
        let b = u32::from_le_bytes([other[0], other[1], other[2], other[3]]);
        place.copy_from_slice(&a.wrapping_add(b).to_le_bytes());
    }
}
