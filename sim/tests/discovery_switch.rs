//! Declared switched segments: what is found is what was declared, whatever becomes of one port is known to all, and what nobody declared, or
//! not all, makes no link.

mod common;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use common::{each_seed, shape};
use mesh_relay::discovery::{Config, Event, Fault, MAX_ADJACENCIES, MS, PortInfo, View};
use mesh_routing::{Policy, Router, Shape, Topology, compare};
use mesh_sim::discovery::{BOUND, Cut, Weather, World};

/// Links that lose one datagram in twenty, repeat some, and let them overtake one another.
const BAD: Weather = Weather { latency: (20_000, 5 * MS), lose: 50, repeat: 20 };

/// Nodes on one switch, who agree.
fn switch(nodes: usize, rails: usize, seed: u64, weather: Weather) -> World {
    let mut world = World::of(&shape(Shape::Switch, nodes, rails), seed, weather);
    world.start_all();
    world.run_for(1000 * MS);
    world
}

fn view(world: &World, node: usize) -> &View {
    world.view(node).expect("it runs")
}

fn found(world: &World, node: usize) -> Topology {
    view(world, node).topology(Policy::default()).0
}

/// What a node noted, but for neighbours that come and go.
fn notes(world: &World, node: usize) -> Vec<&Event> {
    let boring = |event: &&Event| !matches!(event, Event::NeighbourUp { .. } | Event::NeighbourDown { .. });
    world.notes(node).iter().map(|(_, event)| event).filter(boring).collect()
}

/// Nodes a, b, c, … with ports `(address, prefix, switched)`, not started.
fn world(nodes: &[&[([u8; 4], u8, bool)]]) -> World {
    let mut world = World::new(1, Weather::default());
    for (index, ports) in nodes.iter().enumerate() {
        let name = char::from(b'a' + index as u8).to_string();
        let node = world.add_node(Config::new(format!("id-{name}"), name, 1));
        for &(address, prefix, switched) in *ports {
            world.add_port(node, PortInfo { switched, ..PortInfo::new("f", address.into(), prefix) });
        }
    }
    world
}

#[test]
fn what_is_found_is_the_segment_that_was_declared() {
    // given as many nodes as can be neighbours of one another, on one rail and on two, and fewer
    for (nodes, rails) in [(2, 1), (3, 1), (8, 2), (MAX_ADJACENCIES / 2 + 1, 2), (MAX_ADJACENCIES + 1, 1)] {
        let topology = shape(Shape::Switch, nodes, rails);
        let world = switch(nodes, rails, 1, Weather::default());
        // then every node finds the declared topology, and nobody has anything to say
        assert!(world.agrees(), "{nodes} nodes, {rails} rails: {:?}", world.wrong());
        for node in 0..nodes {
            let found = found(&world, node);
            assert_eq!((found.hash(), compare(&topology, &found)), (topology.hash(), vec![]), "{}", found.to_toml());
            assert!(notes(&world, node).is_empty(), "{:?}", notes(&world, node));
        }
    }
}

#[test]
fn more_nodes_on_a_segment_than_can_be_neighbours_are_told_and_reached_over_others() {
    let nodes = MAX_ADJACENCIES + 8;
    let mut world = switch(nodes, 1, 1, Weather::default());
    world.run_for(2000 * MS);
    let quiet_since = world.now();
    world.run_for(5000 * MS);
    assert!(world.ghosts().is_empty());
    for node in 0..nodes {
        // then all see all, nothing changes any more, each says once that there are too many, and nothing else
        assert_eq!(view(&world, node), view(&world, 0));
        assert_eq!((view(&world, node).nodes.len(), view(&world, node).faults.len()), (nodes, 0));
        assert!(world.changed_at(node) < quiet_since, "node {node}");
        assert!(matches!(notes(&world, node)[..], [Event::NoRoom { .. }]), "{:?}", notes(&world, node));
    }
    // and every pair has a route over links that there are
    let topology = found(&world, 0);
    let lacking = view(&world, 0).lacking(&topology);
    let router = Router::avoiding(&topology, &lacking, &[]);
    let ids: Vec<_> = topology.nodes().iter().map(|node| node.id).collect();
    let hops: BTreeSet<_> = ids.iter().flat_map(|a| ids.iter().map(|b| router.distance(*a, *b))).collect();
    assert!(!lacking.is_empty() && hops.iter().all(|hops| hops.is_some_and(|hops| hops <= 2)), "{hops:?}");
}

#[test]
fn a_port_that_is_off_the_switch_is_known_to_all_within_the_bound() {
    let mut worst = [[0; 3]; 2];
    each_seed("discovery_switch::a_port_that_is_off_the_switch_is_known_to_all_within_the_bound", 30, |seed| {
        for (row, weather) in [Weather::default(), BAD].into_iter().enumerate() {
            for (column, how) in [Cut::Seen, Cut::Silent, Cut::OneWay].into_iter().enumerate() {
                // given eight nodes on a switch, when the cable of one of them is cut
                let mut world = switch(8, 1, seed, weather);
                world.set_switch_port(0, 3, Some(how));
                let took = world.settle(BOUND).ok_or_else(|| format!("{how:?}, {weather:?}"))?;
                worst[row][column] = worst[row][column].max(took);
                // then the other seven are linked as before, and have lost that one only
                let links = view(&world, 0).links.len();
                let lost = world.notes(0).iter().filter(|(_, note)| matches!(note, Event::NeighbourDown { .. }));
                if links != 21 || (row == 0 && lost.count() != 1) || !notes(&world, 0).is_empty() {
                    return Err(format!("{how:?}, {weather:?}: {links} links, {:?}", world.notes(0)));
                }
                // when it is mended, then all are
                world.set_switch_port(0, 3, None);
                world.settle(BOUND).ok_or_else(|| format!("{how:?}, {weather:?}: mended"))?;
            }
        }
        Ok(())
    });
    for (weather, [seen, silent, one_way]) in ["good", "bad"].into_iter().zip(worst.map(|row| row.map(|t| t / MS))) {
        println!("{weather} links: seen {seen} ms, by silence {silent} ms, one way {one_way} ms");
    }
}

