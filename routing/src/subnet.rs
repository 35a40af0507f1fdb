//! IPv4 subnets: which ports share a link follows from them alone.

use std::fmt;
use std::net::Ipv4Addr;

/// A network address and its prefix length, 1 to 31.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Subnet {
    network: Ipv4Addr,
    prefix: u8,
}

impl Subnet {
    /// The shortest prefix length that a port may have.
    pub const MIN_PREFIX: u8 = 1;
    /// The longest prefix length that a port may have: two addresses, none of them network or broadcast.
    pub const MAX_PREFIX: u8 = 31;

    /// The subnet that holds `address`. `None` if the prefix length is out of range.
    pub fn of(address: Ipv4Addr, prefix: u8) -> Option<Self> {
        if !(Self::MIN_PREFIX..=Self::MAX_PREFIX).contains(&prefix) {
            return None;
        }
        let network = Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << (32 - u32::from(prefix))));
        Some(Self { network, prefix })
    }

    /// The lowest address.
    pub const fn network(self) -> Ipv4Addr {
        self.network
    }

    /// The prefix length.
    pub const fn prefix(self) -> u8 {
        self.prefix
    }

    /// The highest address.
    pub fn broadcast(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() | (u32::MAX >> self.prefix))
    }

    /// Whether the address lies inside.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        self.network <= address && address <= self.broadcast()
    }

    /// Whether the two have an address in common: one then holds the other.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.network) || other.contains(self.network)
    }

    /// Whether a port may have this address: inside, and below /31 neither network nor broadcast address.
    pub fn is_host(self, address: Ipv4Addr) -> bool {
        self.contains(address) && (self.prefix == 31 || (address != self.network && address != self.broadcast()))
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::Subnet;
    use std::net::Ipv4Addr;

    fn subnet(a: [u8; 4], prefix: u8) -> Subnet {
        Subnet::of(Ipv4Addr::from(a), prefix).expect("prefix in range")
    }

    #[test]
    fn prefix_limits() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        assert_eq!(Subnet::of(address, 0), None);
        assert!(Subnet::of(address, 1).is_some());
        assert!(Subnet::of(address, 31).is_some());
        assert_eq!(Subnet::of(address, 32), None);
    }

    #[test]
    fn hosts_of_a_30_and_a_31() {
        let thirty = subnet([192, 168, 0, 6], 30);
        assert_eq!(thirty.to_string(), "192.168.0.4/30");
        assert!(!thirty.is_host(Ipv4Addr::new(192, 168, 0, 4)));
        assert!(thirty.is_host(Ipv4Addr::new(192, 168, 0, 5)));
        assert!(thirty.is_host(Ipv4Addr::new(192, 168, 0, 6)));
        assert!(!thirty.is_host(Ipv4Addr::new(192, 168, 0, 7)));
        let thirty_one = subnet([192, 168, 0, 6], 31);
        assert!(thirty_one.is_host(Ipv4Addr::new(192, 168, 0, 6)));
        assert!(thirty_one.is_host(Ipv4Addr::new(192, 168, 0, 7)));
        assert!(!thirty_one.is_host(Ipv4Addr::new(192, 168, 0, 8)));
    }

    #[test]
    fn overlap_means_one_holds_the_other() {
        assert!(subnet([10, 0, 0, 1], 24).overlaps(subnet([10, 0, 0, 200], 30)));
        assert!(!subnet([10, 0, 0, 1], 30).overlaps(subnet([10, 0, 0, 5], 30)));
    }
}
