//! One difference between a declared topology and a found one: the facts, and a line for people. Any thread.

use crate::file::speed_text;
use crate::{Node, Port, Subnet};
use std::fmt;
use std::net::Ipv4Addr;

/// A port, as people are told of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortAt {
    /// Name of its node.
    pub node: String,
    /// Its device; may be empty.
    pub device: String,
    /// Its address.
    pub address: Ipv4Addr,
}

/// How bad a difference is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Nothing that is declared is lacking.
    Note,
    /// All that is declared is there, and slower than declared.
    Slower,
    /// Something that is declared cannot be used.
    Fault,
}

/// One way in which what is found is not what is declared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Difference {
    /// A declared node that is not found; nothing is said of its ports and cables.
    MissingNode {
        /// Its name.
        node: String,
        /// Its stable id.
        id: String,
    },
    /// A node that is not declared.
    ExtraNode {
        /// Its name.
        node: String,
        /// Its stable id.
        id: String,
    },
    /// A node with a declared id and another name.
    RenamedNode {
        /// The id.
        id: String,
        /// The declared name.
        declared: String,
        /// The name it has.
        found: String,
    },
    /// A node that relays and should not, or the reverse.
    RelayDiffers {
        /// Its name.
        node: String,
        /// Whether it should.
        declared: bool,
    },
    /// A declared address that nobody has; nothing is said of its cables.
    MissingPort {
        /// The declared port.
        port: PortAt,
        /// Its prefix length.
        prefix: u8,
    },
    /// An address of a declared node that is not declared.
    PortNotDeclared {
        /// The found port.
        port: PortAt,
        /// Its prefix length.
        prefix: u8,
    },
    /// A declared address that another node has.
    AddressOnAnotherNode {
        /// Where it should be.
        declared: PortAt,
        /// Where it is.
        found: PortAt,
    },
    /// An address with another prefix length.
    WrongPrefix {
        /// The port.
        port: PortAt,
        /// As declared.
        declared: u8,
        /// As found.
        found: u8,
    },
    /// A port that is slower than declared.
    LowerSpeed {
        /// The port.
        port: PortAt,
        /// As declared, in Mbit/s.
        declared_mbps: u32,
        /// As found, in Mbit/s.
        found_mbps: u32,
    },
    /// A port whose MTU is smaller than declared.
    SmallerMtu {
        /// The port.
        port: PortAt,
        /// As declared, in bytes.
        declared: u32,
        /// As found, in bytes.
        found: u32,
    },
    /// Two ports that are where they should be and are not joined.
    MissingCable {
        /// The ports, the lower address first.
        ends: [PortAt; 2],
    },
    /// A port that is joined with no other port of its switched segment.
    OffSwitch {
        /// The port.
        port: PortAt,
        /// The segment.
        subnet: Subnet,
    },
    /// A cable of which one end is in another port than declared.
    CableInAnotherPort {
        /// The ports that it should join.
        declared: [PortAt; 2],
        /// The ports that it joins; one of them is among the declared.
        found: [PortAt; 2],
    },
    /// Two declared ports that are joined and should not be.
    ExtraCable {
        /// The ports, the lower address first.
        ends: [PortAt; 2],
    },
}

impl PortAt {
    pub(super) fn of(node: &Node, port: &Port) -> Self {
        Self { node: node.name.clone(), device: port.device.clone(), address: port.address }
    }

    /// `f0 (10.0.0.1)`, without the node.
    fn label(&self) -> String {
        if self.device.is_empty() { self.address.to_string() } else { format!("{} ({})", self.device, self.address) }
    }
}

impl Severity {
    /// Its name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Slower => "slower",
            Self::Fault => "fault",
        }
    }
}

