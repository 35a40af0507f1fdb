//! Who this host is: its name, its id, its ports and which of them are switched, from the topology file, from settings, or from the host itself.
//!
//! At the start of the node only.

use std::net::Ipv4Addr;

use mesh_link::netdev;
use mesh_routing::Subnet;

use tracing::info;

use super::mesh::Known;
use super::{NetError, devices};
use crate::settings::Settings;

/// What a node is to be.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) name: String,
    pub(super) id: String,
    pub(super) relay: bool,
    pub(super) ports: Vec<(Ipv4Addr, u8)>,
    /// Subnets that are declared to be switched segments.
    pub(super) switches: Vec<Subnet>,
    pub(super) control: Vec<Ipv4Addr>,
}

impl Spec {
    /// From the topology file, which comes along, or from settings and the host.
    pub(super) fn of_host(settings: &Settings) -> Result<(Self, Option<Known>), NetError> {
        let found = netdev::addresses()
            .map_err(|e| NetError::Start(format!("mesh[E83] the interfaces of this host cannot be listed: {e}")))?;
        let Some(path) = &settings.topology else { return Ok((Self::without_topology(settings, &found)?, None)) };
        let known = Known::read(path, settings.node.as_deref(), &found)?;
        let node = known.topology.node(known.me);
        let spec = Self {
            name: node.name.clone(),
            id: node.stable_id.clone(),
            relay: node.relay,
            ports: node.ports.iter().map(|p| (p.address, p.prefix)).collect(),
            switches: known.topology.switches().to_vec(),
            control: node.control.into_iter().collect(),
        };
        // Where all nodes are on one host, the other end of a cable is an interface of it too.
        let others = |address| known.topology.port_by_address(address).is_some_and(|p| p.0 != known.me);
        let own: Vec<_> = found.into_iter().filter(|a| !others(a.address)).collect();
        devices::warn_of_shared_subnet(&spec.name, &own, &spec.ports);
        Ok((spec, Some(known)))
    }

    /// The node as its host says: it finds the others.
    fn without_topology(settings: &Settings, found: &[netdev::Address]) -> Result<Self, NetError> {
        let Identity { name, id } = Identity::of_host(settings.node.as_deref());
        let ports = match &settings.ports {
            Some(text) => ports_named(text, found)?,
            None => found.iter().filter(|a| !a.address.is_loopback()).map(|a| (a.address, a.prefix)).collect(),
        };
        let switches = settings.switches.as_deref().map_or(Ok(Vec::new()), switches_named)?;
        if ports.is_empty() {
            return Err(NetError::NoPorts);
        }
        if !settings.discovery {
            info!(
                "mesh[I02] node {name}: neither a topology file (NCCL_MESH_TOPOLOGY) nor discovery (NCCL_MESH_DISCOVERY=0): only \
                 neighbours can be reached"
            );
        }
        // What was named is meant, whatever it is.
        let ports = if settings.ports.is_some() { ports } else { devices::usable(settings, &name, found, ports)? };
        Ok(Self { name, id, relay: settings.relay, ports, switches, control: Vec::new() })
    }
}

/// A node's name and id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) id: String,
}

impl Identity {
    /// The name that was set is both. Otherwise the host's name, and its machine id, which stays when the name changes.
    pub(super) fn of_host(set: Option<&str>) -> Self {
        let read =
            |path| std::fs::read_to_string(path).ok().map(|s: String| s.trim().to_owned()).filter(|s| !s.is_empty());
        match set {
            Some(name) => Self { name: name.to_owned(), id: name.to_owned() },
            None => {
                let machine = read("/etc/machine-id");
                let name = read("/proc/sys/kernel/hostname").or_else(|| machine.clone());
                let name = name.unwrap_or_else(|| "unnamed".into());
                Self { id: machine.unwrap_or_else(|| name.clone()), name }
            }
        }
    }
}

/// The ports that `NCCL_MESH_PORTS` names.
pub(super) fn ports_named(text: &str, found: &[netdev::Address]) -> Result<Vec<(Ipv4Addr, u8)>, NetError> {
    let mut ports: Vec<(Ipv4Addr, u8)> = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let named = port_named(word, found).map_err(|why| NetError::Ports { word: word.to_owned(), why })?;
        for port in named {
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
    }
    Ok(ports)
}

/// The subnets that `NCCL_MESH_SWITCHES` names.
pub(super) fn switches_named(text: &str) -> Result<Vec<Subnet>, NetError> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let named = |word: &str| switch_named(word).map_err(|why| NetError::Switches { word: word.to_owned(), why });
    words.map(named).collect()
}

