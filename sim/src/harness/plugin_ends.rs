//! The ends of a connection made by the plugin, with NCCL's buffers.
//!
//! Each end owns one allocation with the three buffers that NCCL registers a connection (LL, LL128, Simple, in this order and of
//! its sizes; the third is larger where messages are); messages use the slots of the third. Made and closed on the service thread,
//! used on the progress thread.
#![allow(unsafe_code, reason = "the plugin reads and writes buffers by address")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use mesh_abi::PTR_HOST;
use mesh_abi::caller::{CallError, Comm, MHandle, Plugin, RecvComm, Request, SendComm};

use super::transport::{Incoming, Outgoing, SLOTS};

/// Bytes of NCCL's first two buffers, and where the third begins, which holds the slots.
const LL: usize = 0x8_0000;
const LL128: usize = 0x4B_0000;
const SLOTS_AT: usize = LL + LL128;
/// Bytes of a slot of NCCL's third buffer, and of one here that need not be larger.
const SLOT_BYTES: usize = 0x40_0000 / SLOTS;
/// At least what NCCL's page-locked allocation is aligned to.
const ALIGNMENT: usize = 0x1_0000;

/// The buffers of one end. Pages that are never touched cost nothing: the allocation has no alignment of its own, as Rust's allocator
/// writes zeros itself to memory that must be aligned, and so touches all of it.
#[derive(Debug)]
struct Buffers {
    allocated: NonNull<u8>,
    layout: Layout,
    slot_bytes: usize,
    registered: [MHandle; 3],
}

