//! Nodes that find one another: how long it takes, what a cut cable does, and whether everybody sees the truth after any trouble.

mod common;

use common::{each_seed, seeds, shape};
use mesh_relay::discovery::MS;
use mesh_routing::Shape;
use mesh_sim::discovery::{BOUND, Cut, Weather, World, random_run};

fn started(nodes: usize, rails: usize, seed: u64, weather: Weather) -> World {
    let mut world = World::of(&shape(Shape::Ring, nodes, rails), seed, weather);
    world.start_all();
    world
}

#[test]
fn x_ring6() {
    for (nodes, rails) in [(6, 1), (6, 2), (32, 1), (64, 1), (256, 1)] {
        let mut w = started(nodes, rails, 1, Weather::default());
        let t = w.run_until_agreed(MS / 10, 5000 * MS);
        println!("{nodes} x{rails}: {:?} us", t.map(|t| t / 1000));
        let b = w.traffic();
        w.run_for(3000 * MS);
        w.cut(0, Cut::Seen);
        let t = w.run_until_agreed(MS / 10, 5000 * MS);
        println!("cut seen: {:?} us", t.map(|t| t / 1000));
        w.mend(0);
        let t = w.run_until_agreed(MS / 10, 5000 * MS);
        println!("mend: {:?} us", t.map(|t| t / 1000));
        w.run_for(3000 * MS);
        w.cut(0, Cut::Silent);
        let t = w.run_until_agreed(MS / 10, 5000 * MS);
        println!("cut silent: {:?} us", t.map(|t| t / 1000));
        println!("{b:?} {:?}", w.traffic());
    }
}

#[test]
fn random() {
    let (mut worst, mut n) = (0, 0);
    each_seed("discovery::random", 200, |seed| {
        let o = random_run(seed)?;
        worst = worst.max(o.settled);
        n += 1;
        Ok(())
    });
    println!("{n} runs of {}, worst {} ms of {}", seeds(200).len(), worst / MS, BOUND / MS);
}
