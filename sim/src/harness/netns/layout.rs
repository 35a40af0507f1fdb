//! What namespaces and interfaces a topology needs, in lines for `ip -batch`.
//!
//! A namespace a node, and one that holds the bridges: of the management network, which joins all nodes, and of every switched
//! subnet. A cable is a pair of veths between two nodes' namespaces. A port that nothing is cabled to has its other end in the
//! bridges' namespace, where it stays down. Pure. Any thread.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use mesh_routing::{Port, Subnet, Topology};

use super::{MANAGEMENT, NetnsError};

/// Bytes of a port whose topology names none.
const USUAL_MTU: u32 = 9000;
/// Where the management network may lie: addresses for tests of networks, then those of carriers.
const BLOCKS: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(198, 18, 0, 0), 16),
    (Ipv4Addr::new(198, 19, 0, 0), 16),
    (Ipv4Addr::new(100, 64, 0, 0), 16),
    (Ipv4Addr::new(100, 127, 0, 0), 16),
];
/// Ports of a bridge, as the kernel limits them.
const MOST_NODES: usize = 1023;
/// Bytes of a RoCE v2 packet that are not payload, at most.
const ROCE_HEADERS: u32 = 96;

/// Names and addresses; the rest follows from the topology.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    namespaces: Vec<String>,
    bridges: String,
    block: Subnet,
}

/// How names of namespaces of a run begin.
pub(super) fn prefix(process: u32) -> String {
    format!("nccl-mesh-{process}-")
}

/// The run that a namespace belongs to, if its name is of one.
pub(super) fn process_of(namespace: &str) -> Option<u32> {
    let (process, rest) = namespace.strip_prefix("nccl-mesh-")?.split_once('-')?;
    let ours = rest == "bridges" || rest.strip_prefix("node").is_some_and(|number| number.parse::<usize>().is_ok());
    if ours { process.parse().ok() } else { None }
}

/// The netdev of a node's port.
pub(super) fn netdev(port: usize) -> String {
    format!("port{port}")
}

fn mtu(port: &Port) -> u32 {
    port.mtu.unwrap_or(USUAL_MTU)
}

/// A line of `ip -batch`. Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($what:tt)*) => { let _ = writeln!($text, $($what)*); };
}

impl Layout {
    pub(super) fn of(topology: &Topology, process: u32) -> Result<Self, NetnsError> {
        let nodes = topology.nodes().len();
        if nodes > MOST_NODES {
            return Err(NetnsError::TooMany { nodes, most: MOST_NODES });
        }
        let prefix = prefix(process);
        let namespaces = (0..nodes).map(|node| format!("{prefix}node{node}")).collect();
        Ok(Self { namespaces, bridges: format!("{prefix}bridges"), block: free_block(topology)? })
    }

    pub(super) fn namespace(&self, node: usize) -> &str {
        &self.namespaces[node]
    }