// SAFETY: the allocation belongs to this value alone; whoever has the value may use it from any thread.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates and registers slots of at least `capacity` bytes, and what NCCL has beside them.
    fn register(plugin: &Plugin, comm: Comm, capacity: usize) -> Result<Self, CallError> {
        let slot_bytes = capacity.next_multiple_of(ALIGNMENT).max(SLOT_BYTES);
        let layout = Layout::from_size_align(SLOTS_AT + SLOTS * slot_bytes + ALIGNMENT, 1)
            .expect("slots of messages, which the arguments bound, are far below the address space");
        // SAFETY: the layout has a size.
        let allocated = unsafe { alloc_zeroed(layout) };
        let Some(allocated) = NonNull::new(allocated) else { handle_alloc_error(layout) };
        let mut buffers = Self { allocated, layout, slot_bytes, registered: [MHandle::NULL; 3] };
        for (index, (offset, bytes)) in [(0, LL), (LL, LL128), (SLOTS_AT, SLOTS * slot_bytes)].into_iter().enumerate() {
            buffers.registered[index] = plugin.reg_mr(comm, buffers.at(offset), bytes, PTR_HOST)?;
        }
        Ok(buffers)
    }

    fn deregister(&self, plugin: &Plugin, comm: Comm) -> Result<(), CallError> {
        self.registered.into_iter().try_for_each(|registered| plugin.dereg_mr(comm, registered))
    }

    fn at(&self, offset: usize) -> *mut u8 {
        let start = self.allocated.as_ptr();
        let skipped = start.addr().next_multiple_of(ALIGNMENT) - start.addr();
        // SAFETY: every caller stays within the slots, and less than ALIGNMENT is skipped: both together are allocated.
        unsafe { start.add(skipped + offset) }
    }

    fn slot(&self, slot: usize) -> *mut u8 {
        debug_assert!(slot < SLOTS);
        self.at(SLOTS_AT + slot % SLOTS * self.slot_bytes)
    }

    fn slots_registered(&self) -> MHandle {
        self.registered[2]
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `register`, freed once. Ends are closed, and by that deregistered, before
        // they are dropped; a process that fails in between keeps them until it exits (see `Outgoing` and `Incoming` below).
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

/// What both ends have.
#[derive(Debug)]
struct End {
    plugin: Arc<Plugin>,
    /// `None` only after close. An end that is dropped unclosed leaks its buffers: the plugin may still use them.
    buffers: Option<Buffers>,
    requests: [Option<Request>; SLOTS],
    tag: i32,
}

impl End {
    fn new(plugin: &Arc<Plugin>, comm: Comm, tag: usize, capacity: usize) -> Result<Self, CallError> {
        let buffers = Some(Buffers::register(plugin, comm, capacity)?);
        Ok(Self { plugin: Arc::clone(plugin), buffers, requests: [None; SLOTS], tag: tag as i32 })
    }

    fn buffers(&self) -> &Buffers {
        self.buffers.as_ref().expect("only close takes the buffers, and it consumes the end")
    }

    fn test(&mut self, slot: usize) -> Result<Option<usize>, CallError> {
        let Some(request) = self.requests[slot] else { return Ok(None) };
        let done = self.plugin.test(request)?;
        if done.is_some() {
            self.requests[slot] = None;
        }
        Ok(done)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Not closed: transfers may be under way, so the memory has to stay.
        std::mem::forget(self.buffers.take());
    }
}

/// The sending end of a connection of the plugin.
#[derive(Debug)]
pub(super) struct PluginOutgoing {
    comm: SendComm,
    end: End,
}

impl PluginOutgoing {
    /// Registers buffers for a fresh connection; `rank` is this rank, which NCCL gives as tag. Messages have at most `capacity` bytes.
    pub(super) fn new(plugin: &Arc<Plugin>, comm: SendComm, rank: usize, capacity: usize) -> Result<Self, CallError> {
        Ok(Self { comm, end: End::new(plugin, comm.into(), rank, capacity)? })
    }

    /// Deregisters and closes, as NCCL does. After an error the buffers are kept for the life of the process.
    pub(super) fn close(mut self) -> Result<(), CallError> {
        self.end.buffers().deregister(&self.end.plugin, self.comm.into())?;
        self.end.plugin.close_send(self.comm)?;
        drop(self.end.buffers.take());
        Ok(())
    }
}

impl Outgoing for PluginOutgoing {
    type Error = CallError;

    fn slot(&mut self, slot: usize, bytes: usize) -> &mut [u8] {
        let room = self.end.buffers().slot_bytes;
        assert!(self.end.requests[slot].is_none() && bytes <= room, "a free slot, filled within its bounds");
        // SAFETY: `bytes` bytes of this end's own allocation, initialised when allocated; no request is open on the slot, so
        // the plugin does not touch it, and the borrow of `self` keeps others out.
        unsafe { std::slice::from_raw_parts_mut(self.end.buffers().slot(slot), bytes) }
    }

    fn post(&mut self, slot: usize, bytes: usize) -> Result<bool, CallError> {
        let buffers = self.end.buffers();
        let (at, registered) = (buffers.slot(slot), buffers.slots_registered());
        // SAFETY: the slot stays allocated until the end is closed, and `slot` gives no reference to it while the request
        // is open.
        let request = unsafe { self.end.plugin.isend(self.comm, at, bytes, self.end.tag, registered)? };
        self.end.requests[slot] = request;
        Ok(request.is_some())
    }

    fn test(&mut self, slot: usize) -> Result<bool, CallError> {
        Ok(self.end.test(slot)?.is_some())
    }
}

/// The receiving end of a connection of the plugin.
#[derive(Debug)]
pub(super) struct PluginIncoming {
    comm: RecvComm,
    end: End,
    /// Most bytes a message may have.
    capacity: usize,
}

impl PluginIncoming {
    /// Registers buffers for a fresh connection; `peer` is the sender's rank, which NCCL gives as tag.
    pub(super) fn new(plugin: &Arc<Plugin>, comm: RecvComm, peer: usize, capacity: usize) -> Result<Self, CallError> {
        Ok(Self { comm, end: End::new(plugin, comm.into(), peer, capacity)?, capacity })
    }

    /// Deregisters and closes, as NCCL does. After an error the buffers are kept for the life of the process.
    pub(super) fn close(mut self) -> Result<(), CallError> {
        self.end.buffers().deregister(&self.end.plugin, self.comm.into())?;
        self.end.plugin.close_recv(self.comm)?;
        drop(self.end.buffers.take());
        Ok(())
    }
}

impl Incoming for PluginIncoming {
    type Error = CallError;

    fn post(&mut self, slot: usize) -> Result<bool, CallError> {
        let buffers = self.end.buffers();
        let (at, registered) = (buffers.slot(slot), buffers.slots_registered());
        // SAFETY: as for sending; the slot holds at least `capacity` bytes, for which it was made.
        let request = unsafe { self.end.plugin.irecv(self.comm, at, self.capacity, self.end.tag, registered, false)? };
        self.end.requests[slot] = request;
        Ok(request.is_some())
    }

    fn test(&mut self, slot: usize) -> Result<Option<usize>, CallError> {
        self.end.test(slot)
    }

    fn slot(&self, slot: usize, bytes: usize) -> &[u8] {
        let room = self.end.buffers().slot_bytes;
        assert!(self.end.requests[slot].is_none() && bytes <= room, "a slot whose message arrived");
        // SAFETY: `bytes` initialised bytes of this end's own allocation; the request is done, so the plugin does not write
        // there until the slot is posted again, for which `self` must be free.
        unsafe { std::slice::from_raw_parts(self.end.buffers().slot(slot), bytes) }
    }
}
