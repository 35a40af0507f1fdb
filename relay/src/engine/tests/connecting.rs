//! The connecting side of path set-up.

use super::*;

fn request(lanes: Vec<Vec<HopAddr>>) -> ConnectRequest {
    ConnectRequest { request: 3, conn: [1; 16], token: TOKEN, lanes, budget: SECOND, peer: "far".into() }
}

fn connect(bench: &mut Bench, lanes: Vec<Vec<HopAddr>>) -> Vec<Action> {
    bench.engine.connect(bench.now, request(lanes));
    bench.drain()
}

#[test]
fn a_direct_connection_is_handed_over_when_the_peer_is_ready() {
    let mut bench = Bench::new(|_| ());
    let actions = connect(&mut bench, vec![hops(1)]);
    let (leg, actions) = bench.dialed(only_dial(&actions));
    let [Msg::Setup(setup)] = &sent(&actions, leg)[..] else { panic!("{actions:?}") };
    assert_eq!((setup.at, setup.lane, setup.lanes, setup.token), (0, 0, 1, TOKEN));
    let actions = bench.say(leg, &ready(0));
    let expected = Action::Connected { request: 3, legs: vec![leg], path: SendPath::Direct, early: vec![] };
    assert_eq!(actions, [expected]);
    // The engine has forgotten the leg: it is the connection's.
    assert_eq!(bench.say(leg, &cts(0, 0)), []);
    assert_eq!(bench.engine.deadline(), None);
}

#[test]
fn every_lane_must_be_ready_and_early_messages_are_kept() {
    let mut bench = Bench::new(|_| ());
    let actions = connect(&mut bench, vec![hops(1), hops(1)]);
    let dials: Vec<_> = actions
        .iter()
        .filter_map(|a| match a {
            Action::Dial { dial, .. } => Some(*dial),
            _ => None,
        })
        .collect();
    let (second, _) = bench.dialed(dials[1]);
    assert_eq!(bench.say(second, &ready(0)), []);
    // A clear-to-send may come on the lane that is ready already.
    assert_eq!(bench.say(second, &cts(0, 0)), []);
    let (first, _) = bench.dialed(dials[0]);
    let actions = bench.say(first, &ready(0));
    let early = vec![(1, cts(0, 0))];
    assert_eq!(actions, [Action::Connected { request: 3, legs: vec![first, second], path: SendPath::Direct, early }]);
}

#[test]
fn messages_of_one_batch_with_the_last_answer_are_kept() {
    let mut bench = Bench::new(|_| ());
    let actions = connect(&mut bench, vec![hops(1), hops(1)]);
    let legs = [0, 1].map(|lane| {
        let dials = actions.iter().filter_map(|a| if let Action::Dial { dial, .. } = a { Some(*dial) } else { None });
        bench.dialed(dials.collect::<Vec<_>>()[lane]).0
    });
    // given an answer and clear-to-sends, on the last lane and on the other, that come before any action is carried out
    for (leg, msg) in
        [(legs[0], ready(0)), (legs[1], ready(0)), (legs[1], cts(0, 0)), (legs[1], cts(0, 1)), (legs[0], cts(0, 0))]
    {
        let mut bytes = Vec::new();
        msg.encode(&mut bytes);
        bench.engine.on_message(bench.now, leg, &bytes);
    }
    // when they are carried out, then the connection has all of them
    let early = vec![(1, cts(0, 0)), (1, cts(0, 1)), (0, cts(0, 0))];
    let expected = Action::Connected { request: 3, legs: legs.to_vec(), path: SendPath::Direct, early };
    assert_eq!(bench.drain(), [expected]);
    // and what comes later is not the engine's business
    assert_eq!(bench.say(legs[1], &cts(0, 2)), []);
}

#[test]
fn a_relayed_connection_learns_its_slots() {
    let mut bench = Bench::new(|_| ());
    let actions = connect(&mut bench, vec![hops(3)]);
    let (leg, _) = bench.dialed(only_dial(&actions));
    let actions = bench.say(leg, &Msg::Ready { stream: 0, key: 5, base: 0, slots: 8, stride: 8192, chunk: 4096 });
    let slots = vec![LentSlots { key: 5, base: 0, count: 8, stride: 8192 }];
    let path = SendPath::Relayed { relays: 2, chunk: 4096, slots };
    assert_eq!(actions, [Action::Connected { request: 3, legs: vec![leg], path, early: vec![] }]);
}

