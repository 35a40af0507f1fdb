//! Every setting, once: help, documents, listing and reading are made from this table.
//!
//! For: the loader, `nccl-mesh env`, `docs/settings.md`. Must not know: what the settings do. Threads: constant.

use std::time::Duration;

use super::value::{Kind, Value};
use super::{PREFIX, Settings};

/// One setting.
pub struct Setting {
    /// Name without the prefix.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Text of the default; empty if unset means something of its own, which `doc` tells.
    pub default: &'static str,
    /// Unit of the value, or empty.
    pub unit: &'static str,
    /// What it means, in a sentence or two.
    pub doc: &'static str,
    /// The part of the system that reads it.
    pub used_in: &'static str,
    /// Puts a value into its field.
    pub(super) store: fn(&mut Settings, Value),
}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("name", &self.name).field("default", &self.default).finish_non_exhaustive()
    }
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Setting {}

impl Setting {
    /// Name in the environment.
    pub fn full_name(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

/// All settings, grouped by subject.
pub fn table() -> &'static [Setting] {
    TABLE
}

/// A row whose value goes through `$convert` into `$field`; a value of another kind cannot come from the kind's parser.
macro_rules! row {
    ($name:literal, $kind:expr, $default:literal, $unit:literal, $used:literal, $field:ident, $pattern:pat => $convert:expr,
     $doc:literal) => {
        Setting {
            name: $name,
            kind: $kind,
            default: $default,
            unit: $unit,
            doc: $doc,
            used_in: $used,
            store: |settings, value| {
                if let $pattern = value {
                    settings.$field = $convert;
                }
            },
        }
    };
}

/// A row that is accepted for the sake of people who have it set.
macro_rules! idle {
    ($name:literal, $reason:literal) => {
        Setting {
            name: $name,
            kind: Kind::Idle($reason),
            default: "",
            unit: "",
            doc: concat!("Accepted, without effect: ", $reason, "."),
            used_in: "nowhere",
            store: |_, _| {},
        }
    };
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The parsers' ranges keep every number below what its field holds.
const fn number(min: u64, max: u64) -> Kind {
    Kind::Number { min, max }
}

#[rustfmt::skip]
static TABLE: &[Setting] = &[
    // Where things are.
    row!("CONF", Kind::Path, "", "", "settings", conf, Value::Text(t) => Some(t.into()),
        "TOML file with further settings, names in lower case without the prefix. The environment wins. Unset: none."),
    row!("TOPOLOGY", Kind::Path, "", "", "agent", topology, Value::Text(t) => Some(t.into()),
        "Topology file: nodes, their ports, which of them relay; what is found is compared with it. Unset: the nodes find one another."),
    row!("NODE", Kind::Text, "", "", "agent", node, Value::Text(t) => Some(t),
        "Name of this node, in the topology file if there is one. Unset: the node there that has one of this host's addresses, or the host's \
         name; the host's machine id then says which node it is."),
    row!("PORTS", Kind::Text, "", "", "agent", ports, Value::Text(t) => Some(t),
        "Ports of this node, with commas: addresses or interfaces, an address with its prefix length if no interface has it \
         (10.0.0.1/30). Unset: those of the topology file, or all that links can use."),
    row!("SWITCHES", Kind::Text, "", "", "agent", switches, Value::Text(t) => Some(t),
        "Subnets that are switched segments, with commas (10.10.0.0/24): any two ports there are neighbours. The same on all nodes. A \
         topology file says so itself ([[switch]]). Unset: none, every port is at a cable."),
    row!("DISCOVERY", Kind::Switch, "1", "", "agent", discovery, Value::Switch(b) => b,
        "0: does not look for neighbours. Without a topology file only neighbours can be reached then."),
    row!("RELAY", Kind::Switch, "1", "", "agent", relay, Value::Switch(b) => b,
        "0: traffic of others does not pass this node. A topology file says so itself (relay = false)."),
    row!("CLUSTER", Kind::Text, "", "", "agent", cluster, Value::Text(t) => Some(t),
        "Name of a make-believe cluster on this host, the same for all its processes: they take no process of another for one of their own \
         node. Unset: what is real."),
    row!("JOB", Kind::Text, "", "", "agent", job, Value::Text(t) => Some(t),
        "Name of the job, the same for all its processes: they relay for each other where they can, so that no other job's end disturbs \
         them. Unset: made from what torchrun, Slurm, Open MPI or PMIx set."),
    row!("PORT", number(1, 65535), "17917", "", "agent", port, Value::Number(n) => n as u16,
        "TCP port of agents and UDP port of beacons, the same on all nodes."),
    row!("GID_INDEX", number(0, 255), "", "", "verbs links", gid_index, Value::Number(n) => Some(n as u8),
        "Index of every port's GID table; an error if it is not the RoCE v2 GID of the port's address. Unset: found by address, as \
         indices move."),
    row!("TRAFFIC_CLASS", number(0, 255), "", "", "verbs links", traffic_class, Value::Number(n) => Some(n as u8),
        "Traffic class of all RDMA packets. Unset: what NCCL's first communicator names, or 0."),
    row!("SERVICE_LEVEL", number(0, 7), "0", "", "verbs links", service_level, Value::Number(n) => n as u8,
        "Service level (Ethernet priority) of all RDMA packets."),
    row!("LINK", Kind::Choice(&["tcp", "verbs"]), "verbs", "", "links", link, Value::Text(t) => t,
        "What carries links, the same on all nodes: verbs (RDMA queue pairs; an error where there are none), or tcp."),
    row!("DISABLE_RDMA", Kind::Switch, "0", "", "links", disable_rdma, Value::Switch(b) => b,
        "1 uses TCP links whatever LINK says."),
    row!("SPEED_MBPS", number(1, 10_000_000), "", "Mbit/s", "plugin", speed_mbps, Value::Number(n) => Some(n as u32),
        "Speed reported to NCCL. Unset: of the slowest RDMA port in use, else from the topology, else 100000."),

    // How data moves.
    row!("CHUNK_KB", number(4, 4096), "128", "KiB", "relay", chunk, Value::Number(n) => (n * KIB) as usize,
        "What a relay stores and forwards at a time."),
    row!("STRIPE_KB", number(0, 1_048_576), "64", "KiB", "connections", stripe, Value::Number(n) => (n * KIB) as usize,
        "Messages from this size on are spread over all lanes of a connection."),
    row!("RELAY_MEMORY_MB", number(1, 65536), "64", "MiB", "relay", relay_memory, Value::Number(n) => (n * MIB) as usize,
        "Bound of the memory for slots of this node's relay."),
    row!("RELAY_SLOTS", Kind::NumberOrAuto { min: 1, max: 64 }, "auto", "slots", "relay", relay_slots,
        value @ (Value::Number(_) | Value::Auto) => value.number().map(|n| n as usize),
        "Entry slots of each lane of a relayed connection. auto: what keeps a link of this node's speed busy for 20 µs, and what is on its way \
         in and out."),
    row!("TRUNK_SLOTS", Kind::NumberOrAuto { min: 1, max: 256 }, "auto", "slots", "relay", trunk_slots,
        value @ (Value::Number(_) | Value::Auto) => value.number().map(|n| n as usize),
        "Slots for each hop class of a trunk. auto: twice the automatic number of RELAY_SLOTS."),
    row!("LANES", number(1, 8), "8", "lanes", "connections", lanes, Value::Number(n) => n as usize,
        "Most lanes of a connection: rails of an edge, and of all routes of equal length that share no cable (on a ring, both ways round)."),
    row!("RELAY_CORES", Kind::Cores, "auto", "", "relay", relay_cores, Value::Cores(c) => c,
        "Core for the relay thread: numbers with commas (the first that can be had), auto (a fast one that no other thread of the process is \
         bound to; none on up to 2 cores), or none (left to the scheduler)."),
    row!("SPIN_US", Kind::NumberOrAuto { min: 0, max: 10_000_000 }, "auto", "µs", "relay", spin,
        value @ (Value::Number(_) | Value::Auto) => value.number().map(Duration::from_micros),
        "How long the relay thread spins after the last work before it sleeps. auto: 0 on up to 2 cores, else 50."),
    row!("SOCKET_BUFFER_KB", Kind::NumberOrAuto { min: 16, max: 1_048_576 }, "auto", "KiB", "TCP links", socket_buffer,
        value @ (Value::Number(_) | Value::Auto) => value.number().map(|n| (n * KIB) as usize),
        "Socket buffer of each TCP link and direction. auto: the kernel adapts it to the traffic."),

    // How long things may take.
    row!("CONNECT_TIMEOUT_SEC", number(1, 86_400), "60", "s", "connections", connect_timeout,
        Value::Number(n) => Duration::from_secs(n),
        "Limit of a connection's set-up at the sender."),
    row!("ACCEPT_TIMEOUT_SEC", number(1, 86_400), "120", "s", "connections", accept_timeout,
        Value::Number(n) => Duration::from_secs(n),
        "Limit of a connection's set-up at the receiver."),
    row!("TIMEOUT_MS", number(1, 3_600_000), "5000", "ms", "connections, agent", step_timeout,
        Value::Number(n) => Duration::from_millis(n),
        "How long whoever opens a leg to this node may take to say what it wants."),
    row!("TIMEOUT_SEC", number(1, 86_400), "30", "s", "connections", timeout, Value::Number(n) => Duration::from_secs(n),
        "How long a posted transfer may stand still. An idle connection never times out."),
    row!("FATAL_ON_TIMEOUT", Kind::Switch, "1", "", "connections", fatal_on_timeout, Value::Switch(b) => b,
        "1 ends the communicator when a transfer stands still, 0 only warns."),
    row!("FAST_FAIL", Kind::Switch, "0", "", "agent, links", fast_fail, Value::Switch(b) => b,
        "1 notices sooner what is cut: RDMA writes are repeated for 1 s instead of 4, sockets wait at most 5 s for an answer; keep-alive three times as often."),
    row!("HEALTH_CHECK_INTERVAL_MS", number(10, 3_600_000), "1000", "ms", "agent", health_check_interval,
        Value::Number(n) => Duration::from_millis(n),
        "Unit of keep-alive: an idle link is probed after 10 of these, then every 3; after 5 probes in vain it is dead."),
    row!("DRAIN_MS", number(0, 3_600_000), "5000", "ms", "agent", drain, Value::Number(n) => Duration::from_millis(n),
        "How long a node that ends goes on relaying for others."),

    // What is told.
    row!("DEBUG", number(0, 2), "0", "", "log", debug, Value::Number(n) => n as u8,
        "Log to standard error, whatever NCCL_DEBUG says: 0 off, 1 information, 2 verbose."),
    row!("METRICS", Kind::Switch, "1", "", "agent", metrics, Value::Switch(b) => b,
        "1 logs a line of counters from time to time."),
    row!("METRICS_INTERVAL_SEC", number(1, 86_400), "10", "s", "agent", metrics_interval,
        Value::Number(n) => Duration::from_secs(n),
        "Interval of that line."),
    row!("STATS_FILE", Kind::Path, "", "", "agent", stats_file, Value::Text(t) => Some(t.into()),
        "File to which counters are written as JSON. Unset: none."),

    // Without effect.
    idle!("RETRY_COUNT", "a step of the set-up is tried again until CONNECT_TIMEOUT_SEC is over"),
    idle!("CONN_POOL", "connections always share the trunks between nodes"),
    idle!("ASYNC_CONNECT", "set-up is always asynchronous"),
    idle!("HYBRID_TCP", "peers without a common cable are reached through relays"),
];
