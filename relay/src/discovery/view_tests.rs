//! Which links a set of advertisements makes, and what is left out of them.

use mesh_routing::Policy;

use super::*;
use crate::discovery::advert::key_of;

/// A port as `10.0.0.1/30`, or `10.0.0.1/24 switched`.
fn port(text: &str) -> AdvertPort {
    let (text, switched) = text.strip_suffix(" switched").map_or((text, false), |text| (text, true));
    let (address, prefix) = text.split_once('/').expect("address/prefix");
    let (address, prefix) = (address.parse().expect("address"), prefix.parse().expect("prefix"));
    AdvertPort { address, prefix, up: true, switched, speed_mbps: 0, mtu: 0, rail: 0, device: "f".into() }
}

/// A cluster as nodes with ports, and cables between ports.
struct Cluster(BTreeMap<u64, Advert>);

impl Cluster {
    fn new(nodes: &[(&str, &[&str])], cables: &[(&str, &str)]) -> Self {
        let mut all = BTreeMap::new();
        for (name, ports) in nodes {
            let mut ports: Vec<AdvertPort> = ports.iter().map(|text| port(text)).collect();
            ports.sort_by_key(|port| port.address);
            let (id, name) = (format!("id-{name}"), (*name).to_owned());
            let advert = Advert {
                id: id.clone(),
                name,
                incarnation: 1,
                seq: 1,
                relay: true,
                conflict: false,
                daemon: false,
                features: 0,
                ports,
                adjacencies: Vec::new(),
                agents: Vec::new(),
            };
            all.insert(key_of(&id), advert);
        }
        let mut cluster = Self(all);
        for (a, b) in cables {
            cluster.join(a, b);
        }
        cluster
    }

    /// A cable between two ports, named `node address`.
    fn join(&mut self, a: &str, b: &str) {
        for (one, two) in [(a, b), (b, a)] {
            let split = |end: &str| {
                let (node, address) = end.split_once(' ').expect("node address");
                (key_of(&format!("id-{node}")), address.parse::<Ipv4Addr>().expect("address"))
            };
            let ((own, local), (node, remote)) = (split(one), split(two));
            let adjacencies = &mut self.0.get_mut(&own).expect("a node").adjacencies;
            adjacencies.push(Adjacency { local, node, remote });
            adjacencies.sort();
        }
    }

    fn node(&mut self, name: &str) -> &mut Advert {
        self.0.get_mut(&key_of(&format!("id-{name}"))).expect("a node")
    }

    fn view(&self, name: &str) -> View {
        View::of(key_of(&format!("id-{name}")), self.0.iter().map(|(key, advert)| (*key, advert)))
    }
}

fn links(view: &View) -> Vec<String> {
    view.links.iter().map(|[a, b]| format!("{}-{}", a.address, b.address)).collect()
}

/// The links that routes see are those of the view.
fn routed(view: &View) -> Vec<String> {
    let (topology, _) = view.topology(Policy::default());
    topology.links().iter().map(|link| format!("{}-{}", link.ends[0].address, link.ends[1].address)).collect()
}

/// a - b - c, and a cable to d that is not connected.
fn line() -> Cluster {
    Cluster::new(
        &[
            ("a", &["10.0.0.1/30"]),
            ("b", &["10.0.0.2/30", "10.0.1.1/31"]),
            ("c", &["10.0.1.0/31", "10.0.2.1/24"]),
            ("d", &["10.0.3.1/24"]),
        ],
        &[("a 10.0.0.1", "b 10.0.0.2"), ("b 10.0.1.1", "c 10.0.1.0")],
    )
}

