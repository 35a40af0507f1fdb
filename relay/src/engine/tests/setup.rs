//! Set-ups that pass through: what is refused and why, and the way to a standing path.

use super::*;

fn refused(change: impl FnOnce(&mut Config), setup: Setup) -> Refusal {
    let mut bench = Bench::new(change);
    let leg = bench.accepted();
    let actions = bench.say(leg, &Msg::Setup(setup));
    assert_eq!(dropped(&actions, leg), Some(true), "the refusal is still sent");
    assert_eq!((bench.engine.streams(), bench.engine.pool_use().lent), (0, 0));
    refusal(&actions, leg)
}

#[test]
fn routes_that_do_not_fit_the_node_are_refused_with_the_address() {
    // given a route that enters by an address of another node
    let mut way = hops(2);
    way[0].to = ip(9, 9);
    let why = refused(|_| (), ask(0, 0, way));
    assert_eq!(why.code, code::BAD_ROUTE);
    assert!(why.text.starts_with("mesh[E54] node relay: ") && why.text.contains("10.0.9.9"), "{}", why.text);
    // given one that enters by a port of ours, but not that of the leg
    let mut way = hops(2);
    way[0].to = ip(1, 1);
    assert_eq!(refused(|_| (), ask(0, 0, way)).code, code::BAD_ROUTE);
    // given one that leaves by an address of another node
    let mut way = hops(2);
    way[1].from = ip(9, 8);
    let why = refused(|_| (), ask(0, 0, way));
    assert!(why.code == code::BAD_ROUTE && why.text.contains("leaves by 10.0.9.8"), "{}", why.text);
}

#[test]
fn relay_off_and_unknown_tokens_are_refused() {
    let why = refused(|c| c.relay = false, ask(0, 0, hops(2)));
    assert!(why.code == code::RELAY_OFF && why.text.contains("relay = false"), "{}", why.text);
    let why = refused(|_| (), ask(0, 0, hops(1)));
    assert!(why.code == code::NO_LISTENER && why.text.contains("mesh[E52] node relay"), "{}", why.text);
}

#[test]
fn a_full_pool_refuses_and_a_half_full_one_lends_less() {
    // given a pool of five slots and a wish of four
    let mut bench = Bench::new(|c| c.pool_slots = 5);
    let counts: Vec<_> = (0..2)
        .map(|_| {
            let leg = bench.accepted();
            let actions = bench.say(leg, &Msg::Setup(ask(0, 0, hops(2))));
            actions.iter().find_map(|a| match a {
                Action::Expose { count, .. } => Some(*count),
                _ => None,
            })
        })
        .collect();
    assert_eq!(counts, [Some(4), Some(1)]);
    // when nothing is left, then the third is refused, and the two others stand
    let leg = bench.accepted();
    let actions = bench.say(leg, &Msg::Setup(ask(0, 0, hops(2))));
    let why = refusal(&actions, leg);
    assert!(why.code == code::POOL_EMPTY && why.text.contains("NCCL_MESH_RELAY"), "{}", why.text);
    assert_eq!(bench.engine.streams(), 2);
}

#[test]
fn the_last_hop_is_never_a_trunk() {
    let mut bench = Bench::new(|_| ());
    let trunk = bench.trunk_in();
    let actions = bench.say(trunk, &Msg::Setup(ask(1, 0, hops(1))));
    assert_eq!(refusal(&actions, trunk).code, code::BAD_ROUTE);
    // The trunk itself stays, for the others.
    assert_eq!(dropped(&actions, trunk), None);
}

#[test]
fn a_stream_of_a_trunk_is_named_once() {
    // given a path over a trunk
    let mut bench = Bench::new(|_| ());
    let trunk = bench.trunk_in();
    bench.say(trunk, &Msg::Setup(ask(5, 0, hops(2))));
    assert_eq!(bench.engine.streams(), 1);
    // when a second takes its number, then the trunk goes with all that hangs on it
    let actions = bench.say(trunk, &Msg::Setup(ask(5, 0, hops(2))));
    assert!(dropped(&actions, trunk).is_some());
    assert_eq!((bench.engine.streams(), bench.engine.pool_use().lent), (0, 0));
    // and number 0 is that of the trunk itself
    let trunk = bench.trunk_in();
    let actions = bench.say(trunk, &Msg::Setup(ask(0, 0, hops(2))));
    assert!(dropped(&actions, trunk).is_some());
}

#[test]
fn another_protocol_is_answered_before_the_leg_goes() {
    let mut bench = Bench::new(|_| ());
    let leg = bench.accepted();
    let mut bytes = Vec::new();
    Msg::Setup(ask(0, 0, hops(2))).encode(&mut bytes);
    bytes[5] = bytes[5].wrapping_add(1);
    bench.engine.on_message(bench.now, leg, &bytes);
    let actions = bench.drain();
    let why = refusal(&actions, leg);
    assert!(why.code == code::OTHER_VERSION && why.text.contains("same build"), "{}", why.text);
    assert_eq!(dropped(&actions, leg), Some(true));
}

