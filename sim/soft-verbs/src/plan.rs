//! The fabric file: which nodes have which ports, and which ports are cabled to each other.
//!
//! Plain text, one statement a line, `#` begins a comment:
//!
//! ```text
//! port node0 mesh0 10.0.0.1 100G   # node, device name, IPv4 address, rate (G or M bits a second)
//! port node1 mesh0 10.0.0.2 100G
//! cable 10.0.0.1 10.0.0.2          # exactly two ports
//! switch 10.1.0.1 10.1.0.2 …       # any number of ports, each reaches all others
//! engine inline                    # or: clock
//! latency 2000                     # one way, ns; used by the clock engine
//! strict on                        # or: off
//! unreachable-delay 0              # ms that the change of a queue pair towards an uncabled GID takes
//! wake-delay 0                     # ns from a completion to the event that wakes who sleeps because of it
//! netdev 10.0.0.1 port0           # the port has its carrier while this netdev of its process's network namespace has
//! ```
//!
//! and the faults of [`faults`]: `mtu`, `gids`, `down`, `uncable`, `memlock`.
//!
//! Pure: reads no file, knows no verbs. Any thread.

pub mod faults;

use std::net::Ipv4Addr;

pub use faults::{Gids, Memlock};

/// Most ports of a fabric.
pub const MAX_PORTS: usize = 256;

/// How requests are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// By the posting call itself, as fast as memory allows. The default.
    #[default]
    Inline,
    /// By a thread, against a virtual clock per port: rate and latency hold, and cables can die with work in flight.
    Clock,
}

/// One port: a device with a single port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortPlan {
    /// Node that owns the port.
    pub node: String,
    /// Device name, unique on the node, shorter than 64 bytes.
    pub device: String,
    /// Address, unique in the fabric.
    pub address: Ipv4Addr,
    /// Bits a second.
    pub rate: u64,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// What its GID table has.
    pub gids: Gids,
    /// Without carrier from the start.
    pub down: bool,
    /// The netdev that its carrier is that of.
    pub netdev: Option<String>,
}

/// A fabric as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Ports in the order of the file; the index is the port's number everywhere.
    pub ports: Vec<PortPlan>,
    /// Cables (two port indices) and switches (any number).
    pub segments: Vec<Vec<usize>>,
    /// How requests are carried out.
    pub engine: Engine,
    /// Whether misuse that real devices punish late is refused at once.
    pub strict: bool,
    /// One-way latency of every port at the start, ns.
    pub latency_ns: u64,
    /// How long the change of a queue pair towards an uncabled GID takes to fail, ms.
    pub unreachable_delay_ms: u64,
    /// How long after a completion its event comes, ns: devices raise interrupts late, and programs must not rely on less.
    pub wake_delay_ns: u64,
    /// How much memory each process may register.
    pub memlock: Memlock,
}

/// What is wrong with a fabric file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fabric file, line {line}: {fault}")]
pub struct PlanError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub fault: PlanFault,
}

/// Kinds of faults.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum PlanFault {
    #[error(
        "unknown statement {word:?}: port, cable, switch, engine, latency, strict, unreachable-delay, wake-delay, netdev, mtu, gids, \
         down, uncable or memlock"
    )]
    Unknown { word: String },
    #[error("{statement} needs {needs}")]
    Shape { statement: &'static str, needs: &'static str },
    #[error("{value:?} is not {wanted}")]
    Value { value: String, wanted: &'static str },
    #[error("address {address} belongs to an earlier port")]
    TwicePort { address: Ipv4Addr },
    #[error("device {device:?} exists already on node {node:?}")]
    TwiceDevice { node: String, device: String },
    #[error("no port line above has address {address}")]
    NoPort { address: Ipv4Addr },
    #[error("no cable joins {a} and {b}")]
    NoCable { a: Ipv4Addr, b: Ipv4Addr },
    #[error("more than {MAX_PORTS} ports")]
    TooMany,
}