#[test]
fn a_link_counts_when_both_ends_say_so_and_all_in_its_part_see_it_alike() {
    let mut cluster = line();
    let view = cluster.view("a");
    assert_eq!(links(&view), ["10.0.0.1-10.0.0.2", "10.0.1.0-10.0.1.1"]);
    assert_eq!((view.nodes.len(), view.faults.len()), (3, 0));
    assert_eq!(routed(&view), links(&view));
    assert!(["b", "c"].iter().all(|name| cluster.view(name) == view));
    assert_eq!(cluster.view("d").nodes.len(), 1);
    // when one end withdraws it, then it is gone at once, and what was behind it
    cluster.node("b").adjacencies.pop();
    assert_eq!(links(&cluster.view("a")), ["10.0.0.1-10.0.0.2"]);
    assert_eq!(cluster.view("a").nodes.len(), 2);
    // when a port has no carrier, then what its node still says of it does not count
    cluster.node("a").ports[0].up = false;
    assert!(cluster.view("b").links.is_empty());
}

#[test]
fn prefix_lengths_may_differ_as_long_as_each_port_lies_in_the_others_subnet() {
    let mixed = Cluster::new(
        &[("a", &["10.0.0.1/30"]), ("b", &["10.0.0.2/24", "10.0.1.1/24"]), ("c", &["10.0.1.9/29"])],
        &[("a 10.0.0.1", "b 10.0.0.2"), ("b 10.0.1.1", "c 10.0.1.9")],
    );
    let view = mixed.view("a");
    assert_eq!(links(&view), ["10.0.0.1-10.0.0.2"]);
    assert_eq!(routed(&view), links(&view), "also for routes");
}

#[test]
fn one_address_on_two_nodes_takes_both_out() {
    let mut cluster = line();
    let mut copied = port("10.0.0.1/30");
    copied.device = "copied".into();
    cluster.node("c").ports.insert(0, copied);
    let view = cluster.view("a");
    let address = Ipv4Addr::new(10, 0, 0, 1);
    assert!(matches!(view.faults.first(), Some(Fault::SameAddress { address: a, .. }) if *a == address));
    assert_eq!(links(&view), ["10.0.1.0-10.0.1.1"]);
    assert_eq!(routed(&view), links(&view));
    assert_eq!(view.nodes.len(), 3, "who loses links is still seen");
    // while the other node is no part of this one, it may have what addresses it likes
    cluster.node("b").adjacencies.clear();
    assert!(cluster.view("a").faults.is_empty());
}

#[test]
fn a_subnet_on_two_ports_of_a_node_takes_both_out() {
    // given a node with two cables to two others, in subnets of which one lies in the other
    let cluster = Cluster::new(
        &[
            ("a", &["10.0.0.1/24", "10.0.0.129/30", "10.0.9.1/30"]),
            ("b", &["10.0.0.2/24"]),
            ("c", &["10.0.0.130/30"]),
            ("d", &["10.0.9.2/30"]),
        ],
        &[("a 10.0.0.1", "b 10.0.0.2"), ("a 10.0.0.129", "c 10.0.0.130"), ("a 10.0.9.1", "d 10.0.9.2")],
    );
    // then neither counts, all others do
    let view = cluster.view("b");
    let ports = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 129)];
    assert!(view.faults.contains(&Fault::SubnetTwice { node: "a".into(), ports }));
    assert_eq!(links(&view), ["10.0.9.1-10.0.9.2"]);
    assert_eq!(routed(&view), links(&view));
    assert_eq!(view.nodes.len(), 4);
}

#[test]
fn a_subnet_with_three_ends_has_no_links_wherever_its_ports_are_cabled() {
    // given a copied address plan: two cables in one subnet
    let cluster = Cluster::new(
        &[
            ("a", &["10.0.0.1/24"]),
            ("b", &["10.0.0.2/24", "10.0.1.1/30"]),
            ("c", &["10.0.1.2/30", "10.0.0.3/24"]),
            ("d", &["10.0.0.4/24"]),
        ],
        &[("a 10.0.0.1", "b 10.0.0.2"), ("b 10.0.1.1", "c 10.0.1.2"), ("c 10.0.0.3", "d 10.0.0.4")],
    );
    let view = cluster.view("a");
    let Some(Fault::ThreeEnds { subnet, ports }) = view.faults.first() else { panic!("no fault: {:?}", view.faults) };
    assert_eq!((subnet.to_string().as_str(), ports.len(), view.faults.len()), ("10.0.0.0/24", 3, 1));
    assert_eq!(links(&view), ["10.0.1.1-10.0.1.2"]);
    assert_eq!(routed(&view), links(&view));
}

