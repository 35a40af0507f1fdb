//! The state machines without any I/O: what a chunk costs a relay's engine, what a message costs its two ends, what a header costs.
//!
//! Figures are nanoseconds of one thread, medians over the rounds.

use std::hint::black_box;
use std::time::Instant;

use mesh_relay::send::{Acks, SendMode};
use mesh_relay::wire::ChunkHeader;

use crate::common::ends::Ends;
use crate::common::relay::Relay;
use crate::common::{CHUNK, CHUNKS, Outcome};
use crate::{Effort, median};

/// What is measured, into how many parts its time is divided, and one round of it.
type Row = (&'static str, f64, Box<dyn FnMut() -> Outcome<()>>);

/// Measures and prints all.
pub(crate) fn all(effort: Effort) -> Outcome<()> {
    println!("state machines alone, ns");
    let (mut last, mut trunk) = (Relay::new(2, Acks::Receiver)?, Relay::new(3, Acks::Receiver)?);
    let mut direct = Ends::new(SendMode::direct(1, 1 << 16, Acks::Receiver));
    let mut rails = Ends::new(SendMode::direct(2, 512, Acks::Receiver));
    let mut relayed = Ends::new(SendMode::relayed(CHUNK, 4, Acks::Receiver));
    let mut seq = 0;
    let chunks = f64::from(CHUNKS);
    let mut rows: [Row; 6] = [
        ("a chunk at the last relay: in, delivered, written, credited", chunks, Box::new(move || last.message())),
        (
            "a chunk at a relay before a trunk: in, forwarded, written, credited",
            chunks,
            Box::new(move || trunk.message()),
        ),
        ("a message at its two ends, direct", 1.0, Box::new(move || direct.message())),
        ("a message at its two ends, direct over two rails", 1.0, Box::new(move || rails.message())),
        ("a message at its two ends, relayed in 4 chunks", 1.0, Box::new(move || relayed.message())),
        (
            "a header, encoded and decoded",
            1.0,
            Box::new(move || {
                seq += 1;
                let header = ChunkHeader { stream: 0, seq, at: 0, len: CHUNK, key: 1, parts: 1, last: true };
                black_box(ChunkHeader::decode(&black_box(header).encode(), CHUNK)?);
                Ok(())
            }),
        ),
    ];
    let mut figures = vec![vec![]; rows.len()];
    for _ in 0..effort.rounds {
        for ((_, parts, round), figures) in rows.iter_mut().zip(&mut figures) {
            let begin = Instant::now();
            for _ in 0..effort.steps {
                round()?;
            }
            figures.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(effort.steps) / *parts);
        }
    }
    for ((name, ..), figures) in rows.iter().zip(&mut figures) {
        println!("{:>8.0}  {name}", median(figures));
    }
    Ok(())
}
