//! The process's busy set: cores that other threads of it are bound to, such as those that somebody has pinned to spin.
//!
//! Must not know: how much these threads run. One that has just started will, and one that waits will wake on just that core. Runs on
//! the relay thread, as it starts.

use std::collections::BTreeSet;

use super::files::{Files, field};
use super::parse_list;

/// The cores, out of `allowed`, that other threads of this process are bound to.
pub(super) fn busy(files: &mut Files<'_>, allowed: &BTreeSet<usize>) -> BTreeSet<usize> {
    let me = files.text("/proc/thread-self/status").and_then(|status| Some(field(&status, "Pid")?.to_owned()));
    let mut busy = BTreeSet::new();
    for thread in files.names("/proc/self/task") {
        if me.as_ref() == Some(&thread) {
            continue;
        }
        let path = format!("/proc/self/task/{thread}/status");
        // One that has ended meanwhile needs no core.
        let Some(status) = files.text(&path) else { continue };
        if field(&status, "State").is_some_and(|state| state.starts_with(['Z', 'X'])) {
            continue;
        }
        let list = field(&status, "Cpus_allowed_list").unwrap_or_default();
        let cores: BTreeSet<usize> = parse_list(list).into_iter().collect();
        if cores.is_empty() {
            files.odd(&path, list);
        } else if is_bound(&cores, allowed) {
            busy.extend(cores);
        }
    }
    busy
}

/// Whether a thread that may run on `cores` is bound to them. One that may use half of a machine, as the socket that its GPU hangs on, is
/// not: the scheduler moves it out of the way.
fn is_bound(cores: &BTreeSet<usize>, allowed: &BTreeSet<usize>) -> bool {
    let narrowed = cores.len() < allowed.len() && cores.is_subset(allowed);
    narrowed && (cores.len() == 1 || cores.len() * 4 <= allowed.len())
}
