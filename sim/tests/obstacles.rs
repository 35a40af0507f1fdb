//! What stands in the way of a path: nodes that are absent, late, or do not relay; small pools; dials that fail; time that is up.

mod common;

use common::{LIMIT, all_in_order, each_seed, ended, shape, text, world};
use mesh_relay::engine::MS;
use mesh_routing::Shape;
use mesh_sim::virtual_time::{ConnSpec, Ending, Physics, Rng, Workload, World, all_pairs, random_pairs};

fn refusal(ending: &Ending) -> (u16, &str) {
    match ending {
        Ending::Refused(why) => (why.code, &why.text),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn a_node_that_never_comes_is_named_by_its_neighbour_in_time() {
    // given a line of five of which one is never started
    for (absent, neighbour) in [(1, "node0"), (2, "node1"), (3, "node2"), (4, "node3")] {
        let topology = shape(Shape::Line, 5, 1);
        let mut world = world(&topology, 7, |_| ());
        world.absent(absent, None);
        assert!(world.add(ConnSpec { budget: 3000 * MS, ..ConnSpec::plain(0, 4, 3, 100) }));
        let summary = world.run(LIMIT).expect("no rule is broken");
        // then the node before it says so, before the sender's own time is up
        let (code, text) = refusal(&summary.conns[0].sender);
        assert_eq!(code, 50, "{text}");
        assert!(text.contains(&format!("node {neighbour}: ")) && text.contains("connection refused"), "{text}");
        let ended = summary.conns[0].sender_ended;
        assert!(if absent > 1 { ended < 3000 * MS } else { ended == 3000 * MS }, "the reason comes first: {ended}");
    }
}

#[test]
fn nodes_may_start_late_and_dials_may_fail() {
    each_seed("obstacles::nodes_may_start_late_and_dials_may_fail", 12, |seed| {
        let topology = shape(Shape::Ring, 6, 1);
        let mut rng = Rng::new(seed);
        let physics = Physics { dial_fails: 40, ..Physics::default() };
        let mut world = World::new(&topology, physics, seed, |_, c| c.classes = 3);
        for node in 1..6 {
            world.absent(node, Some(rng.below(2000 * MS)));
        }
        // Users of a node begin when it has started.
        for conn in random_pairs(&Workload::new(6), &mut rng, 20) {
            assert!(world.add(ConnSpec { open_at: 2000 * MS * u64::from(conn.from != 0), ..conn }));
        }
        all_in_order(&world.run(LIMIT).map_err(text)?)
    });
}

#[test]
fn nodes_that_do_not_relay_refuse_and_serve_their_own() {
    each_seed("obstacles::nodes_that_do_not_relay_refuse_and_serve_their_own", 6, |seed| {
        for (nodes, off) in [(3, 1), (4, 1), (4, 2), (5, 2)] {
            let topology = shape(Shape::Line, nodes, 1);
            let mut world = World::new(&topology, Physics::default(), seed, |node, c| c.relay = node != off);
            for conn in all_pairs(nodes, 3, 700) {
                assert!(world.add(conn));
            }
            let summary = world.run(LIMIT).map_err(text)?;
            for conn in &summary.conns {
                if conn.route[1..conn.route.len() - 1].contains(&off) {
                    let (code, text) = refusal(&conn.sender);
                    assert!(code == 1 && text.contains(&format!("node node{off}: ")), "{text}");
                } else {
                    assert!(conn.in_order(), "{}", ended(conn));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_pool_that_is_too_small_refuses_and_serves_those_it_took() {
    let (mut taken, mut refused) = (0, 0);
    each_seed("obstacles::a_pool_that_is_too_small_refuses_and_serves_those_it_took", 12, |seed| {
        for slots in [0, 1, 3, 6, 12, 20] {
            let topology = shape(Shape::Ring, 6, 1);
            let mut world = world(&topology, seed, |c| {
                (c.pool_slots, c.entry_slots, c.trunk_slots, c.classes) = (slots, 2, 1, 2);
            });
            for conn in all_pairs(6, 5, 1500) {
                assert!(world.add(conn));
            }
            let summary = world.run(LIMIT).map_err(|e| format!("{slots} slots: {}", text(e)))?;
            for conn in &summary.conns {
                match &conn.sender {
                    Ending::Refused(why) => {
                        assert!(why.code == 53 && conn.route.len() > 2, "{}", why.text);
                        refused += 1;
                    }
                    _ => {
                        assert!(conn.in_order(), "{slots} slots: {}", ended(conn));
                        taken += u32::from(conn.route.len() > 2);
                    }
                }
            }
        }
        Ok(())
    });
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
}

#[test]
fn time_that_is_up_ends_in_one_reason() {
    // given budgets around what setting up a path takes
    each_seed("obstacles::time_that_is_up_ends_in_one_reason", 12, |seed| {
        let topology = shape(Shape::Ring, 8, 1);
        let physics = Physics { dial: (MS, 40 * MS), dial_fails: 20, ..Physics::default() };
        let mut world = World::new(&topology, physics, seed, |_, c| c.classes = 2);
        let mut rng = Rng::new(seed);
        for conn in random_pairs(&Workload::new(8), &mut rng, 40) {
            assert!(world.add(ConnSpec { budget: rng.between(1, 200) * MS, ..conn }));
        }
        let summary = world.run(LIMIT).map_err(text)?;
        for conn in &summary.conns {
            match &conn.sender {
                Ending::Refused(why) => assert!(why.code == 50 && why.text.starts_with("mesh[E50] node "), "{why:?}"),
                _ => assert!(conn.in_order(), "{}", ended(conn)),
            }
        }
        Ok(())
    });
}
