//! Behind `nccl-mesh bench`: how fast a connection is, directly and over relays, measured through the plugin's C interface.
//!
//! `run` starts the nodes of one fabric. Two of them, the ends, have a connection each way, as NCCL would make and use it: buffers
//! registered once, receives posted ahead, every request tested until done. The nodes between them only relay. The parent says points,
//! the ends measure them: `duplex` has the timed loops.
//!
//! Lives on the thread that runs the harness.

mod duplex;
mod latency;
pub(super) mod node;
mod pattern;
mod perftest;
mod placement;
pub mod point;
pub mod report;
#[cfg(test)]
mod tests;

use std::io::Write;

use super::args::{ArgsError, RunArgs, resolve_rank_order};
use super::collective_run::{absent_nodes, node_limit};
use super::hub::{Failed, Hub};
use super::jobs::Job;
use super::messages::{FromNode, NodeWork, Setup, ToNode};
use super::scene::Scene;
use super::transport::SLOTS;
pub use placement::Pin;
use placement::Placement;
use point::{BenchWork, Check, Measure, Point, PointResult};
use report::{
    BandwidthRow, BenchRow, Between, Found, IdleTestRow, LatencyRow, direct_bandwidth, direct_latency, ratio,
};

/// Most bytes of a message: each end has two buffers of as many times [`SLOTS`].
pub const LARGEST: usize = 64 << 20;
/// Most messages under way.
pub const DEEPEST: usize = SLOTS;
/// Rounds that nobody asked for end about here.
const LONG_ENOUGH_US: f64 = 10e6;
/// Tests in a row until a thread gives its core away, where there is a core for each node, and where there is not: relays then wait
/// for a core that an end spins on, and with 1024 two relays took a third to a half longer than with 32.
const SPINS: (u32, u32) = (1024, 32);

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchArgs {
    /// Relays on the route between the ends, the two nodes of the rank order.
    pub relays: usize,
    /// Bytes of messages.
    pub sizes: Vec<usize>,
    /// Round trips of a size; `None`: some that fit it.
    pub rounds: Option<usize>,
    /// Messages under way in streams, 1 to [`DEEPEST`].
    pub depths: Vec<usize>,
    /// Least time of a stream, in seconds.
    pub seconds: f64,
    /// Tests with nothing to do, at each end.
    pub calls: usize,
    /// Version of the plugin's table.
    pub abi: u32,
    /// Whether threads get cores of their own.
    pub pin: Pin,
    /// How much of each message the ends write and read while it counts.
    pub touch: Check,
    /// Whether perftest is run on the first link, for comparison.
    pub perftest: bool,
    /// Rows of the fabric without relays, if it was measured before.
    pub direct: Vec<BenchRow>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct BenchReport {
    /// The rows that were completed.
    pub rows: Vec<BenchRow>,
    /// One line a cause, if anything went wrong.
    pub problems: Vec<String>,
}

/// Measures one fabric; rows are written to `out` as they come.
///
/// # Errors
/// Arguments that do not fit the topology or the machine.
pub(super) fn run(
    args: &RunArgs,
    asked: &BenchArgs,
    mut scene: Scene,
    out: &mut dyn Write,
) -> Result<BenchReport, ArgsError> {
    let order = resolve_rank_order(&args.rank_order, scene.names())?;
    let absent = absent_nodes(args, scene.names())?;
    let placement = Placement::choose(asked.pin, scene.names().len(), &placement::cores())?;
    scene.prepare_to_measure(placement.relays.clone());
    let setup = |rank: Option<usize>| Setup {
        rank,
        names: order.iter().map(|node| scene.names()[*node].clone()).collect(),
        plugin: scene.plugin().to_owned(),
        abi: asked.abi,
        comm_id: u64::from(std::process::id()) << 16 | 1,
        work: NodeWork::Bench(BenchWork {
            capacity: asked.sizes.iter().copied().max().unwrap_or_default().max(4),
            core: rank.and_then(|rank| placement.ends?.get(rank).copied()),
            spins: if placement.roomy { SPINS.0 } else { SPINS.1 },
        }),
        limit: node_limit(args.timeout),
    };
    let mut report = BenchReport::default();
    let mut hub = match Hub::start(args, &scene, &order, &absent, Job::default(), setup) {
        Ok(hub) => hub,
        Err(error) => {
            report.problems.push(format!("a node's process did not start: {error}"));
            return Ok(report);
        }
    };
    let name = |rank: usize| order.get(rank).map(|node| scene.names()[*node].clone()).unwrap_or_default();
    let (link, relays, touch) = (args.link.name(), asked.relays, asked.touch.name());
    let between = Between { link, relays, from: name(0), to: name(1), touch };
    let mut bench = Bench { hub: &mut hub, asked, between, json: args.json, next: 0, report: &mut report, out };
    let done = bench.all(&placement);
    let done = done.and_then(|()| hub.finish());
    hub.end(done.is_err());
    report.problems.append(&mut hub.problems);
    if asked.perftest && report.problems.is_empty() {
        perftest::run(args, asked, &scene, &placement, &mut report, out);
    }
    for row in report.rows.iter().filter(|row| row.wrong_bytes() > 0) {
        report.problems.push(format!("{} bytes wrong:{}", row.wrong_bytes(), row.line()));
    }
    Ok(report)
}

/// Writes JSON or a line. Nobody reading is no reason to fail.
fn print(out: &mut dyn Write, json: bool, row: &BenchRow, heading: bool) {
    let _ = match serde_json::to_string(row) {
        Ok(text) if json => writeln!(out, "{text}"),
        _ => match row.heading().filter(|_| heading) {
            Some(heading) => writeln!(out, "{heading}\n{}", row.line()),
            None => writeln!(out, "{}", row.line()),
        },
    };
    let _ = out.flush();
}

type Results = Vec<(String, PointResult)>;

/// Points of one fabric.
struct Bench<'a> {
    hub: &'a mut Hub,
    asked: &'a BenchArgs,
    between: Between,
    json: bool,
    /// Number of the next message.
    next: u32,
    report: &'a mut BenchReport,
    out: &'a mut dyn Write,
}

