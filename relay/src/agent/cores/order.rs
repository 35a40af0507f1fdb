//! Which core is preferred to which.
//!
//! Pure; must not know: where the facts come from, nor whether a core can be had. Runs on the relay thread, as it starts.

use super::machine::Core;

/// The kind of each core, by its speed: 0 for the fastest. Speeds that differ by less than an eighth are one kind: vendors let a favoured
/// core of a kind go a few per cent faster, and the agents of all nodes of a machine would meet on that one.
pub(super) fn kinds(speeds: &[u64]) -> Vec<usize> {
    let mut sorted = speeds.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    // The fastest of each kind.
    let mut tops: Vec<u64> = Vec::new();
    for speed in sorted {
        if tops.last().is_none_or(|top| speed < top - top / 8) {
            tops.push(speed);
        }
    }
    // Tops descend, and the first is as fast as any: at least one is not slower.
    speeds.iter().map(|speed| tops.iter().filter(|top| *top >= speed).count().saturating_sub(1)).collect()
}

/// All cores, the preferred first: not busy, of a fast kind, beside nothing busy, not the first one, which gets most interrupts. Among
/// equals `seed` says which comes first.
pub(super) fn order(cores: &[Core], seed: u64) -> Vec<Core> {
    let first = cores.first().map(|core| core.number);
    let rank = |core: &Core| (core.busy, core.kind, core.beside_busy, Some(core.number) == first);
    let mut sorted = cores.to_vec();
    sorted.sort_by_key(rank);
    for equals in sorted.chunk_by_mut(|a, b| rank(a) == rank(b)) {
        let turn = seed % equals.len() as u64;
        equals.rotate_left(turn as usize);
    }
    sorted
}
