//! The stable numbers of the faults that nodes tell each other and the log; the same numbers are in `docs/errors.md`.

use mesh_link::endpoint::EndpointError;
use mesh_link::verbs::{DeviceError, VerbsError};

/// Traffic of others may not pass a node of the route.
pub const RELAY_OFF: u16 = 1;
/// No sequence of cables leads to the peer.
pub const NO_PATH: u16 = 2;
/// The nodes run different builds.
pub const OTHER_VERSION: u16 = 43;
/// A relay of the path is gone.
pub const RELAY_LEFT: u16 = 45;
/// A node of the path, or the peer, did not answer in time.
pub const NO_ANSWER: u16 = 50;
/// The peer broke the protocol.
pub const PROTOCOL_BROKEN: u16 = 51;
/// Nobody listens with the handle's token.
pub const NO_LISTENER: u16 = 52;
/// A relay has no slots left.
pub const POOL_EMPTY: u16 = 53;
/// The route does not fit the nodes it names.
pub const BAD_ROUTE: u16 = 54;
/// The agent's address is taken by another process.
pub const ADDRESS_TAKEN: u16 = 55;
/// A send is larger than the receive it meets.
pub const TOO_LARGE: u16 = 57;
/// The peer closed the connection with transfers open.
pub const PEER_CLOSED: u16 = 58;
/// The leg to the next node broke.
pub const LEG_BROKEN: u16 = 59;
/// A posted transfer made no progress for too long.
pub const STALLED: u16 = 40;
/// The relay thread of this process has ended.
pub const THREAD_ENDED: u16 = 83;
/// RDMA cannot be used: the library, or a device.
pub const NO_VERBS: u16 = 4;
/// The NICs would not take memory.
pub const NOT_PINNED: u16 = 5;
/// A port carries no traffic.
pub const PORT_DOWN: u16 = 6;
/// The index that was set is not that of the port's GID.
pub const WRONG_GID_INDEX: u16 = 16;
/// No port has a GID of the address.
pub const NO_GID: u16 = 19;
/// There is no RDMA device.
pub const NO_DEVICE: u16 = 28;
/// The operating system refused something.
pub const SYSTEM: u16 = 83;

/// The number of what a device lacks.
pub const fn of_device(error: &DeviceError) -> u16 {
    match error {
        DeviceError::None { .. } => NO_DEVICE,
        DeviceError::NoPort { .. } | DeviceError::NotOpened { .. } | DeviceError::GidGone { .. } => NO_GID,
        DeviceError::WrongIndex { .. } => WRONG_GID_INDEX,
        DeviceError::PortNotActive { .. } => PORT_DOWN,
        DeviceError::Library(_) | DeviceError::Open { .. } | DeviceError::Call { .. } => NO_VERBS,
    }
}

/// The number of why a leg could not be made.
pub const fn of_endpoint(error: &EndpointError) -> u16 {
    match error {
        EndpointError::Verbs(VerbsError::Device(device)) => of_device(device),
        EndpointError::Verbs(VerbsError::Register(_)) => NOT_PINNED,
        EndpointError::Stream(_) | EndpointError::Verbs(_) => SYSTEM,
    }
}
