//! Where the relay thread runs: a core of the fastest kind that the process may use.
//!
//! The set of allowed cores is the main thread's: NCCL narrows that of its own threads, from which the agent may be started.

use std::path::Path;

/// The setting `NCCL_MESH_RELAY_CORES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreChoice {
    /// One of the fastest allowed cores; none if the process has two or fewer.
    Auto,
    /// Leave it to the scheduler.
    None,
    /// The first of these that can be had.
    List(Vec<usize>),
}

/// Pins the calling thread; answers the core, or `None` if it stays free. `seed` spreads the agents of nodes that share a machine.
pub(crate) fn pin(choice: &CoreChoice, seed: u64) -> Option<usize> {
    let candidates = match choice {
        CoreChoice::None => return None,
        CoreChoice::List(list) => list.clone(),
        CoreChoice::Auto => {
            let allowed = allowed(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
            fastest(&allowed, |core| speed(Path::new("/sys/devices/system/cpu"), core), seed)
        }
    };
    candidates.into_iter().find(|&id| core_affinity::set_for_current(core_affinity::CoreId { id }))
}

/// The cores of `Cpus_allowed_list` in a `/proc/…/status`.
fn allowed(status: &str) -> Vec<usize> {
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    parse_list(list)
}

/// Cores of a list such as `0-3,8,10-11`; what does not parse is left out.
pub(crate) fn parse_list(list: &str) -> Vec<usize> {
    let mut cores = Vec::new();
    for part in list.trim().split(',') {
        match part.split_once('-') {
            Some((a, b)) => {
                if let (Ok(a), Ok(b)) = (a.trim().parse::<usize>(), b.trim().parse::<usize>()) {
                    cores.extend(a..=b.min(a + 4095));
                }
            }
            None => cores.extend(part.trim().parse::<usize>()),
        }
    }
    cores
}

fn speed(root: &Path, core: usize) -> u64 {
    let read = |file: &str| std::fs::read_to_string(root.join(format!("cpu{core}/{file}"))).ok()?.trim().parse().ok();
    read("cpu_capacity").or_else(|| read("cpufreq/cpuinfo_max_freq")).unwrap_or(0)
}

/// The fastest of the allowed cores, one chosen by `seed` first. The first core is left to interrupts and to whoever was started first.
fn fastest(allowed: &[usize], speed: impl Fn(usize) -> u64, seed: u64) -> Vec<usize> {
    if allowed.len() <= 2 {
        return Vec::new();
    }
    let best = allowed[1..].iter().map(|&c| speed(c)).max().unwrap_or(0);
    let mut cores: Vec<usize> = allowed[1..].iter().copied().filter(|&c| speed(c) == best).collect();
    let first = (seed % cores.len().max(1) as u64) as usize;
    cores.rotate_left(first);
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_nonsense_is_left_out() {
        assert_eq!(parse_list("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list(" 5 "), [5]);
        assert!(parse_list("x,-").is_empty());
        assert_eq!(allowed("Name: a\nCpus_allowed_list:\t2-3\n"), [2, 3]);
    }

    #[test]
    fn big_cores_come_first_and_small_machines_are_left_alone() {
        let speed = |core| if core >= 4 { 1024 } else { 512 };
        assert_eq!(fastest(&[0, 1, 2, 3, 4, 5, 6], speed, 1), [5, 6, 4]);
        assert_eq!(fastest(&[0, 1, 2], |_| 0, 0), [1, 2]);
        assert!(fastest(&[0, 1], |_| 0, 0).is_empty());
    }
}
