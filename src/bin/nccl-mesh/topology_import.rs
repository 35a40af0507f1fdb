//! `nccl-mesh topology import nodes.json`: a node map of another project, schema 1, as a topology file. What the map
//! holds is read in [`map`]; here it is turned into nodes with addresses. Runs on the command's main thread.
//!
//! The map names a subnet for each device and no addresses. An address is the subnet's with the node's number: the one
//! at the end of its name where every node has one of its own, else its rank plus one.

mod map;

use crate::routes::{emit, fail};
use crate::shape_args::read;
use map::{Map, read_map};
use mesh_routing::{NodeSpec, Policy, PortSpec, Problem, Subnet, Topology};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `nccl-mesh topology import`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Node map (JSON, schema_version 1); `-` reads standard input
    file: PathBuf,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command; fails if anything is wrong with the map, and then writes nothing.
pub(crate) fn run(args: &Args) -> ExitCode {
    let path = args.file.display();
    let text = match read(&args.file) {
        Ok(text) => text,
        Err(error) => return fail(&format!("mesh[E78] {path}: cannot be read: {error}")),
    };
    match (import(&text), &args.out) {
        (Err(problems), _) => {
            let lines: Vec<_> = problems.iter().map(|problem| format!("{path}: {problem}")).collect();
            fail(&lines.join("\n"))
        }
        (Ok(text), None) => emit(&text),
        (Ok(text), Some(out)) => match std::fs::write(out, text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!("mesh[E25] {}: {error}", out.display())),
        },
    }
}

/// The text of the topology file.
///
/// # Errors
/// Everything that is wrong with the map.
fn import(text: &str) -> Result<String, Vec<Problem>> {
    let (map, mut problems) = read_map(text);
    if !problems.is_empty() {
        return Err(problems);
    }
    let (specs, switches, how) = nodes(&map);
    match Topology::from_nodes(specs, switches, Policy::default()) {
        Ok(topology) => Ok(format!(
            "# From a node map, which has subnets and no addresses: each address is its subnet's with {how}.\n\
             # Compare them with `ip -4 address` on each node before use.\n{}",
            topology.to_toml()
        )),
        Err(found) => {
            problems.extend(found);
            Err(problems)
        }
    }
}

/// Nodes with addresses, switched subnets, and how addresses were made.
fn nodes(map: &Map) -> (Vec<NodeSpec>, Vec<Subnet>, &'static str) {
    let numbers: Vec<_> = map.nodes.iter().filter_map(|node| trailing_number(&node.name)).collect();
    let each = numbers.len() == map.nodes.len() && numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
    let mut specs = Vec::new();
    let mut shared = BTreeSet::new();
    for (at, node) in map.nodes.iter().enumerate() {
        let host = if each { numbers[at] } else { node.rank as u32 + 1 };
        let mut spec = NodeSpec { control: node.control, ..NodeSpec::new(&*node.name) };
        for (device, subnet) in &node.ports {
            let address = Ipv4Addr::from_bits(subnet.network().to_bits() + host);
            spec.ports.push(PortSpec::new(&**device, address, subnet.prefix()));
            if map.switched {
                shared.insert(*subnet);
            }
        }
        specs.push(spec);
    }
    let how = if each { "the number at the end of the node's name" } else { "the node's rank plus one" };
    (specs, shared.into_iter().collect(), how)
}

/// The number at the end of a name, if it can be that of a host in a /24.
fn trailing_number(name: &str) -> Option<u32> {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[name.len() - digits..].parse().ok().filter(|number| (1..=254).contains(number))
}

#[cfg(test)]
mod tests {
    use super::{import, trailing_number};
    use mesh_routing::Topology;
    use serde_json::{Value, json};

    /// A ring of four with two rails.
    fn ring() -> Value {
        let node = |rank: u64| {
            let (before, after) = ((rank + 3) % 4, (rank + 1) % 4);
            let subnet = |edge: u64, rail: u64| format!("10.{edge}.{rail}.0/24");
            json!({
                "name": format!("spark{}", rank + 1), "rank": rank, "management_ip": format!("192.168.1.{}", rank + 1),
                "head": rank == 0, "roce_gid_index": 3,
                "roce_peer_hcas": {after.to_string(): ["f0", "f1"], before.to_string(): ["f2", "f3"]},
                "roce_subnets": {
                    "f0": subnet(rank, 3), "f1": subnet(rank, 4), "f2": subnet(before, 3), "f3": subnet(before, 4),
                },
            })
        };
        json!({"schema_version": 1, "ssh_user": "me", "nodes": (0..4).map(node).collect::<Vec<_>>()})
    }

