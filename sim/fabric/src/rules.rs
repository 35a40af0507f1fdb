//! Who may talk to whom, and where: the cables of a fabric as one node sees them.
//!
//! A port has an address, by which the nodes know it, and a place, the loopback address of this machine at which it is found.
//!
//! Pure: no sockets, no environment. Any thread may ask, an answer costs one or two look-ups.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::Ipv4Addr;

/// The cables of a fabric and the ports of the node that asks.
#[derive(Debug)]
pub struct Fabric {
    /// Both directions of every cable.
    cables: HashSet<(Ipv4Addr, Ipv4Addr)>,
    /// The place of every port of the fabric, by the port's address.
    places: HashMap<Ipv4Addr, Ipv4Addr>,
    /// The same the other way round.
    addresses: HashMap<Ipv4Addr, Ipv4Addr>,
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
    /// A line of the fabric file is none that is known, or says again what has been said.
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
                write!(f, "line {number} is neither \"port ADDRESS PLACE\" nor \"cable PORT PORT\": {text:?}")
            }
            Self::Empty => write!(f, "the fabric file names no port"),
            Self::Own { text } => write!(f, "{text:?} in the list of this node's ports is not an IPv4 address"),
            Self::Foreign { address } => write!(f, "this node's port {address} is not in the fabric file"),
        }
    }
}

impl std::error::Error for FabricError {}

