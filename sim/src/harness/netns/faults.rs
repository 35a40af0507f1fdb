//! What goes wrong while a run lasts: cables that are cut and mended, nodes that lose their power.
//!
//! One thread, which waits for the next time and does what is to be done then. Knows cables and namespaces, nothing of what runs.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mesh_routing::Topology;

use super::ip::Ip;
use super::layout::{Layout, netdev};
use super::{Netns, keeper};
use crate::harness::args::{ArgsError, Fault, FaultKind};
use crate::harness::fault::cable;

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    at: Duration,
    /// As the user wrote it.
    text: String,
    what: What,
}

/// What there is to do.
#[derive(Debug, PartialEq, Eq)]
enum What {
    /// One end of a cable goes down or up.
    Port { namespace: String, netdev: String, up: bool },
    /// All that runs in a namespace is killed.
    Kill { namespace: String },
}

/// The faults of a run, from when it begins.
#[derive(Debug, Default)]
pub(in crate::harness) struct Faults(Option<Running>);

#[derive(Debug)]
struct Running {
    stop: Sender<()>,
    thread: JoinHandle<Vec<String>>,
}

impl Faults {
    /// Does what is for the very start, and begins to wait for the rest. Without namespaces there is nothing to wait for.
    pub(in crate::harness) fn begin(
        faults: &[Fault],
        topology: &Topology,
        netns: Option<&Netns>,
    ) -> Result<Self, ArgsError> {
        let Some(netns) = netns else {
            let foreign = faults.iter().find(|fault| !matches!(fault.what, FaultKind::Absent(_)));
            return foreign.map_or_else(|| Ok(Self::default()), |fault| Err(ArgsError::NeedsNetns(fault.to_string())));
        };
        let (ip, layout) = netns.hands();
        let mut steps = steps(faults, topology, &layout)?;
        steps.sort_by_key(|step| step.at);
        let later = steps.split_off(steps.partition_point(|step| step.at.is_zero()));
        let problems: Vec<String> = steps.iter().filter_map(|step| carry_out(&ip, step)).collect();
        if later.is_empty() && problems.is_empty() {
            return Ok(Self::default());
        }
        let (stop, stopped) = channel::<()>();
        let began = Instant::now();
        let work = move || {
            let mut problems = problems;
            for step in later {
                let left = (began + step.at).saturating_duration_since(Instant::now());
                if stopped.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                    problems.extend(carry_out(&ip, &step));
                } else {
                    problems.push(format!("the run was over before the fault {:?}", step.text));
                }
            }
            problems
        };
        let thread = std::thread::Builder::new().name("faults".to_owned()).spawn(work);
        let thread = thread.map_err(|error| ArgsError::Fault(format!("no thread for faults: {error}")))?;
        Ok(Self(Some(Running { stop, thread })))
    }

    /// Ends the waiting; answers what did not come about.
    pub(in crate::harness) fn end(self) -> Vec<String> {
        let Some(running) = self.0 else { return Vec::new() };
        drop(running.stop);
        running.thread.join().unwrap_or_else(|_| vec!["the thread of the faults panicked".to_owned()])
    }
}

/// Does it; answers what went wrong with that.
fn carry_out(ip: &Ip, step: &Step) -> Option<String> {
    eprintln!("fault: {}", step.text);
    match &step.what {
        What::Port { namespace, netdev, up } => {
            let state = if *up { "up" } else { "down" };
            let done = ip.run(&["-n", namespace, "link", "set", netdev, state]);
            done.err().map(|error| format!("the fault {:?} did not come about: {error}", step.text))
        }
        What::Kill { namespace } => {
            keeper::kill_all(ip, namespace);
            None
        }
    }
}

fn steps(faults: &[Fault], topology: &Topology, layout: &Layout) -> Result<Vec<Step>, ArgsError> {
    let mut steps = Vec::new();
    for fault in faults {
        let mut add = |what| steps.push(Step { at: fault.at, text: fault.to_string(), what });
        match &fault.what {
            FaultKind::Absent(_) => {}
            FaultKind::Kill(name) => {
                let node = topology.node_by_name(name);
                let node = node.ok_or_else(|| ArgsError::Fault(format!("{fault}: no node {name}")))?;
                add(What::Kill { namespace: layout.namespace(node.index()).to_owned() });
            }
            FaultKind::Cut(ends) | FaultKind::Mend(ends) => {
                let up = matches!(fault.what, FaultKind::Mend(_));
                for end in cable(topology, ends).map_err(|problem| ArgsError::Fault(format!("{fault}: {problem}")))? {
                    let namespace = layout.namespace(end.node.index()).to_owned();
                    add(What::Port { namespace, netdev: netdev(end.port), up });
                }
            }
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_routing::{AddressPlan, Shape};

    fn asked(texts: &[&str]) -> Result<Vec<Step>, ArgsError> {
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
        // and without namespaces nothing can be cut
        let fault = ["1s cut node0 node1".parse::<Fault>().expect("known")];
        let topology = Topology::from_shape(Shape::Ring, 3, 1, &AddressPlan::default()).expect("a ring");
        let error = Faults::begin(&fault, &topology, None).expect_err("nothing to cut").to_string();
        assert!(error.contains("--netns"), "{error}");
    }
}
