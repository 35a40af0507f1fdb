//! What this process is in the cluster: its ports, its agent, its place among the processes of its host. Made at the first `init`, kept for
//! ever. What it knows of the others is `mesh`'s, the way to them `way`'s.
//!
//! The agent outlives every communicator, since others may relay through this node. Any thread; nothing here is on the data path.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mesh_link::endpoint::Backend;
use mesh_link::tcp::{Keepalive, Limits};
use mesh_relay::agent::{Agent, AgentConfig, AgentError, CoreChoice, Listeners};
use mesh_relay::discovery::{NO_RANK, key_of};
use mesh_relay::engine::{Config, MS};
use mesh_relay::node::{Claim, Mesh, NodeConfig, Scope};
use mesh_relay::send::Acks;
use tracing::info;

use super::handle::Handle;
use super::identity::Spec;
use super::mesh::{Knowledge, Known, Verdict};
use super::register::Register;
use super::{NetError, devices, job, status, watch, window};
use crate::settings::{self, RelayCores, Settings};

/// Classes of trunks where no file says how long routes are: enough for seven relays.
const FOUND_CLASSES: u8 = 6;

/// Whether this process is a daemon; set before the node starts, relaxed as nothing else hangs on it.
pub(crate) static DAEMON: AtomicBool = AtomicBool::new(false);

/// See the module.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) key: u64,
    pub(crate) settings: &'static Settings,
    pub(crate) agent: Agent,
    /// Its connections, and what they have sent.
    pub(super) connections: Arc<Register>,
    /// Stable id.
    pub(super) id: String,
    /// The name that all processes of the node share, if they find one another.
    pub(super) scope: Option<Scope>,
    pub(super) since: Instant,
    backend: Backend,
    pub(super) ports: Vec<(Ipv4Addr, u8)>,
    control: Vec<Ipv4Addr>,
    /// TCP port of this process's agent.
    pub(super) answers: u16,
    pub(super) knowledge: Knowledge,
    /// The job of this process, 0 if that is not known.
    pub(super) job: u32,
    /// Its rank there, if that is known.
    pub(super) rank: Option<u16>,
    /// Connections made so far, by peer: the next one takes the next of the equal routes.
    pub(super) turns: Mutex<HashMap<u64, usize>>,
}

impl Node {
    /// Reads settings and topology, starts the agent. `traffic_class` is NCCL's, if it names one.
    fn start(traffic_class: Option<u8>) -> Result<Self, NetError> {
        let settings = settings::get();
        let (spec, known) = Spec::of_host(settings)?;
        Self::with(settings, spec, known.map(Arc::new), traffic_class)
    }

