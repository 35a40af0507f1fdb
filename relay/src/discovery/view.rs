//! The agreed view: which nodes, ports and links there are, from the advertisements that a node holds.
//!
//! Must not know how they came, or how old they are. A pure function of the advertisements and of who asks: all nodes of a connected part
//! that hold the same come to the same view. Runs on the thread of the node's owner.
//!
//! A link counts when both ends advertise it, both ports have carrier, and each lies in the other's subnet. On a switched segment, that is,
//! where all ports of a subnet say so, there may be one between any two of them; elsewhere a port has one. The view is of what the
//! asking node is connected with by such links. What is ambiguous there is a [`Fault`]; its links are left out, its nodes are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use mesh_routing::Subnet;

use super::advert::{Adjacency, Advert, AdvertPort, AgentAt, port_subnet, share};

/// A node of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewNode {
    /// Stable id.
    pub id: String,
    /// Name, for people.
    pub name: String,
    /// Whether traffic of others may pass.
    pub relay: bool,
    /// Whether the agent on the port that all nodes share is a daemon.
    pub daemon: bool,
    /// Its processes of jobs.
    pub agents: Vec<AgentAt>,
    /// What the node can do beyond the protocol's version.
    pub features: u32,
    /// Its ports by address, with and without carrier.
    pub ports: Vec<AdvertPort>,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkEnd {
    /// The port.
    pub address: Ipv4Addr,
    /// Key of its node.
    pub node: u64,
}

/// Something ambiguous, for which links are left out of the view.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Two nodes with one address.
    SameAddress {
        /// The address.
        address: Ipv4Addr,
        /// Names of two of the nodes.
        nodes: [String; 2],
    },
    /// Subnets of two ports of one node overlap: it is not clear by which of them something leaves.
    SubnetTwice {
        /// The node's name.
        node: String,
        /// The ports.
        ports: [Ipv4Addr; 2],
    },
    /// More than two ports in a subnet: it is not clear which of them are cabled.
    ThreeEnds {
        /// The subnet.
        subnet: Subnet,
        /// The lowest three addresses with their nodes' names.
        ports: Vec<(Ipv4Addr, String)>,
    },
    /// Some ports of a subnet are declared to be on a switched segment, others are not.
    HalfSwitched {
        /// The subnet.
        subnet: Subnet,
        /// The lowest address that is, with its node's name.
        switched: (Ipv4Addr, String),
        /// The lowest that is not.
        cabled: (Ipv4Addr, String),
    },
    /// Two nodes with one name. Their links stay: names are for people.
    SameName {
        /// The name.
        name: String,
        /// The ids of two of the nodes.
        ids: [String; 2],
    },
    /// A node says that another one uses its id.
    SameId {
        /// The id.
        id: String,
    },
}

/// What there is. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct View {
    /// Nodes by key.
    pub nodes: BTreeMap<u64, ViewNode>,
    /// Links, each with its lower address first.
    pub links: BTreeSet<[LinkEnd; 2]>,
    /// What is ambiguous.
    pub faults: BTreeSet<Fault>,
}

/// A port on its way through the checks.
struct Seen<'a> {
    address: Ipv4Addr,
    subnet: Subnet,
    node: u64,
    name: &'a str,
    switched: bool,
}

impl View {
    /// The view of node `own` from all advertisements that it holds.
    pub fn of<'a>(own: u64, adverts: impl Iterator<Item = (u64, &'a Advert)>) -> Self {
        let all: BTreeMap<u64, &Advert> = adverts.collect();
        let candidates = candidates(&all);
        let members = members(own, &all, &candidates);
        let mut faults = BTreeSet::new();
        for advert in all.values().filter(|advert| advert.conflict) {
            faults.insert(Fault::SameId { id: advert.id.clone() });
        }
        let here: Vec<(u64, &Advert)> = members.iter().filter_map(|key| Some((*key, *all.get(key)?))).collect();
        same_names(&here, &mut faults);
        let ambiguous = ambiguous_ports(&here, &mut faults);
        let sound = |end: &LinkEnd| members.contains(&end.node) && !ambiguous.contains(end);
        let links = candidates.into_iter().filter(|ends| ends.iter().all(sound)).collect();
        let nodes = here.into_iter().map(|(key, advert)| (key, ViewNode::of(advert))).collect();
        Self { nodes, links, faults }
    }
}

