//! What goes wrong in namespaces: cables that are cut and mended, nodes that lose their power.
//!
//! On the thread of the faults. Knows cables and namespaces, nothing of what runs.

use mesh_routing::Topology;

use super::ip::Ip;
use super::layout::{Layout, netdev};
use super::{Netns, keeper};
use crate::harness::args::{ArgsError, Fault, FaultKind};
use crate::harness::fault::cable;
use crate::harness::faults::{self, Faults, Step};

/// What there is to do.
#[derive(Debug, PartialEq, Eq)]
enum What {
    /// One end of a cable goes down or up.
    Port { namespace: String, netdev: String, up: bool },
    /// All that runs in a namespace is killed.
    Kill { namespace: String },
}

/// See [`faults::begin`].
pub(in crate::harness) fn begin_faults(
    faults: &[Fault],
    topology: &Topology,
    netns: &Netns,
) -> Result<Faults, ArgsError> {
    let (ip, layout) = netns.hands();
    Faults::of(steps(faults, topology, &layout)?, move |what| carry_out(&ip, what))
}

fn carry_out(ip: &Ip, what: &What) -> Result<(), String> {
    match what {
        What::Port { namespace, netdev, up } => {
            let state = if *up { "up" } else { "down" };
            ip.run(&["-n", namespace, "link", "set", netdev, state]).map(drop).map_err(|error| error.to_string())
        }
        What::Kill { namespace } => {
            keeper::kill_all(ip, namespace);
            Ok(())
        }
    }
}

fn steps(all: &[Fault], topology: &Topology, layout: &Layout) -> Result<Vec<Step<What>>, ArgsError> {
    faults::steps(all, |fault| match &fault.what {
        FaultKind::Absent(_) => Ok(Vec::new()),
        FaultKind::Kill(name) => {
            let node = topology.node_by_name(name);
            let node = node.ok_or_else(|| ArgsError::Fault(format!("{fault}: no node {name}")))?;
            Ok(vec![What::Kill { namespace: layout.namespace(node.index()).to_owned() }])
        }
        FaultKind::Cut(ends) | FaultKind::Mend(ends) => {
            let up = matches!(fault.what, FaultKind::Mend(_));
            let ends = cable(topology, ends).map_err(|problem| ArgsError::Fault(format!("{fault}: {problem}")))?;
            let port = |end: mesh_routing::End| What::Port {
                namespace: layout.namespace(end.node.index()).to_owned(),
                netdev: netdev(end.port),
                up,
            };
            Ok(ends.into_iter().map(port).collect())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_routing::{AddressPlan, Shape};
    use std::time::Duration;

    fn asked(texts: &[&str]) -> Result<Vec<Step<What>>, ArgsError> {
        let faults: Vec<Fault> = texts.iter().map(|text| text.parse().expect("known")).collect();
        let topology = Topology::from_shape(Shape::Ring, 3, 2, &AddressPlan::default()).expect("a ring");
        steps(&faults, &topology, &Layout::of(&topology, 7).expect("room"))
    }

    #[test]
    fn a_cable_is_cut_at_the_end_that_is_named_first() {
        // given a ring with two rails, then a cut takes both, or the one that is named
        let both = asked(&["1 cut node1 node0"]).expect("a cable");
        assert_eq!(both.len(), 2);
        let one = asked(&["500ms mend node1 node0 1"]).expect("a cable");
        assert_eq!((one.len(), one[0].at), (1, Duration::from_millis(500)));
        let What::Port { namespace, up, .. } = &one[0].what else { panic!("{one:?}") };
        assert_eq!((namespace.as_str(), *up), ("nccl-mesh-7-node1", true));
        let What::Port { netdev: first, .. } = &both[0].what else { panic!("{both:?}") };
        let What::Port { netdev: second, .. } = &both[1].what else { panic!("{both:?}") };
        assert_ne!(first, second);
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (text, told) in [
            ("1 cut node0 node9", "no node node9"),
            ("1 cut node0 node0", "no cable"),
            ("1 cut node0 node1 2", "no rail 2"),
            ("1 kill node9", "no node node9"),
        ] {
            let error = asked(&[text]).expect_err(text).to_string();
            assert!(error.contains(told) && error.contains(text), "{error}");
        }
    }
}
