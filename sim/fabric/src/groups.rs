//! Groups that stay on their link (224.0.0.0/24): which addresses they are, and under which names the kernel keeps account of who is a member.
//!
//! All ports of a node lie on the kernel's one loopback interface, of which a socket can be a member of a group only once. So each port has groups
//! of its own there, to which nothing is ever sent: the kernel then says who has joined twice, or leaves what was not joined, and forgets it all
//! with the socket.
//!
//! Pure. Must not know sockets, nor who is cabled to whom. Any thread.

use std::net::Ipv4Addr;

/// Whether an address is a group that no router passes on.
#[must_use]
pub const fn is_link_group(address: Ipv4Addr) -> bool {
    matches!(address.octets(), [224, 0, 0, _])
}

/// The group by which the kernel knows that a socket is a member of `group` at a port, the node's number `port`. `None`: no such group, or a node
/// with more than 65,536 ports.
#[must_use]
pub fn in_kernel(group: Ipv4Addr, port: usize) -> Option<Ipv4Addr> {
    let [high, low] = u16::try_from(port).ok()?.to_be_bytes();
    // 238/8 is assigned to nobody, so nobody speaks there.
    is_link_group(group).then(|| Ipv4Addr::new(238, high, low, group.octets()[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn only_what_stays_on_its_link_is_a_link_group() {
        assert!(is_link_group(Ipv4Addr::new(224, 0, 0, 177)) && is_link_group(Ipv4Addr::new(224, 0, 0, 1)));
        for other in [[224, 0, 1, 177], [239, 0, 0, 177], [223, 0, 0, 177], [10, 0, 0, 177]] {
            assert!(!is_link_group(other.into()));
            assert_eq!(in_kernel(other.into(), 0), None);
        }
    }

    #[test]
    fn each_group_of_each_port_has_a_name_of_its_own() {
        // given two groups and many ports
        let groups = [177, 178].map(|last| Ipv4Addr::new(224, 0, 0, last));
        let ports = [0, 1, 255, 256, 65_535];
        let names: BTreeSet<_> =
            groups.iter().flat_map(|group| ports.map(|port| in_kernel(*group, port).expect("a name"))).collect();
        // then no two share a name, and none is a group that the fabric carries
        assert_eq!(names.len(), groups.len() * ports.len());
        assert!(names.iter().all(|name| name.is_multicast() && !is_link_group(*name)));
        assert_eq!(in_kernel(groups[0], 65_536), None);
    }
}
