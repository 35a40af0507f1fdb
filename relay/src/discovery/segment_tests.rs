//! Declared switched segments: who is a neighbour there, what ends one adjacency and no other, and how many there may be.

use super::*;
use crate::discovery::types::MS;

const SEGMENT: PortId = PortId(1);
const START: Time = 100_000 * MS;

/// Node `me` at 10.0.0.1/24 on a segment, and the others there.
struct Desk {
    machine: Neighbours,
    now: Time,
    number: u32,
}

/// How one of the others speaks: its id, the last byte of its address, its life, and how many it names beside us; `None`: not us either.
/// A name that begins with `cable` takes the link for one.
#[derive(Clone, Copy)]
struct Says<'a> {
    id: &'a str,
    host: u8,
    life: u64,
    beside: Option<usize>,
}

fn says(id: &str, host: u8) -> Says<'_> {
    Says { id, host, life: 1, beside: Some(3) }
}

fn up(id: u32, address: [u8; 4], switched: bool) -> PortChange {
    PortChange::Up(PortId(id), PortInfo { switched, ..PortInfo::new("f", address.into(), 24) })
}

impl Desk {
    fn new() -> Self {
        let mut machine = Neighbours::new(Config::new("id-me", "me", 7));
        machine.on_port(START, up(SEGMENT.0, [10, 0, 0, 1], true));
        machine.take_effects();
        Self { machine, now: START, number: 0 }
    }

    fn hear_at(&mut self, port: PortId, says: Says<'_>) -> Vec<Event> {
        self.number += 1;
        let local = self.machine.listens(port).expect("a port with carrier");
        let [a, b, c, _] = local.octets();
        let address = Ipv4Addr::new(a, b, c, says.host);
        let us = Heard { node: key_of("id-me"), life: 7, address: local };
        let beside = (0..says.beside.unwrap_or(2)).map(|n| Heard { node: n as u64, ..us });
        let beacon = Beacon {
            id: says.id,
            name: says.id,
            life: says.life,
            number: self.number,
            features: 0,
            address,
            prefix: 24,
            speed_mbps: 0,
            mtu: 0,
            rail: 0,
            asks: false,
            switched: !says.id.starts_with("cable"),
            summary: Summary::default(),
            heard: beside.chain(says.beside.map(|_| us)).collect(),
        };
        self.machine.on_beacon(self.now, port, address, &beacon);
        self.machine.take_effects().notes
    }

    fn hear(&mut self, says: Says<'_>) -> Vec<Event> {
        self.hear_at(SEGMENT, says)
    }

    fn pass(&mut self, time: Time) -> Vec<Event> {
        self.now += time;
        self.machine.on_time(self.now);
        self.machine.take_effects().notes
    }

    /// The hosts that are neighbours.
    fn hosts(&self) -> Vec<u8> {
        let mut hosts: Vec<u8> = self.machine.adjacencies().iter().map(|a| a.remote.octets()[3]).collect();
        hosts.sort_unstable();
        hosts
    }

    /// How many the beacons that are due name, and to whom they go.
    fn named(&mut self) -> Vec<(To, usize)> {
        let mut sent = Vec::new();
        while let Some((_, to, bytes)) = self.machine.next_beacon(self.now, Summary::default()) {
            let Ok(super::super::Datagram::Beacon(beacon)) = super::super::Datagram::decode(&bytes) else {
                panic!("no beacon")
            };
            sent.push((to, beacon.heard.len()));
        }
        sent
    }
}

#[test]
fn all_who_hear_us_are_neighbours_alone_or_not() {
    let mut desk = Desk::new();
    // given one who names us alone, one who names others too, and one who names others only
    desk.hear(Says { beside: Some(0), ..says("b", 2) });
    desk.hear(Says { beside: Some(30), ..says("c", 3) });
    assert_eq!(desk.hear(Says { beside: None, ..says("d", 4) }), []);
    // then the first two are neighbours, and nobody speaks of three ends
    assert_eq!(desk.hosts(), [2, 3]);
    assert_eq!(desk.machine.at(SEGMENT, Ipv4Addr::new(10, 0, 0, 3)), Some(key_of("c")));
    assert_eq!(desk.machine.at(SEGMENT, Ipv4Addr::new(10, 0, 0, 4)), None);
    // and what we say goes to all, and names all three
    desk.pass(10 * MS);
    assert_eq!(desk.named(), [(To::Everyone, 3)]);
    // when the last names us as well, then it is one too; who is outside the subnet is not
    assert!(matches!(desk.hear(says("d", 4))[..], [Event::NeighbourUp { .. }]));
    assert_eq!(desk.hosts(), [2, 3, 4]);
}

