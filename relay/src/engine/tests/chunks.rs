//! Chunks and credits.

use super::*;

#[test]
fn a_chunk_is_delivered_from_its_slot_and_credited_when_nobody_reads_it() {
    let mut bench = Bench::new(|_| ());
    let (up, down) = bench.last_relay();
    let actions = bench.say(down, &cts(0, 0));
    assert_eq!(sent(&actions, up), [cts(0, 0)]);
    let header = ChunkHeader { stream: 0, seq: 0, at: 512, len: 100, key: 900, parts: 3, last: false };
    let actions = bench.chunk(up, 2, header);
    let note = Note { seq: 0, last: false, parts: 3 };
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
        bench.chunk(up, n, ChunkHeader { at: u64::from(n), last: n == 39, ..chunk_of(0, 0, 1) });
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
            header[24] = 2;
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
        // when it counts deliveries, which only relays do
        let actions = bench.say(down, &Msg::Done { stream: 0, count: 1 });
        assert_eq!(dropped(&actions, down), Some(!reading));
        assert_eq!(sent(&actions, up), [Msg::Close { stream: 0, code: code::PROTOCOL_BROKEN }]);
        assert_eq!(bench.engine.pool_use().lent, 0);
    }
}

#[test]
fn where_links_acknowledge_the_last_relay_counts_deliveries_for_the_sender() {
    let mut bench = Bench::new(|c| c.acks = Acks::Link);
    let (up, down) = bench.last_relay();
    // given two messages, the first in two chunks, all being delivered
    let first = ChunkHeader { last: false, ..chunk_of(0, 0, 10) };
    for (slot, header) in [(0, first), (1, chunk_of(0, 0, 10)), (2, chunk_of(0, 1, 10))] {
        assert_eq!(bench.chunk(up, slot, header).len(), 1);
    }
    // when a chunk that is not its message's last has arrived, then its slot is given back and nothing counted
    assert_eq!(sent(&bench.written(down, 0), up), [credit(&[0])]);
    // when the last ones have, then both count in one message, next to the credits
    bench.engine.on_written(bench.now, down, 1);
    bench.engine.on_written(bench.now, down, 2);
    assert_eq!(sent(&bench.drain(), up), [Msg::Done { stream: 0, count: 2 }, credit(&[1, 2])]);
}

#[test]
fn counts_of_deliveries_pass_a_relay_in_the_middle_and_are_not_made_there() {
    let mut bench = Bench::new(|c| c.acks = Acks::Link);
    let (up, trunk) = bench.first_relay(2);
    let actions = bench.chunk(up, 0, chunk_of(0, 0, 10));
    assert!(matches!(actions[..], [Action::Forward { .. }]), "{actions:?}");
    assert_eq!(sent(&bench.written(trunk, 0), up), [credit(&[0])]);
    assert_eq!(sent(&bench.say(trunk, &Msg::Done { stream: 1, count: 7 }), up), [Msg::Done { stream: 0, count: 7 }]);
}

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
fn the_sender_says_where_the_bytes_land() {
    // given a receive whose buffer has a base
    let mut bench = Bench::new(|_| ());
    let (up, down) = bench.last_relay();
    let far = Msg::Cts { stream: 0, clear: Clear::new(0, &[5], 1 << 40, 4096) };
    // then its clear-to-send passes as it is
    assert_eq!(sent(&bench.say(down, &far), up), [far]);
    // and a chunk is delivered with the key and at the place that its header names
    let actions = bench.chunk(up, 0, ChunkHeader { at: (1 << 40) + 256, key: 5, ..chunk_of(0, 0, 10) });
    assert!(
        matches!(actions[..], [Action::Deliver { key: 5, offset, .. }] if offset == (1 << 40) + 256),
        "{actions:?}"
    );
}