    fn with(
        settings: &'static Settings,
        spec: Spec,
        known: Option<Arc<Known>>,
        traffic_class: Option<u8>,
    ) -> Result<Self, NetError> {
        let Spec { name, id, relay, ports, switches, control } = spec;
        let key = key_of(&id);
        // Devices come first: what they lack is the better reason, where an address cannot be listened on either.
        let addresses: Vec<_> = ports.iter().map(|port| port.0).collect();
        let backend = devices::backend(settings, &name, &addresses, traffic_class)?;
        let start = |e: AgentError| NetError::Start(e.to_string());
        let scope = settings.discovery.then(|| scope(settings));
        let claim = scope.as_ref().map(|scope| Claim::take(&name, scope)).transpose().map_err(start)?;
        let listeners = match &claim {
            Some(claim) => claim.listeners(&name, &ports, settings.port),
            None => Listeners::open(&name, &ports, settings.port),
        }
        .map_err(start)?;
        let answers = listeners.port();
        let alone = known.is_none() && claim.is_none();
        let engine = Config {
            node: key,
            name: name.clone(),
            addresses: ports.iter().map(|p| p.0).collect(),
            relay,
            chunk: settings.chunk as u32,
            pool_slots: 0,
            entry_slots: 0,
            trunk_slots: 0,
            classes: match &known {
                Some(known) => known.classes(),
                None if alone => 0,
                None => FOUND_CLASSES,
            },
            hello: settings.step_timeout.as_nanos() as u64,
            retry: if settings.fast_fail { 20 * MS } else { 50 * MS },
            strangers: 256,
            // The agent knows its links.
            acks: Acks::Receiver,
            ignore_classes: false,
        };
        let pool_slots = (settings.relay_memory as u64 / u64::from(engine.stride())).clamp(1, 1 << 20) as u32;
        // Where no routes are known nobody can ask us to relay.
        let pool_slots = if relay && !alone { pool_slots } else { 1 };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let speed = speed(settings, known.as_deref(), &backend, Iterator::max);
        let slots = |set: Option<usize>, own: fn(u32, u64) -> u16| {
            // The cast is exact: settings are bounded.
            set.map_or_else(|| own(speed, settings.chunk as u64), |slots| slots as u16)
        };
        let entry_slots = slots(settings.relay_slots, window::entry_slots);
        let trunk_slots = slots(settings.trunk_slots, window::trunk_slots);
        let config = AgentConfig {
            backend: backend.clone(),
            engine: Config { pool_slots, entry_slots, trunk_slots, ..engine },
            port: settings.port,
            limits: limits(settings),
            spin: settings.spin_on(cores),
            core: match &settings.relay_cores {
                RelayCores::Auto => CoreChoice::Auto,
                RelayCores::Unpinned => CoreChoice::None,
                RelayCores::List(list) => CoreChoice::List(list.clone()),
            },
            linger: Duration::from_secs(5),
        };
        let memory = (u64::from(pool_slots) * u64::from(config.engine.stride())) >> 20;
        let agent = Agent::start(config, listeners).map_err(start)?;
        info!(
            "mesh[I03] node {name}: ports {}; {} links on {}; relay memory {memory} MiB (limit, never grows): chunks of {} KiB, \
             {entry_slots} slots a lane, {trunk_slots} a trunk and class, for {speed} Mbit/s",
            list(&ports),
            backend.name(),
            if answers == settings.port {
                format!("TCP port {answers}")
            } else {
                format!("TCP port {answers} (another process owns this node on port {})", settings.port)
            },
            settings.chunk >> 10,
        );
        devices::tell(&name, &backend, known.as_ref().map_or(&[], |k| &k.topology.node(k.me).ports));
        let (job, (rank, _)) = (job::number(settings.job.as_deref()), job::rank());
        let verdict = Verdict::default();
        let mesh = match claim {
            None => None,
            Some(claim) => {
                let declared = known.as_ref().map(|k| &k.topology.node(k.me).ports[..]);
                let config = NodeConfig {
                    id: id.clone(),
                    name: name.clone(),
                    relay,
                    daemon: DAEMON.load(Ordering::Relaxed),
                    looks_only: false,
                    ports: devices::describe(&ports, &backend, declared.unwrap_or_default(), &switches),
                    port: settings.port,
                    job,
                    rank,
                };
                let serving = agent.clone();
                let serve = Box::new(move |listeners| serving.serve(listeners));
                let mesh = Mesh::start(config, claim, answers, serve).map_err(start)?;
                watch::start(watch::Watch {
                    node: name.clone(),
                    mesh: mesh.clone(),
                    declared: known.clone(),
                    verdict: verdict.clone(),
                    job,
                });
                Some(mesh)
            }
        };
        Ok(Self {
            name,
            key,
            settings,
            agent,
            connections: Arc::default(),
            id,
            scope,
            since: Instant::now(),
            backend,
            ports,
            control,
            knowledge: Knowledge::new(key, known, mesh, verdict),
            job,
            rank: (rank != NO_RANK).then_some(rank),
            answers,
            turns: Mutex::default(),
        })
    }

    /// What carries this node's links.
    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// This node's ports, without those that are known to be down; all, if all are.
    pub(super) fn ports_up(&self) -> Vec<(Ipv4Addr, u8)> {
        let up: Vec<_> = self.ports.iter().filter(|port| !devices::is_down(&self.backend, port.0)).copied().collect();
        if up.is_empty() { self.ports.clone() } else { up }
    }