#[test]
fn ports_without_a_link_make_none_for_routes() {
    // given a cable that is out, whose ports still share a subnet, and a port that shares with nobody
    let mut cluster = line();
    cluster.node("a").adjacencies.clear();
    cluster.node("c").adjacencies.push(Adjacency {
        local: Ipv4Addr::new(10, 0, 2, 1),
        node: key_of("id-a"),
        remote: Ipv4Addr::new(10, 0, 2, 2),
    });
    let extra = port("10.0.2.2/24");
    let a = cluster.node("a");
    a.ports.push(extra);
    a.adjacencies.push(Adjacency {
        local: Ipv4Addr::new(10, 0, 2, 2),
        node: key_of("id-c"),
        remote: Ipv4Addr::new(10, 0, 2, 1),
    });
    let view = cluster.view("a");
    // then routes see the links of the view alone
    assert_eq!(links(&view), ["10.0.1.0-10.0.1.1", "10.0.2.1-10.0.2.2"]);
    assert_eq!(routed(&view), links(&view));
}

#[test]
fn two_nodes_with_one_name_are_told_and_keep_their_links() {
    let mut cluster = line();
    cluster.node("c").name = "a".into();
    let view = cluster.view("a");
    assert_eq!(view.faults.len(), 1);
    assert_eq!(view.links.len(), 2);
    assert_eq!(routed(&view).len(), 2);
}

#[test]
fn a_node_whose_id_is_in_use_elsewhere_has_no_links() {
    let mut cluster = line();
    cluster.node("b").conflict = true;
    let view = cluster.view("a");
    assert!(view.links.is_empty());
    assert_eq!(view.faults.first(), Some(&Fault::SameId { id: "id-b".into() }));
}

#[test]
fn names_and_ids_of_the_topology_are_those_that_were_advertised() {
    let mut cluster = line();
    cluster.node("c").relay = false;
    let (topology, problems) = cluster.view("a").topology(Policy::default());
    assert_eq!(problems, []);
    let names: Vec<_> = topology.nodes().iter().map(|node| (node.name.as_str(), node.stable_id.as_str())).collect();
    assert_eq!(names, [("a", "id-a"), ("b", "id-b"), ("c", "id-c")]);
    assert_eq!(topology.nodes().iter().map(|node| node.relay).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(topology.nodes()[0].key, key_of("id-a"));
}

/// a, b and c on a segment, and b - d by a cable.
fn segment(ports: [&str; 3]) -> Cluster {
    let nodes =
        [("a", &[ports[0]][..]), ("b", &[ports[1], "10.0.1.1/30"]), ("c", &[ports[2]]), ("d", &["10.0.1.2/30"])];
    let cables = [
        ("a 10.0.0.1", "b 10.0.0.2"),
        ("a 10.0.0.1", "c 10.0.0.3"),
        ("b 10.0.0.2", "c 10.0.0.3"),
        ("b 10.0.1.1", "d 10.0.1.2"),
    ];
    Cluster::new(&nodes, &cables)
}

#[test]
fn any_two_ports_of_a_switched_segment_are_a_link_and_the_topology_says_that_it_is_one() {
    let mut cluster = segment(["10.0.0.1/24 switched", "10.0.0.2/24 switched", "10.0.0.3/24 switched"]);
    let view = cluster.view("d");
    let all = ["10.0.0.1-10.0.0.2", "10.0.0.1-10.0.0.3", "10.0.0.2-10.0.0.3", "10.0.1.1-10.0.1.2"];
    assert_eq!((links(&view), view.faults.len()), (all.map(String::from).to_vec(), 0));
    let (topology, problems) = view.topology(Policy::default());
    assert_eq!(
        (topology.switches(), problems),
        (&[Subnet::of([10, 0, 0, 0].into(), 24).expect("a subnet")][..], vec![])
    );
    assert_eq!((routed(&view), view.lacking(&topology)), (links(&view), vec![]));
    // when two do not hear each other, then all three are on the segment, and the link between the two is to be avoided
    cluster.node("a").adjacencies.retain(|adjacency| adjacency.remote != Ipv4Addr::new(10, 0, 0, 3));
    let view = cluster.view("d");
    let (topology, _) = view.topology(Policy::default());
    let lacking: Vec<_> =
        view.lacking(&topology).iter().map(|id| topology.link(*id).ends.map(|end| end.address)).collect();
    assert_eq!(lacking, [[Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 3)]]);
    // when one has no link there, then it is no port of it
    cluster.node("a").adjacencies.clear();
    let view = cluster.view("d");
    assert_eq!((routed(&view), view.topology(Policy::default()).0.nodes().len()), (links(&view), 3));
    // when only one is left there, then it is still a segment, which has one port
    cluster.node("b").adjacencies.retain(|adjacency| adjacency.remote.octets()[2] == 1);
    let (topology, _) = cluster.view("d").topology(Policy::default());
    assert_eq!((topology.nodes().len(), topology.links().len(), topology.switches().len()), (2, 1, 1));
}

