//! `nccl-mesh topology validate|show|diff|import`: the topology file's life, as far as it needs no running cluster. Runs on the
//! command's main thread.

use crate::discover;
use crate::routes::{coded, emit, fail, find};
use crate::shape_args::{LoadError, ShapeArgs, load_file};
use crate::{topology_diff, topology_import};
use mesh_routing::render::{cabling_svg, summary};
use mesh_routing::{AddressPlan, Node, Problem, Router, Topology};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to do with a topology.
#[derive(clap::Subcommand, Debug)]
pub(crate) enum Command {
    /// Check a topology file and list everything that is wrong with it
    Validate {
        /// Topology file (TOML); `-` reads standard input
        file: PathBuf,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Find the nodes and cables around this host, and write the topology file
    Discover(discover::Args),
    /// List how a found topology differs from the declared one; exit status 1 if it does
    Diff(topology_diff::Args),
    /// Make a topology file of a node map (nodes.json, schema_version 1)
    ///
    /// The map has subnets and no addresses: an address is its subnet's with the number at the end of the node's name where every
    /// node has one of its own, else with its rank plus one. Everything that is wrong with the map is listed at once.
    Import(topology_import::Args),
    /// Print nodes, ports and what joins them
    Show {
        #[command(flatten)]
        shape: ShapeArgs,
        /// Print a topology file instead, as a start for one's own
        #[arg(long, conflicts_with = "json")]
        toml: bool,
        /// Write a picture of nodes, ports and links
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Show in it the routes from the node that --from names
        #[arg(long, requires = "svg", requires = "from")]
        routes: bool,
        /// Node (name) whose routes the picture shows
        #[arg(long, value_name = "NODE", requires = "routes")]
        from: Option<String>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command; fails if the file is not sound.
pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::Diff(args) => topology_diff::run(args),
        Command::Import(args) => topology_import::run(args),
        Command::Validate { file, json } => match load_file(file) {
            Ok(topology) => emit(&sound(&topology, *json)),
            Err(LoadError::File { problems, .. }) if *json => {
                emit(&problems.iter().map(|problem| format!("{}\n", problem_json(problem))).collect::<String>());
                ExitCode::FAILURE
            }
            Err(error) => {
                if let LoadError::File { problems, .. } = &error {
                    fail(&format!("{error}\n{} found in {}", count(problems.len()), file.display()))
                } else {
                    fail(&error.to_string())
                }
            }
        },
        Command::Discover(args) => discover::run(args),
        Command::Show { shape, toml, svg, from, json, .. } => match drawn(shape, svg.as_deref(), from.as_deref()) {
            Ok(topology) if *toml => emit(&topology.to_toml()),
            Ok(topology) if *json => emit(
                &topology.nodes().iter().map(|node| format!("{}\n", node_json(&topology, node))).collect::<String>(),
            ),
            Ok(topology) => emit(&format!("{}: {}", shape.title(), summary(&topology))),
            Err(error) => fail(&error),
        },
    }
}

/// The topology, after its picture is written, if one is asked for.
fn drawn(shape: &ShapeArgs, path: Option<&Path>, from: Option<&str>) -> Result<Topology, String> {
    let topology = shape.load(AddressPlan::default().base).map_err(|error| error.to_string())?;
    if let Some(path) = path {
        let from = from.map(|name| find(&topology, name)).transpose()?;
        let picture = cabling_svg(&topology, &Router::new(&topology), &shape.title(), from);
        std::fs::write(path, picture).map_err(|error| coded("E25", &format!("{}: {error}", path.display())))?;
    }
    Ok(topology)
}

/// The word on a sound file, and what in it may be meant otherwise.
fn sound(topology: &Topology, json: bool) -> String {
    let (nodes, edges, links) = (topology.nodes().len(), topology.edges().len(), topology.links().len());
    let hash = format!("{:016x}", topology.hash());
    let alone = topology.unlinked_ports();
    // Cables join all nodes of a sound file, but not every node need let others' traffic pass.
    let apart = Router::new(topology).unreachable_pairs();
    if json {
        let row = json!({
            "ok": true, "nodes": nodes, "edges": edges, "links": links, "hash": hash, "unlinked_ports": alone.len(),
            "unreachable_pairs": apart.len(),
        });
        return format!("{row}\n");
    }
    let mut text = format!("ok: nodes {nodes}, edges {edges}, links {links}, hash {hash}\n");
    if let Some(&(a, b)) = apart.first() {
        text += &format!(
            "note: no route for {}, the first {}-{}; see relay = false and policy.max_relays\n",
            if apart.len() == 1 { "1 pair".to_owned() } else { format!("{} pairs", apart.len()) },
            topology.name(a),
            topology.name(b)
        );
    }
    for (node, port) in alone {
        let port = &topology.node(node).ports[port];
        let name = topology.name(node);
        text += &format!("note: {name} {} {}/{} meets no other port\n", port.device, port.address, port.prefix);
    }
    text
}

fn problem_json(problem: &Problem) -> Value {
    json!({
        "code": problem.code.code(), "line": problem.line, "node": problem.node, "field": problem.field,
        "message": problem.message,
    })
}

fn node_json(topology: &Topology, node: &Node) -> Value {
    let port = |(index, port): (usize, &mesh_routing::Port)| {
        let links = topology.links_of_node(node.id).iter().map(|&link| topology.link(link));
        let here = links.filter(|link| link.end_of(node.id).is_some_and(|end| end.port == index));
        let to: Vec<_> = here.map(|link| topology.name(link.other_end(node.id).node)).collect();
        json!({
            "device": port.device, "address": port.address.to_string(), "prefix": port.prefix,
            "speed_mbps": port.speed_mbps, "mtu_bytes": port.mtu, "to": to,
        })
    };
    let ports: Vec<_> = node.ports.iter().enumerate().map(port).collect();
    json!({
        "node": node.name, "id": node.stable_id, "control": node.control.map(|address| address.to_string()),
        "relay": node.relay, "ports": ports,
    })
}

fn count(problems: usize) -> String {
    if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") }
}

#[cfg(test)]
mod tests {
    use super::{node_json, problem_json, sound};
    use mesh_routing::{AddressPlan, Shape, Topology};

