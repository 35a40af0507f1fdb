//! What is found against what is declared: each kind of difference with its line, and random topologies with one
//! mutation each, which must be told, and nothing else.

mod common;

use common::plans;
use mesh_routing::{
    AddressPlan, Difference, NodeSpec, Policy, PortAt, PortSpec, Severity, Shape, Subnet, Topology, compare,
    compare_cables,
};
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn topology(specs: Vec<NodeSpec>) -> Topology {
    Topology::discovered(specs, vec![], Policy::default()).0
}

fn ring() -> Vec<NodeSpec> {
    let mut specs = Shape::Ring.nodes(4, 1, &AddressPlan::default()).expect("a ring").0;
    specs.iter_mut().flat_map(|node| &mut node.ports).for_each(|port| {
        port.speed_mbps = Some(100_000);
        port.mtu = Some(9000);
    });
    specs
}

/// Lines of the differences that a change of a ring of four makes.
fn told(change: impl Fn(&mut Vec<NodeSpec>)) -> Vec<String> {
    let mut found = ring();
    change(&mut found);
    compare(&topology(ring()), &topology(found)).iter().map(line).collect()
}

fn line(difference: &Difference) -> String {
    format!("{} {}: {difference}", difference.severity(), difference.kind())
}

/// The cables of a topology, as addresses.
fn cables(topology: &Topology) -> Vec<[Ipv4Addr; 2]> {
    topology.links().iter().map(|link| link.ends.map(|end| end.address)).collect()
}

#[test]
fn every_difference_of_nodes_and_ports_has_one_line() {
    assert_eq!(told(|_| ()), [""; 0]);
    // a node that is gone: nothing of its ports and cables
    assert_eq!(
        told(|nodes| drop(nodes.remove(2))),
        [
            "fault missing-node: node \"node2\" is declared and not found; start it, cable it, or take it out of the file"
        ]
    );
    assert_eq!(
        told(|nodes| {
            let mut node = NodeSpec { id: Some("m-9".to_owned()), ..NodeSpec::new("x") };
            node.ports.push(PortSpec::new("f0", Ipv4Addr::new(10, 9, 9, 1), 30));
            nodes.push(node);
        }),
        [
            "note extra-node: node \"x\" (id \"m-9\") is found and not declared; add it to the file, or take its cable out"
        ]
    );
    assert_eq!(
        told(|nodes| {
            nodes[1].id = Some("node1".to_owned());
            nodes[1].name = "spark-b".to_owned();
        }),
        [
            "note renamed-node: node \"node1\" calls itself \"spark-b\" (id \"node1\"); correct its name there or in the file"
        ]
    );
    assert_eq!(
        told(|nodes| nodes[3].relay = false),
        [
            "fault relay-differs: node \"node3\" should relay and does not; let it relay, or write relay = false in the file"
        ]
    );
    assert_eq!(
        told(|nodes| drop(nodes[0].ports.remove(0))),
        ["fault missing-port: node \"node0\" has no address 10.200.0.1/30, declared on mesh0; configure it there, or \
          correct the file"]
    );
    assert_eq!(
        told(|nodes| nodes[0].ports.push(PortSpec::new("f9", Ipv4Addr::new(10, 9, 9, 1), 24))),
        ["note port-not-declared: node \"node0\" has 10.9.9.1/24 on f9, which is not declared; add the port to the \
          file, or remove the address"]
    );
    // an address that has wandered: neither missing here nor undeclared there
    assert_eq!(
        told(|nodes| {
            let port = nodes[0].ports.remove(0);
            nodes[2].ports.push(port);
        }),
        [
            "fault address-on-another-node: 10.200.0.1 is on node \"node2\", mesh0, and declared on node \"node0\", mesh0; \
          swap the addresses, or correct the file"
        ]
    );
    assert_eq!(
        told(|nodes| nodes[0].ports[0].prefix = 29),
        ["fault wrong-prefix: node \"node0\", mesh0 (10.200.0.1): prefix length 29, declared 30; set 10.200.0.1/30 \
          there, or correct the file"]
    );
    assert_eq!(
        told(|nodes| nodes[0].ports[0].speed_mbps = Some(25_000)),
        [
            "slower lower-speed: node \"node0\", mesh0 (10.200.0.1): runs at 25G, declared 100G; look at cable, firmware \
          and PCIe lanes, or correct the file"
        ]
    );
    assert_eq!(
        told(|nodes| nodes[0].ports[0].mtu = Some(1500)),
        [
            "slower smaller-mtu: node \"node0\", mesh0 (10.200.0.1): MTU 1500, declared 9000; set it with ip link set, or \
          correct the file"
        ]
    );
    // more than declared, or unknown, is no difference; one below the limit is
    let speed = |mbps| told(|nodes| nodes[0].ports[0].speed_mbps = mbps).len();
    assert_eq!([Some(99_999), Some(100_000), Some(200_000), None].map(speed), [1, 0, 0, 0]);
    let mtu = |mtu| told(|nodes| nodes[0].ports[0].mtu = mtu).len();
    assert_eq!([Some(8999), Some(9000), Some(9001), None].map(mtu), [1, 0, 0, 0]);
}

