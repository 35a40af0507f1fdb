//! Classes of slots are what keeps the fabric from standing still: without them it does, and the world notices.

mod common;

use common::{LIMIT, all_in_order, each_seed, seeds, shape, text};
use mesh_relay::engine::MS;
use mesh_routing::Shape;
use mesh_sim::virtual_time::{ConnSpec, Failure, Physics, Summary, World};

/// Eight nodes in a ring at saturation, everybody to the node opposite both ways round, with the least memory.
fn saturated_ring(seed: u64, ignore_classes: bool) -> Result<Summary, Failure> {
    let topology = shape(Shape::Ring, 8, 1);
    // Slots stay occupied for long, so that they are scarce.
    let physics = Physics { written: (0, 400_000), latency: (1000, 200_000), ..Physics::default() };
    let mut world = World::new(&topology, physics, seed, |_, c| {
        (c.entry_slots, c.trunk_slots, c.classes, c.ignore_classes) = (1, 1, 2, ignore_classes);
    });
    for from in 0..8 {
        for nth in 0..6 {
            let plain = ConnSpec::plain(from, (from + 4) % 8, 6, 4096);
            assert!(world.add(ConnSpec { nth, ..plain }));
        }
    }
    world.run(LIMIT)
}

#[test]
fn a_ring_without_classes_stands_still_and_with_them_it_does_not() {
    let mut stood_still = 0;
    each_seed("deadlock::a_ring_without_classes_stands_still_and_with_them_it_does_not", 6, |seed| {
        // given the same seed, with classes and without
        all_in_order(&saturated_ring(seed, false).map_err(text)?)?;
        let Err(failure) = saturated_ring(seed, true) else { return Ok(()) };
        // then without them it is no other rule that breaks, and the report says who waits for whom
        if !failure.what.contains("nothing happens any more") {
            return Err(text(failure));
        }
        assert!(failure.now < 1_000 * MS);
        let waits = |text: &str| failure.waiting.iter().filter(|line| line.contains(text)).count();
        assert!(waits("waits for a slot of") > 2, "{failure}");
        assert!(waits("sender waits for a slot") + waits("sender waits for the acknowledgement") > 2, "{failure}");
        stood_still += 1;
        Ok(())
    });
    assert!(stood_still > 0 || seeds(6).len() < 6, "no seed stood still: the test shows nothing");
    println!("{stood_still} seeds stood still without classes");
}
