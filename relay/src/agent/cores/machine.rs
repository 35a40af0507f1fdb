//! What the choice goes by: the cores that the process may use, how fast they are, which are busy, and how many cores' worth of time it has.
//!
//! Must not know: what is preferred to what. All is read below one root, so that tests can make machines. Runs on the relay thread, as it
//! starts.

use std::collections::BTreeSet;
use std::path::Path;

use super::files::{Files, field};
use super::{busy, order, parse_list, quota};

/// A core that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Core {
    /// Linux's number of it.
    pub(super) number: usize,
    /// 0 for the fastest kind of core among these, 1 for the next.
    pub(super) kind: usize,
    /// Another thread of the process is bound to it.
    pub(super) busy: bool,
    /// Another thread of the process is bound to a hyper-thread of the same physical core.
    pub(super) beside_busy: bool,
}

/// The machine, as far as this process may use it.
#[derive(Debug)]
pub(super) struct Machine {
    /// Ascending. Empty if the kernel does not say.
    pub(super) cores: Vec<Core>,
    /// Whole cores' worth of time; `None` without a limit.
    pub(super) quota: Option<usize>,
    /// What was wrong with what was read.
    notes: Vec<String>,
}

impl Machine {
    pub(super) fn read(root: &Path) -> Self {
        let mut files = Files::new(root);
        let allowed = allowed(&mut files);
        let busy = busy::busy(&mut files, &allowed);
        let kinds = order::kinds(&speeds(&mut files, &allowed));
        let core = |(&number, kind): (&usize, usize)| {
            let siblings = files.cores(&of_core(number, "topology/thread_siblings_list")).unwrap_or_default();
            let beside_busy = siblings.iter().any(|sibling| *sibling != number && busy.contains(sibling));
            Core { number, kind, busy: busy.contains(&number), beside_busy }
        };
        let cores = allowed.iter().zip(kinds).map(core).collect();
        let quota = quota::cores_worth(&mut files);
        Self { cores, quota, notes: files.notes }
    }

    /// Cores' worth of time that the process can have; 0 if nobody knows.
    pub(super) fn effective(&self) -> usize {
        self.cores.len().min(self.quota.unwrap_or(usize::MAX))
    }

    /// The same in words.
    pub(super) fn room(&self) -> String {
        let plural = |n| if n == 1 { "1 core".to_owned() } else { format!("{n} cores") };
        let allowed = self.cores.len();
        match self.quota {
            Some(quota) if quota < allowed => format!("{} may be used, with a quota of {quota}", plural(allowed)),
            _ if allowed == 0 => "which cores may be used is not known".to_owned(),
            _ => format!("{} may be used", plural(allowed)),
        }
    }

    /// What was wrong with what was read: the first such thing, and how many more.
    pub(super) fn remarks(&self) -> Option<String> {
        let (first, more) = self.notes.split_first()?;
        Some(if more.is_empty() { first.clone() } else { format!("{first}; {} more like that", more.len()) })
    }
}

/// The main thread's cores: NCCL narrows its own threads, and the agent may be started from one of them. What is offline stays in that
/// list, on machines that have room for more cores than they have.
fn allowed(files: &mut Files<'_>) -> BTreeSet<usize> {
    const STATUS: &str = "/proc/self/status";
    let status = files.text(STATUS).unwrap_or_default();
    let list = field(&status, "Cpus_allowed_list").unwrap_or_default();
    let mut allowed: BTreeSet<usize> = parse_list(list).into_iter().collect();
    if allowed.is_empty() {
        files.notes.push(format!("{STATUS} names no core"));
    }
    if let Some(online) = files.cores("/sys/devices/system/cpu/online") {
        allowed.retain(|core| online.contains(core));
    }
    allowed
}

/// How fast each core is, in a unit that is the same for all of them: capacity, else frequency, else they count as equal.
fn speeds(files: &mut Files<'_>, cores: &BTreeSet<usize>) -> Vec<u64> {
    for file in ["cpu_capacity", "cpufreq/cpuinfo_max_freq"] {
        let speeds: Option<Vec<u64>> = cores.iter().map(|core| files.number(&of_core(*core, file))).collect();
        if let Some(speeds) = speeds {
            return speeds;
        }
    }
    vec![0; cores.len()]
}

fn of_core(core: usize, file: &str) -> String {
    format!("/sys/devices/system/cpu/cpu{core}/{file}")
}
