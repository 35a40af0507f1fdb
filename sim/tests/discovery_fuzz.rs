//! Datagrams of strangers and of neighbours gone mad: nothing panics, and only what is soundly encoded can change a view.

mod common;

use std::net::Ipv4Addr;

use common::each_seed;
use mesh_relay::discovery::{
    Action, Advert, Beacon, Config, Datagram, Discovery, Heard, MS, PortChange, PortId, PortInfo, Summary, Time,
    key_of, pack,
};
use mesh_relay::discovery::{AgentAt, Carried, Digest};
use mesh_sim::virtual_time::Rng;

const PORT: PortId = PortId(1);
const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn machine(id: &str, address: Ipv4Addr, switched: bool) -> Discovery {
    let mut machine = Discovery::new(0, Config::new(id, id, 1)).expect("a sound configuration");
    for (port, other) in [(1, address), (2, Ipv4Addr::new(10, 0, address.octets()[3], 1))] {
        machine.on_port(0, PortChange::Up(PortId(port), PortInfo { switched, ..PortInfo::new("f", other, 30) }));
    }
    machine
}

/// Two machines side by side for a second, at a cable or on a switched segment; every datagram that they send, and the first of them as it is then.
fn side_by_side(switched: bool) -> (Discovery, Vec<Vec<u8>>) {
    let (mut us, mut them) = (machine("us", US, switched), machine("them", THEM, switched));
    let mut sent = Vec::new();
    for tick in 0..500 {
        let now = tick * 2 * MS;
        us.on_time(now);
        them.on_time(now);
        for _ in 0..4 {
            while let Some(action) = them.poll() {
                if let Action::Send { port: PORT, bytes, .. } = action {
                    us.on_datagram(now, PORT, THEM, &bytes);
                    sent.push(bytes);
                }
            }
            while let Some(action) = us.poll() {
                if let Action::Send { port: PORT, bytes, .. } = action {
                    them.on_datagram(now, PORT, US, &bytes);
                    sent.push(bytes);
                }
            }
        }
    }
    assert_eq!(us.view().links.len(), 1, "they are neighbours");
    (us, sent)
}

/// Whether any of it can be read.
fn is_sound(bytes: &[u8]) -> bool {
    match Datagram::decode(bytes) {
        Ok(Datagram::Adverts(adverts)) => adverts.iter().any(|carried| Advert::decode(carried.body).is_ok()),
        Ok(_) => true,
        Err(_) => false,
    }
}

/// A datagram with some bytes changed, cut off, put in or repeated.
fn broken(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.between(1, 3) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(5) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
            1 if !bytes.is_empty() => bytes[at] = rng.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, rng.bits() as u8),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

fn drain(machine: &mut Discovery) -> usize {
    std::iter::from_fn(|| machine.poll()).count()
}

#[test]
fn what_cannot_be_read_changes_nothing() {
    let mut refused = 0;
    each_seed("discovery_fuzz::what_cannot_be_read_changes_nothing", 20, |seed| {
        let mut rng = Rng::new(seed);
        let (mut us, sent) = side_by_side(false);
        drain(&mut us);
        let (view, held) = (us.view().clone(), us.database().summary());
        for _ in 0..2000 {
            // given random bytes behind a sound head, or a sound datagram that was broken on its way
            let bytes = if rng.percent(30) {
                let mut bytes: Vec<u8> = sent[0][..7].to_vec();
                bytes[6] = rng.between(0, 4) as u8;
                bytes.extend((0..rng.below(1600)).map(|_| rng.bits() as u8));
                bytes
            } else {
                let at = rng.below(sent.len() as u64) as usize;
                broken(&mut rng, &sent[at])
            };
            // when it cannot be read, or comes from somebody else than a neighbour or to no port of ours
            let (port, from) =
                rng.pick(&[(PORT, THEM), (PORT, Ipv4Addr::new(10, 0, 0, 3)), (PortId(7), THEM), (PortId(2), THEM)]);
            if (port, from) == (PORT, THEM) && is_sound(&bytes) {
                continue;
            }
            us.on_datagram(1000 * MS, port, from, &bytes);
            drain(&mut us);
            refused += 1;
            // then nothing has changed
            if *us.view() != view || us.database().summary() != held {
                return Err(format!("changed by {bytes:?} from {from}"));
            }
        }
        Ok(())
    });
    println!("{refused} datagrams refused");
}

