//! Ring: everything goes to the next rank and comes from the one before.

use super::Writer;
use crate::harness::program::{Action, Area, slices};

/// After n - 1 rounds rank r holds the sum of block r: block b starts at rank b + 1 and gathers one rank a round.
pub(super) fn reduce_scatter(writer: &mut Writer) {
    let (next, previous) = (writer.ahead(1), writer.behind(1));
    for round in 1..writer.ranks() {
        let leaving = writer.block(writer.behind(round));
        let coming = writer.block(writer.behind(round + 1));
        writer.send(next, leaving);
        writer.reduce(previous, coming);
    }
}

/// After n - 1 rounds every rank holds every block: each is passed on as it comes.
pub(super) fn all_gather(writer: &mut Writer) {
    let (next, previous) = (writer.ahead(1), writer.behind(1));
    for round in 0..writer.ranks() - 1 {
        let leaving = writer.block(writer.behind(round));
        let coming = writer.block(writer.behind(round + 1));
        writer.send(next, leaving);
        writer.receive(previous, coming);
    }
}

/// Slices pass from rank 0 along the ring to the last.
pub(super) fn broadcast(writer: &mut Writer) {
    let (next, previous) = (writer.ahead(1), writer.behind(1));
    let all = writer.share(&(0..writer.task.bytes));
    for slice in slices(all, writer.task.slice) {
        if writer.rank != 0 {
            writer.push(Action::Receive { from: previous }, Area::Data, slice.clone());
        }
        if next != 0 {
            writer.push(Action::Send { to: next }, Area::Data, slice);
        }
    }
}