    fn faults(map: &Value) -> Vec<String> {
        import(&map.to_string()).expect_err("faults").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_ring_becomes_a_topology() {
        let text = import(&ring().to_string()).expect("a sound map");
        assert!(text.starts_with("# From a node map"), "{text}");
        let topology = Topology::from_toml(&text).expect("a sound file");
        assert_eq!((topology.nodes().len(), topology.edges().len(), topology.links().len()), (4, 4, 8));
        let first = &topology.nodes()[0];
        assert_eq!(
            (first.name.as_str(), first.control.map(|ip| ip.to_string())),
            ("spark1", Some("192.168.1.1".into()))
        );
        assert_eq!((first.ports[0].device.as_str(), first.ports[0].address.to_string()), ("f0", "10.0.3.1".into()));
        // and where names have no numbers, hosts are numbered by rank
        let mut named = ring();
        named["nodes"][2]["name"] = "head".into();
        let text = import(&named.to_string()).expect("a sound map");
        assert!(text.contains("the node's rank plus one") && text.contains("\"10.0.3.1/24\""), "{text}");
    }

    #[test]
    fn a_switched_map_becomes_switches() {
        let node = |rank: u64| {
            json!({
                "name": format!("n{rank}"), "rank": rank, "management_ip": format!("10.0.0.{}", rank + 1), "head": rank == 0,
                "roce_hcas": ["f0"], "roce_subnets": {"f0": "10.5.0.0/24"},
            })
        };
        let map = json!({"schema_version": 1, "ssh_user": "me", "nodes": (0..3).map(node).collect::<Vec<_>>()});
        let topology = Topology::from_toml(&import(&map.to_string()).expect("a sound map")).expect("a sound file");
        assert_eq!((topology.switches().len(), topology.edges().len()), (1, 3));
    }

    #[test]
    fn every_fault_of_a_map_is_told_at_once() {
        let mut map = ring();
        map["extra"] = 1.into();
        map["nodes"][0]["rnak"] = 0.into();
        map["nodes"][0]["management_ip"] = "here".into();
        map["nodes"][1]["head"] = true.into();
        map["nodes"][1]["roce_subnets"]["f0"] = "10.1.3.0/30".into();
        map["nodes"][2]["rank"] = 7.into();
        map["nodes"][3]["name"] = "spark1".into();
        map["nodes"][3]["roce_subnets"]["f9"] = "10.9.9.0/24".into();
        let told = faults(&map);
        for words in [
            "mesh[E61] extra: unknown key; known here: schema_version, ssh_user, nodes",
            "mesh[E61] node \"spark1\", rnak: unknown key; did you mean \"rank\"?",
            "mesh[E68] node \"spark1\", management_ip: \"here\" is no IPv4 address",
            "mesh[E27] node \"spark2\", head: rank 1 is not the head; rank 0 is",
            "mesh[E69] node \"spark2\", roce_subnets.f0: \"10.1.3.0/30\" is no /24 subnet; write it like \"10.0.3.0/24\"",
            "mesh[E63] node \"spark3\", rank: ranks are 0 to 3, each once; 7 found",
            "mesh[E65] node \"spark1\", name: the name is taken by another node; give each node its own",
            "mesh[E27] node \"spark1\", roce_subnets.f9: no cable uses this device; remove it, or name it in roce_peer_hcas",
        ] {
            assert!(told.iter().any(|line| line == words || line.starts_with(words)), "{words}\nnot in {told:#?}");
        }
        assert_eq!(told.len(), 8, "{told:#?}");
    }

    #[test]
    fn cables_on_which_the_two_ends_disagree_are_told() {
        // given one end with one rail less, another subnet at one end, and a peer that does not know of the cable
        let mut map = ring();
        map["nodes"][0]["roce_peer_hcas"]["1"] = json!(["f0"]);
        map["nodes"][0]["roce_subnets"].as_object_mut().expect("a map").remove("f1");
        map["nodes"][2]["roce_subnets"]["f0"] = "10.77.3.0/24".into();
        let told = faults(&map);
        assert!(told.iter().any(|line| line.contains("1 cable to rank 1, which names 2 to rank 0")), "{told:#?}");
        assert!(
            told.iter().any(|line| line.contains("rail 0 to rank 3 is in 10.77.3.0/24, at that end in 10.2.3.0/24")),
            "{told:#?}"
        );
        assert_eq!(told.len(), 2, "{told:#?}");
        let mut map = ring();
        map["nodes"][1]["roce_peer_hcas"].as_object_mut().expect("a map").remove("0");
        let told = faults(&map);
        assert!(told.iter().any(|line| line.contains("2 cables to rank 1, which names none to rank 0")), "{told:#?}");
    }

    #[test]
    fn what_is_no_map_is_told_so() {
        let told = |text: &str| import(text).expect_err("faults").iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(told("{").iter().all(|line| line.starts_with("mesh[E60] line 1, not JSON: ")));
        assert_eq!(told("[]"), ["mesh[E63] an object wanted, array found"]);
        assert_eq!(
            told("{\"schema_version\": 2, \"nodes\": 1}"),
            ["mesh[E64] schema_version: schema 2 is newer than 1, the newest that this release reads; upgrade"]
        );
        assert_eq!(told("{}").len(), 2);
    }

    #[test]
    fn numbers_at_the_end_of_names() {
        assert_eq!(
            ["spark1", "a-254", "a255", "a0", "a", "7", ""].map(trailing_number),
            [Some(1), Some(254), None, None, None, Some(7), None]
        );
    }
}
