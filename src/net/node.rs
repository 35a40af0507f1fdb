//! What this process is in the cluster: its ports, the topology it knows, the routes, the agent. Made at the first `init`, kept for ever.
//!
//! The agent outlives every communicator, since others may relay through this node. Any thread; nothing here is on the data path.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mesh_link::endpoint::Backend;
use mesh_link::netdev;
use mesh_link::tcp::{Keepalive, Limits};
use mesh_relay::agent::{Agent, AgentConfig, CoreChoice};
use mesh_relay::engine::{Config, MS};
use mesh_relay::send::Acks;
use mesh_relay::wire::HopAddr;
use mesh_routing::{NodeId, NodeSpec, Router, Topology};
use tracing::info;

use super::handle::Handle;
use super::{NetError, devices, window};
use crate::settings::{self, RelayCores, Settings};

/// A connection's way to its peer.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// One a leg; either all are single hops or none is.
    pub(crate) lanes: Vec<Vec<HopAddr>>,
    /// Rates of the lanes; only their ratios mean anything.
    pub(crate) weights: Vec<u32>,
    /// For people: `a - b - c`, or `a - b - c and a - d - c`.
    pub(crate) text: String,
}

/// Payload bytes this process has sent on connections of its own.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// To neighbours.
    pub(crate) direct: AtomicU64,
    /// Through relays.
    pub(crate) relayed: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) key: u64,
    pub(crate) settings: &'static Settings,
    pub(crate) agent: Agent,
    pub(crate) sent: Sent,
    backend: Backend,
    ports: Vec<(Ipv4Addr, u8)>,
    control: Vec<Ipv4Addr>,
    known: Option<Known>,
    /// Connections made so far, by peer: the next one takes the next of the equal routes.
    turns: Mutex<HashMap<u64, usize>>,
}

/// What a node is to be.
struct Spec {
    name: String,
    key: u64,
    relay: bool,
    ports: Vec<(Ipv4Addr, u8)>,
    control: Vec<Ipv4Addr>,
    traffic_class: Option<u8>,
}

#[derive(Debug)]
struct Known {
    topology: Topology,
    router: Router,
    me: NodeId,
    hash: u64,
}

impl Node {
    /// Reads settings and topology, starts the agent. `traffic_class` is NCCL's, if it names one.
    fn start(traffic_class: Option<u8>) -> Result<Self, NetError> {
        let settings = settings::get();
        let found = netdev::addresses()
            .map_err(|e| NetError::Start(format!("mesh[E83] the interfaces of this host cannot be listed: {e}")))?;
        let known = match &settings.topology {
            None => None,
            Some(path) => Some(Known::read(path, settings.node.as_deref(), &found)?),
        };
        let node = match &known {
            Some(k) => k.topology.node(k.me),
            None => return Self::without_topology(settings, &found, traffic_class),
        };
        let ports = node.ports.iter().map(|p| (p.address, p.prefix)).collect();
        let (name, key, relay) = (node.name.clone(), node.key, node.relay);
        let control = node.control.into_iter().collect();
        let spec = Spec { name, key, relay, ports, control, traffic_class };
        // Where all nodes are on one host, the other end of a cable is an interface of it too.
        let others =
            |address| known.as_ref().is_some_and(|k| k.topology.port_by_address(address).is_some_and(|p| p.0 != k.me));
        let own: Vec<_> = found.into_iter().filter(|a| !others(a.address)).collect();
        devices::warn_of_shared_subnet(&spec.name, &own, &spec.ports);
        Self::with(settings, spec, known)
    }

    /// Only neighbours can be reached: those whose handle names a port in one of our subnets.
    fn without_topology(
        settings: &'static Settings,
        found: &[netdev::Address],
        traffic_class: Option<u8>,
    ) -> Result<Self, NetError> {
        let ports: Vec<_> = found.iter().filter(|a| !a.address.is_loopback()).map(|a| (a.address, a.prefix)).collect();
        if ports.is_empty() {
            return Err(NetError::NoPorts);
        }
        let read =
            |path| std::fs::read_to_string(path).ok().map(|s: String| s.trim().to_owned()).filter(|s| !s.is_empty());
        let host = read("/proc/sys/kernel/hostname").unwrap_or_else(|| ports[0].0.to_string());
        let name = settings.node.clone().unwrap_or(host);
        let spec = NodeSpec { id: read("/etc/machine-id"), ..NodeSpec::new(&name) };
        info!("mesh[I02] node {name}: no topology file (NCCL_MESH_TOPOLOGY): only neighbours can be reached");
        let ports = devices::usable(settings, &name, found, ports)?;
        let spec = Spec { name, key: spec.key(), relay: true, ports, control: Vec::new(), traffic_class };
        Self::with(settings, spec, None)
    }

