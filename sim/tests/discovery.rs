//! Nodes that find one another: how long it takes, what a cut cable does, and whether everybody sees the truth after any trouble.

mod common;

use std::time::Instant;

use common::{each_seed, shape, shapes};
use mesh_relay::discovery::{Event, MS, Time, View};
use mesh_routing::{Policy, Shape};
use mesh_sim::discovery::{BOUND, Cut, Weather, World, random_run};

/// Links that lose one datagram in twenty, repeat some, and let them overtake one another.
const BAD: Weather = Weather { latency: (20_000, 5 * MS), lose: 50, repeat: 20 };

/// A ring whose nodes start within 100 ms, in random order.
fn ring(nodes: usize, rails: usize, seed: u64, weather: Weather) -> World {
    let mut world = World::of(&shape(Shape::Ring, nodes, rails), seed, weather);
    let mut starts: Vec<(Time, usize)> = (0..nodes).map(|node| (world.rng().below(100 * MS), node)).collect();
    starts.sort_unstable();
    for (at, node) in starts {
        world.run_until(at);
        world.start(node, 1);
    }
    world
}

fn ms(time: Time) -> f64 {
    time as f64 / MS as f64
}

#[test]
fn rings_agree_within_a_second_or_three() {
    let mut worst = [[0; 2]; 2];
    each_seed("discovery::rings_agree_within_a_second_or_three", 20, |seed| {
        for (row, weather) in [Weather::default(), BAD].into_iter().enumerate() {
            for (column, (nodes, rails, limit)) in [(6, 2, 1000 * MS), (32, 1, 3000 * MS)].into_iter().enumerate() {
                // given all nodes started, when the limit has passed since the last start, then all see all
                let mut world = ring(nodes, rails, seed, weather);
                let took = world.settle(limit).ok_or_else(|| format!("{nodes} nodes, {weather:?}"))?;
                worst[row][column] = worst[row][column].max(took);
            }
        }
        Ok(())
    });
    for (weather, [six, thirty_two]) in ["good", "bad"].into_iter().zip(worst) {
        println!("{weather} links, after the last start: 6-ring {} ms, 32-ring {} ms", ms(six), ms(thirty_two));
    }
}

#[test]
fn a_pulled_cable_is_known_to_all_within_half_a_second() {
    let mut worst = [[0; 4]; 2];
    each_seed("discovery::a_pulled_cable_is_known_to_all_within_half_a_second", 50, |seed| {
        for (row, weather) in [Weather::default(), BAD].into_iter().enumerate() {
            for (column, how) in [Cut::Seen, Cut::SeenByOne, Cut::Silent, Cut::OneWay].into_iter().enumerate() {
                // given a ring of six that is quiet, when a cable is pulled at any time
                let mut world = ring(6, 1, seed, weather);
                let quiet = 1000 * MS + world.rng().below(4000 * MS);
                world.run_for(quiet);
                let before = world.agrees();
                world.cut(0, how);
                // then half a second later all know it, and nothing else has changed
                let took = world.settle(500 * MS).ok_or_else(|| format!("{how:?}, {weather:?}"))?;
                if !before || world.view(3).is_none_or(|view| view.links.len() != 5) {
                    return Err(format!("{how:?}, {weather:?}: not a ring without a cable"));
                }
                worst[row][column] = worst[row][column].max(took);
            }
        }
        Ok(())
    });
    for (weather, worst) in ["good", "bad"].into_iter().zip(worst) {
        let [seen, by_one, silent, one_way] = worst.map(ms);
        println!(
            "{weather} links: seen {seen} ms, by one end {by_one} ms, by silence {silent} ms, one way {one_way} ms"
        );
    }
}

