//! What is known from a file and from what is found, against views made by hand.

use super::*;
use mesh_relay::discovery::{AdvertPort, LinkEnd, ViewNode, key_of};
use mesh_routing::{AddressPlan, Shape};

/// The view that the nodes of a topology come to, but for the links between the ports named.
fn view(topology: &Topology, without: &[[Ipv4Addr; 2]], gone: &[&str]) -> View {
    let mut view = View::default();
    for node in topology.nodes().iter().filter(|node| !gone.contains(&node.name.as_str())) {
        let port = |port: &mesh_routing::Port| AdvertPort {
            address: port.address,
            prefix: port.prefix,
            up: true,
            switched: topology.switches().iter().any(|subnet| subnet.contains(port.address)),
            speed_mbps: 0,
            mtu: 0,
            rail: 0,
            device: port.device.clone(),
        };
        let found = ViewNode {
            id: node.name.clone(),
            name: node.name.clone(),
            relay: true,
            daemon: false,
            agents: vec![AgentAt { port: 17_917, job: 5, rank: 0 }, AgentAt { port: 40_001, job: 7, rank: 0 }],
            features: 0,
            ports: node.ports.iter().map(port).collect(),
        };
        view.nodes.insert(key_of(&node.name), found);
    }
    for link in topology.links() {
        let mut ends = link.ends.map(|end| {
            let node = topology.node(end.node);
            LinkEnd { address: end.address, node: key_of(&node.name) }
        });
        ends.sort();
        let both = ends.iter().all(|end| view.nodes.contains_key(&end.node));
        if both && !without.contains(&[ends[0].address, ends[1].address]) {
            view.links.insert(ends);
        }
    }
    view
}

fn declared(topology: &Topology) -> Known {
    let me = topology.node_by_name("node0").expect("it is there");
    Known {
        topology: topology.clone(),
        router: Router::new(topology),
        me,
        hash: topology.hash(),
        down: BTreeSet::new(),
        agents: HashMap::new(),
    }
}

fn hops(known: &Known, to: &str) -> Option<usize> {
    known.router.distance(known.me, known.topology.node_by_name(to)?)
}

#[test]
fn a_cable_that_was_seen_and_is_gone_is_no_part_of_new_routes() {
    let topology = Topology::from_shape(Shape::Ring, 6, 1, &AddressPlan::default()).expect("a ring");
    let file = declared(&topology);
    let whole = view(&topology, &[], &[]);
    let first = whole.links.iter().next().map(|[a, b]| [a.address, b.address]).expect("a link");
    let mut seen = Seen::default();
    // given a cable that has never been seen, then the file is believed: its other end may just be starting
    let cut = view(&topology, &[first], &[]);
    seen.links.extend(ends_of(&cut));
    assert_eq!(hops(&Known::without(&file, &cut, &seen), "node1"), Some(1));
    // given one that was seen, when it is gone, then routes go the other way round, and come back with it
    seen.links.extend(ends_of(&whole));
    let without = Known::without(&file, &cut, &seen);
    assert_eq!((hops(&without, "node1"), without.down.len(), without.hash), (Some(5), 1, file.hash));
    assert_eq!(hops(&Known::without(&file, &whole, &seen), "node1"), Some(1));
}

#[test]
fn a_cable_at_a_port_without_carrier_is_no_part_of_new_routes() {
    let topology = Topology::from_shape(Shape::Ring, 6, 1, &AddressPlan::default()).expect("a ring");
    let file = declared(&topology);
    // given a port of node1 that has never had carrier, towards node0
    let link = topology.links().iter().find(|link| {
        let names = link.ends.map(|end| topology.node(end.node).name.as_str());
        names.contains(&"node0") && names.contains(&"node1")
    });
    let mut ends = link.expect("a cable").ends.map(|end| end.address);
    ends.sort_unstable();
    let mut dark = view(&topology, &[ends], &[]);
    let ports = &mut dark.nodes.get_mut(&key_of("node1")).expect("it is there").ports;
    ports.iter_mut().find(|port| ends.contains(&port.address)).expect("its port").up = false;
    // then routes go the other way round
    let known = Known::without(&file, &dark, &Seen::default());
    assert_eq!((hops(&known, "node1"), known.down), (Some(5), BTreeSet::from([ends])));
}