    /// A handle for a listener with this token. It names no port that is down, so nobody tries to connect to it.
    pub(crate) fn handle(&self, token: [u8; 16]) -> Handle {
        Handle {
            token,
            node: self.key,
            topology: self.knowledge.declared().map_or(0, |k| k.hash),
            port: self.answers,
            ports: self.ports_up(),
            control: self.control.clone(),
        }
    }

    /// What people call the node of a handle.
    pub(crate) fn name_of(&self, handle: &Handle) -> String {
        let known = self.knowledge.now();
        let known = known.and_then(|k| Some(k.topology.node(k.topology.node_by_key(handle.node)?).name.clone()));
        known.unwrap_or_else(|| handle.ports.first().map_or_else(|| "?".into(), |p| p.0.to_string()))
    }

    /// The node, or a port of it, that a leg comes from.
    pub(crate) fn name_of_port(&self, address: Ipv4Addr) -> String {
        if self.ports.iter().any(|port| port.0 == address) {
            return self.name.clone();
        }
        let known = self.knowledge.now();
        let known = known.and_then(|k| Some(k.topology.node(k.topology.port_by_address(address)?.0).name.clone()));
        known.unwrap_or_else(|| address.to_string())
    }

    /// Mbit/s of the slowest link of this node: as set, as its RDMA ports say, as the topology says, or what is usual.
    pub(crate) fn speed_mbps(&self) -> i32 {
        speed(self.settings, self.knowledge.now().as_deref(), &self.backend, Iterator::min).min(i32::MAX as u32) as i32
    }
}

/// The name that the processes of this host's node share.
pub(super) fn scope(settings: &Settings) -> Scope {
    Scope::new(settings.port, settings.node.as_deref(), settings.cluster.as_deref())
}

/// Mbit/s of the links of a node, the one that `pick` picks: as set, as its RDMA ports say, as the topology says, or what is usual.
fn speed(
    settings: &Settings,
    known: Option<&Known>,
    backend: &Backend,
    pick: fn(std::vec::IntoIter<u32>) -> Option<u32>,
) -> u32 {
    let from_links = || {
        let known = known?;
        let links = known.topology.links_of_node(known.me).iter();
        let speeds: Vec<_> = links.filter_map(|link| known.topology.link(*link).speed_mbps).collect();
        pick(speeds.into_iter())
    };
    settings
        .speed_mbps
        .or_else(|| pick(devices::speeds(backend).into_iter()))
        .or_else(from_links)
        .unwrap_or(mesh_routing::USUAL_MBPS)
}

/// With `NCCL_MESH_FAST_FAIL`: how long what was sent over a socket may go unanswered by the peer's kernel.
const FAST: Duration = Duration::from_secs(5);

/// Sizes and times of the sockets.
fn limits(settings: &Settings) -> Limits {
    let buffer = settings.socket_buffer;
    let unit = settings.health_check_interval / if settings.fast_fail { 3 } else { 1 };
    let second = Duration::from_secs(1);
    Limits {
        send_buffer: buffer,
        receive_buffer: buffer,
        // A peer that is stopped, or whose cable is out, is noticed by this and not before.
        user_timeout: Some(if settings.fast_fail { settings.timeout.min(FAST) } else { settings.timeout }),
        keepalive: Some(Keepalive { idle: (unit * 10).max(second), interval: (unit * 3).max(second), count: 5 }),
        ..Limits::default()
    }
}

pub(super) fn list(ports: &[(Ipv4Addr, u8)]) -> String {
    if ports.is_empty() {
        return "none".into();
    }
    ports.iter().map(|(a, p)| format!("{a}/{p}")).collect::<Vec<_>>().join(", ")
}

/// Keeps the node for the process.
static NODE: Mutex<Option<Arc<Node>>> = Mutex::new(None);

/// The node, started if it is not yet.
pub(crate) fn start(traffic_class: Option<u8>) -> Result<Arc<Node>, NetError> {
    let mut node = NODE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*node {
        Some(node) => Ok(Arc::clone(node)),
        None => {
            let started = Arc::clone(node.insert(Arc::new(Node::start(traffic_class)?)));
            status::start(&started);
            Ok(started)
        }
    }
}

/// The node, if it was started.
pub(crate) fn get() -> Option<Arc<Node>> {
    NODE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
