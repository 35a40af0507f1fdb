use super::*;

fn direct(lanes: u8, stripe: u64) -> SendFlow {
    SendFlow::new(SendMode::direct(lanes, stripe, Acks::Receiver))
}

/// Relayed, with so many slots on each lane, all of one rate.
fn relayed(chunk: u32, slots: &[u16], stripe: u64, acks: Acks) -> SendFlow {
    let lanes = slots.iter().map(|&slots| SendLane { weight: 1, slots }).collect();
    SendFlow::new(SendMode { lanes, chunk: Some(chunk), stripe, acks })
}

fn clear(lanes: u8, seq: u32, base: u64, capacity: u64) -> Clear {
    let keys = std::array::from_fn(|lane| if lane < usize::from(lanes) { 100 + lane as u32 } else { 0 });
    Clear { seq, lanes, keys, base, capacity }
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
    flow.on_cts(&clear(1, 0, 0, 10)).unwrap();
    let writes = drain(&mut flow);
    assert_eq!(writes.len(), 1);
    assert_eq!((writes[0].offset, writes[0].len), (0, 10));
    // Neither the acknowledgement alone nor the local completion alone makes it done.
    assert_eq!(flow.take(place), None);
    flow.on_ack(1).unwrap();
    assert_eq!(flow.take(place), None);
    flow.on_written(0, writes[0].id);
    assert_eq!(flow.take(place), Some(10));
    assert_eq!(flow.take(place), None, "done once");
}

#[test]
fn a_clear_to_send_may_come_first() {
    let mut flow = direct(1, 0);
    flow.on_cts(&clear(1, 0, 0, 10)).unwrap();
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
    flow.on_cts(&clear(1, 0, 0, 1)).unwrap();
    let write = flow.poll().unwrap().unwrap();
    flow.on_written(0, write.id);
    flow.on_ack(1).unwrap();
    assert_eq!(flow.post(1), None, "not before it was taken");
    assert_eq!(flow.take(0), Some(1));
    assert_eq!(flow.post(1), Some(0));
}

#[test]
fn shares_cover_the_message_at_multiples_of_128_and_follow_the_weights() {
    for weights in
        [&[1][..], &[1, 1], &[1, 1, 1], &[100, 200], &[1, 255, 3], &[1; MAX_LANES], &[7, 1, 1, 1, 9, 1, 1, 2]]
    {
        let spec: Vec<_> = weights.iter().map(|&weight| SendLane { weight, slots: 0 }).collect();
        let lanes = Lane::all(&spec);
        for len in [0, 1, 127, 128, 129, 1000, 4096, 65_537, 1 << 20, 1 << 30] {
            let mut next = 0;
            for n in 0..lanes.len() {
                let (start, part) = share(&lanes, len, n);
                assert_eq!(start, next.min(len), "len {len} weights {weights:?} lane {n}");
                assert!(part == 0 || start % CUT == 0);
                let fair = len as f64 * f64::from(weights[n]) / weights.iter().sum::<u32>() as f64;
                assert!(
                    (part as f64 - fair).abs() <= len as f64 / 100.0 + 2.0 * CUT as f64,
                    "{part} of {len}, lane {n} of {weights:?}"
                );
                next = start + part;
            }
            assert_eq!(next, len);
        }
        // and as many bytes as are cut at most give no lane more than a chunk, and one chunk more does
        let chunk = 4096;
        let most = shared_at_most(&lanes, chunk);
        let largest = |len| (0..lanes.len()).map(|n| share(&lanes, len, n).1).max().unwrap();
        assert!(largest(most) <= u64::from(chunk), "{weights:?}");
        assert!(largest(most + u64::from(chunk)) > u64::from(chunk), "{weights:?}");
    }
}

#[test]
fn small_messages_go_by_the_idler_lane_and_others_are_striped() {
    let mut flow = direct(2, 1024);
    for seq in 0..4 {
        flow.on_cts(&clear(2, seq, 0, 4096)).unwrap();
    }
    // given two messages below the threshold, the first of them larger, one at it, and a last small one
    for len in [1000, 300, 1024, 10] {
        flow.post(len).unwrap();
    }
    // then the small ones go by the first lane, the second, and by the second again, which has less under way
    let writes = drain(&mut flow);
    let lanes: Vec<_> = writes.iter().map(|w| (w.id, w.lane, w.len)).collect();
    assert_eq!(lanes, [(0, 0, 1000), (1, 1, 300), (2, 0, 512), (2, 1, 512), (3, 1, 10)]);
    let parts: Vec<_> = writes
        .iter()
        .map(|w| match w.target {
            SendTarget::Buffer { key, note, .. } => (key, note.parts),
            SendTarget::Slot { .. } => panic!("direct"),
        })
        .collect();
    assert_eq!(parts, [(100, 1), (101, 1), (100, 2), (101, 2), (101, 1)]);
    // and one that is alone always goes by the first
    writes.iter().for_each(|w| flow.on_written(w.lane, w.id));
    for seq in 4..8 {
        flow.on_cts(&clear(2, seq, 0, 4096)).unwrap();
        flow.post(8).unwrap();
        let writes = drain(&mut flow);
        assert_eq!(writes.iter().map(|w| w.lane).collect::<Vec<_>>(), [0]);
        flow.on_written(0, writes[0].id);
    }
}

