//! Distances that are powers of two: as many rounds as the number of ranks has bits.
//!
//! Gathering, a rank that holds the blocks of `held` ranks from its own on gets those of the rank `held` ahead, and so doubles
//! what it holds; the last round carries what is missing. Reduce-scatter is the same with time and direction reversed: what was
//! received last is summed into first.

use super::Writer;

/// The rounds of gathering: the distance, and how many blocks change hands.
fn rounds(ranks: usize) -> Vec<(usize, usize)> {
    let distances = std::iter::successors(Some(1_usize), |distance| distance.checked_mul(2));
    distances.take_while(|distance| *distance < ranks).map(|held| (held, held.min(ranks - held))).collect()
}

pub(super) fn all_gather(writer: &mut Writer) {
    for (distance, blocks) in rounds(writer.ranks()) {
        let (to, from) = (writer.behind(distance), writer.ahead(distance));
        for index in 0..blocks {
            let own = writer.block(writer.rank + index);
            writer.send(to, own);
        }
        for index in 0..blocks {
            let theirs = writer.block(from + index);
            writer.receive(from, theirs);
        }
    }
}

pub(super) fn reduce_scatter(writer: &mut Writer) {
    for (distance, blocks) in rounds(writer.ranks()).into_iter().rev() {
        let (from, to) = (writer.behind(distance), writer.ahead(distance));
        for index in 0..blocks {
            let theirs = writer.block(to + index);
            writer.send(to, theirs);
        }
        for index in 0..blocks {
            let own = writer.block(writer.rank + index);
            writer.reduce(from, own);
        }
    }
}
