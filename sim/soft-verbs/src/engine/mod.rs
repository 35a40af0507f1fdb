//! How requests are carried out: one state machine for a send queue, driven by the posting call, by polls, or by a thread.
//!
//! [`request`] is what waits, [`attempt`] tries the request at the head once, [`pair`] is a queue pair's send queue and states,
//! [`completions`] adds to completion queues, [`clock`] reserves time on ports, [`progress`] drives what cannot go on at once,
//! [`carrier`] keeps ports up while their netdevs are.
//! Knows no C interface; pointers to public objects pass through unread.

pub mod attempt;
pub mod carrier;
pub mod clock;
pub mod completions;
pub mod pair;
pub mod progress;
pub mod request;

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::abi::{IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR};
use crate::plan::{Plan, PlanError};
use crate::shared::Shared;
use crate::shared::layout::MAX_CONTEXTS;
use crate::shared::memory::SharedError;
use crate::wake::Wakers;

/// A fabric as one process uses it.
#[derive(Debug)]
pub struct Fabric {
    /// What the file says.
    pub plan: Plan,
    /// What all processes share.
    pub shared: Shared,
    /// Ends of other processes' FIFOs.
    pub wakers: Wakers,
    /// Queue pairs of this process that cannot go on at once.
    pub progress: progress::Progress,
}

/// Why a fabric cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum FabricError {
    #[error("fabric file {path}: {source}")]
    Read { path: std::path::PathBuf, source: std::io::Error },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Shared(#[from] SharedError),
}

impl Fabric {
    /// Reads a fabric file and maps its memory.
    ///
    /// # Errors
    /// The file cannot be read or understood, or the memory not be used.
    pub fn open(path: &Path) -> Result<Self, FabricError> {
        let read = |source| FabricError::Read { path: path.to_owned(), source };
        let plan = Plan::parse(&std::fs::read_to_string(path).map_err(read)?)?;
        let shared = Shared::open(path, &plan)?;
        Ok(Self { plan, shared, wakers: Wakers::default(), progress: progress::Progress::default() })
    }

    /// Whether frames pass between two ports now.
    pub fn path_up(&self, a: u32, b: u32) -> bool {
        let ports = &self.shared.tables().ports;
        let up = |port: u32| ports.get(port as usize).is_some_and(|cell| cell.down.load(Ordering::Acquire) == 0);
        up(a) && up(b)
    }

    /// Takes a port's carrier or gives it back, and tells its devices if that is news.
    pub fn set_carrier(&self, port: usize, up: bool) {
        let down = u32::from(!up);
        if self.shared.tables().ports[port].down.swap(down, Ordering::SeqCst) != down {
            self.tell(port, if up { IBV_EVENT_PORT_ACTIVE } else { IBV_EVENT_PORT_ERR });
        }
    }

    /// Sends an asynchronous event to all who have the port's device open.
    pub fn tell(&self, port: usize, event: u32) {
        let tables = self.shared.tables();
        let used = (tables.contexts_high.load(Ordering::Acquire) as usize).min(MAX_CONTEXTS);
        for context in &tables.contexts[..used] {
            let open = context.owner.load(Ordering::Acquire) != 0;
            if open && context.port.load(Ordering::Relaxed) as usize == port {
                let fifo = context.fifo.load(Ordering::Acquire);
                self.wakers.wake(&self.shared, fifo, [u64::from(event), 1]);
            }
        }
    }
}