#[test]
fn any_trouble_is_followed_by_the_truth() {
    let began = Instant::now();
    let (mut worst, mut runs, mut nodes, mut troubles) = (0, 0, 0, 0);
    each_seed("discovery::any_trouble_is_followed_by_the_truth", 300, |seed| {
        let outcome = random_run(seed)?;
        worst = worst.max(outcome.settled);
        (runs, nodes, troubles) = (runs + 1, nodes + outcome.running, troubles + outcome.troubles);
        Ok(())
    });
    println!(
        "{runs} runs, {nodes} nodes running at the end, {troubles} troubles: the last view changed {} ms after the last of them \
         (bound {} ms); {:.1} s",
        ms(worst),
        ms(BOUND),
        began.elapsed().as_secs_f64()
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = random_run(3).expect("a run that goes well");
    assert_eq!(random_run(3), Ok(first));
    assert_ne!(random_run(4).map(|outcome| outcome.digest), Ok(first.digest));
}

#[test]
fn what_is_found_is_the_topology_that_was_cabled() {
    let with_chord = || {
        let mut text = shape(Shape::Ring, 6, 2).to_toml();
        for (node, address) in [("node0", "10.99.0.1/30"), ("node3", "10.99.0.2/30")] {
            let at = text.find(&format!("\"{node}\"")).expect("a node");
            let end = text[at..].find("\n[[node.port]]").expect("a port") + at;
            text.insert_str(end, &format!("\n[[node.port]]\ndevice = \"chord\"\naddress = \"{address}\"\n"));
        }
        mesh_routing::Topology::from_toml(&text).expect("a ring with a chord")
    };
    let mut all: Vec<_> = shapes().into_iter().map(|(kind, nodes)| shape(kind, nodes, 1 + nodes % 2)).collect();
    all.push(with_chord());
    for topology in all {
        let mut world = World::of(&topology, 1, Weather::default());
        world.start_all();
        assert!(world.settle(500 * MS).is_some());
        for node in 0..world.len() {
            let (found, problems) = world.view(node).expect("it runs").topology(Policy::default());
            assert_eq!(problems, []);
            assert_eq!(found.hash(), topology.hash(), "{}", found.to_toml());
            assert_eq!(found.links().len(), topology.links().len());
        }
    }
}

#[test]
fn parts_that_were_separate_become_one() {
    each_seed("discovery::parts_that_were_separate_become_one", 20, |seed| {
        // given a ring of 16 that was cut into two halves for longer than advertisements live
        let mut world = ring(16, 1, seed, BAD);
        world.cut(0, Cut::Silent);
        world.cut(8, Cut::Seen);
        world.run_for(12_000 * MS);
        let halves = world.view(1).map(|view| view.nodes.len());
        if halves != Some(8) || !world.agrees() {
            return Err(format!("halves of {halves:?} nodes"));
        }
        // when one cable is mended, then all see all
        world.mend(8);
        world.settle(BOUND).map(|_| ()).ok_or_else(|| "they do not agree".into())
    });
}

#[test]
fn a_node_that_comes_and_goes_is_seen_as_it_is() {
    let mut world = ring(6, 1, 1, Weather::default());
    world.run_for(1000 * MS);
    // when a node stops, then it is gone everywhere, though its advertisement lives on for a while
    world.stop(2);
    assert!(world.settle(500 * MS).expect("agreed") < 400 * MS);
    assert_eq!(world.view(0).map(|view| view.nodes.len()), Some(5));
    // when it comes back, with a number that has grown, is the same, or is less
    for grows in [1, 0, -10] {
        world.start(2, grows);
        assert!(world.settle(1000 * MS).is_some(), "{grows}");
        assert_eq!(world.view(0).map(|view| view.nodes.len()), Some(6));
        world.stop(2);
        world.run_for(1000 * MS);
    }
    // then its own advertisement of an earlier life was outbid where it was newer
    assert!(world.notes(2).iter().any(|(_, note)| matches!(note, Event::Outbid { .. })));
}

#[test]
fn clocks_may_leap_without_anybody_noticing() {
    let mut world = ring(6, 1, 1, Weather::default());
    world.run_for(1000 * MS);
    let quiet_since = world.now();
    for (node, by) in [(0, 3_600_000), (2, -3_600_000), (4, 500), (5, -500)] {
        world.leap(node, by * MS as i64);
        world.run_for(777 * MS);
    }
    assert!(world.agrees());
    let changed = (0..6).map(|node| world.changed_at(node)).max();
    assert!(changed < Some(quiet_since), "a view has changed");
}

#[test]
fn what_256_nodes_cost() {
    // given rings of growing size that are quiet, then what a cable carries and a node holds grows with the number of nodes, no faster
    println!(
        "nodes | agreed after | a cable and way: bytes/s, datagrams/s | a node: database, CPU, a view, its topology"
    );
    for nodes in [6, 32, 256] {
        let mut world = World::of(&shape(Shape::Ring, nodes, 1), 1, Weather::default());
        world.start_all();
        let took = world.settle(1000 * MS).expect("agreed");
        let (before, began, seconds) = (world.traffic(), Instant::now(), 18);
        world.run_for(seconds * 1000 * MS);
        let (after, ways) = (world.traffic(), 2 * nodes as u64);
        let cpu = began.elapsed().as_micros() as u64 / nodes as u64 / seconds;
        let bytes = (after.bytes - before.bytes) / ways / seconds;
        let datagrams = (after.datagrams - before.datagrams) / ways / seconds;
        let machine = world.machine(0).expect("it runs");
        let memory = machine.database().memory_bytes();
        let began = Instant::now();
        let views = (0..20).map(|_| View::of(machine.key(), machine.database().adverts()).links.len()).sum::<usize>();
        let view = began.elapsed().as_micros() / 20;
        let began = Instant::now();
        let topologies = (0..20).map(|_| machine.view().topology(Policy::default()).0.links().len()).sum::<usize>();
        let topology = began.elapsed().as_micros() / 20;
        assert_eq!((views, topologies), (20 * nodes, 20 * nodes));
        println!(
            "{nodes:>5} | {:>9.1} ms | {bytes:>5}, {datagrams:>3} | {memory} bytes, {cpu} us/s, {view} us, {topology} us",
            ms(took)
        );
        assert!(memory < 2048 * nodes, "{memory} bytes");
        assert!(bytes < 5_000 + 200 * nodes as u64, "{bytes} bytes a second");
    }
}
