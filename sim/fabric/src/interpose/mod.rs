//! The C library's socket functions, each with the fabric's rules in front.
//!
//! Every function here is entered from any thread of the host process, at any time after the loader ran its constructors, and
//! returns as the C library's own would: -1 with `errno` on refusal. Nothing is logged: a refusal is for the caller to explain.
#![allow(unsafe_code, reason = "stands in for functions of the C library")]

mod addresses;
mod cut_file;
mod multicast;
mod next;
mod receiving;
mod sending;

use std::ffi::c_int;
use std::path::Path;
use std::sync::OnceLock;

use crate::rules::Fabric;

static FABRIC: OnceLock<Fabric> = OnceLock::new();

/// Exit status of a process whose fabric is missing or malformed.
const NO_FABRIC: c_int = 125;

fn fabric() -> &'static Fabric {
    FABRIC.get_or_init(|| load().unwrap_or_else(|message| refuse_to_run(&message)))
}

fn load() -> Result<Fabric, String> {
    let path = std::env::var_os("MESH_FABRIC")
        .filter(|path| !path.is_empty())
        .ok_or("MESH_FABRIC is not set: it must name the fabric file")?;
    let own = std::env::var("MESH_FABRIC_NODE")
        .map_err(|_| "MESH_FABRIC_NODE is not set: it must list the addresses of this node's ports")?;
    let shown = path.to_string_lossy().into_owned();
    let file = std::fs::read_to_string(&path).map_err(|error| format!("cannot read MESH_FABRIC={shown}: {error}"))?;
    let fabric = Fabric::parse(&file, &own);
    let fabric = fabric.map_err(|error| format!("MESH_FABRIC={shown}, MESH_FABRIC_NODE={own}: {error}"))?;
    let cuts = cut_file::open(Path::new(&path), fabric.cables())?;
    Ok(fabric.with_cuts(cuts))
}

fn refuse_to_run(message: &str) -> ! {
    eprintln!("libmesh_fabric: {message}; the process ends here, for a fabric is never silently open");
    // SAFETY: `_exit` ends the process and runs no other code of it; that is the purpose.
    unsafe { libc::_exit(NO_FABRIC) }
}

extern "C" fn at_load() {
    fabric();
}

// SAFETY: the loader calls the functions in `.init_array` once each, after relocation, with C arguments that may be ignored.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

fn refused(errno: c_int) -> c_int {
    // SAFETY: the C library gives each thread an errno that lives as long as the thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}
