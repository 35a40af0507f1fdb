//! Which thread runs on which core, so that figures are the same from run to run.
//!
//! The choice is pure; the cores are those that the calling thread may use. Any thread.

use std::str::FromStr;

use core_affinity::CoreId;

use crate::harness::args::ArgsError;

/// Whether threads get cores of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// The two ends if there are two cores, and every node's relay thread if there is one for each beside those.
    #[default]
    Auto,
    /// The same, and refused where there is one core only.
    On,
    /// None.
    Off,
}

impl FromStr for Pin {
    type Err = ArgsError;

    fn from_str(text: &str) -> Result<Self, ArgsError> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(ArgsError::Bench(format!("--pin {text:?} is none of auto, on, off"))),
        }
    }
}

/// A core that may be used. Two threads of one physical core have the same `body`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Core {
    id: usize,
    body: (u64, u64),
}

/// Where threads run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// Cores of the two ends' progress threads, if they are pinned.
    pub(super) ends: Option<[usize; 2]>,
    /// A core for every node's relay thread; empty: they share cores, and sleep as soon as nothing is to do.
    pub(super) relays: Vec<usize>,
    /// Whether there are as many cores as nodes, each of which has one busy thread: an end or a relay.
    pub(super) roomy: bool,
}

impl Placement {
    /// Chooses for so many nodes.
    pub(super) fn choose(pin: Pin, nodes: usize, cores: &[Core]) -> Result<Self, ArgsError> {
        let roomy = cores.len() >= nodes.max(2);
        let wanted = match pin {
            Pin::Off => false,
            Pin::On if cores.len() < 2 => {
                return Err(ArgsError::Bench("--pin on: two ends need two cores, and there is one".to_owned()));
            }
            Pin::Auto | Pin::On => true,
        };
        let order = by_distance(cores);
        match order[..] {
            [first, second, ref rest @ ..] if wanted => {
                let relays = if rest.len() >= nodes { rest[..nodes].to_vec() } else { Vec::new() };
                Ok(Self { ends: Some([first, second]), relays, roomy })
            }
            _ => Ok(Self { ends: None, relays: Vec::new(), roomy }),
        }
    }
}

/// One thread of each physical core first, then the others; the very first core, to which interrupts go, is the last of its kind.
fn by_distance(cores: &[Core]) -> Vec<usize> {
    let mut rotated = cores.to_vec();
    rotated.rotate_left(usize::from(cores.len() > 1));
    let is_twin = |at: usize| rotated[..at].iter().any(|other| other.body == rotated[at].body);
    let (twins, first): (Vec<usize>, Vec<usize>) = (0..rotated.len()).partition(|at| is_twin(*at));
    first.into_iter().chain(twins).map(|at| rotated[at].id).collect()
}

/// The cores that this thread may use.
pub(super) fn cores() -> Vec<Core> {
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    ids.into_iter().map(|core| Core { id: core.id, body: body(core.id) }).collect()
}

/// Package and physical core; where the kernel does not tell, each is a body of its own.
fn body(id: usize) -> (u64, u64) {
    let read = |file: &str| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{id}/topology/{file}")).ok()?;
        text.trim().parse().ok()
    };
    read("physical_package_id").zip(read("core_id")).unwrap_or((u64::MAX, id as u64))
}

/// From now on this thread runs on this core only.
pub(super) fn pin_thread(id: usize) -> Result<(), String> {
    if core_affinity::set_for_current(CoreId { id }) { Ok(()) } else { Err(format!("core {id} cannot be had")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(count: usize) -> Vec<Core> {
        (0..count).map(|id| Core { id, body: (0, id as u64) }).collect()
    }

    #[test]
    fn ends_are_pinned_first_and_relays_if_there_is_a_core_for_each() {
        let choose = |pin, nodes, cores| Placement::choose(pin, nodes, &plain(cores)).expect("possible");
        // on both sides of the limit
        let placed = choose(Pin::Auto, 4, 5);
        assert_eq!((placed.ends, placed.relays.len(), placed.roomy), (Some([1, 2]), 0, true));
        let placed = choose(Pin::Auto, 4, 6);
        assert_eq!((placed.ends, &placed.relays[..]), (Some([1, 2]), &[3, 4, 5, 0][..]));
        let placed = choose(Pin::On, 4, 2);
        assert_eq!((placed.ends, placed.relays.len(), placed.roomy), (Some([1, 0]), 0, false));
        // not at all
        assert_eq!(choose(Pin::Off, 2, 64).ends, None);
        assert_eq!(choose(Pin::Auto, 2, 1), Placement::default());
        assert_eq!(choose(Pin::Auto, 2, 0), Placement::default());
        assert!(Placement::choose(Pin::On, 2, &plain(1)).is_err());
    }

    #[test]
    fn ends_do_not_share_a_physical_core() {
        // given four bodies whose two threads are neighbours in number, and four whose second threads come last
        let neighbours: Vec<Core> = (0..8).map(|id| Core { id, body: (0, id as u64 / 2) }).collect();
        let apart: Vec<Core> = (0..8).map(|id| Core { id, body: (0, id as u64 % 4) }).collect();
        for cores in [neighbours, apart] {
            let order = by_distance(&cores);
            let bodies: std::collections::BTreeSet<_> = order[..4].iter().map(|id| cores[*id].body).collect();
            assert_eq!(bodies.len(), 4, "{order:?}");
            assert_eq!(order.len(), 8);
        }
    }

    #[test]
    fn only_three_words_are_taken() {
        assert_eq!(["auto", "on", "off"].map(str::parse), [Ok(Pin::Auto), Ok(Pin::On), Ok(Pin::Off)]);
        assert!("yes".parse::<Pin>().is_err());
    }
}
