//! What lies in the memory that all processes of a fabric share. Atomics only, all zero at the start, so that a fresh sparse
//! file is a valid empty fabric.
//!
//! Tables have fixed places and grow to a high-water mark, so that the pages of slots never used are never touched. Rings of
//! queues come from the heap behind the tables. Change [`MAGIC`] with any change here.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::lock::ShmLock;
use crate::plan::MAX_PORTS;

/// Marks an initialised file of this very layout.
pub const MAGIC: u64 = 0x4d45_5348_5356_0003;
/// Bytes of the file, nearly all of them a hole.
pub const FILE_SIZE: usize = 8 << 30;
/// Slots of the tables.
pub const MAX_CONTEXTS: usize = 4096;
/// Regions; the slot number is the upper 24 bits of a key.
pub const MAX_REGIONS: usize = 1 << 16;
/// Completion queues.
pub const MAX_CQS: usize = 1 << 14;
/// Queue pairs; the slot number is the lower 14 bits of a queue pair number.
pub const MAX_QPS: usize = 1 << 14;
/// Size classes of the heap: powers of two from 64 bytes.
pub const HEAP_CLASSES: usize = 26;
/// Most scatter entries of a receive.
pub const MAX_SGE: usize = 16;

/// Index of a port's IPv4 GID as RoCE v1, until it is moved.
pub const USUAL_GID: u32 = 2;

/// The same while the port has no IPv4 GID.
pub const NO_GID: u32 = u32::MAX;

/// A value alone in its cache line: what one process writes all the time must not share a line with what another reads, or every
/// request pays for it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Apart<T>(pub T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The whole of the shared memory in front of the heap.
#[repr(C)]
#[derive(Debug)]
pub struct Tables {
    /// [`MAGIC`] once the rest is set up.
    pub magic: AtomicU64,
    /// Fingerprint of the plan the memory belongs to.
    pub fingerprint: AtomicU64,
    /// Guards allocation in all tables and in the heap.
    pub allocation: ShmLock,
    /// Held by the one process that frees what dead ones left.
    pub sweeping: ShmLock,
    /// Makes atomic operations of the fabric exclude each other.
    pub atomics: ShmLock,
    /// Guards the clocks of all ports.
    pub clocks: ShmLock,
    /// First heap byte never handed out, from the file's start; 0 before the first.
    pub heap_end: AtomicU64,
    /// Free heap blocks of each class, chained through their first word; 0 ends.
    pub heap_free: [AtomicU64; HEAP_CLASSES],
    /// Number of the last FIFO made.
    pub fifos: AtomicU32,
    /// Slots ever used of each table.
    pub contexts_high: AtomicU32,
    /// See `contexts_high`.
    pub regions_high: AtomicU32,
    /// See `contexts_high`.
    pub cqs_high: AtomicU32,
    /// See `contexts_high`.
    pub qps_high: AtomicU32,
    /// Number of the last protection domain made.
    pub domains: AtomicU32,
    /// The ports, by their place in the plan.
    pub ports: [PortCell; MAX_PORTS],
    /// Open devices.
    pub contexts: [ContextCell; MAX_CONTEXTS],
    /// Memory regions.
    pub regions: [RegionCell; MAX_REGIONS],
    /// Completion queues.
    pub cqs: [CqCell; MAX_CQS],
    /// Queue pairs.
    pub qps: [QpCell; MAX_QPS],
}

/// One port's state and counters.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct PortCell {
    /// 1: the port has no carrier.
    pub down: AtomicU32,
    /// Index of its IPv4 GID as RoCE v1; as v2 it is the next.
    pub gid: AtomicU32,
    /// Bits a second.
    pub rate: AtomicU64,
    /// One way, ns.
    pub latency: AtomicU64,
    /// Moment (monotonic ns) until which the port sends what was given to it. What follows here changes all the time.
    pub sends_until: Apart<AtomicU64>,
    /// The same for what arrives.
    pub receives_until: AtomicU64,
    /// Requests carried out that left through this port.
    pub requests: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Times a request at the head of its queue could not go on.
    pub waits: AtomicU64,
    /// Sleepers woken.
    pub wakes: AtomicU64,
}

/// One open device.
#[repr(C)]
#[derive(Debug)]
pub struct ContextCell {
    /// Process, 0 if free.
    pub owner: AtomicU64,
    /// Its port.
    pub port: AtomicU32,
    /// FIFO of its asynchronous events.
    pub fifo: AtomicU32,
}

