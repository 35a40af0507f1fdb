//! Trunks: opening, lending, sharing, losing.

use super::*;

/// One more path over the trunk to right, standing as the trunk's stream `number`.
fn another(bench: &mut Bench, trunk: LegId, number: u32) -> LegId {
    let up = bench.accepted();
    let actions = bench.say(up, &Msg::Setup(ask(0, 0, hops(3))));
    assert!(matches!(&sent(&actions, trunk)[..], [Msg::Setup(s)] if s.stream == number && s.at == 1), "{actions:?}");
    bench.say(trunk, &ready(number));
    up
}

fn forwards(actions: &[Action]) -> Vec<(u32, u16)> {
    let pick = |a: &Action| match a {
        Action::Forward { header, remote, .. } => Some((header.stream, *remote)),
        _ => None,
    };
    actions.iter().filter_map(pick).collect()
}

#[test]
fn slots_are_lent_to_a_trunk_in_classes_and_as_many_as_there_are() {
    for (pool, slots, lent) in [(32, 2, 6), (5, 1, 3), (3, 1, 3)] {
        let mut bench = Bench::new(|c| c.pool_slots = pool);
        let leg = bench.accepted();
        let actions = bench.say(leg, &Msg::TrunkHello { node: 9 });
        assert!(matches!(actions[0], Action::Expose { count, .. } if count == lent), "{actions:?}");
        assert!(matches!(sent(&actions, leg)[..], [Msg::TrunkReady { slots: s, classes: 3, .. }] if s == slots));
    }
    // Nobody can have more slots than 16 bits count, whatever is configured.
    let mut bench = Bench::new(|c| (c.pool_slots, c.trunk_slots) = (70_000, u16::MAX));
    let leg = bench.accepted();
    let actions = bench.say(leg, &Msg::TrunkHello { node: 9 });
    assert!(matches!(sent(&actions, leg)[..], [Msg::TrunkReady { slots: 21_845, classes: 3, .. }]), "{actions:?}");
}

#[test]
fn trunks_are_refused_by_nodes_that_do_not_relay_or_have_no_slots() {
    type Change = fn(&mut Config);
    let cases: [(Change, u16); 3] = [
        (|c| c.relay = false, code::RELAY_OFF),
        (|c| c.classes = 0, code::RELAY_OFF),
        (|c| c.pool_slots = 2, code::POOL_EMPTY),
    ];
    for (change, expected) in cases {
        let mut bench = Bench::new(change);
        let leg = bench.accepted();
        let actions = bench.say(leg, &Msg::TrunkHello { node: 9 });
        assert_eq!(refusal(&actions, leg).code, expected);
        assert_eq!(dropped(&actions, leg), Some(true));
    }
}

#[test]
fn one_trunk_is_opened_for_all_that_wait_for_it() {
    // given two paths over the same link
    let mut bench = Bench::new(|_| ());
    let (first, second) = (bench.accepted(), bench.accepted());
    let dial = only_dial(&bench.say(first, &Msg::Setup(ask(0, 0, hops(3)))));
    let actions = bench.say(second, &Msg::Setup(ask(0, 0, hops(3))));
    assert!(!actions.iter().any(|a| matches!(a, Action::Dial { .. })));
    // when the trunk stands, then both are asked for on it
    let (trunk, actions) = bench.dialed(dial);
    assert_eq!(sent(&actions, trunk), [Msg::TrunkHello { node: 1 }]);
    let actions = bench.say(trunk, &trunk_slots(2));
    let streams: Vec<_> = sent(&actions, trunk).iter().filter_map(stream_of_setup).collect();
    assert_eq!(streams, [1, 2]);
    // and a refusal of one leaves the other
    let why = Refusal { code: 53, text: "no".into() };
    let actions = bench.say(trunk, &Msg::Refused { stream: 1, why: why.clone() });
    assert_eq!(refusal(&actions, first), why);
    assert_eq!(sent(&bench.say(trunk, &ready(2)), second).len(), 1);
}

