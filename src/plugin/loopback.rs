//! A transport inside this process, for the adapters' tests.
//!
//! For: `tests`. Must not know: NCCL's C types. Threads: any; every connection is one locked queue.
//!
//! It is awkward on purpose: connections need two tries, every second isend says "not now", receives complete at their
//! second test, and settable faults make it fail or panic.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use mesh_abi::{HANDLE_BYTES, NcclResult};
use mesh_link::memory::Window;
use thiserror::Error;

use super::inner::{Failure, Properties, SLOTS, Transport};

#[derive(Debug, Error)]
pub(super) enum LoopError {
    #[error("no listener {0}")]
    NoListener(u64),
    #[error("{sent} bytes sent to a receive of {capacity}")]
    TooLong { sent: usize, capacity: usize },
}

impl Failure for LoopError {
    fn code(&self) -> NcclResult {
        match self {
            Self::NoListener(_) => NcclResult::RemoteError,
            Self::TooLong { .. } => NcclResult::InvalidUsage,
        }
    }
}

/// Messages on the way.
type Wire = Arc<Mutex<VecDeque<Vec<u8>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wires that wait to be accepted, by listener.
static WAITING: LazyLock<Mutex<HashMap<u64, VecDeque<Wire>>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);
/// `init` less `finalize`.
pub(super) static INITS: AtomicI64 = AtomicI64::new(0);
/// Ends and listeners alive.
pub(super) static ALIVE: AtomicI64 = AtomicI64::new(0);

pub(super) struct Loopback;

pub(super) struct Listener(u64);

pub(super) struct Sender {
    wire: Wire,
    now: bool,
    next: u32,
    open: HashMap<u32, usize>,
}

pub(super) struct Receiver {
    wire: Wire,
    next: u32,
    /// In posted order: slot, buffer, tests so far, flag polled.
    posted: VecDeque<(u32, Window, u32, bool)>,
    done: HashMap<u32, usize>,
}

/// The first byte of a payload that makes isend panic.
pub(super) const PANIC: u8 = 0xFE;

impl Transport for Loopback {
    type Error = LoopError;
    type Listener = Listener;
    type Sender = Sender;
    type Receiver = Receiver;

    fn init(_: u64, _: i32) -> Result<(), LoopError> {
        INITS.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn finalize() {
        INITS.fetch_sub(1, Ordering::SeqCst);
    }

    fn devices() -> usize {
        1
    }

    fn properties() -> Properties {
        Properties { pci_path: Some(c"/sys/devices/x"), guid: 7, speed_mbps: 200_000, latency_us: 2.6 }
    }

    fn listen() -> Result<(Box<Listener>, [u8; HANDLE_BYTES]), LoopError> {
        let id = NEXT.fetch_add(1, Ordering::SeqCst);
        lock(&WAITING).insert(id, VecDeque::new());
        ALIVE.fetch_add(1, Ordering::SeqCst);
        let mut handle = [0x5A; HANDLE_BYTES];
        handle[..8].copy_from_slice(&id.to_ne_bytes());
        Ok((Box::new(Listener(id)), handle))
    }

    fn connect(handle: &mut [u8; HANDLE_BYTES]) -> Result<Option<Box<Sender>>, LoopError> {
        let id = u64::from_ne_bytes(*handle.first_chunk().expect("128 bytes"));
        // The last byte counts the tries: the state that transports keep in the handle.
        if handle[HANDLE_BYTES - 1] == 0x5A {
            handle[HANDLE_BYTES - 1] = 1;
            return Ok(None);
        }
        let mut waiting = lock(&WAITING);
        let queue = waiting.get_mut(&id).ok_or(LoopError::NoListener(id))?;
        let wire = Wire::default();
        queue.push_back(Arc::clone(&wire));
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Ok(Some(Box::new(Sender { wire, now: false, next: 0, open: HashMap::new() })))
    }

    fn accept(listener: &Listener) -> Result<Option<Box<Receiver>>, LoopError> {
        let wire = lock(&WAITING).get_mut(&listener.0).and_then(VecDeque::pop_front);
        Ok(wire.map(|wire| {
            ALIVE.fetch_add(1, Ordering::SeqCst);
            Box::new(Receiver { wire, next: 0, posted: VecDeque::new(), done: HashMap::new() })
        }))
    }

    fn close_listen(listener: Box<Listener>) {
        lock(&WAITING).remove(&listener.0);
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }

    fn close_send(_: Box<Sender>) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }

    fn close_recv(_: Box<Receiver>) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }

    fn isend(sender: &mut Sender, payload: Window) -> Result<Option<u32>, LoopError> {
        let mut bytes = vec![0; payload.len()];
        assert!(payload.read_into(0, &mut bytes));
        assert!(bytes.first() != Some(&PANIC), "asked to panic");
        sender.now = !sender.now;
        if sender.now || sender.open.len() == SLOTS {
            return Ok(None);
        }
        let slot = sender.next % SLOTS as u32;
        if sender.open.contains_key(&slot) {
            // Its owner has not tested it to the end, however many others have come and gone.
            return Ok(None);
        }
        sender.next += 1;
        sender.open.insert(slot, bytes.len());
        lock(&sender.wire).push_back(bytes);
        Ok(Some(slot))
    }

    fn irecv(receiver: &mut Receiver, buffer: Window, flag_polled: bool) -> Result<Option<u32>, LoopError> {
        if receiver.posted.len() + receiver.done.len() == SLOTS {
            return Ok(None);
        }
        let slot = receiver.next % SLOTS as u32;
        receiver.next += 1;
        receiver.posted.push_back((slot, buffer, 0, flag_polled));
        Ok(Some(slot))
    }

    fn test_send(sender: &mut Sender, slot: u32) -> Result<Option<usize>, LoopError> {
        Ok(sender.open.remove(&slot))
    }

    fn test_recv(receiver: &mut Receiver, slot: u32) -> Result<Option<usize>, LoopError> {
        if let Some((front, buffer, tests, flag_polled)) = receiver.posted.front_mut() {
            *tests += 1;
            // A marked receive is ready at its first test, others at their second.
            if *tests >= if *flag_polled { 1 } else { 2 }
                && let Some(bytes) = lock(&receiver.wire).pop_front()
            {
                if !buffer.write_from(0, &bytes) {
                    return Err(LoopError::TooLong { sent: bytes.len(), capacity: buffer.len() });
                }
                receiver.done.insert(*front, bytes.len());
                receiver.posted.pop_front();
            }
        }
        Ok(receiver.done.remove(&slot))
    }
}
