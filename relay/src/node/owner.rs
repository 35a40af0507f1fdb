//! The owner of a node: discovery over real sockets, and the guests, who are told what it finds.
//!
//! On the thread `mesh-node`. Carries out what [`Discovery`] says and decides nothing.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mesh_link::local;
use mesh_link::poller::{Interest, Poller};
use tracing::{info, warn};

use super::frame::{Frame, Inbox, VERSION, view};
use super::ports::Ports;
use super::thread::{CLIENT, GROUP, PORT};
use super::{NodeConfig, Shared, tell};
use crate::agent::AgentError;
use crate::discovery::{Action, AgentAt, Config, Discovery, MAX_DATAGRAM, PortId, Time, To};

/// A process that others are told of: one that answers, and belongs to a job.
fn told(agent: AgentAt) -> Option<AgentAt> {
    (agent.port != 0 && agent.job != 0).then_some(agent)
}

/// Guests at one time; more are turned away.
const MAX_GUESTS: usize = 64;

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    inbox: Inbox,
    agent: Option<AgentAt>,
    /// What has not left yet; a new view replaces what has not begun to leave.
    leaving: Vec<u8>,
    sent: usize,
    next: Option<Vec<u8>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Owner {
    node: String,
    discovery: Discovery,
    ports: Ports,
    names: UnixListener,
    clients: BTreeMap<u32, Client>,
    fresh: u32,
    own: Option<AgentAt>,
    started: Instant,
    /// Sends that the kernel refused, by what it said: said once each.
    refused: Vec<(PortId, ErrorKind)>,
}

impl Owner {
    pub(super) fn new(config: &NodeConfig, names: UnixListener, own: AgentAt) -> Result<Self, AgentError> {
        let life = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
        let discovery = Config {
            relay: config.relay && !config.looks_only,
            daemon: config.daemon,
            ..Config::new(config.id.clone(), config.name.clone(), life)
        };
        let discovery = Discovery::new(0, discovery)
            .map_err(|e| AgentError::Identity { node: config.name.clone(), why: e.to_string() })?;
        let mut owner = Self {
            node: config.name.clone(),
            discovery,
            ports: Ports::new(&config.ports, config.port),
            names,
            clients: BTreeMap::new(),
            fresh: 0,
            own: told(own),
            started: Instant::now(),
            refused: Vec::new(),
        };
        owner.agents();
        Ok(owner)
    }

    fn now(&self) -> Time {
        self.started.elapsed().as_nanos() as Time
    }

    pub(super) fn names_fd(&self) -> i32 {
        self.names.as_raw_fd()
    }

