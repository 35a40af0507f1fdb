//! Figures: put together from what the nodes found, shown as a table or as JSON.
//!
//! Pure. Any thread. Names of fields are those of the JSON output: fields are added, never renamed.

use serde::Serialize;

use super::point::{Latency, PointResult, RelayCost};

/// The connection that a figure is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Between {
    /// What links are made of.
    pub link: &'static str,
    /// Relays on the route.
    pub relays: usize,
    /// The node that sends first.
    pub from: String,
    /// The other one.
    pub to: String,
    /// How much of each message the ends write and read while it counts: `ends`, `lines` or `all`.
    pub touch: &'static str,
}

/// What all nodes found at a point, and at the warm-up before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// Bytes compared.
    pub checked_bytes: u64,
    /// Bytes that were not what they must be.
    pub wrong_bytes: u64,
    /// Chunks that relays passed on; `None`: there are no relays, or they do not count.
    pub forwarded_chunks: Option<u64>,
    /// Processor time of the relays' processes for each of those, in microseconds.
    pub relay_cpu_us_per_chunk: Option<f64>,
}

/// Half of a round trip.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyRow {
    /// The connection.
    #[serde(flatten)]
    pub between: Between,
    /// Bytes of a message.
    pub size_bytes: usize,
    /// Round trips.
    pub rounds: usize,
    /// The distribution.
    #[serde(flatten)]
    pub latency: Latency,
    /// The median, by the one without relays.
    pub x_direct: Option<f64>,
    /// Bytes checked and cost of relays.
    #[serde(flatten)]
    pub found: Found,
}

/// A stream of messages in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BandwidthRow {
    /// The connection.
    #[serde(flatten)]
    pub between: Between,
    /// Bytes of a message.
    pub size_bytes: usize,
    /// Messages under way at most.
    pub depth: usize,
    /// Messages sent.
    pub messages: usize,
    /// From the first post until the last message was acknowledged.
    pub seconds: f64,
    /// GB/s, 10^9 bytes a second.
    pub bandwidth_gbps: f64,
    /// The same in parts of the stream: only a tenth of the parts were faster. `None`: too few messages for parts.
    pub bandwidth_p90_gbps: Option<f64>,
    /// The bandwidth, by the one without relays.
    pub x_direct: Option<f64>,
    /// Bytes checked and cost of relays.
    #[serde(flatten)]
    pub found: Found,
}

/// A `test` that finds nothing to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IdleTestRow {
    /// The connection.
    #[serde(flatten)]
    pub between: Between,
    /// Calls at each end.
    pub calls: usize,
    /// Of a receive to which nothing was sent, in nanoseconds.
    pub receive_test_ns: f64,
    /// Of a send for which no receive was posted, in nanoseconds.
    pub send_test_ns: f64,
}

/// What perftest measures on a cable of the same fabric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PerftestRow {
    /// perftest's program.
    pub program: &'static str,
    /// The cable's ends.
    pub from: String,
    /// The other end.
    pub to: String,
    /// Bytes of a message.
    pub size_bytes: usize,
    /// Of `ib_write_lat`: its typical (median) time one way, in microseconds.
    pub typical_us: Option<f64>,
    /// Of `ib_write_bw`: its average, in GB/s.
    pub bandwidth_gbps: Option<f64>,
    /// Ours by theirs: the median time without relays, or the bandwidth without relays at the largest depth.
    pub ours_by_theirs: Option<f64>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum BenchRow {
    /// Half of a round trip.
    Latency(LatencyRow),
    /// A stream of messages.
    Bandwidth(BandwidthRow),
    /// A `test` that finds nothing to do.
    IdleTest(IdleTestRow),
    /// perftest's figures.
    Perftest(PerftestRow),
}

