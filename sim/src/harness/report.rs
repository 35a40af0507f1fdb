//! Rows of results: put together from what the nodes found, shown as a table or as JSON.
//!
//! Pure. Any thread.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use mesh_routing::Topology;
use serde::Serialize;

use super::collective::{Algo, Collective};
use super::messages::{PerNode, Row, RowResult};

/// One row. Field names are those of the JSON output: fields are added, never renamed. Bytes are over all iterations of the row,
/// those before the timed ones included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowReport {
    /// The collective's name.
    pub collective: &'static str,
    /// The algorithm's name.
    pub algo: &'static str,
    /// Ranks that took part.
    pub nodes: usize,
    /// What links are made of.
    pub link: &'static str,
    /// Which of several jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<usize>,
    /// For send-recv: ranks between sender and receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<usize>,
    /// Size as nccl-tests counts it.
    pub size_bytes: usize,
    /// Iterations timed.
    pub iterations: usize,
    /// Microseconds: the median over iterations of the slowest rank's time.
    pub time_us: f64,
    /// The fastest iteration's slowest rank, in microseconds.
    pub time_min_us: f64,
    /// The slowest iteration's slowest rank, in microseconds.
    pub time_max_us: f64,
    /// GB/s: size by time.
    pub algbw_gbps: f64,
    /// GB/s: what every rank's link must carry.
    pub busbw_gbps: f64,
    /// Bytes compared, over all ranks and iterations.
    pub checked_bytes: u64,
    /// Bytes that were not what they must be.
    pub wrong_bytes: u64,
    /// Payload sent on connections without a relay; `None` if the plugin does not count.
    pub direct_bytes: Option<u64>,
    /// Payload sent on connections with relays.
    pub relayed_bytes: Option<u64>,
    /// Payload passed on for others, by node; nodes without any are left out.
    pub relays: PerNode,
    /// The link and direction that carried most.
    pub worst_link: Option<String>,
    /// How much that was.
    pub worst_link_bytes: u64,
}

/// What all rows of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct RowContext<'a> {
    /// The collective.
    pub collective: Collective,
    /// The algorithm.
    pub algo: Algo,
    /// Ranks that take part.
    pub ranks: usize,
    /// What links are made of.
    pub link: &'static str,
    /// Which of several jobs.
    pub job: Option<usize>,
    /// Names of links' ends.
    pub topology: &'a Topology,
}

impl RowReport {
    /// Puts together what the nodes found; `results` by node, with the node's name.
    #[must_use]
    pub fn of(context: &RowContext<'_>, row: &Row, results: &[(String, RowResult)]) -> Self {
        let slowest = |iteration: usize| {
            let times = results.iter().filter_map(|(_, result)| result.times_us.get(iteration));
            times.copied().fold(0.0, f64::max)
        };
        let mut times: Vec<f64> = (0..row.iterations).map(slowest).collect();
        times.sort_by(f64::total_cmp);
        let time_us = median(&times);
        let algbw_gbps = if time_us > 0.0 { row.bytes as f64 / time_us / 1e3 } else { 0.0 };
        let counted: Vec<_> = results.iter().filter_map(|(_, result)| result.counted.as_ref()).collect();
        let sum = |field: fn(&super::snapshot::Snapshot) -> u64| {
            (!counted.is_empty()).then(|| counted.iter().map(|snapshot| field(snapshot)).sum())
        };
        let forwarded = results.iter().filter_map(|(name, result)| {
            let bytes = result.counted.as_ref()?.forwarded_bytes;
            (bytes > 0).then(|| (name.clone(), bytes))
        });
        let mut links: BTreeMap<&str, u64> = BTreeMap::new();
        for (link, bytes) in counted.iter().flat_map(|snapshot| &snapshot.links) {
            *links.entry(link).or_default() += bytes;
        }
        let worst = links.into_iter().filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes);
        Self {
            collective: context.collective.name(),
            algo: context.algo.name(),
            nodes: context.ranks,
            link: context.link,
            job: context.job,
            distance: (context.collective == Collective::SendRecv).then_some(row.distance),
            size_bytes: row.bytes,
            iterations: row.iterations,
            time_us,
            time_min_us: times.first().copied().unwrap_or_default(),
            time_max_us: times.last().copied().unwrap_or_default(),
            algbw_gbps,
            busbw_gbps: algbw_gbps * context.collective.bus_factor(context.ranks),
            checked_bytes: results.iter().map(|(_, result)| result.checked_bytes).sum(),
            wrong_bytes: results.iter().map(|(_, result)| result.wrong_bytes).sum(),
            direct_bytes: sum(|snapshot| snapshot.direct_bytes),
            relayed_bytes: sum(|snapshot| snapshot.relayed_out_bytes),
            relays: forwarded.collect(),
            worst_link: worst.map(|(link, _)| name_link(context.topology, link)),
            worst_link_bytes: worst.map_or(0, |(_, bytes)| bytes),
        }
    }

    /// The heading of the table.
    #[must_use]
    pub fn heading() -> String {
        format!(
            "{:>11} {:>4} {:>5} {:>11} {:>8} {:>8} {:>12} {:>6} {:>11} {:>11}  {}",
            "size",
            "dist",
            "iters",
            "time us",
            "alg GB/s",
            "bus GB/s",
            "checked",
            "wrong",
            "direct",
            "relayed",
            "worst link"
        )
    }

    /// The row of the table.
    #[must_use]
    pub fn line(&self) -> String {
        let count = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), human);
        let mut line = format!(
            "{:>11} {:>4} {:>5} {:>11.1} {:>8.3} {:>8.3} {:>12} {:>6} {:>11} {:>11}  ",
            self.size_bytes,
            self.distance.map_or_else(|| "-".to_owned(), |distance| distance.to_string()),
            self.iterations,
            self.time_us,
            self.algbw_gbps,
            self.busbw_gbps,
            self.checked_bytes,
            self.wrong_bytes,
            count(self.direct_bytes),
            count(self.relayed_bytes),
        );
        match &self.worst_link {
            Some(link) => {
                let _ = write!(line, "{link}: {}", human(self.worst_link_bytes));
            }
            None => line.push('-'),
        }
        if !self.relays.is_empty() {
            let relays: Vec<String> =
                self.relays.iter().map(|(node, bytes)| format!("{node} {}", human(*bytes))).collect();
            let _ = write!(line, "; forwarded by {}", relays.join(", "));
        }
        line
    }
}

