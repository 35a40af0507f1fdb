//! Wrong files, wrong settings, absent nodes, strange handles: each ends in a line that names the fault by its code, in bounded time,
//! with an exit status other than 0 and nothing left running.
#![cfg(feature = "cli")]

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::{Ran, nccl_mesh_with, plugin_file};
use mesh_abi::caller::{Ctx, Plugin};
use mesh_abi::logger::to_stderr;
use mesh_abi::{HANDLE_BYTES, NcclResult};

/// Tells a node of a fabric what to try.
const TRY: &str = "MESH_BAD_INPUT";
/// A run that takes so long hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A file that goes with its value.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nccl-mesh-bad-input-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A topology file of nodes with these addresses, and further lines for a node.
fn topology(nodes: &[(&str, &[&str], &str)]) -> String {
    let mut text = "schema = 1\n".to_owned();
    for (name, addresses, further) in nodes {
        text += &format!("\n[[node]]\nname = \"{name}\"\n{further}\n");
        for (number, address) in addresses.iter().enumerate() {
            text += &format!("[[node.port]]\ndevice = \"eth{number}\"\naddress = \"{address}\"\n");
        }
    }
    text
}

fn run(arguments: &[&str]) -> Ran {
    nccl_mesh_with(arguments, &[], LIMIT).leaves_nothing()
}

/// `sim run` of a collective with the plugin that was built.
fn sim(words: &str) -> Ran {
    let words = format!("sim run --plugin {} --sizes 4K --iters 1 {words}", plugin_file().display());
    run(&words.split_whitespace().collect::<Vec<_>>())
}

/// Panics unless the run failed with a line of this code that has all these words; returns the line.
#[track_caller]
fn refused(ran: &Ran, code: &str, words: &[&str]) -> String {
    assert!(ran.status.is_some_and(|status| status != 0), "{}", ran.told());
    let code = format!("mesh[{code}]");
    let fits = |line: &&&str| words.iter().all(|word| line.contains(word));
    let found = ran.lines_with(&code).iter().find(fits).map(|line| (*line).to_owned());
    assert!(!ran.stderr.contains("panicked"), "{}", ran.told());
    found.unwrap_or_else(|| panic!("no line with {code} and {words:?}: {}", ran.told()))
}

#[test]
fn wrong_topology_files_are_refused_with_line_and_remedy() {
    let pair: &[(&str, &[&str], &str)] = &[("a", &["10.0.0.1/30"], ""), ("b", &["10.0.0.2/30"], "")];
    let cases: [(&str, String, &str, &[&str]); 5] = [
        (
            "duplicate",
            topology(&[("a", &["10.0.0.1/30"], ""), ("b", &["10.0.0.2/30", "10.0.0.1/30"], "")]),
            "E67",
            &["10.0.0.1", "\"b\""],
        ),
        (
            "three",
            topology(&[("a", &["10.0.0.1/24"], ""), ("b", &["10.0.0.2/24"], ""), ("c", &["10.0.0.3/24"], "")]),
            "E72",
            &["10.0.0.0/24", "[[switch]]"],
        ),
        ("apart", topology(&[pair[0], pair[1], ("c", &["10.9.0.1/30"], "")]), "E75", &["\"c\""]),
        ("unknown", topology(&[("a", &["10.0.0.1/30"], "relai = true"), pair[1]]), "E61", &["relai", "\"relay\""]),
        ("prefix", topology(&[("a", &["10.0.0.1/33"], ""), pair[1]]), "E69", &["33"]),
    ];
    for (name, text, code, words) in cases {
        let file = File::new(name, &text);
        // given each file, when it is validated, or run on, then its fault is told with file and line
        for arguments in [vec!["topology", "validate", file.path()], vec!["sim", "run", "--topology", file.path()]] {
            let line = refused(&run(&arguments), code, words);
            assert!(line.contains(file.path()) && line.contains(" line "), "{line}");
        }
        // and when the plugin reads it, then by the plugin, and NCCL sees an error
        let ran = sim(&format!("--nodes 3 --env NCCL_MESH_TOPOLOGY={} --timeout 20", file.path()));
        refused(&ran, code, words);
    }
}

