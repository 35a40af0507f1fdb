//! A word on the order of the ranks of a job: whether another would make its ring cross fewer relays. Knows nothing of
//! launchers or of running jobs. Any thread; the same answer on every node.

use crate::rank_order::best_ring;
use crate::render::counted;
use crate::{NodeId, Router, Topology};
use std::collections::BTreeSet;
use std::fmt;

/// A better order of ranks, and by how much.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// The nodes of the job in the better order, each once: all ranks of a node together.
    pub order: Vec<NodeId>,
    /// Their names.
    pub names: Vec<String>,
    /// What the ring crosses in the order it has.
    pub now: RingCost,
    /// What it would cross in the better order.
    pub then: RingCost,
}

/// What the ring of an order of ranks crosses, both the least possible 0. Compares: less is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct RingCost {
    /// Steps of the ring between nodes without any route.
    pub cut_steps: usize,
    /// Steps of the ring that need a relay.
    pub relayed_steps: usize,
    /// Relays crossed on all of them together.
    pub relays: usize,
}

/// The better order for a job whose ranks run on these nodes, rank by rank; a node may have several ranks, and not
/// every node need have one. `None` if the ring of the ranks crosses no relay, if no better order is found, or if a node
/// is none of the topology.
pub fn advice(topology: &Topology, ranks_of_nodes: &[NodeId]) -> Option<Advice> {
    if ranks_of_nodes.iter().any(|node| node.index() >= topology.nodes().len()) {
        return None;
    }
    let router = Router::new(topology);
    let now = ring_cost(&router, ranks_of_nodes);
    if now == RingCost::default() {
        return None;
    }
    let used: BTreeSet<_> = ranks_of_nodes.iter().copied().collect();
    let canonical: Vec<_> = topology.canonical_order().iter().copied().filter(|node| used.contains(node)).collect();
    let order = best_ring(&canonical, &router);
    let then = ring_cost(&router, &order);
    let names = order.iter().map(|&node| topology.name(node).to_owned()).collect();
    (then < now).then_some(Advice { order, names, now, then })
}

/// What the ring from each of these nodes to the next, and from the last to the first, crosses.
fn ring_cost(router: &Router, nodes: &[NodeId]) -> RingCost {
    let mut cost = RingCost::default();
    // Two ranks make one step, there and back.
    let steps = if nodes.len() == 2 { 1 } else { nodes.len() };
    for (&a, &b) in nodes.iter().zip(nodes.iter().cycle().skip(1)).take(steps).filter(|(a, b)| a != b) {
        match router.distance(a, b) {
            None => cost.cut_steps += 1,
            Some(hops) if hops > 1 => {
                cost.relayed_steps += 1;
                cost.relays += hops - 1;
            }
            Some(_) => {}
        }
    }
    cost
}

impl fmt::Display for RingCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.relayed_steps {
            0 => f.write_str("no relay")?,
            steps => {
                let (relays, steps) = (counted(self.relays, "relay", "relays"), counted(steps, "step", "steps"));
                write!(f, "{relays} on {steps}")?;
            }
        }
        match self.cut_steps {
            0 => Ok(()),
            cut => write!(f, " and has no route on {cut}"),
        }
    }
}

impl fmt::Display for Advice {
    /// One line, with the order to copy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (now, then) = (self.now, self.then);
        write!(
            f,
            "the ring of the ranks crosses {now}; with ranks in this order it crosses {then}: {}",
            self.names.join(",")
        )
    }
}
