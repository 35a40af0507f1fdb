//! Random runs: a random cluster, random trouble for a while, then quiet; and whether every view is the truth after it.

use mesh_relay::discovery::{Fault, MS, Time, View, key_of};

use super::blueprint::Blueprint;
use super::{Cut, Picture, Weather, World};
use crate::virtual_time::Rng;

/// How long after the last change every view must be the truth, and stay so, in nanoseconds, on links that lose up to one datagram in
/// twenty and delay them by up to 30 ms.
pub const BOUND: Time = 1000 * MS;

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
    let mut world = Blueprint::random(&mut rng).build(seed, weather);
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

/// Runs one seed of a random cluster with some mistakes in it, to the end of any conflict. What is right then is not known, but what is
/// wrong is.
///
/// # Errors
/// If a view had at any time a link that no cable makes, or has one that is ambiguous, or if nodes that see each other do not agree.
pub fn random_mistakes(seed: u64) -> Result<usize, String> {
    let mut rng = Rng::new(seed);
    let weather = Weather { lose: rng.pick(&[0, 0, 20]), ..Weather::default() };
    let mut plan = Blueprint::random(&mut rng);
    for _ in 0..rng.between(1, 3) {
        plan.err(&mut rng);
    }
    let mut world = plan.build(seed, weather);
    for node in 0..world.len() {
        world.run_for(rng.below(20 * MS));
        world.start(node, 1);
    }
    let mut quiet = 8000 * MS;
    for _ in 0..rng.pick(&[0, 6]) {
        world.run_for(rng.below(2000 * MS));
        trouble(&mut world, &mut rng);
        // An id that is in use no longer is free again when the last word of its other node is forgotten, and the conflict with it.
        quiet = 25_000 * MS;
    }
    world.run_for(quiet);
    if !world.ghosts().is_empty() {
        return Err(format!("links that never were: {:?}", world.ghosts()));
    }
    let running: Vec<(u64, &View)> =
        (0..world.len()).filter_map(|n| Some((world.machine(n)?.key(), world.view(n)?))).collect();
    let twins = |key: u64| running.iter().filter(|(other, _)| *other == key).count() > 1;
    for (at, (_, view)) in running.iter().enumerate() {
        for end in view.links.iter().flatten() {
            let owners = view.nodes.values().flat_map(|node| &node.ports).filter(|port| port.address == end.address);
            let conflict = |fault: &Fault| matches!(fault, Fault::SameId { id } if key_of(id) == end.node);
            if owners.count() != 1 || view.faults.iter().any(conflict) {
                return Err(format!("{end:?} is used, which is ambiguous: {}", brief(view)));
            }
        }
        for (key, other) in running[at + 1..].iter().filter(|(key, _)| view.nodes.contains_key(key)) {
            if !twins(*key) && other != view {
                return Err(format!("they do not agree: {} but {}", brief(view), brief(other)));
            }
        }
    }
    Ok(running.iter().map(|(_, view)| view.links.len()).sum())
}

/// A view, as far as it says what it is about.
fn brief(view: &View) -> String {
    let names: Vec<_> = view.nodes.values().map(|node| node.name.as_str()).collect();
    let links: Vec<_> = view.links.iter().map(|[a, b]| format!("{}-{}", a.address, b.address)).collect();
    format!("{names:?}, {links:?}, {:?}", view.faults)
}

/// Something happens to a cable or a node. Answers whether that is a change of what there is.
fn trouble(world: &mut World, rng: &mut Rng) -> bool {
    let node = rng.below(world.len() as u64) as usize;
    if world.cables() > 0 && rng.percent(65) {
        let cable = rng.below(world.cables() as u64) as usize;
        let ports = world.switch_ports(cable) as u64;
        if ports > 0 && rng.percent(80) {
            let cuts = [Cut::Seen, Cut::Silent, Cut::OneWay].map(Some);
            let cut = if rng.percent(50) { rng.pick(&cuts) } else { None };
            world.set_switch_port(cable, rng.below(ports) as usize, cut);
            return true;
        }
        match rng.below(8) {
            0 | 1 => world.cut(cable, Cut::Seen),
            3 => world.cut(cable, Cut::Silent),
            // A switch as a whole fails for all its ports.
            2 if ports == 0 => world.cut(cable, Cut::SeenByOne),
            4 if ports == 0 => world.cut(cable, Cut::OneWay),
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
