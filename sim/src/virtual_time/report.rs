//! What a run says when it is over: what became of every connection, or what went wrong and who waited for whom.

use std::fmt;

use mesh_relay::engine::Time;
use mesh_relay::wire::Refusal;

/// How an end of a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Has not (for a receiver: nobody ever connected).
    None,
    /// Its user closed it.
    Closed,
    /// Its user gave up before it stood.
    Cancelled,
    /// The other side said so, with this code; 0 is in order.
    PeerClosed(u16),
    /// Its leg went down.
    LegDown,
    /// It was never had.
    Refused(Refusal),
    /// Its node died.
    Killed,
}

/// What became of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnReport {
    /// Sending node.
    pub from: usize,
    /// Receiving node.
    pub to: usize,
    /// The nodes of the route of its first lane, both ends included.
    pub route: Vec<usize>,
    /// The nodes of all its lanes, each once.
    pub nodes: Vec<usize>,
    /// Messages its user meant to send.
    pub messages: u32,
    /// Messages that arrived whole, checked byte by byte.
    pub delivered: u32,
    /// Whether the sender knows that all have arrived.
    pub acknowledged: bool,
    /// Bytes that arrived.
    pub bytes: u64,
    /// When the sender could begin, in nanoseconds.
    pub began: Time,
    /// When the last message had arrived, in nanoseconds.
    pub finished: Time,
    /// When the sending end had ended, in nanoseconds.
    pub sender_ended: Time,
    /// How the sending end ended.
    pub sender: Ending,
    /// How the receiving end ended.
    pub receiver: Ending,
}

impl ConnReport {
    /// Bytes a microsecond while it ran.
    pub fn throughput(&self) -> f64 {
        self.bytes as f64 * 1000.0 / (self.finished.saturating_sub(self.began)).max(1) as f64
    }

    /// Whether everything has arrived, both ends know, and both have ended.
    pub fn in_order(&self) -> bool {
        let calm = |e: &Ending| matches!(e, Ending::Closed | Ending::PeerClosed(0) | Ending::LegDown);
        self.delivered == self.messages && self.acknowledged && calm(&self.sender) && calm(&self.receiver)
    }
}

/// A run that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Virtual time at the end, in nanoseconds.
    pub now: Time,
    /// Events carried out.
    pub events: u64,
    /// A hash of every event in order: equal for equal runs.
    pub digest: u64,
    /// Payload bytes that relays forwarded.
    pub relayed_bytes: u64,
    /// Most slots of one pool that held chunks at once.
    pub peak_filled: u32,
    /// Every connection.
    pub conns: Vec<ConnReport>,
}

/// A run that broke a rule or stood still.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The rule.
    pub what: String,
    /// When, in nanoseconds.
    pub now: Time,
    /// Who waited for whom.
    pub waiting: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} us: {}", self.now / 1000, self.what)?;
        self.waiting.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for Failure {}
