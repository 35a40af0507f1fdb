//! The agent: one pinned thread a process that runs the [`Engine`] over real links.
//!
//! It listens on the node's ports, opens legs, relays, and hands the legs of finished connections to their owners. Everybody else
//! talks to it through lock-free queues and never waits for it: [`Agent::connect`] and [`Agent::listen`] return at once and are asked
//! again later. Decisions are the engine's; this module only carries them out.
//!
//! Files: `thread` is the loop, `act` carries out what the engine wants, `legs` the table of endpoints, `listeners` its sockets, `opening` how they begin, `cores` the choice of a core, `report` what can be read from
//! outside.

mod act;
mod cores;
mod legs;
mod lingering;
mod listeners;
mod opening;
mod polling;
mod report;
mod thread;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_queue::{ArrayQueue, SegQueue};
use mesh_link::Endpoint;
use mesh_link::endpoint::Backend;
use mesh_link::memory::Slab;
use mesh_link::poller::{Poller, Waker};
use mesh_link::tcp::Limits;
use thiserror::Error;

use crate::code;
use crate::engine::{Config, ConnectRequest, Engine, SendPath};
use crate::send::Acks;
use crate::wire::{HopAddr, Msg, Refusal};

pub use crate::engine::TrunkUse;
pub use cores::CoreChoice;
pub use listeners::Listeners;
pub use report::Report;

/// What the agent needs beyond the engine's configuration.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The engine's.
    pub engine: Config,
    /// TCP port that all nodes share: where other nodes' agents are, unless a hop says otherwise.
    pub port: u16,
    /// Times and buffers of sockets; the agent sizes the queues itself.
    pub limits: Limits,
    /// What carries links, the same on all nodes.
    pub backend: Backend,
    /// How long the thread polls without sleeping after something happened.
    pub spin: Duration,
    /// Where the thread runs.
    pub core: CoreChoice,
    /// How long a closed leg may take to send what it still has.
    pub linger: Duration,
}

/// Why the agent could not start.
#[derive(Debug, Error)]
pub enum AgentError {
    /// Another process of this host is the node's agent.
    #[error(
        "mesh[E55] node {node}: {address}:{port} is taken by another process; end the other job on this node, or set another \
         NCCL_MESH_PORT on all nodes"
    )]
    AddressTaken {
        /// This node.
        node: String,
        /// Port address.
        address: Ipv4Addr,
        /// TCP port.
        port: u16,
    },
    /// A port's address cannot be listened on.
    #[error(
        "mesh[E81] node {node}: cannot listen on {address}:{port}: {source}; is the address configured on this host?"
    )]
    Listen {
        /// This node.
        node: String,
        /// Port address.
        address: Ipv4Addr,
        /// TCP port.
        port: u16,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The slots' memory cannot be had.
    #[error("mesh[E82] node {node}: cannot get {mib} MiB for relay slots: {source}; lower NCCL_MESH_RELAY_MEMORY_MB")]
    Memory {
        /// This node.
        node: String,
        /// Mebibytes asked for.
        mib: u64,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The NICs would not take the slots' memory.
    #[error("mesh[E05] node {node}: relay slots: {why}")]
    Pin {
        /// This node.
        node: String,
        /// Why, with the remedy.
        why: String,
    },
    /// The node's name on this host belongs to a process of another user.
    #[error(
        "mesh[E56] node {node}: @{name} is taken by a process of user {user}, which is neither this user nor root; end it, or set another \
         NCCL_MESH_PORT on all nodes"
    )]
    OtherUser {
        /// This node.
        node: String,
        /// Who has it.
        user: u32,
        /// The name, in the abstract namespace of Unix sockets.
        name: String,
    },
    /// Others could not take the node's name or id.
    #[error("mesh[E88] node {node}: {why}")]
    Identity {
        /// This node.
        node: String,
        /// Why.
        why: String,
    },
    /// Something else of the operating system.
    #[error("mesh[E83] node {node}: cannot start the relay thread: {what}: {source}")]
    System {
        /// This node.
        node: String,
        /// Which step.
        what: &'static str,
        /// What the operating system says.
        source: std::io::Error,
    },
}

