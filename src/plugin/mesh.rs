//! The implementation that NCCL gets: the connections of `crate::net`.
//!
//! For: the exported tables. Must not know: anything but names. Threads: as `inner::Transport` says.

use mesh_abi::{HANDLE_BYTES, NcclResult};
use mesh_link::memory::Window;

use super::inner::{Failure, Properties, Transport};
use crate::net::{self, Listen, NetError, RecvConn, SendConn};

/// Connections over links and relays.
pub(super) enum Mesh {}

impl Failure for NetError {
    fn code(&self) -> NcclResult {
        Self::code(self)
    }
}

impl Transport for Mesh {
    type Error = NetError;
    type Listener = Listen;
    type Sender = SendConn;
    type Receiver = RecvConn;

    fn init(comm_id: u64, traffic_class: i32) -> Result<(), NetError> {
        net::init(comm_id, traffic_class)
    }

    fn finalize() {
        net::finalize();
    }

    fn devices() -> usize {
        net::devices()
    }

    fn properties() -> Properties {
        net::properties()
    }

    fn listen() -> Result<(Box<Listen>, [u8; HANDLE_BYTES]), NetError> {
        net::listen()
    }

    fn connect(handle: &mut [u8; HANDLE_BYTES]) -> Result<Option<Box<SendConn>>, NetError> {
        net::connect(handle)
    }

    fn accept(listener: &Listen) -> Result<Option<Box<RecvConn>>, NetError> {
        net::accept(listener)
    }

    fn close_listen(listener: Box<Listen>) {
        net::close_listen(listener);
    }

    fn close_send(sender: Box<SendConn>) {
        sender.close();
    }

    fn close_recv(receiver: Box<RecvConn>) {
        receiver.close();
    }

    fn isend(sender: &mut SendConn, payload: Window) -> Result<Option<u32>, NetError> {
        sender.isend(payload)
    }

    fn irecv(receiver: &mut RecvConn, buffer: Window, flag_polled: bool) -> Result<Option<u32>, NetError> {
        receiver.irecv(buffer, flag_polled)
    }

    fn test_send(sender: &mut SendConn, slot: u32) -> Result<Option<usize>, NetError> {
        sender.test(slot)
    }

    fn test_recv(receiver: &mut RecvConn, slot: u32) -> Result<Option<usize>, NetError> {
        receiver.test(slot)
    }
}