#[test]
fn beacons_go_to_all_also_where_a_subnet_has_room_for_two() {
    let mut desk = Desk::new();
    let info = PortInfo { switched: true, ..PortInfo::new("f", Ipv4Addr::new(10, 0, 9, 1), 30) };
    desk.machine.on_port(desk.now, PortChange::Up(PortId(2), info));
    assert_eq!(desk.named().iter().map(|(to, _)| *to).collect::<Vec<_>>(), [To::Everyone; 2]);
}

#[test]
fn one_that_is_silent_starts_anew_or_has_a_twin_ends_its_own_adjacency_only() {
    let mut desk = Desk::new();
    for (id, host) in [("b", 2), ("c", 3), ("d", 4)] {
        desk.hear(says(id, host));
    }
    // when one is silent, then that one is asked for and gone, and the others are not
    for _ in 0..4 {
        desk.pass(80 * MS);
        desk.hear(says("b", 2));
        desk.hear(says("c", 3));
    }
    let notes = desk.pass(70 * MS);
    assert!(matches!(&notes[..], [Event::NeighbourDown { node, why: Down::Silent, .. }] if node == "d"), "{notes:?}");
    assert_eq!(desk.hosts(), [2, 3]);
    // when one starts anew, then it is gone until it hears us
    let notes = desk.hear(Says { life: 2, beside: None, ..says("c", 3) });
    assert!(matches!(&notes[..], [Event::NeighbourDown { why: Down::Restarted, .. }]), "{notes:?}");
    assert_eq!(desk.hosts(), [2]);
    desk.hear(Says { life: 2, ..says("c", 3) });
    assert_eq!(desk.hosts(), [2, 3]);
    // when a third has the id of one, in another life, and both speak on, then neither of the two is one
    let mut notes = Vec::new();
    for _ in 0..6 {
        notes.extend(desk.hear(Says { life: 9, ..says("c", 3) }));
        desk.pass(50 * MS);
        notes.extend(desk.hear(says("c", 7)));
        notes.extend(desk.hear(says("b", 2)));
        desk.pass(50 * MS);
    }
    assert_eq!(notes.iter().filter(|note| matches!(note, Event::SameId { .. })).count(), 1, "{notes:?}");
    assert_eq!(desk.hosts(), [2]);
    // when the port has no carrier, then all are gone, each with a line
    desk.machine.on_port(desk.now, PortChange::Down(SEGMENT));
    assert!(matches!(desk.machine.take_effects().notes[..], [Event::NeighbourDown { why: Down::Port, .. }]));
    assert_eq!(desk.hosts(), [0; 0]);
}

#[test]
fn two_with_one_address_are_no_neighbours_and_others_are() {
    let mut desk = Desk::new();
    desk.hear(says("b", 2));
    // given two who speak from one address, for a while
    let mut notes = Vec::new();
    for _ in 0..3 {
        notes.extend(desk.hear(says("c", 3)));
        notes.extend(desk.hear(says("d", 3)));
        notes.extend(desk.hear(says("b", 2)));
        desk.pass(60 * MS);
    }
    // then neither is one, and it is said once
    assert_eq!(notes.iter().filter(|note| matches!(note, Event::AddressTwice { .. })).count(), 1, "{notes:?}");
    assert_eq!(desk.hosts(), [2]);
    // and neither is named, so that they learn of it
    assert_eq!(desk.named().last(), Some(&(To::Everyone, 1)));
    // when one has been silent, then the other is
    for _ in 0..7 {
        desk.hear(says("d", 3));
        desk.hear(says("b", 2));
        desk.pass(60 * MS);
    }
    assert_eq!(desk.hosts(), [2, 3]);
}

#[test]
fn who_takes_the_segment_for_a_cable_is_a_neighbour_only_as_on_one() {
    let mut desk = Desk::new();
    // given one who takes the link for a cable, and names us alone, then it is one while we hear nobody else
    desk.hear(Says { beside: Some(0), ..says("cable-b", 2) });
    assert_eq!(desk.hosts(), [2]);
    // when it names another too, or when we hear another, then it takes none, and we do not take it
    desk.hear(Says { beside: Some(1), ..says("cable-b", 2) });
    assert_eq!(desk.hosts(), [0; 0]);
    desk.hear(Says { beside: Some(0), ..says("cable-b", 2) });
    assert_eq!(desk.hosts(), [2]);
    let notes = desk.hear(says("c", 3));
    assert!(matches!(notes[..], [Event::NeighbourDown { why: Down::ThreeEnds, .. }, Event::NeighbourUp { .. }]));
    // and the other, who knows of the segment, is a neighbour
    assert_eq!(desk.hosts(), [3]);
}

