//! What a collective sends from which rank to which, for one rank a node.
//!
//! Weights are fractions of the payload S, counted as nccl-tests counts sizes: the buffer of a rank for all-reduce,
//! broadcast, all-to-all and send-recv, the whole of all ranks' parts for all-gather and reduce-scatter.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Collective {
    /// Every rank ends with the sum of all.
    AllReduce,
    /// Every rank ends with the parts of all.
    AllGather,
    /// Every rank ends with its part of the sum.
    ReduceScatter,
    /// Every rank ends with what rank 0 has.
    Broadcast,
    /// Every rank sends a part to every other.
    AllToAll,
    /// Every rank sends to the one that is `distance` further.
    SendRecv {
        /// How much further, modulo the number of ranks.
        distance: usize,
    },
}

/// How a collective is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algo {
    /// Each rank to the next.
    Ring,
    /// Two binary trees, each for half of the data.
    Tree,
    /// Parallel aggregated trees: to ranks at powers of two.
    Pat,
    /// Each pair by itself.
    Direct,
}

/// Data that one rank sends to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow {
    /// The rank that sends.
    pub from_rank: usize,
    /// The rank that receives.
    pub to_rank: usize,
    /// Fraction of the payload; may exceed 1.
    pub weight: f64,
}

/// Why there are no flows.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum FlowError {
    /// NCCL has no such combination.
    #[error("no {collective} by {algo}; {collective} runs by {possible}")]
    Unsupported {
        /// The collective.
        collective: Collective,
        /// The algorithm asked for.
        algo: Algo,
        /// Those that there are.
        possible: &'static str,
    },
    /// The name is not known.
    #[error("unknown {what} {found:?}; known: {known}")]
    Unknown {
        /// Collective or algorithm.
        what: &'static str,
        /// What was asked for.
        found: String,
        /// Those that there are.
        known: &'static str,
    },
}

/// What flows among `n` ranks, in order of the ranks that send. No flows for fewer than two ranks.
///
/// # Errors
/// When the collective is never carried out that way.
pub fn flows(collective: Collective, algo: Algo, n: usize) -> Result<Vec<Flow>, FlowError> {
    let possible = match collective {
        Collective::AllReduce => "ring, tree",
        Collective::AllGather | Collective::ReduceScatter => "ring, pat",
        Collective::Broadcast => "ring",
        Collective::AllToAll | Collective::SendRecv { .. } => "direct",
    };
    if !possible.split(", ").any(|name| name == algo.name()) {
        return Err(FlowError::Unsupported { collective, algo, possible });
    }
    if n < 2 {
        return Ok(Vec::new());
    }
    let mut found = match (collective, algo) {
        (Collective::AllReduce, Algo::Tree) => tree_flows(n),
        (_, Algo::Pat) => pat_flows(collective, n),
        // A pipeline along the ring: the last rank has nobody to pass it on to.
        (Collective::Broadcast, _) => shifted(n, 1, 1.0).filter(|flow| flow.to_rank != 0).collect(),
        (Collective::AllReduce, _) => shifted(n, 1, 2.0 * (n - 1) as f64 / n as f64).collect(),
        (Collective::AllGather | Collective::ReduceScatter, _) => shifted(n, 1, (n - 1) as f64 / n as f64).collect(),
        (Collective::AllToAll, _) => (1..n).flat_map(|distance| shifted(n, distance, 1.0 / n as f64)).collect(),
        (Collective::SendRecv { distance }, _) if distance.is_multiple_of(n) => Vec::new(),
        (Collective::SendRecv { distance }, _) => shifted(n, distance, 1.0).collect(),
    };
    found.sort_by_key(|flow| (flow.from_rank, flow.to_rank));
    Ok(found)
}

/// The edges of the two trees of `n` ranks, each as child and parent, in order of the children. The second is the
/// first mirrored if `n` is even, shifted by one rank if it is odd, so that the inner ranks of one are leaves of the
/// other as far as possible.
pub fn tree_edges(n: usize) -> [Vec<(usize, usize)>; 2] {
    let first: Vec<_> = (1..n).map(|rank| (rank, parent(rank, n))).collect();
    let turn = |rank: usize| if n.is_multiple_of(2) { n - 1 - rank } else { (rank + 1) % n };
    let mut second: Vec<_> = first.iter().map(|&(child, parent)| (turn(child), turn(parent))).collect();
    second.sort_unstable();
    [first, second]
}

/// The parent of a rank other than 0: its lowest set bit moved up by one place, or dropped if that rank is not there.
const fn parent(rank: usize, n: usize) -> usize {
    let bit = rank & rank.wrapping_neg();
    let without = rank ^ bit;
    let up = without | (bit << 1);
    if up < n { up } else { without }
}

/// Half of the payload on each tree, up and down again.
fn tree_flows(n: usize) -> Vec<Flow> {
    let edges = tree_edges(n).into_iter().flatten();
    let both = edges.flat_map(|(child, parent)| [(child, parent), (parent, child)]);
    both.map(|(from_rank, to_rank)| Flow { from_rank, to_rank, weight: 0.5 }).collect()
}

/// A part reaches the rank at distance d from its owner over hops of the powers of two in d, the largest first, so
/// that far hops carry little: the hop of 2^i carries, of each owner, the parts for those d whose lowest set bit it
/// is. All-gather sends up, reduce-scatter the same way back.
fn pat_flows(collective: Collective, n: usize) -> Vec<Flow> {
    let hops = (0..usize::BITS).map(|bit| 1_usize << bit).take_while(|&hop| hop < n);
    hops.flat_map(|hop| {
        let parts = (1..n).filter(|&distance| distance & distance.wrapping_neg() == hop).count();
        let distance = if collective == Collective::ReduceScatter { n - hop } else { hop };
        shifted(n, distance, parts as f64 / n as f64)
    })
    .collect()
}

/// Every rank to the one that is `distance` further.
fn shifted(n: usize, distance: usize, weight: f64) -> impl Iterator<Item = Flow> {
    (0..n).map(move |rank| Flow { from_rank: rank, to_rank: (rank + distance) % n, weight })
}

impl Collective {
    const KNOWN: &str = "all-reduce, all-gather, reduce-scatter, broadcast, all-to-all, send-recv";

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all-to-all",
            Self::SendRecv { .. } => "send-recv",
        }
    }
}

impl Algo {
    const KNOWN: &str = "ring, tree, pat, direct";

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Pat => "pat",
            Self::Direct => "direct",
        }
    }
}

impl FromStr for Collective {
    type Err = FlowError;

    /// `send-recv` alone is at distance 1.
    fn from_str(text: &str) -> Result<Self, FlowError> {
        let all = [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::Broadcast, Self::AllToAll];
        let all = all.into_iter().chain([Self::SendRecv { distance: 1 }]);
        all.into_iter().find(|collective| collective.name() == text).ok_or_else(|| FlowError::Unknown {
            what: "collective",
            found: text.to_owned(),
            known: Self::KNOWN,
        })
    }
}

impl FromStr for Algo {
    type Err = FlowError;

    fn from_str(text: &str) -> Result<Self, FlowError> {
        let mut all = [Self::Ring, Self::Tree, Self::Pat, Self::Direct].into_iter();
        all.find(|algo| algo.name() == text).ok_or_else(|| FlowError::Unknown {
            what: "algorithm",
            found: text.to_owned(),
            known: Self::KNOWN,
        })
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Algo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