#[test]
fn a_neighbour_gone_mad_breaks_nothing() {
    each_seed("discovery_fuzz::a_neighbour_gone_mad_breaks_nothing", 20, |seed| {
        let mut rng = Rng::new(seed);
        let (mut us, sent) = side_by_side(seed.is_multiple_of(2));
        let mut now: Time = 1000 * MS;
        let mut out = 0;
        for _ in 0..3000 {
            // given anything at all, soundly encoded or not, at any time, also one that goes back
            now = (now + rng.below(20 * MS)).saturating_sub(rng.below(5 * MS));
            let from = rng.pick(&[THEM, THEM, THEM, US, Ipv4Addr::new(10, 0, 0, 3)]);
            let at = rng.below(sent.len() as u64) as usize;
            let bytes = if rng.percent(50) { broken(&mut rng, &sent[at]) } else { made_up(&mut rng) };
            us.on_datagram(now, PORT, from, &bytes);
            if rng.percent(20) {
                us.on_time(now);
            }
            out += drain(&mut us);
            let view = us.view();
            // then every link of the view is one that both its ends advertise, and memory is bounded
            let both = view.links.iter().flatten().all(|end| view.nodes.contains_key(&end.node));
            if !both || us.database().adverts().count() > 1024 {
                return Err("a link of nobody, or too much memory".into());
            }
            let (topology, _) = view.topology(mesh_routing::Policy::default());
            assert_eq!(topology.links().len() - view.lacking(&topology).len(), view.links.len());
        }
        // and it has not made us talk without end
        assert!(out < 3000 * 8, "{out} actions");
        Ok(())
    });
}

/// Something that is soundly encoded and makes little sense.
fn made_up(rng: &mut Rng) -> Vec<u8> {
    let address = |rng: &mut Rng| Ipv4Addr::new(10, 0, rng.below(2) as u8, 1 + rng.below(4) as u8);
    match rng.below(3) {
        0 => {
            let heard = Heard { node: key_of("us"), life: 1, address: US };
            let names = ["us", "them", "x"];
            Beacon {
                id: rng.pick(&names),
                name: rng.pick(&names),
                life: rng.pick(&[0, 1, 2, u64::MAX, 1 << 63]),
                number: rng.bits() as u32,
                features: 0,
                address: THEM,
                prefix: rng.pick(&[30, 24, 29]),
                speed_mbps: 0,
                mtu: 0,
                rail: 0,
                asks: rng.percent(50),
                switched: rng.percent(30),
                summary: Summary { count: rng.below(3), hash: rng.below(3) },
                heard: vec![heard; rng.below(3) as usize],
            }
            .encode()
        }
        1 => Digest { first: rng.pick(&[0, 5, u64::MAX]), last: rng.pick(&[0, 9, u64::MAX]), entries: Vec::new() }
            .encode(),
        _ => {
            let mut ports = std::collections::BTreeMap::new();
            for _ in 0..rng.below(5) {
                let port = mesh_relay::discovery::AdvertPort {
                    address: address(rng),
                    prefix: rng.pick(&[24, 25, 29]),
                    up: rng.percent(80),
                    switched: rng.percent(50),
                    speed_mbps: 0,
                    mtu: 0,
                    rail: 0,
                    device: String::new(),
                };
                ports.insert(port.address, port);
            }
            let adjacency = |local: &Ipv4Addr, rng: &mut Rng| mesh_relay::discovery::Adjacency {
                local: *local,
                node: key_of(rng.pick(&["us", "them", "x", "y"])),
                remote: address(rng),
            };
            let mut adjacencies = std::collections::BTreeSet::new();
            for port in ports.values() {
                for _ in 0..if port.switched { rng.below(4) } else { 1 } {
                    adjacencies.insert(adjacency(&port.address, rng));
                }
            }
            let id = rng.pick(&["us", "them", "x", "y", "z"]);
            let body = Advert {
                id: id.into(),
                name: id.into(),
                incarnation: rng.pick(&[0, 1, 2, u64::MAX, 1 << 63]),
                seq: rng.below(4) as u32,
                relay: true,
                conflict: rng.percent(10),
                daemon: rng.percent(10),
                features: 0,
                ports: ports.into_values().collect(),
                adjacencies: adjacencies.into_iter().collect(),
                agents: (0..rng.below(3))
                    .map(|n| AgentAt { port: n as u16, job: rng.below(9) as u32, rank: 3 })
                    .collect(),
            }
            .encode();
            pack([Carried { age_ms: rng.below(11_000) as u16, body: &body }].into_iter()).remove(0)
        }
    }
}