impl Found {
    /// Sums over nodes and over the warm-up; cost is the point's alone.
    pub(super) fn of(warm_up: &[(String, PointResult)], point: &[(String, PointResult)]) -> Self {
        let all = || warm_up.iter().chain(point).map(|(_, result)| result);
        let relays: Vec<RelayCost> = point.iter().filter_map(|(_, result)| result.relay).collect();
        // A node that passed nothing on is not on the route.
        let (cpu, chunks) = relays
            .iter()
            .filter(|relay| relay.chunks > 0)
            .fold((0, 0), |(cpu, chunks), relay| (cpu + relay.cpu_ns, chunks + relay.chunks));
        Self {
            checked_bytes: all().map(|result| result.checked_bytes).sum(),
            wrong_bytes: all().map(|result| result.wrong_bytes).sum(),
            forwarded_chunks: (!relays.is_empty()).then_some(chunks),
            relay_cpu_us_per_chunk: (chunks > 0).then(|| cpu as f64 / 1e3 / chunks as f64),
        }
    }
}

impl BenchRow {
    /// Bytes that were wrong, if the figure has any.
    #[must_use]
    pub fn wrong_bytes(&self) -> u64 {
        match self {
            Self::Latency(row) => row.found.wrong_bytes,
            Self::Bandwidth(row) => row.found.wrong_bytes,
            Self::IdleTest(_) | Self::Perftest(_) => 0,
        }
    }

    /// The heading of the rows of this kind, if they have one.
    #[must_use]
    pub fn heading(&self) -> Option<String> {
        match self {
            Self::Latency(_) => Some(format!(
                "  one way {:>10} {:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8} {:>14}",
                "size", "rounds", "p50 us", "p99 us", "p99.9 us", "max us", "min us", "x direct", "relay us/chunk"
            )),
            Self::Bandwidth(_) => Some(format!(
                "  stream  {:>10} {:>8} {:>10} {:>10} {:>10} {:>8} {:>14}",
                "size", "depth", "messages", "GB/s", "p90 GB/s", "x direct", "relay us/chunk"
            )),
            Self::IdleTest(_) | Self::Perftest(_) => None,
        }
    }

    /// The row of the table.
    #[must_use]
    pub fn line(&self) -> String {
        let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        match self {
            Self::Latency(row) => {
                let Latency { p50_us, p99_us, p999_us, max_us, min_us } = row.latency;
                format!(
                    "          {:>10} {:>8} {p50_us:>10.2} {p99_us:>10.2} {p999_us:>10.2} {max_us:>10.2} {min_us:>10.2} {:>8} {:>14}",
                    row.size_bytes,
                    row.rounds,
                    figure(row.x_direct),
                    figure(row.found.relay_cpu_us_per_chunk)
                )
            }
            Self::Bandwidth(row) => format!(
                "          {:>10} {:>8} {:>10} {:>10.4} {:>10} {:>8} {:>14}",
                row.size_bytes,
                row.depth,
                row.messages,
                row.bandwidth_gbps,
                row.bandwidth_p90_gbps.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.4}")),
                figure(row.x_direct),
                figure(row.found.relay_cpu_us_per_chunk)
            ),
            Self::IdleTest(row) => format!(
                "  test with nothing to do, {} calls: {:.1} ns for a receive, {:.1} ns for a send",
                row.calls, row.receive_test_ns, row.send_test_ns
            ),
            Self::Perftest(row) => {
                let (theirs, unit) = match (row.typical_us, row.bandwidth_gbps) {
                    (Some(time), _) => (format!("{time:.2}"), "us one way"),
                    (None, bandwidth) => (format!("{:.4}", bandwidth.unwrap_or_default()), "GB/s"),
                };
                let ours = figure(row.ours_by_theirs);
                format!(
                    "{} {} to {}, {} bytes: {theirs} {unit}; ours by theirs: {ours}",
                    row.program, row.from, row.to, row.size_bytes
                )
            }
        }
    }
}

/// The median of the ping-pong without relays.
pub(super) fn direct_latency(rows: &[BenchRow], bytes: usize) -> Option<f64> {
    rows.iter().find_map(|row| match row {
        BenchRow::Latency(row) if row.between.relays == 0 && row.size_bytes == bytes => Some(row.latency.p50_us),
        _ => None,
    })
}

