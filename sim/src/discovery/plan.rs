//! Random runs: a random cluster, random trouble for a while, then quiet; and whether every view is the truth after it.

use std::net::Ipv4Addr;

use mesh_relay::discovery::{Config, MS, PortInfo, Time};

use super::{Cut, Picture, Weather, World};
use crate::virtual_time::Rng;

/// How long after the last change every view must be the truth, and stay so, in nanoseconds, on links that lose up to one datagram in
/// twenty and delay them by up to 30 ms.
pub const BOUND: Time = 1000 * MS;

/// Most ports that a node of a random cluster has.
const MAX_PORTS: usize = 8;

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How long after the last change the last view changed, in nanoseconds.
    pub settled: Time,
    /// Nodes that ran at the end.
    pub running: usize,
    /// Things that happened to nodes and cables.
    pub troubles: u64,
    /// The run's digest.
    pub digest: u64,
}

/// Runs one seed.
///
/// # Errors
/// If a view is not the truth in the end, or had at any time a link that no cable ever made; the text says which and how.
pub fn random_run(seed: u64) -> Result<Outcome, String> {
    let mut rng = Rng::new(seed);
    let weather = Weather {
        latency: (rng.pick(&[1000, 20_000]), rng.pick(&[50_000, MS, 5 * MS, 30 * MS])),
        lose: rng.pick(&[0, 0, 10, 50]),
        repeat: rng.pick(&[0, 0, 10, 100]),
    };
    let mut world = random_cluster(&mut rng, seed, weather);
    let mut last = 0;
    for node in 0..world.len() {
        world.run_until(rng.below(200 * MS).max(world.now()));
        if rng.percent(90) {
            world.start(node, 1);
            last = world.now();
        }
    }
    let troubles = rng.between(0, 25);
    for _ in 0..troubles {
        world.run_for(rng.pick(&[MS, 10 * MS, 100 * MS, 500 * MS]) * rng.below(100) / 100);
        if trouble(&mut world, &mut rng) {
            last = world.now();
        }
    }
    world.run_until(last + BOUND);
    let running: Vec<usize> = (0..world.len()).filter(|&node| world.machine(node).is_some()).collect();
    for _ in 0..2 {
        if let Some(&node) = world.wrong().first() {
            let (now, seen, truth) = (world.now() - last, world.view(node).map(Picture::of), world.truth(node));
            return Err(format!("{now} ns after the last change node {node} sees {seen:#?}, but there is {truth:#?}"));
        }
        world.run_for(BOUND / 2);
    }
    if !world.ghosts().is_empty() {
        return Err(format!("links that never were: {:?}", world.ghosts()));
    }
    let settled = running.iter().map(|&node| world.changed_at(node).saturating_sub(last)).max().unwrap_or(0);
    Ok(Outcome { settled, running: running.len(), troubles, digest: world.digest() })
}

/// Up to twelve nodes: a random tree, then some more cables, some of them in parallel.
fn random_cluster(rng: &mut Rng, seed: u64, weather: Weather) -> World {
    let mut world = World::new(seed, weather);
    let nodes = rng.between(2, 12) as usize;
    for node in 0..nodes {
        world.add_node(Config::new(format!("id-{node}"), format!("node{node}"), 1_000_000));
    }
    let mut ports = vec![0; nodes];
    let mut subnet = 0;
    let more = rng.below(nodes as u64 + 1) as usize;
    for at in 1..nodes + more {
        let (a, b) = if at < nodes {
            (at, rng.below(at as u64) as usize)
        } else {
            (rng.below(nodes as u64) as usize, rng.below(nodes as u64) as usize)
        };
        if a == b || ports[a] >= MAX_PORTS || ports[b] >= MAX_PORTS {
            continue;
        }
        let mut ends = [(a, 0), (b, 0)];
        for ((node, port), (address, prefix)) in ends.iter_mut().zip(random_subnet(rng, subnet)) {
            let info = PortInfo { speed_mbps: 100_000, mtu: 9000, ..PortInfo::new("f", address, prefix) };
            *port = world.add_port(*node, info);
            ports[*node] += 1;
        }
        subnet += 1;
        world.cable(&ends);
    }
    world
}

/// The two ends of a cable of its own: prefix lengths of all kinds, also two that differ.
fn random_subnet(rng: &mut Rng, number: u32) -> [(Ipv4Addr, u8); 2] {
    let base = Ipv4Addr::new(10, 0, 0, 0).to_bits() + number * 256;
    let (low, high, prefixes) = match rng.below(4) {
        0 => (0, 1, [31, 31]),
        1 => (1, 2, [30, 30]),
        2 => (rng.between(1, 100) as u32, rng.between(101, 254) as u32, [24, 24]),
        _ => (1, 2, [30, 24]),
    };
    [(Ipv4Addr::from_bits(base + low), prefixes[0]), (Ipv4Addr::from_bits(base + high), prefixes[1])]
}

/// Something happens to a cable or a node. Answers whether that is a change of what there is.
fn trouble(world: &mut World, rng: &mut Rng) -> bool {
    let node = rng.below(world.len() as u64) as usize;
    if world.cables() > 0 && rng.percent(65) {
        let cable = rng.below(world.cables() as u64) as usize;
        match rng.below(8) {
            0 | 1 => world.cut(cable, Cut::Seen),
            2 => world.cut(cable, Cut::SeenByOne),
            3 => world.cut(cable, Cut::Silent),
            4 => world.cut(cable, Cut::OneWay),
            _ => world.mend(cable),
        }
        return true;
    }
    match rng.below(10) {
        0 => {
            let by = rng.pick(&[-3_600_000, -500, 700, 3_600_000]);
            world.leap(node, by * MS as i64);
            false
        }
        1..=4 => {
            world.stop(node);
            true
        }
        _ => {
            // Mostly the incarnation grows; it may also be forgotten, or made from a clock that was set back.
            let grows = rng.pick(&[1, 1, 1, 1000, 0, -5]);
            world.start(node, grows);
            true
        }
    }
}