#[test]
fn chunks_go_out_against_credits_only() {
    let mut flow = relayed(128, &[2], u64::MAX, Acks::Receiver);
    flow.post(300).unwrap();
    flow.on_cts(&clear(1, 0, 1 << 40, 300)).unwrap();
    let writes = drain(&mut flow);
    assert_eq!(writes.iter().map(|w| (w.offset, w.len)).collect::<Vec<_>>(), [(0, 128), (128, 128)]);
    assert_eq!(flow.credits(), 0);
    assert_eq!(flow.waits_for(), SendWait::Credit { seq: 0 });
    flow.on_credit(0, 1).unwrap();
    let last = drain(&mut flow);
    let header = ChunkHeader { stream: 0, seq: 0, at: (1 << 40) + 256, len: 44, key: 100, parts: 1, last: true };
    assert_eq!(
        last,
        [SendWrite { lane: 0, id: 0, offset: 256, len: 44, target: SendTarget::Slot { slot: 1, header } }]
    );
    // A credit for a slot that is free, or that does not exist, or on no lane, is a fault.
    flow.on_credit(0, 0).unwrap();
    assert!(flow.on_credit(0, 0).is_err());
    assert!(flow.on_credit(0, 2).is_err());
    assert!(flow.on_credit(1, 1).is_err());
}

#[test]
fn too_large_a_send_is_named_with_its_numbers() {
    let mut flow = direct(1, 0);
    flow.post(11).unwrap();
    flow.on_cts(&clear(1, 0, 0, 10)).unwrap();
    assert_eq!(flow.poll(), Err(FlowError::TooLarge { seq: 0, len: 11, capacity: 10 }));
}

#[test]
fn out_of_turn_clear_to_sends_and_acknowledgements_are_faults() {
    let mut flow = direct(1, 0);
    assert!(flow.on_cts(&clear(1, 1, 0, 1)).is_err(), "skips one");
    assert!(flow.on_cts(&clear(2, 0, 0, 1)).is_err(), "for another number of lanes");
    for seq in 0..DEPTH as u32 {
        flow.on_cts(&clear(1, seq, 0, 1)).unwrap();
    }
    assert!(flow.on_cts(&clear(1, DEPTH as u32, 0, 1)).is_err(), "more than the depth ahead");
    assert!(flow.on_ack(1).is_err(), "nothing was sent");
    assert!(flow.on_done(0, 0).is_err(), "not for a relay to say");
    flow.post(1).unwrap();
    drain(&mut flow);
    flow.on_ack(1).unwrap();
    assert_eq!(flow.open(), 0);
    assert!(flow.on_ack(0).is_err(), "went down");
    assert!(flow.on_ack(2).is_err(), "not sent");
}

#[test]
fn the_base_of_the_clear_to_send_is_added_to_every_offset() {
    let mut flow = direct(2, 256);
    flow.on_cts(&clear(2, 0, 1 << 40, 512)).unwrap();
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
    let mut flow = SendFlow::new(SendMode::direct(1, 1 << 16, Acks::Link));
    let (first, second) = (flow.post(10).unwrap(), flow.post(20).unwrap());
    flow.on_cts(&clear(1, 0, 0, 10)).unwrap();
    flow.on_cts(&clear(1, 1, 0, 20)).unwrap();
    let writes = drain(&mut flow);
    assert_eq!((flow.open(), flow.waits_for()), (2, SendWait::Ack { seq: 0 }));
    // when the second is reported first, as over two rails, then each is done by its own report
    flow.on_written(0, writes[1].id);
    assert_eq!((flow.take(first), flow.open()), (None, 2));
    flow.on_written(0, writes[0].id);
    assert_eq!((flow.take(first), flow.take(second), flow.open()), (Some(10), Some(20), 0));
    // and an acknowledgement by message is none of this protocol
    assert!(matches!(flow.on_ack(2), Err(FlowError::Protocol { .. })));
}

