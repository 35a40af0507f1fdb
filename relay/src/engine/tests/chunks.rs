//! Chunks and credits.

use super::*;

#[test]
fn a_chunk_is_delivered_from_its_slot_and_credited_when_nobody_reads_it() {
    let mut bench = Bench::new(|_| ());
    let (up, down) = bench.last_relay();
    let actions = bench.say(down, &cts(0, 0));
    assert_eq!(sent(&actions, up), [Msg::Cts { stream: 0, seq: 0, key: 0, base: 0, capacity: 1 << 20 }]);
    let actions = bench.chunk(up, 2, ChunkHeader { stream: 0, seq: 0, offset: 512, len: 100, last: false });
    let note = Note { seq: 0, last: false, parts: 1 };
    assert_eq!(actions, [Action::Deliver { slot: 2, leg: down, len: 100, key: 900, offset: 512, note }]);
    // Written ids that are unknown, of another leg, or come twice, are ignored.
    assert_eq!(bench.written(down, 1 << 40), []);
    assert_eq!(bench.written(down, 1), []);
    assert_eq!(bench.written(up, 2), []);
    assert_eq!(bench.engine.pool_use().filled, 1);
    assert_eq!(sent(&bench.written(down, 2), up), [credit(&[2])]);
    assert_eq!(bench.written(down, 2), []);
    assert_eq!(bench.engine.pool_use().filled, 0);
    assert_eq!((bench.engine.stats().forwarded_chunks, bench.engine.stats().forwarded_bytes), (1, 100));
}

#[test]
fn credits_go_together_after_everything_else() {
    // given forty slots, all read by the last leg
    let mut bench = Bench::new(|c| (c.entry_slots, c.pool_slots) = (40, 128));
    let (up, down) = bench.last_relay();
    bench.say(down, &cts(0, 0));
    for n in 0..40 {
        bench.chunk(up, n, ChunkHeader { stream: 0, seq: 0, offset: u64::from(n), len: 1, last: n == 39 });
    }
    // when all are written before anybody asks what to do
    for n in 0..40 {
        bench.engine.on_written(bench.now, down, n);
    }
    let mut bytes = Vec::new();
    Msg::Ack { stream: 0, count: 1 }.encode(&mut bytes);
    bench.engine.on_message(bench.now, down, &bytes);
    // then the acknowledgement goes first, and the credits in as few messages as hold them
    let messages = sent(&bench.drain(), up);
    let first: Vec<_> = (0..32).collect();
    let rest: Vec<_> = (32..40).collect();
    assert_eq!(messages, [Msg::Ack { stream: 0, count: 1 }, credit(&first), credit(&rest)]);
}

#[test]
fn a_chunk_in_a_used_slot_or_of_a_false_length_is_a_fault() {
    let cases: [fn(&mut Bench, LegId) -> Vec<Action>; 5] = [
        |bench, up| bench.chunk(up, 0, chunk_of(0, 0, 10)),
        |bench, up| bench.chunk(up, 4, chunk_of(0, 0, 10)),
        |bench, up| bench.chunk(up, 1, chunk_of(0, 0, 257)),
        |bench, up| {
            bench.engine.on_chunk(bench.now, up, 1, &chunk_of(0, 0, 10).encode(), 41);
            bench.drain()
        },
        |bench, up| {
            let mut header = chunk_of(0, 0, 10).encode();
            header[20] = 2;
            bench.engine.on_chunk(bench.now, up, 1, &header, 42);
            bench.drain()
        },
    ];
    for (case, break_rules) in cases.iter().enumerate() {
        // given a path with slot 0 being read
        let mut bench = Bench::new(|_| ());
        let (up, down) = bench.last_relay();
        bench.say(down, &cts(0, 0));
        bench.chunk(up, 0, chunk_of(0, 0, 10));
        // when the sender breaks the rules, then its path ends, at once where slots are still read
        let actions = break_rules(&mut bench, up);
        assert!(dropped(&actions, up).is_some(), "case {case}: {actions:?}");
        assert_eq!(dropped(&actions, down), Some(false), "case {case}");
        assert_eq!(sent(&actions, down), [Msg::Close { stream: 0, code: code::PROTOCOL_BROKEN }], "case {case}");
        assert_eq!((bench.engine.streams(), bench.engine.pool_use().lent), (0, 0), "case {case}");
    }
}

