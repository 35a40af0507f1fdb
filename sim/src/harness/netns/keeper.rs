//! The process that outlives a run, whatever becomes of it, and removes its namespaces and files.
//!
//! It waits for the end of its standard input, which the run holds open: so it notices also that the run was killed. All removing
//! is done here, in order or not. Should it be killed too, every later run looks for namespaces of runs that are gone.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

use super::ip::Ip;
use super::{NetnsError, layout};
use crate::harness::{scene, verbs};

/// Where `ip` keeps names of namespaces.
const NAMES: &str = "/var/run/netns";
/// How often what is left is removed again, with a pause before each: a killed run may just have been making something.
const ROUNDS: usize = 25;
const PAUSE: Duration = Duration::from_millis(20);

/// The process, as the run sees it. When this value goes, so do the namespaces.
#[derive(Debug)]
pub(super) struct Keeper {
    ip: Ip,
    prefix: String,
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Keeper {
    /// Starts it, before there is anything to remove.
    pub(super) fn start(ip: &Ip, run: u32) -> Result<Self, NetnsError> {
        let mut command = Command::new(std::env::current_exe().map_err(NetnsError::Keeper)?);
        command.args(["sim", "keeper", &run.to_string()]);
        // A group of its own: what a terminal or a shell sends to the run's must not end it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(NetnsError::Keeper)?;
        let pipe = child.stdin.take();
        Ok(Self { ip: ip.clone(), prefix: layout::prefix(run), child, pipe })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.child.wait();
        // Nothing is left, unless somebody killed it.
        remove(&self.ip, &self.prefix);
    }
}

/// The keeper of the run that is this process; the hidden command `nccl-mesh sim keeper`.
#[must_use]
pub fn run_keeper(run: u32) -> ExitCode {
    // An error is an end too.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let prefix = layout::prefix(run);
    let Ok(ip) = Ip::find() else {
        eprintln!("mesh[E31] {}; namespaces {prefix}* stay", NetnsError::NoIp);
        return ExitCode::FAILURE;
    };
    for _ in 0..ROUNDS {
        remove(&ip, &prefix);
        remove_files(run);
        std::thread::sleep(PAUSE);
        if names(|name| name.starts_with(&prefix)).is_empty() {
            return ExitCode::SUCCESS;
        }
    }
    eprintln!("mesh[E31] network namespaces {prefix}* could not be removed; remove them: ip netns del NAME");
    ExitCode::FAILURE
}

/// Removes what runs left that were killed together with their keepers.
pub(super) fn sweep(ip: &Ip) {
    let gone = |process: u32| !Path::new(&format!("/proc/{process}")).exists();
    let mut dead: Vec<u32> = names(|_| true).iter().filter_map(|name| layout::process_of(name)).collect();
    dead.retain(|process| gone(*process));
    dead.dedup();
    for process in dead {
        remove(ip, &layout::prefix(process));
    }
}

/// Kills what runs in the namespaces and removes them. What cannot be removed is left, and found by whoever looks.
fn remove(ip: &Ip, prefix: &str) {
    let names = names(|name| name.starts_with(prefix));
    if names.is_empty() {
        return;
    }
    for name in &names {
        kill_all(ip, name);
    }
    for name in &names {
        let _ = ip.run(&["netns", "del", name]);
    }
}

/// Removes the folders of a run; one that ended in order has none.
fn remove_files(run: u32) {
    let places = [(std::env::temp_dir(), scene::FOLDER), (verbs::SHARED.into(), verbs::FOLDER)];
    for (place, start) in places {
        let start = format!("{start}{run}-");
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&start)) {
                // What cannot be removed harms no later run.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Kills every process in a namespace, also those that it starts meanwhile.
pub(super) fn kill_all(ip: &Ip, namespace: &str) {
    for _ in 0..ROUNDS {
        let found = ip.run(&["netns", "pids", namespace]).unwrap_or_default();
        let numbers: Vec<&str> = found.split_whitespace().collect();
        if numbers.is_empty() {
            return;
        }
        // The shell's own, which is everywhere. Who is gone already is what was wanted.
        let script = format!("kill -9 {}", numbers.join(" "));
        let _ = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Names of namespaces that are wanted.
fn names(wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(NAMES).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| wanted(name));
    names.sort();
    names
}
