//! Random connections between the nodes of a topology.

use mesh_relay::engine::{MS, Time};

use super::{Closing, ConnSpec, MessageSpec, Pace, Rng, Who};

/// Bounds for random connections.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Nodes to choose from.
    pub nodes: usize,
    /// Most messages a connection.
    pub messages: u64,
    /// Longest message in bytes.
    pub longest: u64,
    /// Connections are opened within this time, in nanoseconds.
    pub opened_within: Time,
    /// How many of a hundred are closed at a random time rather than in order.
    pub cut_short: u64,
    /// How many of a hundred have a slow receiver.
    pub slow: u64,
}

impl Workload {
    /// So many nodes, up to 24 messages of up to 4 KiB, all in order.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, messages: 24, longest: 4096, opened_within: 5 * MS, cut_short: 0, slow: 25 }
    }

    /// A random connection between two nodes.
    pub fn conn(&self, rng: &mut Rng, from: usize, to: usize) -> ConnSpec {
        let pace = |rng: &mut Rng, slow: bool| {
            if slow {
                Pace { pauses: 60, longest: 800_000 }
            } else {
                Pace { pauses: rng.pick(&[0, 0, 10, 50]), longest: rng.between(1000, 100_000) }
            }
        };
        let messages = (0..rng.between(0, self.messages))
            .map(|_| {
                let len = match rng.below(8) {
                    0 => 0,
                    1 => 1,
                    2 => self.longest,
                    _ => rng.between(1, self.longest),
                };
                MessageSpec { len, capacity: len + rng.pick(&[0, 0, 1, 5000]) }
            })
            .collect();
        let who = rng.pick(&[Who::Sender, Who::Sender, Who::Receiver, Who::Both]);
        let open_at = rng.below(self.opened_within.max(1));
        let closing = if rng.percent(self.cut_short) {
            // Early ones meet it while it dials or is being set up, late ones when it is idle.
            let after = rng.pick(&[100_000, MS, 3 * MS, 10 * MS, 30 * MS]);
            Closing::At { time: open_at + rng.below(after), by: who, at_once: rng.percent(50) }
        } else {
            Closing::Done(who)
        };
        let slow = rng.percent(self.slow);
        ConnSpec {
            from,
            to,
            nth: rng.below(4) as usize,
            lanes: rng.between(1, 8) as usize,
            open_at,
            budget: 20_000 * MS,
            messages,
            send_depth: rng.pick(&[1, 2, 8, 32]),
            recv_depth: rng.pick(&[1, 2, 8, 32]),
            send_pace: pace(rng, false),
            recv_pace: pace(rng, slow),
            closing,
            unlisten_at: None,
        }
    }
}

/// So many connections between random pairs; pairs may come several times.
pub fn random_pairs(work: &Workload, rng: &mut Rng, count: usize) -> Vec<ConnSpec> {
    let nodes = work.nodes as u64;
    (0..count)
        .map(|_| {
            let from = rng.below(nodes);
            let to = (from + rng.between(1, nodes - 1)) % nodes;
            work.conn(rng, from as usize, to as usize)
        })
        .collect()
}

/// A connection from every node to every other, each with `count` messages of `len` bytes, all at once.
pub fn all_pairs(nodes: usize, count: usize, len: u64) -> Vec<ConnSpec> {
    let pairs = (0..nodes).flat_map(|a| (0..nodes).filter(move |b| *b != a).map(move |b| (a, b)));
    pairs.map(|(a, b)| ConnSpec::plain(a, b, count, len)).collect()
}