/// A connection that was set up from here.
#[derive(Debug)]
pub struct Outgoing {
    /// One a lane.
    pub lanes: Vec<Endpoint>,
    /// How payload travels.
    pub path: SendPath,
    /// Messages that came before the hand-over, with their lanes.
    pub early: Vec<(u8, Msg)>,
}

/// A connection that was set up to here.
#[derive(Debug)]
pub struct Incoming {
    /// One a lane.
    pub lanes: Vec<Endpoint>,
    /// Relays in between.
    pub relays: u8,
    /// The sender's port, or the last relay's.
    pub peer: Ipv4Addr,
    /// The hops of each lane, sender first, as the sender has said in its set-up.
    pub hops: Vec<Vec<HopAddr>>,
    /// Messages that came before the hand-over, with their lanes.
    pub early: Vec<(u8, Msg)>,
}

/// Bytes of payload sent over each link from this process, by the link's two ports.
#[derive(Clone, Debug, Default)]
pub struct LinkCounters {
    map: Arc<Mutex<CounterMap>>,
}

type CounterMap = HashMap<(Ipv4Addr, Ipv4Addr), Arc<AtomicU64>>;

impl LinkCounters {
    /// The counter of one link; to be kept and added to without further look-up.
    pub fn of(&self, local: Ipv4Addr, remote: Ipv4Addr) -> Arc<AtomicU64> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(map.entry((local, remote)).or_default())
    }

    /// All counters, in order of their addresses.
    pub fn read(&self) -> Vec<((Ipv4Addr, Ipv4Addr), u64)> {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = map.iter().map(|(k, v)| (*k, v.load(Ordering::Relaxed))).collect();
        all.sort_unstable();
        all
    }
}

pub(crate) enum Command {
    Connect(ConnectRequest, Arc<ArrayQueue<Result<Outgoing, Refusal>>>),
    Cancel(u64),
    Listen([u8; 16], u64, Arc<ArrayQueue<Incoming>>),
    Unlisten([u8; 16], u64),
    Retire(Vec<Endpoint>),
    Report(Arc<ArrayQueue<Report>>),
    Serve(Listeners),
    Stop,
}

struct Shared {
    commands: SegQueue<Command>,
    waker: Waker,
    next: AtomicU64,
    /// Set by the thread when it ends; pairs with the acquire in [`Agent::alive`].
    ended: AtomicBool,
    node: String,
    links: LinkCounters,
}

/// The agent's face to the rest of the process. Cheap to clone; usable from any thread; nothing blocks unless it says so.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("node", &self.shared.node).finish_non_exhaustive()
    }
}

impl Agent {
    /// Starts the thread. Peers outside a port's subnet are turned away.
    ///
    /// # Errors
    /// [`AgentError`], with nothing left behind.
    pub fn start(mut config: AgentConfig, listeners: Listeners) -> Result<Self, AgentError> {
        config.engine.acks = if config.backend.reports_arrival() { Acks::Link } else { Acks::Receiver };
        let node = config.engine.name.clone();
        let system = |what| {
            let node = node.clone();
            move |source| AgentError::System { node, what, source }
        };
        let stride = config.engine.stride() as usize;
        let slots = config.engine.pool_slots as usize;
        let slab = Slab::new(slots, stride).map_err(|source| AgentError::Memory {
            node: node.clone(),
            mib: (slots as u64 * stride as u64) >> 20,
            source,
        })?;
        let pinned = match &config.backend {
            Backend::Tcp => None,
            Backend::Verbs(devices, _) => Some(
                devices
                    .register(slab.whole())
                    .map_err(|e| AgentError::Pin { node: node.clone(), why: e.to_string() })?,
            ),
        };
        let poller = Poller::new().map_err(system("epoll"))?;
        let waker = Waker::new(&poller, thread::WAKER).map_err(system("eventfd"))?;
        let shared = Arc::new(Shared {
            commands: SegQueue::new(),
            waker,
            next: AtomicU64::new(1),
            ended: AtomicBool::new(false),
            node: node.clone(),
            links: LinkCounters::default(),
        });
        let engine = Engine::new(config.engine.clone());
        let runner = thread::Runner::new(config, engine, (slab, pinned), poller, listeners.each, Arc::clone(&shared))
            .map_err(system("epoll"))?;
        let spawned = std::thread::Builder::new().name("mesh-relay".into()).spawn(move || runner.run());
        spawned.map_err(system("thread"))?;
        Ok(Self { shared })
    }

