//! The fabric on this machine, make-believe or of its own ports: addresses, files, and what every node's process is told of them.
//!
//! Lives on the thread that runs the harness. Everything is gone when the [`Scene`] is dropped.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use mesh_routing::Topology;
use thiserror::Error;

use super::args::{LinkKind, RunArgs, Work};
use super::cables::{CUTS, Cables};
use super::netns::{MANAGEMENT, Netns, NetnsError};
use super::verbs::SoftVerbs;

/// The port that a run listens on to hold its block of loopback addresses.
const LOCK_PORT: u16 = 47_811;
/// Blocks 127.X.0.0/16 for X in this range; lower ones are used by others, 127.255 ends with a broadcast address.
const BLOCKS: std::ops::Range<u8> = 32..255;
/// Ports that a block has room for.
const MOST_PORTS: usize = 200 * 254;

/// The preloaded library's file.
pub const FABRIC_FILE: &str = "libmesh_fabric.so";
/// The plugin's file.
pub const PLUGIN_FILE: &str = "libnccl_net_mesh.so";

/// Why there is no fabric.
#[derive(Debug, Error)]
pub enum SceneError {
    /// Every block of loopback addresses is held.
    #[error("no free block of loopback addresses: {runs} runs hold theirs; end one")]
    NoBlock {
        /// Blocks that are held.
        runs: usize,
    },
    /// The topology is too large for one machine.
    #[error("{ports} ports are more than the {MOST_PORTS} that fit one machine")]
    TooManyPorts {
        /// Ports of the topology.
        ports: usize,
    },
    /// There are no network namespaces.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A file of the build is missing.
    #[error("{file} is not beside this program (looked in {looked_in}); build it or name it with an option")]
    NoFile {
        /// The file.
        file: &'static str,
        /// Folders.
        looked_in: String,
    },
    /// There is no soft verbs library.
    #[error(
        "no libibverbs.so.1 in {folder:?}; make it: cargo run --release -p mesh-soft-verbs --example build -- {}", folder.display()
    )]
    NoSoftVerbs {
        /// Folder.
        folder: PathBuf,
    },
    /// With real ports, one of the topology that this machine does not have.
    #[error("--real-ports: {node} has the port {address}, which is no address of this machine: {source}")]
    NoPort {
        /// The node.
        node: String,
        /// The port's address.
        address: Ipv4Addr,
        /// Why it cannot be listened on.
        source: io::Error,
    },
    /// A file named by the user is missing.
    #[error("{path:?}: {source}")]
    Named {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder of the run could not be written.
    #[error("cannot write {path:?}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Finds a file of the build: where it is named, else beside this program or in the folders around it where builds and
/// installations put libraries.
///
/// # Errors
/// It is not there.
pub fn find_beside(named: Option<&Path>, file: &'static str) -> Result<PathBuf, SceneError> {
    if let Some(path) = named {
        // The loader of another process has another working folder.
        return std::fs::canonicalize(path).map_err(|source| SceneError::Named { path: path.to_owned(), source });
    }
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or_else(|| Path::new("."));
    // Tests live in `deps` themselves and find libraries beside them or one level up; installed programs in `../lib`.
    let folders = [folder.to_owned(), folder.join("deps"), folder.join(".."), folder.join("../lib")];
    let found = folders.iter().map(|folder| folder.join(file)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let looked_in: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        SceneError::NoFile { file, looked_in: looked_in.join(", ") }
    })
}

/// A block of loopback addresses that no other run uses while this value lives.
#[derive(Debug)]
struct Block {
    second: u8,
    _held: TcpListener,
}

impl Block {
    fn take() -> Result<Self, SceneError> {
        let count = BLOCKS.len() as u32;
        // Runs that start at the same time begin to look at different places.
        let first = std::process::id() % count;
        for step in 0..count {
            let second = BLOCKS.start + ((first + step) % count) as u8;
            // Listening is exclusive, and ends with the process however that comes.
            if let Ok(held) = TcpListener::bind((Ipv4Addr::new(127, second, 255, 254), LOCK_PORT)) {
                return Ok(Self { second, _held: held });
            }
        }
        Err(SceneError::NoBlock { runs: BLOCKS.len() })
    }

