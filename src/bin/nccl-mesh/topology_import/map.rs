//! Reads a node map: a JSON object with the nodes, their devices, the subnet of each device, and which devices lead to
//! which node. Notes everything that is wrong and carries on. Knows nothing of topology files.

use mesh_routing::{Problem, ProblemCode, Subnet, nearest};
use serde_json::{Map as Object, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

const TOP_KEYS: &[&str] = &["schema_version", "ssh_user", "nodes"];
const NODE_KEYS: &[&str] = &[
    "name",
    "rank",
    "management_ip",
    "head",
    "management_interface",
    "roce_gid_index",
    "roce_traffic_class",
    "roce_peer_hcas",
    "roce_subnets",
    "roce_hcas",
    "nccl_hcas",
    "mesh_ports",
    "mesh_hairpin_queue_size",
];

/// What a map says of cables and addresses.
#[derive(Debug, Default)]
pub(super) struct Map {
    /// By place in the map.
    pub(super) nodes: Vec<MapNode>,
    /// Whether all nodes are on switches, one a rail.
    pub(super) switched: bool,
}

/// One node.
#[derive(Debug, Default)]
pub(super) struct MapNode {
    pub(super) name: String,
    pub(super) rank: u64,
    pub(super) control: Option<Ipv4Addr>,
    /// Devices with their subnets.
    pub(super) ports: Vec<(String, Subnet)>,
    head: bool,
    subnets: BTreeMap<String, Subnet>,
    /// Devices by the rank that they lead to, in the order of rails.
    peers: BTreeMap<u64, Vec<String>>,
    /// Devices on switches, in the order of rails.
    hcas: Vec<String>,
}

/// Problems so far.
struct Report(Vec<Problem>);

impl Report {
    fn add(&mut self, code: ProblemCode, node: &str, field: &str, message: impl Into<String>) {
        let (node, field) = (node.to_owned(), field.to_owned());
        self.0.push(Problem { line: None, code, node, field, message: message.into() });
    }

    fn only(&mut self, node: &str, object: &Object<String, Value>, known: &[&str]) {
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            let message = match nearest(key, known) {
                Some(near) => format!("unknown key; did you mean {near:?}?"),
                None => format!("unknown key; known here: {}", known.join(", ")),
            };
            self.add(ProblemCode::UnknownKey, node, key, message);
        }
    }

    /// A value of the right type; absent or, noted, another: `None`.
    fn get<'a, T>(
        &mut self,
        (node, object): (&str, &'a Object<String, Value>),
        key: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = object.get(key)?;
        let found = read(value);
        if found.is_none() {
            self.add(ProblemCode::BadValue, node, key, format!("{wanted} wanted, {} found", kind(value)));
        }
        found
    }

    fn required(&mut self, node: &str, object: &Object<String, Value>, keys: &[&str]) {
        for key in keys.iter().filter(|key| !object.contains_key(**key)) {
            self.add(ProblemCode::MissingKey, node, key, "missing");
        }
    }
}

/// What the text says, and everything that is wrong with it.
pub(super) fn read_map(text: &str) -> (Map, Vec<Problem>) {
    let mut report = Report(Vec::new());
    let map = match serde_json::from_str::<Value>(text) {
        Err(error) => {
            report.add(ProblemCode::Syntax, "", "", format!("not JSON: {error}"));
            report.0[0].line = Some(error.line());
            Map::default()
        }
        Ok(Value::Object(top)) => read_top(&top, &mut report),
        Ok(other) => {
            report.add(ProblemCode::BadValue, "", "", format!("an object wanted, {} found", kind(&other)));
            Map::default()
        }
    };
    (map, report.0)
}