    fn with(settings: &'static Settings, spec: Spec, known: Option<Known>) -> Result<Self, NetError> {
        let Spec { name, key, relay, ports, control, traffic_class } = spec;
        let engine = Config {
            node: key,
            name: name.clone(),
            addresses: ports.iter().map(|p| p.0).collect(),
            relay,
            chunk: settings.chunk as u32,
            pool_slots: 0,
            entry_slots: 0,
            trunk_slots: 0,
            classes: known.as_ref().map_or(0, Known::classes),
            hello: settings.step_timeout.as_nanos() as u64,
            retry: if settings.fast_fail { 20 * MS } else { 50 * MS },
            strangers: 256,
            // The agent knows its links.
            acks: Acks::Receiver,
            ignore_classes: false,
        };
        let pool_slots = (settings.relay_memory as u64 / u64::from(engine.stride())).clamp(1, 1 << 20) as u32;
        // Without a topology nobody can ask us to relay.
        let pool_slots = if known.is_some() && relay { pool_slots } else { 1 };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let backend = devices::backend(settings, &name, &engine.addresses, traffic_class)?;
        let speed = speed(settings, known.as_ref(), &backend, Iterator::max);
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
            prefixes: ports.iter().map(|p| p.1).collect(),
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
        let agent = Agent::start(config).map_err(|e| NetError::Start(e.to_string()))?;
        info!(
            "mesh[I03] node {name}: ports {}; {} links, agents on TCP port {}; relay memory {memory} MiB (limit, never grows): chunks of {} KiB, \
             {entry_slots} slots a lane, {trunk_slots} a trunk and class, for {speed} Mbit/s",
            list(&ports),
            backend.name(),
            settings.port,
            settings.chunk >> 10,
        );
        devices::tell(&name, &backend, known.as_ref().map_or(&[], |k| &k.topology.node(k.me).ports));
        Ok(Self {
            name,
            key,
            settings,
            agent,
            sent: Sent::default(),
            backend,
            ports,
            control,
            known,
            turns: Mutex::default(),
        })
    }

    /// What carries this node's links.
    pub(crate) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// A handle for a listener with this token.
    pub(crate) fn handle(&self, token: [u8; 16]) -> Handle {
        Handle {
            token,
            node: self.key,
            topology: self.known.as_ref().map_or(0, |k| k.hash),
            port: self.settings.port,
            ports: self.ports.clone(),
            control: self.control.clone(),
        }
    }

    /// What people call the node of a handle.
    pub(crate) fn name_of(&self, handle: &Handle) -> String {
        let known =
            self.known.as_ref().and_then(|k| Some(k.topology.node(k.topology.node_by_key(handle.node)?).name.clone()));
        known.unwrap_or_else(|| handle.ports.first().map_or_else(|| "?".into(), |p| p.0.to_string()))
    }

    /// The node, or a port of it, that a leg comes from.
    pub(crate) fn name_of_port(&self, address: Ipv4Addr) -> String {
        let known = self
            .known
            .as_ref()
            .and_then(|k| Some(k.topology.node(k.topology.port_by_address(address)?.0).name.clone()));
        known.unwrap_or_else(|| address.to_string())
    }

    /// The way of a new connection to a handle: over all rails if it is a neighbour, else by the equal routes that share no link, the next
    /// of them first.
    pub(crate) fn way_to(&self, handle: &Handle) -> Result<Way, NetError> {
        let peer = self.name_of(handle);
        let ours = self.known.as_ref().map_or(0, |k| k.hash);
        if ours != 0 && handle.topology != 0 && ours != handle.topology {
            return Err(NetError::OtherTopology { node: self.name.clone(), peer });
        }
        if handle.node == self.key {
            let own = self.ports.first().map_or(Ipv4Addr::LOCALHOST, |p| p.0);
            return Ok(self.way(vec![vec![HopAddr { from: own, to: own }]], self.name.clone()));
        }
        let lanes = self.neighbour_lanes(handle);
        if !lanes.is_empty() {
            return Ok(self.way(lanes, format!("{} - {peer}", self.name)));
        }
        self.relayed(handle, &peer)
    }

    fn neighbour_lanes(&self, handle: &Handle) -> Vec<Vec<HopAddr>> {
        let shares = |a: Ipv4Addr, b: Ipv4Addr, prefix: u8| {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            (u32::from(a) ^ u32::from(b)) & mask == 0
        };
        let mut lanes = Vec::new();
        for &(own, prefix) in &self.ports {
            let theirs = handle.ports.iter().find(|(a, p)| *p == prefix && shares(own, *a, prefix));
            if let Some(&(to, _)) = theirs
                && lanes.len() < self.settings.lanes
            {
                lanes.push(vec![HopAddr { from: own, to }]);
            }
        }
        lanes
    }

