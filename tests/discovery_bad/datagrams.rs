//! Datagrams that nobody should send: no beacons, broken ones, those of other versions, from elsewhere, or in another's name.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use mesh_relay::discovery::{Beacon, Datagram, Summary};

use crate::stage::{Agent, Fabric, PORT, address, all_find, links, warned_only_of, were_late};

/// a and b are neighbours; at the other end of a's second cable stands whoever a test wants.
const AB: [&str; 2] = ["10.5.0.1", "10.5.0.2"];
const SPARE: [&str; 2] = ["10.5.1.1", "10.5.1.2"];

struct Scene {
    fabric: Fabric,
    a: Agent,
    b: Agent,
    stranger: UdpSocket,
}

impl Scene {
    fn new() -> Self {
        let fabric = Fabric::new(&[AB, SPARE]);
        let a = fabric.agent("a", "10.5.0.1/30,10.5.1.1/30");
        let b = fabric.agent("b", "10.5.0.2/30");
        let stranger = fabric.stranger(SPARE[1]);
        let scene = Self { fabric, a, b, stranger };
        all_find(&[&scene.a, &scene.b], &links(&[AB]));
        scene
    }

    /// Says something to a's second port.
    fn say(&self, bytes: &[u8]) {
        self.stranger.send_to(bytes, self.fabric.place(address(SPARE[0]))).expect("sent");
    }

    /// The next beacon of a on its second port.
    fn beacon(&self) -> Vec<u8> {
        let mut bytes = [0; 2048];
        let (size, from) = self.stranger.recv_from(&mut bytes).expect("a beacon");
        assert_eq!(from.port(), PORT);
        assert!(matches!(Datagram::decode(&bytes[..size]), Ok(Datagram::Beacon(_))));
        bytes[..size].to_vec()
    }

    /// Both find each other and nobody else, a has warned of this alone, and both end in order.
    #[track_caller]
    fn ends_as_before(self, codes: &[&str]) {
        for seen in all_find(&[&self.a, &self.b], &links(&[AB])) {
            assert_eq!(seen.nodes, ["a", "b"].map(str::to_owned).into(), "{}", seen.text);
        }
        warned_only_of(&[&self.a, &self.b], codes);
        assert!(!codes.iter().any(|code| self.b.log().contains(code)), "{}", self.b.log());
        let late = were_late(&[&self.a, &self.b]);
        for node in [self.a, self.b] {
            assert!(late || node.lines("mesh[I06]").len() == 1, "not neighbours all the time: {}", node.log());
            node.ends();
        }
    }
}

/// Numbers that are the same on every run.
fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn what_is_no_beacon_is_one_line() {
    let scene = Scene::new();
    // when something else than nccl-mesh sends to the port of beacons, each time something else, of any length
    let mut seed = 88_172_645_463_325_252;
    for n in 0..600 {
        let size = random(&mut seed) % if n % 10 == 0 { 9000 } else { 1401 };
        let bytes: Vec<u8> = (0..size).map(|_| random(&mut seed) as u8).collect();
        scene.say(&bytes);
        if n % 50 == 49 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // then that is one line, which says from where
    scene.a.says("mesh[W62]");
    scene.a.said_once("mesh[W62]", &["10.5.1.1", SPARE[1], "refused"]);
    scene.ends_as_before(&["mesh[W62]"]);
}

#[test]
fn a_beacon_that_is_cut_short_or_changed_is_one_line() {
    let scene = Scene::new();
    let beacon = scene.beacon();
    // when real beacons come cut short at every length, or with something behind them
    for size in 0..beacon.len() {
        scene.say(&beacon[..size]);
    }
    scene.say(&[&beacon[..], &[0; 1300]].concat());
    scene.a.says("mesh[W62]");
    // and with each byte of what says whose they are, and of lengths, another
    for at in 0..7 {
        let mut other = beacon.clone();
        other[at] ^= 0xff;
        scene.say(&other);
    }
    // then that is one line
    scene.a.said_once("mesh[W62]", &["10.5.1.1", SPARE[1], "it ends before its fields do"]);
    scene.ends_as_before(&["mesh[W62]"]);
}

#[test]
fn another_version_is_told_with_both_numbers() {
    let scene = Scene::new();
    // when a later build sends beacons, of which nothing can be known but the version
    let mut beacon = scene.beacon();
    beacon[4..6].copy_from_slice(&7_u16.to_le_bytes());
    beacon[7..].fill(0xa5);
    for _ in 0..20 {
        scene.say(&beacon);
    }
    // then that is one line, with what to do
    scene.a.says("mesh[W62]");
    scene.a.said_once("mesh[W62]", &[SPARE[1], "version 7", "this node 2", "the same build on all nodes"]);
    scene.ends_as_before(&["mesh[W62]"]);
}

fn beacon<'a>(id: &'a str, life: u64, from: Ipv4Addr, prefix: u8) -> Beacon<'a> {
    let (speed_mbps, mtu) = (100_000, 9000);
    let summary = Summary { count: 3, hash: 5 };
    let (number, features, rail, asks, heard) = (1, 0, 0, true, Vec::new());
    Beacon {
        id,
        name: id,
        life,
        number,
        features,
        address: from,
        prefix,
        speed_mbps,
        mtu,
        rail,
        asks,
        switched: false,
        summary,
        heard,
    }
}