#[test]
fn a_receiver_that_breaks_the_rules_is_cut_off_at_once_while_its_leg_reads() {
    for reading in [false, true] {
        let mut bench = Bench::new(|_| ());
        let (up, down) = bench.last_relay();
        bench.say(down, &cts(0, 0));
        if reading {
            bench.chunk(up, 0, chunk_of(0, 0, 10));
        }
        // when it acknowledges what it never asked for
        let actions = bench.say(down, &Msg::Ack { stream: 0, count: 2 });
        assert_eq!(dropped(&actions, down), Some(!reading));
        assert_eq!(sent(&actions, up), [Msg::Close { stream: 0, code: code::PROTOCOL_BROKEN }]);
        assert_eq!(bench.engine.pool_use().lent, 0);
    }
}

#[test]
fn chunks_pass_only_in_the_window_between_acknowledged_and_cleared() {
    for (seq, passes) in [(1, false), (2, true), (4, true), (5, false)] {
        // given messages 0 and 1 acknowledged, and 2 to 4 cleared
        let mut bench = Bench::new(|_| ());
        let (up, down) = bench.last_relay();
        for seq in 0..5 {
            bench.say(down, &cts(0, seq));
        }
        bench.say(down, &Msg::Ack { stream: 0, count: 2 });
        let actions = bench.chunk(up, 0, chunk_of(0, seq, 1));
        let delivered = actions.iter().any(|a| matches!(a, Action::Deliver { key, .. } if *key == 900 + seq));
        assert_eq!((delivered, bench.engine.streams()), (passes, usize::from(passes)), "message {seq}");
    }
}

#[test]
fn clear_to_sends_come_in_turn_and_not_too_many() {
    let mut bench = Bench::new(|_| ());
    let (up, down) = bench.last_relay();
    for seq in 0..DEPTH as u32 {
        assert_eq!(sent(&bench.say(down, &cts(0, seq)), up).len(), 1);
    }
    assert!(dropped(&bench.say(down, &cts(0, DEPTH as u32)), down).is_some(), "one more than the depth");
    let (_, down) = bench.last_relay();
    assert!(dropped(&bench.say(down, &cts(0, 1)), down).is_some(), "out of turn");
}

use crate::send::DEPTH;

#[test]
fn a_chunk_of_a_stream_that_has_ended_is_credited() {
    // given a path over an incoming trunk that the sender has closed
    let mut bench = Bench::new(|_| ());
    let trunk = bench.trunk_in();
    let actions = bench.say(trunk, &Msg::Setup(ask(1, 0, hops(2))));
    let (down, _) = bench.dialed(only_dial(&actions));
    bench.say(down, &ready(0));
    bench.say(down, &cts(0, 0));
    bench.say(trunk, &Msg::Close { stream: 1, code: 0 });
    // when its last chunk arrives after the close, which may overtake it
    let actions = bench.chunk(trunk, 1, chunk_of(1, 0, 10));
    assert_eq!(actions, [Action::Send { leg: trunk, msg: credit(&[1]) }]);
    assert_eq!(bench.engine.pool_use().filled, 0);
}

#[test]
fn a_chunk_before_its_path_stands_ends_the_path() {
    let mut bench = Bench::new(|_| ());
    let up = bench.accepted();
    bench.say(up, &Msg::Setup(ask(0, 0, hops(2))));
    let actions = bench.chunk(up, 0, chunk_of(0, 0, 10));
    assert!(dropped(&actions, up).is_some());
    assert_eq!((bench.engine.streams(), bench.engine.pool_use().lent), (0, 0));
    // On a leg that was lent nothing it is a fault.
    let leg = bench.accepted();
    assert!(dropped(&bench.chunk(leg, 0, chunk_of(0, 0, 10)), leg).is_some());
}

#[test]
fn bases_are_added_where_the_bytes_land_and_not_told_further() {
    // given a receive whose buffer has a base
    let mut bench = Bench::new(|_| ());
    let (up, down) = bench.last_relay();
    let far = Msg::Cts { stream: 0, seq: 0, key: 5, base: 1 << 40, capacity: 4096 };
    let actions = bench.say(down, &far);
    assert_eq!(sent(&actions, up), [Msg::Cts { stream: 0, seq: 0, key: 0, base: 0, capacity: 4096 }]);
    // when a chunk comes, then it is delivered at base and offset together
    let actions = bench.chunk(up, 0, ChunkHeader { stream: 0, seq: 0, offset: 256, len: 10, last: true });
    assert!(
        matches!(actions[..], [Action::Deliver { key: 5, offset, .. }] if offset == (1 << 40) + 256),
        "{actions:?}"
    );
}
