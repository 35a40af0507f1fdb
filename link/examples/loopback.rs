//! Throughput of writes over loopback TCP beside plain blocking reads and writes of the same size.
//!
//! `cargo run --release -p mesh-link --example loopback [-- SIZE_BYTES [ROUNDS]]`. One thread sends and one receives; the endpoint
//! keeps 8 writes queued, lands them in 8 slots and spins, yielding when there is nothing to do. Both are measured in turn, so
//! that both see the same machine; the ratio of medians is what counts.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use mesh_link::memory::Slab;
use mesh_link::tcp::{Counters, Limits, TcpEndpoint};
use mesh_link::{Event, Key, Target};

const DEPTH: usize = 8;
const BYTES: usize = 4 << 30;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn pair() -> Outcome<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    Ok((near, far))
}

/// Bytes per second of `write_all` and `read_exact`, over as many buffers as the endpoint uses.
fn plain(size: usize, count: usize) -> Outcome<f64> {
    let (mut near, mut far) = pair()?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || -> Outcome<()> {
            let buffers = vec![vec![1_u8; size]; DEPTH];
            for k in 0..count {
                near.write_all(&buffers[k % DEPTH])?;
            }
            Ok(())
        });
        let mut buffers = vec![vec![0_u8; size]; DEPTH];
        for k in 0..count {
            far.read_exact(&mut buffers[k % DEPTH])?;
        }
        sender.join().map_err(|_| "sender panicked")?
    })?;
    Ok((size * count) as f64 / begin.elapsed().as_secs_f64())
}

/// The same through a pair of endpoints.
fn writes(size: usize, count: usize) -> Outcome<(f64, Counters, Counters)> {
    let (near, far) = pair()?;
    let (mut near, mut far) = (TcpEndpoint::new(near, Limits::default())?, TcpEndpoint::new(far, Limits::default())?);
    let (from, into) = (Slab::new(DEPTH, size)?, Slab::new(DEPTH, size)?);
    for k in 0..DEPTH {
        from.slot(k).write_from(0, &vec![1; size]);
        into.slot(k).write_from(0, &vec![0; size]);
    }
    let keys: Vec<Key> = (0..DEPTH).map(|k| far.expose(into.slot(k))).collect::<Result<_, _>>()?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let from = &from;
        let sender = scope.spawn(move || -> Outcome<Counters> {
            let (mut posted, mut written) = (0, 0);
            while written < count {
                while posted < count && posted - written < DEPTH {
                    let slot = posted % DEPTH;
                    near.post_write(
                        posted as u64,
                        None,
                        from.slot(slot),
                        Target { key: keys[slot], offset: 0 },
                        Some(0),
                    )?;
                    posted += 1;
                }
                if !near.poll(|event| written += usize::from(matches!(event, Event::Written { .. })))? {
                    std::thread::yield_now();
                }
            }
            Ok(near.counters())
        });
        let mut notified = 0;
        while notified < count {
            // The sender leaves as soon as it has handed over everything; what it sent is reported before its end is.
            if !far.poll(|event| notified += usize::from(matches!(event, Event::Notified { .. })))? {
                std::thread::yield_now();
            }
        }
        let sent = sender.join().map_err(|_| "sender panicked")??;
        Ok(((size * count) as f64 / begin.elapsed().as_secs_f64(), sent, far.counters()))
    })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let size = arguments.next().map_or(Ok(512 << 10), |text| text.parse())?.max(1);
    let rounds = arguments.next().map_or(Ok(5), |text| text.parse())?.max(1);
    let count = (BYTES / size).clamp(1, 2_000_000);
    let (mut plain_rates, mut write_rates) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let plain = plain(size, count)?;
        let (rate, sent, received) = writes(size, count)?;
        println!(
            "round {round}: plain {:.2} GB/s, writes {:.2} GB/s, {:.2} sends and {:.2} receives a write",
            plain / 1e9,
            rate / 1e9,
            sent.syscalls_out as f64 / count as f64,
            received.syscalls_in as f64 / count as f64,
        );
        plain_rates.push(plain);
        write_rates.push(rate);
    }
    let (plain, rate) = (median(&mut plain_rates), median(&mut write_rates));
    println!("{size} bytes: plain {:.2} GB/s, writes {:.2} GB/s, ratio {:.2}", plain / 1e9, rate / 1e9, rate / plain);
    Ok(())
}
