//! What happens to a node in discovery, as facts: logs, counters and traces are made of these.
//!
//! Must not know who reads them. Plain data with one line of text each.

use std::fmt;
use std::net::Ipv4Addr;

use super::bytes::WireError;
use super::view::Fault;

/// Why a neighbour is none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Down {
    /// Our port lost its carrier or is gone.
    Port,
    /// Nothing was heard for too long.
    Silent,
    /// It says that it does not hear us, or others beside us.
    OneWay,
    /// It has started anew.
    Restarted,
    /// Another neighbour is heard on the same link.
    ThreeEnds,
    /// Another node is heard with its address.
    AddressTwice,
    /// Another node with the same id is heard.
    SameId,
    /// A cable has come, and needs its place among what can be advertised.
    NoRoom,
}

/// Why a port is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unusable {
    /// No port may have this address and prefix length.
    Address,
    /// Another port of this node has the address.
    Taken,
    /// The node has more ports than can be advertised.
    TooMany {
        /// How many can.
        limit: usize,
    },
}

/// Something that happened. Faults of others are said once while they last, not once a datagram.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A neighbour hears us and is heard.
    NeighbourUp {
        /// Our port.
        local: Ipv4Addr,
        /// The neighbour's name.
        node: String,
        /// Its port.
        remote: Ipv4Addr,
    },
    /// A neighbour is none any more.
    NeighbourDown {
        /// Our port.
        local: Ipv4Addr,
        /// The neighbour's name.
        node: String,
        /// Its port.
        remote: Ipv4Addr,
        /// Why.
        why: Down,
    },
    /// A port of ours cannot be used.
    PortUnusable {
        /// Its address.
        address: Ipv4Addr,
        /// Its prefix length.
        prefix: u8,
        /// Why.
        why: Unusable,
    },
    /// A datagram that cannot be read.
    Unreadable {
        /// Our port.
        local: Ipv4Addr,
        /// From where.
        from: Ipv4Addr,
        /// Why.
        why: WireError,
    },
    /// A beacon says another address than it came from.
    OtherSource {
        /// Our port.
        local: Ipv4Addr,
        /// From where it came.
        from: Ipv4Addr,
        /// The address that it says.
        says: Ipv4Addr,
        /// The name that it says.
        node: String,
    },
    /// A beacon from outside the port's subnet, or to whose subnet our port does not belong.
    OutsideSubnet {
        /// Our port.
        local: Ipv4Addr,
        /// Its prefix length.
        prefix: u8,
        /// The sender's port.
        remote: Ipv4Addr,
        /// The sender's prefix length.
        remote_prefix: u8,
        /// The sender's name.
        node: String,
    },
    /// Our own beacon came back: a cable joins two ports of this node, or the port hears itself.
    LoopedBack {
        /// The port that heard it.
        local: Ipv4Addr,
        /// The port that had sent it.
        from: Ipv4Addr,
    },
    /// Another node uses an address of ours.
    AddressTaken {
        /// The port that heard it.
        local: Ipv4Addr,
        /// The address.
        address: Ipv4Addr,
        /// The other node's name.
        node: String,
    },
    /// Two nodes with one id, one of them heard on this port.
    SameId {
        /// The port that heard it.
        local: Ipv4Addr,
        /// The sender's port.
        remote: Ipv4Addr,
        /// The id.
        id: String,
        /// The sender's name.
        node: String,
        /// The name of the other node.
        other: String,
    },
    /// More than one neighbour on a link.
    ThreeEnds {
        /// Our port.
        local: Ipv4Addr,
        /// A neighbour's port, and its name.
        one: (Ipv4Addr, String),
        /// Another's.
        two: (Ipv4Addr, String),
    },
    /// Two nodes with one address on a switched segment.
    AddressTwice {
        /// Our port.
        local: Ipv4Addr,
        /// Their address.
        address: Ipv4Addr,
        /// The name of one.
        one: String,
        /// The name of the other.
        two: String,
    },
    /// More neighbours on switched segments than can be advertised.
    NoRoom {
        /// Our port.
        local: Ipv4Addr,
        /// The port of one that is left out.
        remote: Ipv4Addr,
        /// Its name.
        node: String,
        /// How many can be advertised.
        limit: usize,
    },
    /// An advertisement that does not fit into the memory allowed.
    DatabaseFull {
        /// Nodes allowed.
        limit: usize,
        /// Key of a node that was not taken.
        node: u64,
    },
    /// An advertisement of an earlier life of this node was about, newer than ours; ours now replaces it.
    Outbid {
        /// Its incarnation.
        incarnation: u64,
    },
    /// Somewhere another node that is alive uses our id. Neither is used until one has another id.
    IdInUse {
        /// The id.
        id: String,
    },
    /// No other node has spoken with our id for a while.
    IdFree {
        /// The id.
        id: String,
    },
    /// The driver's clock leapt; nobody is declared dead for it.
    ClockLeapt {
        /// By how many milliseconds; negative: back.
        ms: i64,
    },
    /// The agreed view leaves something out.
    Fault(Fault),
    /// It does so no longer.
    FaultOver(Fault),
}

