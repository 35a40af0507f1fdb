//! Checks descriptions of nodes and collects everything that is wrong with them.

use crate::derive::{build, usable_address};
use crate::pins;
use crate::{NodeId, NodeSpec, Policy, PortSpec, Problem, ProblemCode, Subnet, Topology};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// Where in a file the described things were found; by default nowhere.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Line of each node.
    pub(crate) nodes: Vec<Option<usize>>,
    /// For each node, for each port that could be read: its index in the file, and its line.
    pub(crate) ports: Vec<Vec<(usize, Option<usize>)>>,
    /// Line of each switch.
    pub(crate) switches: Vec<Option<usize>>,
    /// For each pinned route that could be read: its index in the file, and its line.
    pub(crate) routes: Vec<(usize, Option<usize>)>,
    /// Whether something could not be read, so that what seems to be missing may be there.
    pub(crate) incomplete: bool,
}

impl Places {
    fn node(&self, node: usize) -> Option<usize> {
        self.nodes.get(node).copied().flatten()
    }

    fn port(&self, node: usize, port: usize) -> (usize, Option<usize>) {
        self.ports.get(node).and_then(|ports| ports.get(port)).copied().unwrap_or((port, None))
    }
}

/// One port on its way through the checks.
struct Seen<'a> {
    node: usize,
    port: usize,
    spec: &'a PortSpec,
}

/// Everything that is wrong with these descriptions.
pub(crate) fn check(nodes: &[NodeSpec], switches: &[Subnet], policy: &Policy, places: &Places) -> Vec<Problem> {
    let mut problems = Vec::new();
    if nodes.is_empty() || nodes.len() > Topology::MAX_NODES {
        let found = nodes.len();
        let message = format!("{found} nodes; a topology has 1 to {}", Topology::MAX_NODES);
        problems.push(Problem::new(ProblemCode::NodeCount, "", "node", message));
        if found > 0 {
            return problems;
        }
    }
    check_names(nodes, places, &mut problems);
    let subnets = check_ports(nodes, places, &mut problems);
    check_subnets(nodes, switches, &subnets, places, &mut problems);
    check_switches(switches, &subnets, places, &mut problems);
    // A port or switch at fault may be why nodes seem to be apart: then that is the story. Names are not.
    let named = [ProblemCode::DuplicateName, ProblemCode::DuplicateId, ProblemCode::BadValue];
    let sound = !places.incomplete && problems.iter().all(|problem| named.contains(&problem.code));
    let cabling = sound.then(|| build(nodes.to_vec(), switches.to_vec(), Policy::default()));
    if let Some(cabling) = &cabling {
        check_connected(cabling, places, &mut problems);
    }
    problems.extend(pins::check(nodes, cabling.as_ref(), policy, places));
    problems
}

fn check_names(nodes: &[NodeSpec], places: &Places, problems: &mut Vec<Problem>) {
    let mut names: HashMap<&str, usize> = HashMap::new();
    let mut ids: HashMap<&str, usize> = HashMap::new();
    let mut keys: HashMap<u64, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let mut problem = |code, field: &str, message: String| {
            problems.push(Problem::new(code, &node.name, field, message).at_line(places.node(index)));
        };
        for (field, value) in [("name", node.name.as_str()), ("id", node.stable_id())] {
            if value.is_empty() || value.len() > 64 || value.chars().any(|c| c.is_control() || c == ',') {
                let message =
                    format!("{value:?} is no {field}; use 1 to 64 bytes without commas or control characters");
                problem(ProblemCode::BadValue, field, message);
                break;
            }
        }
        if let Some(&first) = names.get(node.name.as_str()) {
            let message = format!("the name is taken by the {} node; give each node its own", ordinal(first));
            problem(ProblemCode::DuplicateName, "name", message);
            // The id defaults to the name: the same fault is not told twice.
            if node.stable_id() == node.name {
                continue;
            }
        }
        names.entry(&node.name).or_insert(index);
        if let Some(&first) = ids.get(node.stable_id()) {
            let message =
                format!("id {:?} is taken by node {:?}; give each node its own", node.stable_id(), nodes[first].name);
            problem(ProblemCode::DuplicateId, "id", message);
        } else if let Some(&first) = keys.get(&node.key()) {
            let (id, other) = (node.stable_id(), nodes[first].stable_id());
            problem(
                ProblemCode::DuplicateId,
                "id",
                format!("ids {id:?} and {other:?} hash to one key; change one of them"),
            );
        } else {
            ids.insert(node.stable_id(), index);
            keys.insert(node.key(), index);
        }
    }
}

