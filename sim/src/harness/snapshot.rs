//! What the plugin counts, as it tells in its snapshot and in its statistics file.
//!
//! Fields that a plugin does not have count as zero. Pure; any thread.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Counters of one process, since it started or between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Name of the node.
    pub node: String,
    /// Payload sent on connections without a relay, in bytes.
    pub direct_bytes: u64,
    /// Payload sent on connections with relays, in bytes.
    pub relayed_out_bytes: u64,
    /// Payload of others that was passed on, in bytes.
    pub forwarded_bytes: u64,
    /// Chunks of others that were passed on.
    pub forwarded_chunks: u64,
    /// Bytes sent on each link, by `LOCAL-REMOTE` address.
    pub links: BTreeMap<String, u64>,
}

impl Snapshot {
    /// Reads the text that the plugin gives.
    ///
    /// # Errors
    /// If it is no such JSON object.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Reads a statistics file.
    ///
    /// # Errors
    /// If there is none or it is not a snapshot.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string(path)?)?)
    }

    /// What a node's daemon counts, from what `nccl-mesh status --json` prints there.
    ///
    /// # Errors
    /// If there is no daemon's row, or something is no JSON.
    pub fn of_daemon(lines: &str) -> Result<Self, String> {
        let rows: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
        let rows = rows.map_err(|error| error.to_string())?;
        let daemon = rows.iter().find(|row| row["kind"] == "process" && row["role"] == "daemon");
        let daemon = daemon.ok_or("no daemon answers")?;
        let count = |field: &str| daemon[field].as_u64().ok_or_else(|| format!("it does not say {field}"));
        let own = rows.iter().filter(|row| row["kind"] == "traffic" && row["pid"] == daemon["pid"]);
        let link = |row: &Value| Some((row["link"].as_str()?.to_owned(), row["sent_bytes"].as_u64()?));
        Ok(Self {
            node: daemon["node"].as_str().unwrap_or_default().to_owned(),
            forwarded_bytes: count("forwarded_bytes")?,
            forwarded_chunks: count("forwarded_chunks")?,
            links: own.filter_map(link).collect(),
            ..Self::default()
        })
    }

    /// Adds what another process of the node counted.
    pub fn add(&mut self, other: &Self) {
        self.direct_bytes += other.direct_bytes;
        self.relayed_out_bytes += other.relayed_out_bytes;
        self.forwarded_bytes += other.forwarded_bytes;
        self.forwarded_chunks += other.forwarded_chunks;
        for (link, bytes) in &other.links {
            *self.links.entry(link.clone()).or_default() += bytes;
        }
    }

    /// What was counted since `before`. Counters never fall; a link that is new starts at zero.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let link = |(name, bytes): (&String, &u64)| {
            (name.clone(), bytes.saturating_sub(before.links.get(name).copied().unwrap_or_default()))
        };
        Self {
            node: self.node.clone(),
            direct_bytes: self.direct_bytes.saturating_sub(before.direct_bytes),
            relayed_out_bytes: self.relayed_out_bytes.saturating_sub(before.relayed_out_bytes),
            forwarded_bytes: self.forwarded_bytes.saturating_sub(before.forwarded_bytes),
            forwarded_chunks: self.forwarded_chunks.saturating_sub(before.forwarded_chunks),
            links: self.links.iter().map(link).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_daemon_counts_is_told_from_what_others_of_its_node_do() {
        let lines = r#"{"kind":"process","pid":1,"role":"daemon","node":"a","forwarded_bytes":7,"forwarded_chunks":2}
{"kind":"process","pid":2,"role":"guest","node":"a","forwarded_bytes":70,"forwarded_chunks":20}
{"kind":"traffic","pid":1,"link":"1-2","sent_bytes":7}
{"kind":"traffic","pid":2,"link":"1-2","sent_bytes":70}"#;
        let mut daemon = Snapshot::of_daemon(lines).expect("a daemon");
        assert_eq!(
            (&*daemon.node, daemon.forwarded_bytes, daemon.forwarded_chunks, daemon.links["1-2"]),
            ("a", 7, 2, 7)
        );
        daemon.add(&daemon.clone());
        assert_eq!((daemon.forwarded_bytes, daemon.links["1-2"]), (14, 14));
        // given a daemon that does not say, or none, then that is an error and not nothing
        assert!(Snapshot::of_daemon(&lines.replace(":7,", ":null,")).is_err());
        assert!(Snapshot::of_daemon(&lines.replace("daemon", "owner")).is_err());
    }

    #[test]
    fn a_snapshot_may_lack_fields_and_have_others() {
        let before = Snapshot::parse(r#"{"node": "a", "direct_bytes": 5, "streams": 3}"#).expect("an object");
        let after = r#"{"node": "a", "direct_bytes": 12, "forwarded_bytes": 4, "links": {"1-2": 9}, "queues": [1]}"#;
        let since = Snapshot::parse(after).expect("an object").since(&before);
        assert_eq!((since.direct_bytes, since.relayed_out_bytes, since.forwarded_bytes), (7, 0, 4));
        assert_eq!(since.links["1-2"], 9);
        assert!(Snapshot::parse("3").is_err() && Snapshot::parse("{").is_err());
    }
}
