//! The world: how it is built, and the loop that takes the next event.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::Ipv4Addr;

use mesh_relay::discovery::{Action, Config, Discovery, Event, LinkEnd, MS, PortId, PortInfo, Time, To, View, key_of};
use mesh_routing::{Link, Topology};

use super::cable::{Cable, CableEnd};
use super::node::Node;
use super::{Cut, Weather};
use crate::virtual_time::Rng;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrives { node: usize, port: PortId, from: Ipv4Addr, bytes: Vec<u8> },
    Wake { node: usize },
    Carrier { cable: usize, end: usize },
}

/// What was sent, over all cables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A cluster. See the module.
#[derive(Debug)]
pub struct World {
    pub(super) now: Time,
    pub(super) nodes: Vec<Node>,
    pub(super) cables: Vec<Cable>,
    weather: Weather,
    rng: Rng,
    queue: BinaryHeap<Reverse<(Time, u64, What)>>,
    order: u64,
    traffic: Traffic,
    ghosts: BTreeSet<[Ipv4Addr; 2]>,
    digest: u64,
    trace: bool,
}

impl World {
    /// Nothing yet, at time 0.
    pub fn new(seed: u64, weather: Weather) -> Self {
        let trace = std::env::var_os("MESH_SIM_TRACE").is_some();
        let (queue, rng, traffic) = (BinaryHeap::new(), Rng::new(seed), Traffic::default());
        let (ghosts, digest) = (BTreeSet::new(), 0xcbf2_9ce4_8422_2325);
        let (nodes, cables) = (Vec::new(), Vec::new());
        Self { now: 0, nodes, cables, weather, rng, queue, order: 0, traffic, ghosts, digest, trace }
    }

    /// The nodes of a topology, cabled as it says, none of them started. Its switched segments are declared.
    pub fn of(topology: &Topology, seed: u64, weather: Weather) -> Self {
        let mut world = Self::new(seed, weather);
        for node in topology.nodes() {
            let config = Config { relay: node.relay, ..Config::new(&*node.stable_id, &*node.name, 1) };
            let index = world.add_node(config);
            for port in &node.ports {
                let (speed_mbps, mtu) = (port.speed_mbps.unwrap_or(0), port.mtu.unwrap_or(0));
                let switched = port.subnet().is_some_and(|subnet| topology.switches().contains(&subnet));
                world.add_port(
                    index,
                    PortInfo { speed_mbps, mtu, switched, ..PortInfo::new(&*port.device, port.address, port.prefix) },
                );
            }
        }
        let place = |link: &Link| link.ends.map(|end| (end.node.index(), end.port));
        for link in topology.links().iter().filter(|link| !link.switched) {
            world.cable(&place(link));
        }
        for subnet in topology.switches() {
            let links = topology.links().iter().filter(|link| link.subnet == *subnet);
            let ports: BTreeSet<_> = links.flat_map(place).collect();
            world.switch(&ports.into_iter().collect::<Vec<_>>());
        }
        world
    }

    /// A node that is not started; its clock shows something of its own.
    pub fn add_node(&mut self, config: Config) -> usize {
        let clock = self.rng.below(1 << 50);
        self.nodes.push(Node::new(config, clock));
        self.nodes.len() - 1
    }

    /// A port of a node; answers its index.
    pub fn add_port(&mut self, node: usize, info: PortInfo) -> usize {
        let node = &mut self.nodes[node];
        let index = node.ports.len();
        node.ports.push((PortId(index as u32 + 1), info));
        node.cables.push(None);
        index
    }

    /// Joins ports, each by node and index: two, unless a mistake is wanted.
    pub fn cable(&mut self, ports: &[(usize, usize)]) -> usize {
        let cable = self.cables.len();
        for (end, &(node, port)) in ports.iter().enumerate() {
            self.nodes[node].cables[port] = Some((cable, end));
        }
        let end = |&(node, port): &(usize, usize)| {
            let (id, ref info) = self.nodes[node].ports[port];
            CableEnd { node, port: id, address: info.address }
        };
        let ends: Vec<_> = ports.iter().map(end).collect();
        let off = vec![None; ends.len()];
        self.cables.push(Cable { ends, switched: false, cut: None, off, weather: self.weather });
        cable
    }

