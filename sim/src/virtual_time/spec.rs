//! What a run is made of: the physics of links, and the connections with their users' scripts.

use mesh_relay::engine::{MS, Time};
use mesh_relay::send::Acks;

/// One microsecond.
const US: Time = 1000;

/// How links behave. Times in nanoseconds; bounds are inclusive.
#[derive(Clone, Copy, Debug)]
pub struct Physics {
    /// From the last byte leaving to its arrival.
    pub latency: (Time, Time),
    /// Bytes that a link carries in a microsecond, each way.
    pub bytes_per_us: u64,
    /// The legs over a link take turns of at most so many bytes, as queue pairs do on a NIC; 0: what is posted first leaves first.
    pub turn: u64,
    /// From the last byte leaving (or, where links acknowledge, from its arrival) until the sender is told that its memory is read no more.
    pub written: (Time, Time),
    /// Who acknowledges: the receiver, as over sockets, or the link, as over queue pairs.
    pub acks: Acks,
    /// How long it takes to open a leg.
    pub dial: (Time, Time),
    /// How many of a hundred attempts to open a leg fail.
    pub dial_fails: u64,
    /// Messages of at least so many bytes are spread over the lanes of a connection.
    pub stripe: u64,
}

impl Default for Physics {
    /// A link of 100 Gbit/s with a few microseconds of latency that varies a lot.
    fn default() -> Self {
        Self {
            latency: (US, 20 * US),
            bytes_per_us: 12_500,
            turn: 0,
            written: (0, 30 * US),
            acks: Acks::Receiver,
            dial: (10 * US, 2 * MS),
            dial_fails: 0,
            stripe: 4096,
        }
    }
}

/// How fast a user is: after each post, with this chance in a hundred, it pauses for up to so many nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Chance of a pause after a post, in percent.
    pub pauses: u64,
    /// Longest pause, in nanoseconds.
    pub longest: Time,
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct MessageSpec {
    /// Bytes sent.
    pub len: u64,
    /// Bytes that the receive can hold.
    pub capacity: u64,
}

/// Who closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The sending end.
    Sender,
    /// The receiving end.
    Receiver,
    /// Both, each without knowing of the other.
    Both,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// In order, when everything has arrived.
    Done(Who),
    /// At a time, whatever its state: while it is dialing, being set up, idle, or with messages under way.
    At {
        /// When, in nanoseconds.
        time: Time,
        /// By whom.
        by: Who,
        /// Without sending what is still queued.
        at_once: bool,
    },
}

/// A connection and its users.
#[derive(Clone, Debug)]
pub struct ConnSpec {
    /// Sending node.
    pub from: usize,
    /// Receiving node.
    pub to: usize,
    /// How many connections of the pair came before, so that they take turns on equal routes.
    pub nth: usize,
    /// Most lanes to use.
    pub lanes: usize,
    /// When it is opened, in nanoseconds.
    pub open_at: Time,
    /// How long setting it up may take, in nanoseconds.
    pub budget: Time,
    /// Messages, in order.
    pub messages: Vec<MessageSpec>,
    /// Sends open at once, 1 to 32.
    pub send_depth: usize,
    /// Receives posted at once, 1 to 32.
    pub recv_depth: usize,
    /// How fast sends are posted.
    pub send_pace: Pace,
    /// How fast receives are posted.
    pub recv_pace: Pace,
    /// How it ends.
    pub closing: Closing,
    /// When its listener goes away, if it does.
    pub unlisten_at: Option<Time>,
}

impl ConnSpec {
    /// `count` messages of `len` bytes, as fast as they go, closed by the sender.
    pub fn plain(from: usize, to: usize, count: usize, len: u64) -> Self {
        Self {
            from,
            to,
            nth: 0,
            lanes: 1,
            open_at: 0,
            budget: 20_000 * MS,
            messages: vec![MessageSpec { len, capacity: len }; count],
            send_depth: 32,
            recv_depth: 32,
            send_pace: Pace::default(),
            recv_pace: Pace::default(),
            closing: Closing::Done(Who::Sender),
            unlisten_at: None,
        }
    }
}
