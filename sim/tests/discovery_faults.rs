//! Mistakes that people make with cables, addresses and ids: each is told once, in one line, and never makes a wrong link.

mod common;

use std::net::Ipv4Addr;

use common::{each_seed, shape};
use mesh_relay::discovery::{Config, Event, Fault, MS, PortInfo, View, key_of};
use mesh_routing::Shape;
use mesh_sim::discovery::{Cut, Weather, World, random_mistakes};

fn ip(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

/// A world of nodes a, b, c, … with ports as `10.0.0.1/30`, not started.
fn world(nodes: &[&[&str]]) -> World {
    let mut world = World::new(1, Weather::default());
    for (index, ports) in nodes.iter().enumerate() {
        let name = char::from(b'a' + index as u8).to_string();
        let node = world.add_node(Config::new(format!("id-{name}"), name, 1));
        for (port, text) in ports.iter().enumerate() {
            let (address, prefix) = text.split_once('/').expect("address/prefix");
            world.add_port(node, PortInfo::new(format!("f{port}"), ip(address), prefix.parse().expect("a prefix")));
        }
    }
    world
}

fn view(world: &World, node: usize) -> &View {
    world.view(node).expect("it runs")
}

/// Links of a node's view, as text.
fn links(world: &World, node: usize) -> Vec<String> {
    view(world, node).links.iter().map(|[a, b]| format!("{}-{}", a.address, b.address)).collect()
}

/// What a node noted, but for neighbours that come and go.
fn notes(world: &World, node: usize) -> Vec<&Event> {
    let boring = |event: &&Event| !matches!(event, Event::NeighbourUp { .. } | Event::NeighbourDown { .. });
    world.notes(node).iter().map(|(_, event)| event).filter(boring).collect()
}

/// Lets some seconds pass: long enough for anything that is said once a beacon to be said often.
fn wait(world: &mut World) {
    world.run_for(5000 * MS);
    assert!(world.ghosts().is_empty(), "{:?}", world.ghosts());
}

#[test]
fn a_cable_in_the_wrong_port_makes_no_link_and_both_ends_say_so() {
    // given a line a - b - c whose two cables are in each other's ports at b, with prefix lengths of all kinds
    for (prefix, low) in [(30, 1), (31, 0), (24, 1)] {
        let port = |subnet: u32, host: u32| format!("10.0.{subnet}.{}/{prefix}", low + host);
        let ports = [[port(0, 0)].to_vec(), [port(0, 1), port(1, 0)].to_vec(), [port(1, 1)].to_vec()];
        let ports: Vec<Vec<&str>> = ports.iter().map(|all| all.iter().map(String::as_str).collect()).collect();
        let mut world = world(&ports.iter().map(Vec::as_slice).collect::<Vec<_>>());
        world.cable(&[(0, 0), (1, 1)]);
        world.cable(&[(1, 0), (2, 0)]);
        world.start_all();
        wait(&mut world);
        // then there is no link, and each end says once what it heard
        assert!((0..3).all(|node| links(&world, node).is_empty()));
        for (node, faults) in [(0, 1), (1, 2), (2, 1)] {
            let notes = notes(&world, node);
            assert!(notes.iter().all(|note| matches!(note, Event::OutsideSubnet { .. })), "/{prefix}: {notes:?}");
            assert_eq!(notes.len(), faults, "/{prefix}: {notes:?}");
        }
    }
}

#[test]
fn a_cable_between_two_ports_of_one_node_makes_no_link() {
    let mut world = world(&[&["10.0.0.1/24", "10.0.1.1/24"]]);
    world.cable(&[(0, 0), (0, 1)]);
    world.start_all();
    wait(&mut world);
    assert!(links(&world, 0).is_empty());
    assert_eq!(notes(&world, 0).len(), 2, "once a port: {:?}", notes(&world, 0));
    assert!(notes(&world, 0).iter().all(|note| matches!(note, Event::LoopedBack { .. })));
}

#[test]
fn a_link_with_three_ends_makes_no_link_while_all_three_are_there() {
    // given three nodes on a hub
    let mut world = world(&[&["10.0.0.1/24"], &["10.0.0.2/24"], &["10.0.0.3/24"]]);
    world.cable(&[(0, 0), (1, 0), (2, 0)]);
    world.start_all();
    wait(&mut world);
    for node in 0..3 {
        assert!(links(&world, node).is_empty());
        let told = notes(&world, node);
        assert_eq!(told.iter().filter(|note| matches!(note, Event::ThreeEnds { .. })).count(), 1, "{told:?}");
    }
    // when one is switched off, then the other two have a link
    world.stop(2);
    wait(&mut world);
    assert_eq!(links(&world, 0), ["10.0.0.1-10.0.0.2"]);
    assert_eq!(links(&world, 1), ["10.0.0.1-10.0.0.2"]);
}

#[test]
fn one_subnet_on_two_cables_makes_no_link_and_all_say_so() {
    // given a copied address plan: a - b and c - d in one subnet, joined by b - c in another
    let mut world =
        world(&[&["10.0.0.1/24"], &["10.0.0.2/24", "10.0.1.1/30"], &["10.0.0.3/24", "10.0.1.2/30"], &["10.0.0.4/24"]]);
    world.cable(&[(0, 0), (1, 0)]);
    world.cable(&[(1, 1), (2, 1)]);
    world.cable(&[(2, 0), (3, 0)]);
    world.start_all();
    wait(&mut world);
    for node in 0..4 {
        assert_eq!(links(&world, node), ["10.0.1.1-10.0.1.2"]);
        assert_eq!(view(&world, node), view(&world, 0), "all agree");
        let told = notes(&world, node);
        assert_eq!(
            told.iter().filter(|note| matches!(note, Event::Fault(Fault::ThreeEnds { .. }))).count(),
            1,
            "{told:?}"
        );
    }
    // when the address plan is corrected, then all is well
    world.stop(3);
    world.stop(2);
    wait(&mut world);
    assert_eq!(links(&world, 0), ["10.0.0.1-10.0.0.2"]);
    assert!(notes(&world, 0).iter().any(|note| matches!(note, Event::FaultOver(_))));
}

#[test]
fn one_address_on_two_nodes_or_one_subnet_on_two_ports_of_a_node_makes_no_link() {
    // given a ring of three where a and c have one address towards b and a third node
    let mut twice = world(&[
        &["10.0.0.1/30", "10.0.2.1/30"],
        &["10.0.0.2/30", "10.0.1.1/30"],
        &["10.0.1.2/30", "10.0.2.2/30", "10.0.0.1/24"],
    ]);
    twice.cable(&[(0, 0), (1, 0)]);
    twice.cable(&[(1, 1), (2, 0)]);
    twice.cable(&[(0, 1), (2, 1)]);
    twice.start_all();
    wait(&mut twice);
    for node in 0..3 {
        assert_eq!(links(&twice, node), ["10.0.1.1-10.0.1.2", "10.0.2.1-10.0.2.2"]);
        assert!(notes(&twice, node).iter().any(|note| matches!(note, Event::Fault(Fault::SameAddress { .. }))));
    }
    // given a node with two cables, to two nodes, in one subnet
    let mut both = world(&[&["10.0.0.1/24", "10.0.0.2/24"], &["10.0.0.3/24"], &["10.0.0.4/24"]]);
    both.cable(&[(0, 0), (1, 0)]);
    both.cable(&[(0, 1), (2, 0)]);
    both.start_all();
    wait(&mut both);
    for node in 0..3 {
        assert!(links(&both, node).is_empty());
        assert!(notes(&both, node).iter().any(|note| matches!(note, Event::Fault(Fault::SubnetTwice { .. }))));
    }
}

#[test]
fn random_mistakes_never_make_a_link_that_is_not_there() {
    let mut links = 0;
    each_seed("discovery_faults::random_mistakes_never_make_a_link_that_is_not_there", 100, |seed| {
        links += random_mistakes(seed)?;
        Ok(())
    });
    assert!(links > 0, "what is not at fault is used");
}

/// A line of five in which the nodes at these places have one id, in different lives or in the same.
fn twins(one: usize, two: usize, same_life: bool) -> World {
    let topology = shape(Shape::Line, 5, 1);
    let mut world = World::new(1, Weather::default());
    for (index, node) in topology.nodes().iter().enumerate() {
        let id = if index == one || index == two { "cloned".to_owned() } else { node.name.clone() };
        let life = if same_life { 1 } else { 100 + index as u64 };
        let at = world.add_node(Config::new(id, &*node.name, life));
        for port in &node.ports {
            world.add_port(at, PortInfo::new(&*port.device, port.address, port.prefix));
        }
    }
    for link in topology.links() {
        world.cable(&link.ends.map(|end| (end.node.index(), end.port)));
    }
    world
}

#[test]
fn two_nodes_with_one_id_are_not_used_until_one_has_another() {
    // given two hosts with a copied id: far from each other; or with a neighbour in common, or side by side, who will not have them
    for (one, two, same_life) in [(0, 4, false), (0, 4, true), (1, 3, false), (1, 3, true), (2, 3, false), (2, 3, true)]
    {
        let mut world = twins(one, two, same_life);
        world.start_all();
        wait(&mut world);
        wait(&mut world);
        // then no view has links of both, and where they can hear of each other it has links of neither; and somebody has said so
        for node in 0..5 {
            let ends = view(&world, node).links.iter().flatten().filter(|end| end.node == key_of("cloned"));
            let used = |at: usize| ends.clone().any(|end| world.addresses(at).contains(&end.address));
            assert!(!(used(one) && used(two)), "{one} {two} {same_life}: {:?}", links(&world, node));
            assert!(!(used(one) || used(two)) || (one, two) != (0, 4), "{same_life}: {:?}", links(&world, node));
        }
        let told = |node| {
            notes(&world, node).iter().any(|note| {
                matches!(note, Event::SameId { .. } | Event::IdInUse { .. } | Event::Fault(Fault::SameId { .. }))
            })
        };
        assert!(told(one) || told(two) || told(one + 1), "{one} {two} {same_life}");
        assert!((0..5).all(|node| notes(&world, node).len() < 12), "{:?}", notes(&world, one));
        // when one is switched off, then the other is used within the time that advertisements live, and a little more
        world.stop(two);
        world.run_for(25_000 * MS);
        assert!(world.agrees(), "{one} {two} {same_life}: {:?}", world.wrong());
    }
}

#[test]
fn two_ids_under_one_name_keep_their_links_and_are_told() {
    let mut world = World::new(1, Weather::default());
    for (id, address) in [("x", "10.0.0.1"), ("y", "10.0.0.2")] {
        let node = world.add_node(Config::new(id, "spark", 1));
        world.add_port(node, PortInfo::new("f0", ip(address), 30));
    }
    world.cable(&[(0, 0), (1, 0)]);
    world.start_all();
    wait(&mut world);
    assert_eq!(links(&world, 0).len(), 1);
    assert!(matches!(notes(&world, 1)[..], [Event::Fault(Fault::SameName { .. })]));
}

#[test]
fn more_nodes_than_remembered_are_told_and_not_grown_for() {
    // given a ring of sixteen of which one node remembers eight
    let topology = shape(Shape::Ring, 16, 1);
    let mut world = World::new(1, Weather::default());
    for (index, node) in topology.nodes().iter().enumerate() {
        let max_nodes = if index == 0 { 8 } else { 1024 };
        let at = world.add_node(Config { max_nodes, ..Config::new(&*node.name, &*node.name, 1) });
        for port in &node.ports {
            world.add_port(at, PortInfo::new(&*port.device, port.address, port.prefix));
        }
    }
    for link in topology.links() {
        world.cable(&link.ends.map(|end| (end.node.index(), end.port)));
    }
    world.start_all();
    wait(&mut world);
    assert_eq!(world.machine(0).map(|machine| machine.database().adverts().count()), Some(8));
    let told = notes(&world, 0);
    assert!(
        told.iter().all(|note| matches!(note, Event::DatabaseFull { limit: 8, .. })) && told.len() <= 8,
        "{told:?}"
    );
}

#[test]
fn a_renamed_node_and_an_exchanged_one_take_the_place_of_the_old() {
    let mut ring = World::of(&shape(Shape::Ring, 6, 1), 1, Weather::default());
    ring.start_all();
    ring.run_for(1000 * MS);
    // when the third is renamed and started again at once, then it is the same node under another name
    ring.stop(2);
    ring.rename(2, "node2", "renamed");
    ring.start(2, 1);
    ring.run_for(1000 * MS);
    assert!(ring.agrees());
    assert_eq!(view(&ring, 5).nodes[&key_of("node2")].name, "renamed");
    // when it is exchanged for one with another id and the same addresses, then that one is there instead
    ring.stop(2);
    ring.rename(2, "another", "another");
    ring.run_for(200 * MS);
    ring.start(2, 1);
    ring.run_for(1000 * MS);
    assert!(ring.agrees());
    assert!((0..6).all(|node| notes(&ring, node).is_empty()), "nobody has anything to say about it");
}

#[test]
fn a_flapping_cable_is_followed_at_a_bounded_cost() {
    // given a ring whose one cable loses and finds its carrier every millisecond for a second
    let mut ring = World::of(&shape(Shape::Ring, 6, 1), 1, Weather::default());
    ring.start_all();
    ring.run_for(1000 * MS);
    let before = ring.traffic().datagrams;
    for _ in 0..500 {
        ring.cut(0, Cut::Seen);
        ring.run_for(MS);
        ring.mend(0);
        ring.run_for(MS);
    }
    let cost = ring.traffic().datagrams - before;
    // then its two nodes have advertised it no more than once every 20 ms each, to all, over every cable
    assert!(cost < 2 * 50 * 12 + 3000, "{cost} datagrams");
    assert!(ring.settle(500 * MS).is_some());
}