#[test]
fn a_missing_node_whose_address_another_has_is_told_with_that() {
    // given node 2 gone, and one of its addresses on node 0
    let told = told(|nodes| {
        let gone = nodes.remove(2);
        nodes[0].ports.push(gone.ports[0].clone());
    });
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("fault address-on-another-node: ") && told[1].starts_with("fault missing-node: "));
    // given a machine replaced, with another id and name, then its ports are not told one by one
    let told = self::told(|nodes| nodes[2].name = "new".to_owned());
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("fault missing-node: ") && told[1].starts_with("note extra-node: "));
}

#[test]
fn nodes_are_matched_by_id_and_else_by_name() {
    // given machines that report an id where the file has none, then they are the same nodes
    assert_eq!(
        told(|nodes| nodes.iter_mut().for_each(|node| node.id = Some(format!("machine of {}", node.name)))),
        [""; 0]
    );
    // given two whose names are swapped and whose ids tell, then both are renamed and no port has moved
    let told = told(|nodes| {
        for (at, other) in [(0, 1), (1, 0)] {
            nodes[at].id = Some(format!("node{at}"));
            nodes[at].name = format!("node{other}");
        }
    });
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|line| line.starts_with("note renamed-node: ")));
}

#[test]
fn cables_that_are_pulled_swapped_or_too_many() {
    let declared = topology(ring());
    let all = cables(&declared);
    let told = |cables: &[[Ipv4Addr; 2]]| -> Vec<_> {
        compare_cables(&declared, &declared, cables).iter().map(line).collect()
    };
    assert_eq!(told(&all), [""; 0]);
    assert_eq!(
        told(&all[1..]),
        ["fault missing-cable: no cable joins node0 mesh0 (10.200.0.1) and node1 mesh0 (10.200.0.2); plug it in at \
          both ends, or correct the file"]
    );
    // given one end moved to a port whose own cable is gone: the moved one is told once, the other is missing
    assert_eq!(
        told(&[[all[0][0], all[1][1]], all[2], all[3]]),
        [
            "fault cable-in-another-port: a cable joins node0 mesh0 (10.200.0.1) and node2 mesh0 (10.200.0.6), declared \
          node0 mesh0 (10.200.0.1) and node1 mesh0 (10.200.0.2); move its end, or correct the file",
            "fault missing-cable: no cable joins node1 mesh1 (10.200.0.5) and node2 mesh0 (10.200.0.6); plug it in at \
          both ends, or correct the file"
        ]
    );
    // given two cables swapped, then each is told once
    let swapped = told(&[[all[0][0], all[1][1]], [all[0][1], all[1][0]], all[2], all[3]]);
    assert_eq!(swapped.len(), 2, "{swapped:?}");
    assert!(swapped.iter().all(|line| line.starts_with("fault cable-in-another-port: ")));
    // given one cable more
    let more: Vec<_> = all.iter().copied().chain([[all[2][0], all[0][0]]]).collect();
    assert_eq!(
        told(&more),
        ["note extra-cable: a cable joins node0 mesh0 (10.200.0.1) and node2 mesh1 (10.200.0.9), which is not \
          declared; take it out, or correct the file"]
    );
}

#[test]
fn a_chain_of_moved_cables_is_told_with_as_few_words_as_can_be() {
    // given the missing cables p-q and q'-r where one surplus cable could stand for either, and one for the first alone
    let declared = topology(ring());
    let all = cables(&declared);
    let found = [[all[0][0], all[1][0]], [all[0][1], all[2][0]], all[3]];
    let kinds: Vec<_> = compare_cables(&declared, &declared, &found).iter().map(Difference::kind).collect();
    // then three missing and two surplus make two moves and one missing
    assert_eq!(kinds.iter().filter(|kind| **kind == "cable-in-another-port").count(), 2, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "missing-cable").count(), 1, "{kinds:?}");
    assert_eq!(kinds.len(), 3, "{kinds:?}");
}

