//! The RDMA devices behind this node's ports: which are used, what is told of them, and what is said when they cannot be had.
//!
//! At the start of the node only. Nothing falls back to something slower in silence.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use mesh_link::endpoint::Backend;
use mesh_link::netdev;
use mesh_link::verbs::{DeviceError, DeviceSet, VerbsLimits, survey};
use mesh_relay::code;
use mesh_relay::discovery::PortInfo;
use mesh_routing::{Port, Subnet};
use tracing::{info, warn};

use super::NetError;
use super::node::list;
use crate::settings::Settings;

fn wants_verbs(settings: &Settings) -> bool {
    !settings.disable_rdma && settings.link == "verbs"
}

/// What the settings want links to be carried by. RDMA that cannot be had is an error.
pub(super) fn backend(
    settings: &Settings,
    node: &str,
    addresses: &[Ipv4Addr],
    traffic_class: Option<u8>,
) -> Result<Backend, NetError> {
    if !wants_verbs(settings) {
        return Ok(Backend::Tcp);
    }
    let mut devices = DeviceSet::open(addresses, None).map_err(|e| missing(node, &e))?;
    if let Some(index) = settings.gid_index {
        devices = devices.with_gid_index(index).map_err(|e| match e {
            DeviceError::WrongIndex { .. } => NetError::GidIndex { node: node.to_owned(), index, why: e.to_string() },
            other => missing(node, &other),
        })?;
    }
    let limits = VerbsLimits {
        traffic_class: settings.traffic_class.or(traffic_class).unwrap_or(0),
        service_level: settings.service_level,
        // With `NCCL_MESH_FAST_FAIL` a cut cable is known within a second instead of four.
        timeout: VerbsLimits::default().timeout - if settings.fast_fail { 2 } else { 0 },
        ..VerbsLimits::default()
    };
    Ok(Backend::Verbs(devices, limits))
}

fn missing(node: &str, error: &DeviceError) -> NetError {
    NetError::NoVerbs { code: code::of_device(error), node: node.to_owned(), why: error.to_string() }
}

/// Without a topology file: the addresses that links can use, of all that this host has. Over RDMA those of RDMA ports; none of which may
/// share a subnet with another, as nothing says then which of the two is cabled to a peer.
pub(super) fn usable(
    settings: &Settings,
    node: &str,
    found: &[netdev::Address],
    ports: Vec<(Ipv4Addr, u8)>,
) -> Result<Vec<(Ipv4Addr, u8)>, NetError> {
    if !wants_verbs(settings) {
        warn_of_shared_subnet(node, found, &ports);
        return Ok(ports);
    }
    let all = survey(None).map_err(|e| missing(node, &e))?;
    let of_rdma: BTreeSet<Ipv4Addr> = all.iter().flat_map(|port| &port.gids).filter_map(|e| e.gid.address()).collect();
    let (used, left): (Vec<_>, Vec<_>) = ports.iter().partition(|port| of_rdma.contains(&port.0));
    if used.is_empty() {
        // The devices say of the first address what they have instead.
        return Ok(ports);
    }
    if !left.is_empty() {
        info!("node {node}: not used, as no RDMA port has these addresses: {}", list(&left));
    }
    match shared_subnet(found, &used) {
        Some(what) => Err(NetError::SharedSubnet { node: node.to_owned(), what }),
        None => Ok(used),
    }
}

/// Says once that two interfaces of this host, one of them with a port, are in one subnet: the kernel sends by either.
pub(super) fn warn_of_shared_subnet(node: &str, found: &[netdev::Address], ports: &[(Ipv4Addr, u8)]) {
    if let Some(what) = shared_subnet(found, ports) {
        warn!("mesh[W11] node {node}: {what}");
    }
}

/// The first port whose subnet is on another interface as well, in words.
fn shared_subnet(found: &[netdev::Address], ports: &[(Ipv4Addr, u8)]) -> Option<String> {
    let found = || found.iter().filter(|one| !one.address.is_loopback());
    let mask = |one: &netdev::Address| u32::MAX.checked_shl(32 - u32::from(one.prefix)).unwrap_or(0);
    let own = found().filter(|one| ports.iter().any(|port| port.0 == one.address));
    let pairs = own.flat_map(|one| found().map(move |other| (one, other)));
    let (one, other) = pairs.into_iter().find(|(one, other)| {
        let wider = mask(one) & mask(other);
        one.netdev != other.netdev && (u32::from(one.address) ^ u32::from(other.address)) & wider == 0
    })?;
    let subnet = Ipv4Addr::from(u32::from(one.address) & mask(one));
    Some(format!(
        "subnet {subnet}/{} is on both {} ({}) and {} ({}), so packets may leave by the wrong one; give each cable a subnet of its own (/30 \
         or /31)",
        one.prefix, one.netdev, one.address, other.netdev, other.address
    ))
}