#[test]
fn beacons_of_a_strangers_network_make_no_neighbour() {
    // given a fabric of others on the same machine, whose port is in no subnet of ours
    let scene = Scene::new();
    let others = Fabric::new(&[["10.77.0.1", "10.77.0.2"]]);
    let theirs = others.stranger("10.77.0.2");
    let place = scene.fabric.place(address(SPARE[0]));
    // when their beacons reach a, which sees where they come from and not the address that they say
    for number in 1..10 {
        let beacon = Beacon { number, ..beacon("z", 9, address("10.77.0.2"), 24) };
        theirs.send_to(&beacon.encode(), place).expect("sent");
    }
    // then that is one line, with both addresses
    scene.a.says("mesh[W63]");
    let std::net::SocketAddr::V4(from) = theirs.local_addr().expect("bound") else { panic!("IPv4") };
    scene.a.said_once("mesh[W63]", &["10.5.1.1", &from.ip().to_string(), "says 10.77.0.2"]);
    // when one comes down the cable whose prefix length leaves a out
    let wide = Beacon { number: 20, ..beacon("y", 9, address(SPARE[1]), 31) };
    for _ in 0..5 {
        scene.say(&wide.encode());
    }
    scene.a.says("mesh[W64]");
    scene.a.said_once("mesh[W64]", &["10.5.1.1/30", "10.5.1.2/31"]);
    scene.ends_as_before(&["mesh[W63]", "mesh[W64]"]);
}

#[test]
fn who_speaks_in_this_nodes_own_name_is_told_of_once() {
    let scene = Scene::new();
    // when somebody sends beacons with a's id, in another life and under another name each time
    for n in 0..50_u32 {
        let name = format!("a-{n}");
        let own = Beacon { name: &name, number: n, ..beacon("a", u64::from(n), address(SPARE[1]), 30) };
        scene.say(&own.encode());
    }
    // then it says so once, and stays who it is
    scene.a.says("mesh[W67]");
    scene.a.said_once("mesh[W67]", &["10.5.1.1", SPARE[1], "id \"a\""]);
    scene.ends_as_before(&["mesh[W67]"]);
}

#[test]
fn who_speaks_from_this_nodes_own_address_is_told_of_once() {
    let scene = Scene::new();
    // given somebody whose datagrams come from an address that a has itself
    let mut place = scene.fabric.place(address(AB[0]));
    place.set_port(0);
    let spoofed = UdpSocket::bind(place).expect("a free number");
    for n in 0..50_u32 {
        let name = format!("z-{n}");
        let taken = Beacon { name: &name, number: n, ..beacon("z", 9, address(AB[0]), 30) };
        spoofed.send_to(&taken.encode(), scene.fabric.place(address(SPARE[0]))).expect("sent");
    }
    scene.a.says("mesh[W66]");
    scene.a.said_once("mesh[W66]", &["10.5.1.1", "10.5.0.1"]);
    scene.ends_as_before(&["mesh[W66]"]);
}

#[test]
fn who_speaks_in_a_neighbours_name_keeps_both_out_only_while_he_speaks() {
    let scene = Scene::new();
    // when somebody sends beacons in b's name beside b's own, in a life that began long before
    for number in 1..8 {
        scene.say(&Beacon { number, ..beacon("b", 1, address(SPARE[1]), 30) }.encode());
        std::thread::sleep(Duration::from_millis(60));
    }
    // then it cannot be known which is b, and that is said once, with where it is heard
    scene.a.says("mesh[W67]");
    scene.a.said_once("mesh[W67]", &["10.5.1.1", SPARE[1], "id \"b\""]);
    // when he falls silent, then all is as before
    all_find(&[&scene.a, &scene.b], &links(&[AB]));
    scene.a.said_once("mesh[W67]", &[]);
    let gone = scene.a.lines("mesh[W60]");
    let so = gone.iter().filter(|line| line.contains("neighbour b") && line.contains("two nodes have its id")).count();
    assert!(so > 0 && (were_late(&[&scene.a, &scene.b]) || gone.len() == 1), "{}", scene.a.log());
    // b itself is told by not being taken for a neighbour
    warned_only_of(&[&scene.a, &scene.b], &["mesh[W67]", "mesh[W60]"]);
    for node in [scene.a, scene.b] {
        node.ends();
    }
}
