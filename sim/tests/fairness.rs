//! Streams that share a trunk: one whose receiver is slow, or whose last link is, leaves the others their part.

mod common;

use common::{LIMIT, all_in_order, each_seed, text};
use mesh_relay::engine::MS;
use mesh_routing::{NodeSpec, Policy, PortSpec, Topology};
use mesh_sim::virtual_time::{ConnSpec, Pace, Physics, World};
use std::net::Ipv4Addr;

const STREAMS: usize = 4;

/// Senders 0 to 3 at hub 8, receivers 4 to 7 at hub 9, one link between the hubs: everything shares its trunk.
fn two_hubs() -> Topology {
    let mut nodes: Vec<_> = (0..10).map(|n| NodeSpec::new(format!("node{n}"))).collect();
    let cables = (0..4).map(|n| (n, 8)).chain((4..8).map(|n| (9, n))).chain([(8, 9)]);
    for (subnet, (a, b)) in cables.enumerate() {
        for (host, node) in [(1, a), (2, b)] {
            let address = Ipv4Addr::new(10, 1, subnet as u8, host);
            nodes[node].ports.push(PortSpec::new(format!("mesh{subnet}"), address, 30));
        }
    }
    Topology::from_nodes(nodes, Vec::new(), Policy::default()).expect("a sound topology")
}

/// Throughput of every stream; the last one is hindered as asked.
fn throughputs(seed: u64, slots: u16, hinder: impl FnOnce(&mut World, &mut ConnSpec)) -> Result<Vec<f64>, String> {
    let mut world = World::new(&two_hubs(), Physics::default(), seed, |_, c| {
        (c.chunk, c.entry_slots, c.trunk_slots, c.classes) = (4096, 16, slots, 1);
    });
    let mut specs: Vec<_> = (0..STREAMS).map(|n| ConnSpec::plain(n, n + 4, 60, 32 * 1024)).collect();
    hinder(&mut world, &mut specs[STREAMS - 1]);
    specs.into_iter().for_each(|spec| assert!(world.add(spec)));
    let summary = world.run(LIMIT).map_err(text)?;
    all_in_order(&summary)?;
    Ok(summary.conns.iter().map(|c| c.throughput()).collect())
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

fn least(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn streams_of_a_trunk_get_equal_parts() {
    each_seed("fairness::streams_of_a_trunk_get_equal_parts", 3, |seed| {
        for slots in [1, 2, 8, 32] {
            let all = throughputs(seed, slots, |_, _| ())?;
            assert!(least(&all) > 0.7 * mean(&all), "{slots} slots: {all:?}");
        }
        Ok(())
    });
}

#[test]
fn a_slow_user_or_link_leaves_the_others_their_part() {
    each_seed("fairness::a_slow_user_or_link_leaves_the_others_their_part", 3, |seed| {
        for slots in [8, 32] {
            let before = throughputs(seed, slots, |_, _| ())?;
            // given a receiver that posts late, or a last link a thousand times slower
            let user = throughputs(seed, slots, |_, conn| {
                (conn.recv_depth, conn.recv_pace) = (1, Pace { pauses: 100, longest: 2 * MS });
            })?;
            let link = throughputs(seed, slots, |world, conn| world.slow_down(9, conn.to, 1000))?;
            for (all, why) in [(user, "user"), (link, "link")] {
                let (slow, others) = all.split_last().expect("streams");
                // then it is slow itself, and the others are even and lose less than half
                assert!(*slow < 0.5 * mean(others), "{why} with {slots} slots: {all:?}");
                assert!(least(others) >= 0.5 * mean(others), "{why} with {slots} slots: {all:?}");
                assert!(least(others) >= 0.5 * mean(&before), "{why} with {slots} slots: {all:?}, before {before:?}");
            }
        }
        Ok(())
    });
}