#[test]
fn what_the_file_has_a_route_to_may_come_back_and_nothing_else() {
    // given a line, whose second cable was seen and is gone
    let topology = Topology::from_shape(Shape::Line, 3, 1, &AddressPlan::default()).expect("a line");
    let file = declared(&topology);
    let whole = view(&topology, &[], &[]);
    let seen = Seen { links: ends_of(&whole), nodes: whole.nodes.keys().copied().collect() };
    let cut = Known::without(&file, &view(&topology, &[], &["node2"]), &seen);
    // then now nothing leads to its end, but the file does: it is waited for; who is not in the file is not
    let far = key_of("node2");
    assert_eq!((cut.leads_to(far), file.leads_to(far)), (false, true));
    assert!(cut.leads_to(key_of("node1")) && !file.leads_to(key_of("stranger")));
}

#[test]
fn a_node_that_is_gone_relays_nothing() {
    let topology = Topology::from_shape(Shape::Ring, 6, 1, &AddressPlan::default()).expect("a ring");
    let file = declared(&topology);
    let mut seen = Seen::default();
    let whole = view(&topology, &[], &[]);
    seen.links.extend(ends_of(&whole));
    seen.nodes.extend(whole.nodes.keys());
    assert_eq!(hops(&Known::without(&file, &whole, &seen), "node2"), Some(2));
    let known = Known::without(&file, &view(&topology, &[], &["node1"]), &seen);
    assert_eq!(hops(&known, "node2"), Some(4));
}

#[test]
fn on_a_switched_segment_who_does_not_hear_another_reaches_it_by_a_third() {
    let topology = Topology::from_shape(Shape::Switch, 4, 1, &AddressPlan::default()).expect("a switch");
    let pair = ["node0", "node1"].map(|name| {
        let node = topology.node_by_name(name).expect("it is there");
        topology.node(node).ports[0].address
    });
    // given all hear one another, then the topology is the one that was declared, and all are one hop away
    let known = Known::found(&view(&topology, &[], &[]), key_of("node0")).expect("it is there");
    assert_eq!((known.topology.to_toml(), hops(&known, "node1")), (topology.to_toml(), Some(1)));
    // given two that do not, then these go over another, with a file and without
    let partly = view(&topology, &[pair], &[]);
    let known = Known::found(&partly, key_of("node0")).expect("it is there");
    assert_eq!((known.topology.switches(), hops(&known, "node1")), (topology.switches(), Some(2)));
    let mut seen = Seen::default();
    seen.links.extend(ends_of(&view(&topology, &[], &[])));
    let known = Known::without(&declared(&topology), &partly, &seen);
    assert_eq!((hops(&known, "node1"), hops(&known, "node2"), known.down), (Some(2), Some(1), BTreeSet::from([pair])));
}

#[test]
fn what_is_found_is_a_topology_and_says_whom_a_job_relays_by() {
    let topology = Topology::from_shape(Shape::Line, 4, 1, &AddressPlan::default()).expect("a line");
    let mut found = view(&topology, &[], &[]);
    // given a node that is not in the view, then nothing is known
    assert!(Known::found(&found, key_of("stranger")).is_none());
    let known = Known::found(&found, key_of("node0")).expect("it is there");
    assert_eq!((hops(&known, "node3"), known.hash), (Some(3), 0));
    // then a job relays by its own process, and by the one on the shared port where it has none, or where it has no name
    let via = key_of("node1");
    let port = |known: &Known, node, job| known.relay_port(node, job, 17_917);
    assert_eq!([7, 5, 9, 0].map(|job| port(&known, via, job)), [40_001, 0, 0, 0]);
    assert_eq!(port(&known, key_of("stranger"), 7), 0);
    // given a daemon there, then by it
    found.nodes.get_mut(&via).expect("it is there").daemon = true;
    let known = Known::found(&found, key_of("node0")).expect("it is there");
    assert_eq!(port(&known, via, 7), 0);
}
