//! The loop of the thread `mesh-node`: as owner, as guest, and from one to the other. It sleeps when nothing is to be done.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mesh_link::poller::{Interest, Poller, Ready};
use tracing::{info, warn};

use super::claim::{Claim, Scope};
use super::guest::{Guest, Heard};
use super::owner::Owner;
use super::{NodeConfig, Serve, Shared};
use crate::agent::{AgentError, Listeners};
use crate::discovery::AgentAt;

/// The poller's name for the waker.
pub(super) const WAKER: u64 = 0;
pub(super) const GROUP: u64 = 1;
const NAMES: u64 = 2;
const STREAM: u64 = 3;
pub(super) const PORT: u64 = 1 << 32;
pub(super) const CLIENT: u64 = 2 << 32;
const KIND: u64 = 0xffff_ffff << 32;

/// Longest time between two looks at the interfaces.
const LOOK: Duration = Duration::from_millis(200);
/// When the thread is awake anyway, so long after a look it is time for the next one.
const LOOK_EARLY: Duration = Duration::from_millis(60);
/// Between two tries to become the owner, or to find who is.
const RETRY: Duration = Duration::from_millis(20);

enum Role {
    Owner(Box<Owner>),
    Guest(Guest),
    /// Who has the name neither answers nor leaves.
    Nobody,
    /// The owner will not have us.
    Alone,
}

pub(super) struct Runner {
    config: NodeConfig,
    scope: Scope,
    role: Role,
    /// TCP port of this process's agent; 0: none.
    agent: u16,
    serve: Serve,
    /// As owner: the agent does not answer on the shared port yet.
    unserved: bool,
    poller: Poller,
    shared: Arc<Shared>,
    looked: Option<Instant>,
    told: bool,
}

impl Runner {
    pub(super) fn new(
        config: NodeConfig,
        claim: Claim,
        agent: u16,
        serve: Serve,
        poller: Poller,
        shared: Arc<Shared>,
    ) -> Result<Self, AgentError> {
        let scope = match &claim {
            Claim::Owner(_, scope) | Claim::Guest(_, scope) => scope.clone(),
        };
        let mut runner = Self {
            config,
            scope,
            role: Role::Nobody,
            agent,
            serve,
            unserved: false,
            poller,
            shared,
            looked: None,
            told: false,
        };
        runner.take_up(claim)?;
        Ok(runner)
    }

    /// This process, as others are told of it.
    fn own_agent(&self) -> AgentAt {
        AgentAt { port: self.agent, job: self.config.job, rank: self.config.rank }
    }

    /// Becomes what the claim says.
    fn take_up(&mut self, claim: Claim) -> Result<(), AgentError> {
        let node = self.config.name.clone();
        let system = |source| AgentError::System { node: node.clone(), what: "epoll", source };
        match claim {
            Claim::Owner(names, _) => {
                let owner = Owner::new(&self.config, names, self.own_agent())?;
                self.poller.add(owner.names_fd(), NAMES, Interest::READ).map_err(system)?;
                // An agent on the shared port is there from the start; another one gets its sockets when they can be had.
                self.unserved = self.agent != self.config.port && !self.config.looks_only;
                self.role = Role::Owner(Box::new(owner));
                self.looked = None;
                // Relaxed: for status alone.
                self.shared.owns.store(true, Ordering::Relaxed);
            }
            Claim::Guest(stream, _) => {
                let guest = Guest::greet(stream, self.own_agent()).map_err(system)?;
                self.poller.add(guest.stream.as_raw_fd(), STREAM, Interest::READ).map_err(system)?;
                self.role = Role::Guest(guest);
            }
        }
        Ok(())
    }

    pub(super) fn run(mut self) {
        let mut ready = [Ready::default(); 64];
        // Acquire: pairs with the release in `Mesh::stop`.
        while !self.shared.stop.load(Ordering::Acquire) {
            self.turn();
            let wait = self.patience();
            match self.poller.wait(&mut ready, Some(wait)) {
                Ok(n) => {
                    for r in &ready[..n] {
                        self.on_ready(r.token);
                    }
                }
                Err(e) => {
                    warn!("mesh[E83] node {}: the thread of discovery ends: {e}", self.config.name);
                    return;
                }
            }
        }
    }

    fn patience(&self) -> Duration {
        match &self.role {
            Role::Owner(owner) => {
                let look = self.looked.map_or(Duration::ZERO, |at| LOOK.saturating_sub(at.elapsed()));
                look.min(owner.patience())
            }
            Role::Guest(_) | Role::Alone => Duration::from_secs(3600),
            Role::Nobody => RETRY,
        }
    }

    /// What is due whether or not something has come.
    fn turn(&mut self) {
        match &mut self.role {
            Role::Owner(owner) => {
                let due = self.looked.is_none_or(|at| at.elapsed() >= LOOK_EARLY);
                if due {
                    self.looked = Some(Instant::now());
                    owner.look(&self.poller);
                }
                owner.settle(&self.shared, &self.poller);
                if due && self.unserved {
                    self.take_port();
                }
            }
            Role::Nobody => self.seek(),
            Role::Guest(_) | Role::Alone => {}
        }
    }

    /// The owner is gone: takes its place, or finds who has.
    fn seek(&mut self) {
        let claim = match Claim::attempt(&self.scope) {
            Ok(claim) => claim,
            Err(e) => {
                if !std::mem::replace(&mut self.told, true) {
                    info!(
                        "mesh[I10] node {}: this process finds no owner of its node and cannot be it: {e}",
                        self.config.name
                    );
                }
                return;
            }
        };
        self.told = false;
        if claim.owns() {
            info!("mesh[I10] node {}: the owner of this node is gone, this process takes its place", self.config.name);
        }
        if let Err(e) = self.take_up(claim) {
            warn!("{e}");
            self.role = Role::Nobody;
        }
    }

    /// As a new owner: answers on the port that all nodes share, as soon as the old one has let it go.
    fn take_port(&mut self) {
        let ports: Vec<_> = self.config.ports.iter().map(|port| (port.address, port.prefix)).collect();
        match Listeners::open(&self.config.name, &ports, self.config.port) {
            Ok(listeners) => {
                self.unserved = false;
                self.told = false;
                (self.serve)(listeners);
            }
            Err(e) => {
                if !std::mem::replace(&mut self.told, true) {
                    warn!("{e}; tried again until it is free");
                }
            }
        }
    }

    fn on_ready(&mut self, token: u64) {
        let low = (token & !KIND) as u32;
        match (token & KIND, &mut self.role) {
            (PORT, Role::Owner(owner)) => owner.on_port(low as usize),
            (CLIENT, Role::Owner(owner)) => owner.on_client(low, &self.poller),
            (0, Role::Owner(owner)) if token == GROUP => owner.on_group(),
            (0, Role::Owner(owner)) if token == NAMES => owner.on_name(&self.poller),
            (0, Role::Guest(guest)) if token == STREAM => {
                let heard = guest.hear(&self.config.name);
                let fd = guest.stream.as_raw_fd();
                match heard {
                    Heard::View(None) => {}
                    Heard::View(Some(view)) => self.shared.publish(view),
                    Heard::Gone | Heard::Refused => {
                        let _ = self.poller.remove(fd);
                        self.role = if matches!(heard, Heard::Gone) { Role::Nobody } else { Role::Alone };
                    }
                }
            }
            _ if token == WAKER => self.shared.waker.clear(),
            _ => {}
        }
    }
}
