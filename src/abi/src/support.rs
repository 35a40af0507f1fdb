//! Callback types and the small structures that travel beside the tables.
//!
//! For: both sides of the interface. Must not know: what a plugin does with them. Threads: none.

use core::ffi::{c_char, c_int, c_ulong, c_void};

use crate::assert_layout;

/// `ncclDebugLogger_t` without the NULL: level, subsystem bits, file, line, printf format, arguments.
///
/// NCCL's own may be called from any thread while NCCL is loaded. Always give the text as the argument of `"%s"`.
pub type LoggerFn = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);
/// `ncclDebugLogger_t`; may be NULL.
pub type Logger = Option<LoggerFn>;

/// `ncclProfilerCallback_t`; may be NULL: event handle, type, plugin's handle, plugin id, data.
pub type ProfilerCallback =
    Option<unsafe extern "C" fn(*mut *mut c_void, c_int, *mut c_void, i64, *mut c_void) -> c_int>;

/// Configuration of a communicator (v10 and later).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommConfig {
    /// Traffic class, −1 if none.
    pub traffic_class: c_int,
}
assert_layout!(CommConfig, 4, { traffic_class: 0 });

/// What a device plugin would hand to the GPU (v7 and later). Host plugins leave the pointer to it alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetDeviceHandle {
    /// Kind of device.
    pub net_device_type: c_int,
    /// Version of that kind.
    pub net_device_version: c_int,
    /// Its state.
    pub handle: *mut c_void,
    /// Bytes of the state.
    pub size: usize,
    /// Whether the proxy must also call `test`.
    pub needs_proxy_progress: c_int,
}
assert_layout!(NetDeviceHandle, 32, {
    net_device_type: 0, net_device_version: 4, handle: 8, size: 16, needs_proxy_progress: 24,
});

/// Peers and flows that NCCL expects in one direction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommAttr {
    /// Most peers at a time.
    pub max_concurrent_peers: i32,
    /// Fewest peers at a time.
    pub min_concurrent_peers: i32,
    /// Most flows a peer.
    pub max_flows_per_peer: i32,
    /// Fewest flows a peer.
    pub min_flows_per_peer: i32,
}
assert_layout!(CommAttr, 16, {
    max_concurrent_peers: 0, min_concurrent_peers: 4, max_flows_per_peer: 8, min_flows_per_peer: 12,
});

/// Hints about the operation that follows (v11 and later).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetAttr {
    /// Sending side.
    pub send_comm_attr: CommAttr,
    /// Receiving side.
    pub recv_comm_attr: CommAttr,
    /// Bit mask of functions; all ones if unknown.
    pub op: u32,
    /// Bit mask of algorithms; all ones if unknown.
    pub algo: u32,
    /// Bit mask of protocols; all ones if unknown.
    pub proto: u32,
}
assert_layout!(NetAttr, 44, { send_comm_attr: 0, recv_comm_attr: 16, op: 32, algo: 36, proto: 40 });

/// Devices that make up a virtual one (v9 to v11).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VDeviceProps4 {
    /// Number of devices.
    pub ndevs: c_int,
    /// Their numbers.
    pub devs: [c_int; 4],
}
assert_layout!(VDeviceProps4, 20, { ndevs: 0, devs: 4 });

/// Devices that make up a virtual one (v12).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VDeviceProps8 {
    /// Number of devices.
    pub ndevs: c_int,
    /// Their numbers.
    pub devs: [c_int; 8],
}
assert_layout!(VDeviceProps8, 36, { ndevs: 0, devs: 4 });