    /// Joins ports by a switch, each by node and index. Whether nodes know that it is one is their ports' to say.
    pub fn switch(&mut self, ports: &[(usize, usize)]) -> usize {
        let cable = self.cable(ports);
        self.cables[cable].switched = true;
        cable
    }

    /// The time, in nanoseconds since the world began.
    pub fn now(&self) -> Time {
        self.now
    }

    /// How many nodes there are, running or not.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many cables there are, cut or not.
    pub fn cables(&self) -> usize {
        self.cables.len()
    }

    /// The generator of the run.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// What was sent so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Differs if anything differed.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The machine of a node, if it runs.
    pub fn machine(&self, node: usize) -> Option<&Discovery> {
        self.nodes[node].machine.as_ref()
    }

    /// The view of a node, if it runs.
    pub fn view(&self, node: usize) -> Option<&View> {
        self.machine(node).map(Discovery::view)
    }

    /// The addresses of a node's ports.
    pub fn addresses(&self, node: usize) -> Vec<Ipv4Addr> {
        self.nodes[node].ports.iter().map(|(_, info)| info.address).collect()
    }

    /// When the view of a node changed last.
    pub fn changed_at(&self, node: usize) -> Time {
        self.nodes[node].changed
    }

    /// Links that some view had at some time although no cable ever joined their ports. There must be none, whatever happens.
    pub fn ghosts(&self) -> &BTreeSet<[Ipv4Addr; 2]> {
        &self.ghosts
    }

    /// What a node noted, with the times.
    pub fn notes(&self, node: usize) -> &[(Time, Event)] {
        &self.nodes[node].notes
    }

    /// Starts a node: its first life, or one more. `grows` is by how much its incarnation is more than before; negative if its clock was
    /// set back.
    pub fn start(&mut self, node: usize, grows: i64) {
        let it = &mut self.nodes[node];
        if it.machine.is_some() {
            return;
        }
        it.config.life = it.config.life.wrapping_add_signed(grows);
        let now = it.shows(self.now);
        it.machine = Some(Discovery::new(now, it.config.clone()).expect("a configuration that is sound"));
        for port in 0..self.nodes[node].ports.len() {
            let carrier = self.nodes[node].cables[port].is_some_and(|(cable, end)| self.cables[cable].carrier(end));
            self.nodes[node].tell_port(self.now, port, carrier);
        }
        self.carry_out(node);
    }

