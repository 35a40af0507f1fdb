use super::*;

fn direct(lanes: u8, stripe: u64) -> SendFlow {
    SendFlow::new(SendMode::Direct { lanes, stripe, acks: Acks::Receiver })
}

fn drain(flow: &mut SendFlow) -> Vec<SendWrite> {
    std::iter::from_fn(|| flow.poll().expect("no fault")).collect()
}

#[test]
fn nothing_is_written_before_its_receive_is_posted() {
    let mut flow = direct(1, 0);
    let place = flow.post(10).unwrap();
    assert_eq!(flow.poll(), Ok(None));
    assert_eq!(flow.waits_for(), SendWait::Receive { seq: 0 });
    flow.on_cts(0, 0, 7, 0, 10).unwrap();
    let writes = drain(&mut flow);
    assert_eq!(writes.len(), 1);
    assert_eq!((writes[0].offset, writes[0].len), (0, 10));
    // Neither the acknowledgement alone nor the local completion alone makes it done.
    assert_eq!(flow.take(place), None);
    flow.on_ack(1).unwrap();
    assert_eq!(flow.take(place), None);
    flow.on_written(writes[0].id);
    assert_eq!(flow.take(place), Some(10));
    assert_eq!(flow.take(place), None, "done once");
}

#[test]
fn a_clear_to_send_may_come_first() {
    let mut flow = direct(1, 0);
    flow.on_cts(0, 0, 7, 0, 10).unwrap();
    flow.post(0).unwrap();
    assert_eq!(drain(&mut flow).len(), 1, "an empty message is one write");
}

#[test]
fn thirty_two_are_open_and_not_one_more() {
    let mut flow = direct(1, 0);
    for place in 0..DEPTH as u32 {
        assert_eq!(flow.post(1), Some(place));
    }
    assert_eq!(flow.post(1), None);
    flow.on_cts(0, 0, 1, 0, 1).unwrap();
    let write = flow.poll().unwrap().unwrap();
    flow.on_written(write.id);
    flow.on_ack(1).unwrap();
    assert_eq!(flow.post(1), None, "not before it was taken");
    assert_eq!(flow.take(0), Some(1));
    assert_eq!(flow.post(1), Some(0));
}

#[test]
fn stripes_cover_the_message_at_multiples_of_128() {
    for lanes in 1..=MAX_LANES as u8 {
        for len in [0, 1, 127, 128, 129, 1000, 4096, 65_537, 1 << 20] {
            let mut next = 0;
            for lane in 0..lanes {
                let (start, part) = stripe_part(len, lanes, lane);
                assert_eq!(start, next.min(len), "len {len} lanes {lanes} lane {lane}");
                assert!(part == 0 || start % CUT == 0);
                next = start + part;
            }
            assert_eq!(next, len);
        }
    }
}

#[test]
fn messages_below_the_threshold_take_turns_and_others_are_striped() {
    let mut flow = direct(2, 1024);
    for seq in 0..3u32 {
        for lane in 0..2 {
            flow.on_cts(lane, seq, 100 + u32::from(lane), 0, 4096).unwrap();
        }
    }
    flow.post(1023).unwrap();
    flow.post(1023).unwrap();
    flow.post(1024).unwrap();
    let writes = drain(&mut flow);
    let lanes: Vec<_> = writes.iter().map(|w| (w.id, w.lane, w.len)).collect();
    assert_eq!(lanes, [(0, 0, 1023), (1, 1, 1023), (2, 0, 512), (2, 1, 512)]);
    let parts: Vec<_> = writes
        .iter()
        .map(|w| match w.target {
            SendTarget::Buffer { key, note, .. } => (key, note.parts),
            SendTarget::Slot { .. } => panic!("direct"),
        })
        .collect();
    assert_eq!(parts, [(100, 1), (101, 1), (100, 2), (101, 2)]);
}

#[test]
fn chunks_go_out_against_credits_only() {
    let mut flow = SendFlow::new(SendMode::Relayed { chunk: 128, slots: 2 });
    flow.post(300).unwrap();
    flow.on_cts(0, 0, 0, 0, 300).unwrap();
    let writes = drain(&mut flow);
    assert_eq!(writes.iter().map(|w| (w.offset, w.len)).collect::<Vec<_>>(), [(0, 128), (128, 128)]);
    assert_eq!(flow.credits(), (0, 2));
    assert_eq!(flow.waits_for(), SendWait::Credit { seq: 0 });
    flow.on_credit(1).unwrap();
    let last = drain(&mut flow);
    assert!(
        matches!(last[..], [SendWrite { offset: 256, len: 44, target: SendTarget::Slot { slot: 1, header }, .. }] if header.last)
    );
    // A credit for a slot that is free, or that does not exist, is a fault.
    flow.on_credit(0).unwrap();
    assert!(flow.on_credit(0).is_err());
    assert!(flow.on_credit(2).is_err());
}