#[test]
fn a_port_off_its_switch_is_told_once() {
    // given five nodes on a declared switch, one of them joined with nobody
    let declared = Topology::from_shape(Shape::Switch, 5, 1, &AddressPlan::default()).expect("a switch");
    let off = declared.nodes()[3].ports[0].address;
    let all = cables(&declared);
    let found: Vec<_> = all.iter().copied().filter(|cable| !cable.contains(&off)).collect();
    let told: Vec<_> = compare_cables(&declared, &declared, &found).iter().map(line).collect();
    assert_eq!(
        told,
        ["fault off-switch: node \"node3\", mesh0 (10.200.0.4) reaches no other port of the switched segment \
          10.200.0.0/29; plug its cable into the switch"]
    );
    assert!(compare_cables(&declared, &declared, &all).is_empty());
}

#[test]
fn severities_are_ordered() {
    assert!(Severity::Note < Severity::Slower && Severity::Slower < Severity::Fault);
}

/// One change of what is found.
#[derive(Clone, Debug)]
enum Mutation {
    Nothing,
    RemoveNode,
    AddNode,
    Rename,
    OtherId,
    FlipRelay,
    RemovePort,
    AddPort,
    MovePort,
    Prefix(u8),
    Speed(Option<u32>),
    Mtu(Option<u32>),
    PullCable,
    AddCable,
}