#[test]
fn a_striped_message_has_arrived_when_all_its_stripes_have() {
    let mut flow = SendFlow::new(SendMode::direct(2, 256, Acks::Link));
    let place = flow.post(1024).unwrap();
    flow.on_cts(&clear(2, 0, 0, 1024)).unwrap();
    // given one stripe handed out and reported before the other one is handed out, then the message is not done
    let first = flow.poll().unwrap().unwrap();
    flow.on_written(first.lane, first.id);
    assert_eq!((flow.take(place), flow.open()), (None, 1));
    let rest = drain(&mut flow);
    assert_eq!((rest.len(), flow.take(place)), (1, None));
    flow.on_written(rest[0].lane, rest[0].id);
    assert_eq!((flow.take(place), flow.open()), (Some(1024), 0));
}

#[test]
fn a_receiver_may_be_ahead_by_the_messages_whose_reports_are_under_way() {
    // given as many messages sent as may be open, none of them reported here, though the receiver has seen them all
    let depth = DEPTH as u32;
    let mut flow = SendFlow::new(SendMode::direct(1, 1 << 16, Acks::Link));
    for seq in 0..depth {
        flow.post(1).unwrap();
        flow.on_cts(&clear(1, seq, 0, 1)).unwrap();
    }
    let writes = drain(&mut flow);
    // when it posts all its receives again, then their clear-to-sends are taken, and the one after them is not
    for seq in depth..2 * depth {
        flow.on_cts(&clear(1, seq, 1 << 30, u64::from(seq))).unwrap();
    }
    assert!(flow.on_cts(&clear(1, 2 * depth, 0, 1)).is_err());
    // and they serve the next messages
    writes.iter().for_each(|write| flow.on_written(0, write.id));
    for place in 0..depth {
        assert_eq!(flow.take(place), Some(1));
        flow.post(u64::from(depth + place)).unwrap();
    }
    let again = drain(&mut flow);
    assert!(
        again.iter().all(|write| matches!(write.target, SendTarget::Buffer { at, .. } if at == 1 << 30)),
        "{again:?}"
    );
    assert_eq!(again.len(), DEPTH);
}

#[test]
fn what_a_closing_peer_takes_along_depends_on_who_acknowledges() {
    for (acks, lost) in [(Acks::Receiver, 2), (Acks::Link, 1)] {
        // given one message sent and not acknowledged, and one whose receive is not posted
        let mut flow = SendFlow::new(SendMode::direct(1, 1 << 16, acks));
        flow.post(1).unwrap();
        flow.post(1).unwrap();
        flow.on_cts(&clear(1, 0, 0, 1)).unwrap();
        assert_eq!(drain(&mut flow).len(), 1);
        // then a receiver that says the last word has lost both; where links report, the report of the first may still come
        assert_eq!((flow.lost_if_closed(), flow.open()), (lost, 2), "{acks:?}");
        // and its word alone completes nothing here, as our own link still has to report
        flow.on_closed();
        assert_eq!(flow.open(), 2);
    }
}

#[test]
fn over_relays_the_last_one_of_each_lane_counts_what_arrived() {
    // given two lanes, a message over both and a small one over one of them
    let mut flow = relayed(256, &[4, 4], 512, Acks::Link);
    flow.on_cts(&clear(2, 0, 0, 512)).unwrap();
    flow.on_cts(&clear(2, 1, 0, 512)).unwrap();
    let (large, small) = (flow.post(512).unwrap(), flow.post(16).unwrap());
    let writes = drain(&mut flow);
    assert_eq!(
        writes.iter().map(|w| (w.lane, w.offset, w.len)).collect::<Vec<_>>(),
        [(0, 0, 256), (1, 256, 256), (0, 0, 16)]
    );
    writes.iter().for_each(|w| flow.on_written(w.lane, w.id));
    assert_eq!((flow.take(large), flow.take(small)), (None, None), "our own links reach the first relays only");
    // when one lane has counted both of its messages, then the one that it carried alone has arrived, in its turn
    flow.on_done(0, 2).unwrap();
    assert_eq!((flow.take(large), flow.open()), (None, 2));
    flow.on_done(1, 1).unwrap();
    assert_eq!((flow.take(large), flow.take(small), flow.open()), (Some(512), Some(16), 0));
    // and no lane can count what it was not given
    assert!(flow.on_done(0, 3).is_err());
    assert!(flow.on_done(1, 0).is_err(), "went down");
    assert!(flow.on_done(2, 0).is_err(), "no such lane");
}