#[test]
fn a_segment_that_not_all_declare_has_no_links_and_it_is_said_in_a_line() {
    let cluster = segment(["10.0.0.1/24 switched", "10.0.0.2/24", "10.0.0.3/24 switched"]);
    let view = cluster.view("d");
    assert_eq!(view.faults.len(), 1, "{:?}", view.faults);
    let text = view.faults.first().map(ToString::to_string).unwrap_or_default();
    assert!(
        text.starts_with("10.0.0.0/24 is declared to be switched at 10.0.0.1 of a, and not at 10.0.0.2 of b"),
        "{text}"
    );
    assert_eq!(links(&view), ["10.0.1.1-10.0.1.2"]);
    assert_eq!(routed(&view), links(&view));
    // nor one that some declare with another length
    let view = segment(["10.0.0.1/24 switched", "10.0.0.2/24 switched", "10.0.0.3/25 switched"]).view("d");
    assert!(view.faults.iter().all(|fault| matches!(fault, Fault::ThreeEnds { .. })) && !view.faults.is_empty());
    assert_eq!((links(&view), routed(&view)), (vec!["10.0.1.1-10.0.1.2".to_owned()], links(&view)));
    // two ports are a link whatever they say: with two ends it is clear what is meant
    let cluster =
        Cluster::new(&[("a", &["10.0.0.1/24 switched"]), ("b", &["10.0.0.2/24"])], &[("a 10.0.0.1", "b 10.0.0.2")]);
    let view = cluster.view("a");
    assert_eq!((links(&view).len(), view.faults.len(), view.topology(Policy::default()).0.switches().len()), (1, 0, 0));
    assert_eq!(routed(&view), links(&view));
}

#[test]
fn what_is_ambiguous_on_a_segment_takes_out_its_own_links_only() {
    // given a node with two ports on the segment
    let ports = ["10.0.0.1/24 switched", "10.0.0.2/24 switched", "10.0.0.3/24 switched"];
    let mut cluster = segment(ports);
    cluster.node("a").ports.push(port("10.0.0.9/24 switched"));
    let view = cluster.view("d");
    assert!(matches!(view.faults.first(), Some(Fault::SubnetTwice { .. })) && view.faults.len() == 1);
    assert_eq!(links(&view), ["10.0.0.2-10.0.0.3", "10.0.1.1-10.0.1.2"]);
    assert_eq!(routed(&view), links(&view));
    // given one address on two
    let mut cluster = segment(ports);
    cluster.node("d").ports.insert(0, port("10.0.0.1/24 switched"));
    let view = cluster.view("d");
    assert!(view.faults.iter().any(|fault| matches!(fault, Fault::SameAddress { .. })));
    assert_eq!(links(&view), ["10.0.0.2-10.0.0.3", "10.0.1.1-10.0.1.2"]);
    assert_eq!(routed(&view), links(&view));
}
