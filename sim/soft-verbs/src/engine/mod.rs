//! How requests are carried out: one state machine for a send queue, driven by the posting call, by polls, or by a thread.
//!
//! [`request`] is what waits, [`attempt`] tries the request at the head once, [`pair`] is a queue pair's send queue and states,
//! [`completions`] adds to completion queues, [`clock`] reserves time on ports, [`progress`] drives what cannot go on at once.
//! Knows no C interface; pointers to public objects pass through unread.

pub mod attempt;
pub mod clock;
pub mod completions;
pub mod pair;
pub mod progress;
pub mod request;

use std::path::Path;

use crate::plan::{Plan, PlanError};
use crate::shared::Shared;
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
        let up = |port: u32| {
            ports.get(port as usize).is_some_and(|cell| cell.down.load(std::sync::atomic::Ordering::Acquire) == 0)
        };
        up(a) && up(b)
    }
}
