//! Sizes and times of a TCP endpoint, fixed when it is made.

use std::time::Duration;

/// Sizes of queues and buffers, and the socket's times.
///
/// Memory of an endpoint, whatever happens: about 112 bytes a write, 1.1 KiB a message, 26 bytes an exposure, and the staging
/// buffer; the kernel's socket buffers come on top.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Writes that may be outstanding: queued, or handed over and not yet reported.
    pub writes: usize,
    /// Messages that may be queued.
    pub messages: usize,
    /// Windows that may be exposed at one time, at most 65536.
    pub exposures: usize,
    /// Bytes of the buffer that frames are read into before their kind is known. Raised to 4 KiB if smaller.
    pub staging: usize,
    /// Bytes that one poll reads, and that one flush sends, before it returns. At least one system call is always made.
    pub poll_bytes: usize,
    /// Frames of the peer that one poll takes before it returns. At least 1.
    pub poll_frames: usize,
    /// Bytes of the kernel's send buffer; `None` leaves it to the kernel. The kernel caps it at `net.core.wmem_max`.
    pub send_buffer: Option<usize>,
    /// Bytes of the kernel's receive buffer; `None` leaves it to the kernel. The kernel caps it at `net.core.rmem_max`.
    pub receive_buffer: Option<usize>,
    /// How long sent bytes may stay unacknowledged, or the peer's receive buffer full, before the kernel gives up. `None` leaves
    /// it to the kernel (many minutes). A peer that is merely stopped counts as dead.
    pub user_timeout: Option<Duration>,
    /// Probes on an idle connection; `None` sends none.
    pub keepalive: Option<Keepalive>,
}

/// Probes on an idle connection. Whole seconds, at least 1 each.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without answer after which the connection is dead.
    pub count: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            writes: 256,
            messages: 64,
            exposures: 1024,
            staging: 64 << 10,
            poll_bytes: 4 << 20,
            poll_frames: 256,
            send_buffer: None,
            receive_buffer: None,
            user_timeout: None,
            keepalive: Some(Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(3), count: 5 }),
        }
    }
}