#[test]
fn too_large_a_send_is_named_with_its_numbers() {
    let mut flow = direct(1, 0);
    flow.post(11).unwrap();
    flow.on_cts(0, 0, 1, 0, 10).unwrap();
    assert_eq!(flow.poll(), Err(FlowError::TooLarge { seq: 0, len: 11, capacity: 10 }));
}

#[test]
fn out_of_turn_clear_to_sends_and_acknowledgements_are_faults() {
    let mut flow = direct(1, 0);
    assert!(flow.on_cts(0, 1, 1, 0, 1).is_err(), "skips one");
    assert!(flow.on_cts(8, 0, 1, 0, 1).is_err(), "no such lane");
    for seq in 0..DEPTH as u32 {
        flow.on_cts(0, seq, 1, 0, 1).unwrap();
    }
    assert!(flow.on_cts(0, DEPTH as u32, 1, 0, 1).is_err(), "more than the depth ahead");
    assert!(flow.on_ack(1).is_err(), "nothing was sent");
    flow.post(1).unwrap();
    drain(&mut flow);
    flow.on_ack(1).unwrap();
    assert_eq!(flow.on_ack(0), Ok(()), "an older count from a slower lane");
    assert_eq!(flow.open(), 0);
    assert!(flow.on_ack(2).is_err(), "not sent");
}

#[test]
fn a_slow_lane_may_tell_an_acknowledgement_of_long_ago() {
    // given eight lanes, and a lane 0 whose messages arrive late from the clear-to-send of message 32 on
    let mut flow = direct(MAX_LANES as u8, u64::MAX);
    for seq in 0..40 {
        let late = seq > 32;
        for lane in u8::from(late)..MAX_LANES as u8 {
            flow.on_cts(lane, seq, 1, 0, 1).unwrap();
        }
        // when the messages up to the next turn of lane 0 go out on the others and are acknowledged there
        let place = flow.post(1).unwrap();
        let writes = drain(&mut flow);
        assert_eq!(writes.len(), 1, "message {seq}");
        flow.on_written(writes[0].id);
        flow.on_ack(seq + 1).unwrap();
        assert_eq!(flow.take(place), Some(1));
    }
    // then what lane 0 tells at last, 38 messages behind, is old news and no fault
    assert_eq!(flow.on_ack(2), Ok(()));
    assert_eq!(flow.open(), 0);
}

#[test]
fn a_slow_lane_may_clear_a_message_that_went_out_over_another() {
    // given two lanes, and message 0 cleared, sent and acknowledged on lane 0 alone
    let mut flow = direct(2, u64::MAX);
    flow.on_cts(0, 0, 10, 0, 1).unwrap();
    let place = flow.post(1).unwrap();
    let writes = drain(&mut flow);
    flow.on_written(writes[0].id);
    flow.on_ack(1).unwrap();
    assert_eq!(flow.take(place), Some(1));
    // when lane 1 clears it at last, then that is no fault
    assert_eq!(flow.on_cts(1, 0, 11, 0, 1), Ok(()));
    // and nothing of it remains for the message that takes its place, 32 later, whose turn is on lane 0 and which waits for it
    for seq in 1..DEPTH as u32 {
        for lane in [0, 1] {
            flow.on_cts(lane, seq, 100 + seq, 0, 1).unwrap();
        }
        let place = flow.post(1).unwrap();
        drain(&mut flow).iter().for_each(|w| flow.on_written(w.id));
        flow.on_ack(seq + 1).unwrap();
        assert_eq!(flow.take(place), Some(1));
    }
    flow.post(1).unwrap();
    flow.post(1).unwrap();
    assert_eq!(flow.poll(), Ok(None));
    flow.on_cts(0, DEPTH as u32, 7, 0, 1).unwrap();
    assert!(matches!(flow.poll(), Ok(Some(SendWrite { target: SendTarget::Buffer { key: 7, .. }, .. }))));
    assert_eq!(flow.poll(), Ok(None), "message 33 has its turn on lane 1");
}