    /// How long nothing is to be done, if nothing comes.
    pub(super) fn patience(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.discovery.deadline().saturating_sub(self.now()))
    }

    /// Looks at the interfaces.
    pub(super) fn look(&mut self, poller: &Poller) {
        let (changes, errors) = self.ports.look(poller, PORT, GROUP);
        for error in errors {
            warn!("mesh[W74] node {}: {error}", self.node);
        }
        for change in changes {
            self.discovery.on_port(self.now(), change);
        }
    }

    /// A datagram on a port. If there are more, the poller says so at once.
    pub(super) fn on_port(&mut self, n: usize) {
        let mut bytes = [0; MAX_DATAGRAM + 1];
        if let Some((len, from)) = self.ports.receive(n, &mut bytes) {
            let now = self.now();
            self.discovery.on_datagram(now, PortId(n as u32), from, &bytes[..len]);
        }
    }

    /// A datagram to everyone.
    pub(super) fn on_group(&mut self) {
        let mut bytes = [0; MAX_DATAGRAM + 1];
        if let Some((len, from, port)) = self.ports.receive_group(&mut bytes) {
            let now = self.now();
            self.discovery.on_datagram(now, port, from, &bytes[..len]);
        }
    }

    /// Lets time pass, and carries out what is to be done.
    pub(super) fn settle(&mut self, shared: &Shared, poller: &Poller) {
        let now = self.now();
        if now >= self.discovery.deadline() {
            self.discovery.on_time(now);
        }
        while let Some(action) = self.discovery.poll() {
            match action {
                Action::Send { port, to, bytes } => {
                    let to = match to {
                        To::Address(address) => Some(address),
                        To::Everyone => None,
                    };
                    if let Err(e) = self.ports.send(port, to, &bytes) {
                        self.not_sent(port, to, &e);
                    }
                }
                Action::Changed => {
                    shared.publish(self.discovery.view().clone());
                    self.tell_guests(poller);
                }
                Action::Note(event) => tell::tell(&self.node, &event),
            }
        }
    }

    /// Says once that the kernel does not send: the neighbour is missed by silence anyway.
    #[cold]
    fn not_sent(&mut self, port: PortId, to: Option<Ipv4Addr>, error: &std::io::Error) {
        let what = (port, error.kind());
        if error.kind() != ErrorKind::ConnectionRefused && !self.refused.contains(&what) && self.refused.len() < 64 {
            self.refused.push(what);
            let to = to.map_or_else(|| "everyone on the link".into(), |to| to.to_string());
            info!("mesh[I09] node {}: a beacon to {to} was not sent: {error}; said once", self.node);
        }
    }

    fn view_frame(&self) -> Vec<u8> {
        view(self.discovery.key(), self.discovery.database().adverts().map(|(_, advert)| advert))
    }

    fn tell_guests(&mut self, poller: &Poller) {
        if self.clients.is_empty() {
            return;
        }
        let frame = self.view_frame();
        let all: Vec<u32> = self.clients.keys().copied().collect();
        for id in all {
            if let Some(client) = self.clients.get_mut(&id) {
                client.next = Some(frame.clone());
            }
            self.write(id, poller);
        }
    }

    /// Somebody of this host has come.
    pub(super) fn on_name(&mut self, poller: &Poller) {
        while let Ok((stream, _)) = self.names.accept() {
            let full = self.clients.len() >= MAX_GUESTS;
            if full || stream.set_nonblocking(true).is_err() {
                warn!(
                    "mesh[W75] node {}: a process of this host is turned away: {MAX_GUESTS} are here already",
                    self.node
                );
                continue;
            }
            let id = self.fresh;
            self.fresh = self.fresh.wrapping_add(1);
            if let Err(e) = poller.add(stream.as_raw_fd(), CLIENT | u64::from(id), Interest::READ) {
                warn!("mesh[E83] node {}: a process of this host cannot be served: {e}", self.node);
                continue;
            }
            let client =
                Client { stream, inbox: Inbox::default(), agent: None, leaving: Vec::new(), sent: 0, next: None };
            self.clients.insert(id, client);
        }
    }

    /// A guest has spoken, has room, or is gone.
    pub(super) fn on_client(&mut self, id: u32, poller: &Poller) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let mut bytes = [0; 4096];
        let mut gone = false;
        let mut greeted = false;
        loop {
            match client.stream.read(&mut bytes) {
                Ok(0) => gone = true,
                Ok(n) => client.inbox.feed(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => gone = true,
            }
            if gone {
                break;
            }
        }
        loop {
            match client.inbox.next() {
                Ok(Some(Frame::Hello { version, agent })) if version == VERSION => {
                    client.agent = told(agent);
                    greeted = true;
                }
                Ok(Some(Frame::Hello { .. })) => {
                    // It fits: nothing was sent before.
                    let _ = local::send(&client.stream, &Frame::Refused { version: VERSION }.encode());
                    gone = true;
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => {
                    gone = true;
                    break;
                }
            }
        }
        if greeted {
            let frame = self.view_frame();
            if let Some(client) = self.clients.get_mut(&id) {
                client.next = Some(frame);
            }
            self.agents();
        }
        if gone {
            self.drop_client(id, poller);
        } else {
            self.write(id, poller);
        }
    }

    fn drop_client(&mut self, id: u32, poller: &Poller) {
        if let Some(client) = self.clients.remove(&id) {
            let _ = poller.remove(client.stream.as_raw_fd());
            self.agents();
        }
    }

    /// Tells discovery which processes of jobs the node has.
    fn agents(&mut self) {
        let all = self.clients.values().filter_map(|client| client.agent).chain(self.own).collect();
        let now = self.now();
        self.discovery.on_agents(now, all);
    }

    fn write(&mut self, id: u32, poller: &Poller) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        loop {
            if client.sent == client.leaving.len() {
                client.sent = 0;
                client.leaving = client.next.take().unwrap_or_default();
                if client.leaving.is_empty() {
                    let _ = poller.modify(client.stream.as_raw_fd(), CLIENT | u64::from(id), Interest::READ);
                    return;
                }
            }
            match local::send(&client.stream, &client.leaving[client.sent..]) {
                Ok(n) => client.sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let _ = poller.modify(client.stream.as_raw_fd(), CLIENT | u64::from(id), Interest::BOTH);
                    return;
                }
                Err(_) => return self.drop_client(id, poller),
            }
        }
    }
}
