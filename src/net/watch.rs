//! What is said once at the start of a job, when the nodes have found one another: how they differ from the topology file, and whether
//! another order of the ranks would be better.
//!
//! A thread of its own, `mesh-watch`, which looks a few times a second and ends when it has said all. Nothing waits for it but connections
//! whose file says that differences are to be refused.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mesh_relay::discovery::{AdvertPort, View, ViewNode};
use mesh_relay::node::Mesh;

use mesh_routing::{Advice, Differences, NodeId, NodeSpec, Policy, PortSpec, Topology, advice, compare_cables};
use tracing::{info, warn};

use super::job;
use super::mesh::{Known, Verdict};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// How long nothing must have changed.
const QUIET: Duration = Duration::from_millis(500);
/// How long the file's nodes are waited for.
const NODES: Duration = Duration::from_secs(10);
/// How long the job's ranks are waited for.
const RANKS: Duration = Duration::from_secs(120);

/// What there is to look at.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) node: String,
    pub(super) mesh: Mesh,
    pub(super) declared: Option<Arc<Known>>,
    pub(super) verdict: Verdict,
    pub(super) job: u32,
}

/// Starts the thread, if there is anything to be said.
pub(super) fn start(watch: Watch) {
    let wants_contract = watch.declared.as_ref().is_some_and(|known| differences(known) != Differences::Ignore);
    if !wants_contract {
        watch.verdict.give(None);
    }
    // The first rank speaks for all.
    let ranks = job::rank();
    let ranks = (watch.job != 0 && ranks.0 == 0).then_some(ranks.1).flatten().filter(|size| *size > 2);
    if !wants_contract && ranks.is_none() {
        return;
    }
    let verdict = watch.verdict.clone();
    let work = move || run(&watch, wants_contract, ranks);
    if let Err(e) = std::thread::Builder::new().name("mesh-watch".into()).spawn(work) {
        warn!("mesh[W83] no thread to compare the topology file with what is found: {e}");
        verdict.give(None);
    }
}

fn differences(known: &Known) -> Differences {
    known.topology.policy().differences
}

fn run(watch: &Watch, mut contract: bool, mut ranks: Option<usize>) {
    let began = Instant::now();
    while contract || ranks.is_some() {
        std::thread::sleep(LOOK);
        let quiet = watch.mesh.generation() > 0 && watch.mesh.quiet() >= QUIET;
        let snapshot = watch.mesh.snapshot();
        if contract && let Some(declared) = &watch.declared {
            let all = declared.topology.nodes().iter().all(|node| snapshot.view.nodes.contains_key(&node.key));
            if quiet && all || began.elapsed() >= NODES {
                contract = false;
                check(watch, declared, &snapshot.view);
            }
        }
        if let Some(size) = ranks {
            let nodes = ranks_of(&snapshot.view, watch.job, size);
            if nodes.is_some() || began.elapsed() >= RANKS {
                ranks = None;
                let declared = watch.declared.as_ref().map(|known| &known.topology);
                if let Some(better) = nodes.and_then(|nodes| order(&snapshot.view, declared, &nodes)) {
                    // A warning: nothing is wrong, but who does not see it loses a good part of the speed.
                    warn!("mesh[W77] node {}: {better}", watch.node);
                }
            }
        }
    }
}

/// Compares, says every difference in a line, and gives the verdict.
fn check(watch: &Watch, declared: &Known, view: &View) {
    let (found, cables) = found(view);
    let all = compare_cables(&declared.topology, &found, &cables);
    for difference in &all {
        warn!("mesh[W76] node {}: {difference}", watch.node);
    }
    let refused = !all.is_empty() && differences(declared) == Differences::Refuse;
    watch.verdict.give(refused.then(|| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")));
    if all.is_empty() {
        info!("mesh[I11] node {}: what is found is what the topology file says", watch.node);
    }
}

/// All nodes of a view with all their ports, those without a cable too, and the cables.
fn found(view: &View) -> (Topology, Vec<[Ipv4Addr; 2]>) {
    let known = |value: u32| (value > 0).then_some(value);
    let port = |port: &AdvertPort| PortSpec {
        speed_mbps: known(port.speed_mbps),
        mtu: known(port.mtu),
        ..PortSpec::new(port.device.clone(), port.address, port.prefix)
    };
    let node = |node: &ViewNode| NodeSpec {
        id: Some(node.id.clone()),
        relay: node.relay,
        ports: node.ports.iter().map(port).collect(),
        ..NodeSpec::new(&node.name)
    };
    // Its problems are the differences', or have been said by discovery.
    let (topology, _) = Topology::discovered(view.nodes.values().map(node).collect(), Vec::new(), Policy::default());
    (topology, view.links.iter().map(|[a, b]| [a.address, b.address]).collect())
}

/// Keys of the nodes of a job's ranks, in order, once all are known.
fn ranks_of(view: &View, job: u32, size: usize) -> Option<Vec<u64>> {
    let mut nodes = BTreeMap::new();
    for (key, node) in &view.nodes {
        for agent in node.agents.iter().filter(|agent| agent.job == job) {
            nodes.insert(usize::from(agent.rank), *key);
        }
    }
    (0..size).map(|rank| nodes.get(&rank).copied()).collect()
}

fn order(view: &View, declared: Option<&Topology>, keys: &[u64]) -> Option<Advice> {
    let found;
    let topology = match declared {
        Some(topology) => topology,
        None => {
            found = view.topology(Policy::default()).0;
            &found
        }
    };
    let nodes: Option<Vec<NodeId>> = keys.iter().map(|key| topology.node_by_key(*key)).collect();
    advice(topology, &nodes?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_relay::discovery::AgentAt;

    fn node(name: &str, agents: &[(u32, u16)]) -> (u64, ViewNode) {
        let agents = agents.iter().map(|&(job, rank)| AgentAt { port: 1, job, rank }).collect();
        let node = ViewNode {
            id: name.into(),
            name: name.into(),
            relay: true,
            daemon: false,
            agents,
            features: 0,
            ports: Vec::new(),
        };
        (mesh_relay::discovery::key_of(name), node)
    }

    #[test]
    fn the_ranks_of_a_job_are_known_when_all_of_them_are() {
        // given two jobs on three nodes, one of which has two ranks of the first
        let mut view = View::default();
        view.nodes.extend([node("a", &[(7, 0), (7, 3)]), node("b", &[(7, 2), (9, 0)])]);
        let [a, b, c] = ["a", "b", "c"].map(mesh_relay::discovery::key_of);
        // then the first is not whole while a rank is missing
        assert_eq!(ranks_of(&view, 7, 4), None);
        assert_eq!(ranks_of(&view, 9, 1), Some(vec![b]));
        view.nodes.extend([node("c", &[(7, 1)])]);
        assert_eq!(ranks_of(&view, 7, 4), Some(vec![a, c, b, a]));
        assert_eq!(ranks_of(&view, 7, 5), None);
    }
}
