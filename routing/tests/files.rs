//! Topology files: what is read, and how every fault is told.

use mesh_routing::{Problem, ProblemCode, Topology};
use std::net::Ipv4Addr;

/// The codes of all problems, in the order in which they are told.
fn codes(text: &str) -> Vec<ProblemCode> {
    faults(text).iter().map(|problem| problem.code).collect()
}

fn faults(text: &str) -> Vec<Problem> {
    Topology::from_toml(text).expect_err("a file with faults")
}

/// Two nodes with one cable, the second one's port and whatever follows to be chosen.
fn two(port: &str, rest: &str) -> String {
    format!(
        "schema = 1\n[[node]]\nname = \"a\"\n[[node.port]]\ndevice = \"d0\"\naddress = \"10.0.0.1/30\"\n\
         [[node]]\nname = \"b\"\n[[node.port]]\ndevice = \"d0\"\n{port}\n{rest}"
    )
}

#[test]
fn a_full_file_is_read() {
    let text = r#"
schema = 1

[[node]]
name    = "spark-a"
id      = "machine-1"
control = "10.0.0.11"
relay   = false

[[node.port]]
device  = "rocep1s0f0"
address = "192.168.100.1/31"
speed   = "100G"
mtu     = 9000

[[node.port]]
device  = "rocep1s0f1"
address = "192.168.101.1/30"

[[node]]
name = "spark-b"
[[node.port]]
device  = "rocep1s0f0"
address = "192.168.100.0/31"
speed   = "25G"
[[node.port]]
device  = "rocep1s0f1"
address = "192.168.101.2/30"

[policy]
max_relays = 4
"#;
    let topology = Topology::from_toml(text).expect("a sound file");
    let a = topology.node_by_name("spark-a").expect("named");
    let node = topology.node(a);
    assert_eq!((node.stable_id.as_str(), node.relay), ("machine-1", false));
    assert_eq!(node.control, Some(Ipv4Addr::new(10, 0, 0, 11)));
    assert_eq!(topology.node_by_key(node.key), Some(a));
    assert_eq!((node.ports[0].speed_mbps, node.ports[0].mtu), (Some(100_000), Some(9000)));
    assert_eq!(topology.policy().max_relays, Some(4));
    // Two rails, the slower end sets the speed of a link.
    assert_eq!((topology.edges().len(), topology.links().len()), (1, 2));
    assert_eq!(topology.links()[0].speed_mbps, Some(25_000));
    assert_eq!(topology.links()[1].speed_mbps, None);
    assert!(topology.unlinked_ports().is_empty());
    // It reads back equal.
    assert_eq!(Topology::from_toml(&topology.to_toml()).ok(), Some(topology));
}

#[test]
fn the_order_of_a_file_does_not_change_its_hash_but_its_content_does() {
    let node = |name: &str, address: &str| {
        format!("[[node]]\nname = \"{name}\"\n[[node.port]]\ndevice = \"d\"\naddress = \"{address}\"\n")
    };
    let (a, b) = (node("a", "10.0.0.1/30"), node("b", "10.0.0.2/30"));
    let hash = |text: String| Topology::from_toml(&format!("schema = 1\n{text}")).expect("a sound file").hash();
    let first = hash(format!("{a}{b}"));
    assert_eq!(first, hash(format!("{b}{a}")));
    assert_ne!(first, hash(format!("{a}{b}mtu = 9000\n")));
    assert_ne!(first, hash(format!("{a}{b}[policy]\nmax_relays = 1\n")));
    assert_ne!(first, hash(format!("{a}{}", node("c", "10.0.0.2/30"))));
}

