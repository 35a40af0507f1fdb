//! Who may talk to whom: the cables of a fabric as one node sees them.
//!
//! Pure: no sockets, no environment. Any thread may ask, an answer costs one or two look-ups.

use std::collections::HashSet;
use std::fmt;
use std::net::Ipv4Addr;

/// The cables of a fabric and the ports of the node that asks.
#[derive(Debug)]
pub struct Fabric {
    /// Both directions of every cable.
    cables: HashSet<(Ipv4Addr, Ipv4Addr)>,
    /// Every port of the fabric.
    ports: HashSet<Ipv4Addr>,
    /// The ports of this node, in the order given.
    own: Vec<Ipv4Addr>,
}

/// What may happen to a packet or a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The destination is no port of the fabric: none of our business.
    Outside,
    /// Source and destination are cabled (or both are this node's own).
    Cabled,
    /// The source is not chosen yet: it must be this port.
    From(Ipv4Addr),
    /// The source is chosen and has no cable to the destination.
    NotCabled,
    /// No port of this node has a cable to the destination.
    Unreachable,
}

/// Why a fabric cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum FabricError {
    /// A line of the fabric file is neither `ADDRESS ADDRESS` nor `ADDRESS`.
    Line {
        /// Counted from 1.
        number: usize,
        /// The line itself.
        text: String,
    },
    /// The file names no port at all.
    Empty,
    /// An entry of the node's own ports is no IPv4 address.
    Own {
        /// The entry itself.
        text: String,
    },
    /// A port that the node calls its own is not in the fabric file.
    Foreign {
        /// The port's address.
        address: Ipv4Addr,
    },
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { number, text } => {
                write!(f, "line {number} is neither \"ADDRESS ADDRESS\" (a cable) nor \"ADDRESS\" (a port): {text:?}")
            }
            Self::Empty => write!(f, "the fabric file names no port"),
            Self::Own { text } => write!(f, "{text:?} in the list of this node's ports is not an IPv4 address"),
            Self::Foreign { address } => write!(f, "this node's port {address} is not in the fabric file"),
        }
    }
}

impl std::error::Error for FabricError {}