#[test]
fn a_receiver_that_closes_in_order_has_what_was_handed_out() {
    // given one message handed out whole and not counted, and one of which a chunk is missing
    let mut flow = relayed(256, &[2], u64::MAX, Acks::Link);
    for seq in 0..2 {
        flow.on_cts(&clear(1, seq, 0, 512)).unwrap();
    }
    let first = flow.post(10).unwrap();
    flow.post(512).unwrap();
    let writes = drain(&mut flow);
    assert_eq!(writes.len(), 2);
    writes.iter().for_each(|w| flow.on_written(0, w.id));
    // when the receiver closes, then the first is done and the second is lost
    flow.on_closed();
    assert_eq!((flow.take(first), flow.lost_if_closed(), flow.open()), (Some(10), 1, 1));
    // and a count of the first that comes late does nothing to the message that has its place by now
    (2..=DEPTH as u32).for_each(|_| assert!(flow.post(10).is_some()));
    assert_eq!((flow.on_done(0, 1), flow.take(first)), (Ok(()), None));
}

#[test]
fn every_byte_goes_once_whatever_lanes_credits_and_counts_do() {
    for seed in 1..400_u64 {
        let mut state = seed;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        // given any lanes over relays, of any rates
        let chunk = 128 * (1 + random(4)) as u32;
        let spec: Vec<_> = (0..1 + random(MAX_LANES as u64))
            .map(|_| SendLane { weight: 1 + random(300) as u32, slots: 1 + random(4) as u16 })
            .collect();
        let lanes = spec.len();
        let acks = if random(2) == 0 { Acks::Link } else { Acks::Receiver };
        let mut flow = SendFlow::new(SendMode { lanes: spec, chunk: Some(chunk), stripe: random(2000), acks });
        let mut lens = Vec::new();
        let mut covered: Vec<Vec<(u64, u64)>> = Vec::new();
        let mut parts: Vec<u8> = Vec::new();
        let mut lasts: Vec<u32> = Vec::new();
        let (mut cleared, mut done, mut places) = (0_u32, 0_u32, Vec::new());
        let mut full: Vec<Vec<u16>> = vec![Vec::new(); lanes];
        let mut counts = vec![0_u32; lanes];
        while done < 60 {
            match random(5) {
                0 if lens.len() < 60 => {
                    let len = random(6000);
                    if let Some(place) = flow.post(len) {
                        lens.push(len);
                        covered.push(Vec::new());
                        parts.push(0);
                        lasts.push(0);
                        places.push(place);
                    }
                }
                1 if cleared < 60 && cleared - done < DEPTH as u32 => {
                    flow.on_cts(&clear(lanes as u8, cleared, 0, 6000)).unwrap();
                    cleared += 1;
                }
                2 => {
                    let lane = random(lanes as u64) as usize;
                    if !full[lane].is_empty() {
                        let at = random(full[lane].len() as u64) as usize;
                        let slot = full[lane].swap_remove(at);
                        flow.on_credit(lane as u8, slot).unwrap();
                    }
                }
                3 if acks == Acks::Link => {
                    let lane = random(lanes as u64) as usize;
                    flow.on_done(lane as u8, counts[lane]).unwrap();
                }
                _ => {
                    while let Some(write) = flow.poll().unwrap() {
                        let (seq, lane) = (write.id as usize, usize::from(write.lane));
                        let SendTarget::Slot { slot, header } = write.target else { panic!("relayed") };
                        // then only what is cleared goes, in pieces of at most a chunk, and a slot that is full is not filled again
                        assert!(
                            write.id < u64::from(cleared) && write.len <= chunk && !full[lane].contains(&slot),
                            "seed {seed}"
                        );
                        assert_eq!((header.at, header.key), (write.offset, 100 + u32::from(write.lane)), "seed {seed}");
                        assert!(parts[seq] == 0 || parts[seq] == header.parts, "seed {seed}");
                        parts[seq] = header.parts;
                        covered[seq].push((write.offset, u64::from(write.len)));
                        full[lane].push(slot);
                        counts[lane] += u32::from(header.last);
                        lasts[seq] += u32::from(header.last);
                        flow.on_written(write.lane, write.id);
                    }
                    if acks == Acks::Receiver {
                        let whole =
                            (0..lens.len()).take_while(|n| parts[*n] > 0 && lasts[*n] == u32::from(parts[*n])).count();
                        flow.on_ack(whole as u32).unwrap();
                    }
                }
            }
            while (done as usize) < places.len() {
                let Some(len) = flow.take(places[done as usize]) else { break };
                let seq = done as usize;
                // and a message that is done went whole, each byte once, with one last chunk for each of its lanes
                assert_eq!((len, lasts[seq]), (lens[seq], u32::from(parts[seq])), "seed {seed}");
                covered[seq].sort_unstable();
                let mut next = 0;
                for &(start, len) in covered[seq].iter().filter(|piece| piece.1 > 0) {
                    assert_eq!((start, start % CUT), (next, 0), "seed {seed} message {seq}");
                    next = start + len;
                }
                assert_eq!(next, len, "seed {seed} message {seq}");
                done += 1;
            }
        }
        assert_eq!(flow.open(), 0, "seed {seed}");
    }
}