fn read_top(top: &Object<String, Value>, report: &mut Report) -> Map {
    match report.get(("", top), "schema_version", "a whole number", Value::as_i64) {
        Some(version) if version > 1 => {
            let message = format!("schema {version} is newer than 1, the newest that this release reads; upgrade");
            report.add(ProblemCode::Schema, "", "schema_version", message);
            return Map::default();
        }
        Some(version) if version < 1 => {
            report.add(ProblemCode::Schema, "", "schema_version", format!("no schema {version} exists; use 1"));
        }
        _ => {}
    }
    report.only("", top, TOP_KEYS);
    report.required("", top, &["schema_version", "nodes"]);
    let listed = report.get(("", top), "nodes", "a list", Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut map = Map::default();
    for (index, value) in listed.iter().enumerate() {
        match value.as_object() {
            Some(node) => map.nodes.push(read_node(index, node, report)),
            None => {
                let message = format!("an object wanted, {} found", kind(value));
                report.add(ProblemCode::BadValue, "", &format!("nodes[{index}]"), message);
            }
        }
    }
    check_names_and_ranks(&map, report);
    // Cables between nodes of unknown rank cannot be judged.
    let ranks: BTreeSet<_> = map.nodes.iter().map(|node| node.rank).collect();
    check_cables(&mut map, ranks.len(), report);
    map
}

fn read_node(index: usize, object: &Object<String, Value>, report: &mut Report) -> MapNode {
    let stand_in = format!("node #{}", index + 1);
    let name = object.get("name").and_then(Value::as_str).unwrap_or(&stand_in);
    let at = (name, object);
    report.only(name, object, NODE_KEYS);
    report.required(name, object, &["name", "rank", "management_ip"]);
    report.get(at, "name", "a string", Value::as_str);
    let control = report.get(at, "management_ip", "a string", Value::as_str).and_then(|text| {
        let address = text.parse().ok();
        if address.is_none() {
            let message = format!("{text:?} is no IPv4 address; write it like \"10.0.0.11\"");
            report.add(ProblemCode::BadAddress, name, "management_ip", message);
        }
        address
    });
    let mut node = MapNode {
        name: name.to_owned(),
        rank: report.get(at, "rank", "a whole number from 0 on", Value::as_u64).unwrap_or(index as u64),
        control,
        head: report.get(at, "head", "true or false", Value::as_bool).unwrap_or(false),
        hcas: report.get(at, "roce_hcas", "a list of strings", strings).unwrap_or_default(),
        ..MapNode::default()
    };
    for (device, value) in report.get(at, "roce_subnets", "an object", Value::as_object).into_iter().flatten() {
        match value.as_str().and_then(subnet) {
            Some(subnet) => drop(node.subnets.insert(device.clone(), subnet)),
            None => {
                let message = format!("{value} is no /24 subnet; write it like \"10.0.3.0/24\"");
                report.add(ProblemCode::BadPrefix, name, &format!("roce_subnets.{device}"), message);
            }
        }
    }
    for (peer, value) in report.get(at, "roce_peer_hcas", "an object", Value::as_object).into_iter().flatten() {
        let field = format!("roce_peer_hcas.{peer}");
        match (peer.parse(), strings(value)) {
            (Ok(rank), Some(devices)) => drop(node.peers.insert(rank, devices)),
            (Err(_), _) => report.add(ProblemCode::BadValue, name, &field, "the rank of a peer wanted as the key"),
            (_, None) => report.add(ProblemCode::BadValue, name, &field, "a list of strings wanted"),
        }
    }
    node
}

fn check_names_and_ranks(map: &Map, report: &mut Report) {
    let mut names = BTreeSet::new();
    let mut ranks = BTreeSet::new();
    let last = map.nodes.len().saturating_sub(1);
    for node in &map.nodes {
        if !names.insert(&node.name) {
            let message = "the name is taken by another node; give each node its own";
            report.add(ProblemCode::DuplicateName, &node.name, "name", message);
        }
        if node.rank > last as u64 || !ranks.insert(node.rank) {
            let message = format!("ranks are 0 to {last}, each once; {} found", node.rank);
            report.add(ProblemCode::BadValue, &node.name, "rank", message);
        }
        if node.head && node.rank != 0 {
            let message = format!("rank {} is not the head; rank 0 is", node.rank);
            report.add(ProblemCode::BadCable, &node.name, "head", message);
        }
    }
}

/// Checks that both ends say the same of every cable, and gives every device that is used its subnet.
fn check_cables(map: &mut Map, ranks: usize, report: &mut Report) {
    let cabled = map.nodes.iter().any(|node| !node.peers.is_empty());
    map.switched = !cabled && map.nodes.iter().any(|node| !node.hcas.is_empty());
    let mut ports = Vec::new();
    for node in &map.nodes {
        let used: Vec<&String> =
            if map.switched { node.hcas.iter().collect() } else { node.peers.values().flatten().collect() };
        let mut once = BTreeSet::new();
        let mut own = Vec::new();
        for device in used {
            if !once.insert(device) {
                let message = format!("device {device:?} stands twice; a device has one cable");
                report.add(ProblemCode::BadCable, &node.name, "roce_peer_hcas", message);
            } else if let Some(subnet) = node.subnets.get(device) {
                own.push((device.clone(), *subnet));
            } else if !report.0.iter().any(|p| p.node == node.name && p.field == format!("roce_subnets.{device}")) {
                let message = format!("device {device:?} is cabled and has no subnet; add it");
                report.add(ProblemCode::MissingKey, &node.name, "roce_subnets", message);
            }
        }
        for device in node.subnets.keys().filter(|device| !once.contains(device)) {
            let message = "no cable uses this device; remove it, or name it in roce_peer_hcas";
            report.add(ProblemCode::BadCable, &node.name, &format!("roce_subnets.{device}"), message);
        }
        ports.push(own);
    }
    if ranks == map.nodes.len() && map.nodes.iter().all(|node| node.rank < ranks as u64) {
        map.nodes.iter().for_each(|node| check_peers(map, node, report));
    }
    map.nodes.iter_mut().zip(ports).for_each(|(node, ports)| node.ports = ports);
}

/// What a node says of its cables against what the other ends say; each cable is told by its lower rank, or by the one
/// that alone knows of it.
fn check_peers(map: &Map, node: &MapNode, report: &mut Report) {
    for (&rank, devices) in &node.peers {
        let field = format!("roce_peer_hcas.{rank}");
        let Some(peer) = map.nodes.iter().find(|peer| peer.rank == rank && rank != node.rank) else {
            report.add(ProblemCode::BadCable, &node.name, &field, format!("there is no other node of rank {rank}"));
            continue;
        };
        let Some(theirs) = peer.peers.get(&node.rank) else {
            let cables = count(devices.len());
            let message = format!("{cables} to rank {rank}, which names none to rank {}; name both ends", node.rank);
            report.add(ProblemCode::BadCable, &node.name, &field, message);
            continue;
        };
        if node.rank > rank {
            continue;
        }
        if devices.len() != theirs.len() {
            let (own, other) = (count(devices.len()), theirs.len());
            let message = format!("{own} to rank {rank}, which names {other} to rank {}; name both ends", node.rank);
            report.add(ProblemCode::BadCable, &node.name, &field, message);
        }
        for (rail, (own, other)) in devices.iter().zip(theirs).enumerate() {
            if let (Some(here), Some(there)) = (node.subnets.get(own), peer.subnets.get(other))
                && here != there
            {
                let message = format!(
                    "rail {rail} to rank {rank} is in {here}, at that end in {there}; give both ends one subnet, in one order"
                );
                report.add(ProblemCode::BadCable, &node.name, &field, message);
            }
        }
    }
}

fn count(cables: usize) -> String {
    if cables == 1 { "1 cable".to_owned() } else { format!("{cables} cables") }
}

/// A /24 by its network address.
fn subnet(text: &str) -> Option<Subnet> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix) = (address.parse().ok()?, prefix.parse().ok().filter(|&prefix: &u8| prefix == 24)?);
    Subnet::of(address, prefix).filter(|subnet| subnet.network() == address)
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
