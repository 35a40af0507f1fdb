//! Hosts cabled as no topology file may describe it, each with a daemon: on a make-believe fabric whose file is written here, or in network
//! namespaces.
//!
//! Knows nothing of what a test wants to see. Any thread; everything ends with its value.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mesh_routing::Subnet;

use crate::common::{COMMAND, fabric_file};

/// UDP port of beacons.
pub(crate) const PORT: u16 = 17_917;
/// Longer than a thing takes that comes at all.
const LONG: Duration = Duration::from_secs(20);
/// Long enough for every beacon to be heard, and complained of, several times over.
const SEVERAL_BEACONS: Duration = Duration::from_millis(700);

/// Links, by the addresses of their ends, the lower one first.
pub(crate) type Links = BTreeSet<[Ipv4Addr; 2]>;

/// A folder, and a name that no other stage of this machine has.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("discovery-bad-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("nccl-mesh-{name}"));
        std::fs::create_dir(&path).expect("a temporary folder");
        Self { path, name }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A make-believe fabric.
#[derive(Debug)]
pub(crate) struct Fabric {
    folder: Folder,
    addresses: Vec<Ipv4Addr>,
    /// Its block of loopback addresses, 127.X.0.0/16, which runs of the simulator leave alone while this listens.
    block: u8,
    _held: TcpListener,
}

impl Fabric {
    /// With these cables, by the addresses of their ends.
    pub(crate) fn new(cables: &[[&str; 2]]) -> Self {
        let folder = Folder::new();
        let (block, held) = (32..=254)
            .find_map(|block| Some((block, TcpListener::bind((Ipv4Addr::new(127, block, 255, 254), 47_811)).ok()?)))
            .expect("a free block of loopback addresses");
        let ends: BTreeSet<Ipv4Addr> = cables.iter().flatten().map(|end| address(end)).collect();
        let fabric = Self { folder, addresses: ends.into_iter().collect(), block, _held: held };
        let mut text = String::new();
        for port in &fabric.addresses {
            let _ = writeln!(text, "port {port} {}", fabric.place(*port).ip());
        }
        for [a, b] in cables {
            let _ = writeln!(text, "cable {a} {b}");
        }
        std::fs::write(fabric.file(), text).expect("a file");
        fabric
    }

    fn file(&self) -> PathBuf {
        self.folder.path.join("fabric")
    }

    /// Where the machine finds a port: beacons' own socket there.
    pub(crate) fn place(&self, port: Ipv4Addr) -> SocketAddrV4 {
        let at = self.addresses.iter().position(|one| *one == port).expect("a port of the fabric");
        SocketAddrV4::new(Ipv4Addr::new(127, self.block, 0, at as u8 + 1), PORT)
    }

    /// Stands at a port, as something that is not nccl-mesh.
    pub(crate) fn stranger(&self, port: &str) -> UdpSocket {
        let socket = UdpSocket::bind(self.place(address(port))).expect("a port that no daemon has");
        socket.set_read_timeout(Some(LONG)).expect("a time");
        socket
    }

    /// A host with this name and these ports, with their prefix lengths and commas.
    pub(crate) fn host(&self, name: &str, ports: &str) -> Host {
        let own: Vec<&str> = ports.split(',').map(|port| port.split('/').next().unwrap_or_default()).collect();
        Host::new(&self.folder, name, &[])
            .with("LD_PRELOAD", &fabric_file().to_string_lossy())
            .with("MESH_FABRIC", &self.file().to_string_lossy())
            .with("MESH_FABRIC_NODE", &own.join(","))
            .with("NCCL_MESH_PORTS", ports)
    }

    /// Its daemon, started.
    pub(crate) fn agent(&self, name: &str, ports: &str) -> Agent {
        self.host(name, ports).agent()
    }
}

pub(crate) fn address(text: &str) -> Ipv4Addr {
    text.parse().expect("an address")
}

/// Links between these ports.
pub(crate) fn links(all: &[[&str; 2]]) -> Links {
    all.iter().map(|ends| ends.map(address)).collect()
}

/// What a host's processes are told, and how they are started there.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    program: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
}

impl Host {
    /// `before` comes before the command.
    pub(crate) fn new(folder: &Folder, name: &str, before: &[&str]) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let program = before.iter().copied().chain([COMMAND]).map(str::to_owned).collect();
        let log = folder.path.join(format!("{name}-{serial}.log"));
        let host = Self { name: name.to_owned(), program, environment: Vec::new(), log };
        // Nothing but this tells hosts of one machine apart that have one name.
        host.with("NCCL_MESH_CLUSTER", &format!("{}-{serial}", folder.name))
            .with("NCCL_MESH_NODE", name)
            .with("NCCL_MESH_LINK", "tcp")
            .with("NCCL_MESH_DRAIN_MS", "0")
            .with("NCCL_MESH_RELAY_MEMORY_MB", "4")
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program[0]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NCCL_")) {
            command.env_remove(name);
        }
        command.args(&self.program[1..]).args(arguments).stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn agent(self) -> Agent {
        let log = File::options().create(true).append(true).open(&self.log).expect("a file");
        let mut command = self.command(&["agent"]);
        command.env("NCCL_MESH_DEBUG", "1").stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("starts");
        let agent = Agent { host: self, child };
        agent.says("mesh[I03]");
        agent
    }
}