#[test]
fn all_faults_of_a_file_are_told_at_once() {
    let nodes = [("a", &["10.0.0.1/30"][..], "relai = 1"), ("a", &["10.0.0.1/30"], ""), ("c", &["10.9.0.1/40"], "")];
    let file = File::new("many", &topology(&nodes));
    let ran = run(&["topology", "validate", file.path()]);
    for code in ["E61", "E65", "E67", "E69"] {
        refused(&ran, code, &[]);
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for arguments in
        [&["topology", "validate", "/nonexistent.toml"][..], &["routes", "--topology", "/nonexistent.toml"]]
    {
        refused(&run(arguments), "E78", &["/nonexistent.toml", "No such file"]);
    }
    let ran = sim("--nodes 3 --env NCCL_MESH_TOPOLOGY=/nonexistent.toml --timeout 20");
    refused(&ran, "E78", &["/nonexistent.toml", "NCCL_MESH_TOPOLOGY"]);
}

#[test]
fn a_host_that_is_no_node_is_told_so() {
    // given a file of other hosts, and no name
    let file = File::new("others", &topology(&[("a", &["10.77.0.1/30"], ""), ("b", &["10.77.0.2/30"], "")]));
    let ran = sim(&format!("--nodes 3 --env NCCL_MESH_TOPOLOGY={} --env NCCL_MESH_NODE= --timeout 20", file.path()));
    refused(&ran, "E84", &[file.path(), "NCCL_MESH_NODE"]);
    // or a name that nobody has
    let ran = sim("--nodes 3 --env NCCL_MESH_NODE=nobody --timeout 20");
    refused(&ran, "E84", &["nobody", "node0", "node1", "node2"]);
}

/// Limits that make waiting short.
const SHORT: &str = "--env NCCL_MESH_CONNECT_TIMEOUT_SEC=3 --env NCCL_MESH_ACCEPT_TIMEOUT_SEC=5 --timeout 40";

#[test]
fn an_absent_rank_is_named_within_the_limit() {
    let plugin = plugin_file();
    let mut words = vec!["sim", "run", "--plugin", plugin.to_str().unwrap(), "--nodes", "4", "--sizes", "4K"];
    words.extend(SHORT.split(' '));
    words.extend(["--collective", "all-to-all", "--fault", "0 absent node2"]);
    let ran = run(&words);
    let line = refused(&ran, "E50", &["node2"]);
    assert!(line.contains("node node"), "{line}");
}

#[test]
fn an_absent_relay_is_named_within_the_limit() {
    // given a line whose third node has no rank, only relays, and never starts
    let plugin = plugin_file();
    let mut words = vec!["sim", "run", "--plugin", plugin.to_str().unwrap(), "--shape", "line", "--nodes", "4"];
    words.extend(SHORT.split(' '));
    words.extend(["--sizes", "4K", "--rank-order", "0,1,3", "--collective", "all-to-all", "--fault", "0 absent node2"]);
    refused(&run(&words), "E50", &["node2"]);
}

#[test]
fn a_node_that_may_not_relay_leaves_no_path_through_it() {
    let nodes = [
        ("left", &["10.0.0.1/30"][..], ""),
        ("middle", &["10.0.0.2/30", "10.0.0.5/30"], "relay = false"),
        ("right", &["10.0.0.6/30"], ""),
    ];
    let file = File::new("norelay", &topology(&nodes));
    // given a sound file: its owner is told what it means
    let ran = run(&["topology", "validate", file.path()]).ends(0);
    assert_eq!(ran.lines_with("note: no route for 1 pair, the first left-right").len(), 1, "{}", ran.told());
    // when ranks at its ends want to talk, then there is no path, and that is told at once
    let ran = sim(&format!("--topology {} --collective all-to-all {SHORT}", file.path()));
    refused(&ran, "E02", &["left", "right", "relay = false"]);
    // and neighbours do not mind
    sim(&format!("--topology {} --collective send-recv --rank-order left,middle --distance 1", file.path())).ends(0);
}

/// Runs `what` on every node of a pair.
fn on_nodes(what: &str) -> Ran {
    let program = std::env::current_exe().unwrap();
    let (plugin, asked) = (plugin_file(), format!("{TRY}={what}"));
    let mut words = vec!["sim", "run", "--shape", "line", "--nodes", "2", "--timeout", "40", "--env", &asked];
    if what == "second" {
        words.extend(["--env", "NCCL_MESH_DISCOVERY=0"]);
    }
    words.extend(["--plugin", plugin.to_str().unwrap(), "--", program.to_str().unwrap()]);
    words.extend(["--exact", "what_a_node_tries", "--ignored", "--nocapture", "--test-threads", "1"]);
    run(&words)
}

#[test]
fn strange_handles_are_refused_with_their_reason() {
    let ran = on_nodes("handles").ends(0);
    for (code, words) in [
        ("mesh[E43]", "install the same build"),
        ("mesh[E44]", "give all nodes the same file"),
        ("mesh[E86]", "set NCCL_NET=Mesh on all nodes"),
    ] {
        // Once a node, however often it was tried.
        assert!(ran.lines_with(code).iter().all(|line| line.contains(words)), "{}", ran.told());
        assert!(ran.lines_with(code).len() >= 2, "{code}: {}", ran.told());
    }
}

#[test]
fn without_discovery_a_second_process_for_one_node_is_told_who_is_in_its_way() {
    // With it the second is a guest of the first.
    let ran = on_nodes("second").ends(0);
    let lines = ran.lines_with("mesh[E55]");
    assert_eq!(lines.len(), 2, "{}", ran.told());
    assert!(lines.iter().all(|line| line.contains("is taken by another process")), "{}", ran.told());
}

fn open() -> (Plugin, Result<Ctx, mesh_abi::caller::CallError>) {
    let path = std::env::var("NCCL_NET_PLUGIN").expect("set by `nccl-mesh sim run`");
    let plugin = Plugin::open(path, 12).expect("the plugin opens");
    let ctx = plugin.init(1, -1, Some(to_stderr()));
    (plugin, ctx)
}

/// Connects with a handle that has this byte changed; the result must be that NCCL is to blame, and no comm.
fn connect_with(plugin: &Plugin, ctx: Ctx, handle: &[u8; HANDLE_BYTES], place: usize) {
    let mut handle = *handle;
    handle[place] ^= 0xFF;
    let error = plugin.connect(ctx, 0, &mut handle).expect_err("a strange handle");
    assert_eq!(error.code(), Some(NcclResult::InvalidUsage), "byte {place}: {error}");
}

#[test]
#[ignore = "the other tests run it, on a node of a fabric"]
fn what_a_node_tries() {
    let what = std::env::var(TRY).expect("run by another test");
    let (plugin, ctx) = open();
    if what == "refused" {
        // The second process of a node, see below.
        let error = ctx.expect_err("the node's address is taken");
        assert_eq!(error.code(), Some(NcclResult::SystemError), "{error}");
        assert_eq!(plugin.devices(), Ok(0));
        return;
    }
    let ctx = ctx.expect("init");
    match what.as_str() {
        "handles" => {
            let mut handle = [0; HANDLE_BYTES];
            let listen = plugin.listen(ctx, 0, &mut handle).expect("listen");
            // given a handle of ours with another first word, protocol, hash of the topology, and number of ports
            [0, 3, 4, 32, 39, 6].into_iter().for_each(|place| connect_with(&plugin, ctx, &handle, place));
            // and nothing at all
            let error = plugin.connect(ctx, 0, &mut [0; HANDLE_BYTES]).expect_err("no handle");
            assert_eq!(error.code(), Some(NcclResult::InvalidUsage), "{error}");
            plugin.close_listen(listen).expect("closeListen");
        }
        "second" => {
            let mut second = Command::new(std::env::current_exe().unwrap());
            second.args(["--exact", "what_a_node_tries", "--ignored", "--nocapture"]).env(TRY, "refused");
            assert!(second.status().unwrap().success());
        }
        other => panic!("unknown: {other}"),
    }
    plugin.finalize(ctx).expect("finalize");
}
