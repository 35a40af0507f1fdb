//! The accepting side of path set-up.

use super::*;

fn lane(lane: u8, lanes: u8) -> Msg {
    Msg::Setup(Setup { lane, lanes, ..ask(0, 0, hops(1)) })
}

fn listening() -> Bench {
    let mut bench = Bench::new(|_| ());
    bench.engine.listen(TOKEN, 42);
    bench
}

#[test]
fn a_set_up_with_the_token_is_answered_and_handed_over() {
    let mut bench = listening();
    let leg = bench.accepted();
    let actions = bench.say(leg, &lane(0, 1));
    assert_eq!(
        actions,
        [
            Action::Send { leg, msg: ready(0) },
            Action::Accepted {
                listener: 42,
                legs: vec![leg],
                relays: 0,
                peer: ip(0, 1),
                hops: vec![hops(1)],
                early: vec![]
            },
        ]
    );
    // Nobody accepts with a token that has been withdrawn.
    bench.engine.unlisten(&TOKEN);
    let leg = bench.accepted();
    assert_eq!(refusal(&bench.say(leg, &lane(0, 1)), leg).code, code::NO_LISTENER);
}

#[test]
fn lanes_are_gathered_in_any_order() {
    let mut bench = listening();
    let (first, second) = (bench.accepted(), bench.accepted());
    assert_eq!(bench.say(second, &lane(1, 2)), [Action::Send { leg: second, msg: ready(0) }]);
    // A close that comes before the connection is whole is handed over with it.
    assert_eq!(bench.say(second, &Msg::Close { stream: 0, code: 0 }), []);
    let actions = bench.say(first, &lane(0, 2));
    let early = vec![(1, Msg::Close { stream: 0, code: 0 })];
    assert_eq!(
        actions[1],
        Action::Accepted {
            listener: 42,
            legs: vec![first, second],
            relays: 0,
            peer: ip(0, 1),
            hops: vec![hops(1); 2],
            early
        }
    );
}

#[test]
fn lanes_that_do_not_fit_are_faults_and_leave_nothing_behind() {
    // given nine lanes, one more than there may be
    let mut bench = listening();
    let leg = bench.accepted();
    assert_eq!(dropped(&bench.say(leg, &lane(0, 9)), leg), Some(true));
    assert_eq!(bench.engine.deadline(), None, "no connection waits for its other lanes");
    // given a lane that is there already
    let (first, again) = (bench.accepted(), bench.accepted());
    bench.say(first, &lane(0, 2));
    let actions = bench.say(again, &lane(0, 2));
    assert_eq!((dropped(&actions, again), dropped(&actions, first)), (Some(true), None));
}

#[test]
fn a_connection_that_never_becomes_whole_is_given_up() {
    // when its time is up
    let mut bench = listening();
    let leg = bench.accepted();
    bench.say(leg, &lane(0, 2));
    assert_eq!(bench.pass(SECOND - 1), []);
    assert_eq!(dropped(&bench.pass(1), leg), Some(true));
    // when one of its lanes is lost, or talks nonsense
    for nonsense in [false, true] {
        let (first, second) = (bench.accepted(), bench.accepted());
        bench.say(first, &lane(0, 3));
        bench.say(second, &lane(1, 3));
        let actions = if nonsense { bench.say(first, &ready(0)) } else { bench.down(first) };
        assert_eq!(dropped(&actions, second), Some(true));
        assert_eq!(dropped(&actions, first), nonsense.then_some(true));
    }
    // when the listener goes
    let leg = bench.accepted();
    bench.say(leg, &lane(0, 2));
    bench.engine.unlisten(&TOKEN);
    assert_eq!(dropped(&bench.drain(), leg), Some(true));
    assert_eq!(bench.engine.deadline(), None);
}
