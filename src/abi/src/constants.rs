//! Constants of NCCL's net interface.
//!
//! For: both sides of the interface. Must not know: any type of ours. Threads: none.

use core::ffi::{CStr, c_int, c_ulong};

/// Bytes of a connection handle, as it travels from the receiver to the sender.
pub const HANDLE_BYTES: usize = 128;
/// Requests that may be open on one connection (8 before NCCL 2.19).
pub const MAX_REQUESTS: usize = 32;
/// Operations that NCCL really keeps open on one connection.
pub const STEPS: usize = 8;
/// Length of the `sizes` array that NCCL gives to `test`.
pub const PROXY_MAX_SUBS: usize = 64;
/// Upper bound that NCCL accepts for `maxP2pBytes` and `maxCollBytes`, bytes.
pub const MAX_NET_SIZE_BYTES: usize = 1 << 40;
/// Largest message of the adapters for v6 to v8, bytes.
pub const MAX_NET_SIZE: usize = 1 << 30;
/// Largest collective message of the adapters for v6 to v8, bytes.
pub const MAX_COLLNET_SIZE: usize = 512 << 20;
/// Value of `*request` on entry to `irecv` (v9 and later): the receiver detects arrival itself.
pub const OPTIONAL_RECV_COMPLETION: usize = 0x1;

/// Pointer kind: host memory.
pub const PTR_HOST: c_int = 0x1;
/// Pointer kind: CUDA device memory.
pub const PTR_CUDA: c_int = 0x2;
/// Pointer kind: DMA-BUF.
pub const PTR_DMABUF: c_int = 0x4;

/// `netDeviceType` of a device that NCCL's proxy drives from the host.
pub const NET_DEVICE_HOST: c_int = 0;
/// `trafficClass` of a communicator that has none.
pub const TRAFFIC_CLASS_UNDEFINED: c_int = -1;
/// `railId` and `planeId` of a device that has none.
pub const RAIL_UNDEFINED: i16 = -1;

/// Log level: nothing.
pub const LOG_NONE: c_int = 0;
/// Log level: the version line.
pub const LOG_VERSION: c_int = 1;
/// Log level: warnings and errors.
pub const LOG_WARN: c_int = 2;
/// Log level: information.
pub const LOG_INFO: c_int = 3;
/// Log level: abort.
pub const LOG_ABORT: c_int = 4;
/// Log level: trace.
pub const LOG_TRACE: c_int = 5;

/// Log subsystem: initialisation.
pub const SUBSYS_INIT: c_ulong = 0x1;
/// Log subsystem: network.
pub const SUBSYS_NET: c_ulong = 0x10;

/// Oldest version described here.
pub const OLDEST_VERSION: u32 = 6;
/// Newest version described here.
pub const NEWEST_VERSION: u32 = 12;

/// Name of the data symbol that holds the table of `version`; `None` outside 6 to 12.
pub const fn symbol_name(version: u32) -> Option<&'static CStr> {
    Some(match version {
        6 => c"ncclNetPlugin_v6",
        7 => c"ncclNetPlugin_v7",
        8 => c"ncclNetPlugin_v8",
        9 => c"ncclNetPlugin_v9",
        10 => c"ncclNetPlugin_v10",
        11 => c"ncclNetPlugin_v11",
        12 => c"ncclNetPlugin_v12",
        _ => return None,
    })
}
