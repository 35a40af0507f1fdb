//! The topology file: TOML, schema 1. Links are not written down; they follow from shared subnets.

mod policy;
mod read;
mod table;
mod write;

pub use read::parse_speed;
pub(crate) use read::read;
pub(crate) use write::{speed_text, write};

/// The schema that this release reads and writes.
const SCHEMA: i64 = 1;

const TOP_KEYS: &[&str] = &["schema", "node", "switch", "policy"];
const NODE_KEYS: &[&str] = &["name", "id", "control", "relay", "port"];
const PORT_KEYS: &[&str] = &["device", "address", "speed", "mtu"];
const SWITCH_KEYS: &[&str] = &["subnet"];
const POLICY_KEYS: &[&str] = &["max_relays", "differences", "route"];
const ROUTE_KEYS: &[&str] = &["from", "to", "via"];