    pub(super) fn management_address(&self, node: usize) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.block.network().to_bits() + node as u32 + 1)
    }

    /// Makes namespaces and interfaces, all still down.
    pub(super) fn making(&self, topology: &Topology) -> String {
        let mut text = String::new();
        let bridges = &self.bridges;
        for namespace in self.namespaces.iter().chain([bridges]) {
            line!(text, "netns add {namespace}");
        }
        line!(text, "link add name br-mgmt netns {bridges} type bridge");
        for switch in 0..topology.switches().len() {
            line!(text, "link add name br-{switch} netns {bridges} type bridge");
        }
        for (node, namespace) in self.namespaces.iter().enumerate() {
            line!(text, "link add name {MANAGEMENT} netns {namespace} type veth peer name m{node} netns {bridges}");
        }
        let veth = |node: usize, port: usize| {
            let (namespace, mtu) = (&self.namespaces[node], mtu(&topology.nodes()[node].ports[port]));
            format!("name {} mtu {mtu} netns {namespace}", netdev(port))
        };
        for link in topology.links().iter().filter(|link| !link.switched) {
            let [a, b] = link.ends.map(|end| veth(end.node.index(), end.port));
            line!(text, "link add {a} type veth peer {b}");
        }
        for (node, port, _) in elsewhere(topology) {
            let mtu = mtu(&topology.nodes()[node].ports[port]);
            let own = veth(node, port);
            line!(text, "link add {own} type veth peer name p{node}-{port} mtu {mtu} netns {bridges}");
        }
        text
    }

    /// What each namespace needs inside: addresses, bridges, everything up.
    pub(super) fn inside(&self, topology: &Topology) -> Vec<(&str, String)> {
        let mut all = vec![(self.bridges.as_str(), self.inside_bridges(topology))];
        for (at, node) in topology.nodes().iter().enumerate() {
            let mut text = String::from("link set lo up\n");
            for (port, spec) in node.ports.iter().enumerate() {
                let netdev = netdev(port);
                line!(text, "addr add {}/{} dev {netdev}", spec.address, spec.prefix);
                line!(text, "link set {netdev} up");
            }
            line!(text, "addr add {}/{} dev {MANAGEMENT}", self.management_address(at), self.block.prefix());
            line!(text, "link set {MANAGEMENT} up");
            all.push((&self.namespaces[at], text));
        }
        all
    }

    fn inside_bridges(&self, topology: &Topology) -> String {
        let mut text = String::from("link set lo up\nlink set br-mgmt up\n");
        for node in 0..self.namespaces.len() {
            line!(text, "link set m{node} master br-mgmt up");
        }
        for switch in 0..topology.switches().len() {
            line!(text, "link set br-{switch} up");
        }
        for (node, port, switch) in elsewhere(topology) {
            if let Some(switch) = switch {
                line!(text, "link set p{node}-{port} master br-{switch} up");
            }
        }
        text
    }
}

/// Ports that no cable leads from to another node, with their switch if they have one.
fn elsewhere(topology: &Topology) -> Vec<(usize, usize, Option<usize>)> {
    let switch_of = |port: &Port| topology.switches().iter().position(|subnet| subnet.contains(port.address));
    let unlinked = topology.unlinked_ports();
    let mut found = Vec::new();
    for (node, spec) in topology.nodes().iter().enumerate() {
        for (at, port) in spec.ports.iter().enumerate() {
            let switch = switch_of(port);
            if switch.is_some() || unlinked.contains(&(spec.id, at)) {
                found.push((node, at, switch));
            }
        }
    }
    found
}

/// The first block that shares no address with the topology.
fn free_block(topology: &Topology) -> Result<Subnet, NetnsError> {
    let used: Vec<Subnet> =
        topology.nodes().iter().flat_map(|node| &node.ports).filter_map(mesh_routing::PortSpec::subnet).collect();
    let control: Vec<Ipv4Addr> = topology.nodes().iter().filter_map(|node| node.control).collect();
    let free = |block: &Subnet| {
        let apart = |subnet: &Subnet| !block.contains(subnet.network()) && !subnet.contains(block.network());
        used.iter().all(apart) && !control.iter().any(|address| block.contains(*address))
    };
    let mut blocks = BLOCKS.into_iter().filter_map(|(network, prefix)| Subnet::of(network, prefix));
    blocks.find(free).ok_or_else(|| {
        let names: Vec<String> = BLOCKS.iter().map(|(network, prefix)| format!("{network}/{prefix}")).collect();
        NetnsError::NoBlock { blocks: names.join(", ") }
    })
}

/// Statements for soft verbs: every port has the carrier of its netdev, and packets as large as that carries.
pub(super) fn soft_verbs(topology: &Topology) -> Vec<String> {
    let mut statements = Vec::new();
    for node in topology.nodes() {
        for (at, port) in node.ports.iter().enumerate() {
            statements.push(format!("netdev={} {}", port.address, netdev(at)));
            statements.push(format!("mtu={} {}", port.address, packet(mtu(port))));
        }
    }
    statements
}