fn switch_named(word: &str) -> Result<Subnet, String> {
    let form = || "write a subnet as a.b.c.d/len, such as 10.10.0.0/24".to_owned();
    let (address, prefix) = word.split_once('/').ok_or_else(form)?;
    let address: Ipv4Addr = address.parse().map_err(|_| form())?;
    let subnet = prefix.parse().ok().and_then(|prefix| Subnet::of(address, prefix));
    let subnet = subnet.ok_or("its prefix length is not from 1 to 31")?;
    if subnet.network() != address {
        return Err(format!("it is an address within {subnet}; write that"));
    }
    Ok(subnet)
}

fn port_named(word: &str, found: &[netdev::Address]) -> Result<Vec<(Ipv4Addr, u8)>, &'static str> {
    let of_netdev: Vec<_> = found.iter().filter(|one| one.netdev == word).map(|a| (a.address, a.prefix)).collect();
    if !of_netdev.is_empty() {
        return Ok(of_netdev);
    }
    let (address, prefix) = match word.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (word, None),
    };
    let address: Ipv4Addr =
        address.parse().map_err(|_| "no interface of this host has this name, and it is no address")?;
    match prefix {
        Some(prefix) => {
            let prefix = prefix.parse().ok().filter(|prefix| (1..=31).contains(prefix));
            Ok(vec![(address, prefix.ok_or("its prefix length is not from 1 to 31")?)])
        }
        None => {
            let own = found.iter().find(|one| one.address == address);
            own.map(|one| vec![(address, one.prefix)])
                .ok_or("no interface of this host has it; name its prefix length (a.b.c.d/30)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Vec<netdev::Address> {
        let one = |netdev: &str, last, prefix| netdev::Address {
            netdev: netdev.into(),
            address: Ipv4Addr::new(10, 0, 0, last),
            prefix,
            running: true,
        };
        vec![one("f0", 1, 30), one("f1", 5, 31), one("f1", 9, 30)]
    }

    #[test]
    fn ports_are_named_by_address_or_by_interface() {
        let ip = |last| Ipv4Addr::new(10, 0, 0, last);
        let named = |text| ports_named(text, &found()).expect("sound");
        assert_eq!(named("10.0.0.1"), [(ip(1), 30)]);
        assert_eq!(named("10.0.0.1/24, 10.0.0.77/31,"), [(ip(1), 24), (ip(77), 31)]);
        assert_eq!(named("f1,f0,10.0.0.1"), [(ip(5), 31), (ip(9), 30), (ip(1), 30)]);
        assert_eq!(named(" , "), []);
    }

    #[test]
    fn what_names_no_port_is_refused_with_the_word() {
        for (text, word) in
            [("f0,f2", "f2"), ("10.0.0.77", "10.0.0.77"), ("10.0.0.1/32", "10.0.0.1/32"), ("10.0.0.1/0", "10.0.0.1/0")]
        {
            let error = ports_named(text, &found()).expect_err(text).to_string();
            assert!(error.starts_with("mesh[E89]") && error.contains(word), "{error}");
        }
    }

    #[test]
    fn switched_segments_are_named_by_their_subnets() {
        let texts = |text| switches_named(text).expect("sound").iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts("10.200.0.0/24, 10.201.0.0/16,"), ["10.200.0.0/24", "10.201.0.0/16"]);
        assert_eq!(texts(" , "), [""; 0]);
        // what is none is refused with the word, and with what to write
        for (text, word, remedy) in [
            ("10.0.0.0/24,f0", "f0", "a.b.c.d/len"),
            ("10.0.0.0", "10.0.0.0", "a.b.c.d/len"),
            ("10.0.0/24", "10.0.0/24", "a.b.c.d/len"),
            ("10.0.0.1/24", "10.0.0.1/24", "within 10.0.0.0/24"),
            ("10.0.0.0/32", "10.0.0.0/32", "from 1 to 31"),
            ("0.0.0.0/0", "0.0.0.0/0", "from 1 to 31"),
            ("10.0.0.0/x", "10.0.0.0/x", "from 1 to 31"),
        ] {
            let error = switches_named(text).expect_err(text).to_string();
            assert!(error.starts_with("mesh[E91] NCCL_MESH_SWITCHES"), "{error}");
            assert!(error.contains(&format!("{word:?}")) && error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn a_name_that_was_set_is_the_id_too() {
        let set = Identity::of_host(Some("spark-a"));
        assert_eq!(set, Identity { name: "spark-a".into(), id: "spark-a".into() });
        // a host has both, and they do not change between two looks
        let host = Identity::of_host(None);
        assert!(!host.name.is_empty() && !host.id.is_empty());
        assert_eq!(host, Identity::of_host(None));
    }
}
