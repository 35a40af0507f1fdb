//! What a port says of itself: state, sizes, and the GIDs that it can be reached by. Pure; any thread.

use std::fmt;
use std::net::Ipv4Addr;

/// A GID: the address of a port as RoCE carries it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The GID that stands for an IPv4 address.
    pub const fn of(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    /// The IPv4 address it stands for, if it does.
    pub fn address(&self) -> Option<Ipv4Addr> {
        let [.., a, b, c, d] = self.0;
        let address = Ipv4Addr::new(a, b, c, d);
        (*self == Self::of(address)).then_some(address)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; 16]
    }

    fn is_link_local(&self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&std::net::Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// State of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No carrier, or administratively down.
    Down,
    /// Coming up.
    Starting,
    /// Carries traffic.
    Active,
    /// Something that this crate does not know.
    Other(u32),
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("down"),
            Self::Starting => f.write_str("starting"),
            Self::Active => f.write_str("active"),
            Self::Other(code) => write!(f, "in state {code}"),
        }
    }
}

/// A usable entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Place in the table. It may move whenever addresses change, so it is looked up again for each connection.
    pub index: u8,
    /// The GID.
    pub gid: Gid,
    /// Network interface of the GID, if the library says.
    pub netdev: Option<String>,
}

/// What an entry of a GID table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GidKind {
    RoceV2,
    /// RoCE v1, or InfiniBand.
    Other,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoceV2 => "RoCE v2",
            Self::Other => "RoCE v1",
        })
    }
}

/// What a port says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Device, such as `rocep1s0f0`.
    pub device: String,
    /// Number of the port on its device, from 1.
    pub port: u8,
    /// State.
    pub state: PortState,
    /// Largest payload of a packet in bytes, 256 to 4096; 0 if unknown.
    pub mtu: u32,
    /// Rate in Mb/s; 0 if unknown.
    pub speed_mbps: u32,
    /// Longest message of the device in bytes.
    pub max_message: u32,
    /// RoCE v2 entries of its GID table.
    pub gids: Vec<GidEntry>,
    /// IPv4 addresses among its RoCE v1 entries, which are of no use here.
    pub v1: Vec<Ipv4Addr>,
}

impl Port {
    /// Whether its only RoCE v2 GIDs are link-local ones: its interface has no IPv4 address.
    pub fn is_link_local_only(&self) -> bool {
        !self.gids.is_empty() && self.gids.iter().all(|entry| entry.gid.is_link_local())
    }

    /// The network interface of its GIDs, if the library says.
    pub fn netdev(&self) -> Option<&str> {
        self.gids.iter().find_map(|entry| entry.netdev.as_deref())
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {} ({}", self.device, self.port, self.state)?;
        let mut any = false;
        for address in self.gids.iter().filter_map(|entry| entry.gid.address()) {
            write!(f, ", {address}")?;
            any = true;
        }
        match self.netdev() {
            _ if any => {}
            Some(netdev) if self.is_link_local_only() => {
                write!(f, ", only link-local GIDs: no IPv4 address on {netdev}")?
            }
            None if self.is_link_local_only() => {
                f.write_str(", only link-local GIDs: no IPv4 address on its interface")?;
            }
            _ if self.gids.is_empty() && self.v1.is_empty() => f.write_str(", no GID")?,
            _ if self.gids.is_empty() => f.write_str(", no RoCE v2 GID")?,
            _ => f.write_str(", no IPv4 GID")?,
        }
        for address in self.v1.iter().filter(|&&address| !self.gids.iter().any(|e| e.gid == Gid::of(address))) {
            write!(f, ", {address} as RoCE v1 only")?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_stands_for_an_address() {
        let address = Ipv4Addr::new(192, 168, 100, 1);
        let gid = Gid::of(address);
        assert_eq!(gid.address(), Some(address));
        assert_eq!(gid.to_string(), "::ffff:192.168.100.1");
        let mut other = gid;
        other.0[0] = 0xfe;
        assert_eq!(other.address(), None);
        assert!(Gid(*b"\xfe\x80\0\0\0\0\0\0\x02\x11\x22\xff\xfe\x33\x44\x55").is_link_local());
        assert!(!gid.is_link_local());
    }

    #[test]
    fn a_port_tells_why_it_has_no_address() {
        let mut port = Port {
            device: "rocep1s0f1".into(),
            port: 1,
            state: PortState::Active,
            mtu: 4096,
            speed_mbps: 200_000,
            max_message: 1 << 30,
            gids: vec![],
            v1: vec![],
        };
        assert_eq!(port.to_string(), "rocep1s0f1 port 1 (active, no GID)");
        port.v1.push(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(port.to_string(), "rocep1s0f1 port 1 (active, no RoCE v2 GID, 10.0.0.1 as RoCE v1 only)");
        port.v1.clear();
        let link_local = Gid(*b"\xfe\x80\0\0\0\0\0\0\x02\x11\x22\xff\xfe\x33\x44\x55");
        port.gids.push(GidEntry { index: 0, gid: link_local, netdev: None });
        assert!(port.to_string().contains("only link-local GIDs: no IPv4 address on its interface"), "{port}");
        port.gids[0].netdev = Some("enp1s0f1np1".into());
        assert!(port.to_string().contains("only link-local GIDs: no IPv4 address on enp1s0f1np1"), "{port}");
        port.v1.push(Ipv4Addr::new(10, 0, 0, 1));
        port.gids.push(GidEntry { index: 3, gid: Gid::of(Ipv4Addr::new(10, 0, 0, 1)), netdev: None });
        assert_eq!(port.to_string(), "rocep1s0f1 port 1 (active, 10.0.0.1)");
    }
}
