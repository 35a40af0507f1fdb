//! What the layers cost, side by side in one run: plain sockets, writes of the TCP link, paths over 0 to 3 relays, and the state
//! machines alone.
//!
//! `cargo bench --bench direct_and_relayed [-- ROUNDS]`, under a minute for the usual 7 rounds. Everything that is compared is measured in turn
//! within each round, so that all of it sees the same machine; printed are medians over the rounds, and ratios as medians of the rounds' own
//! ratios. Ratios are what counts: absolute figures belong to one machine at one moment. Without `--bench` (as in `cargo test --benches`)
//! one short round shows that it works.
//!
//! ```text
//!   sockets   blocking sockets, and the TCP link's endpoints over one socket
//!   path      agents of a line of nodes in this process, and a connection between its ends
//!   machines  engine, flows and headers without any I/O
//! ```

#[path = "../common/mod.rs"]
mod common;
mod machines;
mod path;
mod sockets;

use common::Outcome;
use path::Line;

/// Writes or messages that are open at once where bandwidth is measured.
const DEPTH: usize = 8;

/// How much is done.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// Bytes moved for one bandwidth.
    bytes: usize,
    /// Most writes or messages for one bandwidth.
    messages: usize,
    /// Round trips for one latency.
    trips: usize,
    /// Rounds of a state machine for one figure.
    steps: u32,
}

const FULL: Effort = Effort { rounds: 7, bytes: 512 << 20, messages: 50_000, trips: 1_500, steps: 100_000 };
const SMOKE: Effort = Effort { rounds: 1, bytes: 8 << 20, messages: 200, trips: 20, steps: 500 };

impl Effort {
    fn count(&self, size: usize) -> usize {
        (self.bytes / size).clamp(1, self.messages)
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut effort = if arguments.iter().any(|text| text == "--bench") { FULL } else { SMOKE };
    if let Some(rounds) = arguments.iter().find_map(|text| text.parse().ok()) {
        effort.rounds = usize::max(rounds, 1);
    }
    let cores = std::thread::available_parallelism()?;
    println!("{cores} cores, {} rounds, {DEPTH} deep; bandwidth in GB/s, times in µs; medians\n", effort.rounds);
    links(effort)?;
    paths(effort)?;
    machines::all(effort)
}

/// Plain sockets beside writes of the TCP link.
fn links(effort: Effort) -> Outcome<()> {
    println!("one link, a thread at each end");
    println!("{:>8}  {:>8}  {:>8}  {:>14}  {:>15}", "size", "sockets", "writes", "writes/sockets", "sends per write");
    for size in [4 << 10, 64 << 10, 512 << 10] {
        let (mut plain, mut writes, mut ratios, mut sends) = (vec![], vec![], vec![], vec![]);
        for _ in 0..effort.rounds {
            let (p, (w, per_write)) =
                (sockets::plain(size, effort.count(size))?, sockets::writes(size, effort.count(size))?);
            plain.push(p);
            writes.push(w);
            ratios.push(w / p);
            sends.push(per_write);
        }
        let row = [&mut plain, &mut writes].map(|rates| median(rates) / 1e9);
        let (ratio, sends) = (median(&mut ratios), median(&mut sends));
        println!("{size:>8}  {:>8.2}  {:>8.2}  {ratio:>14.2}  {sends:>15.2}", row[0], row[1]);
    }
    println!();
    Ok(())
}

/// Connections over 0 to 3 relays: bandwidth of large messages, half the time of a small one there and back.
fn paths(effort: Effort) -> Outcome<()> {
    const LARGE: usize = 512 << 10;
    const SMALL: usize = 8 << 10;
    let mut lines = (2..=5).map(Line::new).collect::<Outcome<Vec<_>>>()?;
    let mut rates = vec![vec![]; lines.len()];
    let mut times = vec![vec![]; lines.len() + 1];
    for _ in 0..effort.rounds {
        for (line, rates) in lines.iter_mut().zip(&mut rates) {
            rates.push(line.bandwidth(LARGE, effort.count(LARGE))?);
        }
        times[0].push(sockets::half_trip(SMALL, effort.trips)?);
        for (line, times) in lines.iter_mut().zip(&mut times[1..]) {
            times.push(line.half_trip(SMALL, effort.trips)?);
        }
    }
    for line in &lines {
        line.check_relayed()?;
    }
    println!("a connection, {} KiB messages, a thread at each end, one a relay", LARGE >> 10);
    println!("{:>8}  {:>8}  {:>9}", "relays", "GB/s", "to direct");
    for (relays, of_path) in rates.iter().enumerate() {
        let ratio = median_ratio(of_path, &rates[0]);
        println!("{relays:>8}  {:>8.2}  {ratio:>9.2}", median(&mut of_path.clone()) / 1e9);
    }
    println!("\nhalf a ping-pong of {} KiB, one thread for both ends, one a relay", SMALL >> 10);
    println!("{:>8}  {:>8}  {:>9}  {:>9}", "relays", "µs", "to direct", "added µs");
    for (n, of_path) in times.iter().enumerate() {
        let name = if n == 0 { "sockets".to_owned() } else { (n - 1).to_string() };
        let ratio = median_ratio(of_path, &times[1]);
        let (own, direct) = (median(&mut of_path.clone()) * 1e6, median(&mut times[1].clone()) * 1e6);
        println!("{name:>8}  {own:>8.1}  {ratio:>9.2}  {:>9.1}", own - direct);
    }
    println!();
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median of the rounds' ratios.
fn median_ratio(values: &[f64], to: &[f64]) -> f64 {
    median(&mut values.iter().zip(to).map(|(value, to)| value / to).collect::<Vec<_>>())
}
