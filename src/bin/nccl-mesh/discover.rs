//! `nccl-mesh topology discover`: the topology file of what is found from this host. Runs on the command's main thread.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use mesh_routing::render::summary;
use nccl_net_mesh::whole::{Found, look};

use crate::routes::{emit, fail};

/// Options of the command.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Write the file here instead of to standard output, where a summary is printed then
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Longest time to wait until nothing changes any more
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    wait: u64,
}

/// Fails if nothing but this node is found, or if something is wrong: then the file lacks it. A subnet that is no cable is told, and left out.
pub(crate) fn run(args: &Args) -> ExitCode {
    let found = match look(Duration::from_secs(args.wait.clamp(1, 600))) {
        Ok(found) => found,
        Err(why) => return fail(&why),
    };
    let text = found.topology.to_toml();
    let printed = match &args.out {
        None => emit(&text),
        Some(path) => match std::fs::write(path, &text) {
            Ok(()) => emit(&summary(&found.topology)),
            Err(e) => return fail(&format!("{}: cannot be written: {e}", path.display())),
        },
    };
    let lines = remarks(&found);
    // Where standard error is gone as well, the exit status has to do.
    let _ = std::io::stderr().write_all(lines.as_bytes());
    let wrong =
        !found.problems.is_empty() || found.topology.nodes().len() <= 1 || found.faults.iter().any(|(wrong, _)| *wrong);
    if wrong { ExitCode::FAILURE } else { printed }
}

/// What the file does not say.
fn remarks(found: &Found) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for (_, fault) in &found.faults {
        let _ = writeln!(out, "left out: {fault}");
    }
    for problem in &found.problems {
        let _ = writeln!(out, "{problem}");
    }
    if found.topology.nodes().len() <= 1 {
        let _ = writeln!(
            out,
            "mesh[E75] node {}: no other node was found in {} ms; does a job or `nccl-mesh agent` run on the neighbours, and are the cables in?",
            found.name,
            found.after.as_millis()
        );
    }
    out
}