#[test]
fn trunks_that_stand_are_told_with_what_is_on_them() {
    // given a trunk that is being opened, then it is not among them
    let mut bench = Bench::new(|_| ());
    let first = bench.accepted();
    let dial = only_dial(&bench.say(first, &Msg::Setup(ask(0, 0, hops(3)))));
    let (out, _) = bench.dialed(dial);
    assert_eq!(bench.engine.trunks(), []);
    // when it stands, and another one to here, then both are, with their streams and slots
    bench.say(out, &trunk_slots(2));
    another(&mut bench, out, 2);
    let into = bench.accepted();
    bench.say(into, &Msg::TrunkHello { node: 9 });
    let [a, b] = [
        TrunkUse { local: ip(0, 2), remote: ip(0, 1), out: false, streams: 0, filled: 0, slots: 6 },
        TrunkUse { local: ip(1, 1), remote: ip(1, 2), out: true, streams: 2, filled: 0, slots: 6 },
    ];
    assert_eq!(bench.engine.trunks(), [a, b]);
}

fn stream_of_setup(msg: &Msg) -> Option<u32> {
    match msg {
        Msg::Setup(s) => Some(s.stream),
        _ => None,
    }
}

#[test]
fn a_refused_trunk_is_told_to_those_that_wait() {
    let mut bench = Bench::new(|_| ());
    let up = bench.accepted();
    let dial = only_dial(&bench.say(up, &Msg::Setup(ask(0, 0, hops(3)))));
    let (trunk, _) = bench.dialed(dial);
    let why = Refusal { code: 1, text: "mesh[E01] node right: lets no traffic of others pass".into() };
    let actions = bench.say(trunk, &Msg::Refused { stream: 0, why: why.clone() });
    assert_eq!(refusal(&actions, up), why);
    assert_eq!(dropped(&actions, trunk), Some(true));
    // The next path tries anew.
    let up = bench.accepted();
    only_dial(&bench.say(up, &Msg::Setup(ask(0, 0, hops(3)))));
}

#[test]
fn a_trunk_that_stands_cannot_be_refused() {
    // given a path over a trunk, with a chunk that the trunk is reading
    let mut bench = Bench::new(|_| ());
    let (up, trunk) = bench.first_relay(2);
    bench.say(trunk, &cts(1, 0));
    assert_eq!(forwards(&bench.chunk(up, 0, chunk_of(0, 0, 10))).len(), 1);
    // when the peer refuses it after all
    let actions = bench.say(trunk, &Msg::Refused { stream: 0, why: Refusal { code: 1, text: String::new() } });
    // then the path above hears of it and nothing stays
    assert_eq!(sent(&actions, up), [Msg::Close { stream: 0, code: code::PROTOCOL_BROKEN }]);
    assert_eq!(dropped(&actions, trunk), Some(false), "its slots are needed, so at once");
    assert_eq!((bench.engine.streams(), bench.engine.pool_use().lent), (0, 0));
}

#[test]
fn a_credit_for_a_slot_that_was_not_used_is_a_fault() {
    for reading in [false, true] {
        let mut bench = Bench::new(|_| ());
        let (up, trunk) = bench.first_relay(2);
        bench.say(trunk, &cts(1, 0));
        if reading {
            bench.chunk(up, 0, chunk_of(0, 0, 10));
        }
        let actions = bench.say(trunk, &credit(&[1]));
        // A leg that still reads slots is dropped at once: they are given to others from here on.
        assert_eq!(dropped(&actions, trunk), Some(!reading));
        assert_eq!((bench.engine.streams(), bench.engine.pool_use().lent), (0, 0));
    }
}

