//! Datagrams come back as they were, nothing else is taken, and every bound is kept.

use std::net::Ipv4Addr;

use super::*;
use crate::discovery::advert::{
    Adjacency, Advert, AdvertPort, AgentAt, MAX_ADJACENCIES, MAX_AGENTS, MAX_DEVICE, MAX_PORTS,
};

fn beacon() -> Beacon<'static> {
    let heard = Heard { node: 7, life: 8, address: Ipv4Addr::new(10, 0, 0, 2) };
    Beacon {
        id: "id-a",
        name: "a",
        life: 3,
        number: 9,
        features: 5,
        address: Ipv4Addr::new(10, 0, 0, 1),
        prefix: 30,
        speed_mbps: 200_000,
        mtu: 9000,
        rail: 1,
        asks: true,
        switched: false,
        summary: Summary { count: 2, hash: 77 },
        heard: vec![heard; 2],
    }
}

/// The largest advertisement that there can be.
fn largest() -> Advert {
    let ports: Vec<AdvertPort> = (0..MAX_PORTS as u8)
        .map(|n| AdvertPort {
            address: Ipv4Addr::new(10, 0, n, 1),
            prefix: 31,
            up: true,
            // the first is on a segment, with as many neighbours as there can be beside those of the cables
            switched: n == 0,
            speed_mbps: u32::MAX,
            mtu: u32::MAX,
            rail: 255,
            device: "x".repeat(MAX_DEVICE),
        })
        .collect();
    let adjacency =
        |(local, node): (Ipv4Addr, u64)| Adjacency { local, node: u64::MAX - 99 + node, remote: ports[15].address };
    let segment = (0..1 + (MAX_ADJACENCIES - MAX_PORTS) as u64).map(|n| (ports[0].address, n));
    let adjacencies = segment.chain(ports[1..].iter().map(|port| (port.address, 99))).map(adjacency).collect();
    Advert {
        id: "i".repeat(MAX_TEXT),
        name: "n".repeat(MAX_TEXT),
        incarnation: u64::MAX,
        seq: u32::MAX,
        relay: true,
        conflict: true,
        daemon: true,
        features: u32::MAX,
        adjacencies,
        ports,
        agents: (0..MAX_AGENTS as u16).map(|n| AgentAt { port: u16::MAX - 7 + n, job: u32::MAX, rank: n }).collect(),
    }
}

#[test]
fn what_is_written_is_read() {
    let bytes = beacon().encode();
    assert_eq!(Datagram::decode(&bytes), Ok(Datagram::Beacon(beacon())));

    let entry = |origin| DigestEntry { origin, version: Version { incarnation: 1, seq: 2, sum: 3 } };
    let digest = Digest { first: 4, last: 10, entries: vec![entry(4), entry(10)] };
    let bytes = digest.encode();
    assert_eq!(Datagram::decode(&bytes), Ok(Datagram::Digest(digest)));

    let advert = largest();
    let body = advert.encode();
    let datagrams = pack([Carried { age_ms: 12, body: &body }].into_iter());
    let Ok(Datagram::Adverts(read)) = Datagram::decode(&datagrams[0]) else { panic!("no advertisements") };
    assert_eq!((read[0].age_ms, Advert::decode(read[0].body)), (12, Ok(advert)));
}

#[test]
fn the_largest_of_all_kinds_fit_into_a_datagram() {
    // given the largest advertisement, then it has exactly the stated bound, and two of them go in two datagrams
    let body = largest().encode();
    assert_eq!(body.len(), MAX_ADVERT);
    let carried = Carried { age_ms: 0, body: &body };
    assert_eq!(pack([carried, carried].into_iter()).len(), 2);
    // and small ones share a datagram
    let small = Advert { ports: Vec::new(), adjacencies: Vec::new(), agents: Vec::new(), ..largest() }.encode();
    let datagrams = pack((0..8).map(|_| Carried { age_ms: 0, body: &small }));
    assert_eq!(datagrams.len(), 1);
    // given a full digest and a full beacon, then they fit too
    let entries: Vec<_> = (0..MAX_ENTRIES as u64)
        .map(|origin| DigestEntry { origin, version: Version { incarnation: 1, seq: 1, sum: 1 } })
        .collect();
    let digest = Digest { first: 0, last: u64::MAX, entries }.encode();
    let full = Beacon {
        id: &"i".repeat(MAX_TEXT),
        name: &"n".repeat(MAX_TEXT),
        switched: true,
        heard: vec![beacon().heard[0]; MAX_NAMED + 3],
        ..beacon()
    }
    .encode();
    for datagram in datagrams.iter().chain([&digest, &full]) {
        assert!(datagram.len() <= MAX_DATAGRAM);
        assert!(Datagram::decode(datagram).is_ok());
    }
}