impl Difference {
    /// What kind it is, as in JSON; stays the same from release to release.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::MissingNode { .. } => "missing-node",
            Self::ExtraNode { .. } => "extra-node",
            Self::RenamedNode { .. } => "renamed-node",
            Self::RelayDiffers { .. } => "relay-differs",
            Self::MissingPort { .. } => "missing-port",
            Self::PortNotDeclared { .. } => "port-not-declared",
            Self::AddressOnAnotherNode { .. } => "address-on-another-node",
            Self::WrongPrefix { .. } => "wrong-prefix",
            Self::LowerSpeed { .. } => "lower-speed",
            Self::SmallerMtu { .. } => "smaller-mtu",
            Self::MissingCable { .. } => "missing-cable",
            Self::OffSwitch { .. } => "off-switch",
            Self::CableInAnotherPort { .. } => "cable-in-another-port",
            Self::ExtraCable { .. } => "extra-cable",
        }
    }

    /// How bad it is.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::ExtraNode { .. }
            | Self::RenamedNode { .. }
            | Self::PortNotDeclared { .. }
            | Self::ExtraCable { .. } => Severity::Note,
            Self::LowerSpeed { .. } | Self::SmallerMtu { .. } => Severity::Slower,
            _ => Severity::Fault,
        }
    }
}

impl fmt::Display for PortAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.node, self.label())
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingNode { node, id } => {
                let id = if node == id { String::new() } else { format!(" (id {id:?})") };
                write!(f, "node {node:?}{id} is declared and not found; start it, cable it, or take it out of the file")
            }
            Self::ExtraNode { node, id } => {
                let id = if node == id { String::new() } else { format!(" (id {id:?})") };
                write!(f, "node {node:?}{id} is found and not declared; add it to the file, or take its cable out")
            }
            Self::RenamedNode { id, declared, found } => {
                write!(f, "node {declared:?} calls itself {found:?} (id {id:?}); correct its name there or in the file")
            }
            Self::RelayDiffers { node, declared: true } => {
                write!(f, "node {node:?} should relay and does not; let it relay, or write relay = false in the file")
            }
            Self::RelayDiffers { node, declared: false } => {
                write!(f, "node {node:?} relays and should not; forbid it there, or take relay = false out of the file")
            }
            Self::MissingPort { port, prefix } => write!(
                f,
                "node {:?} has no address {}/{prefix}, declared on {}; configure it there, or correct the file",
                port.node,
                port.address,
                device(&port.device)
            ),
            Self::PortNotDeclared { port, prefix } => write!(
                f,
                "node {:?} has {}/{prefix} on {}, which is not declared; add the port to the file, or remove the address",
                port.node,
                port.address,
                device(&port.device)
            ),
            Self::AddressOnAnotherNode { declared, found } => write!(
                f,
                "{} is on node {:?}, {}, and declared on node {:?}, {}; swap the addresses, or correct the file",
                declared.address,
                found.node,
                device(&found.device),
                declared.node,
                device(&declared.device)
            ),
            Self::WrongPrefix { port, declared, found } => write!(
                f,
                "node {:?}, {}: prefix length {found}, declared {declared}; set {}/{declared} there, or correct the file",
                port.node,
                port.label(),
                port.address
            ),
            Self::LowerSpeed { port, declared_mbps, found_mbps } => write!(
                f,
                "node {:?}, {}: runs at {}, declared {}; look at cable, firmware and PCIe lanes, or correct the file",
                port.node,
                port.label(),
                speed_text(*found_mbps),
                speed_text(*declared_mbps)
            ),
            Self::SmallerMtu { port, declared, found } => write!(
                f,
                "node {:?}, {}: MTU {found}, declared {declared}; set it with ip link set, or correct the file",
                port.node,
                port.label()
            ),
            Self::MissingCable { ends: [a, b] } => {
                write!(f, "no cable joins {a} and {b}; plug it in at both ends, or correct the file")
            }
            Self::OffSwitch { port, subnet } => write!(
                f,
                "node {:?}, {} reaches no other port of the switched segment {subnet}; plug its cable into the switch",
                port.node,
                port.label()
            ),
            Self::CableInAnotherPort { declared: [a, b], found: [c, d] } => {
                write!(f, "a cable joins {c} and {d}, declared {a} and {b}; move its end, or correct the file")
            }
            Self::ExtraCable { ends: [a, b] } => {
                write!(f, "a cable joins {a} and {b}, which is not declared; take it out, or correct the file")
            }
        }
    }
}

/// A device, or words for one without a name.
fn device(name: &str) -> &str {
    if name.is_empty() { "a port without a name" } else { name }
}
