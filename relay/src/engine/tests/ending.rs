//! How paths, legs and trunks end.

use super::*;

const CLOSE: Msg = Msg::Close { stream: 0, code: 0 };

fn nothing_is_left(bench: &Bench) {
    let usage = bench.engine.pool_use();
    assert_eq!((bench.engine.streams(), usage.lent, usage.filled), (0, 0, 0));
}

#[test]
fn an_orderly_close_passes_through_from_either_side() {
    let mut bench = Bench::new(|_| ());
    let (up, down) = bench.last_relay();
    let actions = bench.say(up, &CLOSE);
    assert_eq!(
        actions,
        [
            Action::Send { leg: down, msg: CLOSE },
            Action::Drop { leg: down, graceful: true },
            Action::Drop { leg: up, graceful: true },
        ]
    );
    nothing_is_left(&bench);
    let (up, down) = bench.last_relay();
    let actions = bench.say(down, &CLOSE);
    assert_eq!(
        actions,
        [
            Action::Drop { leg: down, graceful: true },
            Action::Send { leg: up, msg: CLOSE },
            Action::Drop { leg: up, graceful: true },
        ]
    );
    nothing_is_left(&bench);
}

#[test]
fn a_lost_leg_is_told_to_the_other_side() {
    let lost = Msg::Close { stream: 0, code: code::RELAY_LEFT };
    let mut bench = Bench::new(|_| ());
    let (up, down) = bench.last_relay();
    let actions = bench.down(up);
    assert_eq!((sent(&actions, down), dropped(&actions, up)), (vec![lost.clone()], None));
    nothing_is_left(&bench);
    let (up, down) = bench.last_relay();
    let actions = bench.down(down);
    assert_eq!((sent(&actions, up), dropped(&actions, down)), (vec![lost], None));
    nothing_is_left(&bench);
    // What is told again of a leg that is forgotten, changes nothing.
    assert_eq!(bench.down(down), []);
}

#[test]
fn a_path_that_is_being_set_up_ends_in_every_state() {
    // given states: dialing, asked, waiting for the trunk's leg, waiting for its slots, asked over the trunk
    for state in 0..5 {
        for lost in [false, true] {
            let mut bench = Bench::new(|_| ());
            let up = bench.accepted();
            let dial = only_dial(&bench.say(up, &Msg::Setup(ask(0, 0, hops(if state < 2 { 2 } else { 3 })))));
            let mut below = None;
            if state == 1 || state > 2 {
                below = Some(bench.dialed(dial).0);
            }
            if state == 4 {
                bench.say(below.expect("dialed"), &trunk_slots(2));
            }
            // when the sender goes, by its word or by its leg
            let actions = if lost { bench.down(up) } else { bench.say(up, &CLOSE) };
            assert_eq!(dropped(&actions, up), (!lost).then_some(true), "state {state}");
            nothing_is_left(&bench);
            // then a leg that comes late is not kept, and a trunk is kept for the next
            match (state, below) {
                (0, _) => {
                    let (leg, actions) = bench.dialed(dial);
                    assert_eq!(dropped(&actions, leg), Some(false));
                }
                (1, Some(leg)) => assert_eq!(dropped(&actions, leg), Some(true)),
                (4, Some(trunk)) => {
                    assert!(matches!(sent(&actions, trunk)[..], [Msg::Close { stream: 1, .. }]), "{actions:?}");
                    assert_eq!(dropped(&actions, trunk), None);
                }
                _ => assert!(!actions.iter().any(|a| matches!(a, Action::Send { .. }))),
            }
        }
    }
}