    /// Answers on these sockets too: the node is this agent's from now on.
    pub fn serve(&self, listeners: Listeners) {
        self.command(Command::Serve(listeners));
    }

    /// Begins to connect; ask [`Connecting::poll`] for the outcome.
    pub fn connect(&self, mut request: ConnectRequest) -> Connecting {
        // Relaxed: only uniqueness matters.
        request.request = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(ArrayQueue::new(1));
        let id = request.request;
        self.command(Command::Connect(request, Arc::clone(&mailbox)));
        Connecting { agent: self.clone(), id, mailbox, done: false }
    }

    /// Answers set-ups with this token from now on.
    pub fn listen(&self, token: [u8; 16]) -> Listening {
        // Relaxed: only uniqueness matters.
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(ArrayQueue::new(64));
        self.command(Command::Listen(token, id, Arc::clone(&mailbox)));
        Listening { agent: self.clone(), id, token, mailbox }
    }

    /// Takes the legs of a closed connection: what they still have to send is sent in the background, for a bounded time. No payload
    /// may be queued on them, since its memory is no longer ours.
    pub fn retire(&self, lanes: Vec<Endpoint>) {
        self.command(Command::Retire(lanes));
    }

    /// What the relay has done and holds. **Waits** up to `patience` for the thread; not for NCCL's threads.
    pub fn report(&self, patience: Duration) -> Option<Report> {
        let mailbox = Arc::new(ArrayQueue::new(1));
        self.command(Command::Report(Arc::clone(&mailbox)));
        let end = Instant::now() + patience;
        while self.alive() && Instant::now() < end {
            if let Some(report) = mailbox.pop() {
                return Some(report);
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        mailbox.pop()
    }

    /// **Waits** until no path of others passes through this node any more, at most `limit`. Whether that is so.
    pub fn drain(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            match self.report(Duration::from_millis(500)) {
                Some(report) if report.streams == 0 && report.lingering == 0 => return true,
                None if !self.alive() => return true,
                _ if Instant::now() >= end => return false,
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Ends the thread; paths through this node break.
    pub fn stop(&self) {
        self.command(Command::Stop);
    }

    /// Whether the thread runs.
    pub fn alive(&self) -> bool {
        // Acquire: pairs with the release store at the thread's end.
        !self.shared.ended.load(Ordering::Acquire)
    }

    /// Payload bytes sent over each link, to be added to by connections.
    pub fn links(&self) -> &LinkCounters {
        &self.shared.links
    }

    fn command(&self, command: Command) {
        self.shared.commands.push(command);
        self.shared.waker.wake();
    }
}

/// A connection being set up.
#[derive(Debug)]
pub struct Connecting {
    agent: Agent,
    id: u64,
    mailbox: Arc<ArrayQueue<Result<Outgoing, Refusal>>>,
    done: bool,
}

impl Connecting {
    /// The outcome, once; `None` while there is none. Never waits.
    pub fn poll(&mut self) -> Option<Result<Outgoing, Refusal>> {
        let outcome = self.mailbox.pop();
        self.done |= outcome.is_some();
        if outcome.is_none() && !self.done && !self.agent.alive() {
            self.done = true;
            let text = format!("mesh[E83] node {}: the relay thread has ended", self.agent.shared.node);
            return Some(Err(Refusal { code: code::THREAD_ENDED, text }));
        }
        outcome
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if !self.done {
            self.agent.command(Command::Cancel(self.id));
        }
    }
}

/// A listener; forgotten when dropped.
#[derive(Debug)]
pub struct Listening {
    agent: Agent,
    id: u64,
    token: [u8; 16],
    mailbox: Arc<ArrayQueue<Incoming>>,
}

impl Listening {
    /// The next connection that has been set up, if any. Never waits.
    pub fn poll(&self) -> Option<Incoming> {
        self.mailbox.pop()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.agent.command(Command::Unlisten(self.token, self.id));
    }
}
