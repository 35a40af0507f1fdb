//! A double binary tree: sums flow to the root and the result flows back, slice by slice.
//!
//! Even channels use the first tree and odd ones the second, in which inner ranks and leaves have changed places as far as
//! possible: with two channels each tree carries half of the data.

use super::Writer;
use crate::harness::program::{Action, Area, slices};

/// A rank's place in a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
}

/// The parent in the first tree: rank 0 is the root; a rank whose lowest set bit is b hangs below the rank with that bit
/// cleared and the next higher one set, or, if there is no such rank, below the one with the bit cleared.
fn parent_in_first(ranks: usize, rank: usize) -> Option<usize> {
    if rank == 0 {
        return None;
    }
    let bit = rank & rank.wrapping_neg();
    let cleared = rank ^ bit;
    let above = cleared | (bit << 1);
    Some(if above < ranks { above } else { cleared })
}

/// The parent in tree 0 or 1. The second is the first mirrored (even number of ranks) or shifted by one (odd).
fn parent(ranks: usize, tree: usize, rank: usize) -> Option<usize> {
    if tree == 0 {
        parent_in_first(ranks, rank)
    } else if ranks.is_multiple_of(2) {
        parent_in_first(ranks, ranks - 1 - rank).map(|parent| ranks - 1 - parent)
    } else {
        parent_in_first(ranks, (rank + ranks - 1) % ranks).map(|parent| (parent + 1) % ranks)
    }
}

pub(super) fn place(ranks: usize, tree: usize, rank: usize) -> Place {
    let children = (0..ranks).filter(|other| parent(ranks, tree, *other) == Some(rank)).collect();
    Place { parent: parent(ranks, tree, rank), children }
}

/// Up with the sums, down with the result.
pub(super) fn all_reduce(writer: &mut Writer) {
    let place = place(writer.ranks(), writer.channel % 2, writer.rank);
    let all = writer.share(&(0..writer.task.bytes));
    let slices: Vec<_> = slices(all, writer.task.slice).collect();
    for slice in &slices {
        for child in &place.children {
            writer.push(Action::Reduce { from: *child }, Area::Data, slice.clone());
        }
        if let Some(parent) = place.parent {
            writer.push(Action::Send { to: parent }, Area::Data, slice.clone());
        }
    }
    for slice in &slices {
        if let Some(parent) = place.parent {
            writer.push(Action::Receive { from: parent }, Area::Data, slice.clone());
        }
        for child in &place.children {
            writer.push(Action::Send { to: *child }, Area::Data, slice.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Edges = &'static [(usize, usize)];

    #[test]
    fn trees_are_those_that_nccl_builds() {
        // given the edges (child, parent) known for some sizes, rank 0 upwards
        let known: [(usize, [Edges; 2]); 4] = [
            (3, [&[(1, 2), (2, 0)], &[(0, 1), (2, 0)]]),
            (4, [&[(1, 2), (2, 0), (3, 2)], &[(0, 1), (1, 3), (2, 1)]]),
            (5, [&[(1, 2), (2, 4), (3, 2), (4, 0)], &[(0, 1), (2, 3), (3, 0), (4, 3)]]),
            (6, [&[(1, 2), (2, 4), (3, 2), (4, 0), (5, 4)], &[(0, 1), (1, 5), (2, 3), (3, 1), (4, 3)]]),
        ];
        for (ranks, trees) in known {
            for (tree, edges) in trees.into_iter().enumerate() {
                let found: Vec<_> = (0..ranks).filter_map(|rank| Some((rank, parent(ranks, tree, rank)?))).collect();
                assert_eq!(found, edges, "{ranks} ranks, tree {tree}");
            }
        }
    }

    #[test]
    fn every_rank_hangs_below_the_one_root() {
        for ranks in 2..=33 {
            for tree in 0..2 {
                for rank in 0..ranks {
                    let above =
                        std::iter::successors(Some(rank), |at| parent(ranks, tree, *at)).take(ranks + 1).count();
                    assert!(above <= ranks, "no circle above rank {rank} of {ranks} in tree {tree}");
                    assert!(place(ranks, tree, rank).children.len() <= 2);
                }
            }
        }
    }
}