/// Says what is behind each port, and which are slower than the topology says.
pub(super) fn tell(node: &str, backend: &Backend, expected: &[Port]) {
    let Backend::Verbs(devices, _) = backend else { return };
    for why in devices.down_at_start() {
        warn!("mesh[W06] node {node}: not used until it is up: {why}");
    }
    for (address, port) in devices.ports() {
        let index = port.gids.iter().find(|entry| entry.gid.address() == Some(address)).map_or(0, |entry| entry.index);
        let netdev = port.netdev().map_or_else(String::new, |netdev| format!(" ({netdev})"));
        info!(
            "mesh[I05] node {node}: {address} is {} port {}{netdev}: {} Mbit/s, RDMA MTU {}, GID index {index}",
            port.device, port.port, port.speed_mbps, port.mtu
        );
        let wanted = expected.iter().find(|one| one.address == address).and_then(|one| one.speed_mbps);
        if let Some(wanted) = wanted.filter(|&wanted| port.speed_mbps > 0 && port.speed_mbps < wanted) {
            warn!(
                "mesh[W25] node {node}: {address} ({} port {}) runs at {} Mbit/s, the topology file says {wanted}; look at the cable, the \
                 NIC's firmware and its PCIe width (ethtool, lspci -vv)",
                port.device, port.port, port.speed_mbps
            );
        }
    }
}

/// The ports as other nodes are told of them: labels and expectations of the file, or what the devices and interfaces say; and whether they are
/// on one of the declared switched segments.
pub(super) fn describe(
    ports: &[(Ipv4Addr, u8)],
    backend: &Backend,
    declared: &[Port],
    switches: &[Subnet],
) -> Vec<PortInfo> {
    let found = netdev::addresses().unwrap_or_default();
    let describe = |&(address, prefix): &(Ipv4Addr, u8)| {
        let rdma = match backend {
            Backend::Verbs(devices, _) => devices.ports().find(|(at, _)| *at == address).map(|(_, port)| port),
            Backend::Tcp => None,
        };
        let netdev = found.iter().find(|one| one.address == address).map(|one| one.netdev.clone());
        let label = declared.iter().find(|port| port.address == address).map(|port| port.device.clone());
        let device = rdma.map(|port| port.device.clone()).or_else(|| netdev.clone()).or(label).unwrap_or_default();
        let facts = netdev.map(|netdev| netdev::facts(&netdev)).unwrap_or_default();
        // A port of an RDMA device may be slower than its interface says.
        let speed_mbps = rdma.map(|port| port.speed_mbps).filter(|speed| *speed > 0).unwrap_or(facts.speed_mbps);
        let switched = Subnet::of(address, prefix).is_some_and(|subnet| switches.contains(&subnet));
        PortInfo { speed_mbps, mtu: facts.mtu, switched, ..PortInfo::new(device, address, prefix) }
    };
    ports.iter().map(describe).collect()
}

/// Whether the port of this address is known to be down now. With TCP links the kernel says so when somebody connects.
pub(super) fn is_down(backend: &Backend, address: Ipv4Addr) -> bool {
    match backend {
        Backend::Verbs(devices, _) => devices.is_down(address),
        Backend::Tcp => false,
    }
}

/// Mbit/s of the RDMA ports in use, of those that say.
pub(super) fn speeds(backend: &Backend) -> Vec<u32> {
    let Backend::Verbs(devices, _) = backend else { return Vec::new() };
    devices.ports().map(|(_, port)| port.speed_mbps).filter(|&speed| speed > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(netdev: &str, last: u8, prefix: u8) -> netdev::Address {
        netdev::Address { netdev: netdev.into(), address: Ipv4Addr::new(10, 0, 0, last), prefix, running: true }
    }

    #[test]
    fn two_interfaces_in_one_subnet_are_told_apart_from_sound_ones() {
        let told = |found: &[netdev::Address], last| shared_subnet(found, &[(Ipv4Addr::new(10, 0, 0, last), 30)]);
        // given ports with subnets of their own, or one interface with two addresses of one, then nothing is said
        assert_eq!(told(&[address("f0", 1, 30), address("f1", 5, 30)], 1), None);
        assert_eq!(told(&[address("f0", 1, 24), address("f0", 5, 24)], 1), None);
        // given a port whose subnet is on another interface, or inside a wider one there, then both are named
        for prefix in [30, 24] {
            let found = [address("f0", 1, 30), address("f1", 2, prefix)];
            let text = told(&found, 1).expect("shared");
            assert!(text.starts_with("subnet 10.0.0.0/30 is on both f0 (10.0.0.1) and f1 (10.0.0.2)"), "{text}");
            // and it does not matter to those who use neither
            assert_eq!(told(&found, 9), None);
        }
    }
}