#[test]
fn each_neighbour_has_its_own_time_for_digests() {
    let mut desk = Desk::new();
    desk.hear(says("b", 2));
    desk.hear(says("c", 3));
    let [b, c] = [2, 3].map(|host| Ipv4Addr::new(10, 0, 0, host));
    // when one has been sent some, then it waits, and the other does not
    desk.machine.digests(desk.now, SEGMENT, b);
    assert_eq!(desk.machine.digest_at(SEGMENT, b), desk.now + 5 * MS);
    assert!(desk.machine.digest_at(SEGMENT, c) <= desk.now);
    // and it waits on when it was gone in between
    desk.hear(Says { beside: None, ..says("b", 2) });
    assert_eq!(desk.machine.digest_at(SEGMENT, b), Time::MAX);
    desk.hear(says("b", 2));
    assert_eq!(desk.machine.digest_at(SEGMENT, b), desk.now + 5 * MS);
}

#[test]
fn as_many_are_neighbours_as_can_be_advertised_and_each_cable_has_its_place() {
    // given a port at a cable and one on a segment with more others than a node can advertise
    let mut desk = Desk::new();
    desk.machine.on_port(desk.now, up(2, [10, 0, 1, 1], false));
    let ids: Vec<String> = (0..40).map(|n| format!("n{n}")).collect();
    let limit = MAX_ADJACENCIES - 1;
    for (n, id) in ids[..limit].iter().enumerate() {
        assert!(matches!(desk.hear(says(id, 2 + n as u8))[..], [Event::NeighbourUp { .. }]), "{n}");
    }
    // when one more is heard, then it is none, which is said once, whoever else comes
    let notes: Vec<_> = (limit..40).flat_map(|n| desk.hear(says(&ids[n], 2 + n as u8))).collect();
    assert!(matches!(&notes[..], [Event::NoRoom { node, .. }] if *node == ids[limit]), "{notes:?}");
    assert_eq!(desk.hosts().len(), limit);
    // and it is not named, so that it learns of it, and no beacon is too long
    desk.pass(10 * MS);
    assert!(desk.named().contains(&(To::Everyone, limit)));
    // when the cable has a neighbour, then there is room for it
    let other = desk.hear_at(PortId(2), Says { beside: Some(0), ..says("x", 2) });
    assert!(matches!(other[..], [Event::NeighbourUp { .. }]));
    assert_eq!(desk.machine.adjacencies().len(), MAX_ADJACENCIES);
    // when one more port at a cable comes, then it has its place before the last on the segment
    desk.machine.on_port(desk.now, up(3, [10, 0, 2, 1], false));
    let notes = desk.machine.take_effects().notes;
    assert!(matches!(notes[..], [Event::NeighbourDown { why: Down::NoRoom, .. }]), "{notes:?}");
    desk.hear_at(PortId(3), Says { beside: Some(0), ..says("y", 2) });
    assert_eq!(desk.machine.adjacencies().len(), MAX_ADJACENCIES);
    // when one on the segment is gone, then another has its place
    let kept: Vec<u8> = desk.machine.ports[&SEGMENT].others.keys().map(|who| who.1.octets()[3]).collect();
    for _ in 0..5 {
        desk.pass(90 * MS);
        kept[1..].iter().for_each(|host| drop(desk.hear(says(&ids[usize::from(*host) - 2], *host))));
    }
    assert!(matches!(desk.hear(says("late", 200))[..], [Event::NeighbourUp { .. }]));
}

#[test]
fn a_port_that_is_declared_to_be_switched_or_no_longer_begins_anew() {
    let mut desk = Desk::new();
    desk.hear(says("b", 2));
    desk.hear(says("c", 3));
    desk.machine.on_port(desk.now, up(SEGMENT.0, [10, 0, 0, 1], false));
    assert_eq!(desk.machine.take_effects().notes.len(), 2);
    // then it is a cable's: two are a crowd
    desk.hear(Says { beside: Some(0), ..says("b", 2) });
    let notes = desk.hear(Says { beside: Some(0), ..says("c", 3) });
    assert!(notes.iter().any(|note| matches!(note, Event::ThreeEnds { .. })), "{notes:?}");
    assert_eq!(desk.hosts(), [0; 0]);
}
