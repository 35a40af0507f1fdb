//! Direct: every rank talks to every rank concerned.

use super::Writer;
use crate::harness::program::{Action, Area, part};

/// Every rank sums the blocks that all others hold for it.
pub(super) fn reduce_scatter(writer: &mut Writer) {
    for distance in 1..writer.ranks() {
        let to = writer.ahead(distance);
        let theirs = writer.block(to);
        writer.send(to, theirs);
    }
    for distance in 1..writer.ranks() {
        let own = writer.block(writer.rank);
        writer.reduce(writer.behind(distance), own);
    }
}

/// Every rank sends its block to all others.
pub(super) fn all_gather(writer: &mut Writer) {
    for distance in 1..writer.ranks() {
        let own = writer.block(writer.rank);
        writer.send(writer.ahead(distance), own);
    }
    for distance in 1..writer.ranks() {
        let from = writer.behind(distance);
        let theirs = writer.block(from);
        writer.receive(from, theirs);
    }
}

/// The order in which NCCL takes distances: sums of 1, 2, 3 … modulo the next power of two, without those that are too long.
fn distances(ranks: usize) -> impl Iterator<Item = usize> {
    let circle = ranks.next_power_of_two();
    (0..circle).map(move |round| round * (round + 1) / 2 % circle).filter(move |distance| *distance < ranks)
}

/// Part d of a rank's source goes to the rank d ahead, and to the same place of its data.
pub(super) fn all_to_all(writer: &mut Writer) {
    for distance in distances(writer.ranks()) {
        exchange(writer, distance, part(&(0..writer.task.bytes), writer.ranks(), distance));
    }
}

/// The whole source goes to the rank `distance` ahead.
pub(super) fn send_recv(writer: &mut Writer, distance: usize) {
    exchange(writer, distance % writer.ranks(), 0..writer.task.bytes);
}

fn exchange(writer: &mut Writer, distance: usize, range: std::ops::Range<usize>) {
    let share = writer.share(&range);
    if distance == 0 {
        writer.copy_own(share);
        return;
    }
    let (to, from) = (writer.ahead(distance), writer.behind(distance));
    writer.each_slice(Area::Source, share.clone(), &Action::Send { to });
    writer.each_slice(Area::Data, share, &Action::Receive { from });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_come_in_the_order_of_nccl() {
        assert_eq!(distances(4).collect::<Vec<_>>(), [0, 1, 3, 2]);
        assert_eq!(distances(5).collect::<Vec<_>>(), [0, 1, 3, 2, 4]);
        assert_eq!(distances(6).collect::<Vec<_>>(), [0, 1, 3, 2, 5, 4]);
    }

    #[test]
    fn every_distance_comes_once() {
        for ranks in 1..=40 {
            let mut found: Vec<_> = distances(ranks).collect();
            found.sort_unstable();
            assert_eq!(found, (0..ranks).collect::<Vec<_>>());
        }
    }
}
