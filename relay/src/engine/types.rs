//! What goes into the engine and what comes out of it: configuration, actions, events.

use std::net::Ipv4Addr;

use crate::send::Acks;
use crate::wire::{ChunkHeader, HopAddr, Msg, Note, Refusal};

/// Nanoseconds since some fixed moment of the driver's choosing.
pub type Time = u64;
/// One millisecond.
pub const MS: Time = 1_000_000;

/// One end of a queue pair, named by the driver; may be used again only after the engine has been told that the leg is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LegId(pub u32);

/// One attempt to open a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DialId(pub u64);

/// What the engine must know of its node; fixed for its life.
#[derive(Clone, Debug)]
pub struct Config {
    /// Key of the node (hash of its stable id).
    pub node: u64,
    /// Its name, for messages to people.
    pub name: String,
    /// Addresses of its ports.
    pub addresses: Vec<Ipv4Addr>,
    /// Whether traffic of others may pass.
    pub relay: bool,
    /// Largest payload of a chunk, in bytes; a multiple of 128.
    pub chunk: u32,
    /// Slots of the pool, in all.
    pub pool_slots: u32,
    /// Slots for each connection that enters the fabric here, if the pool has them; at least one is kept.
    pub entry_slots: u16,
    /// Slots of each class of each trunk that ends here.
    pub trunk_slots: u16,
    /// Classes of a trunk: the longest route has `classes + 1` relays.
    pub classes: u8,
    /// How long a stranger may take to say what it wants, in nanoseconds.
    pub hello: Time,
    /// Pause between two attempts to open a leg, in nanoseconds.
    pub retry: Time,
    /// Legs that may wait for their first message at once; more are turned away.
    pub strangers: usize,
    /// Who acknowledges. [`Acks::Link`]: the last relay of a path counts for the sender what its link has reported. An agent sets this by
    /// the kind of its links.
    pub acks: Acks,
    /// Take trunk slots from any class. **Deadlocks**; exists so that the simulator can show that it notices.
    pub ignore_classes: bool,
}

impl Config {
    /// Bytes from one slot to the next: header and payload, rounded up to 4 KiB.
    pub fn stride(&self) -> u32 {
        (self.chunk + crate::wire::HEADER_BYTES as u32).next_multiple_of(4096)
    }
}

/// What the driver must do. Actions are to be carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open a leg between two ports and report with [`Engine::on_dialed`](super::Engine::on_dialed).
    Dial {
        /// To be handed back.
        dial: DialId,
        /// Our port, the other one, and the agent there.
        hop: HopAddr,
    },
    /// Let the leg's peer write into `count` slots of the pool from `first` on; slot `n` of the leg is slot `first + n` of the pool.
    Expose {
        /// Leg.
        leg: LegId,
        /// First slot of the pool.
        first: u32,
        /// Slots.
        count: u16,
    },
    /// Send a message. In [`Msg::Ready`] and [`Msg::TrunkReady`] the driver fills in key and base of what it exposed on the leg, if anything.
    Send {
        /// Leg.
        leg: LegId,
        /// Message.
        msg: Msg,
    },
    /// Write a slot's payload, behind a new header, into a slot of the next relay; the slot number there is the notification.
    Forward {
        /// Slot of our pool; also the id to report with [`Engine::on_written`](super::Engine::on_written).
        slot: u32,
        /// Leg to write on.
        leg: LegId,
        /// New header.
        header: ChunkHeader,
        /// Key of the next relay's slots.
        key: u32,
        /// Byte offset there, base included.
        offset: u64,
        /// Slot number there.
        remote: u16,
    },
    /// Write a slot's payload into the receive buffer.
    Deliver {
        /// Slot of our pool; also the id to report with [`Engine::on_written`](super::Engine::on_written).
        slot: u32,
        /// Leg to write on.
        leg: LegId,
        /// Payload bytes.
        len: u32,
        /// Key of the receive buffer.
        key: u32,
        /// Byte offset in the receive buffer, base included.
        offset: u64,
        /// Notification.
        note: Note,
    },
    /// Close the leg. Graceful: what was given to it before is still sent. Otherwise at once: when this action has been carried out, the
    /// leg reads no slot any more. The engine has forgotten the leg already.
    Drop {
        /// Leg.
        leg: LegId,
        /// Send what is queued first.
        graceful: bool,
    },
    /// A connection asked for with [`Engine::connect`](super::Engine::connect) stands; its legs now belong to the connection.
    Connected {
        /// The request.
        request: u64,
        /// Its legs, one a lane.
        legs: Vec<LegId>,
        /// How the payload travels.
        path: SendPath,
        /// Messages that came before the hand-over, with their lanes.
        early: Vec<(u8, Msg)>,
    },
    /// A connection asked for cannot be had.
    ConnectFailed {
        /// The request.
        request: u64,
        /// Why.
        why: Refusal,
    },
    /// Somebody has connected to a listener; the legs now belong to the connection.
    Accepted {
        /// The listener.
        listener: u64,
        /// Its legs, one a lane.
        legs: Vec<LegId>,
        /// Relays in between.
        relays: u8,
        /// The sender's port of the first lane, or the last relay's.
        peer: Ipv4Addr,
        /// The hops of each lane, sender first, as the sender has said in its set-up.
        hops: Vec<Vec<HopAddr>>,
        /// Messages that came before the hand-over, with their lanes.
        early: Vec<(u8, Msg)>,
    },
    /// Something worth a line in the log.
    Note(Event),
}

/// How a new connection's payload travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendPath {
    /// Straight into the receive buffer.
    Direct,
    /// Through the slots of the first relay of each lane.
    Relayed {
        /// Relays in between, on the lane with the most.
        relays: u8,
        /// Largest payload of a chunk that all relays take.
        chunk: u32,
        /// What the first relay of each lane has lent.
        slots: Vec<LentSlots>,
    },
}

/// Slots of a relay that a sender may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentSlots {
    /// Key of the slots.
    pub key: u32,
    /// What is to be added to offsets in the slots.
    pub base: u64,
    /// How many there are.
    pub count: u16,
    /// Bytes from one slot to the next.
    pub stride: u32,
}

/// Things that happen to a node; logs, counters and traces are made of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A leg was turned away before it said anything sensible (`mesh[W42]`).
    Stranger {
        /// From where.
        peer: Ipv4Addr,
        /// Why.
        why: String,
    },
    /// A path through this node stands.
    PathOpen {
        /// Hops made when a chunk lies here.
        class: u8,
        /// Port it comes in by.
        from: Ipv4Addr,
        /// Port it leaves to.
        to: Ipv4Addr,
    },
    /// A path through this node ended other than by an orderly close.
    PathBroken {
        /// Code.
        code: u16,
        /// Why.
        why: String,
    },
    /// A trunk from or to this node stands.
    TrunkUp {
        /// Our port.
        local: Ipv4Addr,
        /// The other.
        remote: Ipv4Addr,
        /// Whether chunks leave by it (else they come in).
        out: bool,
    },
    /// A trunk is gone.
    TrunkDown {
        /// Our port.
        local: Ipv4Addr,
        /// The other.
        remote: Ipv4Addr,
        /// Why.
        why: String,
    },
}