    fn place(&self, index: usize) -> Ipv4Addr {
        Ipv4Addr::new(127, self.second, (index / 254) as u8, (index % 254 + 1) as u8)
    }
}

/// How folders of runs begin; the process's number and a serial number follow.
pub(super) const FOLDER: &str = "nccl-mesh-sim-";

/// Removes folders of runs that were killed and could not do it themselves.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Somebody else's cannot be removed, and need not be.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A folder that goes with its value.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self, SceneError> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        sweep(&std::env::temp_dir());
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("{FOLDER}{}-{serial}", std::process::id()));
        // `create_dir` refuses what is there already, also a link that somebody else laid.
        std::fs::create_dir(&path).map_err(|source| SceneError::Write { path: path.clone(), source })?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, SceneError> {
        let path = self.0.join(name);
        std::fs::write(&path, text).map_err(|source| SceneError::Write { path: path.clone(), source })?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing can be done about a failure, and nothing depends on it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What nodes talk over.
#[derive(Debug)]
enum Fabric {
    /// A make-believe one: ports have places among the loopback addresses, and a preloaded library knows the cables.
    MakeBelieve {
        /// The preloaded library.
        library: PathBuf,
        /// What it reads.
        file: PathBuf,
        /// Addresses of every node's ports.
        own: Vec<String>,
        verbs: Option<SoftVerbs>,
        _block: Block,
    },
    /// Network namespaces, a veth pair a cable.
    Netns { netns: Netns, verbs: Option<SoftVerbs> },
    /// Ports that this machine has, with whatever joins them.
    Real,
}

impl Fabric {
    fn make_believe(args: &RunArgs, folder: &Folder) -> Result<Self, SceneError> {
        let topology = &args.topology;
        let library = find_beside(args.fabric.as_deref(), FABRIC_FILE)?;
        let verbs = match args.link {
            LinkKind::Tcp => None,
            LinkKind::Verbs => Some(SoftVerbs::create(args.soft_verbs.as_deref(), topology, &args.soft_verbs_set)?),
        };
        let block = Block::take()?;
        // No cable is cut at first.
        folder.write(CUTS, &"\0".repeat(topology.links().len()))?;
        let file = folder.write("fabric", &fabric_text(topology, |index| block.place(index)))?;
        let own = |node: &mesh_routing::Node| {
            node.ports.iter().map(|port| port.address.to_string()).collect::<Vec<_>>().join(",")
        };
        Ok(Self::MakeBelieve { library, file, own: topology.nodes().iter().map(own).collect(), verbs, _block: block })
    }

    fn netns(args: &RunArgs) -> Result<Self, SceneError> {
        let topology = &args.topology;
        let netns = Netns::create(topology)?;
        // The caller's statements come last, so that they win.
        let statements = [&Netns::soft_verbs(topology)[..], &args.soft_verbs_set].concat();
        let verbs = match args.link {
            LinkKind::Tcp => None,
            LinkKind::Verbs => Some(SoftVerbs::create(args.soft_verbs.as_deref(), topology, &statements)?),
        };
        Ok(Self::Netns { netns, verbs })
    }

    /// Looks whether this machine has every port. A node that lacks one would say so too, but only once it runs.
    fn real(topology: &Topology) -> Result<Self, SceneError> {
        for node in topology.nodes() {
            for port in &node.ports {
                TcpListener::bind((port.address, 0)).map_err(|source| SceneError::NoPort {
                    node: node.name.clone(),
                    address: port.address,
                    source,
                })?;
            }
        }
        Ok(Self::Real)
    }

    /// Puts the process of a node on the fabric, which is number `node` and has this name.
    fn enter(&self, command: &mut Command, node: usize, name: &str) {
        match self {
            Self::MakeBelieve { library, file, own, verbs, .. } => {
                // Preloaded before what the user preloads: nothing may get past the cables.
                let mut preload = library.clone().into_os_string();
                if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
                    preload.push(":");
                    preload.push(others);
                }
                command.env("LD_PRELOAD", preload).env("MESH_FABRIC", file).env("MESH_FABRIC_NODE", &own[node]);
                if let Some(verbs) = verbs {
                    verbs.enter(command, name);
                }
            }
            Self::Netns { verbs, .. } => {
                command.env_remove("MESH_FABRIC").env_remove("MESH_SOFT_VERBS").env("NCCL_SOCKET_IFNAME", MANAGEMENT);
                if let Some(verbs) = verbs {
                    verbs.enter(command, name);
                }
            }
            // Soft verbs have no device without their file, should the loader find them before the system's library.
            Self::Real => {
                command.env_remove("MESH_FABRIC").env_remove("MESH_SOFT_VERBS");
            }
        }
    }
}

