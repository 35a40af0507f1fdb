//! What `nccl-mesh sim run` is asked to do, and how sizes are written.
//!
//! Pure. Any thread.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mesh_routing::Topology;
use thiserror::Error;

use super::bench::BenchArgs;
use super::collective::{Algo, Collective};
pub use super::fault::{Cable, Fault, FaultKind};
use super::program::ELEMENT;

/// What the simulated links are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// TCP between the ports' addresses.
    #[default]
    Tcp,
    /// RDMA queue pairs: on soft verbs, or on the devices of real ports.
    Verbs,
}

impl LinkKind {
    /// The name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Verbs => "verbs",
        }
    }
}

impl FromStr for LinkKind {
    type Err = ArgsError;

    fn from_str(text: &str) -> Result<Self, ArgsError> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "verbs" => Ok(Self::Verbs),
            _ => Err(ArgsError::Link(text.to_owned())),
        }
    }
}

/// What is run on the fabric.
#[derive(Clone, Debug)]
pub enum Work {
    /// A collective through the plugin's C interface.
    Collective(CollectiveArgs),
    /// A command, once a node.
    Job(JobArgs),
    /// A measurement of the connection between the two nodes of the rank order.
    Bench(BenchArgs),
}

/// A collective and its sizes.
#[derive(Clone, Debug)]
pub struct CollectiveArgs {
    /// Which.
    pub collective: Collective,
    /// How; must be one of the collective's.
    pub algo: Algo,
    /// Sizes in bytes, as nccl-tests counts them; cut to whole elements of 4 bytes.
    pub sizes: Vec<usize>,
    /// Iterations that count; `None`: some that fit the size.
    pub iterations: Option<usize>,
    /// Channels, at least 1.
    pub channels: usize,
    /// For send-recv: the distance in ranks; `None`: every one, a row each.
    pub distance: Option<usize>,
    /// How often the list of sizes is run.
    pub repeat: usize,
    /// How long to stay connected and idle at the end, measuring processor time.
    pub idle: Option<Duration>,
    /// Version of the plugin's table, 8 to 12.
    pub abi: u32,
}

/// A command for every node.
#[derive(Clone, Debug)]
pub struct JobArgs {
    /// The program and its arguments; not empty.
    pub command: Vec<OsString>,
    /// Whether every line of output begins with the node's name.
    pub prefix: bool,
    /// Whether the command is told to use the plugin.
    pub plugin: bool,
}

/// Which nodes have a daemon beside or instead of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Agents {
    /// None; a node without a rank has a process that only relays.
    #[default]
    None,
    /// Those without a rank.
    Idle,
    /// All.
    All,
}

impl FromStr for Agents {
    type Err = ArgsError;

    fn from_str(text: &str) -> Result<Self, ArgsError> {
        match text {
            "idle" => Ok(Self::Idle),
            "all" => Ok(Self::All),
            _ => Err(ArgsError::Agents(text.to_owned())),
        }
    }
}

/// A job that ends before its time, written `JOB@SECONDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEnding {
    /// From 0.
    pub job: usize,
    /// After the start of the first job.
    pub after: Duration,
    /// All its processes are killed; otherwise it does no further size, and closes in order.
    pub killed: bool,
}

impl FromStr for JobEnding {
    type Err = ArgsError;

    /// One in order; the caller knows if it is a kill.
    fn from_str(text: &str) -> Result<Self, ArgsError> {
        let parsed = text.split_once('@').and_then(|(job, seconds)| {
            let seconds: f64 = seconds.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds))?;
            Some(Self { job: job.parse().ok()?, after: Duration::from_secs_f64(seconds), killed: false })
        });
        parsed.ok_or_else(|| ArgsError::JobEnding(text.to_owned()))
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub struct RunArgs {
    /// Nodes and cables; addresses are replaced by ones of this machine, unless its ports are real.
    pub topology: Topology,
    /// Whether the ports are this machine's own, with the topology's addresses: no make-believe fabric, no soft verbs.
    pub real_ports: bool,
    /// Whether every node has a network namespace of its own, with the topology's addresses on interfaces of the kernel.
    pub netns: bool,
    /// What links are made of.
    pub link: LinkKind,
    /// What is run.
    pub work: Work,
    /// Node of every rank, by place in the topology or by name; empty: all nodes in order.
    pub rank_order: Vec<String>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// The plugin's file; `None`: beside this program.
    pub plugin: Option<PathBuf>,
    /// The preloaded library's file; `None`: beside this program.
    pub fabric: Option<PathBuf>,
    /// The folder of soft verbs (`libibverbs.so.1`); `None`: `soft-verbs` beside this program.
    pub soft_verbs: Option<PathBuf>,
    /// Statements for soft verbs' fabric file (`engine=clock`, `strict=on`, ...).
    pub soft_verbs_set: Vec<String>,
    /// Whether nodes get no topology file, and find one another.
    pub discover: bool,
    /// Nodes that have a daemon.
    pub agents: Agents,
    /// How many jobs do the same at once, each with processes of its own on every node; at least 1.
    pub jobs: usize,
    /// Jobs that end before their time.
    pub endings: Vec<JobEnding>,
    /// The program that runs a node, with its arguments; empty: this program with `sim node`.
    pub node_program: Vec<OsString>,
    /// Variables for every node.
    pub environment: Vec<(String, String)>,
    /// How long the whole run may take, idling not counted.
    pub timeout: Duration,
    /// JSON instead of a table.
    pub json: bool,
}