impl Event {
    /// The same without what a sender may say differently in each datagram: two faults with one subject are one fault.
    pub(super) fn subject(&self) -> Self {
        let (mut subject, nobody) = (self.clone(), (Ipv4Addr::UNSPECIFIED, String::new()));
        match &mut subject {
            Self::Unreadable { why, .. } => *why = WireError::Short,
            Self::OtherSource { says, node, .. } => (*says, *node) = nobody,
            Self::OutsideSubnet { remote_prefix, node, .. } => (*remote_prefix, *node) = (0, String::new()),
            Self::AddressTaken { node, .. } => node.clear(),
            Self::SameId { id, node, other, .. } => [id, node, other].into_iter().for_each(String::clear),
            Self::ThreeEnds { one, two, .. } => (*one, *two) = (nobody.clone(), nobody),
            Self::AddressTwice { one, two, .. } => [one, two].into_iter().for_each(String::clear),
            Self::NoRoom { remote, node, .. } => (*remote, *node) = nobody,
            Self::DatabaseFull { node, .. } => *node = 0,
            Self::ClockLeapt { ms } => *ms = 0,
            _ => {}
        }
        subject
    }
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Port => "the port is down",
            Self::Silent => "nothing was heard from it",
            Self::OneWay => "it does not take this node for its neighbour",
            Self::Restarted => "it has started anew",
            Self::ThreeEnds => "another node is heard on the same link",
            Self::AddressTwice => "another node is heard with its address",
            Self::SameId => "two nodes have its id",
            Self::NoRoom => "a cable needs its place among the neighbours that can be advertised",
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeighbourUp { local, node, remote } => write!(f, "{local}: neighbour {node} at {remote}"),
            Self::NeighbourDown { local, node, remote, why } => {
                write!(f, "{local}: neighbour {node} at {remote} is gone: {why}")
            }
            Self::PortUnusable { address, prefix, why } => match why {
                Unusable::Address => {
                    write!(f, "{address}/{prefix} is no address of a port; use a host address, /1 to /31")
                }
                Unusable::Taken => write!(f, "{address} is on two ports of this node; give each its own"),
                Unusable::TooMany { limit } => write!(f, "{address} is left out: {limit} ports can be advertised"),
            },
            Self::Unreadable { local, from, why } => write!(f, "{local}: datagram from {from} refused: {why}"),
            Self::OtherSource { local, from, says, node } => {
                write!(f, "{local}: beacon of {node} came from {from} but says {says}")
            }
            Self::OutsideSubnet { local, prefix, remote, remote_prefix, node } => write!(
                f,
                "{local}/{prefix}: {node} at {remote}/{remote_prefix} is on this link, but not both lie in the other's subnet; \
                 correct an address or a prefix length, or the cable is in the wrong port"
            ),
            Self::LoopedBack { local, from } => write!(f, "{local}: hears this node's own beacon from {from}"),
            Self::AddressTaken { local, address, node } => {
                write!(f, "{local}: {node} uses {address}, which is this node's; give each port its own address")
            }
            Self::SameId { local, remote, id, node, other } => {
                write!(f, "{local}: {node} at {remote} has id {id:?}, and so has {other}; give each node its own id")
            }
            Self::ThreeEnds { local, one, two } => write!(
                f,
                "{local}: both {} at {} and {} at {} are on this link; a cable has two ends (a switch is to be declared: [[switch]] in the \
                 topology file, or NCCL_MESH_SWITCHES)",
                one.1, one.0, two.1, two.0
            ),
            Self::AddressTwice { local, address, one, two } => {
                write!(
                    f,
                    "{local}: both {one} and {two} use {address}; neither is used; give each port its own address"
                )
            }
            Self::NoRoom { local, remote, node, limit } => write!(
                f,
                "{local}: {node} at {remote} is no neighbour, and others may not be: a node can advertise {limit}, one a cable and the rest on \
                 switched segments; it is reached over others"
            ),
            Self::DatabaseFull { limit, node } => {
                write!(f, "node {node:016x} is left out: more than {limit} nodes advertise themselves")
            }
            Self::Outbid { incarnation } => {
                write!(
                    f,
                    "this node's advertisement of an earlier life (incarnation {incarnation}) was about and is replaced"
                )
            }
            Self::IdInUse { id } => write!(f, "another node uses this node's id {id:?}; give each node its own id"),
            Self::IdFree { id } => write!(f, "no other node uses this node's id {id:?} any more"),
            Self::ClockLeapt { ms } => write!(f, "the clock leapt by {ms} ms"),
            Self::Fault(fault) => fault.fmt(f),
            Self::FaultOver(fault) => write!(f, "no longer: {fault}"),
        }
    }
}