impl Plan {
    /// Reads the text of a fabric file.
    ///
    /// # Errors
    /// The first line that cannot be understood.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            plan.statement(&words).map_err(|fault| PlanError { line: at + 1, fault })?;
        }
        Ok(plan)
    }

    fn statement(&mut self, words: &[&str]) -> Result<(), PlanFault> {
        if let Some(taken) = self.fault(words) {
            return taken;
        }
        match words {
            [] => Ok(()),
            ["port", node, device, address, rate] => self.port(node, device, address, rate),
            ["port", ..] => Err(PlanFault::Shape { statement: "port", needs: "node, device, address and rate" }),
            ["cable", a, b] => self.segment(&[a, b]),
            ["cable", ..] => Err(PlanFault::Shape { statement: "cable", needs: "two addresses" }),
            ["switch", ports @ ..] if !ports.is_empty() => self.segment(ports),
            ["switch"] => Err(PlanFault::Shape { statement: "switch", needs: "addresses" }),
            ["netdev", address, name] => self.netdev(address, name),
            ["netdev", ..] => Err(PlanFault::Shape { statement: "netdev", needs: "an address and a name" }),
            ["engine", name] => {
                self.engine = match *name {
                    "inline" => Engine::Inline,
                    "clock" => Engine::Clock,
                    other => return Err(value(other, "inline or clock")),
                };
                Ok(())
            }
            ["strict", word] => {
                self.strict = match *word {
                    "on" => true,
                    "off" => false,
                    other => return Err(value(other, "on or off")),
                };
                Ok(())
            }
            ["latency", ns] => {
                self.latency_ns = ns.parse().map_err(|_| value(ns, "a number of nanoseconds"))?;
                Ok(())
            }
            ["unreachable-delay", ms] => {
                self.unreachable_delay_ms = ms.parse().map_err(|_| value(ms, "a number of milliseconds"))?;
                Ok(())
            }
            ["wake-delay", ns] => {
                self.wake_delay_ns = ns.parse().map_err(|_| value(ns, "a number of nanoseconds"))?;
                Ok(())
            }
            [statement @ ("engine" | "strict" | "latency" | "unreachable-delay" | "wake-delay"), ..] => {
                let statement = match *statement {
                    "engine" => "engine",
                    "strict" => "strict",
                    "latency" => "latency",
                    "wake-delay" => "wake-delay",
                    _ => "unreachable-delay",
                };
                Err(PlanFault::Shape { statement, needs: "one value" })
            }
            [word, ..] => Err(PlanFault::Unknown { word: (*word).to_owned() }),
        }
    }

    fn port(&mut self, node: &str, device: &str, address: &str, rate: &str) -> Result<(), PlanFault> {
        let address: Ipv4Addr = address.parse().map_err(|_| value(address, "an IPv4 address"))?;
        let rate = parse_rate(rate).ok_or_else(|| value(rate, "a rate such as 100G or 2500M"))?;
        if device.len() >= 64 {
            return Err(value(device, "a device name of less than 64 bytes"));
        }
        if self.ports.len() == MAX_PORTS {
            return Err(PlanFault::TooMany);
        }
        if self.ports.iter().any(|port| port.address == address) {
            return Err(PlanFault::TwicePort { address });
        }
        if self.ports.iter().any(|port| port.node == node && port.device == device) {
            return Err(PlanFault::TwiceDevice { node: node.to_owned(), device: device.to_owned() });
        }
        let (node, device) = (node.to_owned(), device.to_owned());
        self.ports.push(PortPlan {
            node,
            device,
            address,
            rate,
            mtu: 4096,
            gids: Gids::All,
            down: false,
            netdev: None,
        });
        Ok(())
    }

    fn netdev(&mut self, address: &str, name: &str) -> Result<(), PlanFault> {
        let address: Ipv4Addr = address.parse().map_err(|_| value(address, "an IPv4 address"))?;
        let port = self.find(address).ok_or(PlanFault::NoPort { address })?;
        // What the kernel takes as a name; others would also lead out of its folder.
        if name.len() >= 16 || name.contains('/') || name.starts_with('.') {
            return Err(value(name, "a name of a netdev"));
        }
        self.ports[port].netdev = Some(name.to_owned());
        Ok(())
    }

    fn segment(&mut self, addresses: &[&str]) -> Result<(), PlanFault> {
        let mut segment = Vec::new();
        for address in addresses {
            let address: Ipv4Addr = address.parse().map_err(|_| value(address, "an IPv4 address"))?;
            segment.push(self.find(address).ok_or(PlanFault::NoPort { address })?);
        }
        self.segments.push(segment);
        Ok(())
    }

    /// Index of the port with this address.
    pub fn find(&self, address: Ipv4Addr) -> Option<usize> {
        self.ports.iter().position(|port| port.address == address)
    }

    /// Whether a frame sent from port `a` can arrive at port `b`: the same port, or one segment holds both.
    pub fn cabled(&self, a: usize, b: usize) -> bool {
        a == b || self.segments.iter().any(|segment| segment.contains(&a) && segment.contains(&b))
    }

    /// A number that differs between fabrics that must not share their memory: FNV-1a over the text's meaning.
    pub fn fingerprint(&self) -> u64 {
        format!("{self:?}")
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
    }
}