    fn relayed(&self, handle: &Handle, peer: &str) -> Result<Way, NetError> {
        let no_path = |hint| NetError::NoPath {
            node: self.name.clone(),
            peer: peer.to_owned(),
            own: list(&self.ports),
            theirs: list(&handle.ports),
            hint,
        };
        let Some(known) = &self.known else {
            return Err(no_path(
                "they share no subnet, and without a topology file (NCCL_MESH_TOPOLOGY) no relay can be found",
            ));
        };
        let to =
            known.topology.node_by_key(handle.node).ok_or_else(|| no_path("the peer is not in the topology file"))?;
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = turns.entry(handle.node).or_default();
            *turn += 1;
            *turn - 1
        };
        let found = known.router.lanes_apart(known.me, to, turn, self.settings.lanes);
        if found.is_empty() {
            return Err(no_path(
                "no sequence of cables between nodes that relay leads there (relay = false, max_relays, or a cable out)",
            ));
        }
        let mut texts: Vec<String> = Vec::new();
        let mut lanes = Vec::new();
        for (route, lane) in &found {
            let names: Vec<_> = route.nodes().iter().map(|n| known.topology.name(*n)).collect();
            let text = names.join(" - ");
            if texts.last() != Some(&text) {
                texts.push(text);
            }
            lanes.push(lane.hops.iter().map(|h| HopAddr::new(h.from, h.to)).collect());
        }
        Ok(self.way(lanes, texts.join(" and ")))
    }

    fn way(&self, lanes: Vec<Vec<HopAddr>>, text: String) -> Way {
        let speed = |hop: &HopAddr| {
            let topology = &self.known.as_ref()?.topology;
            topology.link(topology.link_between(hop.from, hop.to)?).speed_mbps
        };
        // A lane is as fast as its slowest link; where one is unknown, all count the same.
        let slowest = |hops: &Vec<HopAddr>| hops.iter().map(speed).collect::<Option<Vec<_>>>()?.into_iter().min();
        let weights = lanes.iter().map(slowest).collect::<Option<Vec<_>>>().unwrap_or_else(|| vec![1; lanes.len()]);
        Way { lanes, weights, text }
    }

    /// Mbit/s of the slowest link of this node: as set, as its RDMA ports say, as the topology says, or what is usual.
    pub(crate) fn speed_mbps(&self) -> i32 {
        speed(self.settings, self.known.as_ref(), &self.backend, Iterator::min).min(i32::MAX as u32) as i32
    }

    /// Adds to what was sent.
    pub(crate) fn count_sent(&self, relayed: bool, bytes: u64) {
        let counter = if relayed { &self.sent.relayed } else { &self.sent.direct };
        // Relaxed: a statistic, read on its own.
        counter.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Known {
    fn read(path: &std::path::Path, name: Option<&str>, found: &[netdev::Address]) -> Result<Self, NetError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| NetError::TopologyFile { path: path.to_owned(), why: e.to_string() })?;
        let topology = Topology::from_toml(&text).map_err(|problems| NetError::Topology {
            problems: problems.iter().map(|p| format!("{p} ({})", path.display())).collect::<Vec<_>>().join("\n"),
        })?;
        let me = match name {
            Some(name) => topology.node_by_name(name).ok_or_else(|| NetError::NoSuchNode {
                name: name.to_owned(),
                path: path.to_owned(),
                nodes: topology.nodes().iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", "),
            })?,
            None => {
                let mine = found.iter().filter(|a| !a.address.is_loopback());
                mine.clone().find_map(|a| topology.port_by_address(a.address)).map(|(node, _)| node).ok_or_else(
                    || NetError::NotInTopology {
                        path: path.to_owned(),
                        addresses: list(&mine.map(|a| (a.address, a.prefix)).collect::<Vec<_>>()),
                    },
                )?
            }
        };
        let (router, hash) = (Router::new(&topology), topology.hash());
        Ok(Self { topology, router, me, hash })
    }

    /// Classes that trunks need: one less than the relays of the longest route.
    fn classes(&self) -> u8 {
        let nodes = self.topology.nodes();
        let longest = nodes.iter().flat_map(|to| self.router.distances(to.id)).flatten().max().unwrap_or(0);
        longest.saturating_sub(2).clamp(1, 30) as u8
    }
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

/// Sizes and times of the sockets.
fn limits(settings: &Settings) -> Limits {
    let buffer = settings.socket_buffer;
    let unit = settings.health_check_interval / if settings.fast_fail { 3 } else { 1 };
    let second = Duration::from_secs(1);
    Limits {
        send_buffer: buffer,
        receive_buffer: buffer,
        // A peer that is stopped, or whose cable is out, is noticed by this and not before.
        user_timeout: Some(settings.timeout),
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
        None => Ok(Arc::clone(node.insert(Arc::new(Node::start(traffic_class)?)))),
    }
}

/// The node, if it was started.
pub(crate) fn get() -> Option<Arc<Node>> {
    NODE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
