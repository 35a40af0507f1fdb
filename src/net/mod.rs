//! Connections between nodes, as NCCL's tables need them.
//!
//! For: the plugin's adapters. Must not know: NCCL's C types. Threads: NCCL's.
//!
//! This build has no links: the library loads, reports its device, and refuses every connection with a reason.

#![allow(clippy::boxed_local, reason = "the adapters own connections as boxes")]

use mesh_abi::{HANDLE_BYTES, NcclResult};
use mesh_link::memory::Window;
use thiserror::Error;

use crate::plugin::Properties;
use crate::settings;

/// Why a connection fails.
#[derive(Debug, Error)]
pub(crate) enum NetError {
    #[error("this build has no links: no connection is possible")]
    NoLinks,
}

impl NetError {
    pub(crate) fn code(&self) -> NcclResult {
        match self {
            Self::NoLinks => NcclResult::SystemError,
        }
    }
}

/// A listener: there is none without links.
pub(crate) enum Listen {}
/// A sending end: there is none without links.
pub(crate) enum SendConn {}
/// A receiving end: there is none without links.
pub(crate) enum RecvConn {}

pub(crate) fn init(_comm_id: u64, _traffic_class: i32) -> Result<(), NetError> {
    Ok(())
}

pub(crate) fn finalize() {}

pub(crate) fn devices() -> usize {
    1
}

pub(crate) fn properties() -> Properties {
    let speed_mbps = settings::get().speed_mbps.and_then(|speed| i32::try_from(speed).ok()).unwrap_or(100_000);
    Properties { pci_path: None, guid: 0, speed_mbps, latency_us: 3.0 }
}

pub(crate) fn listen() -> Result<(Box<Listen>, [u8; HANDLE_BYTES]), NetError> {
    Err(NetError::NoLinks)
}

pub(crate) fn connect(_handle: &mut [u8; HANDLE_BYTES]) -> Result<Option<Box<SendConn>>, NetError> {
    Err(NetError::NoLinks)
}

pub(crate) fn accept(listener: &Listen) -> Result<Option<Box<RecvConn>>, NetError> {
    match *listener {}
}

pub(crate) fn close_listen(listener: Box<Listen>) {
    match *listener {}
}

impl SendConn {
    pub(crate) fn isend(&mut self, _payload: Window) -> Result<Option<u32>, NetError> {
        match *self {}
    }

    pub(crate) fn test(&mut self, _slot: u32) -> Result<Option<usize>, NetError> {
        match *self {}
    }

    pub(crate) fn close(self: Box<Self>) {
        match *self {}
    }
}

impl RecvConn {
    pub(crate) fn irecv(&mut self, _buffer: Window, _flag_polled: bool) -> Result<Option<u32>, NetError> {
        match *self {}
    }

    pub(crate) fn test(&mut self, _slot: u32) -> Result<Option<usize>, NetError> {
        match *self {}
    }

    pub(crate) fn close(self: Box<Self>) {
        match *self {}
    }
}
