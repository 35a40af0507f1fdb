//! The world: how it is built, and the loop that takes the next event.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use mesh_relay::engine::{Config, DialId, MS, Time};
use mesh_relay::wire::{HopAddr, MAX_LANES};
use mesh_routing::{NodeId, Route, Router, Topology};

use super::ends::Conn;
use super::nodes::{Life, Node};
use super::pipe::{Pipe, PipeEnd, Write};
use super::turns::{Link, Turns};
use super::{ConnSpec, Failure, Physics, Rng, Summary, Who};

/// Something that happens at a time.
#[derive(Debug)]
pub(super) enum What {
    Message { to: PipeEnd, bytes: Vec<u8> },
    Land { to: PipeEnd, write: Write },
    Written { end: PipeEnd, id: u64 },
    Turn { link: Link },
    Down { end: PipeEnd },
    Dialed { node: usize, dial: DialId, from: Ipv4Addr, to: Ipv4Addr },
    Wake { node: usize },
    Open { conn: usize },
    Poke { conn: usize, by: Who },
    Close { conn: usize, by: Who, at_once: bool },
    Unlisten { conn: usize },
    Kill { node: usize },
    Start { node: usize },
}

/// A fabric with its users. See the module.
#[derive(Debug)]
pub struct World {
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) physics: Physics,
    pub(super) nodes: Vec<Node>,
    pub(super) pipes: Vec<Pipe>,
    pub(super) conns: Vec<Conn>,
    pub(super) next_key: u32,
    /// When each direction of each link is free again.
    pub(super) busy: BTreeMap<Link, Time>,
    /// What waits for its turn on each direction of each link.
    pub(super) turns: BTreeMap<Link, Turns>,
    /// Directions between nodes that are slower than the rest, by this factor.
    pub(super) slow: BTreeMap<(usize, usize), u64>,
    pub(super) steps: u64,
    pub(super) fault: Option<String>,
    pub(super) ports: BTreeMap<Ipv4Addr, usize>,
    router: Router,
    events: BTreeMap<(Time, u64), What>,
    order: u64,
    digest: u64,
    trace: bool,
}

impl World {
    /// Every node of a topology, up from the beginning, with what `tweak` makes of its configuration.
    pub fn new(topology: &Topology, physics: Physics, seed: u64, mut tweak: impl FnMut(usize, &mut Config)) -> Self {
        let mut ports = BTreeMap::new();
        let mut nodes = Vec::new();
        for (index, node) in topology.nodes().iter().enumerate() {
            let addresses: Vec<_> = node.ports.iter().map(|p| p.address).collect();
            ports.extend(addresses.iter().map(|a| (*a, index)));
            let mut config = Config {
                node: node.key,
                name: node.name.clone(),
                addresses,
                relay: node.relay,
                chunk: 512,
                pool_slots: 512,
                entry_slots: 4,
                trunk_slots: 8,
                classes: 3,
                hello: 5000 * MS,
                retry: 20 * MS,
                strangers: 64,
                acks: physics.acks,
                ignore_classes: false,
            };
            tweak(index, &mut config);
            nodes.push(Node::new(config));
        }
        Self {
            now: 0,
            rng: Rng::new(seed),
            physics,
            nodes,
            pipes: Vec::new(),
            conns: Vec::new(),
            next_key: 0,
            busy: BTreeMap::new(),
            turns: BTreeMap::new(),
            slow: BTreeMap::new(),
            steps: 0,
            fault: None,
            ports,
            router: Router::new(topology),
            events: BTreeMap::new(),
            order: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            trace: std::env::var_os("MESH_SIM_TRACE").is_some(),
        }
    }

    /// The generator of the run, for choices of the caller that are to depend on the seed.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// The node is not there before `from`, or never if that is `None`.
    pub fn absent(&mut self, node: usize, from: Option<Time>) {
        self.nodes[node].life = Life::Absent;
        if let Some(at) = from {
            self.schedule(at, What::Start { node });
        }
    }

    /// The node dies at a time: its legs break, its memory is gone.
    pub fn kill(&mut self, node: usize, at: Time) {
        self.schedule(at, What::Kill { node });
    }

    /// What goes from one node to a neighbour takes `factor` times as long to leave.
    pub fn slow_down(&mut self, from: usize, to: usize, factor: u64) {
        self.slow.insert((from, to), factor);
    }