/// A daemon that runs.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) host: Host,
    child: Child,
}

impl Agent {
    /// Everything that it has said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.host.log).expect("a file")
    }

    /// Lines with this text.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        self.log().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    /// Waits until it says something.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        self.says_times(text, 1);
    }

    /// Waits until it has said something so often.
    #[track_caller]
    pub(crate) fn says_times(&self, text: &str, times: usize) {
        let until = Instant::now() + LONG;
        while self.lines(text).len() < times {
            assert!(Instant::now() < until, "{} never said {text:?} {times} times:\n{}", self.host.name, self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Panics unless its warnings with this code are one line, which has all of these.
    #[track_caller]
    pub(crate) fn said_once(&self, code: &str, facts: &[&str]) {
        let lines = self.lines(code);
        let whole = lines.len() == 1 && facts.iter().all(|fact| lines[0].contains(fact));
        assert!(whole, "{}: not one line {code} with {facts:?}:\n{}", self.host.name, self.log());
    }

    /// Sends it a signal, by name.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("kill");
        assert!(sent.success());
    }

    /// What `topology discover` finds on its host: the exit status, the links, and what is said besides.
    pub(crate) fn look(&self) -> Look {
        let mut command = self.host.command(&["topology", "discover", "--wait", "3"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        Look { child }
    }

    /// Ends it as a service manager does, and panics unless it ends in order.
    #[track_caller]
    pub(crate) fn ends(mut self) -> Host {
        self.signal("-TERM");
        let status = self.child.wait().expect("ended");
        assert_eq!(status.code(), Some(0), "{}: {status}\n{}", self.host.name, self.log());
        self.host.clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A look that is under way.
#[derive(Debug)]
pub(crate) struct Look {
    child: Child,
}

/// What it found.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: Option<i32>,
    pub(crate) nodes: BTreeSet<String>,
    pub(crate) links: Links,
    pub(crate) text: String,
}

impl Look {
    pub(crate) fn over(self) -> Seen {
        let output = self.child.wait_with_output().expect("ended");
        let file = String::from_utf8_lossy(&output.stdout).into_owned();
        let (mut nodes, mut ports, mut links) = (BTreeSet::new(), Vec::new(), Links::new());
        let value = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
        for line in file.lines() {
            nodes.extend(value(line, "name = "));
            if let Some(port) = value(line, "address = ") {
                let (port, prefix) = port.split_once('/').expect("an address and its length");
                let subnet = Subnet::of(address(port), prefix.parse().expect("a length")).expect("a subnet");
                ports.push((subnet, address(port)));
            }
        }
        // As routes are made of it: two ports in a subnet are a link.
        ports.sort_unstable();
        links.extend(ports.windows(2).filter(|pair| pair[0].0 == pair[1].0).map(|pair| [pair[0].1, pair[1].1]));
        let text = format!("{file}{}", String::from_utf8_lossy(&output.stderr));
        Seen { status: output.status.code(), nodes, links, text }
    }
}

/// Whether the machine let one of them run too late, so that neighbours seemed silent which were not.
pub(crate) fn were_late(agents: &[&Agent]) -> bool {
    agents.iter().any(|agent| !agent.lines("mesh[W70]").is_empty())
}

/// Panics if one of them has warned of anything but these codes.
#[track_caller]
pub(crate) fn warned_only_of(agents: &[&Agent], codes: &[&str]) {
    let excused = if were_late(agents) { &["mesh[W70]", "mesh[W60]"][..] } else { &[] };
    for agent in agents {
        let log = agent.log();
        let warns = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
        let allowed = |line: &str| codes.iter().chain(excused).any(|code| line.contains(code));
        let other = |line: &&str| warns(line) && !allowed(line);
        assert_eq!(log.lines().find(other), None, "{}:\n{log}", agent.host.name);
    }
}

/// Waits until all of them find exactly these links, and then until every beacon has come several times over.
#[track_caller]
pub(crate) fn all_find(agents: &[&Agent], expected: &Links) -> Vec<Seen> {
    let until = Instant::now() + LONG;
    loop {
        let looks: Vec<Look> = agents.iter().map(|agent| agent.look()).collect();
        let seen: Vec<Seen> = looks.into_iter().map(Look::over).collect();
        if seen.iter().all(|seen| seen.links == *expected) {
            std::thread::sleep(SEVERAL_BEACONS);
            return seen;
        }
        let told = || seen.iter().map(|seen| format!("{:?}\n{}", seen.links, seen.text)).collect::<Vec<_>>().join("\n");
        let logs = || agents.iter().map(|agent| agent.log()).collect::<Vec<_>>().join("\n");
        assert!(Instant::now() < until, "not {expected:?} but\n{}\n{}", told(), logs());
    }
}