#[test]
fn every_fault_is_told_at_once_with_line_node_and_field() {
    let text = r#"schema = 0
[[node]]
name = "a"
rely = false
[[node.port]]
device = "d0"
address = "10.0.0.300/30"
[[node.port]]
device = "d1"
address = "10.0.0.4/30"
[[node]]
name = "a"
control = "here"
[[node.port]]
device = "d0"
address = "10.0.0.5/33"
speed = "fast"
mtu = 9
"#;
    let told: Vec<_> = faults(text).iter().map(ToString::to_string).collect();
    let expected = [
        "mesh[E64] line 1, schema: no schema 0 exists; use 1",
        "mesh[E61] line 4, node \"a\", rely: unknown key; did you mean \"relay\"?",
        "mesh[E68] line 7, node \"a\", port[0].address: \"10.0.0.300\" is no IPv4 address; write it like \
         \"192.168.100.1/30\"",
        "mesh[E70] line 8, node \"a\", port[1].address: 10.0.0.4 is the network address of 10.0.0.4/30; use one in \
         between",
        "mesh[E65] line 11, node \"a\", name: the name is taken by the 1st node; give each node its own",
        "mesh[E68] line 13, node \"a\", control: \"here\" is no IPv4 address of a host; write it like \"10.0.0.11\"",
        "mesh[E69] line 16, node \"a\", port[0].address: prefix length \"33\" is out of range; use 1 to 31",
        "mesh[E63] line 17, node \"a\", port[0].speed: \"fast\" is no speed; write it like \"100G\" or \"2500M\", bits \
         a second",
        "mesh[E63] line 18, node \"a\", port[0].mtu: 9 is out of range; use 68 to 65535",
    ];
    assert_eq!(told, expected);
}

#[test]
fn no_kind_of_fault_hides_another() {
    // given a file with a fault of every kind that can stand beside others
    let port = |address: &str| format!("[[node.port]]\ndevice = \"d\"\naddress = \"{address}\"\n");
    let node = |head: &str, addresses: &[&str]| {
        format!("[[node]]\n{head}\n{}", addresses.iter().map(|address| port(address)).collect::<String>())
    };
    let text = [
        "schema = 0\nextra = 1\n".to_owned(),
        node("name = \"a\"", &["10.0.0.1/30", "10.0.1.0/30", "10.0.2.1/33", "10.0.3.1/24", "10.0.3.2/24"]),
        node("name = \"a\"\nid = \"x\"", &["10.0.0.1/30", "127.0.0.1/8", "10.0.4.1/24"]),
        node("name = \"b\"\nid = \"x\"\nrelay = 1", &["10.0.4.2/24", "10.0.5.1/24"]),
        node("control = \"c\"", &["10.0.4.3/24", "10.0.5.2/25"]),
        "[[switch]]\nsubnet = \"10.9.0.0/24\"\n[[switch]]\nsubnet = \"10.9.0.0/24\"\n[[policy.route]]\nfrom = \"a\"\nto = \"q\"\nvia = []\n".to_owned(),
    ];
    // when it is read, then every one of them is told; only what hangs on what could not be read is not
    let told: std::collections::BTreeSet<_> = codes(&text.concat()).into_iter().collect();
    let apart = [ProblemCode::Syntax, ProblemCode::Disconnected, ProblemCode::NodeCount, ProblemCode::BadCable];
    let missing: Vec<_> =
        ProblemCode::ALL.iter().filter(|code| !told.contains(code) && !apart.contains(code)).collect();
    assert!(missing.is_empty(), "{missing:?} of {told:?}");
}

#[test]
fn schema_limits() {
    let with = |schema: &str| codes(&format!("{schema}\n[[node]]\nname = \"a\"\n"));
    assert_eq!(with(""), [ProblemCode::Schema]);
    assert_eq!(with("schema = 0"), [ProblemCode::Schema]);
    assert_eq!(with("schema = 2"), [ProblemCode::Schema]);
    assert_eq!(with("schema = \"1\""), [ProblemCode::BadValue]);
    assert!(Topology::from_toml("schema = 1\n[[node]]\nname = \"a\"\n").is_ok());
}

#[test]
fn a_newer_schema_is_all_that_is_told() {
    // given a file of a later release, with keys that this one does not know, when read, then that is the one line
    let told = faults("schema = 2\n[[nodes]]\nname = 7\n[policy]\nfuture = true\n");
    let told: Vec<_> = told.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["mesh[E64] line 1, schema: schema 2 is newer than 1, the newest that this release reads; upgrade"]
    );
    // and also if its text is more than this release's TOML
    assert_eq!(codes("schema = 2\n[[node]]\nname = a b\n"), [ProblemCode::Schema]);
}

#[test]
fn empty_files_have_no_node() {
    assert_eq!(codes("schema = 1"), [ProblemCode::NodeCount]);
    assert_eq!(codes(""), [ProblemCode::Schema, ProblemCode::NodeCount]);
    assert_eq!(codes("schema = 1\nx = 1"), [ProblemCode::UnknownKey, ProblemCode::NodeCount]);
    // Nodes that are there and cannot be read are not missing.
    assert_eq!(codes("schema = 1\nnode = 1"), [ProblemCode::BadValue]);
}