#[test]
fn a_leg_lost_below_during_set_up_is_a_refusal_with_the_address() {
    for trunk in [false, true] {
        let mut bench = Bench::new(|_| ());
        let up = bench.accepted();
        let dial = only_dial(&bench.say(up, &Msg::Setup(ask(0, 0, hops(if trunk { 3 } else { 2 })))));
        let (below, _) = bench.dialed(dial);
        if trunk {
            bench.say(below, &trunk_slots(2));
        }
        let actions = bench.down(below);
        let why = refusal(&actions, up);
        assert!(why.code == code::RELAY_LEFT && why.text.contains("the leg to 10.0.1.2 was closed"), "{}", why.text);
        assert_eq!(sent(&actions, below), [], "a leg that is gone is told nothing");
        nothing_is_left(&bench);
    }
}

#[test]
fn a_lost_trunk_ends_every_path_on_it() {
    // given two paths over an outgoing trunk, one with a chunk that waits and one that is read
    let mut bench = Bench::new(|_| ());
    let (first, trunk) = bench.first_relay(1);
    let second = bench.accepted();
    bench.say(second, &Msg::Setup(ask(0, 0, hops(3))));
    bench.say(trunk, &ready(2));
    for stream in [1, 2] {
        bench.say(trunk, &cts(stream, 0));
    }
    bench.chunk(first, 0, chunk_of(0, 0, 1));
    bench.chunk(second, 0, chunk_of(0, 0, 1));
    assert_eq!(bench.engine.pool_use().filled, 2);
    let actions = bench.down(trunk);
    let lost = Msg::Close { stream: 0, code: code::RELAY_LEFT };
    assert_eq!((sent(&actions, first), sent(&actions, second)), (vec![lost.clone()], vec![lost]));
    nothing_is_left(&bench);
    // given a path over an incoming one
    let trunk = bench.trunk_in();
    let actions = bench.say(trunk, &Msg::Setup(ask(1, 0, hops(2))));
    let (down, _) = bench.dialed(only_dial(&actions));
    bench.say(down, &ready(0));
    let actions = bench.down(trunk);
    assert_eq!(sent(&actions, down), [Msg::Close { stream: 0, code: code::RELAY_LEFT }]);
    nothing_is_left(&bench);
}

#[test]
fn a_run_outlives_its_leg_while_the_trunk_reads_from_it() {
    // given a chunk that the trunk is reading
    let mut bench = Bench::new(|_| ());
    let (up, trunk) = bench.first_relay(2);
    bench.say(trunk, &cts(1, 0));
    bench.chunk(up, 3, chunk_of(0, 0, 1));
    // when its sender goes, then the slots are not lent to anybody else
    bench.down(up);
    assert_eq!((bench.engine.pool_use().lent, bench.engine.pool_use().filled), (4, 1));
    // until the trunk has read it, and nobody gets a credit
    assert_eq!(bench.written(trunk, 3), []);
    nothing_is_left(&bench);
    // The credit for the slot at the next relay arrives later still, and the trunk goes on.
    assert_eq!(bench.say(trunk, &credit(&[0])), []);
}

#[test]
fn a_path_closed_by_one_end_leaves_its_trunk_in_working_order() {
    // given a path over a trunk of one slot, which it holds, and another that waits for it
    let mut bench = Bench::new(|_| ());
    let (first, trunk) = bench.first_relay(1);
    let second = bench.accepted();
    bench.say(second, &Msg::Setup(ask(0, 0, hops(3))));
    bench.say(trunk, &ready(2));
    for stream in [1, 2] {
        bench.say(trunk, &cts(stream, 0));
    }
    bench.chunk(first, 0, chunk_of(0, 0, 1));
    bench.chunk(second, 0, chunk_of(0, 0, 1));
    // when the first is closed by its receiver
    let actions = bench.say(trunk, &Msg::Close { stream: 1, code: 0 });
    assert_eq!(sent(&actions, first), [CLOSE]);
    assert!(!actions.iter().any(|a| matches!(a, Action::Forward { .. })), "the slot is still used");
    // then the slot's credit serves the other
    let actions = bench.say(trunk, &credit(&[0]));
    assert!(matches!(actions[..], [Action::Forward { header, .. }] if header.stream == 2), "{actions:?}");
}
