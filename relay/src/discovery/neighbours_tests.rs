//! Who becomes a neighbour, who does not and what is said about it, and when one is gone.

use super::*;
use crate::discovery::advert::after;
use crate::discovery::types::MS;

const PORT: PortId = PortId(1);
const START: Time = 100_000 * MS;

fn ip(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

/// Node `me` in its seventh life, and somebody who sends it beacons.
struct Desk {
    machine: Neighbours,
    now: Time,
    number: u32,
}

/// What somebody says.
#[derive(Clone, Copy)]
struct Says {
    id: &'static str,
    name: &'static str,
    life: u64,
    at: &'static str,
    prefix: u8,
    hears: bool,
    /// Hears another node beside us.
    crowd: bool,
}

/// The neighbour that is cabled to `me`.
const B: Says = Says { id: "id-b", name: "b", life: 1, at: "10.0.0.2", prefix: 24, hears: true, crowd: false };

impl Desk {
    fn new(address: &str, prefix: u8) -> Self {
        let mut machine = Neighbours::new(Config::new("id-me", "me", 7));
        machine.on_port(START, PortChange::Up(PORT, PortInfo::new("f0", ip(address), prefix)));
        machine.take_effects();
        Self { machine, now: START, number: 0 }
    }

    /// Hears a beacon; answers what is noted.
    fn hear(&mut self, says: Says) -> Vec<Event> {
        self.number += 1;
        self.hear_number(says, self.number)
    }

    fn hear_number(&mut self, says: Says, number: u32) -> Vec<Event> {
        let local = self.machine.listens(PORT).expect("a port with carrier");
        let us = Heard { node: key_of("id-me"), life: 7, address: local };
        let beacon = Beacon {
            id: says.id,
            name: says.name,
            life: says.life,
            number,
            features: 0,
            address: ip(says.at),
            prefix: says.prefix,
            speed_mbps: 0,
            mtu: 0,
            rail: 0,
            asks: false,
            switched: false,
            summary: Summary::default(),
            heard: match says.hears {
                true if says.crowd => vec![us, Heard { node: 99, ..us }],
                true => vec![us],
                false => Vec::new(),
            },
        };
        self.machine.on_beacon(self.now, PORT, ip(says.at), &beacon);
        self.machine.take_effects().notes
    }

    fn pass(&mut self, time: Time) -> Vec<Event> {
        self.now += time;
        self.machine.on_time(self.now);
        self.machine.take_effects().notes
    }

    fn neighbours(&self) -> usize {
        self.machine.all().count()
    }

    /// The beacons that go out now: to whom, and whether they ask.
    fn beacons(&mut self) -> Vec<(To, bool, usize)> {
        let mut sent = Vec::new();
        while let Some((_, to, bytes)) = self.machine.next_beacon(self.now, Summary::default()) {
            let Ok(crate::discovery::Datagram::Beacon(beacon)) = crate::discovery::Datagram::decode(&bytes) else {
                panic!("no beacon")
            };
            sent.push((to, beacon.asks, beacon.heard.len()));
        }
        sent
    }
}

#[test]
fn a_neighbour_is_heard_and_hears_us() {
    let mut desk = Desk::new("10.0.0.1", 24);
    // given somebody who does not say that he hears us, then he is none yet
    assert_eq!(desk.hear(Says { hears: false, ..B }), []);
    assert_eq!(desk.neighbours(), 0);
    // but we say that we hear him, at once
    assert_eq!(desk.beacons(), [(To::Everyone, false, 1)]);
    // when he hears us, then he is
    let up = Event::NeighbourUp { local: ip("10.0.0.1"), node: "b".into(), remote: ip("10.0.0.2") };
    assert_eq!(desk.hear(B), [up]);
    assert_eq!(desk.machine.at(PORT, ip("10.0.0.2")), Some(key_of("id-b")));
    // when a beacon that was overtaken says otherwise, then nothing changes
    assert_eq!(desk.hear_number(Says { hears: false, ..B }, 1), []);
    // when a new one does, then he is none any more
    assert!(matches!(desk.hear(Says { hears: false, ..B })[..], [Event::NeighbourDown { why: Down::OneWay, .. }]));
}

#[test]
fn who_is_late_is_asked_and_who_is_silent_is_gone() {
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.hear(B);
    desk.beacons();
    // given a neighbour that falls silent: our beacons go on, and once one of his is missing they ask, eight times an interval
    let (mut asked, mut regular) = (0, 0);
    for _ in 0..75 {
        assert_eq!(desk.pass(5 * MS), []);
        let beacons = desk.beacons();
        asked += beacons.iter().filter(|(_, asks, _)| *asks).count();
        regular += beacons.iter().filter(|(_, asks, _)| !*asks).count();
    }
    assert_eq!((asked, regular, desk.neighbours()), (6, 1, 1), "every 25 ms from 250 to 375");
    // when 380 ms have passed, then he is gone
    assert!(matches!(desk.pass(5 * MS)[..], [Event::NeighbourDown { why: Down::Silent, .. }]));
    assert_eq!(desk.neighbours(), 0);
}

#[test]
fn a_port_that_never_had_carrier_is_told_and_sends_nothing() {
    let mut desk = Desk::new("10.0.0.1", 24);
    let dark = PortId(2);
    desk.beacons();
    desk.machine.on_port(desk.now, PortChange::Dark(dark, PortInfo::new("f1", ip("10.0.9.1"), 30)));
    // then it is one of the ports that others are told of, as down, and no beacon leaves by it
    let ups: Vec<_> = desk.machine.advert_ports().iter().map(|port| (port.address, port.up)).collect();
    assert_eq!(ups, [(ip("10.0.0.1"), true), (ip("10.0.9.1"), false)]);
    assert_eq!((desk.machine.listens(dark), desk.beacons()), (None, vec![]));
    // when its cable is plugged in, then it speaks at once
    desk.machine.on_port(desk.now, PortChange::Up(dark, PortInfo::new("f1", ip("10.0.9.1"), 30)));
    assert_eq!(desk.beacons().len(), 1);
}

#[test]
fn who_hears_a_neighbour_shortly_before_its_own_beat_speaks_then_on_all_ports() {
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.machine.on_port(desk.now, PortChange::Up(PortId(2), PortInfo::new("f1", ip("10.0.9.1"), 30)));
    desk.hear(B);
    desk.pass(10 * MS);
    desk.beacons();
    let beat = desk.machine.deadline(desk.now);
    // given a neighbour that speaks more than half an interval before our beat, then we keep to it
    desk.now = beat - 101 * MS;
    desk.hear(B);
    assert_eq!((desk.beacons(), desk.machine.deadline(desk.now)), (vec![], beat));
    // when it speaks later than that, then we do as well, on both ports, and again an interval later
    desk.pass(MS);
    desk.hear(B);
    assert_eq!(desk.beacons().len(), 2);
    assert_eq!(desk.machine.deadline(desk.now), desk.now + 200 * MS);
    // who is no neighbour moves nothing
    desk.now += 150 * MS;
    desk.hear(Says { at: "10.0.0.7", id: "id-z", ..B });
    assert_eq!(desk.machine.beat, desk.now + 50 * MS);
}

#[test]
fn a_port_without_carrier_has_no_neighbour_at_once() {
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.hear(B);
    desk.machine.on_port(desk.now, PortChange::Down(PORT));
    let effects = desk.machine.take_effects();
    assert!(effects.changed && matches!(effects.notes[..], [Event::NeighbourDown { why: Down::Port, .. }]));
    // then the port is still one of ours, says nothing and hears nothing
    assert!(!desk.machine.advert_ports()[0].up && desk.machine.listens(PORT).is_none());
    assert_eq!(desk.beacons(), []);
    // when it is back, then so is its beacon
    desk.machine.on_port(desk.now, PortChange::Up(PORT, PortInfo::new("f0", ip("10.0.0.1"), 24)));
    assert_eq!(desk.beacons().len(), 1);
    // when only its description changes, then nobody is lost
    desk.hear(B);
    desk.machine.on_port(desk.now, PortChange::Up(PORT, PortInfo::new("rocep1s0f0", ip("10.0.0.1"), 24)));
    assert_eq!((desk.neighbours(), desk.machine.advert_ports()[0].device.as_str()), (1, "rocep1s0f0"));
    // when its address changes, then it is another port
    desk.machine.on_port(desk.now, PortChange::Up(PORT, PortInfo::new("f0", ip("10.0.0.9"), 24)));
    assert_eq!(desk.neighbours(), 0);
}

#[test]
fn both_must_lie_in_the_subnet_of_the_other() {
    // our port, theirs, and whether they may be a link
    let cases = [
        ("10.0.0.1", 30, "10.0.0.2", 30, true),
        ("10.0.0.4", 31, "10.0.0.5", 31, true),
        ("10.0.0.1", 24, "10.0.0.200", 24, true),
        ("10.0.0.1", 30, "10.0.0.2", 24, true),
        ("10.0.0.1", 24, "10.0.0.2", 31, false),
        ("10.0.0.1", 24, "10.0.0.9", 29, false),
        ("10.0.0.1", 30, "10.0.0.5", 30, false),
        ("10.0.0.1", 30, "10.0.0.3", 24, false),
        ("10.0.0.1", 24, "10.0.1.1", 24, false),
    ];
    for (local, ours, at, theirs, link) in cases {
        let mut desk = Desk::new(local, ours);
        let says = Says { at, prefix: theirs, ..B };
        let notes = desk.hear(says);
        assert_eq!(desk.neighbours() == 1, link, "{local}/{ours} {at}/{theirs}");
        assert_eq!(matches!(notes[..], [Event::OutsideSubnet { .. }]), !link, "{notes:?}");
        // and it is said once
        assert_eq!(desk.hear(says), []);
    }
}

#[test]
fn beacons_go_to_the_other_address_where_there_is_but_one() {
    for (local, prefix, other) in
        [("10.0.0.1", 30, "10.0.0.2"), ("10.0.0.6", 30, "10.0.0.5"), ("10.0.0.9", 31, "10.0.0.8")]
    {
        let mut desk = Desk::new(local, prefix);
        // while nobody answers, every other one goes to all, so that who has a wrong address learns of it
        let to = To::Address(ip(other));
        assert_eq!(desk.beacons(), [(to, false, 0)]);
        desk.pass(200 * MS);
        assert_eq!(desk.beacons(), [(To::Everyone, false, 0)]);
        for _ in 0..3 {
            desk.hear(Says { at: other, prefix, ..B });
            desk.pass(200 * MS);
            assert_eq!(desk.beacons().first().map(|(to, ..)| *to), Some(to));
        }
    }
}

#[test]
fn who_comes_back_at_once_under_another_id_is_no_third_end() {
    // given a neighbour
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.hear(B);
    desk.pass(60 * MS);
    desk.hear(B);
    // when another is heard from its address, earlier than it could be missed, then it is a neighbour no more, and that is all that is said
    let renamed = Says { id: "id-n", name: "new-b", ..B };
    desk.pass(60 * MS);
    let notes = desk.hear(renamed);
    assert!(matches!(&notes[..], [Event::NeighbourDown { node, .. }] if node == "b"), "{notes:?}");
    // and once the first has been silent for as long as that takes, the other is one
    let mut notes = Vec::new();
    for _ in 0..6 {
        notes.extend(desk.pass(60 * MS));
        notes.extend(desk.hear(renamed));
    }
    assert!(matches!(&notes[..], [Event::NeighbourUp { node, .. }] if node == "new-b"), "{notes:?}");
    // when the first speaks on, then both are there, which is said once
    let mut notes = desk.hear(B);
    desk.pass(60 * MS);
    notes.extend(desk.hear(renamed));
    desk.pass(60 * MS);
    notes.extend(desk.hear(B));
    assert!(
        matches!(notes[..], [Event::NeighbourDown { why: Down::ThreeEnds, .. }, Event::ThreeEnds { .. }]),
        "{notes:?}"
    );
}

#[test]
fn a_link_with_three_ends_has_no_neighbour_until_one_falls_silent() {
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.hear(B);
    // when another is heard beside the first, then none is a neighbour, and it is said once
    let c = Says { id: "id-c", name: "c", at: "10.0.0.3", ..B };
    let notes = desk.hear(c);
    assert!(
        matches!(notes[..], [Event::NeighbourDown { why: Down::ThreeEnds, .. }, Event::ThreeEnds { .. }]),
        "{notes:?}"
    );
    assert_eq!((desk.hear(c), desk.hear(B), desk.neighbours()), (vec![], vec![], 0));
    // and our beacons name both, so that they learn of it
    desk.now += 10 * MS;
    assert_eq!(desk.beacons(), [(To::Everyone, false, 2)]);
    // when one has been silent for long enough, then the other is our neighbour
    desk.pass(250 * MS);
    desk.hear(B);
    assert!(matches!(desk.pass(150 * MS)[..], [Event::NeighbourUp { .. }]));
    // when that one says that it still hears another, then it takes none of us for its neighbour, and we not it
    assert!(matches!(desk.hear(Says { crowd: true, ..B })[..], [Event::NeighbourDown { why: Down::OneWay, .. }]));
    // given more on a link than beacons can name, then they take no memory
    for n in 0..20 {
        let at: &'static str = Box::leak(format!("10.0.0.{}", 10 + n).into_boxed_str());
        let id: &'static str = Box::leak(format!("id-{n}").into_boxed_str());
        desk.hear(Says { id, name: id, at, ..B });
    }
    assert_eq!(desk.machine.ports[&PORT].others.len(), MAX_HEARD);
}

#[test]
fn our_own_beacon_and_our_own_address_are_told_apart() {
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.machine.on_port(desk.now, PortChange::Up(PortId(2), PortInfo::new("f1", ip("10.0.9.1"), 24)));
    let me = Says { id: "id-me", name: "me", life: 7, at: "10.0.0.1", ..B };
    // the port hears itself, or another port of ours at the other end of the cable
    assert!(matches!(desk.hear(me)[..], [Event::LoopedBack { .. }]));
    assert!(matches!(desk.hear(Says { at: "10.0.9.1", ..me })[..], [Event::LoopedBack { .. }]));
    // another node has our id: another life, or an address that is not ours
    assert!(matches!(desk.hear(Says { life: 8, ..me })[..], [Event::SameId { .. }]));
    assert!(matches!(desk.hear(Says { at: "10.0.0.2", ..me })[..], [Event::SameId { .. }]));
    // another node has our address
    assert!(matches!(desk.hear(Says { at: "10.0.9.1", ..B })[..], [Event::AddressTaken { .. }]));
    // a beacon that says another address than it came from
    let beacon = Beacon {
        id: "id-b",
        name: "b",
        life: 1,
        number: 1,
        features: 0,
        address: ip("10.0.0.2"),
        prefix: 24,
        speed_mbps: 0,
        mtu: 0,
        rail: 0,
        asks: false,
        switched: false,
        summary: Summary::default(),
        heard: vec![Heard { node: key_of("id-me"), life: 7, address: ip("10.0.0.1") }],
    };
    desk.machine.on_beacon(desk.now, PORT, ip("10.0.0.3"), &beacon);
    assert!(matches!(desk.machine.take_effects().notes[..], [Event::OtherSource { .. }]));
    // then none of them is a neighbour
    assert_eq!(desk.machine.ports[&PORT].others.len(), 0);
}

#[test]
fn a_node_that_starts_anew_is_not_taken_for_two() {
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.hear(Says { life: 5, ..B });
    // when it starts anew and does not hear us yet, then it is no neighbour until it does
    desk.now += 50 * MS;
    let notes = desk.hear(Says { life: 6, hears: false, ..B });
    assert!(matches!(notes[..], [Event::NeighbourDown { why: Down::Restarted, .. }]), "{notes:?}");
    // when a beacon of its old life arrives late, then it counts for nothing
    desk.now += 10 * MS;
    assert_eq!(desk.hear(Says { life: 5, ..B }), []);
    assert!(matches!(desk.hear(Says { life: 6, ..B })[..], [Event::NeighbourUp { .. }]));
    // when it starts with a clock that was set back, then it is heard once the old life is forgotten
    desk.pass(400 * MS);
    assert!(matches!(desk.hear(Says { life: 2, ..B })[..], [Event::NeighbourUp { .. }]));
}

#[test]
fn two_nodes_with_one_id_are_no_neighbours() {
    // given two hosts with one id on two ports, in different lives, both of which speak on
    let mut desk = Desk::new("10.0.0.1", 24);
    let twin = Says { life: 9, ..B };
    let mut notes = Vec::new();
    for _ in 0..5 {
        notes.extend(desk.hear(twin));
        desk.now += 50 * MS;
        notes.extend(desk.hear(Says { at: "10.0.0.3", ..B }));
        desk.now += 50 * MS;
    }
    // then it is said once, and none is our neighbour
    assert_eq!(notes.iter().filter(|note| matches!(note, Event::SameId { .. })).count(), 1, "{notes:?}");
    assert_eq!(desk.neighbours(), 0);
    // and neither is named in our beacons, so that they learn of it though nothing else from us reaches them
    assert_eq!(desk.beacons().iter().map(|(_, _, heard)| *heard).max(), Some(0));
    // when one is switched off, then the other is
    for _ in 0..5 {
        desk.hear(twin);
        desk.pass(100 * MS);
    }
    assert_eq!(desk.neighbours(), 1);
    // given one life under two names, then the same
    assert!(matches!(
        desk.hear(Says { name: "c", ..twin })[..],
        [Event::NeighbourDown { .. }, ..] | [Event::SameId { .. }, ..]
    ));
    assert_eq!(desk.neighbours(), 0);
}

#[test]
fn another_host_at_the_old_ones_address_takes_its_place() {
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.hear(B);
    // when the host is exchanged for one with another id, a moment after the old one's last beacon
    desk.pass(300 * MS);
    let notes = desk.hear(Says { id: "id-n", name: "n", ..B });
    // then it is the neighbour, and nobody speaks of three ends
    assert!(matches!(notes[..], [Event::NeighbourDown { .. }, Event::NeighbourUp { .. }]), "{notes:?}");
}

#[test]
fn ports_that_cannot_be_used_are_told_and_left_out() {
    let mut desk = Desk::new("10.0.0.1", 24);
    let mut up = |id, address: &str, prefix| {
        desk.machine.on_port(desk.now, PortChange::Up(PortId(id), PortInfo::new("f", ip(address), prefix)));
        desk.machine.take_effects().notes
    };
    let why = |notes: &[Event]| match notes {
        [Event::PortUnusable { why, .. }] => Some(*why),
        _ => None,
    };
    for (address, prefix) in [("10.0.0.1", 32), ("10.0.1.0", 24), ("127.0.0.1", 8), ("0.0.0.0", 24), ("224.0.0.1", 24)]
    {
        assert_eq!(why(&up(2, address, prefix)), Some(Unusable::Address), "{address}/{prefix}");
    }
    assert_eq!(why(&up(2, "10.0.0.1", 30)), Some(Unusable::Taken));
    for n in 0..MAX_PORTS as u32 - 1 {
        assert!(up(10 + n, &format!("10.1.{n}.1"), 24).is_empty());
    }
    assert_eq!(why(&up(99, "10.2.0.1", 24)), Some(Unusable::TooMany { limit: MAX_PORTS }));
    assert_eq!(desk.machine.advert_ports().len(), MAX_PORTS);
}

#[test]
fn numbers_of_beacons_may_wrap() {
    assert!(after(0, u32::MAX));
    let mut desk = Desk::new("10.0.0.1", 24);
    desk.hear_number(Says { hears: false, ..B }, u32::MAX);
    desk.hear_number(B, 0);
    assert_eq!(desk.neighbours(), 1);
}
