//! Time and rate of writes with notification over either backend, between two addresses of this host.
//!
//! `cargo run --release -p mesh-link --example backends -- [ADDRESS ADDRESS]`. Two threads, one an end, which poll and yield when there is
//! nothing to do. With addresses of two RDMA ports that reach each other both backends are measured in turn, otherwise TCP over
//! loopback alone. One way is half a round trip of two writes with notification; the rate is that of one direction with 8 writes under way.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Instant;

use mesh_link::endpoint::Backend;
use mesh_link::memory::Slab;
use mesh_link::tcp::Limits;
use mesh_link::tcp::dial::{DialState, listen, start_connect};
use mesh_link::verbs::{DeviceSet, VerbsLimits};
use mesh_link::{Endpoint, Event, Target, Window};

const DEPTH: u64 = 8;
const LARGEST: usize = 4 << 20;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn streams(near: Ipv4Addr, far: Ipv4Addr) -> Outcome<(TcpStream, TcpStream)> {
    let listener = listen(SocketAddrV4::new(far, 0), 1)?;
    let SocketAddr::V4(address) = listener.local_addr()? else { return Err("not IPv4".into()) };
    let mut dialing = start_connect(near, address)?;
    let near = loop {
        match dialing.poll() {
            DialState::Pending => std::thread::yield_now(),
            DialState::Connected(stream) => break stream,
            DialState::Failed(e) => return Err(e.into()),
        }
    };
    loop {
        match listener.accept() {
            Ok((far, _)) => return Ok((near, far)),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(e) => return Err(e.into()),
        }
    }
}

/// What one end has seen.
#[derive(Default)]
struct Seen {
    written: u64,
    notified: u64,
}

fn poll(endpoint: &mut Endpoint, seen: &mut Seen) -> Outcome<()> {
    let progress = endpoint.poll(|event| match event {
        Event::Written { .. } => seen.written += 1,
        Event::Notified { .. } => seen.notified += 1,
        Event::Message(_) => {}
    })?;
    if !progress {
        std::thread::yield_now();
    }
    Ok(())
}

/// Answers `count` notifications, each with a write of the same size, or the last one alone.
fn far(endpoint: &mut Endpoint, body: Window, target: Target, count: u64, answer: bool) -> Outcome<()> {
    let mut seen = Seen::default();
    let mut answered = 0;
    let answers = if answer { count } else { 1 };
    while seen.written < answers {
        poll(endpoint, &mut seen)?;
        let owed = if answer { seen.notified } else { seen.notified / count };
        while answered < owed {
            endpoint.post_write(answered, None, body, target, Some(0))?;
            answered += 1;
        }
        endpoint.flush()?;
    }
    Ok(())
}

/// Writes `count` times, one after each answer, or with several under way; seconds until the last was answered.
fn near(endpoint: &mut Endpoint, body: Window, target: Target, count: u64, answer: bool) -> Outcome<f64> {
    let mut seen = Seen::default();
    let mut posted = 0;
    let begin = Instant::now();
    let answers = if answer { count } else { 1 };
    while seen.notified < answers {
        while posted < count && if answer { posted == seen.notified } else { posted < seen.written + DEPTH } {
            endpoint.post_write(posted, None, body, target, Some(0))?;
            posted += 1;
        }
        poll(endpoint, &mut seen)?;
    }
    let took = begin.elapsed().as_secs_f64();
    while seen.written < count {
        poll(endpoint, &mut seen)?;
    }
    Ok(took)
}

fn measure(backend: &Backend, set: Option<&DeviceSet>, ends: (Ipv4Addr, Ipv4Addr), bytes: u64) -> Outcome<()> {
    let (a, b) = streams(ends.0, ends.1)?;
    let (mut a, mut b) = (Endpoint::new(a, Limits::default(), backend)?, Endpoint::new(b, Limits::default(), backend)?);
    let memory = Slab::new(2, LARGEST)?;
    let registration = set.map(|set| set.register(memory.whole())).transpose()?;
    let (key_a, base_a) = a.expose(memory.slot(0))?;
    let (key_b, base_b) = b.expose(memory.slot(1))?;
    let (to_a, to_b) = (Target { key: key_a, offset: base_a }, Target { key: key_b, offset: base_b });
    let mut run = |size: usize, count: u64, answer: bool| -> Outcome<f64> {
        let part = |slot| memory.slot(slot).sub(0, size).ok_or("larger than the memory");
        let (from_a, from_b) = (part(0)?, part(1)?);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| far(&mut b, from_b, to_a, count, answer));
            let took = near(&mut a, from_a, to_b, count, answer)?;
            other.join().map_err(|_| "the other end panicked")??;
            Ok(took)
        })
    };
    let mut median = |size, count, answer| -> Outcome<f64> {
        let mut times: Vec<f64> = (0..5).map(|_| run(size, count, answer)).collect::<Result<_, _>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[2])
    };
    let name = backend.name();
    for size in [8, 256, 4096, 65_536] {
        let count = (bytes / 65_536).clamp(10, 2000);
        let time = median(size, count, true)? / count as f64 / 2.0 * 1e6;
        println!("{name:5}  one way  {size:>8} B  {time:9.2} us");
    }
    for size in [4096, 65_536, 1 << 20, LARGEST] {
        let count = (bytes / size as u64).clamp(4, 20_000);
        let rate = count as f64 * size as f64 / median(size, count, false)? / 1e9;
        println!("{name:5}  rate     {size:>8} B  {rate:9.3} GB/s");
    }
    drop((a, b));
    drop(registration);
    Ok(())
}

/// Medians of five runs; `BYTES` (default 256 MiB) sets how much a run of the larger sizes moves.
fn main() -> Outcome<()> {
    let bytes = std::env::var("BYTES").map_or(Ok(256 << 20), |text| text.parse())?;
    let addresses: Vec<Ipv4Addr> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [near, far] = addresses[..] else {
        return measure(&Backend::Tcp, None, (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST), bytes);
    };
    measure(&Backend::Tcp, None, (near, far), bytes)?;
    let set = DeviceSet::open(&[near, far], None)?;
    measure(&Backend::Verbs(set.clone(), VerbsLimits::default()), Some(&set), (near, far), bytes)
}