#[test]
fn strangers_are_few_and_have_little_time() {
    let mut bench = Bench::new(|c| c.strangers = 2);
    let (first, second, third) = (bench.accepted(), bench.accepted(), bench.accepted());
    assert_eq!(dropped(&bench.drain(), third), Some(false), "one too many");
    assert_eq!(bench.engine.deadline(), Some(bench.now + SECOND));
    assert_eq!(bench.pass(SECOND - 1), [], "not yet");
    let actions = bench.pass(1);
    assert_eq!((dropped(&actions, first), dropped(&actions, second)), (Some(false), Some(false)));
    assert_eq!(bench.engine.deadline(), None);
    // A stranger that talks nonsense goes at once, and what it says afterwards is ignored.
    let leg = bench.accepted();
    let actions = bench.say(leg, &cts(0, 0));
    assert_eq!(dropped(&actions, leg), Some(true));
    let why = "unexpected clear-to-send".to_owned();
    assert!(actions.contains(&Action::Note(Event::Stranger { peer: ip(0, 1), why })), "{actions:?}");
    bench.engine.on_message(bench.now, leg, &[255]);
    assert_eq!(bench.drain(), []);
}

#[test]
fn a_failed_dial_is_tried_again_until_it_succeeds() {
    // given a last relay whose first attempt fails
    let mut bench = Bench::new(|_| ());
    let up = bench.accepted();
    let actions = bench.say(up, &Msg::Setup(ask(0, 0, hops(2))));
    assert!(
        matches!(&actions[..], [
        Action::Expose { leg, first: 0, count: 4 },
        Action::Dial { hop, .. },
    ] if *leg == up && *hop == HopAddr::new(ip(1, 1), ip(1, 2))),
        "{actions:?}"
    );
    assert_eq!(bench.dial_fails(only_dial(&actions), "connection refused"), []);
    // when the pause is over, then it dials again
    assert_eq!(bench.pass(100 * MS - 1), []);
    let (down, actions) = {
        let actions = bench.pass(1);
        bench.dialed(only_dial(&actions))
    };
    // and asks the receiver, one hop on and with less time than it has itself
    let [Msg::Setup(next)] = &sent(&actions, down)[..] else { panic!("{actions:?}") };
    assert_eq!((next.at, next.stream), (1, 0));
    assert!(next.budget_ms < 900 && next.budget_ms > 700, "{}", next.budget_ms);
    // then the answer goes up with the slots that were lent
    let actions = bench.say(down, &ready(0));
    assert_eq!(sent(&actions, up), [Msg::Ready { stream: 0, key: 0, base: 0, slots: 4, stride: 4096, chunk: 256 }]);
    assert_eq!(bench.engine.deadline(), None);
}

#[test]
fn time_limits_name_the_next_port_and_what_was_tried() {
    let text = |drive: &dyn Fn(&mut Bench, DialId)| {
        let mut bench = Bench::new(|_| ());
        let up = bench.accepted();
        let actions = bench.say(up, &Msg::Setup(ask(0, 0, hops(2))));
        drive(&mut bench, only_dial(&actions));
        let left = SECOND - (bench.now - SECOND);
        let early: Vec<_> = bench.pass(left - 1);
        assert_eq!(sent(&early, up), [], "not before its time");
        let actions = bench.pass(1);
        assert_eq!(dropped(&actions, up), Some(true));
        assert_eq!((bench.engine.streams(), bench.engine.pool_use().lent), (0, 0));
        let why = refusal(&actions, up);
        assert_eq!(why.code, code::NO_ANSWER);
        why.text
    };
    let silent = text(&|_, _| ());
    assert!(silent.contains("node relay: cannot reach 10.0.1.2 from 10.0.1.1: no answer"), "{silent}");
    let failed = text(&|bench, dial| {
        bench.dial_fails(dial, "connection refused");
    });
    assert!(failed.contains("cannot reach 10.0.1.2 from 10.0.1.1: connection refused"), "{failed}");
    let asked = text(&|bench, dial| {
        bench.dialed(dial);
    });
    assert!(asked.contains("10.0.1.2 was reached from 10.0.1.1 but did not answer"), "{asked}");
}

#[test]
fn a_refusal_from_further_on_is_passed_up_word_for_word() {
    let mut bench = Bench::new(|_| ());
    let up = bench.accepted();
    let actions = bench.say(up, &Msg::Setup(ask(0, 0, hops(2))));
    let (down, _) = bench.dialed(only_dial(&actions));
    let why = Refusal { code: 52, text: "mesh[E52] node far: nobody listens".into() };
    let actions = bench.say(down, &Msg::Refused { stream: 0, why: why.clone() });
    assert_eq!(refusal(&actions, up), why);
    assert_eq!((dropped(&actions, up), dropped(&actions, down)), (Some(true), Some(true)));
    assert_eq!((bench.engine.streams(), bench.engine.pool_use().lent), (0, 0));
}

#[test]
fn the_smallest_chunk_of_all_relays_is_passed_up() {
    for (below, expected) in [(u32::MAX, 256), (257, 256), (255, 128), (128, 128)] {
        let mut bench = Bench::new(|_| ());
        let up = bench.accepted();
        let actions = bench.say(up, &Msg::Setup(ask(0, 0, hops(2))));
        let (down, _) = bench.dialed(only_dial(&actions));
        let actions = bench.say(down, &Msg::Ready { stream: 0, key: 0, base: 0, slots: 0, stride: 0, chunk: below });
        assert!(matches!(sent(&actions, up)[..], [Msg::Ready { chunk, .. }] if chunk == expected), "{actions:?}");
    }
    let mut bench = Bench::new(|_| ());
    let up = bench.accepted();
    let actions = bench.say(up, &Msg::Setup(ask(0, 0, hops(2))));
    let (down, _) = bench.dialed(only_dial(&actions));
    let actions = bench.say(down, &Msg::Ready { stream: 0, key: 0, base: 0, slots: 0, stride: 0, chunk: 127 });
    assert_eq!(refusal(&actions, up).code, code::BAD_ROUTE);
}
