//! Cables that are declared and not found, found and not declared, or found in another port than declared. Knows of
//! ports only whether they are where they should be. Any thread.

use super::{Comparison, Difference, PortAt};
use crate::Topology;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The addresses of a cable's ends, the lower first.
type Cable = [Ipv4Addr; 2];

/// Adds what differs between cables whose ports are all in `sound`.
pub(super) fn compare(
    of: &Comparison<'_>,
    sound: &BTreeSet<Ipv4Addr>,
    cables: &[Cable],
    differences: &mut Vec<Difference>,
) {
    let found: BTreeSet<Cable> = cables.iter().map(|&[a, b]| [a.min(b), a.max(b)]).collect();
    let links = || of.declared.links().iter().map(|link| (link, link.ends.map(|end| end.address)));
    let declared: BTreeSet<Cable> = links().map(|(_, cable)| cable).collect();
    let both_sound = |cable: &Cable| cable.iter().all(|end| sound.contains(end));
    let missing: Vec<Cable> = links()
        .filter(|(link, cable)| !link.switched && both_sound(cable) && !found.contains(cable))
        .map(|(_, cable)| cable)
        .collect();
    let surplus: Vec<Cable> = found.iter().filter(|cable| !declared.contains(*cable)).copied().collect();
    let moved = moves(&missing, &surplus);
    for (cable, to) in missing.iter().zip(&moved) {
        let ends = cable.map(|end| port(of.declared, end));
        differences.push(match to {
            None => Difference::MissingCable { ends },
            Some(to) => {
                Difference::CableInAnotherPort { declared: ends, found: surplus[*to].map(|end| port(of.found, end)) }
            }
        });
    }
    off_switch(of, sound, &found, differences);
    for (at, cable) in surplus.iter().enumerate() {
        // A cable to a port or node that is not declared has been told with that.
        if both_sound(cable) && !moved.contains(&Some(at)) {
            differences.push(Difference::ExtraCable { ends: cable.map(|end| port(of.found, end)) });
        }
    }
}

/// On a switch, ports that no other port of the segment is found joined with.
fn off_switch(
    of: &Comparison<'_>,
    sound: &BTreeSet<Ipv4Addr>,
    found: &BTreeSet<Cable>,
    differences: &mut Vec<Difference>,
) {
    let joined: BTreeSet<_> = found.iter().flatten().collect();
    for &subnet in of.declared.switches() {
        let here = |address: &&Ipv4Addr| {
            of.declared
                .port_by_address(**address)
                .is_some_and(|(node, index)| of.declared.node(node).ports[index].subnet() == Some(subnet))
        };
        let ports: Vec<_> = sound.iter().filter(here).collect();
        for &&address in ports.iter().filter(|address| ports.len() > 1 && !joined.contains(*address)) {
            differences.push(Difference::OffSwitch { port: port(of.declared, address), subnet });
        }
    }
}

/// For each missing cable the surplus one that it has become: one that shares an end with it. As many as can be, each
/// once; the first of equals.
fn moves(missing: &[Cable], surplus: &[Cable]) -> Vec<Option<usize>> {
    let mut taken: Vec<Option<usize>> = vec![None; surplus.len()];
    for cable in 0..missing.len() {
        place(cable, missing, surplus, &mut taken, &mut vec![false; surplus.len()]);
    }
    let mut moved = vec![None; missing.len()];
    for (to, cable) in taken.into_iter().enumerate() {
        if let Some(cable) = cable {
            moved[cable] = Some(to);
        }
    }
    moved
}

/// Finds a place for this cable, moving those on if need be.
fn place(cable: usize, missing: &[Cable], surplus: &[Cable], taken: &mut [Option<usize>], tried: &mut [bool]) -> bool {
    for to in 0..surplus.len() {
        let shares = surplus[to].iter().any(|end| missing[cable].contains(end));
        if !shares || std::mem::replace(&mut tried[to], true) {
            continue;
        }
        if taken[to].is_none_or(|other| place(other, missing, surplus, taken, tried)) {
            taken[to] = Some(cable);
            return true;
        }
    }
    false
}

/// The port with this address; a cable may end at one that nothing is known of.
fn port(topology: &Topology, address: Ipv4Addr) -> PortAt {
    topology.port_by_address(address).map_or_else(
        || PortAt { node: "?".to_owned(), device: String::new(), address },
        |(node, index)| PortAt::of(topology.node(node), &topology.node(node).ports[index]),
    )
}
