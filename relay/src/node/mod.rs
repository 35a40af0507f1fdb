//! A node among its processes: who owns it, and what it knows of the mesh.
//!
//! The first process of a host that needs the node becomes its *owner*: it answers on the TCP port that all nodes share, relays for those
//! that have no process here, speaks to the neighbours, and tells the others of the host, its *guests*, what it has found. Guests answer
//! on TCP ports of their own, which the owner advertises, and relay for their own job. When the owner is gone, however it went, a guest
//! takes its place; connections do not notice, but those that passed through it.
//!
//! A name in the abstract namespace of Unix sockets says who the owner is: one process can have it, and it ends with the process.
//!
//! ```text
//!   claim    who is it: takes the name, or connects to who has it
//!   thread   the loop `mesh-node`: as owner, as guest, from one to the other
//!   owner    discovery over real sockets, and the guests
//!   guest    a stream from the owner
//!   ports    sockets and interfaces      frame   what is said between the two      tell   events as lines of the log
//! ```
//!
//! Must not know NCCL, connections or routes. All of it runs on its own thread, which sleeps when nothing happens; [`Mesh`] is its face to
//! the rest of the process.

mod claim;
mod frame;
mod guest;
mod owner;
mod ports;
mod tell;
mod thread;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mesh_link::poller::{Poller, Waker};

use crate::agent::{AgentError, Listeners};
use crate::discovery::{PortInfo, View};

pub use claim::{Claim, Scope};

/// What the thread needs to know of its node; the same for all processes of the node, but for `job` and `daemon`.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Stable id, unique in the cluster.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Whether traffic of others may pass.
    pub relay: bool,
    /// Whether this process is a daemon, which outlives every job.
    pub daemon: bool,
    /// Whether this process only looks: it answers on no TCP port and relays nothing.
    pub looks_only: bool,
    /// Ports.
    pub ports: Vec<PortInfo>,
    /// TCP and UDP port that all nodes share.
    pub port: u16,
    /// The job that this process belongs to, 0 if that is not known.
    pub job: u32,
    /// Its rank in the job, [`NO_RANK`](crate::discovery::NO_RANK) if that is not known.
    pub rank: u16,
}

/// What is known of the mesh at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Counts the changes in this process.
    pub generation: u64,
    /// Nodes and links that all agree on.
    pub view: View,
}

type Serve = Box<dyn FnMut(Listeners) + Send>;

struct Shared {
    snapshot: Mutex<Arc<Snapshot>>,
    /// Of the snapshot; release when it is replaced, acquire in [`Mesh::generation`].
    generation: AtomicU64,
    waker: Waker,
    stop: AtomicBool,
    /// Whether this process owns the node. Relaxed: for status alone.
    owns: AtomicBool,
    changed: Instant,
    /// When the view last changed, in nanoseconds after `changed`. Relaxed: for status and for waiting alone.
    last: AtomicU64,
}

impl Shared {
    fn publish(&self, view: View) {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        if snapshot.view == view && snapshot.generation > 0 {
            return;
        }
        let generation = snapshot.generation + 1;
        *snapshot = Arc::new(Snapshot { generation, view });
        self.last.store(self.changed.elapsed().as_nanos() as u64, Ordering::Relaxed);
        // Release: pairs with the acquire in `Mesh::generation`; who sees the number finds the snapshot.
        self.generation.store(generation, Ordering::Release);
    }
}

/// What this process knows of the mesh. Cheap to clone; any thread; nothing blocks but for the moment of a swap.
#[derive(Clone)]
pub struct Mesh {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl Mesh {
    /// Starts the thread with what [`Claim::take`] found. When this process becomes the owner later, `serve` gets the sockets on the shared
    /// TCP port. `agent` is the TCP port of this process's agent, 0 if it has none.
    ///
    /// # Errors
    /// The configuration is none that other nodes could take, or the operating system refuses something.
    pub fn start(config: NodeConfig, claim: Claim, agent: u16, serve: Serve) -> Result<Self, AgentError> {
        let system = |what| {
            let node = config.name.clone();
            move |source| AgentError::System { node, what, source }
        };
        let poller = Poller::new().map_err(system("epoll"))?;
        let waker = Waker::new(&poller, thread::WAKER).map_err(system("eventfd"))?;
        let shared = Arc::new(Shared {
            snapshot: Mutex::default(),
            generation: AtomicU64::new(0),
            waker,
            stop: AtomicBool::new(false),
            owns: AtomicBool::new(false),
            changed: Instant::now(),
            last: AtomicU64::new(0),
        });
        let failed = system("thread");
        let runner = thread::Runner::new(config, claim, agent, serve, poller, Arc::clone(&shared))?;
        let spawned = std::thread::Builder::new().name("mesh-node".into()).spawn(move || runner.run());
        spawned.map_err(failed)?;
        Ok(Self { shared })
    }

    /// Number of the present view; 0 while there is none.
    pub fn generation(&self) -> u64 {
        // Acquire: pairs with the release in `Shared::publish`.
        self.shared.generation.load(Ordering::Acquire)
    }

    /// What is known now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.shared.snapshot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// For how long the view has been as it is.
    pub fn quiet(&self) -> Duration {
        // Relaxed: a time to wait by, read on its own.
        let last = Duration::from_nanos(self.shared.last.load(Ordering::Relaxed));
        self.shared.changed.elapsed().saturating_sub(last)
    }

    /// Whether this process owns the node.
    pub fn owns(&self) -> bool {
        // Relaxed: for status alone.
        self.shared.owns.load(Ordering::Relaxed)
    }

    /// Ends the thread soon.
    pub fn stop(&self) {
        // Release: pairs with the acquire in the loop.
        self.shared.stop.store(true, Ordering::Release);
        self.shared.waker.wake();
    }
}
