//! Why an address has no usable port: the facts, and what to do. Any thread.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::load::LoadError;
use super::port::{Port, PortState};
use crate::netdev;

/// Devices cannot be used, with what was found instead.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The library cannot be used.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The library is there and finds no device.
    #[error(
        "{} finds no RDMA device{}", library.display(),
        if *.nodes { "; is the NIC's driver loaded (rdma link)?" }
        else { ": there is no /dev/infiniband; load ib_uverbs, or pass --device=/dev/infiniband to the container" }
    )]
    None {
        /// The library.
        library: PathBuf,
        /// Whether `/dev/infiniband` exists.
        nodes: bool,
    },
    /// A device is there and does not open.
    #[error("cannot open RDMA device {device}: {source}; may this user read and write /dev/infiniband/uverbs*?")]
    Open {
        /// Device.
        device: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// No port has the address.
    #[error(
        "no RDMA port has a RoCE v2 GID of {address} ({}); found: {found}; {remedy}",
        match .interface {
            Some(name) => format!("the address of {name}"),
            None => "no interface of this host has it".to_owned(),
        }
    )]
    NoPort {
        /// The address looked for.
        address: Ipv4Addr,
        /// The network interface that has the address, if there is one.
        interface: Option<String>,
        /// All ports with their addresses.
        found: String,
        /// What to do.
        remedy: Remedy,
    },
    /// An endpoint is to be made at an address that no device was opened for.
    #[error("no RDMA port was opened for {address}, only for {opened}")]
    NotOpened {
        /// The address.
        address: Ipv4Addr,
        /// Addresses that were.
        opened: String,
    },
    /// The index that was asked for is not the address's.
    #[error(
        "entry {index} of the GID table of port {port} of {device} is {holds}, not the RoCE v2 GID of {address}, which is at {right}"
    )]
    WrongIndex {
        /// The address.
        address: Ipv4Addr,
        /// Device.
        device: String,
        /// Port of the device.
        port: u8,
        /// The index asked for.
        index: u8,
        /// What is there.
        holds: String,
        /// Where the address's GID is.
        right: u8,
    },
    /// The port is there and does not carry traffic.
    #[error(
        "RDMA port {port} of {device}, which has {address}, is {state}: is its interface up (ip link), and the cable plugged in at both ends?"
    )]
    PortNotActive {
        /// The address looked for.
        address: Ipv4Addr,
        /// Device.
        device: String,
        /// Port of the device.
        port: u8,
        /// Its state.
        state: PortState,
    },
    /// The port had the address when devices were opened and has it no more.
    #[error(
        "the RoCE v2 GID of {address} is gone from port {port} of {device} (it was at index {index}); found now: {found}; give its interface \
         the address again"
    )]
    GidGone {
        /// The address.
        address: Ipv4Addr,
        /// Device.
        device: String,
        /// Port of the device.
        port: u8,
        /// Where it was.
        index: u8,
        /// The port as it is now.
        found: String,
    },
    /// A call failed.
    #[error("{call} failed for RDMA device {device}: {source}")]
    Call {
        /// The call.
        call: &'static str,
        /// Device.
        device: String,
        /// What the operating system says.
        source: io::Error,
    },
}

/// What to do so that a port has an address, by what was found instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A port has it as RoCE v1.
    RoceV2,
    /// A port has no IPv4 address.
    Configure(Ipv4Addr),
    /// The address is somewhere else.
    Choose,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoceV2 => f.write_str("this needs a NIC, firmware and driver that offer RoCE v2"),
            Self::Configure(address) => {
                write!(
                    f,
                    "give the interface of the cabled port its address (ip addr add {address}/PREFIX dev INTERFACE)"
                )
            }
            Self::Choose => f.write_str("name the addresses of cabled RDMA ports in the topology file"),
        }
    }
}

/// Why no port has the address, by what the ports and interfaces of this host have.
pub(super) fn no_port<'a>(ports: impl Iterator<Item = &'a Port> + Clone, address: Ipv4Addr) -> DeviceError {
    let remedy = if ports.clone().any(|port| port.v1.contains(&address)) {
        Remedy::RoceV2
    } else if ports.clone().any(|port| port.gids.is_empty() || port.is_link_local_only()) {
        Remedy::Configure(address)
    } else {
        Remedy::Choose
    };
    let found: Vec<_> = ports.map(Port::to_string).collect();
    // What cannot be listed is not told; the rest is reason enough.
    let interfaces = netdev::addresses().unwrap_or_default();
    let interface = interfaces.into_iter().find(|one| one.address == address).map(|one| one.netdev);
    DeviceError::NoPort { address, interface, found: found.join("; "), remedy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::port::{Gid, GidEntry};

    #[test]
    fn no_device_is_told_with_what_to_do() {
        let error = DeviceError::None { library: "libibverbs.so.1".into(), nodes: false };
        assert!(error.to_string().contains("--device=/dev/infiniband"), "{error}");
        let error = DeviceError::None { library: "libibverbs.so.1".into(), nodes: true };
        assert!(error.to_string().contains("rdma link"), "{error}");
    }

    #[test]
    fn errors_name_address_device_and_state() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let error = DeviceError::PortNotActive { address, device: "mlx5_0".into(), port: 1, state: PortState::Down };
        assert_eq!(
            error.to_string(),
            "RDMA port 1 of mlx5_0, which has 10.0.0.1, is down: is its interface up (ip link), and the cable plugged in at both ends?"
        );
    }

    #[test]
    fn a_missing_address_is_told_with_where_it_is_instead() {
        let port = |gids: &[Gid], v1: &[Ipv4Addr]| Port {
            device: "mlx5_0".into(),
            port: 1,
            state: PortState::Active,
            mtu: 4096,
            speed_mbps: 200_000,
            max_message: 1 << 30,
            gids: gids.iter().map(|&gid| GidEntry { index: 1, gid, netdev: None }).collect(),
            v1: v1.to_vec(),
        };
        let told = |port: &Port, address| no_port(std::iter::once(port), address).to_string();
        let (wanted, other) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(10, 0, 0, 2));
        let link_local = Gid(*b"\xfe\x80\0\0\0\0\0\0\x02\x11\x22\xff\xfe\x33\x44\x55");
        // given ports that have it as RoCE v1, have no address, or have another one, then the remedy fits
        for (port, remedy) in [
            (port(&[link_local], &[wanted]), "offer RoCE v2"),
            (port(&[link_local], &[other]), "ip addr add 192.0.2.1/PREFIX"),
            (port(&[], &[]), "ip addr add 192.0.2.1/PREFIX"),
            (port(&[Gid::of(other), link_local], &[]), "in the topology file"),
        ] {
            let text = told(&port, wanted);
            assert!(text.starts_with("no RDMA port has a RoCE v2 GID of 192.0.2.1 (no interface"), "{text}");
            assert!(text.contains(&port.to_string()) && text.contains(remedy), "{text}");
        }
        // and an address of an interface is told with its name
        let text = told(&port(&[Gid::of(other)], &[]), Ipv4Addr::LOCALHOST);
        assert!(text.contains("127.0.0.1 (the address of lo)"), "{text}");
    }
}