/// Checks each port by itself and against the addresses of the others; sorts the sound ones by subnet.
fn check_ports<'a>(
    nodes: &'a [NodeSpec],
    places: &Places,
    problems: &mut Vec<Problem>,
) -> BTreeMap<Subnet, Vec<Seen<'a>>> {
    let mut owners: HashMap<Ipv4Addr, usize> = HashMap::new();
    let mut subnets: BTreeMap<Subnet, Vec<Seen<'a>>> = BTreeMap::new();
    for (node, described) in nodes.iter().enumerate() {
        for (port, spec) in described.ports.iter().enumerate() {
            let (index, line) = places.port(node, port);
            let mut problem = |code, field: &str, message: String| {
                let field = format!("port[{index}].{field}");
                problems.push(Problem::new(code, &described.name, &field, message).at_line(line));
            };
            let (address, prefix) = (spec.address, spec.prefix);
            if !usable_address(address) {
                problem(ProblemCode::BadAddress, "address", format!("{address} is no address that a port may have"));
                continue;
            }
            let Some(subnet) = Subnet::of(address, prefix) else {
                let message = format!("prefix length {prefix} of {address} is out of range; use 1 to 31");
                problem(ProblemCode::BadPrefix, "address", message);
                continue;
            };
            if !subnet.is_host(address) {
                let which = if address == subnet.network() { "network" } else { "broadcast" };
                let message = format!("{address} is the {which} address of {subnet}; use one in between");
                problem(ProblemCode::NotAHost, "address", message);
                continue;
            }
            if let Some(&owner) = owners.get(&address) {
                let message =
                    format!("{address} is also on node {:?}; give each port its own address", nodes[owner].name);
                problem(ProblemCode::DuplicateAddress, "address", message);
                continue;
            }
            owners.insert(address, node);
            subnets.entry(subnet).or_default().push(Seen { node, port, spec });
        }
    }
    subnets
}

fn check_subnets(
    nodes: &[NodeSpec],
    switches: &[Subnet],
    subnets: &BTreeMap<Subnet, Vec<Seen<'_>>>,
    places: &Places,
    problems: &mut Vec<Problem>,
) {
    let mut problem = |code, seen: &Seen<'_>, message: String| {
        let (index, line) = places.port(seen.node, seen.port);
        let field = format!("port[{index}].address");
        problems.push(Problem::new(code, &nodes[seen.node].name, &field, message).at_line(line));
    };
    // Ordered by network, so a subnet can only lie inside one of those still open before it.
    let mut open: Vec<(Subnet, &Seen<'_>)> = Vec::new();
    for (&subnet, ports) in subnets {
        open.retain(|(outer, _)| outer.overlaps(subnet));
        if let Some((outer, seen)) = open.last() {
            let other = &nodes[seen.node].name;
            let message = format!(
                "{subnet} overlaps {outer} of node {other:?}; give both ends one prefix length, or other subnets"
            );
            problem(ProblemCode::SubnetOverlap, &ports[0], message);
        }
        open.push((subnet, &ports[0]));
        let mut on_node: HashMap<usize, &Seen<'_>> = HashMap::new();
        let mut twice = false;
        for seen in ports {
            if let Some(first) = on_node.insert(seen.node, seen) {
                twice = true;
                let message = format!(
                    "{subnet} is on two ports of this node, {} and {}; give each cable its own subnet",
                    label(first.spec),
                    label(seen.spec)
                );
                problem(ProblemCode::SubnetTwiceOnNode, seen, message);
            }
        }
        if ports.len() > 2 && !twice && !switches.contains(&subnet) {
            let names: BTreeSet<_> = ports.iter().map(|seen| nodes[seen.node].name.as_str()).collect();
            let names: Vec<_> = names.into_iter().collect();
            let message = format!(
                "{subnet} is on {} ports ({}); give each cable its own subnet, or declare a switch: [[switch]] subnet = \"{subnet}\"",
                ports.len(),
                abbreviated(&names)
            );
            problem(ProblemCode::SubnetShared, &ports[2], message);
        }
    }
}

fn check_switches(
    switches: &[Subnet],
    subnets: &BTreeMap<Subnet, Vec<Seen<'_>>>,
    places: &Places,
    problems: &mut Vec<Problem>,
) {
    for (index, switch) in switches.iter().enumerate() {
        let line = places.switches.get(index).copied().flatten();
        let mut problem = |message: String| {
            let field = format!("switch[{index}].subnet");
            problems.push(Problem::new(ProblemCode::BadSwitch, "", &field, message).at_line(line));
        };
        if switches[..index].contains(switch) {
            problem(format!("{switch} is declared twice; remove one"));
        } else if !subnets.contains_key(switch) && !places.incomplete {
            problem(format!("no port is in {switch}; correct the subnet or remove the switch"));
        }
    }
}

fn check_connected(topology: &Topology, places: &Places, problems: &mut Vec<Problem>) {
    if topology.graph.components() <= 1 {
        return;
    }
    let mut reached = vec![false; topology.nodes().len()];
    let mut pieces: Vec<(usize, Vec<&str>)> = Vec::new();
    for start in 0..reached.len() {
        if reached[start] {
            continue;
        }
        let (mut piece, mut open) = (Vec::new(), vec![NodeId::at(start)]);
        reached[start] = true;
        while let Some(node) = open.pop() {
            piece.push(topology.name(node));
            for (next, _) in topology.graph.neighbours(node) {
                if !std::mem::replace(&mut reached[next.index()], true) {
                    open.push(next);
                }
            }
        }
        pieces.push((start, piece));
    }
    let first = abbreviated(&pieces[0].1);
    for (start, piece) in &pieces[1..] {
        let message = format!(
            "no link joins {} with {first}; a cable needs one subnet, with one address at each end",
            abbreviated(piece)
        );
        let line = places.node(*start);
        problems.push(Problem::new(ProblemCode::Disconnected, piece[0], "port", message).at_line(line));
    }
}

fn label(port: &PortSpec) -> String {
    if port.device.is_empty() { port.address.to_string() } else { format!("{} ({})", port.device, port.address) }
}

/// At most eight names, then how many more.
fn abbreviated(names: &[&str]) -> String {
    match names.len() {
        0..=8 => names.join(", "),
        more => format!("{} and {} more", names[..8].join(", "), more - 8),
    }
}

fn ordinal(index: usize) -> String {
    let number = index + 1;
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}