#[test]
fn lanes_over_relays_each_have_their_slots_and_the_smallest_chunk_counts() {
    let mut bench = Bench::new(|_| ());
    let actions = connect(&mut bench, vec![hops(2), hops(3)]);
    let [Action::Dial { dial: first, .. }, Action::Dial { dial: second, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    let (one, _) = bench.dialed(first);
    let (other, _) = bench.dialed(second);
    // given the answers of both, the second first
    let ready = |key, slots, chunk| Msg::Ready { stream: 0, key, base: 1, slots, stride: 8192, chunk };
    assert_eq!(bench.say(other, &ready(6, 2, 1024)), []);
    let actions = bench.say(one, &ready(5, 8, 4096));
    // then the connection has the slots of each lane, in the order of the lanes
    let slots = [(5, 8), (6, 2)].map(|(key, count)| LentSlots { key, base: 1, count, stride: 8192 }).to_vec();
    let path = SendPath::Relayed { relays: 2, chunk: 1024, slots };
    assert_eq!(actions, [Action::Connected { request: 3, legs: vec![one, other], path, early: vec![] }]);
}

#[test]
fn answers_that_make_no_sense_fail_with_e51() {
    for (slots, stride, chunk) in [(0, 4096, 256), (1, 4096, 0), (1, 4096, 129), (1, 255, 256)] {
        let mut bench = Bench::new(|_| ());
        let actions = connect(&mut bench, vec![hops(2)]);
        let (leg, _) = bench.dialed(only_dial(&actions));
        let actions = bench.say(leg, &Msg::Ready { stream: 0, key: 1, base: 0, slots, stride, chunk });
        assert_eq!(failure(&actions).code, code::PROTOCOL_BROKEN);
        assert_eq!(dropped(&actions, leg), Some(true));
    }
}

#[test]
fn requests_without_a_usable_route_fail_at_once() {
    for lanes in [vec![], vec![vec![]], vec![hops(2), hops(1)], vec![hops(33)], vec![hops(1); 9]] {
        let mut bench = Bench::new(|_| ());
        let actions = connect(&mut bench, lanes);
        assert_eq!(actions.len(), 1);
        assert_eq!(failure(&actions).code, code::BAD_ROUTE);
    }
    let mut bench = Bench::new(|_| ());
    assert_eq!(connect(&mut bench, vec![hops(1); 8]).len(), 8, "eight lanes are allowed");
}

#[test]
fn failed_dials_and_lost_legs_are_tried_again() {
    // given a peer that is not up yet
    let mut bench = Bench::new(|_| ());
    let actions = connect(&mut bench, vec![hops(1)]);
    assert_eq!(bench.dial_fails(only_dial(&actions), "connection refused"), []);
    let actions = bench.pass(100 * MS);
    // when the leg stands but is lost before the answer, then it is dialed once more
    let (leg, _) = bench.dialed(only_dial(&actions));
    assert_eq!(bench.down(leg), []);
    let actions = bench.pass(100 * MS);
    let (leg, _) = bench.dialed(only_dial(&actions));
    assert!(matches!(bench.say(leg, &ready(0))[..], [Action::Connected { .. }]));
}

#[test]
fn a_refusal_ends_the_attempt_on_all_lanes() {
    let mut bench = Bench::new(|_| ());
    let actions = connect(&mut bench, vec![hops(1), hops(1)]);
    let Action::Dial { dial: first, .. } = actions[0] else { panic!("{actions:?}") };
    let Action::Dial { dial: second, .. } = actions[1] else { panic!("{actions:?}") };
    let (leg, _) = bench.dialed(first);
    let why = Refusal { code: 52, text: "mesh[E52] node far: nobody listens".into() };
    let actions = bench.say(leg, &Msg::Refused { stream: 0, why: why.clone() });
    assert_eq!(failure(&actions), why);
    assert_eq!(dropped(&actions, leg), Some(true));
    // The other lane's leg comes too late.
    let (late, actions) = bench.dialed(second);
    assert_eq!(actions, [Action::Drop { leg: late, graceful: false }]);
}

#[test]
fn time_limits_say_whom_was_asked_and_what_came_of_it() {
    let text = |drive: &dyn Fn(&mut Bench, DialId)| {
        let mut bench = Bench::new(|_| ());
        let actions = connect(&mut bench, vec![hops(1)]);
        drive(&mut bench, only_dial(&actions));
        let early = bench.pass(SECOND - 1);
        assert!(!early.iter().any(|a| matches!(a, Action::ConnectFailed { .. })), "not before its time");
        let why = failure(&bench.pass(1));
        assert_eq!(why.code, code::NO_ANSWER);
        why.text
    };
    let silent = text(&|_, _| ());
    assert!(silent.contains("node relay: no answer from 10.0.0.2 for 1000 ms on the way to far"), "{silent}");
    let failed = text(&|bench, dial| {
        bench.dial_fails(dial, "no route to host");
    });
    assert!(failed.contains("cannot reach 10.0.0.2 from 10.0.0.1") && failed.contains("no route to host"), "{failed}");
    let asked = text(&|bench, dial| {
        bench.dialed(dial);
    });
    assert!(asked.contains("no answer about the path to far from 10.0.0.2 for 1000 ms"), "{asked}");
}

#[test]
fn a_cancelled_request_is_not_heard_of_again() {
    // given a request that is still dialing
    let mut bench = Bench::new(|_| ());
    let actions = connect(&mut bench, vec![hops(1)]);
    bench.engine.cancel(3);
    let (leg, actions) = bench.dialed(only_dial(&actions));
    assert_eq!(actions, [Action::Drop { leg, graceful: false }]);
    // given one whose leg stands
    let actions = connect(&mut bench, vec![hops(1)]);
    let (leg, _) = bench.dialed(only_dial(&actions));
    bench.engine.cancel(3);
    let actions = bench.drain();
    assert_eq!(
        actions,
        [Action::Send { leg, msg: Msg::Close { stream: 0, code: 0 } }, Action::Drop { leg, graceful: true },]
    );
    assert_eq!(bench.pass(10 * SECOND), []);
}
