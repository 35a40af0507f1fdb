//! Where the relay thread runs: a big core that nothing else of this process is bound to, or none where cores are few.
//!
//! Must not know: what the thread does, and what other processes run. Runs once, on the relay thread, as it starts.
//!
//! Files: `files` reads small files below a root and keeps what was wrong with them, `quota` what cgroups leave of the cores, `busy`
//! the cores that other threads are bound to, `machine` all of that together, `order` which core is preferred to which.

mod busy;
mod files;
mod machine;
mod order;
mod quota;

#[cfg(test)]
mod tests;

use std::path::Path;

use machine::{Core, Machine};

/// The setting `NCCL_MESH_RELAY_CORES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreChoice {
    /// A fast core that no other thread of the process is bound to; none if there are two cores' worth or less.
    Auto,
    /// Leave it to the scheduler.
    None,
    /// The first of these that can be had.
    List(Vec<usize>),
}

/// Where the calling thread runs from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// The core that it is pinned to; `None` if the scheduler decides.
    pub core: Option<usize>,
    /// Others of this process need the core that it runs on: it must give it away between two looks, not spin on it.
    pub yields: bool,
    /// What was chosen and why, for the log.
    pub why: String,
}

/// With that many cores or fewer, a thread that is pinned and spins is in the way of those that it works for.
const FEW: usize = 2;

/// One more than the largest core that an affinity mask of the usual size can name.
const MASK: usize = 1024;

/// Pins the calling thread as `choice` says. `seed` spreads the agents of nodes that share a machine.
pub(crate) fn choose(choice: &CoreChoice, seed: u64) -> Chosen {
    let pin = |core| core < MASK && core_affinity::set_for_current(core_affinity::CoreId { id: core });
    decide(choice, seed, &Machine::read(Path::new("/")), pin)
}

/// The decision; `pin` says whether a core could be had.
fn decide(choice: &CoreChoice, seed: u64, machine: &Machine, mut pin: impl FnMut(usize) -> bool) -> Chosen {
    let few = machine.effective() <= FEW;
    let mut facts = Vec::new();
    let core = match choice {
        CoreChoice::None => {
            facts.push("NCCL_MESH_RELAY_CORES is none".to_owned());
            None
        }
        CoreChoice::List(list) => {
            let core = list.iter().copied().find(|&core| pin(core));
            facts.push(match core {
                Some(_) => "set by NCCL_MESH_RELAY_CORES".to_owned(),
                None => format!("NCCL_MESH_RELAY_CORES names no core that can be had: {list:?}"),
            });
            core
        }
        CoreChoice::Auto if few => None,
        CoreChoice::Auto => {
            let core = order::order(&machine.cores, seed).into_iter().find(|core| pin(core.number));
            match core {
                Some(core) => reasons(core, machine, &mut facts),
                None => facts.push(format!("the system lets it be pinned to none of {}", machine.cores.len())),
            }
            core.map(|core| core.number)
        }
    };
    let shared = core.is_some_and(|number| machine.cores.iter().any(|core| core.busy && core.number == number));
    if few {
        facts.push(machine.room());
    } else if shared {
        facts.push("another thread is bound to it".to_owned());
    }
    facts.extend(machine.remarks());
    let yields = few || shared;
    let place = core.map_or_else(|| "any core".to_owned(), |core| format!("core {core}"));
    let why = format!("{place}{} ({})", if yields { ", yielding" } else { "" }, facts.join("; "));
    Chosen { core, yields, why }
}

/// What speaks for this core, and what against.
fn reasons(core: Core, machine: &Machine, facts: &mut Vec<String>) {
    let cores = &machine.cores;
    let fastest = core.kind == 0 && cores.iter().any(|other| other.kind != 0);
    facts.push(format!("{} of {} allowed", if fastest { "fastest" } else { "one" }, cores.len()));
    facts.extend(machine.quota.filter(|quota| *quota < cores.len()).map(|quota| format!("quota of {quota}")));
    let busy = cores.iter().filter(|other| other.busy).count();
    if busy > 0 && !core.busy {
        facts.push(format!("{busy} busy left out"));
    }
    if core.beside_busy {
        facts.push("its hyper-thread sibling is busy".to_owned());
    }
}

/// Cores of a list such as `0-3,8,10-11`; what does not parse is left out.
pub(crate) fn parse_list(list: &str) -> Vec<usize> {
    let mut cores = Vec::new();
    for part in list.trim().split(',') {
        match part.split_once('-') {
            Some((a, b)) => {
                if let (Ok(a), Ok(b)) = (a.trim().parse::<usize>(), b.trim().parse::<usize>()) {
                    cores.extend(a..=b.min(a.saturating_add(4095)));
                }
            }
            None => cores.extend(part.trim().parse::<usize>()),
        }
    }
    cores
}