#[test]
fn the_base_of_the_clear_to_send_is_added_to_every_offset() {
    let mut flow = direct(2, 256);
    for lane in 0..2 {
        flow.on_cts(lane, 0, 7, 1 << 40, 512).unwrap();
    }
    flow.post(512).unwrap();
    let at: Vec<_> = drain(&mut flow)
        .iter()
        .map(|w| match w.target {
            SendTarget::Buffer { at, .. } => at,
            SendTarget::Slot { .. } => panic!("direct"),
        })
        .collect();
    assert_eq!(at, [1 << 40, (1 << 40) + 256]);
}

#[test]
fn a_link_that_acknowledges_needs_no_word_of_the_receiver() {
    // given a connection whose link reports a write when it has arrived, and two messages with their receives posted
    let mut flow = SendFlow::new(SendMode::Direct { lanes: 1, stripe: 1 << 16, acks: Acks::Link });
    let (first, second) = (flow.post(10).unwrap(), flow.post(20).unwrap());
    flow.on_cts(0, 0, 7, 0, 10).unwrap();
    flow.on_cts(0, 1, 7, 0, 20).unwrap();
    let writes = drain(&mut flow);
    assert_eq!((flow.open(), flow.waits_for()), (2, SendWait::Ack { seq: 0 }));
    // when the second is reported first, as over two rails, then each is done by its own report
    flow.on_written(writes[1].id);
    assert_eq!((flow.take(first), flow.open()), (None, 2));
    flow.on_written(writes[0].id);
    assert_eq!((flow.take(first), flow.take(second), flow.open()), (Some(10), Some(20), 0));
    // and an acknowledgement by message is none of this protocol
    assert!(matches!(flow.on_ack(2), Err(FlowError::Protocol { .. })));
}

#[test]
fn a_striped_message_has_arrived_when_all_its_stripes_have() {
    let mut flow = SendFlow::new(SendMode::Direct { lanes: 2, stripe: 256, acks: Acks::Link });
    let place = flow.post(1024).unwrap();
    // given one lane cleared, when its stripe is reported before the other lane is cleared, then the message is not done
    flow.on_cts(0, 0, 7, 0, 1024).unwrap();
    let first = drain(&mut flow);
    flow.on_written(first[0].id);
    assert_eq!((first.len(), flow.take(place), flow.open()), (1, None, 1));
    flow.on_cts(1, 0, 8, 0, 1024).unwrap();
    let rest = drain(&mut flow);
    assert_eq!(flow.take(place), None);
    flow.on_written(rest[0].id);
    assert_eq!((rest.len(), flow.take(place), flow.open()), (1, Some(1024), 0));
}

#[test]
fn a_receiver_may_be_ahead_by_the_messages_whose_reports_are_under_way() {
    // given as many messages sent as may be open, none of them reported here, though the receiver has seen them all
    let depth = DEPTH as u32;
    let mut flow = SendFlow::new(SendMode::Direct { lanes: 1, stripe: 1 << 16, acks: Acks::Link });
    for seq in 0..depth {
        flow.post(1).unwrap();
        flow.on_cts(0, seq, 1, 0, 1).unwrap();
    }
    let writes = drain(&mut flow);
    // when it posts all its receives again, then their clear-to-sends are taken, and the one after them is not
    for seq in depth..2 * depth {
        flow.on_cts(0, seq, 2, 0, u64::from(seq)).unwrap();
    }
    assert!(flow.on_cts(0, 2 * depth, 2, 0, 1).is_err());
    // and they serve the next messages
    writes.iter().for_each(|write| flow.on_written(write.id));
    for place in 0..depth {
        assert_eq!(flow.take(place), Some(1));
        flow.post(u64::from(depth + place)).unwrap();
    }
    let again = drain(&mut flow);
    assert!(again.iter().all(|write| matches!(write.target, SendTarget::Buffer { key: 2, .. })), "{again:?}");
    assert_eq!(again.len(), DEPTH);
}

#[test]
fn what_a_closing_peer_takes_along_depends_on_who_acknowledges() {
    for (acks, lost) in [(Acks::Receiver, 2), (Acks::Link, 1)] {
        // given one message sent and not acknowledged, and one whose receive is not posted
        let mut flow = SendFlow::new(SendMode::Direct { lanes: 1, stripe: 1 << 16, acks });
        flow.post(1).unwrap();
        flow.post(1).unwrap();
        flow.on_cts(0, 0, 1, 0, 1).unwrap();
        assert_eq!(drain(&mut flow).len(), 1);
        // then a receiver that says the last word has lost both; where links report, the report of the first may still come
        assert_eq!((flow.lost_if_closed(), flow.open()), (lost, 2), "{acks:?}");
    }
}
