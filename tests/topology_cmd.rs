//! `nccl-mesh topology` and `nccl-mesh rank-order` as a person runs them: what is printed, what is written, how they end.
#![cfg(feature = "cli")]

#[allow(unused_imports, reason = "every test program uses a part of it")]
mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::{Ran, nccl_mesh, nccl_mesh_with};

/// A folder that goes with its value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nccl-mesh-topology-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, file: &str) -> String {
        self.0.join(file).to_str().unwrap().to_owned()
    }

    fn write(&self, file: &str, text: &str) -> String {
        std::fs::write(self.0.join(file), text).unwrap();
        self.path(file)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(arguments: &[&str]) -> Ran {
    nccl_mesh_with(arguments, &[], Duration::from_secs(60))
}

fn ring() -> String {
    nccl_mesh("topology show --shape ring --nodes 4 --rails 2 --speed 100G --toml").ends(0).stdout
}

#[test]
fn a_file_does_not_differ_from_itself_and_does_from_another() {
    let folder = Folder::new("diff");
    let declared = folder.write("declared.toml", &ring());
    // given the same file, then that is said, and the status is 0; as objects, there is none
    assert_eq!(run(&["topology", "diff", &declared, &declared]).ends(0).stdout, "no differences\n");
    assert_eq!(run(&["topology", "diff", &declared, &declared, "--json"]).ends(0).stdout, "");
    // given a port that is slower, and an address that is gone
    let found = ring().replacen("speed = \"100G\"", "speed = \"25G\"", 1).replacen("10.200.0.2/30", "10.200.9.2/30", 1);
    let found = folder.write("found.toml", &found);
    let ran = run(&["topology", "diff", &declared, &found]).ends(1);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{}", ran.told());
    assert!(
        lines[0].starts_with("slower: node \"node0\", mesh0 (10.200.0.1): runs at 25G, declared 100G; "),
        "{}",
        ran.told()
    );
    assert!(
        lines[1].starts_with("fault: node \"node1\" has no address 10.200.0.2/30, declared on mesh0; "),
        "{}",
        ran.told()
    );
    assert!(
        lines[2].starts_with("note: node \"node1\" has 10.200.9.2/30 on mesh0, which is not declared; "),
        "{}",
        ran.told()
    );
    assert_eq!(lines[3], "3 differences");
    // and as objects
    let ran = run(&["topology", "diff", &declared, &found, "--json"]).ends(1);
    let rows: Vec<serde_json::Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3);
    let slower = &rows[0];
    assert_eq!((&slower["kind"], &slower["severity"]), (&"lower-speed".into(), &"slower".into()));
    assert_eq!((&slower["node"], &slower["device"]), (&"node0".into(), &"mesh0".into()));
    assert_eq!((&slower["declared_mbps"], &slower["found_mbps"]), (&100_000.into(), &25_000.into()));
    assert_eq!((&rows[1]["kind"], &rows[1]["address"]), (&"missing-port".into(), &"10.200.0.2".into()));
}

#[test]
fn both_files_of_a_comparison_are_checked() {
    let folder = Folder::new("both");
    let (newer, wrong) = (folder.write("a.toml", "schema = 9\nx = 1\n"), folder.write("b.toml", "schema = 1\nx = 1\n"));
    let ran = run(&["topology", "diff", &newer, &wrong]).ends(1);
    // given a newer schema, then that is all that is told of it
    assert_eq!(ran.lines_with(&newer).len(), 1, "{}", ran.told());
    assert!(ran.lines_with(&newer)[0].contains("mesh[E64] line 1, schema: schema 9 is newer than 1"), "{}", ran.told());
    assert_eq!(ran.lines_with(&wrong).len(), 2, "{}", ran.told());
    assert_eq!(run(&["topology", "diff", "-", "-"]).ends(1).lines_with("mesh[E78]").len(), 1);
    assert_eq!(run(&["topology", "validate", &newer]).ends(1).lines_with("mesh[").len(), 1);
}

#[test]
fn the_policy_is_checked_with_all_else() {
    let folder = Folder::new("policy");
    let policy =
        "[policy]\ndifferences = \"ignored\"\n[[policy.route]]\nfrom = \"node0\"\nto = \"node2\"\nvia = [\"node9\"]\n";
    let file = folder.write("policy.toml", &format!("{}{policy}relai = 1\n", ring()));
    let ran = run(&["topology", "validate", &file]).ends(1);
    for words in ["mesh[E63]", "mesh[E80]", "mesh[E61]", "3 problems found"] {
        assert_eq!(ran.lines_with(words).len(), 1, "{words}: {}", ran.told());
    }
    // and a sound one is what routes go by
    let pin = "[[policy.route]]\nfrom = \"node0\"\nto = \"node1\"\nvia = [\"node3\", \"node2\"]\n";
    let file = folder.write("pinned.toml", &format!("{}{pin}", ring()));
    let ran = run(&["routes", "--topology", &file, "--from", "node1", "--to", "node0"]).ends(0);
    assert_eq!(ran.lines_with("route      node1 > node2 > node3 > node0").len(), 1, "{}", ran.told());
}

