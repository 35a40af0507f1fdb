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

    /// Which of this node's ports has an address, counted from 0.
    #[must_use]
    pub fn own_number(&self, address: Ipv4Addr) -> Option<usize> {
        self.own.iter().position(|port| *port == address)
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
#[path = "rules_tests.rs"]
mod tests;