impl Bench<'_> {
    fn all(&mut self, placement: &Placement) -> Result<(), Failed> {
        self.hub.await_all(|message| matches!(message, FromNode::Connected).then_some(()))?;
        if !self.json {
            let Between { link, relays, from, to, touch } = &self.between;
            let relays = match relays {
                0 => "directly".to_owned(),
                1 => "over 1 relay".to_owned(),
                more => format!("over {more} relays"),
            };
            let pinned = if placement.ends.is_some() { "ends pinned" } else { "threads not pinned" };
            let _ = writeln!(self.out, "{from} to {to} {relays}, {link} links, {pinned}, touched: {touch}");
        }
        for (index, &bytes) in self.asked.sizes.iter().enumerate() {
            self.latency(bytes, index == 0)?;
        }
        let mut heading = true;
        for &bytes in &self.asked.sizes {
            for &depth in &self.asked.depths {
                self.bandwidth(bytes, depth, heading)?;
                heading = false;
            }
        }
        self.idle_test()
    }

    fn latency(&mut self, bytes: usize, heading: bool) -> Result<(), Failed> {
        let usual = usual_rounds(bytes);
        let rounds = self.asked.rounds.unwrap_or(usual);
        let warm_up = self.measure(Measure::PingPong { rounds: rounds.div_ceil(10) }, bytes, Check::All)?;
        let rounds = match (self.asked.rounds, found(&warm_up, |result| result.latency)) {
            (None, Some(slow)) => usual.min((LONG_ENOUGH_US / 2.0 / slow.p50_us.max(0.001)) as usize).max(100),
            _ => rounds,
        };
        let point = self.measure(Measure::PingPong { rounds }, bytes, self.asked.touch)?;
        let latency = found(&point, |result| result.latency).unwrap_or_default();
        let x_direct = ratio(latency.p50_us, direct_latency(self.direct(), bytes));
        let (between, found) = (self.between.clone(), self.found(&warm_up, &point));
        let row = LatencyRow { between, size_bytes: bytes, rounds, latency, x_direct, found };
        self.add(BenchRow::Latency(row), heading);
        Ok(())
    }

    fn bandwidth(&mut self, bytes: usize, depth: usize, heading: bool) -> Result<(), Failed> {
        let warm_up_messages = (4_usize << 20).div_ceil(bytes.max(1)).clamp(2 * SLOTS, 2_000);
        let measure = Measure::Stream { messages: warm_up_messages, depth };
        let warm_up = self.measure(measure, bytes, Check::All)?;
        let mut messages = warm_up_messages;
        let mut seconds = found(&warm_up, |result| result.stream_seconds).unwrap_or_default();
        // The warm-up writes and compares every byte, so it says too little of how many messages fill the time.
        let point = loop {
            messages = more_messages(messages, seconds, self.asked.seconds);
            let point = self.measure(Measure::Stream { messages, depth }, bytes, self.asked.touch)?;
            seconds = found(&point, |result| result.stream_seconds).unwrap_or_default();
            if seconds >= self.asked.seconds || messages >= MOST_MESSAGES {
                break point;
            }
        };
        let bandwidth_gbps = (bytes * messages) as f64 / seconds.max(1e-9) / 1e9;
        let bandwidth_p90_gbps = found(&point, |result| result.stream_p90).map(|rate| rate * bytes as f64 / 1e9);
        let x_direct = ratio(bandwidth_gbps, direct_bandwidth(self.direct(), bytes, Some(depth)));
        let (between, found) = (self.between.clone(), self.found(&warm_up, &point));
        let row = BandwidthRow {
            between,
            size_bytes: bytes,
            depth,
            messages,
            seconds,
            bandwidth_gbps,
            bandwidth_p90_gbps,
            x_direct,
            found,
        };
        self.add(BenchRow::Bandwidth(row), heading);
        Ok(())
    }

    fn idle_test(&mut self) -> Result<(), Failed> {
        let calls = self.asked.calls;
        let bytes = self.asked.sizes.iter().copied().min().unwrap_or_default();
        let point = self.measure(Measure::Idle { calls }, bytes, Check::All)?;
        let of = |name: &str| {
            let mut results = point.iter().filter(|(node, _)| node == name);
            results.find_map(|(_, result)| result.test_ns).unwrap_or_default()
        };
        let (send_test_ns, receive_test_ns) = (of(&self.between.from), of(&self.between.to));
        let row = IdleTestRow { between: self.between.clone(), calls, receive_test_ns, send_test_ns };
        let found = Found::of(&[], &point);
        if found.wrong_bytes > 0 {
            self.report.problems.push(format!("{} bytes wrong after tests with nothing to do", found.wrong_bytes));
        }
        self.add(BenchRow::IdleTest(row), false);
        Ok(())
    }

    fn measure(&mut self, measure: Measure, bytes: usize, check: Check) -> Result<Results, Failed> {
        let first = self.next;
        self.next = first.wrapping_add(measure.numbers());
        self.hub.tell_all(&ToNode::Point(Point { measure, bytes, first, check }));
        self.hub.await_all(|message| match message {
            FromNode::Point(result) => Some(result),
            _ => None,
        })
    }

    /// Rows to which this fabric's are compared: its own if it has no relays.
    fn direct(&self) -> &[BenchRow] {
        &self.asked.direct
    }

    /// What all found; a route over relays must have used them, or the figure is another one's.
    fn found(&mut self, warm_up: &Results, point: &Results) -> Found {
        let found = Found::of(warm_up, point);
        if found.forwarded_chunks.is_some_and(|chunks| (chunks > 0) != (self.between.relays > 0)) {
            let (chunks, relays) = (found.forwarded_chunks.unwrap_or_default(), self.between.relays);
            self.report.problems.push(format!("{chunks} chunks were passed on where the route has {relays} relays"));
        }
        found
    }

    fn add(&mut self, mut row: BenchRow, heading: bool) {
        if self.between.relays == 0 {
            match &mut row {
                BenchRow::Latency(row) => row.x_direct = Some(1.0),
                BenchRow::Bandwidth(row) => row.x_direct = Some(1.0),
                BenchRow::IdleTest(_) | BenchRow::Perftest(_) => {}
            }
        }
        print(self.out, self.json, &row, heading);
        self.report.rows.push(row);
    }
}

fn found<T>(results: &Results, of: impl Fn(&PointResult) -> Option<T>) -> Option<T> {
    results.iter().find_map(|(_, result)| of(result))
}

/// Round trips of a size: less than a second or so where messages take no more than they should.
const fn usual_rounds(bytes: usize) -> usize {
    match bytes {
        0..=0x4000 => 10_000,
        0x4001..=0x2_0000 => 5_000,
        0x2_0001..=0x20_0000 => 1_000,
        _ => 100,
    }
}

/// Numbers of messages are 32 bits wide, and each end takes every second one.
const MOST_MESSAGES: usize = 1 << 30;

/// Messages that take `wanted` seconds and a little more, if so many took `seconds`.
fn more_messages(messages: usize, seconds: f64, wanted: f64) -> usize {
    let factor = (1.2 * wanted / seconds.max(1e-9)).clamp(0.01, 50.0);
    ((messages as f64 * factor) as usize).clamp(SLOTS, MOST_MESSAGES)
}