impl ViewNode {
    fn of(advert: &Advert) -> Self {
        let Advert { id, name, relay, daemon, features, ports, agents, .. } = advert;
        Self {
            id: id.clone(),
            name: name.clone(),
            relay: *relay,
            daemon: *daemon,
            agents: agents.clone(),
            features: *features,
            ports: ports.clone(),
        }
    }
}

/// Links that both ends advertise, between ports that have carrier and share a subnet.
fn candidates(all: &BTreeMap<u64, &Advert>) -> Vec<[LinkEnd; 2]> {
    let port = |advert: &Advert, address: Ipv4Addr| {
        let port = advert.ports.iter().find(|port| port.up && port.address == address)?;
        Some((address, port_subnet(address, port.prefix)?))
    };
    let mut found = Vec::new();
    for (&key, advert) in all {
        for adjacency in advert.adjacencies.iter().filter(|a| a.local < a.remote && a.node != key && !advert.conflict) {
            let Some(other) = all.get(&adjacency.node).filter(|other| !other.conflict) else { continue };
            let back = Adjacency { local: adjacency.remote, node: key, remote: adjacency.local };
            let ports = (port(advert, adjacency.local), port(other, adjacency.remote));
            if let (true, (Some(a), Some(b))) = (other.adjacencies.contains(&back), ports)
                && share(a, b)
            {
                let ends = [(adjacency.local, key), (adjacency.remote, adjacency.node)];
                found.push(ends.map(|(address, node)| LinkEnd { address, node }));
            }
        }
    }
    found
}

/// The nodes that `own` is connected with, itself included.
fn members(own: u64, all: &BTreeMap<u64, &Advert>, links: &[[LinkEnd; 2]]) -> BTreeSet<u64> {
    let mut next: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for [a, b] in links {
        next.entry(a.node).or_default().push(b.node);
        next.entry(b.node).or_default().push(a.node);
    }
    let mut members: BTreeSet<u64> = all.contains_key(&own).then_some(own).into_iter().collect();
    let mut open = vec![own];
    while let Some(node) = open.pop() {
        open.extend(next.get(&node).into_iter().flatten().copied().filter(|other| members.insert(*other)));
    }
    members
}

fn same_names(here: &[(u64, &Advert)], faults: &mut BTreeSet<Fault>) {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (_, advert) in here {
        if let Some(other) = names.insert(&advert.name, &advert.id) {
            let (name, mut ids) = (advert.name.clone(), [other.to_owned(), advert.id.clone()]);
            ids.sort();
            faults.insert(Fault::SameName { name, ids });
        }
    }
}

/// Ports of which it is not clear what they are cabled to.
fn ambiguous_ports(here: &[(u64, &Advert)], faults: &mut BTreeSet<Fault>) -> BTreeSet<LinkEnd> {
    let mut ambiguous = BTreeSet::new();
    let mut ports: Vec<Seen<'_>> = Vec::new();
    for (node, advert) in here {
        let own = ports.len();
        ports.extend(advert.ports.iter().filter_map(|port| {
            let subnet = port_subnet(port.address, port.prefix)?;
            Some(Seen { address: port.address, subnet, node: *node, name: &advert.name, switched: port.switched })
        }));
        for (at, one) in ports[own..].iter().enumerate() {
            for two in ports[own + at + 1..].iter().filter(|two| two.subnet.overlaps(one.subnet)) {
                faults.insert(Fault::SubnetTwice { node: advert.name.clone(), ports: [one.address, two.address] });
                ambiguous.extend([one.end(), two.end()]);
            }
        }
    }
    ports.sort_by_key(Seen::end);
    for pair in ports.windows(2).filter(|pair| pair[0].address == pair[1].address) {
        let nodes = [pair[0].name.to_owned(), pair[1].name.to_owned()];
        faults.insert(Fault::SameAddress { address: pair[0].address, nodes });
        ambiguous.extend([pair[0].end(), pair[1].end()]);
    }
    crowds(&ports, faults, &mut ambiguous);
    ambiguous
}

