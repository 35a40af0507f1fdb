//! Everything that users can set: `NCCL_MESH_…` in the environment, or the same names in a TOML file.
//!
//! For: whoever needs a setting, by typed field; the command line and the documents, by [`table`](fn@table).
//! Must not know: what the settings do.
//! Threads: [`Settings::load`] is pure; [`get`] reads the process's environment once and is shared by all threads.
//!
//! ```text
//!   table      every setting: name, kind, default, unit, meaning, reader, field
//!   value      texts to values
//!   load       environment and file to Settings and warnings
//!   warning    what is said about settings that are wrong or idle
//!   document   docs/settings.md
//! ```

mod document;
mod load;
mod table;
mod value;
mod warning;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

pub use document::document;
pub use load::{Listed, Origin};
pub use table::{Setting, table};
pub use value::Kind;
pub use warning::Warning;

/// Start of every name in the environment.
pub const PREFIX: &str = "NCCL_MESH_";

/// Cores for the relay thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayCores {
    /// A big core outside the process's busy set; none where cores are few.
    Auto,
    /// No pinning.
    Unpinned,
    /// The first of these that can be had, by number.
    List(Vec<usize>),
}

/// The settings in force. Durations and sizes are converted: sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// `CONF`: the file that settings are also read from.
    pub conf: Option<PathBuf>,
    /// `TOPOLOGY`: the topology file.
    pub topology: Option<PathBuf>,
    /// `NODE`: this node's name in the topology; otherwise it is found by address.
    pub node: Option<String>,
    /// `PORTS`: ports of this node; otherwise those of the topology, or all that links can use.
    pub ports: Option<String>,
    /// `SWITCHES`: subnets that are switched segments, where no topology file says so.
    pub switches: Option<String>,
    /// `DISCOVERY`: whether neighbours are looked for.
    pub discovery: bool,
    /// `RELAY`: whether traffic of others may pass.
    pub relay: bool,
    /// `CLUSTER`: tells make-believe clusters of one host apart.
    pub cluster: Option<String>,
    /// `JOB`: name of the job; otherwise from what launchers set.
    pub job: Option<String>,
    /// `PORT`: TCP port of agents, and UDP port of beacons.
    pub port: u16,
    /// `GID_INDEX`: forced index; otherwise GIDs are found by address.
    pub gid_index: Option<u8>,
    /// `TRAFFIC_CLASS`: of all RDMA packets; otherwise NCCL's.
    pub traffic_class: Option<u8>,
    /// `SERVICE_LEVEL`: of all RDMA packets.
    pub service_level: u8,
    /// `LINK`: `tcp` or `verbs`.
    pub link: String,
    /// `DISABLE_RDMA`: TCP links even where RDMA is at hand.
    pub disable_rdma: bool,
    /// `SPEED_MBPS`: speed to report, Mbit/s; otherwise of RDMA ports, from the topology, or 100000.
    pub speed_mbps: Option<u32>,
    /// `CHUNK_KB`, bytes.
    pub chunk: usize,
    /// `STRIPE_KB`, bytes: messages from this size on are spread over all lanes of a connection.
    pub stripe: usize,
    /// `RELAY_MEMORY_MB`, bytes: bound of the memory for slots of the relay.
    pub relay_memory: usize,
    /// `RELAY_SLOTS`: entry slots of each lane of a relayed connection; `None` is from the links' speed.
    pub relay_slots: Option<usize>,
    /// `TRUNK_SLOTS`: slots for each hop class of a trunk; `None` is from the links' speed.
    pub trunk_slots: Option<usize>,
    /// `LANES`: most lanes of a connection.
    pub lanes: usize,
    /// `RELAY_CORES`.
    pub relay_cores: RelayCores,
    /// `SPIN_US`; `None` is automatic, see [`spin_on`](Self::spin_on).
    pub spin: Option<Duration>,
    /// `SOCKET_BUFFER_KB`, bytes, of each TCP link and direction; `None` leaves it to the kernel.
    pub socket_buffer: Option<usize>,
    /// `CONNECT_TIMEOUT_SEC`: limit of a connection's set-up at the sender.
    pub connect_timeout: Duration,
    /// `ACCEPT_TIMEOUT_SEC`: limit of a connection's set-up at the receiver.
    pub accept_timeout: Duration,
    /// `TIMEOUT_MS`: how long whoever opens a leg to this node may take to say what it wants.
    pub step_timeout: Duration,
    /// `TIMEOUT_SEC`: how long a posted transfer may stand still.
    pub timeout: Duration,
    /// `FATAL_ON_TIMEOUT`: whether a transfer that stands still ends the communicator, or only warns.
    pub fatal_on_timeout: bool,
    /// `FAST_FAIL`: shorter keep-alive and retry limits.
    pub fast_fail: bool,
    /// `HEALTH_CHECK_INTERVAL_MS`: unit of the links' keep-alive.
    pub health_check_interval: Duration,
    /// `DRAIN_MS`: how long a node that ends goes on relaying for others.
    pub drain: Duration,
    /// `DEBUG`: 0 off, 1 information, 2 verbose.
    pub debug: u8,
    /// `METRICS`: whether a line of counters is logged from time to time.
    pub metrics: bool,
    /// `METRICS_INTERVAL_SEC`: interval of that line.
    pub metrics_interval: Duration,
    /// `STATS_FILE`: where counters are written as JSON.
    pub stats_file: Option<PathBuf>,
    chosen: load::Chosen,
}

impl Settings {
    /// How long the relay thread spins after the last work before it sleeps, on a machine with that many cores.
    pub fn spin_on(&self, cores: usize) -> Duration {
        self.spin.unwrap_or(if cores <= 2 { Duration::ZERO } else { Duration::from_micros(50) })
    }
}

/// The settings of this process, read at the first call.
pub fn get() -> &'static Settings {
    &process().0
}

/// What there is to say about the settings of this process. To be logged once.
pub fn warnings() -> &'static [Warning] {
    &process().1
}

fn process() -> &'static (Settings, Vec<Warning>) {
    static PROCESS: OnceLock<(Settings, Vec<Warning>)> = OnceLock::new();
    PROCESS.get_or_init(Settings::of_process)
}
