//! Every shape, with every kind of user, at saturation with the smallest memory: everything arrives once and in place, and nothing
//! is left behind. The checks are the world's own.

mod common;

use common::{LIMIT, all_in_order, each_seed, shape, shapes, text, world};
use mesh_relay::engine::Config;
use mesh_routing::Shape;
use mesh_sim::virtual_time::{ConnSpec, MessageSpec, Rng, Workload, all_pairs, random_pairs};

fn smallest(config: &mut Config) {
    (config.entry_slots, config.trunk_slots) = (1, 1);
}

#[test]
fn random_users_on_every_shape() {
    each_seed("shapes::random_users_on_every_shape", 12, |seed| {
        for (kind, nodes) in shapes() {
            let mut rng = Rng::new(seed);
            let topology = shape(kind, nodes, 1 + (seed % 2) as usize);
            let mut world = world(&topology, seed, |c| {
                c.entry_slots = rng.between(1, 6) as u16;
                c.trunk_slots = rng.between(1, 6) as u16;
            });
            for conn in random_pairs(&Workload::new(nodes), &mut rng, 12) {
                assert!(world.add(conn));
            }
            let summary = world.run(LIMIT).map_err(|e| format!("{kind:?} of {nodes}: {}", text(e)))?;
            all_in_order(&summary).map_err(|e| format!("{kind:?} of {nodes}: {e}"))?;
        }
        Ok(())
    });
}

#[test]
fn all_pairs_at_saturation_with_one_slot_everywhere() {
    each_seed("shapes::all_pairs_at_saturation_with_one_slot_everywhere", 8, |seed| {
        for (kind, nodes) in shapes() {
            let topology = shape(kind, nodes, 1);
            let mut world = world(&topology, seed, smallest);
            for conn in all_pairs(nodes, 4, 1500) {
                assert!(world.add(conn));
            }
            let summary = world.run(LIMIT).map_err(|e| format!("{kind:?} of {nodes}: {}", text(e)))?;
            all_in_order(&summary).map_err(|e| format!("{kind:?} of {nodes}: {e}"))?;
            let relayed = summary.conns.iter().any(|c| c.route.len() > 2);
            assert_eq!(summary.relayed_bytes > 0, relayed);
        }
        Ok(())
    });
}

#[test]
fn many_messages_over_many_rails() {
    each_seed("shapes::many_messages_over_many_rails", 12, |seed| {
        // given more messages than 32 places, and than a notification's 8 bits of a number, on connections of one to eight lanes
        let mut rng = Rng::new(seed);
        let topology = shape(Shape::Line, 3, 1 + (seed % 8) as usize);
        let mut world = world(&topology, seed, |_| ());
        let work = Workload { slow: 0, ..Workload::new(3) };
        for (from, to) in [(0, 1), (1, 0), (1, 2), (0, 2), (2, 0)] {
            let conn = work.conn(&mut rng, from, to);
            let messages = (0..300).map(|_| rng.pick(&[0, 1, 128, 1000, 4096, 10_000]));
            let messages = messages.map(|len| MessageSpec { len, capacity: len }).collect();
            assert!(world.add(ConnSpec { messages, lanes: 8, ..conn }));
        }
        all_in_order(&world.run(LIMIT).map_err(text)?)
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    // given a world with everything random in it
    let run = |seed| {
        let topology = shape(Shape::Ring, 6, 2);
        let mut rng = Rng::new(seed);
        let mut world = world(&topology, seed, |_| ());
        let work = Workload { cut_short: 40, ..Workload::new(6) };
        for conn in random_pairs(&work, &mut rng, 30) {
            world.add(conn);
        }
        world.kill(2, rng.between(1, 5_000_000));
        world.run(LIMIT).expect("a run that goes well")
    };
    // when it is run again, then nothing differs, whatever else this process has done
    let first = run(1);
    assert_eq!(run(1), first);
    assert_ne!(run(2).digest, first.digest);
}
