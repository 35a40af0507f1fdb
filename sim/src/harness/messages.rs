//! What parent and nodes tell each other: JSON texts behind a length, over a Unix socket.
//!
//! The parent stands in for NCCL's bootstrap (handles, barriers) and drives the rows. Any thread; a socket's two halves may
//! be used by one thread each.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::bench::point::{BenchWork, Point, PointResult};
use super::collective::{Algo, Collective};
use super::snapshot::Snapshot;

/// The longest text taken.
const LIMIT: usize = 8 << 20;

/// The first message to a node: all it must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The node's rank; `None` for a node that takes no part and may only relay.
    pub rank: Option<usize>,
    /// Names of the ranks' nodes, for messages.
    pub names: Vec<String>,
    /// The plugin's file.
    pub plugin: PathBuf,
    /// Version of the plugin's table.
    pub abi: u32,
    /// The communicator's id.
    pub comm_id: u64,
    /// What the ranks do together.
    pub work: NodeWork,
    /// How long connecting or a row may take until the node says what it waits for.
    pub limit: Duration,
}

/// What a node takes part in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeWork {
    /// Rows of a collective.
    Collective(CollectiveWork),
    /// Points of a measurement.
    Bench(BenchWork),
}

/// What all rows of a collective have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CollectiveWork {
    /// What they do.
    pub collective: Collective,
    /// How.
    pub algo: Algo,
    /// Channels.
    pub channels: usize,
    /// For send-recv: the distances that rows use.
    pub distances: Vec<usize>,
}

/// One row: one size, some iterations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Bytes of every rank's area.
    pub bytes: usize,
    /// For send-recv.
    pub distance: usize,
    /// Iterations that count.
    pub iterations: usize,
    /// Iterations before, which do not.
    pub warm_up: usize,
    /// Number of the first iteration of all; no two rows share numbers.
    pub serial: u32,
    /// Whether ranks meet before every iteration (else before the first).
    pub meet_each_time: bool,
}

/// What a node found in a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// Time of each iteration that counts, in microseconds.
    pub times_us: Vec<f64>,
    /// Bytes compared.
    pub checked_bytes: u64,
    /// Bytes that differ.
    pub wrong_bytes: u64,
    /// What the plugin counted meanwhile; `None` if it counts nothing.
    pub counted: Option<Snapshot>,
}

/// A connection's handle on its way from receiver to sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandleMessage {
    /// The channel.
    pub channel: usize,
    /// The sending rank, to which the handle goes.
    pub from: usize,
    /// The receiving rank, from which it comes.
    pub to: usize,
    /// The handle's bytes.
    pub handle: Vec<u8>,
}

/// From the parent to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToNode {
    /// Begin.
    Setup(Box<Setup>),
    /// A receiver's handle.
    Handle(HandleMessage),
    /// Run a row.
    Row(Row),
    /// Measure a point.
    Point(Point),
    /// All have met.
    Go,
    /// Close everything and end.
    Finish,
}

/// From a node to the parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromNode {
    /// What the node does now, for messages if it takes too long.
    Phase(String),
    /// A handle for a sender.
    Handle(HandleMessage),
    /// All its connections stand.
    Connected,
    /// It waits for the others.
    Meet,
    /// A row is done.
    Row(RowResult),
    /// A point is measured.
    Point(PointResult),
    /// It cannot go on.
    Failed(String),
    /// Everything is closed.
    Finished,
}

/// Writes one message.
///
/// # Errors
/// The socket's.
pub fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut frame = Vec::with_capacity(4 + text.len());
    frame.extend_from_slice(&(text.len() as u32).to_le_bytes());
    frame.extend_from_slice(&text);
    stream.write_all(&frame)
}

/// Reads one message; `None` at the end of the stream.
///
/// # Errors
/// The socket's; `InvalidData` for a text that is too long or does not parse.
pub fn receive<M: DeserializeOwned>(stream: &mut impl Read) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

/// Bytes a node, by the node's name.
pub type PerNode = BTreeMap<String, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_through_one_by_one() {
        // given two messages written one after the other
        let mut wire = Vec::new();
        let handle = HandleMessage { channel: 1, from: 2, to: 3, handle: vec![7; 128] };
        send(&mut wire, &ToNode::Handle(handle.clone())).expect("a vector takes all");
        send(&mut wire, &ToNode::Go).expect("a vector takes all");
        // when they are read, then they are the same, and then the stream ends
        let mut wire = wire.as_slice();
        assert!(matches!(receive(&mut wire), Ok(Some(ToNode::Handle(read))) if read == handle));
        assert!(matches!(receive(&mut wire), Ok(Some(ToNode::Go))));
        assert!(matches!(receive::<ToNode>(&mut wire), Ok(None)));
    }

    #[test]
    fn what_is_too_long_or_cut_off_is_refused() {
        let mut long = (LIMIT as u32 + 1).to_le_bytes().to_vec();
        long.extend_from_slice(&[b' '; 16]);
        assert!(receive::<ToNode>(&mut long.as_slice()).is_err());
        let mut cut = Vec::new();
        send(&mut cut, &ToNode::Finish).expect("a vector takes all");
        cut.pop();
        assert!(receive::<ToNode>(&mut cut.as_slice()).is_err());
    }
}