/// A fabric that stands.
#[derive(Debug)]
pub struct Scene {
    names: Vec<String>,
    topology_file: PathBuf,
    /// The plugin.
    plugin: PathBuf,
    environment: Vec<(String, String)>,
    link: LinkKind,
    /// Whether nodes are given no topology.
    discover: bool,
    /// Every node's ports, as a setting names them.
    ports: Vec<String>,
    /// The switched segments, as a setting names them.
    switches: String,
    fabric: Fabric,
    /// Whether nodes keep no statistics, and a core for each one's relay thread, or none.
    measures: bool,
    relay_cores: Vec<usize>,
    folder: Folder,
}

impl Scene {
    /// Takes addresses and writes files.
    ///
    /// # Errors
    /// See [`SceneError`].
    pub fn set_up(args: &RunArgs) -> Result<Self, SceneError> {
        let topology = &args.topology;
        let ports = topology.nodes().iter().map(|node| node.ports.len()).sum();
        if ports > MOST_PORTS {
            return Err(SceneError::TooManyPorts { ports });
        }
        let plugin = match &args.work {
            // A command that does not use the plugin runs where none was built.
            Work::Job(job) if !job.plugin => PathBuf::new(),
            _ => find_beside(args.plugin.as_deref(), PLUGIN_FILE)?,
        };
        let folder = Folder::create()?;
        let fabric = match (args.real_ports, args.netns) {
            (true, _) => Fabric::real(topology)?,
            (false, true) => Fabric::netns(args)?,
            (false, false) => Fabric::make_believe(args, &folder)?,
        };
        let port = |port: &mesh_routing::Port| format!("{}/{}", port.address, port.prefix);
        let ports = |node: &mesh_routing::Node| node.ports.iter().map(port).collect::<Vec<_>>().join(",");
        let topology_file = folder.write("topology.toml", &topology.to_toml())?;
        Ok(Self {
            names: topology.nodes().iter().map(|node| node.name.clone()).collect(),
            topology_file,
            plugin,
            environment: args.environment.clone(),
            link: args.link,
            discover: args.discover,
            ports: topology.nodes().iter().map(ports).collect(),
            switches: topology.switches().iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            fabric,
            measures: false,
            relay_cores: Vec::new(),
            folder,
        })
    }

    /// Names of the nodes, by place in the topology.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The plugin's file.
    #[must_use]
    pub fn plugin(&self) -> &Path {
        &self.plugin
    }

    /// Where the statistics of a node's process of a job are written.
    #[must_use]
    pub fn statistics_file(&self, node: usize, job: usize) -> PathBuf {
        self.folder.0.join(format!("{}-{job}.json", self.names[node]))
    }

    /// From now on nodes do nothing beside what is measured: they write no statistics. With a core for every node, its relay thread
    /// has that one and spins there as the settings say.
    pub(super) fn prepare_to_measure(&mut self, relay_cores: Vec<usize>) {
        self.measures = true;
        self.relay_cores = relay_cores;
    }