/// One memory region.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct RegionCell {
    /// Process, 0 if free.
    pub owner: AtomicU64,
    /// Valid key, 0 while none.
    pub key: AtomicU32,
    /// Access flags.
    pub access: AtomicU32,
    /// Protection domain.
    pub domain: AtomicU32,
    /// Remote copies under way; deregistration waits for them.
    pub users: AtomicU32,
    /// First byte as peers and work requests name it.
    pub iova: AtomicU64,
    /// First byte in the owner's memory.
    pub address: AtomicU64,
    /// Bytes.
    pub length: AtomicU64,
    /// Times the slot was used, for the lower 8 bits of the key.
    pub generation: AtomicU32,
}

/// One completion queue.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CqCell {
    /// Process, 0 if free.
    pub owner: AtomicU64,
    /// Times the slot was used.
    pub generation: AtomicU32,
    /// Entries of the ring, a power of two.
    pub capacity: AtomicU32,
    /// The ring's place from the file's start.
    pub ring: AtomicU64,
    /// What the owner waits for: 0 nothing, 1 a solicited completion, 2 any.
    pub armed: AtomicU32,
    /// FIFO of the completion channel, 0 without one.
    pub fifo: AtomicU32,
    /// FIFO of the context's asynchronous events.
    pub events: AtomicU32,
    /// 1 once a completion found no room.
    pub overrun: AtomicU32,
    /// Port for the counters.
    pub port: AtomicU32,
    /// Serialises those who add.
    pub push: Apart<Pushers>,
    /// Entries added, ever (wraps); the owner polls it.
    pub tail: Apart<AtomicU32>,
    /// Serialises those who take.
    pub pop: Apart<ShmLock>,
    /// Entries taken, ever (wraps).
    pub head: AtomicU32,
}

/// What those have who add to a completion queue.
#[repr(C)]
#[derive(Debug)]
pub struct Pushers {
    /// One at a time.
    pub lock: ShmLock,
    /// Entries taken when they last looked: there is at least as much room.
    pub head_seen: AtomicU32,
}

/// One queue pair, as its peer sees it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct QpCell {
    /// Process, 0 if free.
    pub owner: AtomicU64,
    /// The full number, 0 if free.
    pub number: AtomicU32,
    /// Times the slot was used.
    pub generation: AtomicU32,
    /// `IBV_QPS_*`.
    pub state: AtomicU32,
    /// Port it lives on.
    pub port: AtomicU32,
    /// Protection domain.
    pub domain: AtomicU32,
    /// What the peer may do.
    pub access: AtomicU32,
    /// Peer's number and port, from the change to ready-to-receive.
    pub peer: AtomicU32,
    /// See `peer`.
    pub peer_port: AtomicU32,
    /// Largest packet in bytes, from the change to ready-to-receive, as the three below.
    pub mtu: AtomicU32,
    /// Index of its own GID.
    pub gid: AtomicU32,
    /// Traffic class of what it sends.
    pub traffic_class: AtomicU32,
    /// Service level.
    pub service_level: AtomicU32,
    /// Minimum receiver-not-ready timer, as coded in the verbs.
    pub rnr_timer: AtomicU32,
    /// Slot of the receive completion queue.
    pub recv_cq: AtomicU32,
    /// FIFO of the context's asynchronous events.
    pub events: AtomicU32,
    /// An address that can be read while the owner lives.
    pub pulse: AtomicU64,
    /// The place of the ring of receives from the file's start.
    pub ring: AtomicU64,
    /// Receives it holds, a power of two.
    pub capacity: AtomicU32,
    /// Held by the peer while it carries out a request here; the owner takes it to be sure that nothing arrives any more. Whoever holds it
    /// may take receives.
    pub inbound: Apart<ShmLock>,
    /// Receives taken, ever (wraps).
    pub head: Apart<AtomicU32>,
    /// Serialises those who post receives.
    pub receives: Apart<ShmLock>,
    /// Receives posted, ever (wraps).
    pub tail: AtomicU32,
}

/// Bytes of the tables, rounded up to pages: where the heap begins.
pub const HEAP_START: u64 = (size_of::<Tables>() as u64).div_ceil(4096) * 4096;