#[test]
fn a_node_map_becomes_a_file_that_validates() {
    let folder = Folder::new("import");
    let node = |rank: usize| {
        let peer = 1 - rank;
        format!(
            r#"{{"name": "spark{rank}1", "rank": {rank}, "management_ip": "192.168.1.{}", "head": {}, "roce_peer_hcas": {{"{peer}": ["f0", "f1"]}},
               "roce_subnets": {{"f0": "10.1.3.0/24", "f1": "10.1.4.0/24"}}}}"#,
            rank + 1,
            rank == 0
        )
    };
    let map = format!(r#"{{"schema_version": 1, "ssh_user": "me", "nodes": [{}, {}]}}"#, node(0), node(1));
    let (nodes, out) = (folder.write("nodes.json", &map), folder.path("mesh.toml"));
    assert_eq!(run(&["topology", "import", &nodes, "--out", &out]).ends(0).stdout, "");
    let ran = run(&["topology", "validate", &out]).ends(0);
    assert!(ran.stdout.starts_with("ok: nodes 2, edges 1, links 2, "), "{}", ran.told());
    assert_eq!(run(&["topology", "import", &nodes]).ends(0).stdout, std::fs::read_to_string(&out).unwrap());
    // given a map with faults, then all are told, and nothing is written
    let wrong =
        map.replace("\"rank\": 1", "\"rank\": 5").replacen("10.1.3.0/24", "10.1.3.0/16", 1).replace("ssh_user", "user");
    let (wrong, out) = (folder.write("wrong.json", &wrong), folder.path("none.toml"));
    let ran = run(&["topology", "import", &wrong, "--out", &out]).ends(1);
    for code in ["mesh[E61]", "mesh[E63]", "mesh[E69]"] {
        assert_eq!(ran.lines_with(code).len(), 1, "{code}: {}", ran.told());
    }
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn a_picture_is_written_beside_the_summary() {
    let folder = Folder::new("picture");
    let picture = folder.path("ring.svg");
    let shape = ["topology", "show", "--shape", "ring", "--nodes", "4", "--svg", &picture];
    let ran = run(&[&shape[..], &["--routes", "--from", "node1"]].concat()).ends(0);
    assert!(ran.stdout.starts_with("ring of 4, 1 rail: 4 nodes"), "{}", ran.told());
    let text = std::fs::read_to_string(&picture).unwrap();
    assert!(
        text.starts_with("<svg ") && text.contains("routes from node1") && text.contains("10.200.0.1/30"),
        "{text}"
    );
    run(&shape).ends(0);
    assert!(!std::fs::read_to_string(&picture).unwrap().contains("routes from"));
    // what does not go together, or cannot be had
    assert_eq!(run(&[&shape[..], &["--routes", "--from", "nod1"]].concat()).ends(1).lines_with("mesh[E23]").len(), 1);
    run(&[&shape[..], &["--routes"]].concat()).ends(2);
    assert_eq!(nccl_mesh("topology show --nodes 4 --svg /nonexistent/x.svg").ends(1).lines_with("mesh[E25]").len(), 1);
}

#[test]
fn orders_for_every_launcher() {
    let print = |format: &str| nccl_mesh(&format!("rank-order --nodes 3 --format {format}")).ends(0).stdout;
    assert_eq!(print("plain"), "node0\nnode1\nnode2\n");
    assert_eq!(print("mpirun"), "rank 0=node0 slot=0\nrank 1=node1 slot=0\nrank 2=node2 slot=0\n");
    assert_eq!(print("mpirun"), nccl_mesh("rank-order --nodes 3 --rankfile").ends(0).stdout);
    assert_eq!(print("json"), nccl_mesh("rank-order --nodes 3 --json").ends(0).stdout);
    for (format, words) in [("torchrun", "torchrun --nnodes 3 --node-rank 2 "), ("vllm", " --nnodes 3 --node-rank 2 ")]
    {
        let text = print(format);
        assert_eq!(text.lines().filter(|line| line.contains(words)).count(), 1, "{text}");
    }
    nccl_mesh("rank-order --nodes 3 --format plain --json").ends(2);
}

#[test]
fn a_topology_comes_from_standard_input_too() {
    let folder = Folder::new("stdin");
    let declared = folder.write("declared.toml", &ring());
    let done = Command::new(common::COMMAND)
        .args(["topology", "diff", &declared, "-"])
        .stdin(std::fs::File::open(&declared).unwrap())
        .output()
        .unwrap();
    assert_eq!((done.status.code(), done.stdout), (Some(0), b"no differences\n".to_vec()));
}
