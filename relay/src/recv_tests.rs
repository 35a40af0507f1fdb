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
    let mut flow = RecvFlow::new(Acks::Link);
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