#[test]
fn text_that_is_not_toml_is_told_with_its_line() {
    let problems = faults("schema = 1\n[[node]]\nname = a b\n");
    assert_eq!((problems[0].code, problems[0].line), (ProblemCode::Syntax, Some(3)));
}

#[test]
fn values_of_wrong_types() {
    let told = codes("schema = 1\nnode = 3\nswitch = [1]\npolicy = true\n");
    assert_eq!(told, [ProblemCode::BadValue; 3]);
    let told = codes("schema = 1\n[[node]]\nname = 7\nrelay = \"no\"\nport = [{}]\n");
    assert_eq!(told, [ProblemCode::BadValue, ProblemCode::BadValue, ProblemCode::MissingKey, ProblemCode::MissingKey]);
    assert_eq!(codes("schema = 1\n[[node]]\nname = \"a\"\n[policy]\nmax_relays = -1\n"), [ProblemCode::BadValue]);
    assert_eq!(codes("schema = 1\n[[node]]\nname = \"\"\n"), [ProblemCode::BadValue]);
}

#[test]
fn unknown_keys_on_every_level() {
    let text = two("address = \"10.0.0.2/30\"\nadress = 1", "[policy]\nmax_relay = 1\n[[switches]]\n[extra]\n");
    let problems = faults(&text);
    let mut told: Vec<_> = problems.iter().map(|problem| (problem.field.as_str(), problem.message.as_str())).collect();
    told.sort_unstable();
    assert_eq!(
        told,
        [
            ("extra", "unknown key; known here: schema, node, switch, policy"),
            ("policy.max_relay", "unknown key; did you mean \"max_relays\"?"),
            ("port[0].adress", "unknown key; did you mean \"address\"?"),
            ("switches", "unknown key; did you mean \"switch\"?"),
        ]
    );
}

#[test]
fn addresses_at_their_limits() {
    let told = |address: &str| {
        Topology::from_toml(&two(&format!("address = \"{address}\""), "")).map_err(|problems| {
            assert_eq!(problems.len(), 1, "{problems:?}");
            (problems[0].code, problems[0].node.clone())
        })
    };
    assert!(told("10.0.0.2/30").is_ok());
    let b = || "b".to_owned();
    assert_eq!(told("10.0.0.0/30").err(), Some((ProblemCode::NotAHost, b())));
    assert_eq!(told("10.0.0.3/30").err(), Some((ProblemCode::NotAHost, b())));
    assert_eq!(told("10.0.0.1/30").err(), Some((ProblemCode::DuplicateAddress, b())));
    assert_eq!(told("10.0.0.2").err(), Some((ProblemCode::BadAddress, b())));
    assert_eq!(told("fe80::1/64").err(), Some((ProblemCode::BadAddress, b())));
    assert_eq!(told("127.0.0.1/8").err(), Some((ProblemCode::BadAddress, b())));
    assert_eq!(told("224.0.0.1/30").err(), Some((ProblemCode::BadAddress, b())));
    for prefix in ["0", "32", "-1", "x", "", "256"] {
        assert_eq!(told(&format!("10.0.0.2/{prefix}")).err(), Some((ProblemCode::BadPrefix, b())), "{prefix}");
    }
    // The two ends disagree about the prefix length.
    assert_eq!(told("10.0.0.2/24").err(), Some((ProblemCode::SubnetOverlap, "a".to_owned())));
    assert_eq!(told("10.0.1.2/30").err(), Some((ProblemCode::Disconnected, b())));
}

