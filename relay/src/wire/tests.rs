use super::*;

fn clear(lanes: u8) -> Clear {
    let keys = std::array::from_fn(|lane| if lane < usize::from(lanes) { 77 + lane as u32 } else { 0 });
    Clear { seq: u32::MAX, lanes, keys, base: u64::MAX, capacity: u64::MAX }
}

fn samples() -> Vec<Msg> {
    let hop = HopAddr { from: Ipv4Addr::new(127, 70, 0, 1), to: Ipv4Addr::new(127, 70, 0, 2), agent: 47_900 };
    vec![
        Msg::Setup(Setup {
            stream: 9,
            conn: [7; 16],
            token: [3; 16],
            lane: 1,
            lanes: 2,
            at: 31,
            budget_ms: 60_000,
            hops: vec![hop; MAX_HOPS],
        }),
        Msg::Ready { stream: 1, key: 2, base: 6, slots: 3, stride: 4, chunk: 5 },
        Msg::Refused { stream: 4, why: Refusal { code: 43, text: "node b: no".into() } },
        Msg::Cts { stream: 0, clear: clear(1) },
        Msg::Cts { stream: 7, clear: clear(MAX_LANES as u8) },
        Msg::Ack { stream: 2, count: 8 },
        Msg::Done { stream: 2, count: 9 },
        Msg::Credit { n: 2, slots: std::array::from_fn(|i| if i < 2 { i as u16 + 5 } else { 0 }) },
        Msg::Close { stream: 3, code: 45 },
        Msg::TrunkHello { node: 0x0123_4567_89ab_cdef },
        Msg::TrunkReady { key: 1, base: 1 << 40, slots: 8, classes: 3, stride: 135_168, chunk: 131_072 },
    ]
}

#[test]
fn every_message_survives_the_wire() {
    let mut bytes = Vec::new();
    for msg in samples() {
        msg.encode(&mut bytes);
        assert!(bytes.len() <= MAX_MESSAGE, "{msg:?}");
        assert_eq!(Msg::decode(&bytes), Ok(msg));
    }
}

#[test]
fn every_prefix_and_every_extension_is_refused() {
    let mut bytes = Vec::new();
    for msg in samples() {
        msg.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert!(Msg::decode(&bytes[..cut]).is_err(), "cut {cut} of {msg:?}");
        }
        bytes.push(0);
        assert!(Msg::decode(&bytes).is_err(), "{msg:?} with a byte too many");
    }
}

#[test]
fn a_frame_holds_messages_in_order_and_ends_with_the_first_fault() {
    // given any two messages that fit one frame, then it gives them back, one by one
    let mut frame = Vec::new();
    for (first, second) in samples().into_iter().flat_map(|a| samples().into_iter().map(move |b| (a.clone(), b))) {
        frame.clear();
        first.append(&mut frame);
        second.append(&mut frame);
        if frame.len() <= MAX_MESSAGE {
            assert_eq!(messages(&frame).collect::<Vec<_>>(), [Ok(first.clone()), Ok(second)]);
            // and of a frame that breaks off, the whole messages and one fault
            let cut = messages(&frame[..frame.len() - 1]).collect::<Vec<_>>();
            assert!(matches!(&cut[..], [Ok(msg), Err(_)] if *msg == first), "{cut:?}");
        }
    }
    // and an empty frame, and one that is too long, are faults
    assert_eq!(messages(&[]).collect::<Vec<_>>(), [Err(WireError::Short { got: 0 })]);
    frame.resize(MAX_MESSAGE + 1, 0);
    assert!(matches!(messages(&frame).collect::<Vec<_>>()[..], [Err(WireError::Bounds { .. })]));
}

#[test]
fn another_protocol_and_a_stranger_are_told_apart() {
    let mut bytes = Vec::new();
    Msg::TrunkHello { node: 1 }.encode(&mut bytes);
    bytes[5] = 1;
    assert_eq!(Msg::decode(&bytes), Err(WireError::Protocol { theirs: 1, ours: PROTOCOL }));
    bytes[1] = b'G';
    assert!(matches!(Msg::decode(&bytes), Err(WireError::Magic { .. })));
}

#[test]
fn random_bytes_never_panic() {
    let seed = 0x5eed_u64;
    let mut x = seed;
    for round in 0..200_000u64 {
        let mut bytes = [0u8; 48];
        for b in &mut bytes {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *b = (x >> 56) as u8;
        }
        bytes[0] %= 12;
        let len = (x >> 32) as usize % bytes.len();
        if let Ok(msg) = Msg::decode(&bytes[..len]) {
            let mut again = Vec::new();
            msg.encode(&mut again);
            assert_eq!(Msg::decode(&again), Ok(msg), "seed {seed} round {round}");
        }
    }
}

#[test]
fn limits_of_lane_hop_credit_and_chunk_hold_on_both_sides() {
    let hop = HopAddr::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    let mut setup =
        Setup { stream: 0, conn: [0; 16], token: [0; 16], lane: 0, lanes: 1, at: 0, budget_ms: 0, hops: vec![hop] };
    let decode = |s: &Setup| {
        let mut bytes = Vec::new();
        Msg::Setup(s.clone()).encode(&mut bytes);
        Msg::decode(&bytes)
    };
    assert!(decode(&setup).is_ok());
    setup.at = 1;
    assert!(decode(&setup).is_err());
    setup.at = 0;
    setup.lane = 1;
    assert!(decode(&setup).is_err());

    let header = ChunkHeader { stream: 1, seq: 2, at: 3, len: 128, key: 4, parts: 15, last: true };
    assert_eq!(ChunkHeader::decode(&header.encode(), 128), Ok(header));
    assert!(ChunkHeader::decode(&header.encode(), 127).is_err());
    let mut raw = header.encode();
    raw[24] = 2;
    assert!(ChunkHeader::decode(&raw, 128).is_err());
    (raw[24], raw[25]) = (1, 16);
    assert!(ChunkHeader::decode(&raw, 128).is_err());

    let mut bytes = Vec::new();
    Msg::Cts { stream: 0, clear: clear(MAX_LANES as u8) }.encode(&mut bytes);
    bytes[25] += 1;
    bytes.extend_from_slice(&[0; 4]);
    assert!(Msg::decode(&bytes).is_err(), "a lane too many");

    let mut bytes = Vec::new();
    Msg::Credit { n: MAX_CREDITS as u8, slots: [1; MAX_CREDITS] }.encode(&mut bytes);
    assert!(Msg::decode(&bytes).is_ok());
    bytes[1] += 1;
    bytes.extend_from_slice(&[0, 0]);
    assert!(Msg::decode(&bytes).is_err());
}

#[test]
fn notes_fit_an_immediate() {
    for seq in [0, 1, 255] {
        for parts in 1..=15 {
            for last in [false, true] {
                let note = Note { seq, last, parts };
                assert_eq!(Note::decode(note.encode()), Some(note));
            }
        }
    }
    assert_eq!(Note::decode(0), None, "no parts");
    assert_eq!(Note::decode(1 << 13 | 1 << 9), None, "unknown bit");
}

#[test]
fn a_long_refusal_is_clipped_at_a_character() {
    let mut bytes = Vec::new();
    let text = "é".repeat(MAX_TEXT);
    Msg::Refused { stream: 0, why: Refusal { code: 1, text } }.encode(&mut bytes);
    let Ok(Msg::Refused { why, .. }) = Msg::decode(&bytes) else { panic!("refusal lost") };
    assert_eq!(why.text, "é".repeat(MAX_TEXT / 2));
}
