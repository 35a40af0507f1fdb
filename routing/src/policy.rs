//! What the owner of a cluster asks of routes, and of a topology that is not as declared. Knows nothing of how routes
//! are found or what is done about a difference. Any thread.

use std::fmt;
use std::str::FromStr;

/// What routes must respect beyond each node's own wish not to relay, and what to make of differences.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Policy {
    /// The most relays a route may have; `None`: no limit.
    pub max_relays: Option<u16>,
    /// What to do where the cluster is found to differ from the file.
    pub differences: Differences,
    /// Routes that hold for their pairs whatever else there is.
    pub routes: Vec<PinnedRoute>,
}

/// What to do where the cluster is found to differ from the declared topology, see [`compare`](crate::compare).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Differences {
    /// Say so, and go on with what is there.
    #[default]
    Warn,
    /// Do not start.
    Refuse,
    /// Say nothing.
    Ignore,
}

/// A route for one pair of nodes, by their names. Holds in both directions, unless the other direction is given itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PinnedRoute {
    /// Name of the node where it begins.
    pub from: String,
    /// Name of the node where it ends.
    pub to: String,
    /// Names of the relays in between, in order; none pins the direct way.
    pub via: Vec<String>,
}

impl Differences {
    /// All of them, in the order in which messages list them.
    pub const ALL: [Self; 3] = [Self::Warn, Self::Refuse, Self::Ignore];

    /// As in the topology file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Refuse => "refuse",
            Self::Ignore => "ignore",
        }
    }
}

impl FromStr for Differences {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|value| value.name() == text).ok_or(())
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PinnedRoute {
    /// Names of all nodes, both ends included.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let via = self.via.iter().map(String::as_str);
        std::iter::once(self.from.as_str()).chain(via).chain(std::iter::once(self.to.as_str()))
    }
}