/// Arguments that mean nothing.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ArgsError {
    /// No such kind of link.
    #[error("unknown link {0:?}; known: tcp, verbs")]
    Link(String),
    /// Nodes that are to have daemons.
    #[error("unknown nodes {0:?} for daemons; known: idle (those without a rank), all")]
    Agents(String),
    /// The end of a job.
    #[error("{0:?} does not say which job ends when; write JOB@SECONDS, such as 1@2.5")]
    JobEnding(String),
    /// A size that is none.
    #[error("size {0:?} is not a number of bytes such as 0, 4, 8K, 1M, 1G")]
    Size(String),
    /// A fault that is none.
    #[error(
        "unknown fault {0:?}; known: \"0 absent NODE\" (the node never starts), and with --netns \"WHEN cut A B [RAIL]\", \
         \"WHEN mend A B [RAIL]\" and \"WHEN kill NODE\", with WHEN such as 0, 2, 1.5s or 500ms"
    )]
    UnknownFault(String),
    /// A fault that does not fit the topology.
    #[error("fault {0}")]
    Fault(String),
    /// A fault that only namespaces can have.
    #[error("fault \"{0}\" needs --netns")]
    NeedsNetns(String),
    /// A fault of ports that are not the run's own.
    #[error("fault \"{0}\" does not go with --real-ports: they are joined by the machine; leave one of the two out")]
    RealPorts(String),
    /// A measurement that cannot be made.
    #[error("{0}")]
    Bench(String),
    /// A rank order that does not fit the topology.
    #[error("rank order: {0}")]
    RankOrder(String),
}

/// Reads a list of sizes such as `0,4,8K,1M,64M`; K, M and G are powers of 1024.
///
/// # Errors
/// The first that is no size.
pub fn parse_sizes(text: &str) -> Result<Vec<usize>, ArgsError> {
    text.split(',').map(|word| parse_size(word.trim())).collect()
}

fn parse_size(text: &str) -> Result<usize, ArgsError> {
    let malformed = || ArgsError::Size(text.to_owned());
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed());
    }
    let number: usize = digits.parse().map_err(|_| malformed())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes <= 16 << 30).ok_or_else(malformed)?;
    Ok(bytes - bytes % ELEMENT)
}

/// The node of every rank, as places in `names`.
///
/// # Errors
/// A node that does not exist or comes twice; fewer than two nodes.
pub fn resolve_rank_order(order: &[String], names: &[String]) -> Result<Vec<usize>, ArgsError> {
    let refused = |text: String| Err(ArgsError::RankOrder(text));
    let mut resolved = Vec::with_capacity(order.len());
    for word in order {
        let named = names.iter().position(|name| name == word);
        let numbered = || word.parse().ok().filter(|index: &usize| *index < names.len());
        let Some(index) = named.or_else(numbered) else {
            return refused(format!(
                "{word:?} is no node; nodes are {} (or 0 to {})",
                names.join(", "),
                names.len() - 1
            ));
        };
        if resolved.contains(&index) {
            return refused(format!("{} comes twice", names[index]));
        }
        resolved.push(index);
    }
    match resolved.len() {
        0 => Ok((0..names.len()).collect()),
        1 => refused("one rank alone has nobody to talk to".to_owned()),
        _ => Ok(resolved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_sizes("0,4,8K,1M, 64M,1g"), Ok(vec![0, 4, 8192, 1 << 20, 64 << 20, 1 << 30]));
        assert_eq!(parse_sizes("7"), Ok(vec![4]), "whole elements");
        for wrong in ["", "K", "4,,8", "-4", "8KB", "1.5M", "17G", "99999999999999999999"] {
            assert!(matches!(parse_sizes(wrong), Err(ArgsError::Size(_))), "{wrong}");
        }
        assert_eq!(parse_sizes("16G"), Ok(vec![16 << 30]));
    }

    #[test]
    fn a_rank_order_names_each_node_once() {
        let names = ["node0", "node1", "node2", "1"].map(str::to_owned);
        let order = |text: &str| {
            let words: Vec<String> = text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
            resolve_rank_order(&words, &names)
        };
        assert_eq!(order(""), Ok(vec![0, 1, 2, 3]));
        assert_eq!(order("0,2,node1,3"), Ok(vec![0, 2, 1, 3]));
        assert_eq!(order("2,0"), Ok(vec![2, 0]), "nodes without a rank only relay");
        assert_eq!(order("1,0"), Ok(vec![3, 0]), "a name wins over a place");
        for wrong in ["0,0", "node0,0", "4,0", "0,x", "0"] {
            assert!(matches!(order(wrong), Err(ArgsError::RankOrder(_))), "{wrong}");
        }
    }
}