#[test]
fn trunk_slots_that_make_no_sense_are_a_fault() {
    for (slots, classes, stride, chunk) in
        [(0, 3, 4096, 256), (2, 0, 4096, 256), (u16::MAX, 2, 4096, 256), (2, 3, 287, 256), (2, 3, 4096, 127)]
    {
        let mut bench = Bench::new(|_| ());
        let up = bench.accepted();
        let dial = only_dial(&bench.say(up, &Msg::Setup(ask(0, 0, hops(3)))));
        let (trunk, _) = bench.dialed(dial);
        let actions = bench.say(trunk, &Msg::TrunkReady { key: 1, base: 0, slots, classes, stride, chunk });
        assert!(dropped(&actions, trunk).is_some(), "{slots} {classes} {stride} {chunk}");
    }
}

#[test]
fn a_trunk_lost_while_opening_is_dialed_again_as_long_as_somebody_waits() {
    let mut bench = Bench::new(|_| ());
    let up = bench.accepted();
    let dial = only_dial(&bench.say(up, &Msg::Setup(ask(0, 0, hops(3)))));
    let (trunk, _) = bench.dialed(dial);
    bench.down(trunk);
    let dial = only_dial(&bench.pass(100 * MS));
    bench.dial_fails(dial, "no route to host");
    let dial = only_dial(&bench.pass(100 * MS));
    // when the only path that waits has closed, then it is tried no more
    bench.say(up, &Msg::Close { stream: 0, code: 0 });
    bench.dial_fails(dial, "no route to host");
    assert_eq!(bench.pass(SECOND), []);
    assert_eq!(bench.engine.deadline(), None);
}

#[test]
fn the_time_limit_of_a_path_that_waits_for_a_trunk_says_so() {
    let mut bench = Bench::new(|_| ());
    let up = bench.accepted();
    let dial = only_dial(&bench.say(up, &Msg::Setup(ask(0, 0, hops(3)))));
    bench.dial_fails(dial, "no route to host");
    let actions = bench.pass(SECOND);
    let why = refusal(&actions, up);
    assert!(why.code == code::NO_ANSWER && why.text.contains("trunk to 10.0.1.2: no route to host"), "{}", why.text);
}

#[test]
fn a_route_with_more_relays_than_classes_is_refused() {
    // A trunk of three classes carries routes of up to four relays.
    for (at, refused) in [(2, false), (3, true)] {
        let mut bench = Bench::new(|_| ());
        let (_, trunk) = bench.first_relay(2);
        let below = bench.trunk_in();
        let mut way = vec![HopAddr::new(ip(8, 1), ip(8, 2)); usize::from(at)];
        way.extend(hops(3));
        let actions = bench.say(below, &Msg::Setup(ask(1, at, way)));
        assert_eq!(sent(&actions, trunk).len(), usize::from(!refused), "{actions:?}");
        if refused {
            let why = refusal(&actions, below);
            assert!(why.code == code::BAD_ROUTE && why.text.contains("set for 4"), "{}", why.text);
        }
    }
}

#[test]
fn streams_take_turns_and_none_takes_more_than_its_share() {
    // given three paths over a trunk with eight slots a class
    let mut bench = Bench::new(|_| ());
    let (first, trunk) = bench.first_relay(8);
    let second = another(&mut bench, trunk, 2);
    let third = another(&mut bench, trunk, 3);
    for stream in 1..=3 {
        bench.say(trunk, &cts(stream, 0));
    }
    // when the first fills its entry slots alone, then all of them go, as it may hold six
    let alone: Vec<_> = (0..4).flat_map(|n| forwards(&bench.chunk(first, n, chunk_of(0, 0, 1)))).collect();
    assert_eq!(alone, [(1, 0), (1, 1), (1, 2), (1, 3)]);
    // when the others come, then the second gets half of six, and the third what is left
    let more: Vec<_> = (0..4).flat_map(|n| forwards(&bench.chunk(second, n, chunk_of(0, 0, 1)))).collect();
    assert_eq!(more, [(2, 4), (2, 5), (2, 6)]);
    let rest: Vec<_> = (0..4).flat_map(|n| forwards(&bench.chunk(third, n, chunk_of(0, 0, 1)))).collect();
    assert_eq!(rest, [(3, 7)]);
    // when slots come back, then those that wait take turns, up to a third of six each; who had its share comes after who had not
    let turns = forwards(&bench.say(trunk, &credit(&[4, 5, 6, 7])));
    assert_eq!(turns, [(3, 7), (2, 6), (3, 5)]);
}

