//! A yardstick: perftest's `ib_write_lat` and `ib_write_bw` on the first link of the same fabric, after the nodes of the plugin are gone.
//!
//! Its two processes are on the fabric as nodes are, only without the plugin; they find each other over loopback, and their queue
//! pairs over the link. Lives on the thread that runs the harness.

use std::io::{self, Read as _, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::placement::Placement;
use super::report::{BenchRow, PerftestRow, direct_bandwidth, direct_latency, ratio};
use super::{BenchArgs, BenchReport, print};
use crate::harness::args::RunArgs;
use crate::harness::scene::Scene;
use crate::harness::sys;

const LATENCY: &str = "ib_write_lat";
const BANDWIDTH: &str = "ib_write_bw";
/// The size of its latency: smaller than any that costs bandwidth.
const LATENCY_BYTES: usize = 8;
const LATENCY_ROUNDS: usize = 10_000;
/// Its own GIDs begin with link-local ones; this is the IPv4 address as RoCE v2.
const GID_INDEX: &str = "3";
/// The first of 8,000 ports of which its processes use one.
const PORTS: u16 = 20_000;
/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs both programs; what cannot be run is said, and is no failure if it is not installed.
pub(super) fn run(
    args: &RunArgs,
    asked: &BenchArgs,
    scene: &Scene,
    placement: &Placement,
    report: &mut BenchReport,
    out: &mut dyn Write,
) {
    let absent: Vec<&str> = [LATENCY, BANDWIDTH].into_iter().filter(|program| !installed(program)).collect();
    if !absent.is_empty() {
        let absent = absent.join(" and ");
        let _ = if args.json {
            writeln!(out, "{}", serde_json::json!({ "what": "perftest", "skipped": format!("{absent} not installed") }))
        } else {
            writeln!(out, "perftest skipped: {absent} not installed")
        };
        return;
    }
    let Some(link) = args.topology.links().first() else { return };
    // As the soft verbs' fabric file names devices.
    let end = |index: usize| Seat {
        node: link.ends[index].node.index(),
        device: format!("mesh{}", link.ends[index].port),
        core: placement.ends.map(|ends| ends[index]),
    };
    let pair = [end(0), end(1)];
    let names = pair.each_ref().map(|seat| scene.names()[seat.node].clone());
    let sizes = asked.sizes.iter().copied().filter(|bytes| *bytes > 0);
    let work = std::iter::once((LATENCY, LATENCY_BYTES)).chain(sizes.map(|bytes| (BANDWIDTH, bytes)));
    for (program, bytes) in work {
        let count = if program == LATENCY { LATENCY_ROUNDS } else { messages(bytes) };
        let figures = match both(scene, &pair, program, bytes, count) {
            Ok(text) => figures(&text, bytes),
            Err(reason) => Err(reason),
        };
        let figures = match figures {
            Ok(figures) => figures,
            Err(reason) => {
                report.problems.push(format!("{program} of {bytes} bytes: {reason}"));
                return;
            }
        };
        // Columns: t_min, t_max, t_typical, … ; BW peak, BW average in units of 2^20 bytes, …
        let [from, to] = names.clone();
        let row = match (program, &figures[..]) {
            (LATENCY, [_, _, typical, ..]) => {
                let ours = direct(asked, report, |rows| direct_latency(rows, bytes));
                let ours_by_theirs = ours.and_then(|ours| ratio(ours, Some(*typical)));
                let (typical_us, bandwidth_gbps) = (Some(*typical), None);
                PerftestRow { program, from, to, size_bytes: bytes, typical_us, bandwidth_gbps, ours_by_theirs }
            }
            (BANDWIDTH, [_, average, ..]) => {
                let theirs = average * f64::from(1 << 20) / 1e9;
                let ours = direct(asked, report, |rows| direct_bandwidth(rows, bytes, None));
                let ours_by_theirs = ours.and_then(|ours| ratio(ours, Some(theirs)));
                let (typical_us, bandwidth_gbps) = (None, Some(theirs));
                PerftestRow { program, from, to, size_bytes: bytes, typical_us, bandwidth_gbps, ours_by_theirs }
            }
            _ => {
                report.problems.push(format!("{program} of {bytes} bytes: a row of {} figures", figures.len()));
                return;
            }
        };
        let row = BenchRow::Perftest(row);
        print(out, args.json, &row, false);
        report.rows.push(row);
    }
}

/// A figure of the plugin without relays: of this fabric or of one before.
fn direct(asked: &BenchArgs, report: &BenchReport, of: impl Fn(&[BenchRow]) -> Option<f64>) -> Option<f64> {
    of(&report.rows).or_else(|| of(&asked.direct))
}

/// Messages of `ib_write_bw`: some GiB, and no more than a second or so of small ones.
fn messages(bytes: usize) -> usize {
    ((4 << 30) / bytes.max(1)).clamp(1_000, 200_000)
}

/// One of the two processes.
struct Seat {
    node: usize,
    device: String,
    core: Option<usize>,
}

/// What the client printed.
fn both(scene: &Scene, pair: &[Seat; 2], program: &str, bytes: usize, count: usize) -> Result<String, String> {
    let failed = |error: io::Error| error.to_string();
    let port = free_port().ok_or("no free TCP port for its two processes to meet on")?;
    let start = |seat: &Seat, server: Option<&str>| {
        let mut command = Command::new(program);
        // -F: processor frequencies that change are no reason to stop.
        command.args(["-F", "-x", GID_INDEX, "-d", &seat.device, "-p", &port.to_string()]);
        command.args(["-s", &bytes.to_string(), "-n", &count.to_string()]).args(server);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        scene.enter(&mut command, seat.node, 0);
        sys::tie_to_parent(&mut command);
        if let Some(core) = seat.core {
            sys::pin_command(&mut command, core);
        }
        command.spawn().map(Running).map_err(failed)
    };
    let deadline = Instant::now() + PATIENCE;
    let mut server = start(&pair[0], None)?;
    while !listens(port) {
        if server.0.try_wait().map_err(failed)?.is_some() {
            return Err(format!("the server ended early: {}", server.text()));
        }
        pause(deadline)?;
    }
    let mut client = start(&pair[1], Some("127.0.0.1"))?;
    loop {
        match client.0.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(client.text()),
            Some(_) => return Err(format!("the client failed: {}", client.text())),
            None => pause(deadline)?,
        }
    }
}