    /// Adds a connection, which opens when its specification says. Routes are the router's; answers `false` if there is none.
    pub fn add(&mut self, spec: ConnSpec) -> bool {
        let (from, to) = (NodeId(spec.from as u16), NodeId(spec.to as u16));
        let lanes = self.router.lanes_apart(from, to, spec.nth, spec.lanes.clamp(1, MAX_LANES));
        let Some((route, _)) = lanes.first().cloned() else { return false };
        let hops = lanes.iter().map(|(_, l)| l.hops.iter().map(|h| HopAddr::new(h.from, h.to)).collect()).collect();
        let on = |route: &Route| route.nodes().iter().map(|n| n.index()).collect::<Vec<_>>();
        let mut nodes: Vec<_> = lanes.iter().flat_map(|(route, _)| on(route)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let conn = self.conns.len();
        let (open_at, unlisten_at, closing) = (spec.open_at, spec.unlisten_at, spec.closing);
        let token = self.rng.sixteen();
        let name = self.rng.sixteen();
        let to = spec.to;
        self.conns.push(Conn::new(spec, token, name, hops, (on(&route), nodes)));
        if self.nodes[to].life == Life::Up {
            self.nodes[to].engine.listen(token, conn as u64);
        }
        self.schedule(open_at, What::Open { conn });
        if let Some(at) = unlisten_at {
            self.schedule(at, What::Unlisten { conn });
        }
        if let super::Closing::At { time, by, at_once } = closing {
            self.schedule(time, What::Close { conn, by, at_once });
        }
        true
    }

    /// What was added, in order.
    pub fn scripts(&self) -> impl Iterator<Item = &ConnSpec> {
        self.conns.iter().map(|c| &c.spec)
    }

    pub(super) fn schedule(&mut self, at: Time, what: What) {
        self.order += 1;
        self.events.insert((at.max(self.now), self.order), what);
    }

    pub(super) fn broken(&mut self, what: impl Into<String>) {
        if self.fault.is_none() {
            self.fault = Some(what.into());
        }
    }

    pub(super) fn check<T>(&mut self, node: usize, outcome: Result<T, String>) -> Option<T> {
        outcome.map_err(|e| self.broken(format!("{}: {e}", self.nodes[node].name))).ok()
    }

    pub(super) fn fresh_key(&mut self) -> u32 {
        self.next_key += 1;
        self.next_key
    }

    /// Runs until nothing happens any more.
    ///
    /// # Errors
    /// If a rule is broken, if somebody still waits when nothing happens any more, or when `limit` nanoseconds have passed.
    pub fn run(&mut self, limit: Time) -> Result<Summary, Failure> {
        while let Some(((at, order), what)) = self.events.pop_first() {
            if self.is_stale(at, &what) {
                continue;
            }
            self.now = at;
            self.steps += 1;
            self.digest = (self.digest ^ at ^ order << 40 ^ what.kind()).wrapping_mul(0x0100_0000_01b3);
            if self.trace {
                eprintln!("{:>12} {what:?}", self.now);
            }
            self.happen(what);
            if at > limit {
                self.broken(format!("still busy after {} ms", limit / MS));
            }
            if self.fault.is_some() {
                return Err(self.failure());
            }
        }
        self.check_end();
        if self.fault.is_some() { Err(self.failure()) } else { Ok(self.summary()) }
    }

    fn failure(&mut self) -> Failure {
        let what = self.fault.take().unwrap_or_default();
        Failure { what, now: self.now, waiting: self.waiting() }
    }

    fn summary(&self) -> Summary {
        Summary {
            now: self.now,
            events: self.steps,
            digest: self.digest,
            relayed_bytes: self.nodes.iter().map(|n| n.engine.stats().forwarded_bytes).sum(),
            peak_filled: self.nodes.iter().map(|n| n.peak).max().unwrap_or(0),
            conns: self.conns.iter().map(Conn::report).collect(),
        }
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Message { to, bytes } => self.message(to, &bytes),
            What::Land { to, write } => self.land(to, write),
            What::Written { end, id } => self.written(end, id),
            What::Turn { link } => self.turn_over(link),
            What::Down { end } => self.down(end),
            What::Dialed { node, dial, from, to } => self.dialed(node, dial, from, to),
            What::Wake { node } => self.wake(node),
            What::Open { conn } => self.open(conn),
            What::Poke { conn, by: Who::Receiver } => self.pump_receiver(conn),
            What::Poke { conn, .. } => self.pump_sender(conn),
            What::Close { conn, by, at_once } => self.close(conn, by, at_once),
            What::Unlisten { conn } => {
                let (node, token) = (self.conns[conn].spec.to, self.conns[conn].token);
                self.drive(node, |engine, _| engine.unlisten(&token));
            }
            What::Kill { node } => self.die(node),
            What::Start { node } => {
                self.nodes[node].life = Life::Up;
                for conn in 0..self.conns.len() {
                    if self.conns[conn].spec.to == node {
                        self.nodes[node].engine.listen(self.conns[conn].token, conn as u64);
                    }
                }
            }
        }
    }
}

impl What {
    fn kind(&self) -> u64 {
        match self {
            Self::Message { to, bytes } => 1 ^ (to.pipe as u64) << 8 ^ (bytes.len() as u64) << 20,
            Self::Land { to, write } => 2 ^ (to.pipe as u64) << 8 ^ write.offset << 20,
            Self::Written { end, id } => 3 ^ (end.pipe as u64) << 8 ^ id << 20,
            Self::Down { end } => 4 ^ (end.pipe as u64) << 8,
            Self::Dialed { node, .. } => 5 ^ (*node as u64) << 8,
            Self::Wake { node } => 6 ^ (*node as u64) << 8,
            Self::Open { conn } | Self::Poke { conn, .. } | Self::Close { conn, .. } | Self::Unlisten { conn } => {
                7 ^ (*conn as u64) << 8
            }
            Self::Kill { node } | Self::Start { node } => 8 ^ (*node as u64) << 8,
            Self::Turn { link: (from, _) } => 9 ^ u64::from(from.to_bits()) << 8,
        }
    }
}