impl Fabric {
    /// Reads a fabric file: one cable a line as `ADDRESS ADDRESS`, a port without a cable as `ADDRESS`; empty lines and what
    /// follows a `#` do not count. `own` lists this node's ports, separated by commas; it may be empty.
    ///
    /// # Errors
    /// The first thing that is malformed, see [`FabricError`].
    pub fn parse(file: &str, own: &str) -> Result<Self, FabricError> {
        let mut fabric = Self { cables: HashSet::new(), ports: HashSet::new(), own: Vec::new() };
        for (index, line) in file.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            let malformed = || FabricError::Line { number: index + 1, text: line.to_owned() };
            let mut ends = Vec::with_capacity(2);
            for word in content.split_whitespace() {
                ends.push(word.parse::<Ipv4Addr>().map_err(|_| malformed())?);
            }
            match ends[..] {
                [] => {}
                [port] => {
                    fabric.ports.insert(port);
                }
                [a, b] if a != b => {
                    fabric.ports.extend([a, b]);
                    fabric.cables.extend([(a, b), (b, a)]);
                }
                _ => return Err(malformed()),
            }
        }
        if fabric.ports.is_empty() {
            return Err(FabricError::Empty);
        }
        for word in own.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let address = word.parse().map_err(|_| FabricError::Own { text: word.to_owned() })?;
            if !fabric.ports.contains(&address) {
                return Err(FabricError::Foreign { address });
            }
            fabric.own.push(address);
        }
        Ok(fabric)
    }

    /// May this node reach `destination` from `source` (`None`: not bound yet)?
    #[must_use]
    pub fn reach(&self, source: Option<Ipv4Addr>, destination: Ipv4Addr) -> Verdict {
        if !self.ports.contains(&destination) {
            return Verdict::Outside;
        }
        let to_itself = self.own.contains(&destination);
        match source {
            Some(source) if !self.own.contains(&source) => Verdict::NotCabled,
            // Between its own ports a host needs no cable.
            Some(_) if to_itself => Verdict::Cabled,
            Some(source) if self.cables.contains(&(source, destination)) => Verdict::Cabled,
            Some(_) => Verdict::NotCabled,
            None if to_itself => Verdict::From(destination),
            None => match self.own.iter().find(|port| self.cables.contains(&(**port, destination))) {
                Some(port) => Verdict::From(*port),
                None => Verdict::Unreachable,
            },
        }
    }

    /// May this node bind to `address`? Only another node's port is out of bounds.
    #[must_use]
    pub fn may_bind(&self, address: Ipv4Addr) -> bool {
        self.own.contains(&address) || !self.ports.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A0: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);
    const B0: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 2);
    const A1: Ipv4Addr = Ipv4Addr::new(127, 9, 1, 1);
    const C0: Ipv4Addr = Ipv4Addr::new(127, 9, 1, 2);
    const D0: Ipv4Addr = Ipv4Addr::new(127, 9, 2, 1);
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);

    fn node_a() -> Fabric {
        let file = "# a's two cables\n127.9.0.1 127.9.0.2\n\n127.9.1.1\t127.9.1.2 # to c\n127.9.2.1\n";
        Fabric::parse(file, "127.9.0.1, 127.9.1.1").expect("well formed")
    }

    #[test]
    fn a_port_reaches_only_what_it_is_cabled_to() {
        // given a node with a cable to b and one to c, and a port d that nobody is cabled to
        let fabric = node_a();
        // when it connects from a port, then only that port's own cable counts
        assert_eq!(fabric.reach(Some(A0), B0), Verdict::Cabled);
        assert_eq!(fabric.reach(Some(A0), C0), Verdict::NotCabled);
        assert_eq!(fabric.reach(Some(A1), C0), Verdict::Cabled);
        assert_eq!(fabric.reach(Some(A1), D0), Verdict::NotCabled);
        // and a source that is no port of this node reaches no port
        assert_eq!(fabric.reach(Some(OUTSIDE), B0), Verdict::NotCabled);
        assert_eq!(fabric.reach(Some(B0), A0), Verdict::NotCabled);
    }

    #[test]
    fn an_unbound_source_gets_the_right_port() {
        let fabric = node_a();
        assert_eq!(fabric.reach(None, B0), Verdict::From(A0));
        assert_eq!(fabric.reach(None, C0), Verdict::From(A1));
        assert_eq!(fabric.reach(None, D0), Verdict::Unreachable);
        assert_eq!(fabric.reach(None, A1), Verdict::From(A1));
    }

    #[test]
    fn a_node_reaches_its_own_ports_and_everything_outside() {
        let fabric = node_a();
        assert_eq!(fabric.reach(Some(A0), A1), Verdict::Cabled);
        assert_eq!(fabric.reach(Some(A0), OUTSIDE), Verdict::Outside);
        assert_eq!(fabric.reach(None, OUTSIDE), Verdict::Outside);
    }

    #[test]
    fn only_other_nodes_ports_cannot_be_bound() {
        let fabric = node_a();
        assert!(fabric.may_bind(A0) && fabric.may_bind(OUTSIDE) && fabric.may_bind(Ipv4Addr::UNSPECIFIED));
        assert!(!fabric.may_bind(B0) && !fabric.may_bind(D0));
    }

    #[test]
    fn whatever_is_malformed_is_refused() {
        // given files with a fault each, then the fault is named
        for (file, number) in [("127.9.0.1 127.9.0.2 127.9.0.3", 1), ("127.9.0.1\n127.9.0.x 127.9.0.2", 2)] {
            let error = Fabric::parse(file, "").expect_err("malformed");
            assert!(matches!(error, FabricError::Line { number: n, .. } if n == number), "{error}");
        }
        let same_end = Fabric::parse("127.9.0.1 127.9.0.1", "").expect_err("a cable has two ends");
        assert!(matches!(same_end, FabricError::Line { .. }));
        assert_eq!(Fabric::parse("# nothing\n", "").expect_err("no port"), FabricError::Empty);
        let own = Fabric::parse("127.9.0.1 127.9.0.2", "127.9.0").expect_err("no address");
        assert_eq!(own, FabricError::Own { text: "127.9.0".to_owned() });
        let foreign = Fabric::parse("127.9.0.1 127.9.0.2", "127.9.0.3").expect_err("not in the fabric");
        assert_eq!(foreign, FabricError::Foreign { address: Ipv4Addr::new(127, 9, 0, 3) });
    }
}