#[test]
fn one_subnet_on_two_ports_of_a_node() {
    let text = two("address = \"10.0.0.2/29\"\n[[node.port]]\ndevice = \"d1\"\naddress = \"10.0.0.3/29\"", "")
        .replace("10.0.0.1/30", "10.0.0.1/29");
    let problems = faults(&text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!((problems[0].code, problems[0].node.as_str()), (ProblemCode::SubnetTwiceOnNode, "b"));
    assert!(problems[0].message.contains("d0 (10.0.0.2) and d1 (10.0.0.3)"), "{}", problems[0].message);
}

#[test]
fn a_copied_address_plan_and_the_switch_that_makes_it_right() {
    let third = "[[node]]\nname = \"c\"\n[[node.port]]\ndevice = \"d\"\naddress = \"10.0.0.3/24\"\n";
    let text = two("address = \"10.0.0.2/24\"", third).replace("10.0.0.1/30", "10.0.0.1/24");
    let problems = faults(&text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].code, ProblemCode::SubnetShared);
    assert!(problems[0].message.contains("3 ports (a, b, c)"), "{}", problems[0].message);
    let switched = format!("{text}[[switch]]\nsubnet = \"10.0.0.0/24\"\n");
    assert_eq!(Topology::from_toml(&switched).expect("declared").edges().len(), 3);
    // Declared twice, not a subnet, or of no port: told.
    assert_eq!(codes(&format!("{switched}[[switch]]\nsubnet = \"10.0.0.0/24\"\n")), [ProblemCode::BadSwitch]);
    assert_eq!(codes(&format!("{switched}[[switch]]\nsubnet = \"10.9.0.0/24\"\n")), [ProblemCode::BadSwitch]);
    assert_eq!(codes(&format!("{switched}[[switch]]\nsubnet = \"10.0.0.1/24\"\n")), [ProblemCode::BadValue]);
    assert_eq!(codes(&format!("{switched}[[switch]]\n")), [ProblemCode::MissingKey]);
}

#[test]
fn duplicate_ids() {
    let text = two("address = \"10.0.0.2/30\"", "").replace("name = \"b\"", "name = \"b\"\nid = \"a\"");
    let problems = faults(&text);
    assert_eq!((problems.len(), problems[0].code), (1, ProblemCode::DuplicateId));
}

#[test]
fn pieces_that_no_link_joins_are_named() {
    let lone = "[[node]]\nname = \"c\"\n[[node]]\nname = \"d\"\n";
    let problems = faults(&two("address = \"10.0.0.2/30\"", lone));
    let told: Vec<_> = problems.iter().map(|problem| (problem.code, problem.node.as_str())).collect();
    assert_eq!(told, [(ProblemCode::Disconnected, "c"), (ProblemCode::Disconnected, "d")]);
    assert!(problems[0].message.starts_with("no link joins c with a, b;"), "{}", problems[0].message);
    // A fault of another kind does not hide it.
    let told = codes(&two("address = \"10.0.0.2/30\"", "colour = \"red\"\n[[node]]\nname = \"c\"\n"));
    assert_eq!(told, [ProblemCode::UnknownKey, ProblemCode::Disconnected]);
    let told = codes(&two("address = \"10.0.0.2/30\"", "[[node]]\nname = \"a\"\n"));
    assert_eq!(told, [ProblemCode::DuplicateName, ProblemCode::Disconnected]);
}

#[test]
fn a_port_without_a_peer_is_no_fault_but_is_found() {
    let text = two("address = \"10.0.0.2/30\"\n[[node.port]]\ndevice = \"d1\"\naddress = \"10.0.9.1/30\"", "");
    let topology = Topology::from_toml(&text).expect("sound");
    let b = topology.node_by_name("b").expect("named");
    assert_eq!(topology.unlinked_ports(), [(b, 1)]);
}

#[test]
fn what_is_discovered_keeps_what_can_be_used() {
    use mesh_routing::{NodeSpec, Policy, PortSpec};
    let node = |name: &str, addresses: &[(u8, u8)]| {
        let mut spec = NodeSpec::new(name);
        for &(last, prefix) in addresses {
            spec.ports.push(PortSpec::new("d", Ipv4Addr::new(10, 0, 0, last), prefix));
        }
        spec
    };
    // given a cable between a and b, an address that c and d both claim, an impossible one, and b a second time
    let nodes = vec![
        node("a", &[(1, 30), (9, 30)]),
        node("b", &[(2, 30), (3, 30)]),
        node("c", &[(10, 30)]),
        node("d", &[(10, 30)]),
        node("b", &[(50, 30)]),
    ];
    let (topology, problems) = Topology::discovered(nodes, vec![], Policy::default());
    // then a and b are joined, the claimed address is nobody's, and all is told
    assert_eq!(topology.nodes().len(), 4);
    assert_eq!(topology.links().len(), 1);
    assert_eq!(topology.port_by_address(Ipv4Addr::new(10, 0, 0, 10)), None);
    let mut told: Vec<_> = problems.iter().map(|problem| problem.code).collect();
    told.sort_unstable();
    assert_eq!(told, [ProblemCode::DuplicateName, ProblemCode::DuplicateAddress, ProblemCode::NotAHost]);
}
