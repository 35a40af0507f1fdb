//! Streams that share a trunk: one whose receiver is slow, or whose last link is, leaves the others their part; many get equal parts; and
//! a node that sends a lot itself leaves those that relay through it theirs.

mod common;

use common::{LIMIT, all_in_order, each_seed, text};
use mesh_relay::engine::{MS, Time};
use mesh_relay::send::Acks;
use mesh_routing::{NodeSpec, Policy, PortSpec, Topology};
use mesh_sim::virtual_time::{ConnSpec, Pace, Physics, World};
use std::net::Ipv4Addr;

const STREAMS: usize = 4;

/// Streams where there are many.
const MANY: usize = 64;
/// Messages that each of them sends.
const MESSAGES: usize = 8;
/// Bytes of a message.
const LEN: u64 = 32 * 1024;

/// So many senders at one hub, as many receivers at another, one link between the hubs: everything shares its trunk. Numbered in this order:
/// senders, receivers, hub of the senders, hub of the receivers.
fn two_hubs(pairs: usize) -> Topology {
    let (near, far) = (2 * pairs, 2 * pairs + 1);
    let mut nodes: Vec<_> = (0..=far).map(|n| NodeSpec::new(format!("node{n}"))).collect();
    let cables = (0..pairs).map(|n| (n, near)).chain((pairs..near).map(|n| (far, n))).chain([(near, far)]);
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
    let mut world = World::new(&two_hubs(STREAMS), Physics::default(), seed, |_, c| {
        (c.chunk, c.entry_slots, c.trunk_slots, c.classes) = (4096, 16, slots, 1);
    });
    let mut specs: Vec<_> = (0..STREAMS).map(|n| ConnSpec::plain(n, n + 4, 60, LEN)).collect();
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

/// Throughput of so many streams of equal users, all opened at about the same time; the last one is hindered as asked.
fn many(
    seed: u64,
    acks: Acks,
    (streams, slots): (usize, u16),
    hinder: impl FnOnce(&mut World, &mut ConnSpec),
) -> Result<Vec<f64>, String> {
    let physics = Physics { acks, dial: (10_000, 50_000), ..Physics::default() };
    let mut world = World::new(&two_hubs(streams), physics, seed, |_, c| {
        (c.chunk, c.entry_slots, c.trunk_slots, c.classes, c.pool_slots) = (4096, 4, slots, 1, 1024);
    });
    let mut specs: Vec<_> = (0..streams).map(|n| ConnSpec::plain(n, n + streams, MESSAGES, LEN)).collect();
    hinder(&mut world, &mut specs[streams - 1]);
    specs.into_iter().for_each(|spec| assert!(world.add(spec)));
    let summary = world.run(LIMIT).map_err(text)?;
    all_in_order(&summary)?;
    Ok(summary.conns.iter().map(|c| c.throughput()).collect())
}

#[test]
fn of_many_streams_the_slowest_has_half_of_the_mean() {
    each_seed("fairness::of_many_streams_the_slowest_has_half_of_the_mean", 2, |seed| {
        for (acks, slots) in [(Acks::Receiver, 8), (Acks::Receiver, 64), (Acks::Link, 8), (Acks::Link, 64)] {
            let all = many(seed, acks, (MANY, slots), |_, _| ())?;
            assert!(least(&all) >= 0.5 * mean(&all), "{acks:?}, {slots} slots: {all:?}");
        }
        Ok(())
    });
}

#[test]
fn one_slow_receiver_of_many_holds_up_nobody() {
    each_seed("fairness::one_slow_receiver_of_many_holds_up_nobody", 2, |seed| {
        // A slow stream that may send holds its share all the time, here one slot: of 8 that would be an eighth of what so few let through. It
        // comes last, since a share is larger while few are active, and what a stream holds is not taken back.
        for (acks, slots) in [(Acks::Receiver, 16), (Acks::Receiver, 32), (Acks::Link, 16), (Acks::Link, 32)] {
            // given the others alone
            let before = many(seed, acks, (MANY - 1, slots), |_, _| ())?;
            // when one comes whose receiver is 100 times slower: it posts so late, or its link is so slow
            let message = LEN as f64 * 1000.0 / mean(&before);
            let user = many(seed, acks, (MANY, slots), |_, conn| {
                conn.open_at = MS;
                // In the mean a pause is half of the longest.
                (conn.recv_depth, conn.recv_pace) = (1, Pace { pauses: 100, longest: (200.0 * message) as Time });
            })?;
            let factor = 100.0 * Physics::default().bytes_per_us as f64 / mean(&before);
            let link = many(seed, acks, (MANY, slots), |world, conn| {
                conn.open_at = MS;
                world.slow_down(2 * MANY + 1, conn.to, factor as u64);
            })?;
            for (all, why) in [(user, "user"), (link, "link")] {
                let (slow, others) = all.split_last().expect("streams");
                let what = || format!("{why}, {acks:?}, {slots} slots: {all:?}, before {before:?}");
                // then it is slow itself, the others keep what they had, and none of them pays for all
                assert!(*slow < 0.1 * mean(others), "{}", what());
                assert!(mean(others) >= 0.9 * mean(&before), "{}", what());
                assert!(least(others) >= 0.5 * mean(others), "{}", what());
            }
        }
        Ok(())
    });
}

#[test]
fn a_neighbour_that_is_sent_all_a_link_takes_leaves_relayed_streams_half_of_a_fair_share() {
    let test = "fairness::a_neighbour_that_is_sent_all_a_link_takes_leaves_relayed_streams_half_of_a_fair_share";
    each_seed(test, 2, |seed| {
        for (acks, streams) in [(Acks::Receiver, 2), (Acks::Receiver, 8), (Acks::Link, 2), (Acks::Link, 8)] {
            // given a hub that sends to its neighbour as fast as the link goes, over a leg that takes turns with the trunk
            let (latency, written, dial) = ((1000, 2000), (0, 2000), (10_000, 50_000));
            let physics = Physics { acks, latency, written, dial, turn: 1024, ..Physics::default() };
            let mut world = World::new(&two_hubs(streams), physics, seed, |_, c| {
                (c.chunk, c.entry_slots, c.trunk_slots, c.classes) = (16 * 1024, 8, 16, 1);
            });
            assert!(world.add(ConnSpec::plain(2 * streams, 2 * streams + 1, 600, LEN)));
            // when streams come that the hub relays over the same link
            for n in 0..streams {
                assert!(
                    world.add(ConnSpec { open_at: MS / 10, ..ConnSpec::plain(n, n + streams, 100 / streams, LEN) })
                );
            }
            let summary = world.run(LIMIT).map_err(text)?;
            all_in_order(&summary)?;
            let (own, relayed) = summary.conns.split_first().expect("connections");
            assert!(relayed.iter().all(|c| own.began < c.began && c.finished < own.finished), "all the time");
            // then each has at least half of what it had if all had the same
            let fair = physics.bytes_per_us as f64 / summary.conns.len() as f64;
            let all: Vec<_> = relayed.iter().map(|c| c.throughput()).collect();
            assert!(least(&all) >= 0.5 * fair, "{acks:?}, {streams} streams: {all:?} of {fair}");
        }
        Ok(())
    });
}