/// The bandwidth without relays, at a depth or the largest.
pub(super) fn direct_bandwidth(rows: &[BenchRow], bytes: usize, depth: Option<usize>) -> Option<f64> {
    let fitting = rows.iter().filter_map(|row| match row {
        BenchRow::Bandwidth(row) if row.between.relays == 0 && row.size_bytes == bytes => Some(row),
        _ => None,
    });
    let fitting = fitting.filter(|row| depth.is_none_or(|depth| depth == row.depth));
    fitting.max_by_key(|row| row.depth).map(|row| row.bandwidth_gbps)
}

/// One by the other; `None` if there is no other.
pub(super) fn ratio(ours: f64, other: Option<f64>) -> Option<f64> {
    other.filter(|other| *other > 0.0).map(|other| ours / other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(checked: u64, wrong: u64, relay: Option<(u64, u64)>) -> (String, PointResult) {
        let relay = relay.map(|(cpu_ns, chunks)| RelayCost { cpu_ns, chunks });
        let result = PointResult { checked_bytes: checked, wrong_bytes: wrong, relay, ..PointResult::default() };
        (String::new(), result)
    }

    fn between(relays: usize) -> Between {
        Between { link: "tcp", relays, from: "node0".to_owned(), to: "node1".to_owned(), touch: "ends" }
    }

    fn bandwidth(relays: usize, depth: usize, bandwidth_gbps: f64) -> BenchRow {
        BenchRow::Bandwidth(BandwidthRow {
            between: between(relays),
            size_bytes: 8,
            depth,
            messages: 1,
            seconds: 1.0,
            bandwidth_gbps,
            bandwidth_p90_gbps: None,
            x_direct: None,
            found: Found::default(),
        })
    }

    #[test]
    fn cost_is_of_the_relays_that_passed_something_on() {
        // given two relays, a node off the route that used time too, and an end
        let point = [
            result(8, 1, None),
            result(0, 0, Some((3_000, 2))),
            result(0, 0, Some((5_000, 2))),
            result(0, 0, Some((900_000, 0))),
        ];
        let found = Found::of(&[result(100, 2, Some((1 << 40, 5)))], &point);
        // then bytes are those of both, cost is the point's, by chunk
        assert_eq!((found.checked_bytes, found.wrong_bytes, found.forwarded_chunks), (108, 3, Some(4)));
        assert_eq!(found.relay_cpu_us_per_chunk, Some(2.0));
        assert_eq!(Found::of(&[], &[result(1, 0, None)]).forwarded_chunks, None);
    }

    #[test]
    fn ratios_are_to_the_same_point_without_relays() {
        let rows = [bandwidth(1, 1, 0.5), bandwidth(0, 1, 2.0), bandwidth(0, 8, 4.0)];
        assert_eq!(direct_bandwidth(&rows, 8, Some(1)), Some(2.0));
        assert_eq!(direct_bandwidth(&rows, 8, None), Some(4.0));
        assert_eq!(direct_bandwidth(&rows, 9, None), None);
        assert_eq!((ratio(1.0, Some(2.0)), ratio(1.0, None), ratio(1.0, Some(0.0))), (Some(0.5), None, None));
        assert_eq!(direct_latency(&rows, 8), None);
    }

    #[test]
    fn rows_are_one_flat_object_with_their_kind() {
        let latency = BenchRow::Latency(LatencyRow {
            between: between(2),
            size_bytes: 8,
            rounds: 10,
            latency: Latency { p50_us: 1.5, ..Latency::default() },
            x_direct: Some(3.0),
            found: Found::default(),
        });
        let json = serde_json::to_value(&latency).expect("serialises");
        for field in [
            "what",
            "link",
            "relays",
            "from",
            "to",
            "size_bytes",
            "rounds",
            "p50_us",
            "p999_us",
            "x_direct",
            "wrong_bytes",
        ] {
            assert!(json.get(field).is_some(), "{field} in {json}");
        }
        assert_eq!((json["what"].as_str(), json["p50_us"].as_f64()), (Some("latency"), Some(1.5)));
        assert_eq!(latency.heading().map(|heading| heading.len()), Some(latency.line().len()));
        let row = bandwidth(0, 1, 2.0);
        assert_eq!(row.heading().map(|heading| heading.len()), Some(row.line().len()));
    }
}