fn value(value: &str, wanted: &'static str) -> PlanFault {
    PlanFault::Value { value: value.to_owned(), wanted }
}

/// `100G`, `2500M` or `0.5G` as bits a second; zero and negative rates are none.
fn parse_rate(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix('G') {
        Some(number) => (number, 1e9),
        None => (text.strip_suffix('M')?, 1e6),
    };
    let number: f64 = number.parse().ok()?;
    let rate = number * unit;
    (rate.is_finite() && (1.0..=1e15).contains(&rate)).then_some(rate as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = "port a m0 10.0.0.1 100G # first\nport b m0 10.0.0.2 2500M\n\ncable 10.0.0.1 10.0.0.2\n";

    #[test]
    fn reads_every_statement() {
        // given a file with all statements, when it is read
        let text = format!(
            "{PAIR}port c m0 10.0.1.1 1G\nswitch 10.0.0.2 10.0.1.1\nengine clock\nstrict on\nlatency 7\nwake-delay 9\n\
             netdev 10.0.0.2 port1\n"
        );
        let plan = Plan::parse(&text).expect("well formed");
        // then ports, segments and settings are as written
        assert_eq!(plan.ports[0].rate, 100_000_000_000);
        assert_eq!(plan.ports[1].rate, 2_500_000_000);
        assert_eq!(plan.segments, [vec![0, 1], vec![1, 2]]);
        assert_eq!((plan.engine, plan.strict, plan.latency_ns), (Engine::Clock, true, 7));
        assert_eq!(plan.wake_delay_ns, 9);
        assert_eq!((plan.ports[0].netdev.as_deref(), plan.ports[1].netdev.as_deref()), (None, Some("port1")));
        assert!(plan.cabled(0, 1) && plan.cabled(2, 1) && plan.cabled(0, 0) && !plan.cabled(0, 2));
    }

    #[test]
    fn names_line_and_fault() {
        // given files with one fault each, when read, then line and fault are named
        let cases = [
            ("prot a", "line 1: unknown statement \"prot\""),
            ("port a m0 10.0.0.1", "needs node, device"),
            ("port a m0 10.0.0 1G", "not an IPv4 address"),
            ("port a m0 10.0.0.1 0G", "not a rate"),
            ("port a m0 10.0.0.1 1T", "not a rate"),
            ("port a m0 10.0.0.1 1G\nport b m0 10.0.0.1 1G", "line 2: address 10.0.0.1 belongs"),
            ("port a m0 10.0.0.1 1G\nport a m0 10.0.0.2 1G", "exists already"),
            ("cable 10.0.0.1 10.0.0.2", "no port line above"),
            ("cable 10.0.0.1", "two addresses"),
            ("engine fast", "inline or clock"),
            ("latency", "one value"),
            ("wake-delay soon", "nanoseconds"),
            ("strict maybe", "on or off"),
            ("port a m0 10.0.0.1 1G\nnetdev 10.0.0.1 ../lo", "a name of a netdev"),
            ("netdev 10.0.0.1", "an address and a name"),
        ];
        for (text, wanted) in cases {
            let told = Plan::parse(text).expect_err(text).to_string();
            assert!(told.contains(wanted), "{text:?}: {told:?} does not contain {wanted:?}");
        }
    }

    #[test]
    fn fingerprints_tell_plans_apart() {
        // given a plan and one that differs in a cable only, then comments do not count and the cable does
        let plan = Plan::parse(PAIR).expect("well formed");
        assert_eq!(plan.fingerprint(), Plan::parse(&format!("{PAIR}# end")).expect("well formed").fingerprint());
        assert_ne!(plan.fingerprint(), Plan::parse(&PAIR.replace("cable", "#")).expect("well formed").fingerprint());
    }
}