#[test]
fn a_stream_that_has_its_share_goes_on_when_the_share_grows() {
    // given two paths over a trunk with eight slots a class, each with half of six and chunks that wait
    let mut bench = Bench::new(|_| ());
    let (first, trunk) = bench.first_relay(8);
    let second = another(&mut bench, trunk, 2);
    for stream in 1..=2 {
        bench.say(trunk, &cts(stream, 0));
    }
    bench.chunk(first, 0, chunk_of(0, 0, 1));
    bench.chunk(second, 0, chunk_of(0, 0, 1));
    let sent: Vec<_> = (1..4).flat_map(|n| forwards(&bench.chunk(first, n, chunk_of(0, 0, 1)))).collect();
    assert_eq!(sent, [(1, 2), (1, 3)], "the fourth waits");
    // when the other's only chunk is through
    let back = forwards(&bench.say(trunk, &credit(&[1])));
    // then the share is six, and the fourth goes without a credit of its own
    assert_eq!(back, [(1, 1)]);
    // when the other comes again and takes the share down, then the first waits for credits of its own only
    let again = forwards(&bench.chunk(second, 1, chunk_of(0, 0, 1)));
    assert_eq!(again, [(2, 4)]);
}

#[test]
fn chunks_take_slots_of_the_class_of_the_hops_they_have_made() {
    // given a path that comes in by a trunk, and one that enters here
    let mut bench = Bench::new(|_| ());
    let (up, trunk) = bench.first_relay(2);
    let below = bench.trunk_in();
    let mut way = vec![HopAddr::new(ip(8, 1), ip(8, 2))];
    way.extend(hops(3));
    bench.say(below, &Msg::Setup(ask(1, 1, way)));
    bench.say(trunk, &ready(2));
    bench.say(trunk, &cts(1, 0));
    bench.say(trunk, &cts(2, 0));
    // then each fills slots of its own class, to the last one
    assert_eq!(forwards(&bench.chunk(up, 0, chunk_of(0, 0, 1))), [(1, 0)]);
    assert_eq!(forwards(&bench.chunk(below, 0, chunk_of(1, 0, 1))), [(2, 2)]);
    assert_eq!(forwards(&bench.chunk(below, 1, chunk_of(1, 0, 1))), [], "its share is one of two");
    assert_eq!(forwards(&bench.say(trunk, &credit(&[0]))), [], "a slot of the other class is of no use");
    assert_eq!(forwards(&bench.say(trunk, &credit(&[2]))), [(2, 2)]);
}

#[test]
fn a_trunk_whose_peer_says_nothing_is_given_up_with_the_last_path_that_waits() {
    // given a path that waits for a trunk whose peer took the leg and then said nothing
    let mut bench = Bench::new(|_| {});
    let up = bench.accepted();
    let actions = bench.say(up, &Msg::Setup(ask(0, 0, hops(3))));
    let (silent, _) = bench.dialed(only_dial(&actions));
    // when the path's time is up
    let actions = bench.pass(60_000 * MS);
    // then the path is refused, the leg goes, and the next path dials again
    assert_eq!(refusal(&actions, up).code, code::NO_ANSWER);
    assert_eq!(dropped(&actions, silent), Some(false));
    let again = bench.accepted();
    let actions = bench.say(again, &Msg::Setup(ask(0, 0, hops(3))));
    only_dial(&actions);
}
