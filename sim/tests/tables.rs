//! Throughput and fairness over hops, slots and flows, as a table that is compared to the last character.
//!
//! `MESH_SIM_BLESS=1 cargo test -p mesh-sim --test tables` writes it anew; then copy it into `docs/simulator.md`.

mod common;

use std::fmt::Write;

use common::{LIMIT, all_in_order, shape};
use mesh_routing::Shape;
use mesh_sim::virtual_time::{ConnSpec, Physics, World};

const BYTES_PER_US: u64 = 12_500;

/// Share of the link's rate that all flows reach together, and the slowest flow's share of the mean, in percent.
fn measure(hops: usize, slots: u16, flows: usize) -> (u64, u64) {
    let physics = Physics {
        latency: (2000, 2000),
        written: (0, 0),
        dial: (10_000, 10_000),
        bytes_per_us: BYTES_PER_US,
        ..Physics::default()
    };
    let topology = shape(Shape::Line, hops + 1, 1);
    let mut world = World::new(&topology, physics, 1, |_, c| {
        (c.chunk, c.entry_slots, c.trunk_slots, c.pool_slots) = (16 * 1024, slots, slots, 1024);
    });
    for _ in 0..flows {
        assert!(world.add(ConnSpec::plain(0, hops, 16, 128 * 1024)));
    }
    let summary = world.run(LIMIT).expect("a run that goes well");
    all_in_order(&summary).expect("everything arrives");
    let began = summary.conns.iter().map(|c| c.began).min().expect("flows");
    let finished = summary.conns.iter().map(|c| c.finished).max().expect("flows");
    let bytes: u64 = summary.conns.iter().map(|c| c.bytes).sum();
    let each: Vec<u64> = summary.conns.iter().map(|c| (c.finished - c.began) / 100).collect();
    let slowest = each.iter().max().expect("flows");
    let fairness = each.iter().sum::<u64>() * 100 / (slowest * each.len() as u64);
    (bytes * 100_000 / (BYTES_PER_US * (finished - began)), fairness)
}

fn table() -> String {
    let mut text = String::from("percent of the link's rate (slowest flow, percent of the mean)\n");
    text.push_str("hops  slots    1 flow      2 flows     4 flows     8 flows\n");
    for hops in 1..=4 {
        for slots in [1, 2, 4, 8, 16] {
            // Without a relay there are no slots to vary.
            if hops == 1 && slots > 1 {
                continue;
            }
            let label = if hops == 1 { "-".to_owned() } else { slots.to_string() };
            let _ = write!(text, "{hops:4}  {label:>5}");
            for flows in [1, 2, 4, 8] {
                let (rate, fairness) = measure(hops, slots, flows);
                let _ = write!(text, "   {rate:3} ({fairness:3})");
            }
            text.push('\n');
        }
    }
    text
}

#[test]
fn throughput_and_fairness_are_as_they_were() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/throughput.txt");
    let now = table();
    if std::env::var_os("MESH_SIM_BLESS").is_some() {
        std::fs::write(path, &now).expect("the snapshot can be written");
    }
    let before = std::fs::read_to_string(path).expect("the snapshot is there");
    assert!(
        now == before,
        "the table has changed; if that is meant, run with MESH_SIM_BLESS=1\nbefore:\n{before}\nnow:\n{now}"
    );
}

#[test]
fn the_document_shows_the_table_that_is_measured() {
    let table = include_str!("snapshots/throughput.txt");
    let document = include_str!("../../docs/simulator.md");
    assert!(document.contains(table), "docs/simulator.md shows another table");
}