    #[test]
    fn a_sound_file_is_told_in_one_line() {
        let ring = Topology::from_shape(Shape::Ring, 4, 2, &AddressPlan::default()).expect("a ring");
        let hash = format!("{:016x}", ring.hash());
        assert_eq!(sound(&ring, false), format!("ok: nodes 4, edges 4, links 8, hash {hash}\n"));
        let row: serde_json::Value = serde_json::from_str(&sound(&ring, true)).expect("an object");
        assert_eq!((&row["ok"], &row["links"], &row["hash"]), (&true.into(), &8.into(), &hash.into()));
    }

    #[test]
    fn what_is_sound_may_still_not_be_meant() {
        let line = Topology::from_shape(Shape::Line, 3, 1, &AddressPlan::default()).expect("a line");
        let file = line.to_toml().replace("name = \"node1\"", "name = \"node1\"\nrelay = false");
        let file = format!("{file}\n[[node.port]]\ndevice = \"spare\"\naddress = \"10.9.9.9/24\"\n");
        let text = sound(&Topology::from_toml(&file).expect("a sound file"), false);
        assert!(text.contains("note: no route for 1 pair, the first node0-node2; see relay = false"), "{text}");
        assert!(text.ends_with("note: node2 spare 10.9.9.9/24 meets no other port\n"), "{text}");
    }

    #[test]
    fn problems_and_nodes_as_objects() {
        let problems = Topology::from_toml("schema = 2\n").expect_err("two faults");
        let codes: Vec<_> = problems.iter().map(|problem| problem_json(problem)["code"].clone()).collect();
        assert!(codes.contains(&"E64".into()), "{codes:?}");
        let line = Topology::from_shape(Shape::Line, 3, 1, &AddressPlan::default()).expect("a line");
        let row = node_json(&line, &line.nodes()[1]);
        assert_eq!(row["node"], "node1");
        assert_eq!(row["ports"][0]["to"], serde_json::json!(["node0"]));
        assert_eq!(row["ports"][1]["address"], "10.200.0.5");
    }
}
