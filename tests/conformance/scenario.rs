//! A scenario: one test, run by all nodes of a fabric at once.
//!
//! The test's own process starts the nodes and judges how they ended. Each node is this program again, told by a variable which
//! scenario to run.

use std::io::Write;
use std::time::Duration;

use crate::common::{Ran, nccl_mesh_with, plugin_file};
use crate::node::Node;

/// Tells a node which scenario to run.
const VARIABLE: &str = "MESH_SCENARIO";
/// What a node says when it has come to the end.
const PASSED: &str = "scenario passed on rank";
/// Nothing here takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(60);

/// Where a scenario runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fabric {
    pub(crate) shape: &'static str,
    pub(crate) nodes: usize,
    /// Settings.
    pub(crate) env: &'static [&'static str],
    /// Ranks that end before the others, so that nobody waits for them.
    pub(crate) leaves: Option<usize>,
}

/// Four nodes in a row: rank 0 has a neighbour, a peer behind one relay, a peer behind two.
pub(crate) const LINE: Fabric = Fabric { shape: "line", nodes: 4, env: &[], leaves: None };

/// Declares a test that all nodes of a fabric run.
macro_rules! scenario {
    ($(#[$attribute:meta])* $name:ident on $fabric:expr, $body:expr) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            crate::scenario::run(concat!(module_path!(), "::", stringify!($name)), &$fabric, $body, |ran, fabric| {
                crate::scenario::all_passed(ran, fabric);
            });
        }
    };
    ($(#[$attribute:meta])* $name:ident on $fabric:expr, $body:expr, judged by $judge:expr) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            crate::scenario::run(concat!(module_path!(), "::", stringify!($name)), &$fabric, $body, $judge);
        }
    };
}
pub(crate) use scenario;

/// In a node: the scenario. Elsewhere: starts the nodes and judges.
pub(crate) fn run(path: &str, fabric: &Fabric, body: fn(&Node), judge: fn(&Ran, &Fabric)) {
    let (_, name) = path.split_once("::").expect("a module of this program");
    if std::env::var(VARIABLE).is_ok_and(|asked| asked == name) {
        return in_node(fabric, body);
    }
    let program = std::env::current_exe().unwrap();
    let (program, plugin) = (program.to_str().unwrap(), plugin_file());
    let nodes = fabric.nodes.to_string();
    let asked = format!("{VARIABLE}={name}");
    let seconds = LIMIT.as_secs().to_string();
    let mut arguments = vec!["sim", "run", "--shape", fabric.shape, "--nodes", &nodes, "--timeout", &seconds];
    arguments.extend(["--plugin", plugin.to_str().unwrap(), "--env", &asked]);
    for setting in fabric.env {
        arguments.extend(["--env", setting]);
    }
    arguments.extend(["--", program, "--exact", name, "--nocapture", "--test-threads", "1"]);
    let ran = nccl_mesh_with(&arguments, &[], LIMIT + Duration::from_secs(30)).leaves_nothing();
    judge(&ran, fabric);
}

fn in_node(fabric: &Fabric, body: fn(&Node)) {
    std::thread::spawn(|| {
        std::thread::sleep(LIMIT - Duration::from_secs(20));
        eprintln!("the scenario hangs");
        std::process::abort();
    });
    let node = Node::enter(12);
    let rank = node.rank;
    body(&node);
    let ranks: Vec<_> = (0..node.world).filter(|rank| fabric.leaves != Some(*rank)).collect();
    if fabric.leaves == Some(rank) {
        node.plugin.finalize(node.ctx).expect("finalize");
    } else {
        node.leave_with(&ranks);
    }
    // With one call, so that lines of nodes do not mix.
    std::io::stdout().lock().write_all(format!("\n{PASSED} {rank}\n").as_bytes()).unwrap();
}

/// The judge of scenarios that all nodes must pass.
#[track_caller]
pub(crate) fn all_passed(ran: &Ran, fabric: &Fabric) {
    assert_eq!(ran.status, Some(0), "{}", ran.told());
    passed(ran, 0..fabric.nodes);
}

/// Panics unless these ranks have passed.
#[track_caller]
pub(crate) fn passed(ran: &Ran, ranks: impl IntoIterator<Item = usize>) {
    for rank in ranks {
        let line = format!("{PASSED} {rank}");
        assert!(ran.stdout.lines().any(|told| told.ends_with(&line)), "rank {rank} has not passed: {}", ran.told());
    }
}
