//! The collectives' algorithms: each writes the program of one rank.
//!
//! Pure: knows no transport and no thread.

mod direct;
mod pat;
mod ring;
mod tree;

use std::ops::Range;

use super::collective::{Algo, Collective};
use super::program::{Action, Area, Program, Span, Step, part, slices};

/// A collective among some ranks, of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is done.
    pub collective: Collective,
    /// How; one of [`Collective::algos`].
    pub algo: Algo,
    /// How many ranks take part, at least 1.
    pub ranks: usize,
    /// Channels the data are split over, at least 1.
    pub channels: usize,
    /// For send-recv: how many ranks ahead the data go.
    pub distance: usize,
    /// Bytes of each rank's area, a multiple of the element's.
    pub bytes: usize,
    /// Most bytes of a message, a multiple of the element's.
    pub slice: usize,
}

impl Task {
    /// What `rank` does.
    #[must_use]
    pub fn program(&self, rank: usize) -> Program {
        let mut writer = Writer { task: *self, rank, channel: 0, steps: Vec::new() };
        if self.ranks > 1 {
            for channel in 0..self.channels {
                writer.channel = channel;
                self.channel(&mut writer);
            }
        } else if matches!(self.collective, Collective::AllToAll | Collective::SendRecv) {
            writer.copy_own(0..self.bytes);
        }
        Program { steps: writer.steps }
    }

    fn channel(&self, writer: &mut Writer) {
        match (self.collective, self.algo) {
            (Collective::AllReduce, Algo::Tree) => tree::all_reduce(writer),
            (Collective::AllReduce, Algo::Direct) => {
                direct::reduce_scatter(writer);
                direct::all_gather(writer);
            }
            (Collective::AllReduce, _) => {
                ring::reduce_scatter(writer);
                ring::all_gather(writer);
            }
            (Collective::AllGather, Algo::Pat) => pat::all_gather(writer),
            (Collective::AllGather, Algo::Direct) => direct::all_gather(writer),
            (Collective::AllGather, _) => ring::all_gather(writer),
            (Collective::ReduceScatter, Algo::Pat) => pat::reduce_scatter(writer),
            (Collective::ReduceScatter, Algo::Direct) => direct::reduce_scatter(writer),
            (Collective::ReduceScatter, _) => ring::reduce_scatter(writer),
            (Collective::Broadcast, _) => ring::broadcast(writer),
            (Collective::AllToAll, _) => direct::all_to_all(writer),
            (Collective::SendRecv, _) => direct::send_recv(writer, self.distance),
        }
    }

    /// The block that belongs to `rank` in collectives that have blocks.
    #[must_use]
    pub fn block(&self, rank: usize) -> Range<usize> {
        part(&(0..self.bytes), self.ranks, rank)
    }
}

/// Collects the steps of one rank, channel by channel.
#[derive(Debug)]
struct Writer {
    task: Task,
    rank: usize,
    channel: usize,
    steps: Vec<Step>,
}

impl Writer {
    fn ranks(&self) -> usize {
        self.task.ranks
    }

    /// The rank `distance` ahead, the ranks taken as a circle.
    fn ahead(&self, distance: usize) -> usize {
        (self.rank + distance) % self.ranks()
    }

    /// The rank `distance` behind.
    fn behind(&self, distance: usize) -> usize {
        (self.rank + self.ranks() - distance % self.ranks()) % self.ranks()
    }

    /// This channel's share of a rank's block.
    fn block(&self, rank: usize) -> Range<usize> {
        self.share(&self.task.block(rank % self.ranks()))
    }

    /// This channel's share of a range.
    fn share(&self, range: &Range<usize>) -> Range<usize> {
        part(range, self.task.channels, self.channel)
    }

    fn push(&mut self, action: Action, area: Area, range: Range<usize>) {
        self.steps.push(Step { channel: self.channel, action, span: Span { area, range } });
    }

    /// One step a slice of `range`.
    fn each_slice(&mut self, area: Area, range: Range<usize>, action: &Action) {
        for slice in slices(range, self.task.slice) {
            self.push(action.clone(), area, slice);
        }
    }

    fn send(&mut self, to: usize, range: Range<usize>) {
        self.each_slice(Area::Data, range, &Action::Send { to });
    }

    fn receive(&mut self, from: usize, range: Range<usize>) {
        self.each_slice(Area::Data, range, &Action::Receive { from });
    }

    fn reduce(&mut self, from: usize, range: Range<usize>) {
        self.each_slice(Area::Data, range, &Action::Reduce { from });
    }

    /// Takes this rank's own data from the source area.
    fn copy_own(&mut self, range: Range<usize>) {
        let from = Span { area: Area::Source, range: range.clone() };
        self.push(Action::Copy { from }, Area::Data, range);
    }
}

#[cfg(test)]
pub(super) mod tests;
