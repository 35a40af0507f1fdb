//! The C functions of libibverbs, by subject. Each keeps the conventions of its manual page: some return an errno value, some
//! −1 and set `errno`, some a null pointer.
//!
//! Callers are C programs: pointers are trusted to be what the interface says, numbers are checked. Any thread.

#![allow(unsafe_code, reason = "a C interface: pointers come from C programs")]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the contract of each function is its rdma-core manual page"
)]

pub mod building;
pub mod devices;
pub mod events;
pub mod gids;
pub mod pairs;
pub mod posting;
pub mod queues;
pub mod refusing;
pub mod regions;
pub mod texts;

use std::ffi::c_int;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::Fabric;

/// Environment variable that names the fabric file.
pub const FABRIC_VARIABLE: &str = "MESH_SOFT_VERBS";
/// Environment variable that names this process's node, or several separated by commas.
pub const NODE_VARIABLE: &str = "MESH_SOFT_VERBS_NODE";

/// The fabric that the environment names; without one there are no devices.
fn fabric() -> Option<&'static Fabric> {
    static FABRIC: OnceLock<Option<Fabric>> = OnceLock::new();
    FABRIC
        .get_or_init(|| {
            let file = std::env::var_os(FABRIC_VARIABLE).filter(|file| !file.is_empty())?;
            match Fabric::open(Path::new(&file)) {
                Ok(fabric) => Some(fabric),
                Err(error) => {
                    eprintln!("soft verbs: {error}: no devices");
                    None
                }
            }
        })
        .as_ref()
}

/// Nodes that this process stands for.
fn nodes() -> Vec<String> {
    let names = std::env::var(NODE_VARIABLE).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Whether this process was forked from one that had opened a device: its parent's queues are not its own.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

fn set_errno(code: c_int) {
    // SAFETY: the location is the calling thread's own.
    unsafe { *libc::__errno_location() = code };
}

/// Sets `errno` and returns null.
fn null<T>(code: c_int) -> *mut T {
    set_errno(code);
    std::ptr::null_mut()
}

/// Sets `errno` and returns −1.
fn minus_one(code: c_int) -> c_int {
    set_errno(code);
    -1
}

/// `errno` of an error, or EIO.
fn code_of(error: &std::io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}