/// Subnets with more ports than a cable has ends, unless all say that it is one switched segment. `ports` are in order.
fn crowds(ports: &[Seen<'_>], faults: &mut BTreeSet<Fault>, ambiguous: &mut BTreeSet<LinkEnd>) {
    let mut crowds: BTreeMap<Subnet, BTreeMap<Ipv4Addr, &Seen<'_>>> = BTreeMap::new();
    for port in ports {
        let from = ports.partition_point(|other| other.address < port.subnet.network());
        let inside = ports[from..].iter().take_while(|other| other.address <= port.subnet.broadcast());
        let others = || {
            inside.clone().filter(|other| {
                other.node != port.node && share((port.address, port.subnet), (other.address, other.subnet))
            })
        };
        let Some(first) = others().next() else { continue };
        let Some(second) = others().find(|other| other.address != first.address) else { continue };
        let differs = |other: &&Seen<'_>| (other.switched, other.subnet) != (true, port.subnet);
        let odd = others().find(differs);
        if !port.switched || odd.is_some() {
            ambiguous.insert(port.end());
            let crowd = crowds.entry(port.subnet).or_default();
            crowd.extend([port, first, second].into_iter().chain(odd).map(|seen| (seen.address, seen)));
        }
    }
    for (subnet, crowd) in crowds {
        let first = |switched| {
            let seen = crowd.values().find(|seen| seen.switched == switched)?;
            Some((seen.address, seen.name.to_owned()))
        };
        faults.insert(match (first(true), first(false)) {
            (Some(switched), Some(cabled)) => Fault::HalfSwitched { subnet, switched, cabled },
            _ => {
                let ports = crowd.values().take(3).map(|seen| (seen.address, seen.name.to_owned())).collect();
                Fault::ThreeEnds { subnet, ports }
            }
        });
    }
}

impl Fault {
    /// The same without what may become known little by little: two faults with one subject are one fault.
    pub(super) fn subject(&self) -> Self {
        match self.clone() {
            Self::SameAddress { address, .. } => Self::SameAddress { address, nodes: Default::default() },
            Self::ThreeEnds { subnet, .. } => Self::ThreeEnds { subnet, ports: Vec::new() },
            Self::HalfSwitched { subnet, .. } => {
                let nobody = || (Ipv4Addr::UNSPECIFIED, String::new());
                Self::HalfSwitched { subnet, switched: nobody(), cabled: nobody() }
            }
            Self::SameName { name, .. } => Self::SameName { name, ids: Default::default() },
            other => other,
        }
    }
}

impl Seen<'_> {
    fn end(&self) -> LinkEnd {
        LinkEnd { address: self.address, node: self.node }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameAddress { address, nodes: [a, b] } => {
                write!(
                    f,
                    "{address} is on both {a} and {b}; their links there are not used; give each port its own address"
                )
            }
            Self::SubnetTwice { node, ports: [a, b] } => write!(
                f,
                "ports {a} and {b} of {node} are in one subnet; their links are not used; give each cable its own subnet"
            ),
            Self::ThreeEnds { subnet, ports } => {
                let ports: Vec<_> = ports.iter().map(|(address, node)| format!("{address} of {node}")).collect();
                let ports = ports.join(", ");
                write!(
                    f,
                    "{subnet} is on more than two ports ({ports}); its links are not used; give each cable its own subnet, \
                     leave out what is no cable (NCCL_MESH_PORTS), or declare a switch (NCCL_MESH_SWITCHES)"
                )
            }
            Self::HalfSwitched { subnet, switched: (a, of), cabled: (b, on) } => write!(
                f,
                "{subnet} is declared to be switched at {a} of {of}, and not at {b} of {on}; its links are not used; declare it on all nodes \
                 ([[switch]] in the topology file, or NCCL_MESH_SWITCHES) or on none"
            ),
            Self::SameName { name, ids: [a, b] } => {
                write!(f, "nodes {a:?} and {b:?} have one name, {name:?}; rename one")
            }
            Self::SameId { id } => {
                write!(f, "two nodes have id {id:?}; neither is used; give each node its own id")
            }
        }
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
