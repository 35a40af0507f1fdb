//! init and finalize.
//!
//! For: the adapters. Must not know: connections.
//! Threads: the thread that initialises or destroys a communicator; several at once are put in order by a lock.
//!
//! From version 11 on there is a context for each communicator, and NCCL says when it goes. Before, NCCL calls init while no
//! communicator lives and never finalize: one context for the whole process, which stays.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use mesh_abi::{CommConfig, Logger, TRAFFIC_CLASS_UNDEFINED};

use super::comm::cleared;
use super::fault::Fault;
use super::fork;
use super::inner::Transport;
use crate::{log, settings};

struct State {
    /// Contexts alive, by number. Numbers are never used twice, so a context given back twice is noticed.
    contexts: BTreeSet<usize>,
    last: usize,
    /// The context of the versions without one.
    process_wide: bool,
    greeted: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { contexts: BTreeSet::new(), last: 0, process_wide: false, greeted: false });

/// Contexts differ by this, so that none looks like a small number.
const STRIDE: usize = 0x1000;

/// init of v11 and later.
///
/// # Safety
/// `ctx` and `config` are NULL or valid; `logger` is NULL or NCCL's.
pub(super) unsafe fn init<T: Transport>(
    version: u32,
    ctx: *mut *mut c_void,
    comm_id: u64,
    config: *const CommConfig,
    logger: Logger,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { cleared(ctx, "ctx") }?;
    // SAFETY: as above, and not NULL where followed.
    let traffic_class = unsafe { config.as_ref() }.map_or(TRAFFIC_CLASS_UNDEFINED, |config| config.traffic_class);
    let mut state = lock();
    state.prepare(version, logger);
    T::init(comm_id, traffic_class).map_err(|error| Fault::net(&error))?;
    state.last += 1;
    let number = state.last;
    state.contexts.insert(number);
    // SAFETY: `cleared` found it valid.
    unsafe { ctx.write(ptr::without_provenance_mut(number * STRIDE)) };
    Ok(())
}

/// init of v6 to v10.
pub(super) fn init_process<T: Transport>(version: u32, logger: Logger) -> Result<(), Fault> {
    let mut state = lock();
    state.prepare(version, logger);
    if !state.process_wide {
        T::init(0, TRAFFIC_CLASS_UNDEFINED).map_err(|error| Fault::net(&error))?;
        state.process_wide = true;
    }
    Ok(())
}

/// finalize; NULL is what some releases pass after a failed init.
pub(super) fn finalize<T: Transport>(ctx: *mut c_void) -> Result<(), Fault> {
    let mut state = lock();
    if !ctx.is_null() {
        let number = ctx.addr() / STRIDE;
        if !ctx.addr().is_multiple_of(STRIDE) || !state.contexts.remove(&number) {
            return Err(Fault::Foreign { what: "ctx" });
        }
        T::finalize();
    }
    if state.contexts.is_empty() && !state.process_wide {
        log::detach();
    }
    Ok(())
}

fn lock() -> std::sync::MutexGuard<'static, State> {
    // Every change of the state is one step, so a panic in between leaves it valid.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// What comes before the first connection: fork handler, log, banner, what there is to say about the settings.
    fn prepare(&mut self, version: u32, logger: Logger) {
        fork::watch();
        let settings = settings::get();
        let nccl_debug = std::env::var("NCCL_DEBUG").ok();
        log::install(nccl_debug.as_deref(), settings.debug);
        log::attach(logger);
        if std::mem::replace(&mut self.greeted, true) {
            return;
        }
        let path = library_path();
        tracing::info!(
            target: log::INIT,
            "mesh[I01] nccl-mesh {} {path} abi v{version} pid {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
        );
        for warning in settings::warnings() {
            tracing::warn!(target: log::INIT, "{warning}");
        }
    }
}

/// The file that this code was loaded from: of two installed ones, the one in use.
fn library_path() -> String {
    // SAFETY: all bytes of `Dl_info` may be zero.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let here = library_path as fn() -> String as *const c_void;
    // SAFETY: any address may be asked for; the output lives through the call.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return "(unknown file)".to_owned();
    }
    // SAFETY: not NULL, so a C string that lives as long as the file is loaded.
    unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned()
}