    /// Starts all nodes.
    pub fn start_all(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.start(node, 1));
    }

    /// A node is gone without a word.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].machine = None;
        self.nodes[node].wake = Time::MAX;
    }

    /// A node that does not run has another id and name when it starts again.
    pub fn rename(&mut self, node: usize, id: &str, name: &str) {
        let config = &mut self.nodes[node].config;
        (config.id, config.name) = (id.to_owned(), name.to_owned());
    }

    /// Cuts a cable.
    pub fn cut(&mut self, cable: usize, how: Cut) {
        self.cables[cable].cut = Some(how);
        self.carriers(cable);
    }

    /// Mends a cable.
    pub fn mend(&mut self, cable: usize) {
        self.cables[cable].cut = None;
        self.carriers(cable);
    }

    /// How many ports a switch joins, each by a cable that can be cut; 0 for a cable of its own.
    pub fn switch_ports(&self, cable: usize) -> usize {
        let it = &self.cables[cable];
        if it.switched { it.ends.len() } else { 0 }
    }

    /// Cuts the cable of one port to a switch, or mends it.
    pub fn set_switch_port(&mut self, cable: usize, end: usize, cut: Option<Cut>) {
        self.cables[cable].off[end] = cut;
        self.carriers(cable);
    }

    /// The clock of a node leaps, back if `by` is negative.
    pub fn leap(&mut self, node: usize, by: i64) {
        let it = &mut self.nodes[node];
        it.clock = it.clock.wrapping_add_signed(by);
        // Who waits by a clock that is set forward wakes at once; set back, it is the driver's to see that time has passed all the same.
        self.wake_at(node, self.now);
    }

    /// The ends notice, a moment later, each in its own time.
    fn carriers(&mut self, cable: usize) {
        for end in 0..self.cables[cable].ends.len() {
            let at = self.now + self.rng.below(2 * MS);
            self.schedule(at, What::Carrier { cable, end });
        }
    }

    fn schedule(&mut self, at: Time, what: What) {
        self.order += 1;
        self.queue.push(Reverse((at.max(self.now), self.order, what)));
    }

    fn wake_at(&mut self, node: usize, at: Time) {
        if at < self.nodes[node].wake {
            self.nodes[node].wake = at;
            self.schedule(at, What::Wake { node });
        }
    }

    /// Runs until `until`, that moment included.
    pub fn run_until(&mut self, until: Time) {
        while let Some(Reverse((at, ..))) = self.queue.peek() {
            if *at > until {
                break;
            }
            let Some(Reverse((at, order, what))) = self.queue.pop() else { break };
            self.now = at;
            self.digest = (self.digest ^ at ^ (order << 40)).wrapping_mul(0x0100_0000_01b3);
            if self.trace {
                eprintln!("{at:>12} {what:?}");
            }
            self.happen(what);
        }
        self.now = self.now.max(until);
    }

    /// Runs for so long.
    pub fn run_for(&mut self, time: Time) {
        self.run_until(self.now + time);
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Arrives { node, port, from, bytes } => {
                let now = self.nodes[node].shows(self.now);
                let Some(machine) = &mut self.nodes[node].machine else { return };
                machine.on_datagram(now, port, from, &bytes);
                self.carry_out(node);
            }
            What::Wake { node } => {
                if self.nodes[node].wake != self.now {
                    return;
                }
                self.nodes[node].wake = Time::MAX;
                let now = self.nodes[node].shows(self.now);
                let Some(machine) = &mut self.nodes[node].machine else { return };
                machine.on_time(now);
                self.carry_out(node);
            }
            What::Carrier { cable, end } => {
                let carrier = self.cables[cable].carrier(end);
                let CableEnd { node, port, .. } = self.cables[cable].ends[end];
                self.nodes[node].tell_port(self.now, port.0 as usize - 1, carrier);
                self.carry_out(node);
            }
        }
    }

    /// Does what a node wants.
    fn carry_out(&mut self, node: usize) {
        while let Some(action) = self.nodes[node].machine.as_mut().and_then(Discovery::poll) {
            match action {
                Action::Send { port, to, bytes } => self.send(node, port, to, bytes),
                Action::Changed => {
                    self.nodes[node].changed = self.now;
                    self.check_links(node);
                }
                Action::Note(event) => {
                    if self.trace {
                        eprintln!("{:>12} {}: {event}", self.now, self.nodes[node].config.name);
                    }
                    self.nodes[node].notes.push((self.now, event));
                }
            }
        }
        let it = &self.nodes[node];
        if let Some(machine) = &it.machine {
            let ahead = machine.deadline().saturating_sub(it.shows(self.now));
            self.wake_at(node, self.now.saturating_add(ahead));
        }
    }

    fn check_links(&mut self, node: usize) {
        let Some(machine) = &self.nodes[node].machine else { return };
        for link in &machine.view().links {
            let is = |end: &CableEnd, seen: &LinkEnd| {
                end.address == seen.address && key_of(&self.nodes[end.node].config.id) == seen.node
            };
            let joins = |cable: &Cable| link.iter().all(|seen| cable.ends.iter().any(|end| is(end, seen)));
            if !self.cables.iter().any(joins) {
                self.ghosts.insert(link.map(|end| end.address));
            }
        }
    }

    fn send(&mut self, node: usize, port: PortId, to: To, bytes: Vec<u8>) {
        self.traffic.datagrams += 1;
        self.traffic.bytes += bytes.len() as u64;
        let Some((cable, end)) = self.nodes[node].cables[port.0 as usize - 1] else { return };
        let cable = &self.cables[cable];
        let from = cable.ends[end].address;
        let mut arrivals = Vec::with_capacity(2);
        for (index, other) in cable.ends.iter().enumerate() {
            let meant = to == To::Everyone || to == To::Address(other.address);
            if index != end && meant && cable.carries(end, index) {
                let times = cable.arrivals(self.now, &mut self.rng);
                arrivals.extend(times.into_iter().flatten().map(|at| (at, other.node, other.port)));
            }
        }
        for (at, node, port) in arrivals {
            self.schedule(at, What::Arrives { node, port, from, bytes: bytes.clone() });
        }
    }
}