fn mutations() -> impl Strategy<Value = Mutation> {
    use Mutation::*;
    let fixed = vec![
        Nothing, RemoveNode, AddNode, Rename, OtherId, FlipRelay, RemovePort, AddPort, MovePort, PullCable, AddCable,
    ];
    prop_oneof![
        11 => prop::sample::select(fixed),
        1 => prop_oneof![Just(29), Just(31)].prop_map(Prefix),
        1 => proptest::option::of(prop_oneof![Just(10_000), Just(25_000), Just(200_000)]).prop_map(Speed),
        1 => proptest::option::of(prop_oneof![Just(1500), Just(9000), Just(9216)]).prop_map(Mtu),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn one_change_is_told_and_nothing_else(
        plan in plans(),
        mutation in mutations(),
        pick in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
    ) {
        let mut specs = plan.specs();
        specs.iter_mut().flat_map(|node| &mut node.ports).for_each(|port| port.mtu = Some(9000));
        let declared = topology(specs.clone());
        let mut wires = cables(&declared);
        let node = pick.index(specs.len());
        let name = specs[node].name.clone();
        let ports: Vec<_> =
            (0..specs.len()).flat_map(|node| (0..specs[node].ports.len()).map(move |port| (node, port))).collect();
        let at = |specs: &[NodeSpec], (node, port): (usize, usize)| {
            let spec: &NodeSpec = &specs[node];
            PortAt { node: spec.name.clone(), device: spec.ports[port].device.clone(), address: spec.ports[port].address }
        };
        let port = if ports.is_empty() { None } else { Some(*pick.get(&ports)) };
        let ends = |cable: &[Ipv4Addr; 2]| {
            let of = |address| *ports.iter().find(|&&(node, port)| specs[node].ports[port].address == address).expect("known");
            cable.map(|end| at(&specs, of(end)))
        };
        let mut changed = specs.clone();
        let mut by_cables = false;
        // given one change of what is found, then what it must be told as
        let expected: Option<Difference> = match (mutation, port) {
            (Mutation::Nothing, _) => None,
            (Mutation::RemoveNode, _) => {
                changed.remove(node);
                Some(Difference::MissingNode { node: name.clone(), id: name })
            }
            (Mutation::AddNode, _) => {
                let mut more = NodeSpec::new("more");
                more.ports.push(PortSpec::new("p", Ipv4Addr::new(11, 0, 0, 1), 30));
                changed.push(more);
                Some(Difference::ExtraNode { node: "more".to_owned(), id: "more".to_owned() })
            }
            (Mutation::Rename, _) => {
                changed[node].id = Some(name.clone());
                changed[node].name = "other".to_owned();
                Some(Difference::RenamedNode { id: name.clone(), declared: name, found: "other".to_owned() })
            }
            (Mutation::OtherId, _) => {
                changed[node].id = Some("machine".to_owned());
                None
            }
            (Mutation::FlipRelay, _) => {
                changed[node].relay ^= true;
                Some(Difference::RelayDiffers { node: name, declared: specs[node].relay })
            }
            (Mutation::AddPort, _) => {
                changed[node].ports.push(PortSpec::new("p", Ipv4Addr::new(11, 0, 0, 1), 30));
                let port = PortAt { node: name, device: "p".to_owned(), address: Ipv4Addr::new(11, 0, 0, 1) };
                Some(Difference::PortNotDeclared { port, prefix: 30 })
            }
            (Mutation::RemovePort, Some(port)) => {
                changed[port.0].ports.remove(port.1);
                Some(Difference::MissingPort { port: at(&specs, port), prefix: 30 })
            }
            (Mutation::MovePort, Some(port)) => {
                let to = (port.0 + 1 + second.index(specs.len() - 1)) % specs.len();
                let moved = changed[port.0].ports.remove(port.1);
                changed[to].ports.push(moved);
                let there = (to, changed[to].ports.len() - 1);
                Some(Difference::AddressOnAnotherNode { declared: at(&specs, port), found: at(&changed, there) })
            }
            (Mutation::Prefix(prefix), Some(port)) => {
                let spec = &mut changed[port.0].ports[port.1];
                spec.prefix = prefix;
                prop_assume!(Subnet::of(spec.address, prefix).is_some_and(|subnet| subnet.is_host(spec.address)));
                Some(Difference::WrongPrefix { port: at(&specs, port), declared: 30, found: prefix })
            }
            (Mutation::Speed(speed), Some(port)) => {
                let declared = changed[port.0].ports[port.1].speed_mbps;
                changed[port.0].ports[port.1].speed_mbps = speed;
                declared.zip(speed).filter(|(declared, found)| found < declared).map(|(declared_mbps, found_mbps)| {
                    Difference::LowerSpeed { port: at(&specs, port), declared_mbps, found_mbps }
                })
            }
            (Mutation::Mtu(mtu), Some(port)) => {
                changed[port.0].ports[port.1].mtu = mtu;
                mtu.filter(|&mtu| mtu < 9000).map(|found| {
                    Difference::SmallerMtu { port: at(&specs, port), declared: 9000, found }
                })
            }
            (Mutation::PullCable, Some(_)) => {
                by_cables = true;
                let cable = wires.remove(pick.index(wires.len()));
                Some(Difference::MissingCable { ends: ends(&cable) })
            }
            (Mutation::AddCable, Some(_)) if wires.len() > 1 => {
                by_cables = true;
                let first = pick.index(wires.len());
                let other = (first + 1 + second.index(wires.len() - 1)) % wires.len();
                let (a, b) = (wires[first][0], wires[other][1]);
                wires.push([b, a]);
                Some(Difference::ExtraCable { ends: ends(&[a.min(b), a.max(b)]) })
            }
            (_, _) => None,
        };
        // when it is compared with what was declared
        let found = topology(changed.clone());
        let told = if by_cables { compare_cables(&declared, &found, &wires) } else { compare(&declared, &found) };
        // then that is all that is told
        prop_assert_eq!(&told, &expected.into_iter().collect::<Vec<_>>());
        // and whatever the order in which nodes and ports were listed
        changed.reverse();
        changed.iter_mut().for_each(|node| node.ports.reverse());
        let shuffled = plan.shuffled.iter().map(|&node| specs[node].clone()).collect();
        if !by_cables {
            prop_assert_eq!(compare(&topology(shuffled), &topology(changed)), told);
        }
    }

    #[test]
    fn whatever_is_compared_each_cable_and_port_is_told_once(one in plans(), other in plans()) {
        // given two topologies that have only addresses in common
        let (declared, found) = (one.topology(), other.topology());
        let told = compare(&declared, &found);
        let mut seen = std::collections::HashSet::new();
        prop_assert!(told.iter().all(|difference| seen.insert(difference)), "{told:?}");
        // then there are no more differences than nodes, values of ports, and cables
        let ports = |topology: &Topology| topology.nodes().iter().map(|node| node.ports.len()).sum::<usize>();
        let nodes = declared.nodes().len() * 2 + found.nodes().len();
        prop_assert!(told.len() <= nodes + 3 * (ports(&declared) + ports(&found)), "{told:?}");
        prop_assert!(compare(&declared, &declared).is_empty());
    }
}
