//! A node without NCCL: the daemon that owns it, and a look at the mesh from its host.
//!
//! For the command `nccl-mesh`. Both wait; neither is called by NCCL's threads.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mesh_link::endpoint::Backend;
use mesh_relay::discovery::{Fault, NO_RANK};
use mesh_relay::node::{Claim, Mesh, NodeConfig};
use mesh_routing::{Policy, Problem, Topology};

use super::identity::Spec;
use super::{devices, node};
use crate::settings::{self, Settings};

/// Starts this host's node as a daemon, which answers and relays until the process ends.
///
/// # Errors
/// Why it cannot be, with its code and remedy.
pub fn daemon() -> Result<(), String> {
    let settings = settings::get();
    crate::log::install(std::env::var("NCCL_DEBUG").ok().as_deref(), settings.debug.max(1));
    for warning in settings::warnings() {
        tracing::warn!("{warning}");
    }
    // Relaxed: the node is started below, on this thread.
    node::DAEMON.store(true, Ordering::Relaxed);
    let node = node::start(None).map_err(|e| e.to_string())?;
    super::report::start(&node);
    Ok(())
}

/// Goes on relaying while others need it, at most for the set time; then the process may end.
pub fn drain() {
    super::drain();
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// Name of this node.
    pub name: String,
    /// Nodes, ports and links that all agree on. Its links are exactly the view's.
    pub topology: Topology,
    /// What is wrong with it as a topology.
    pub problems: Vec<Problem>,
    /// What is ambiguous, and left out: a line each, and whether something is wrong (a subnet that is no cable need not be).
    pub faults: Vec<(bool, String)>,
    /// Whether a process of this host owns the node; otherwise this look was a node of its own for a moment.
    pub owned: bool,
    /// How long it took until nothing changed any more.
    pub after: Duration,
}

/// How long the view must have been as it is.
const QUIET: Duration = Duration::from_millis(600);

/// Looks at the mesh: asks the process that owns this node, or else speaks to the neighbours itself, so long as nobody does. Waits until
/// nothing has changed for a while, at most `limit`.
///
/// # Errors
/// Why it cannot, with code and remedy.
pub fn look(limit: Duration) -> Result<Found, String> {
    let settings = settings::get();
    crate::log::install(std::env::var("NCCL_DEBUG").ok().as_deref(), settings.debug);
    let (spec, known) = Spec::of_host(settings).map_err(|e| e.to_string())?;
    let claim = Claim::take(&spec.name, &node::scope(settings)).map_err(|e| e.to_string())?;
    let owned = !claim.owns();
    let backend = backend(settings, &spec);
    let declared = known.as_ref().map(|known| &known.topology.node(known.me).ports[..]);
    let config = NodeConfig {
        id: spec.id,
        name: spec.name.clone(),
        relay: false,
        daemon: false,
        looks_only: true,
        ports: devices::describe(&spec.ports, &backend, declared.unwrap_or_default(), &spec.switches),
        port: settings.port,
        job: 0,
        rank: NO_RANK,
    };
    let began = Instant::now();
    let mesh = Mesh::start(config, claim, 0, Box::new(drop)).map_err(|e| e.to_string())?;
    // Alone is not what anybody expects: the others are waited for.
    let found = |mesh: &Mesh| mesh.generation() > 0 && mesh.quiet() >= QUIET && mesh.snapshot().view.nodes.len() > 1;
    while began.elapsed() < limit && !found(&mesh) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let snapshot = mesh.snapshot();
    let after = began.elapsed().saturating_sub(mesh.quiet());
    mesh.stop();
    let (topology, problems) = snapshot.view.topology(Policy::default());
    let wrong = |fault: &Fault| !matches!(fault, Fault::ThreeEnds { .. });
    let faults = snapshot.view.faults.iter().map(|fault| (wrong(fault), fault.to_string())).collect();
    Ok(Found { name: spec.name, topology, problems, faults, owned, after })
}

/// For labels and speeds alone: a look does not fail for want of RDMA.
fn backend(settings: &Settings, spec: &Spec) -> Backend {
    let addresses: Vec<_> = spec.ports.iter().map(|port| port.0).collect();
    devices::backend(settings, &spec.name, &addresses, None).unwrap_or(Backend::Tcp)
}
