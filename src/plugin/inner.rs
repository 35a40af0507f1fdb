//! The one internal implementation behind all versions, as a trait.
//!
//! For: the adapters, which are written against [`Transport`], and their tests, which bring another one.
//! Must not know: NCCL's C types, or how data move.
//! Threads: as NCCL's. `init`, `finalize`, `devices`, `properties` on any thread; a listener, sender or receiver on one thread
//! at a time, but not always the same.
//!
//! Rules for implementations: nothing blocks. After an error a connection is only closed. `finalize` is called once for each
//! `init` that succeeded. The adapters log errors: an implementation need not. Slots are numbers below [`SLOTS`], free again
//! once their `test` has given a size.

use std::ffi::CStr;
use std::fmt;

use mesh_abi::{HANDLE_BYTES, NcclResult};
use mesh_link::memory::Window;

/// Requests of one connection at a time.
pub(crate) const SLOTS: usize = 64;

/// What the device says about itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Properties {
    /// Path in sysfs of the PCI device closest to the traffic, if there is one.
    pub(crate) pci_path: Option<&'static CStr>,
    /// Stable number of this node.
    pub(crate) guid: u64,
    /// Mbit/s.
    pub(crate) speed_mbps: i32,
    /// Microseconds.
    pub(crate) latency_us: f32,
}

/// An error with the code that NCCL gets.
pub(crate) trait Failure: fmt::Display {
    fn code(&self) -> NcclResult;
}

/// A listener and the handle for its sender.
pub(crate) type Listening<L> = (Box<L>, [u8; HANDLE_BYTES]);

/// Connections between nodes, in the shape of the newest version.
pub(crate) trait Transport: 'static {
    type Error: Failure;
    type Listener: Send;
    type Sender: Send;
    type Receiver: Send;

    fn init(comm_id: u64, traffic_class: i32) -> Result<(), Self::Error>;
    fn finalize();
    /// 0 or 1; NCCL remembers the first answer.
    fn devices() -> usize;
    fn properties() -> Properties;

    fn listen() -> Result<Listening<Self::Listener>, Self::Error>;
    /// May keep its state in the handle, which is the same buffer at every try.
    fn connect(handle: &mut [u8; HANDLE_BYTES]) -> Result<Option<Box<Self::Sender>>, Self::Error>;
    fn accept(listener: &Self::Listener) -> Result<Option<Box<Self::Receiver>>, Self::Error>;
    fn close_listen(listener: Box<Self::Listener>);
    fn close_send(sender: Box<Self::Sender>);
    fn close_recv(receiver: Box<Self::Receiver>);

    /// The slot of the send, or `None` for "not now".
    fn isend(sender: &mut Self::Sender, payload: Window) -> Result<Option<u32>, Self::Error>;
    /// The slot of the receive, or `None` for "not now". `flag_polled`: arrival is detected inside the buffer.
    fn irecv(receiver: &mut Self::Receiver, buffer: Window, flag_polled: bool) -> Result<Option<u32>, Self::Error>;
    /// Bytes, once done.
    fn test_send(sender: &mut Self::Sender, slot: u32) -> Result<Option<usize>, Self::Error>;
    /// Bytes that arrived, once done.
    fn test_recv(receiver: &mut Self::Receiver, slot: u32) -> Result<Option<usize>, Self::Error>;
}
