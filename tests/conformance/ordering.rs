//! Strict order of many messages on many connections between the same two nodes.

use crate::node::Node;
use crate::pump::{Plan, ReceivePump, SendPump, run};
use crate::scenario::{Fabric, LINE, scenario};

const CONNECTIONS: usize = 8;
/// A connection and direction: with the two scenarios and the other direction, 10⁵ messages in all.
const MESSAGES: u64 = 100_000 / (2 * 2 * CONNECTIONS as u64);

fn small(random: u64, _: u64) -> usize {
    match random % 16 {
        0..=3 => 0,
        4..=11 => (random >> 8) as usize % 100,
        12..=14 => (random >> 8) as usize % 2000,
        _ => (random >> 8) as usize % 20_000,
    }
}

/// Ranks 0 and `last` talk over eight connections each way, all on one thread a rank.
fn crowd(node: &Node, last: usize) {
    if node.rank != 0 && node.rank != last {
        return;
    }
    let peer = last - node.rank;
    let name = |from: usize, index: usize| format!("{from}#{index}");
    let plan = |from: usize, index: usize| Plan {
        seed: 0x18_0000 + (from * CONNECTIONS + index) as u64,
        count: MESSAGES,
        slot: 20_000,
        depth: [1, 2, 5, 8, 8, 13, 31, 32][index],
        size: small,
    };
    let listeners: Vec<_> = (0..CONNECTIONS).map(|index| node.listen(&name(peer, index))).collect();
    let senders: Vec<_> = (0..CONNECTIONS).map(|index| node.sender(&name(node.rank, index))).collect();
    let receivers: Vec<_> = listeners.iter().map(|listen| node.accept(listen)).collect();
    listeners.into_iter().for_each(|listen| node.plugin.close_listen(listen).unwrap());
    let sending = senders.iter().enumerate().map(|(index, comm)| SendPump::new(node, *comm, plan(node.rank, index)));
    let receiving = receivers.iter().enumerate().map(|(index, comm)| ReceivePump::new(node, *comm, plan(peer, index)));
    run(node, sending.collect(), receiving.collect());
    senders.into_iter().for_each(|comm| node.close_sender(comm));
    receivers.into_iter().for_each(|comm| node.close_receiver(comm));
}

scenario! {
    eight_connections_each_way_keep_order_over_two_relays on LINE, |node| crowd(node, 3)
}

scenario! {
    eight_connections_each_way_keep_order_over_both_ways_round on Fabric { shape: "ring", ..LINE }, |node| crowd(node, 2)
}
