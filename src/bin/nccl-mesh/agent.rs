//! `nccl-mesh agent`: the daemon that owns this host's node, so that jobs may come and go. Runs on the command's main thread, which waits
//! for a signal; the work is done by the node's own threads.

use std::process::ExitCode;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::routes::fail;
use nccl_net_mesh::whole;

/// Options of the command.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "All else is set as for jobs, by NCCL_MESH_ variables or the file of NCCL_MESH_CONF (nccl-mesh env --all)."
)]
pub(crate) struct Args {}

/// Runs until a signal says to end, then goes on relaying while others need it, for a bounded time (`NCCL_MESH_DRAIN_MS`).
pub(crate) fn run(_: &Args) -> ExitCode {
    let mut signals = match Signals::new([SIGTERM, SIGINT, SIGHUP]) {
        Ok(signals) => signals,
        Err(e) => return fail(&format!("mesh[E83] signals cannot be waited for: {e}")),
    };
    if let Err(why) = whole::daemon() {
        return fail(&why);
    }
    // A second signal does not wait.
    if signals.forever().next().is_some() {
        std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                std::process::exit(1);
            }
        });
        whole::drain();
    }
    ExitCode::SUCCESS
}
