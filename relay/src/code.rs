//! The stable numbers of the faults that nodes tell each other and the log; the same numbers are in `docs/errors.md`.

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