/// The middle of a sorted list, the mean of the two middle ones if their number is even; 0 of nothing.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// `node0>node1 10.0.0.1-10.0.0.2` for the plugin's `10.0.0.1-10.0.0.2`: direction by nodes, then the ports.
fn name_link(topology: &Topology, link: &str) -> String {
    let node_of = |address: &str| {
        let (node, _) = topology.port_by_address(address.parse().ok()?)?;
        Some(topology.name(node))
    };
    let named = link.split_once('-').and_then(|(local, remote)| Some((node_of(local)?, node_of(remote)?)));
    named.map_or_else(|| link.to_owned(), |(local, remote)| format!("{local}>{remote} {link}"))
}

/// Bytes in a short form for tables: three digits and a binary unit.
#[must_use]
pub fn human(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::snapshot::Snapshot;
    use mesh_routing::{AddressPlan, Shape};

    fn result(times_us: &[f64], snapshot: &str) -> RowResult {
        RowResult {
            times_us: times_us.to_vec(),
            checked_bytes: 100,
            wrong_bytes: 1,
            counted: (!snapshot.is_empty()).then(|| Snapshot::parse(snapshot).expect("an object")),
        }
    }

    fn context(topology: &Topology) -> RowContext<'_> {
        RowContext { collective: Collective::AllReduce, algo: Algo::Ring, ranks: 4, link: "tcp", job: None, topology }
    }

    const ROW: Row = Row { bytes: 8000, distance: 0, iterations: 3, warm_up: 1, serial: 1, meet_each_time: false };

    #[test]
    fn a_row_has_the_median_of_the_slowest_ranks() {
        let topology = Topology::from_shape(Shape::Ring, 4, 1, &AddressPlan::default()).expect("a ring");
        let link = topology.links()[0].clone();
        let name = format!("{}-{}", link.ends[0].address, link.ends[1].address);
        // given two nodes whose slowest times are 5, 4, 9 and counters of which one has a link
        let counters = format!(r#"{{"direct_bytes": 10, "relayed_out_bytes": 3, "links": {{"{name}": 13}}}}"#);
        let results = [
            ("node0".to_owned(), result(&[5.0, 1.0, 9.0], &counters)),
            ("node1".to_owned(), result(&[2.0, 4.0, 3.0], r#"{"direct_bytes": 5, "forwarded_bytes": 7}"#)),
        ];
        // when they make a row
        let row = RowReport::of(&context(&topology), &ROW, &results);
        // then times, bandwidths and sums are these
        assert!((row.time_us - 5.0).abs() < 1e-9 && (row.time_max_us - 9.0).abs() < 1e-9);
        assert!((row.algbw_gbps - 1.6).abs() < 1e-9 && (row.busbw_gbps - 2.4).abs() < 1e-9);
        assert_eq!((row.checked_bytes, row.wrong_bytes), (200, 2));
        assert_eq!((row.direct_bytes, row.relayed_bytes), (Some(15), Some(3)));
        assert_eq!(row.relays, BTreeMap::from([("node1".to_owned(), 7)]));
        let ends = [topology.name(link.ends[0].node), topology.name(link.ends[1].node)];
        assert_eq!(row.worst_link, Some(format!("{}>{} {name}", ends[0], ends[1])));
        assert!(row.line().contains("forwarded by node1 7 B"), "{}", row.line());
    }

    #[test]
    fn json_has_the_documented_fields() {
        let topology = Topology::from_shape(Shape::Ring, 4, 1, &AddressPlan::default()).expect("a ring");
        let row = RowReport::of(&context(&topology), &ROW, &[("node0".to_owned(), result(&[1.0; 3], ""))]);
        let json = serde_json::to_value(&row).expect("serialises");
        let documented = [
            "collective",
            "algo",
            "nodes",
            "link",
            "size_bytes",
            "iterations",
            "time_us",
            "algbw_gbps",
            "busbw_gbps",
            "checked_bytes",
            "wrong_bytes",
            "direct_bytes",
            "relayed_bytes",
            "relays",
            "worst_link",
        ];
        for field in documented {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert!(json["direct_bytes"].is_null(), "unknown is not zero");
        assert!(json.get("distance").is_none());
    }

    #[test]
    fn bytes_are_short() {
        assert_eq!((human(1023), human(1024), human(1 << 40)), ("1023 B".into(), "1.0 KiB".into(), "1.0 TiB".into()));
    }
}
