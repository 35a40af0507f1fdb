//! Names of collectives and algorithms, and how their bandwidth is counted.
//!
//! Pure: knows no transport. Any thread.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What the ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Collective {
    /// Every rank ends with the sum of all ranks' data.
    AllReduce,
    /// Every rank ends with every rank's block.
    AllGather,
    /// Rank r ends with the sum of all ranks' blocks r.
    ReduceScatter,
    /// Every rank ends with rank 0's data.
    Broadcast,
    /// Every rank sends each rank a part of its own.
    AllToAll,
    /// Every rank sends to the rank a distance ahead and receives from the one as far behind.
    SendRecv,
}

/// How they do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Algo {
    /// To the next rank only.
    Ring,
    /// A double binary tree: every second channel uses the second tree.
    Tree,
    /// Distances that are powers of two.
    Pat,
    /// Straight to the rank concerned.
    Direct,
}

/// A name or a combination that does not exist.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// No such collective.
    #[error("unknown collective {0:?}: all-reduce, all-gather, reduce-scatter, broadcast, all-to-all, send-recv")]
    Collective(String),
    /// No such algorithm.
    #[error("unknown algorithm {0:?}: ring, tree, pat, direct")]
    Algo(String),
    /// The algorithm does not do this collective.
    #[error("{collective} has no algorithm {algo}; it has: {known}")]
    Combination {
        /// The collective asked for.
        collective: Collective,
        /// The algorithm asked for.
        algo: Algo,
        /// The algorithms it has.
        known: String,
    },
}

impl Collective {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::Broadcast, Self::AllToAll, Self::SendRecv];

    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all-to-all",
            Self::SendRecv => "send-recv",
        }
    }

    /// The algorithms it has; the first is the one taken when none is named.
    #[must_use]
    pub const fn algos(self) -> &'static [Algo] {
        match self {
            Self::AllReduce => &[Algo::Ring, Algo::Tree, Algo::Direct],
            Self::AllGather | Self::ReduceScatter => &[Algo::Ring, Algo::Pat, Algo::Direct],
            Self::Broadcast => &[Algo::Ring],
            Self::AllToAll | Self::SendRecv => &[Algo::Direct],
        }
    }

    /// Checks `algo`, or chooses one if there is none.
    ///
    /// # Errors
    /// [`NameError::Combination`] if the collective has no such algorithm.
    pub fn algo(self, algo: Option<Algo>) -> Result<Algo, NameError> {
        match algo {
            None => Ok(self.algos()[0]),
            Some(algo) if self.algos().contains(&algo) => Ok(algo),
            Some(algo) => {
                let known: Vec<&str> = self.algos().iter().map(|algo| algo.name()).collect();
                Err(NameError::Combination { collective: self, algo, known: known.join(", ") })
            }
        }
    }

    /// Bytes that each rank must send for every byte of the size, whatever the algorithm: bus bandwidth is algorithm
    /// bandwidth times this.
    #[must_use]
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let ranks = ranks.max(1) as f64;
        match self {
            Self::AllReduce => 2.0 * (ranks - 1.0) / ranks,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (ranks - 1.0) / ranks,
            Self::Broadcast | Self::SendRecv => 1.0,
        }
    }

    /// Most bytes a message carries: a slot of the buffers that collectives or pairs use.
    #[must_use]
    pub const fn slice_bytes(self) -> usize {
        match self {
            Self::AllToAll | Self::SendRecv => 128 << 10,
            _ => 512 << 10,
        }
    }
}

impl Algo {
    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Pat => "pat",
            Self::Direct => "direct",
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Algo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Collective {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(|| NameError::Collective(text.to_owned()))
    }
}

impl FromStr for Algo {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let known = [Self::Ring, Self::Tree, Self::Pat, Self::Direct];
        known.into_iter().find(|known| known.name() == text).ok_or_else(|| NameError::Algo(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_others_are_refused() {
        for collective in Collective::ALL {
            assert_eq!(collective.name().parse(), Ok(collective));
            for algo in collective.algos() {
                assert_eq!(algo.name().parse(), Ok(*algo));
                assert_eq!(collective.algo(Some(*algo)), Ok(*algo));
            }
        }
        assert_eq!("allreduce".parse::<Collective>(), Err(NameError::Collective("allreduce".to_owned())));
        assert_eq!("Ring".parse::<Algo>(), Err(NameError::Algo("Ring".to_owned())));
        let error = Collective::Broadcast.algo(Some(Algo::Tree)).expect_err("broadcast is a ring");
        assert_eq!(error.to_string(), "broadcast has no algorithm tree; it has: ring");
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        assert!((Collective::AllReduce.bus_factor(4) - 1.5).abs() < 1e-12);
        assert!((Collective::AllGather.bus_factor(4) - 0.75).abs() < 1e-12);
        assert!((Collective::SendRecv.bus_factor(4) - 1.0).abs() < 1e-12);
    }
}
