//! Connections that end in every state, and nodes that die: nobody hangs, nothing is left behind, the others go on.

mod common;

use common::{LIMIT, all_in_order, each_seed, ended, shape, shapes, text, world};
use mesh_relay::engine::MS;
use mesh_routing::{Shape, Topology};
use mesh_sim::virtual_time::{Closing, ConnSpec, Ending, Pace, Rng, Who, Workload, World, random_pairs};

#[test]
fn connections_closed_in_every_state_leave_the_others_alone() {
    each_seed("closing::connections_closed_in_every_state_leave_the_others_alone", 12, |seed| {
        for (kind, nodes) in shapes() {
            let mut rng = Rng::new(seed);
            let topology = shape(kind, nodes, 1);
            let mut world = world(&topology, seed, |c| {
                c.entry_slots = rng.between(1, 4) as u16;
                c.trunk_slots = rng.between(1, 4) as u16;
            });
            let work = Workload { cut_short: 60, opened_within: 8 * MS, ..Workload::new(nodes) };
            for mut conn in random_pairs(&work, &mut rng, 20) {
                // Listeners may go away before or after somebody has connected.
                if rng.percent(15) {
                    conn.unlisten_at = Some(rng.below(20 * MS));
                }
                assert!(world.add(conn));
            }
            let specs: Vec<_> = world.scripts().cloned().collect();
            let summary = world.run(LIMIT).map_err(|e| format!("{kind:?} of {nodes}: {}", text(e)))?;
            for (conn, spec) in summary.conns.iter().zip(specs) {
                // Those that were to end in order do, unless their listener was gone.
                let no_listener = matches!(&conn.sender, Ending::Refused(why) if why.code == 52);
                let in_order = matches!(spec.closing, Closing::Done(_));
                if in_order && !conn.in_order() && !(no_listener && spec.unlisten_at.is_some()) {
                    return Err(format!("{kind:?} of {nodes}: {}", ended(conn)));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_close_reaches_the_other_end_in_every_state() {
    // given one connection over two relays, closed at every moment of its life by either end or both, gracefully or not
    let topology = shape(Shape::Line, 4, 1);
    let mut delivered = [0; 4];
    each_seed("closing::a_close_reaches_the_other_end_in_every_state", 2, |seed| {
        for step in 0..60u64 {
            for by in [Who::Sender, Who::Receiver, Who::Both] {
                for at_once in [false, true] {
                    let mut world = world(&topology, seed * 1000 + step, |c| c.entry_slots = 2);
                    let closing = Closing::At { time: step * step * 3000, by, at_once };
                    let send_pace = Pace { pauses: 40, longest: 2 * MS };
                    assert!(world.add(ConnSpec { closing, send_pace, ..ConnSpec::plain(0, 3, 12, 3000) }));
                    let summary = world.run(LIMIT).map_err(text)?;
                    let conn = &summary.conns[0];
                    let expected = match by {
                        Who::Sender => matches!(conn.sender, Ending::Closed | Ending::Cancelled),
                        Who::Receiver => matches!(
                            conn.sender,
                            Ending::PeerClosed(0) | Ending::LegDown | Ending::PeerClosed(45) | Ending::Refused(_)
                        ),
                        Who::Both => conn.sender != Ending::None && conn.receiver != Ending::None,
                    };
                    assert!(expected, "step {step}, by {by:?}: {}", ended(conn));
                    let part = match conn.delivered {
                        0 if conn.began == 0 => 0,
                        0 => 1,
                        12 => 3,
                        _ => 2,
                    };
                    delivered[part] += 1;
                }
            }
        }
        Ok(())
    });
    // then every state has been met: not standing, idle, under way, all delivered
    assert!(!delivered.contains(&0), "not every state was met: {delivered:?}");
}

/// A world with a node that dies at a random time.
fn with_a_death(topology: &Topology, nodes: usize, seed: u64) -> (World, usize) {
    let mut rng = Rng::new(seed);
    let mut world = world(topology, seed, |c| (c.entry_slots, c.trunk_slots) = (2, 2));
    for conn in random_pairs(&Workload { slow: 50, ..Workload::new(nodes) }, &mut rng, 24) {
        // A path through the dead cannot be set up: that comes out when the budget is used up.
        assert!(world.add(ConnSpec { budget: 300 * MS, ..conn }));
    }
    let dead = rng.below(nodes as u64) as usize;
    world.kill(dead, rng.between(1, 15 * MS));
    (world, dead)
}

#[test]
fn a_node_that_dies_takes_its_own_connections_along_and_no_others() {
    let mut cut = 0;
    each_seed("closing::a_node_that_dies_takes_its_own_connections_along_and_no_others", 12, |seed| {
        for (kind, nodes) in shapes() {
            let topology = shape(kind, nodes, 1 + (seed % 2) as usize);
            let (mut world, dead) = with_a_death(&topology, nodes, seed);
            // The world checks that every end has ended and that survivors have all their slots back.
            let summary = world.run(LIMIT).map_err(|e| format!("{kind:?} of {nodes}: {}", text(e)))?;
            for conn in &summary.conns {
                if !conn.nodes.contains(&dead) {
                    assert!(conn.in_order(), "{kind:?} of {nodes}, {dead} dies, seed {seed}: {}", ended(conn));
                    continue;
                }
                cut += u32::from(!conn.in_order());
                match &conn.sender {
                    Ending::None => return Err(format!("{kind:?} of {nodes}: {}", ended(conn))),
                    Ending::Refused(why) => assert!([45, 50, 59].contains(&why.code), "{why:?}"),
                    _ => {}
                }
            }
        }
        Ok(())
    });
    assert!(cut > 0, "no connection met the dead node");
}

#[test]
fn a_sender_learns_that_a_relay_died_while_it_was_idle() {
    // given a connection over two relays whose only message is delivered, and that stays open
    let topology = shape(Shape::Line, 4, 1);
    for (dead, code) in [(1, None), (2, Some(45))] {
        let mut world = world(&topology, 1, |_| ());
        let closing = Closing::At { time: 10_000 * MS, by: Who::Sender, at_once: false };
        assert!(world.add(ConnSpec { closing, ..ConnSpec::plain(0, 3, 1, 1000) }));
        // when a relay dies
        world.kill(dead, 1000 * MS);
        let summary = world.run(LIMIT).expect("no rule is broken");
        // then both ends hear of it, by a leg or by a message that says why
        let conn = &summary.conns[0];
        assert_eq!(conn.delivered, 1);
        let expected = code.map_or(Ending::LegDown, Ending::PeerClosed);
        assert_eq!(conn.sender, expected, "{}", ended(conn));
        assert_eq!(conn.receiver, if dead == 2 { Ending::LegDown } else { Ending::PeerClosed(45) });
        assert!(conn.sender_ended < 1001 * MS, "{}", conn.sender_ended);
    }
}

#[test]
fn a_quiet_death_elsewhere_changes_nothing() {
    let topology = shape(Shape::Star, 5, 1);
    each_seed("closing::a_quiet_death_elsewhere_changes_nothing", 4, |seed| {
        let mut world = world(&topology, seed, |_| ());
        for (from, to) in [(1, 2), (2, 3), (3, 1)] {
            assert!(world.add(ConnSpec::plain(from, to, 20, 2000)));
        }
        world.kill(4, 500_000);
        all_in_order(&world.run(LIMIT).map_err(text)?)
    });
}