impl Fabric {
    /// Reads a fabric file: a port a line as `port ADDRESS PLACE`, and after both of its ports a cable as `cable PORT PORT`, ports
    /// by their addresses; empty lines and what follows a `#` do not count. Address and place may be the same. `own` lists the
    /// addresses of this node's ports, separated by commas; it may be empty.
    ///
    /// # Errors
    /// The first thing that is malformed, see [`FabricError`].
    pub fn parse(file: &str, own: &str) -> Result<Self, FabricError> {
        let (places, addresses) = (HashMap::new(), HashMap::new());
        let mut fabric = Self { cables: HashSet::new(), places, addresses, own: Vec::new() };
        for (index, line) in file.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default();
            fabric.line(content).ok_or_else(|| FabricError::Line { number: index + 1, text: line.to_owned() })?;
        }
        if fabric.places.is_empty() {
            return Err(FabricError::Empty);
        }
        for word in own.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let address = word.parse().map_err(|_| FabricError::Own { text: word.to_owned() })?;
            if !fabric.places.contains_key(&address) {
                return Err(FabricError::Foreign { address });
            }
            fabric.own.push(address);
        }
        Ok(fabric)
    }

    fn line(&mut self, content: &str) -> Option<()> {
        let words: Vec<&str> = content.split_whitespace().collect();
        match words[..] {
            [] => {}
            ["port", address, place] => {
                let (address, place) = (address.parse().ok()?, place.parse().ok()?);
                let fresh = self.places.insert(address, place).is_none();
                let alone = self.addresses.insert(place, address).is_none();
                (fresh && alone).then_some(())?;
            }
            ["cable", a, b] => {
                let (a, b) = (a.parse().ok()?, b.parse().ok()?);
                let known = self.places.contains_key(&a) && self.places.contains_key(&b);
                (known && a != b).then_some(())?;
                self.cables.extend([(a, b), (b, a)]);
            }
            _ => return None,
        }
        Some(())
    }

    /// May this node reach `destination` from `source` (`None`: not bound yet)? Both are addresses, not places.
    #[must_use]
    pub fn reach(&self, source: Option<Ipv4Addr>, destination: Ipv4Addr) -> Verdict {
        if !self.places.contains_key(&destination) {
            // A place is not an address: nobody gets there past the cables.
            let is_place = self.addresses.contains_key(&destination);
            return if is_place { Verdict::Unreachable } else { Verdict::Outside };
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

    /// Whether an address is one of this node's ports.
    #[must_use]
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.own.contains(&address)
    }

    /// The ports that one of this node's ports is cabled to, by address.
    #[must_use]
    pub fn cabled_to(&self, port: Ipv4Addr) -> Vec<Ipv4Addr> {
        let mut found: Vec<_> = self.cables.iter().filter(|cable| cable.0 == port).map(|cable| cable.1).collect();
        found.sort_unstable();
        found
    }

    /// May this node bind to `address`? Another node's port is out of bounds, and so is every place.
    #[must_use]
    pub fn may_bind(&self, address: Ipv4Addr) -> bool {
        self.own.contains(&address) || !(self.places.contains_key(&address) || self.addresses.contains_key(&address))
    }

    /// Where a port is found; an address that is no port's is its own place.
    #[must_use]
    pub fn place(&self, address: Ipv4Addr) -> Ipv4Addr {
        self.places.get(&address).copied().unwrap_or(address)
    }

    /// What the nodes call a place; one that no port has is its own address.
    #[must_use]
    pub fn address(&self, place: Ipv4Addr) -> Ipv4Addr {
        self.addresses.get(&place).copied().unwrap_or(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A0: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
    const B0: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
    const A1: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 1);
    const C0: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 2);
    const D0: Ipv4Addr = Ipv4Addr::new(10, 9, 2, 1);
    const PLACE_OF_B0: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 2);
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);

    const FILE: &str = "# a has two cables\nport 10.9.0.1 127.9.0.1\nport 10.9.0.2 127.9.0.2\ncable 10.9.0.1 10.9.0.2\n\n\
        port 10.9.1.1 127.9.0.3 # to c\nport 10.9.1.2 127.9.0.4\n cable\t10.9.1.1 10.9.1.2\nport 10.9.2.1 10.9.2.1\n";

    fn node_a() -> Fabric {
        Fabric::parse(FILE, "10.9.0.1, 10.9.1.1").expect("well formed")
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
    fn what_is_sent_to_everyone_goes_to_the_ports_on_the_cable() {
        // given a port with a cable, and one without
        let fabric = node_a();
        assert_eq!(fabric.cabled_to(A0), [B0]);
        assert!(fabric.cabled_to(D0).is_empty());
        // and only the node's own ports are its own
        assert!(fabric.is_own(A0) && fabric.is_own(A1) && !fabric.is_own(B0) && !fabric.is_own(OUTSIDE));
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
    fn a_node_reaches_its_own_ports_and_everything_outside_but_no_place() {
        let fabric = node_a();
        assert_eq!(fabric.reach(Some(A0), A1), Verdict::Cabled);
        assert_eq!(fabric.reach(Some(A0), OUTSIDE), Verdict::Outside);
        assert_eq!(fabric.reach(None, OUTSIDE), Verdict::Outside);
        assert_eq!(fabric.reach(None, PLACE_OF_B0), Verdict::Unreachable);
    }

    #[test]
    fn other_nodes_ports_and_places_cannot_be_bound() {
        let fabric = node_a();
        assert!(fabric.may_bind(A0) && fabric.may_bind(OUTSIDE) && fabric.may_bind(Ipv4Addr::UNSPECIFIED));
        assert!(!fabric.may_bind(B0) && !fabric.may_bind(D0) && !fabric.may_bind(PLACE_OF_B0));
    }

    #[test]
    fn addresses_and_places_lead_to_each_other() {
        let fabric = node_a();
        assert_eq!((fabric.place(B0), fabric.address(PLACE_OF_B0)), (PLACE_OF_B0, B0));
        assert_eq!((fabric.place(D0), fabric.address(D0)), (D0, D0));
        assert_eq!((fabric.place(OUTSIDE), fabric.address(OUTSIDE)), (OUTSIDE, OUTSIDE));
    }

    #[test]
    fn whatever_is_malformed_is_refused() {
        // given lines with a fault each behind two sound ports, then the line is named
        let ports = "port 10.9.0.1 127.9.0.1\nport 10.9.0.2 127.9.0.2\n";
        let faults = [
            "10.9.0.1 10.9.0.2",
            "port 10.9.0.3",
            "port 10.9.0.x 127.9.0.3",
            "port 10.9.0.1 127.9.0.3",
            "port 10.9.0.3 127.9.0.1",
            "cable 10.9.0.1 10.9.0.1",
            "cable 10.9.0.1 10.9.0.3",
            "cable 10.9.0.1 10.9.0.2 10.9.0.1",
        ];
        for fault in faults {
            let error = Fabric::parse(&format!("{ports}{fault}"), "").expect_err(fault);
            assert_eq!(error, FabricError::Line { number: 3, text: fault.to_owned() });
        }
        assert_eq!(Fabric::parse("# nothing\n", "").expect_err("no port"), FabricError::Empty);
        let own = Fabric::parse(ports, "10.9.0").expect_err("no address");
        assert_eq!(own, FabricError::Own { text: "10.9.0".to_owned() });
        let foreign = Fabric::parse(ports, "127.9.0.1").expect_err("a place is not an address");
        assert_eq!(foreign, FabricError::Foreign { address: Ipv4Addr::new(127, 9, 0, 1) });
    }
}
