//! Who may talk to whom, and where: the cables of a fabric as one node sees them.
//!
//! A port has an address, by which the nodes know it, and a place, the loopback address of this machine at which it is found.
//!
//! Pure: no sockets, no environment. Any thread may ask, an answer costs one or two look-ups.

use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;

use crate::cuts::Cuts;

/// The cables of a fabric and the ports of the node that asks.
#[derive(Debug)]
pub struct Fabric {
    /// Both directions of every cable, with its number in the file.
    cables: HashMap<(Ipv4Addr, Ipv4Addr), usize>,
    /// Which of them are cut.
    cuts: Cuts,
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
    /// What could lead to the destination is cut.
    Cut,
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
        let mut fabric = Self { cables: HashMap::new(), cuts: Cuts::default(), places, addresses, own: Vec::new() };
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
                let number = self.cables();
                let fresh = self.cables.insert((a, b), number).is_none();
                (known && a != b && fresh).then_some(())?;
                self.cables.insert((b, a), number);
            }
            _ => return None,
        }
        Some(())
    }

    /// How many cables there are.
    #[must_use]
    pub fn cables(&self) -> usize {
        self.cables.len() / 2
    }

    /// The same fabric, whose cables are cut where `cuts` says so.
    #[must_use]
    pub fn with_cuts(self, cuts: Cuts) -> Self {
        Self { cuts, ..self }
    }

    /// Whether the cable between two ports is cut; `None`: there is none.
    fn is_cut(&self, a: Ipv4Addr, b: Ipv4Addr) -> Option<bool> {
        self.cables.get(&(a, b)).map(|number| self.cuts.is_cut(*number))
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
            Some(source) => match self.is_cut(source, destination) {
                Some(false) => Verdict::Cabled,
                Some(true) => Verdict::Cut,
                None => Verdict::NotCabled,
            },
            None if to_itself => Verdict::From(destination),
            None => {
                let ways = || self.own.iter().filter_map(|port| Some((*port, self.is_cut(*port, destination)?)));
                match ways().find(|(_, cut)| !cut) {
                    Some((port, _)) => Verdict::From(port),
                    None if ways().next().is_some() => Verdict::Cut,
                    None => Verdict::Unreachable,
                }
            }
        }
    }

    /// Whether an address is one of this node's ports.
    #[must_use]
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.own.contains(&address)
    }

    /// The ports that one of this node's ports is cabled to now, by address.
    #[must_use]
    pub fn cabled_to(&self, port: Ipv4Addr) -> Vec<Ipv4Addr> {
        let whole = |(ends, number): (&(Ipv4Addr, Ipv4Addr), &usize)| {
            (ends.0 == port && !self.cuts.is_cut(*number)).then_some(ends.1)
        };
        let mut found: Vec<_> = self.cables.iter().filter_map(whole).collect();
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
    use std::sync::atomic::{AtomicU8, Ordering};

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
    fn a_cable_that_is_cut_leads_nowhere_until_it_is_mended() {
        // given a's cables to b and c, of which the first is cut
        static BYTES: [AtomicU8; 2] = [AtomicU8::new(1), AtomicU8::new(0)];
        let fabric = node_a().with_cuts(Cuts::new(&BYTES));
        assert_eq!(fabric.cables(), 2);
        // then nothing gets to b, wherever it comes from, and c is as near as ever
        assert_eq!((fabric.reach(Some(A0), B0), fabric.reach(None, B0)), (Verdict::Cut, Verdict::Cut));
        assert_eq!((fabric.reach(Some(A1), B0), fabric.reach(None, C0)), (Verdict::NotCabled, Verdict::From(A1)));
        assert!(fabric.cabled_to(A0).is_empty());
        assert_eq!(fabric.cabled_to(A1), [C0]);
        // when it is mended, then all is as before
        BYTES[0].store(0, Ordering::Relaxed);
        assert_eq!((fabric.reach(Some(A0), B0), fabric.reach(None, B0)), (Verdict::Cabled, Verdict::From(A0)));
        assert_eq!(fabric.cabled_to(A0), [B0]);
    }

    #[test]
    fn an_unbound_source_goes_by_the_cable_that_is_whole() {
        // given a node with two ports on one switch, one of them cut off from it
        static BYTES: [AtomicU8; 2] = [AtomicU8::new(1), AtomicU8::new(0)];
        let ports = "port 10.9.0.1 127.9.0.1\nport 10.9.0.2 127.9.0.2\nport 10.9.0.3 127.9.0.3\n";
        let file = format!("{ports}cable 10.9.0.1 10.9.0.3\ncable 10.9.0.2 10.9.0.3\n");
        let fabric = Fabric::parse(&file, "10.9.0.1,10.9.0.2").expect("well formed").with_cuts(Cuts::new(&BYTES));
        // then the other is the source
        assert_eq!(fabric.reach(None, Ipv4Addr::new(10, 9, 0, 3)), Verdict::From(B0));
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
        let twice = format!("{ports}cable 10.9.0.1 10.9.0.2\ncable 10.9.0.2 10.9.0.1\n");
        let error = Fabric::parse(&twice, "").expect_err("said twice");
        assert_eq!(error, FabricError::Line { number: 4, text: "cable 10.9.0.2 10.9.0.1".to_owned() });
        assert_eq!(Fabric::parse("# nothing\n", "").expect_err("no port"), FabricError::Empty);
        let own = Fabric::parse(ports, "10.9.0").expect_err("no address");
        assert_eq!(own, FabricError::Own { text: "10.9.0".to_owned() });
        let foreign = Fabric::parse(ports, "127.9.0.1").expect_err("a place is not an address");
        assert_eq!(foreign, FabricError::Foreign { address: Ipv4Addr::new(127, 9, 0, 1) });
    }
}
