//! Seeds: every run has one, and a run that fails says how to have it again.

#![allow(dead_code, reason = "each test file uses its part")]

use mesh_relay::engine::{Config, MS, Time};
use mesh_relay::send::Acks;
use mesh_routing::{AddressPlan, Shape, Topology};
use mesh_sim::virtual_time::{ConnReport, Failure, Physics, Rng, Summary, World};

/// Nothing in these tests takes longer than this in virtual time.
pub(crate) const LIMIT: Time = 60_000 * MS;

pub(crate) fn shape(shape: Shape, nodes: usize, rails: usize) -> Topology {
    Topology::from_shape(shape, nodes, rails, &AddressPlan::default()).expect("a shape that can be built")
}

/// The shapes that people cable.
pub(crate) fn shapes() -> Vec<(Shape, usize)> {
    let mut all = Vec::new();
    all.extend((3..=8).map(|n| (Shape::Ring, n)));
    all.extend((2..=8).map(|n| (Shape::Line, n)));
    all.extend((4..=6).map(|n| (Shape::Star, n)));
    all.extend([(Shape::Full, 4), (Shape::Grid, 6), (Shape::Grid, 9)]);
    all
}

/// The longest shortest route of any shape above has 8 nodes, so 6 relays; a trunk needs one class less.
pub(crate) const CLASSES: u8 = 5;

/// Links of all kinds: near and far, fast and slow, that report completions early or long after the data has arrived.
pub(crate) fn physics(seed: u64) -> Physics {
    let mut rng = Rng::new(!seed);
    Physics {
        latency: (rng.pick(&[100, 1000, 5000]), rng.pick(&[5000, 20_000, 300_000])),
        bytes_per_us: rng.pick(&[50, 1000, 12_500]),
        written: (0, rng.pick(&[0, 5000, 50_000, 1_000_000])),
        stripe: rng.pick(&[0, 128, 4096, u64::MAX]),
        acks: rng.pick(&[Acks::Receiver, Acks::Link]),
        ..Physics::default()
    }
}

pub(crate) fn world(topology: &Topology, seed: u64, mut tweak: impl FnMut(&mut Config)) -> World {
    World::new(topology, physics(seed), seed, |_, config| {
        config.classes = CLASSES;
        tweak(config);
    })
}

/// The seeds to run: `MESH_SIM_SEED` alone if it is set, else as many as `MESH_SIM_RUNS` says, else `runs`.
pub(crate) fn seeds(runs: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("MESH_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("MESH_SIM_RUNS").unwrap_or(runs)).collect(),
    }
}

/// Says how to have a run again, if it panics or fails.
struct Again<'a> {
    test: &'a str,
    seed: u64,
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (file, name) = self.test.split_once("::").unwrap_or((self.test, ""));
            let seed = self.seed;
            eprintln!("again: MESH_SIM_SEED={seed} cargo test -p mesh-sim --test {file} -- --exact {name}");
        }
    }
}

/// Runs once a seed; the first that fails ends the test with the line that has it again.
pub(crate) fn each_seed(test: &str, runs: u64, mut run: impl FnMut(u64) -> Result<(), String>) {
    for seed in seeds(runs) {
        let _again = Again { test, seed };
        if let Err(why) = run(seed) {
            panic!("{why}");
        }
    }
}

pub(crate) fn text(failure: Failure) -> String {
    failure.to_string()
}

/// Every connection has delivered everything and ended in order.
pub(crate) fn all_in_order(summary: &Summary) -> Result<(), String> {
    match summary.conns.iter().find(|c| !c.in_order()) {
        Some(conn) => Err(format!("not in order: {conn:?}")),
        None => Ok(()),
    }
}

/// A line about a connection's end, for messages.
pub(crate) fn ended(conn: &ConnReport) -> String {
    format!("{:?}", (&conn.route, conn.delivered, conn.messages, &conn.sender, &conn.receiver))
}
