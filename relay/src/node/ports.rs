//! The ports of a node for discovery: their sockets, and what the kernel says of their interfaces.
//!
//! Knows nothing of beacons. On the thread of the node's owner.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use mesh_link::netdev::{self, Carrier};
use mesh_link::poller::{Interest, Poller};
use mesh_link::udp::{GroupSocket, PortSocket};
use mesh_routing::Subnet;

use crate::discovery::{PortChange, PortId, PortInfo};

/// Between two lists of this host's interfaces: they cost more than anything else that an idle node does. Carriers are asked for at every look.
const LIST: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Open {
    spec: PortInfo,
    /// The interface that was seen with the address.
    netdev: String,
    socket: Option<PortSocket>,
    /// Number of the interface, 0 if this host shows none with the address.
    index: u32,
    /// The group's socket hears what comes by this port.
    joined: bool,
    /// The interface was seen: from then on its absence means that the port is down.
    watched: bool,
    up: bool,
    /// Others have been told that there is this port.
    known: bool,
    told: Option<io::ErrorKind>,
}

impl Open {
    /// Says once why the port cannot be used yet.
    fn fails(&mut self, what: &str, port: u16, error: &io::Error, errors: &mut Vec<String>) {
        if self.told.replace(error.kind()) != Some(error.kind()) {
            errors.push(format!("{}:{port}: {what}: {error}", self.spec.address));
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ports {
    each: Vec<Open>,
    group: Option<GroupSocket>,
    carrier: Option<Carrier>,
    listed: Option<Instant>,
    port: u16,
}

impl Ports {
    /// None of them open yet.
    pub(super) fn new(ports: &[PortInfo], port: u16) -> Self {
        let open = |spec: &PortInfo| Open {
            spec: spec.clone(),
            netdev: String::new(),
            socket: None,
            index: 0,
            joined: false,
            watched: false,
            up: false,
            known: false,
            told: None,
        };
        Self { each: ports.iter().map(open).collect(), group: None, carrier: Carrier::new().ok(), listed: None, port }
    }

    /// Whether a port has no socket that should have one, or a driver says otherwise than what was told of its port.
    fn differs(&self) -> bool {
        let carries = |port: &Open| self.carrier.as_ref().filter(|_| port.watched)?.of(&port.netdev);
        self.each.iter().any(|port| port.told.is_some() || carries(port).is_some_and(|carries| carries != port.up))
    }

    /// Looks at the interfaces: opens sockets of ports that have come, and says what has changed. Errors are for the log; the port is
    /// tried again when interfaces are listed next.
    pub(super) fn look(&mut self, poller: &Poller, base: u64, group_token: u64) -> (Vec<PortChange>, Vec<String>) {
        let (mut changes, mut errors) = (Vec::new(), Vec::new());
        if self.listed.is_some_and(|at| at.elapsed() < LIST) && !self.differs() {
            return (changes, errors);
        }
        self.listed = Some(Instant::now());
        let found: BTreeMap<Ipv4Addr, netdev::Address> = match netdev::addresses() {
            Ok(all) => all.into_iter().map(|one| (one.address, one)).collect(),
            Err(e) => return (changes, vec![format!("the interfaces of this host cannot be listed: {e}")]),
        };
        if self.group.is_none() {
            match GroupSocket::open(self.port).and_then(|group| {
                poller.add(group.fd(), group_token, Interest::READ)?;
                Ok(group)
            }) {
                Ok(group) => self.group = Some(group),
                Err(e) => errors.push(format!("no socket for what is sent to everyone on a link: {e}")),
            }
        }
        for (n, port) in self.each.iter_mut().enumerate() {
            let seen = found.get(&port.spec.address);
            if let Some(one) = seen {
                port.watched = true;
                port.netdev.clone_from(&one.netdev);
            }
            let carries = |one: &netdev::Address| {
                let said = self.carrier.as_ref().and_then(|carrier| carrier.of(&one.netdev));
                said.unwrap_or(one.running)
            };
            let up = if port.watched { seen.is_some_and(carries) } else { true };
            if up && port.socket.is_none() {
                let facts = seen.map(|one| netdev::facts(&one.netdev)).unwrap_or_default();
                port.index = facts.index;
                let opened = PortSocket::open(port.spec.address, port.index, self.port).and_then(|socket| {
                    poller.add(socket.fd(), base | n as u64, Interest::READ)?;
                    Ok(socket)
                });
                match opened {
                    Ok(socket) => {
                        port.socket = Some(socket);
                        port.spec.mtu = if port.spec.mtu == 0 { facts.mtu } else { port.spec.mtu };
                        port.spec.speed_mbps =
                            if port.spec.speed_mbps == 0 { facts.speed_mbps } else { port.spec.speed_mbps };
                    }
                    Err(e) => {
                        port.fails("no socket for beacons", self.port, &e, &mut errors);
                        continue;
                    }
                }
            }
            if up
                && !port.joined
                && let Some(group) = &self.group
            {
                if let Err(e) = group.join(port.spec.address, port.index) {
                    port.fails("nothing is heard that goes to everyone on the link", self.port, &e, &mut errors);
                    continue;
                }
                port.joined = true;
            }
            port.told = None;
            let id = PortId(n as u32);
            match (std::mem::replace(&mut port.known, true), std::mem::replace(&mut port.up, up), up) {
                (_, false, true) => changes.push(PortChange::Up(id, port.spec.clone())),
                (true, true, false) => changes.push(PortChange::Down(id)),
                (false, _, false) => changes.push(PortChange::Dark(id, port.spec.clone())),
                _ => {}
            }
        }
        (changes, errors)
    }

    /// Sends from a port; what the kernel refuses is lost, like what a cable loses.
    pub(super) fn send(&self, port: PortId, to: Option<Ipv4Addr>, bytes: &[u8]) -> io::Result<()> {
        let socket = self.each.get(port.0 as usize).and_then(|port| port.socket.as_ref());
        socket.map_or(Ok(()), |socket| socket.send(to, bytes))
    }

    /// The next datagram to the address of port `n`.
    pub(super) fn receive(&self, n: usize, bytes: &mut [u8]) -> Option<(usize, Ipv4Addr)> {
        self.each.get(n)?.socket.as_ref()?.receive(bytes)
    }

    /// The next datagram to everyone, and the port that it came by.
    pub(super) fn receive_group(&self, bytes: &mut [u8]) -> Option<(usize, Ipv4Addr, PortId)> {
        loop {
            let (len, from, index) = self.group.as_ref()?.receive(bytes)?;
            // An interface may have several addresses: then the one whose subnet the sender is in is meant, or else any of them.
            let on = |port: &&Open| port.index != 0 && port.index == index;
            let near = |port: &Open| {
                Subnet::of(port.spec.address, port.spec.prefix).is_some_and(|subnet| subnet.contains(from))
            };
            let best = self.each.iter().filter(on).max_by_key(|port| near(port));
            let place = best.and_then(|best| self.each.iter().position(|port| std::ptr::eq(port, best)));
            if let Some(n) = place {
                return Some((len, from, PortId(n as u32)));
            }
        }
    }
}