/// A process that ends with its value.
struct Running(Child);

impl Running {
    /// What it printed; less than a pipe holds, so that it never waits for a reader.
    fn text(&mut self) -> String {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = self.0.stdout.take() {
            let _ = pipe.read_to_end(&mut bytes);
        }
        if let Some(mut pipe) = self.0.stderr.take() {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The server ends by itself a moment after the client; whatever is left then is of no use.
        let until = Instant::now() + Duration::from_millis(500);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pause(deadline: Instant) -> Result<(), String> {
    if let Some(signal) = sys::stopped_by() {
        return Err(format!("stopped by signal {signal}"));
    }
    if Instant::now() >= deadline {
        return Err(format!("not done within {} s", PATIENCE.as_secs()));
    }
    std::thread::sleep(Duration::from_millis(5));
    Ok(())
}

/// A port that nobody has now: the program takes the number, not the socket. Below those that the kernel gives to connections, or one
/// of them would take it before the program does.
fn free_port() -> Option<u16> {
    let first = (std::process::id() % 8_000) as u16;
    let mut ports = (0..100).map(|step| PORTS + (first + step * 79) % 8_000);
    ports.find(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok())
}

/// Whether something listens on this TCP port of this host.
fn listens(port: u16) -> bool {
    // Local address, remote address, state: 0A is listening.
    let (port, listening) = (format!(":{port:04X}"), "0A");
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().take(4).collect();
            matches!(fields[..], [_, local, _, state] if local.ends_with(&port) && state == listening)
        })
    })
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The figures of the row for a size, behind size and count.
fn figures(text: &str, bytes: usize) -> Result<Vec<f64>, String> {
    let row = text.lines().find_map(|line| {
        let figures: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        figures.filter(|figures| figures.len() >= 4 && figures[0] == bytes as f64)
    });
    row.map(|figures| figures[2..].to_vec()).ok_or_else(|| format!("no row of figures in: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_of_a_size_is_found() {
        let text = "---\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n\
                    8       1000          0.94           51.14        1.08     \t       1.21        \t0.50   \t\t2.01    \t\t9.51   \n---";
        assert_eq!(figures(text, 8).map(|figures| figures[2]), Ok(1.08));
        assert!(figures(text, 16).is_err());
        let text = " 65536      5000             9000.10            8800.25\t\t   0.140804";
        assert_eq!(figures(text, 65536).map(|figures| figures[1]), Ok(8800.25));
    }

    #[test]
    fn a_port_that_is_listened_on_is_seen() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = held.local_addr().expect("bound").port();
        assert!(listens(port));
        drop(held);
        assert!(!listens(port));
    }
}