/// The largest packet of a RoCE device on a netdev of this MTU.
fn packet(mtu: u32) -> u32 {
    [4096, 2048, 1024, 512].into_iter().find(|bytes| bytes + ROCE_HEADERS <= mtu).unwrap_or(256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_routing::{AddressPlan, NodeSpec, Policy, PortSpec, Shape};

    fn shape(shape: Shape, nodes: usize, base: [u8; 4]) -> Topology {
        Topology::from_shape(shape, nodes, 1, &AddressPlan { base: base.into() }).expect("sound")
    }

    #[test]
    fn a_ring_has_a_namespace_a_node_and_a_veth_a_cable() {
        // given a ring of three, when it is laid out for process 7
        let topology = shape(Shape::Ring, 3, [10, 0, 0, 0]);
        let layout = Layout::of(&topology, 7).expect("room");
        let making = layout.making(&topology);
        // then there are its namespaces and that of the bridges, and cables join ports of two nodes
        assert_eq!(making.matches("netns add nccl-mesh-7-").count(), 4, "{making}");
        assert_eq!(making.matches("type veth peer name port").count(), 3, "{making}");
        assert!(
            making.contains("link add name port0 mtu 9000 netns nccl-mesh-7-node0 type veth peer name port0 mtu 9000 netns nccl-mesh-7-node1"),
            "{making}"
        );
        // and inside, ports have the topology's addresses beside one for management
        let inside = layout.inside(&topology);
        let (name, lines) = &inside[1];
        assert_eq!(*name, "nccl-mesh-7-node0");
        let port = &topology.nodes()[0].ports[0];
        assert!(lines.contains(&format!("addr add {}/{} dev port0\nlink set port0 up\n", port.address, port.prefix)));
        assert!(lines.contains("addr add 198.18.0.1/16 dev mgmt0\n"), "{lines}");
        assert_eq!(inside.iter().filter(|(_, lines)| lines.contains("link set lo up\n")).count(), 4);
    }

    #[test]
    fn a_switch_is_a_bridge_and_a_port_without_cable_stays_down() {
        let topology = shape(Shape::Switch, 3, [10, 0, 0, 0]);
        let layout = Layout::of(&topology, 7).expect("room");
        assert!(layout.making(&topology).contains("link add name br-0 netns nccl-mesh-7-bridges type bridge\n"));
        let bridges = &layout.inside(&topology)[0].1;
        assert_eq!(bridges.matches("master br-0 up").count(), 3, "{bridges}");
        // given two nodes with a cable, and a port beside it
        let mut nodes = [NodeSpec::new("a"), NodeSpec::new("b")];
        nodes[0].ports =
            vec![PortSpec::new("x", [10, 0, 0, 1].into(), 30), PortSpec::new("y", [10, 9, 0, 1].into(), 30)];
        nodes[1].ports = vec![PortSpec::new("x", [10, 0, 0, 2].into(), 30)];
        let topology = Topology::from_nodes(nodes.to_vec(), Vec::new(), Policy::default()).expect("sound");
        let layout = Layout::of(&topology, 7).expect("room");
        assert!(layout.making(&topology).contains("peer name p0-1 mtu 9000 netns nccl-mesh-7-bridges\n"));
        assert!(!layout.inside(&topology)[0].1.contains("p0-1"));
    }

    #[test]
    fn the_management_network_shares_no_address_with_the_topology() {
        for (base, first) in [([198, 18, 3, 0], [198, 19, 0, 1]), ([198, 19, 0, 0], [198, 18, 0, 1])] {
            let layout = Layout::of(&shape(Shape::Ring, 3, base), 7).expect("room");
            assert_eq!(layout.management_address(0), Ipv4Addr::from(first));
        }
    }

    #[test]
    fn only_names_of_runs_are_taken_for_such() {
        assert_eq!(process_of("nccl-mesh-12-node3"), Some(12));
        assert_eq!(process_of("nccl-mesh-12-bridges"), Some(12));
        for other in ["nccl-mesh-12", "nccl-mesh-x-node3", "nccl-mesh-12-nodes", "mesh-12-node3", "nccl-mesh-12-lab"] {
            assert_eq!(process_of(other), None, "{other}");
        }
    }

    #[test]
    fn packets_fit_the_netdev() {
        assert_eq!([9000, 4200, 4096, 1500, 576, 68].map(packet), [4096, 4096, 2048, 1024, 256, 256]);
        let topology = shape(Shape::Line, 2, [10, 0, 0, 0]);
        let statements = soft_verbs(&topology);
        assert_eq!(statements.len(), 4);
        assert_eq!(statements[1], format!("mtu={} 4096", topology.nodes()[0].ports[0].address));
    }
}
