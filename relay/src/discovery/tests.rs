//! The machine as a whole: when it speaks of itself, what it passes on, and what it makes of clocks.

use super::*;

const SECOND: Time = 1000 * MS;

fn ip(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

/// Node `me` with two neighbours, b on its first port and c on its second, who say what the test lets them.
struct Desk {
    machine: Discovery,
    now: Time,
    number: u32,
    /// The driver's clock.
    clock: Time,
}

const PORTS: [(PortId, &str, &str, &str); 2] =
    [(PortId(1), "10.0.0.1", "10.0.0.2", "b"), (PortId(2), "10.0.1.1", "10.0.1.2", "c")];

impl Desk {
    fn new() -> Self {
        let clock = 5_000_000 * SECOND;
        let mut machine = Discovery::new(clock, Config::new("me", "me", 7)).expect("a sound configuration");
        for (port, local, ..) in PORTS {
            machine.on_port(clock, PortChange::Up(port, PortInfo::new("f", ip(local), 30)));
        }
        let mut desk = Self { machine, now: 0, number: 0, clock };
        desk.beacons();
        desk.pass(SECOND / 10);
        desk.drain();
        desk
    }

    fn time(&self) -> Time {
        self.clock + self.now
    }

    /// Both neighbours say that they are there and hold the same as we do.
    fn beacons(&mut self) {
        let summary = self.machine.database().summary();
        self.beacons_with(summary);
    }

    fn beacons_with(&mut self, summary: Summary) {
        self.number += 1;
        for (port, local, remote, name) in PORTS {
            let heard = vec![Heard { node: key_of("me"), life: 7, address: ip(local) }];
            let beacon = Beacon {
                id: name,
                name,
                life: 1,
                number: self.number,
                features: 0,
                address: ip(remote),
                prefix: 30,
                speed_mbps: 0,
                mtu: 0,
                rail: 0,
                asks: false,
                switched: false,
                summary,
                heard,
            };
            self.machine.on_datagram(self.time(), port, ip(remote), &beacon.encode());
        }
    }

    /// Time passes as a driver lets it pass, and the neighbours go on speaking.
    fn pass(&mut self, time: Time) {
        for _ in 0..time / (10 * MS) {
            self.now += 10 * MS;
            if self.now.is_multiple_of(100 * MS) {
                self.beacons();
            }
            self.machine.on_time(self.time());
        }
    }

    /// One of the neighbours sends advertisements.
    fn adverts(&mut self, from: usize, adverts: &[Advert]) {
        let (port, _, remote, _) = PORTS[from];
        let bodies: Vec<_> = adverts.iter().map(Advert::encode).collect();
        for bytes in pack(bodies.iter().map(|body| Carried { age_ms: 1, body })) {
            self.machine.on_datagram(self.time(), port, ip(remote), &bytes);
        }
    }

    fn drain(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.machine.poll()).collect()
    }

    /// Advertisements sent since the last look, with the port.
    fn sent(&mut self) -> Vec<(PortId, Advert)> {
        let mut sent = Vec::new();
        for action in self.drain() {
            let Action::Send { port, bytes, .. } = action else { continue };
            if let Ok(Datagram::Adverts(adverts)) = Datagram::decode(&bytes) {
                sent.extend(
                    adverts.iter().map(|carried| (port, Advert::decode(carried.body).expect("our own writing"))),
                );
            }
        }
        sent
    }

    fn digests(&mut self) -> usize {
        let is_digest = |action: &Action| match action {
            Action::Send { bytes, .. } => matches!(Datagram::decode(bytes), Ok(Datagram::Digest(_))),
            _ => false,
        };
        self.drain().iter().filter(|action| is_digest(action)).count()
    }
}

fn advert(id: &str, incarnation: u64, seq: u32) -> Advert {
    Advert {
        id: id.into(),
        name: id.into(),
        incarnation,
        seq,
        relay: true,
        conflict: false,
        daemon: false,
        features: 0,
        ports: Vec::new(),
        adjacencies: Vec::new(),
        agents: Vec::new(),
    }
}