#[test]
fn every_shorter_and_every_longer_datagram_is_refused() {
    let small =
        Advert { ports: largest().ports[..1].to_vec(), adjacencies: Vec::new(), agents: Vec::new(), ..largest() }
            .encode();
    for bytes in [beacon().encode(), Digest { first: 0, last: 9, entries: Vec::new() }.encode()] {
        for len in 0..bytes.len() {
            assert!(Datagram::decode(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(Datagram::decode(&longer), Err(WireError::Trailing { left: 1 }));
    }
    for len in 0..small.len() {
        assert!(Advert::decode(&small[..len]).is_err(), "{len} of {}", small.len());
    }
    assert_eq!(Advert::decode(&[&*small, &[0]].concat()), Err(WireError::Trailing { left: 1 }));
}

#[test]
fn other_programs_other_versions_and_other_kinds_are_told_apart() {
    let mut bytes = beacon().encode();
    bytes[4] = 1;
    assert_eq!(Datagram::decode(&bytes), Err(WireError::Version { theirs: 1, ours: VERSION }));
    (bytes[4], bytes[6]) = (2, 9);
    assert_eq!(Datagram::decode(&bytes), Err(WireError::Kind { kind: 9 }));
    bytes[0] = 0;
    assert!(matches!(Datagram::decode(&bytes), Err(WireError::Magic { .. })));
    let long = [&beacon().encode()[..], &[0; MAX_DATAGRAM]].concat();
    assert!(matches!(Datagram::decode(&long), Err(WireError::Bounds { .. })));
}

#[test]
fn fields_that_nobody_writes_are_refused() {
    // texts that are empty or break a log's line
    for (id, name) in [("", "a"), ("a", ""), ("a\n", "a"), ("a", "a,b")] {
        let bytes = Beacon { id, name, ..beacon() }.encode();
        assert!(matches!(Datagram::decode(&bytes), Err(WireError::Text { .. })), "{id:?} {name:?}");
    }
    // addresses that no port can have: network, broadcast, loopback, a prefix length out of range
    let addresses =
        [([10, 0, 0, 0], 30), ([10, 0, 0, 3], 30), ([127, 0, 0, 1], 8), ([10, 0, 0, 1], 32), ([10, 0, 0, 1], 0)];
    for (address, prefix) in addresses {
        let bytes = Beacon { address: address.into(), prefix, ..beacon() }.encode();
        assert!(matches!(Datagram::decode(&bytes), Err(WireError::Port { .. })), "{address:?}/{prefix}");
    }
    // lists out of order: ports, adjacencies, adjacencies of no port, digests
    let mut turned = largest();
    turned.ports.swap(0, 1);
    assert_eq!(Advert::decode(&turned.encode()), Err(WireError::Order { field: "ports" }));
    let mut twice = largest();
    twice.adjacencies[1] = twice.adjacencies[0];
    assert_eq!(Advert::decode(&twice.encode()), Err(WireError::Order { field: "adjacencies" }));
    let mut strange = largest();
    strange.adjacencies[31].local = Ipv4Addr::new(11, 0, 0, 1);
    assert_eq!(Advert::decode(&strange.encode()), Err(WireError::Order { field: "adjacencies" }));
    // two adjacencies of a port that is on no segment, though each once
    let mut crowded = largest();
    crowded.ports[0].switched = false;
    assert_eq!(Advert::decode(&crowded.encode()), Err(WireError::Order { field: "adjacencies" }));
    // more adjacencies, or names in a beacon, than may be
    let mut one_more = largest();
    one_more.adjacencies.insert(0, Adjacency { node: 0, ..one_more.adjacencies[0] });
    assert!(matches!(Advert::decode(&one_more.encode()), Err(WireError::Bounds { .. })));
    let named = |switched, count: usize| {
        let mut bytes = Beacon { switched, heard: Vec::new(), ..beacon() }.encode();
        *bytes.last_mut().expect("a count") = count as u8;
        bytes.extend([0; 20].repeat(count));
        Datagram::decode(&bytes).map(|_| ())
    };
    for (switched, most) in [(false, MAX_HEARD), (true, MAX_NAMED)] {
        assert_eq!(named(switched, most), Ok(()));
        assert!(matches!(named(switched, most + 1), Err(WireError::Bounds { field: "neighbours heard", .. })));
    }
    // a carrier byte with a bit that means nothing
    let small = Advert { adjacencies: Vec::new(), ports: largest().ports[..1].to_vec(), ..largest() };
    let mut bytes = small.encode();
    let at = 2 * (1 + MAX_TEXT) + 17 + 1 + 5;
    assert_eq!(bytes[at], 3, "carrier, on a segment");
    bytes[at] = 4;
    assert!(matches!(Advert::decode(&bytes), Err(WireError::Bounds { field: "carrier", .. })));
    let entry = |origin| DigestEntry { origin, version: Version { incarnation: 1, seq: 2, sum: 3 } };
    for entries in [vec![entry(5), entry(5)], vec![entry(11)], vec![entry(3)]] {
        let bytes = Digest { first: 4, last: 10, entries }.encode();
        assert_eq!(Datagram::decode(&bytes), Err(WireError::Order { field: "entries" }));
    }
}

#[test]
fn of_two_versions_that_differ_one_is_newer_also_where_numbers_wrap() {
    let version = |incarnation, seq, sum| Version { incarnation, seq, sum };
    let pairs = [
        (version(1, 0, 0), version(0, 9, 9)),
        (version(0, 0, 0), version(u64::MAX, 9, 9)),
        (version(5, 1, 0), version(5, 0, 9)),
        (version(5, 0, 0), version(5, u32::MAX, 9)),
        (version(5, 5, 2), version(5, 5, 1)),
        (version(1 << 63, 0, 0), version(0, 0, 0)),
        (version(0, 1 << 31, 0), version(0, 0, 0)),
    ];
    for (newer, older) in pairs {
        assert!(newer.newer_than(older) && !older.newer_than(newer), "{newer:?} {older:?}");
        assert!(!newer.newer_than(newer));
    }
}

#[test]
fn the_key_is_that_of_the_topology() {
    assert_eq!(super::super::key_of("a"), mesh_routing::NodeSpec::new("a").key());
}