    /// The network namespaces, if nodes are in such.
    pub(super) const fn netns(&self) -> Option<&Netns> {
        match &self.fabric {
            Fabric::Netns { netns, .. } => Some(netns),
            _ => None,
        }
    }

    /// Where cables can be cut, if they are make-believe.
    pub(super) fn cables(&self) -> Option<Cables> {
        match &self.fabric {
            Fabric::MakeBelieve { file, verbs, .. } => {
                let verbs = verbs.as_ref().map(SoftVerbs::fabric_file);
                Some(Cables { cuts: file.with_file_name(CUTS), verbs })
            }
            _ => None,
        }
    }

    /// A command that runs a program where `node` is.
    pub(super) fn program(&self, node: usize, program: &OsStr) -> Command {
        self.netns().map_or_else(|| Command::new(program), |netns| netns.program(node, program))
    }

    /// Where all nodes can reach `node`, however they are cabled.
    pub(super) fn meeting_address(&self, node: usize) -> Ipv4Addr {
        self.netns().map_or(Ipv4Addr::LOCALHOST, |netns| netns.management_address(node))
    }

    /// Tells the nodes of this run from those of others on this machine.
    pub(super) fn cluster(&self) -> String {
        self.folder.0.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// TCP port of the nodes' agents.
    pub(super) fn port(&self) -> u16 {
        let set = self.environment.iter().rev().find(|(name, _)| name == "NCCL_MESH_PORT");
        set.and_then(|(_, value)| value.parse().ok()).unwrap_or(17_917)
    }

    /// Puts a process of `node` on the fabric, which belongs to a job, counted from 0.
    pub fn enter(&self, command: &mut Command, node: usize, job: usize) {
        self.fabric.enter(command, node, &self.names[node]);
        command.env("NCCL_MESH_NODE", &self.names[node]).env("NCCL_MESH_JOB", format!("{}-{job}", std::process::id()));
        command.env("NCCL_MESH_CLUSTER", self.cluster());
        if !self.discover {
            command.env("NCCL_MESH_TOPOLOGY", &self.topology_file);
        } else {
            // That a subnet is switched is declared, never found.
            command.env_remove("NCCL_MESH_TOPOLOGY").env("NCCL_MESH_SWITCHES", &self.switches);
            // In namespaces there are interfaces to be found; here only the library knows of the ports.
            if matches!(self.fabric, Fabric::MakeBelieve { .. }) {
                command.env("NCCL_MESH_PORTS", &self.ports[node]);
            }
        }
        if !self.measures {
            command
                .env("NCCL_MESH_STATS_FILE", self.statistics_file(node, job))
                .env("NCCL_MESH_METRICS_INTERVAL_SEC", "1");
        }
        match self.relay_cores.get(node) {
            Some(core) => command.env("NCCL_MESH_RELAY_CORES", core.to_string()),
            // A host has its cores to itself; here all nodes share them, and relays that spin or are pinned only hold up the others:
            // six nodes on 16 cores took 1.4 to 2 times as long for all-to-all.
            None => command.env("NCCL_MESH_RELAY_CORES", "none").env("NCCL_MESH_SPIN_US", "0"),
        };
        match self.link {
            // Adapters that this machine may have are not what was asked for.
            LinkKind::Tcp => command.env("NCCL_MESH_DISABLE_RDMA", "1"),
            LinkKind::Verbs => command.env("NCCL_MESH_LINK", "verbs").env("NCCL_MESH_DISABLE_RDMA", "0"),
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
    }
}

/// The text of the fabric file: every port with its place, then every link as a cable.
fn fabric_text(topology: &Topology, place: impl Fn(usize) -> Ipv4Addr) -> String {
    let mut text = String::new();
    let ports = topology.nodes().iter().flat_map(|node| &node.ports);
    for (index, port) in ports.enumerate() {
        let _ = writeln!(text, "port {} {}", port.address, place(index));
    }
    for link in topology.links() {
        let _ = writeln!(text, "cable {} {}", link.ends[0].address, link.ends[1].address);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_routing::{AddressPlan, Shape};

    #[test]
    fn runs_at_the_same_time_have_blocks_of_their_own() {
        let (a, b) = (Block::take().expect("free"), Block::take().expect("free"));
        assert_ne!(a.second, b.second);
        assert!(BLOCKS.contains(&a.second));
        // and places of a block do not repeat, nor are they network or broadcast addresses
        let places: std::collections::BTreeSet<_> = (0..600).map(|index| a.place(index)).collect();
        assert_eq!(places.len(), 600);
        assert!(places.iter().all(|place| !matches!(place.octets()[3], 0 | 255)));
    }

    #[test]
    fn a_folder_goes_with_its_value() {
        let folder = Folder::create().expect("a temporary folder");
        let file = folder.write("x", "y").expect("a file");
        assert!(file.exists());
        let path = folder.0.clone();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn folders_of_dead_runs_are_swept() {
        // given a folder of this process, one of a process that cannot be, and one of another name
        let parent = Folder::create().expect("a temporary folder");
        let make = |name: String| {
            let path = parent.0.join(name);
            std::fs::create_dir(&path).expect("a folder");
            path
        };
        let own = make(format!("{FOLDER}{}-7", std::process::id()));
        let dead = make(format!("{FOLDER}{}-0", u32::MAX));
        let other = make(format!("other-{}-0", u32::MAX));
        // when that place is swept, then only the dead run's goes
        sweep(&parent.0);
        assert!(own.exists() && other.exists() && !dead.exists());
    }

    #[test]
    fn the_fabric_file_has_all_ports_and_links() {
        let topology = Topology::from_shape(Shape::Ring, 3, 2, &AddressPlan::default()).expect("a ring");
        let text = fabric_text(&topology, |index| Ipv4Addr::new(127, 40, 0, index as u8 + 1));
        assert_eq!(text.lines().filter(|line| line.starts_with("port ")).count(), 12);
        assert_eq!(text.lines().filter(|line| line.starts_with("cable ")).count(), 6);
    }

    #[test]
    fn nodes_on_real_ports_get_nothing_make_believe() {
        // given a scene on ports of this machine, links over verbs, and a caller who is on make-believe devices himself
        let folder = Folder::create().expect("a temporary folder");
        let scene = Scene {
            names: vec!["node0".to_owned()],
            topology_file: folder.0.join("topology.toml"),
            plugin: PathBuf::new(),
            environment: Vec::new(),
            link: LinkKind::Verbs,
            discover: false,
            ports: Vec::new(),
            switches: String::new(),
            fabric: Fabric::Real,
            measures: false,
            relay_cores: Vec::new(),
            folder,
        };
        let mut command = Command::new("true");
        command.env("MESH_SOFT_VERBS", "/somewhere");
        // when a node enters, then it is told who it is and what carries links, and of no fabric
        scene.enter(&mut command, 0, 0);
        let told = |name: &str| command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value);
        assert_eq!(told("NCCL_MESH_NODE").and_then(|name| name.to_str()), Some("node0"));
        assert_eq!(told("NCCL_MESH_LINK").and_then(|link| link.to_str()), Some("verbs"));
        for make_believe in ["LD_PRELOAD", "LD_LIBRARY_PATH", "MESH_FABRIC", "MESH_SOFT_VERBS"] {
            assert_eq!(told(make_believe), None, "{make_believe}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = find_beside(None, "libno-such-thing.so").expect_err("not there");
        assert!(error.to_string().contains("libno-such-thing.so is not beside this program"), "{error}");
        assert!(find_beside(Some(Path::new("/no/such/file")), FABRIC_FILE).is_err());
    }
}
