use super::*;

fn note(seq: u8, parts: u8) -> Note {
    Note { seq, last: true, parts }
}

#[test]
fn a_receive_completes_with_the_size_that_was_sent() {
    let mut flow = RecvFlow::default();
    let (place, seq) = flow.post(100).unwrap();
    assert_eq!((place, seq), (0, 0));
    assert_eq!(flow.on_note(Note { seq: 0, last: false, parts: 1 }, 60), Ok(None));
    assert_eq!(flow.poll_ack(), None);
    assert_eq!(flow.on_note(note(0, 1), 10), Ok(Some(Arrived { place: 0, len: 70 })));
    assert_eq!(flow.poll_ack(), Some(1));
    assert_eq!(flow.poll_ack(), None, "acknowledged once");
    assert_eq!(flow.take(0), Some(70));
    assert_eq!(flow.take(0), None);
}

#[test]
fn capacity_is_a_limit_on_both_sides() {
    let mut flow = RecvFlow::default();
    flow.post(100).unwrap();
    flow.post(100).unwrap();
    assert!(flow.on_note(note(0, 1), 100).is_ok());
    assert_eq!(flow.on_note(note(1, 1), 101), Err(FlowError::TooLarge { seq: 1, len: 101, capacity: 100 }));
}

#[test]
fn later_messages_may_finish_first_but_are_acknowledged_in_order() {
    let mut flow = RecvFlow::default();
    flow.post(8).unwrap();
    flow.post(8).unwrap();
    assert!(flow.on_note(note(1, 1), 8).unwrap().is_some());
    assert_eq!(flow.poll_ack(), None);
    assert_eq!(flow.take(1), Some(8));
    assert!(flow.on_note(note(0, 1), 8).unwrap().is_some());
    assert_eq!(flow.poll_ack(), Some(2));
}

#[test]
fn striped_messages_need_every_part() {
    let mut flow = RecvFlow::default();
    flow.post(8).unwrap();
    assert_eq!(flow.on_note(note(0, 2), 4), Ok(None));
    assert!(flow.on_note(note(0, 3), 4).is_err(), "parts disagree");
    assert_eq!(flow.on_note(note(0, 2), 0), Ok(Some(Arrived { place: 0, len: 4 })));
}

#[test]
fn writes_for_receives_that_are_not_open_are_faults() {
    let mut flow = RecvFlow::default();
    assert!(flow.on_note(note(0, 1), 0).is_err());
    flow.post(8).unwrap();
    assert!(flow.on_note(note(32, 1), 0).is_err(), "same place, other message");
    assert!(flow.on_note(note(0, 1), 0).is_ok());
    assert!(flow.on_note(note(0, 1), 0).is_err(), "complete already");
}

#[test]
fn thirty_two_are_open_and_numbers_wrap() {
    let mut flow = RecvFlow::default();
    for round in 0..1000u32 {
        for i in 0..DEPTH as u32 {
            assert_eq!(flow.post(1), Some((i, round * DEPTH as u32 + i)));
        }
        assert_eq!(flow.post(1), None);
        for i in 0..DEPTH as u32 {
            let seq = (round * DEPTH as u32 + i) as u8;
            assert!(flow.on_note(note(seq, 1), 1).unwrap().is_some());
            assert_eq!(flow.take(i), Some(1));
        }
        assert_eq!(flow.poll_ack(), Some((round + 1) * DEPTH as u32));
    }
}

#[test]
fn where_the_link_acknowledges_nothing_is_said_and_places_come_free() {
    let mut flow = RecvFlow::new(Acks::Link, 0);
    for round in 0..3 {
        // given all receives posted, and not one more
        for _ in 0..DEPTH {
            flow.post(8).unwrap();
        }
        assert_eq!(flow.post(8), None);
        // when all have come, then there is nothing to acknowledge, and all can be posted again
        for at in 0..DEPTH as u32 {
            let seq = (round * DEPTH as u32 + at) as u8;
            flow.on_note(Note { seq, last: true, parts: 1 }, 8).unwrap().unwrap();
            assert_eq!(flow.poll_ack(), None);
            assert_eq!(flow.take(at), Some(8));
        }
        assert_eq!(flow.open(), 0);
    }
}

#[test]
fn the_sender_is_told_of_receives_together_while_it_has_others_left() {
    let mut flow = RecvFlow::new(Acks::Link, 0);
    let post = |flow: &mut RecvFlow| {
        flow.post(8).unwrap();
        std::iter::from_fn(|| flow.poll_clear()).collect::<Vec<_>>()
    };
    // given a sender that knows of few receives, then it is told of the next at once
    assert_eq!((0..FEW + 1).map(|_| post(&mut flow)).collect::<Vec<_>>(), [vec![0], vec![1], vec![2]]);
    // when it has more than a few left, then the next ones wait until they are enough for one write
    for _ in 1..TOGETHER {
        assert_eq!(post(&mut flow), []);
    }
    assert_eq!(post(&mut flow), [3, 4, 5, 6]);
    assert_eq!(post(&mut flow), []);
    // or until it has few left again
    for seq in 0..4 {
        flow.on_note(Note { seq, last: true, parts: 1 }, 8).unwrap().unwrap();
        assert_eq!(flow.poll_clear(), None, "{seq}");
    }
    flow.on_note(Note { seq: 4, last: true, parts: 1 }, 8).unwrap().unwrap();
    assert_eq!(std::iter::from_fn(|| flow.poll_clear()).collect::<Vec<_>>(), [7]);
    // and after a large message, one byte less is not one, nothing waits
    for (len, due) in [(BULK - 1, None), (BULK, Some(5))] {
        let mut flow = RecvFlow::new(Acks::Link, 0);
        for _ in 0..5 {
            flow.post(BULK).unwrap();
        }
        assert_eq!(std::iter::from_fn(|| flow.poll_clear()).count(), 5);
        flow.on_note(note(0, 1), len).unwrap().unwrap();
        flow.post(BULK).unwrap();
        assert_eq!(flow.poll_clear(), due, "{len}");
    }
    // and where the receiver acknowledges nothing ever waits
    let mut flow = RecvFlow::new(Acks::Receiver, 0);
    assert_eq!((0..4).map(|_| post(&mut flow)).collect::<Vec<_>>(), [[0], [1], [2], [3]]);
}

#[test]
fn no_sender_is_left_without_a_receive_that_is_posted() {
    // given any order of posts and arrivals, then whenever receives are open the sender knows of one, and in the order posted
    for seed in 1..200_u64 {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32
        };
        let (mut flow, mut told, mut filled, mut posted) = (RecvFlow::new(Acks::Link, 0), 0_u32, 0_u32, 0_u32);
        for step in 0..400 {
            if random() % 2 == 0 && posted - filled < DEPTH as u32 {
                let (place, _) = flow.post(8).unwrap();
                assert_eq!(place, posted % DEPTH as u32);
                posted += 1;
            } else if filled < told {
                flow.on_note(Note { seq: filled as u8, last: true, parts: 1 }, 8).unwrap().unwrap();
                assert_eq!(flow.take(filled % DEPTH as u32), Some(8));
                filled += 1;
            }
            while let Some(seq) = flow.poll_clear() {
                assert_eq!(seq, told, "seed {seed}, step {step}");
                told += 1;
            }
            assert!(told <= posted && (posted == filled || told > filled), "seed {seed}, step {step}");
        }
    }
}