#[test]
fn a_node_that_starts_anew_costs_the_others_nothing() {
    let mut world = switch(6, 2, 1, Weather::default());
    world.stop(2);
    world.run_for(50 * MS);
    world.start(2, 1);
    assert!(world.settle(600 * MS).is_some());
    let lost = |node: usize| {
        let down = world.notes(node).iter().filter_map(|(_, note)| match note {
            Event::NeighbourDown { node, .. } => Some(node.as_str()),
            _ => None,
        });
        down.collect::<BTreeSet<_>>()
    };
    assert_eq!(lost(0), BTreeSet::from(["node2"]));
    assert_eq!((view(&world, 0).links.len(), lost(2)), (30, BTreeSet::new()));
}

#[test]
fn a_segment_that_one_node_does_not_declare_leaves_that_one_out() {
    // given three on a switch of whom one takes it for a cable
    let ports: Vec<_> = [true, true, false].iter().zip(1..).map(|(s, n)| [([10, 0, 0, n], 24, *s)]).collect();
    let mut world = world(&ports.iter().map(<[_; 1]>::as_slice).collect::<Vec<_>>());
    world.switch(&[(0, 0), (1, 0), (2, 0)]);
    world.start_all();
    world.run_for(5000 * MS);
    // then the two who declare it have a link, and the third says what is wrong
    assert_eq!((view(&world, 0).links.len(), view(&world, 0).nodes.len()), (1, 2));
    assert_eq!(view(&world, 0), view(&world, 1));
    assert!(view(&world, 2).links.is_empty());
    let told = notes(&world, 2);
    assert!(matches!(told[..], [Event::ThreeEnds { .. }]), "{told:?}");
    assert!(told[0].to_string().contains("NCCL_MESH_SWITCHES"), "{told:?}");
}

#[test]
fn a_segment_on_which_nodes_disagree_that_are_joined_otherwise_has_no_links_and_all_say_so_once() {
    // given the same, and a cable between the second and the third
    let ports: [&[_]; 3] = [
        &[([10, 0, 0, 1], 24, true)],
        &[([10, 0, 0, 2], 24, true), ([10, 0, 1, 1], 30, false)],
        &[([10, 0, 0, 3], 24, false), ([10, 0, 1, 2], 30, false)],
    ];
    let mut world = world(&ports);
    world.switch(&[(0, 0), (1, 0), (2, 0)]);
    world.cable(&[(1, 1), (2, 1)]);
    world.start_all();
    world.run_for(5000 * MS);
    let cable = [[10, 0, 1, 1], [10, 0, 1, 2]].map(Ipv4Addr::from);
    for node in 0..3 {
        let links: Vec<_> = view(&world, node).links.iter().map(|ends| ends.map(|end| end.address)).collect();
        assert_eq!(links, [cable], "node {node}");
        let told = notes(&world, node);
        let of_view = told.iter().filter(|note| matches!(note, Event::Fault(Fault::HalfSwitched { .. })));
        assert_eq!(of_view.count(), 1, "node {node}: {told:?}");
        assert!(told.len() <= 2, "node {node}: {told:?}");
    }
}

#[test]
fn two_with_one_id_on_a_segment_lose_their_own_links_only() {
    // given four on a switch of whom two have one id
    let mut world = World::new(1, Weather::default());
    for (n, id) in ["a", "b", "cloned", "cloned"].into_iter().enumerate() {
        let node = world.add_node(Config::new(id, format!("node{n}"), 1 + n as u64));
        let address = [10, 0, 0, 1 + n as u8].into();
        world.add_port(node, PortInfo { switched: true, ..PortInfo::new("f", address, 24) });
    }
    world.switch(&[(0, 0), (1, 0), (2, 0), (3, 0)]);
    world.start_all();
    world.run_for(5000 * MS);
    // then the two others have their link, and say so once
    for node in 0..2 {
        assert_eq!(view(&world, node).links.len(), 1, "{:?}", view(&world, node));
        let told = notes(&world, node);
        let same_id = |note: &&Event| matches!(note, Event::SameId { .. } | Event::Fault(Fault::SameId { .. }));
        assert!(told.iter().any(same_id) && told.len() < 8, "{told:?}");
    }
    // when one is switched off, then the other is used
    world.stop(3);
    world.run_for(25_000 * MS);
    assert!(world.agrees(), "{:?}", world.wrong());
    assert_eq!(view(&world, 0).links.len(), 3);
}

#[test]
fn what_a_quiet_segment_costs() {
    println!("nodes | sent by a node: bytes/s, datagrams/s");
    for nodes in [4, 16, MAX_ADJACENCIES + 1] {
        let mut world = switch(nodes, 1, 1, Weather::default());
        let (before, seconds) = (world.traffic(), 18);
        world.run_for(seconds * 1000 * MS);
        let after = world.traffic();
        let each = |total: u64| total / nodes as u64 / seconds;
        let (bytes, datagrams) = (each(after.bytes - before.bytes), each(after.datagrams - before.datagrams));
        println!("{nodes:>5} | {bytes}, {datagrams}");
        // then beacons go once to all, and what is passed on is not passed round: both grow with the number of nodes, no faster
        assert!(bytes < 1000 + 300 * nodes as u64 && datagrams < 10 + nodes as u64, "{bytes}, {datagrams}");
    }
}