#[test]
fn a_change_is_told_at_once_and_many_changes_together() {
    let mut desk = Desk::new();
    // given a port that flaps twenty times within 100 ms
    let mut own = Vec::new();
    for _ in 0..20 {
        desk.machine.on_port(desk.time(), PortChange::Down(PortId(1)));
        own.extend(desk.sent());
        desk.now += 5 * MS;
        let info = PortInfo::new("f", ip("10.0.0.1"), 30);
        desk.machine.on_port(desk.time(), PortChange::Up(PortId(1), info));
        desk.machine.on_time(desk.time());
        own.extend(desk.sent());
    }
    // then the first change goes out at once, and no more than one advertisement every 20 ms
    assert!(!own[0].1.ports[0].up);
    assert!((4..=6).contains(&own.len()), "{}", own.len());
    // when it is over, then the last one says how it is
    desk.pass(20 * MS);
    own.extend(desk.sent());
    assert!(own.last().expect("told").1.ports[0].up);
}

#[test]
fn a_node_that_does_not_change_speaks_every_nine_seconds() {
    let mut desk = Desk::new();
    desk.pass(27 * SECOND);
    let sent = desk.sent();
    let seqs: Vec<u32> = sent.iter().filter(|(port, _)| *port == PortId(1)).map(|(_, advert)| advert.seq).collect();
    assert_eq!(seqs.len(), 3);
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[test]
fn what_is_new_goes_on_to_all_but_who_sent_it_and_once() {
    let mut desk = Desk::new();
    desk.adverts(0, &[advert("x", 1, 1), advert("y", 1, 1)]);
    let sent = desk.sent();
    assert_eq!(sent.iter().map(|(port, a)| (port.0, a.id.as_str())).collect::<Vec<_>>(), [(2, "x"), (2, "y")]);
    // when it comes again, from whomever, then it goes nowhere
    desk.adverts(0, &[advert("x", 1, 1)]);
    desk.adverts(1, &[advert("y", 1, 1)]);
    assert_eq!(desk.sent(), []);
    // from somebody who is no neighbour it counts for nothing
    let body = advert("z", 1, 1).encode();
    let bytes = &pack([Carried { age_ms: 0, body: &body }].into_iter())[0];
    desk.machine.on_datagram(desk.time(), PortId(1), ip("10.0.0.3"), bytes);
    desk.machine.on_datagram(desk.time(), PortId(9), ip("10.0.0.2"), bytes);
    assert!(desk.machine.database().adverts().all(|(key, _)| key != key_of("z")));
}

#[test]
fn neighbours_that_hold_something_else_get_digests_but_not_for_every_beacon() {
    let mut desk = Desk::new();
    desk.now += SECOND / 10;
    let other = Summary { count: 9, hash: 9 };
    desk.beacons_with(other);
    assert_eq!(desk.digests(), 2, "one to each");
    // when the same is said many times at once, then not more
    (0..20).for_each(|_| desk.beacons_with(other));
    assert_eq!(desk.digests(), 0);
    desk.pass(10 * MS);
    assert_eq!(desk.digests(), 2, "once more, for all of them");
    // when a digest lacks what we hold, then that is sent to whom it is from
    let empty = Digest { first: 0, last: u64::MAX, entries: Vec::new() };
    desk.machine.on_datagram(desk.time(), PortId(2), ip("10.0.1.2"), &empty.encode());
    assert_eq!(desk.sent().iter().map(|(port, a)| (port.0, a.id.as_str())).collect::<Vec<_>>(), [(2, "me")]);
}

#[test]
fn an_earlier_life_is_outbid_once() {
    let mut desk = Desk::new();
    // given an advertisement of ours that somebody kept from a life with a higher number
    desk.adverts(0, &[advert("me", 20, 5)]);
    desk.adverts(1, &[advert("me", 20, 5)]);
    desk.pass(20 * MS);
    // then one of ours follows that is newer, once
    let actions = desk.drain();
    let notes: Vec<_> = actions.iter().filter(|action| matches!(action, Action::Note(_))).collect();
    assert_eq!(notes, [&Action::Note(Event::Outbid { incarnation: 20 })]);
    let (_, own) = desk.machine.database().adverts().find(|(key, _)| *key == key_of("me")).expect("ours");
    assert_eq!((own.incarnation, own.seq, own.adjacencies.len()), (21, 1, 2));
    // and an older one changes nothing
    desk.adverts(0, &[advert("me", 20, 6)]);
    desk.pass(20 * MS);
    assert_eq!(desk.sent(), []);
}

#[test]
fn another_node_with_our_id_makes_a_conflict_until_it_falls_silent() {
    let mut desk = Desk::new();
    // given somebody who outbids our answer
    desk.adverts(0, &[advert("me", 20, 5)]);
    desk.pass(20 * MS);
    desk.adverts(0, &[advert("me", 22, 1)]);
    desk.pass(20 * MS);
    // then we say so, and advertise a conflict and no adjacency
    assert!(desk.drain().contains(&Action::Note(Event::IdInUse { id: "me".into() })));
    let own =
        |desk: &Desk| desk.machine.database().adverts().find(|(key, _)| *key == key_of("me")).expect("ours").1.clone();
    assert!(own(&desk).conflict && own(&desk).adjacencies.is_empty());
    assert_eq!(desk.machine.view().links.len(), 0);
    // when it goes on and on, then we answer once every three seconds at most
    for round in 0..50 {
        desk.adverts(0, &[advert("me", 30 + 2 * round, 1)]);
        desk.pass(100 * MS);
    }
    assert!(desk.sent().len() <= 2 * 2, "two neighbours, five seconds");
    // when it has been silent for ten seconds, then we are back
    desk.pass(13 * SECOND);
    assert!(desk.drain().contains(&Action::Note(Event::IdFree { id: "me".into() })));
    assert_eq!((own(&desk).conflict, own(&desk).adjacencies.len()), (false, 2));
}

#[test]
fn a_clock_that_leaps_drops_nobody_who_still_speaks() {
    for leap in [3600 * SECOND as i64, -3600 * SECOND as i64, 400 * MS as i64] {
        let mut desk = Desk::new();
        assert_eq!(desk.machine.deadline().saturating_sub(desk.time()) / SECOND, 0);
        // when the clock leaps, and timers fire before anything is heard
        desk.clock = desk.clock.wrapping_add_signed(leap);
        desk.machine.on_time(desk.time());
        let actions = desk.drain();
        let lost = |action: &Action| matches!(action, Action::Note(Event::NeighbourDown { .. }));
        assert!(!actions.iter().any(lost), "{leap}: {actions:?}");
        assert!(actions.iter().any(|action| matches!(action, Action::Note(Event::ClockLeapt { .. }))), "{leap}");
        // then whoever speaks within an interval stays, and all goes on
        desk.now += 90 * MS;
        desk.beacons();
        desk.pass(SECOND);
        assert!(!desk.drain().iter().any(lost), "{leap}");
        assert_eq!(desk.machine.database().adverts().count(), 1);
        assert!(desk.machine.deadline() <= desk.time() + 200 * MS);
    }
}

#[test]
fn a_driver_that_is_late_again_and_again_is_told_of_once() {
    let mut desk = Desk::new();
    let leaps = |desk: &mut Desk| {
        let actions = desk.drain();
        actions.iter().filter(|action| matches!(action, Action::Note(Event::ClockLeapt { .. }))).count()
    };
    // given a host that is so busy that its driver comes a second late each time, then that is one line
    for round in 0..5 {
        desk.clock += SECOND;
        desk.beacons();
        desk.machine.on_time(desk.time());
        assert_eq!(leaps(&mut desk), usize::from(round == 0), "{round}");
    }
    // when it was in time for long, then it is said anew
    desk.pass(11 * SECOND);
    desk.clock += SECOND;
    desk.machine.on_time(desk.time());
    assert_eq!(leaps(&mut desk), 1);
}

#[test]
fn a_clock_that_leaps_forgives_silence_once() {
    let mut desk = Desk::new();
    // given neighbours that are dead, and a driver that always comes a second late
    let mut rounds = 0;
    while desk.machine.neighbours.all().count() > 0 {
        desk.clock += SECOND;
        desk.machine.on_time(desk.time());
        rounds += 1;
        assert!(rounds < 5, "the dead are kept for ever");
    }
}

#[test]
fn configurations_that_others_could_not_take_are_refused() {
    let sound = Config::new("me", "me", 1);
    let new = |config| Discovery::new(0, config).err();
    assert_eq!(new(sound.clone()), None);
    assert!(matches!(new(Config { id: String::new(), ..sound.clone() }), Some(ConfigError::Text { field: "id", .. })));
    let name = "n".repeat(MAX_TEXT + 1);
    assert!(matches!(new(Config { name, ..sound.clone() }), Some(ConfigError::Text { field: "name", .. })));
    let timers = Timers { dead: 250 * MS, ..Timers::default() };
    assert_eq!(new(Config { timers, ..sound }), Some(ConfigError::Timers));
}
