//! The backend over a reliable-connected queue pair of RDMA verbs between the two ports of a link.
//!
//! libibverbs is loaded at run time: without it, or without a device, everything builds and runs, and [`DeviceSet::open`] says what is
//! missing. One [`VerbsEndpoint`] is one queue pair; the layout from the C interface up:
//!
//! ```text
//!   sys        types of the C interface          load      the library and its functions
//!   context    an open device                    port      what its ports say of themselves
//!   device     which device has which address    missing   why there is none
//!   pd mr cq qp   owned objects, each keeping what it was made from; locking: why memory is not taken
//!   handshake  what ends tell each other         stream    and over what
//!   send receive regions   the two halves, and the memory that they may name
//!   endpoint   all of it tied together           fault     failed completions in words
//! ```

mod context;
mod cq;
mod device;
mod endpoint;
mod fault;
pub(crate) mod handshake;
mod limits;
mod load;
mod locking;
mod missing;
mod mr;
mod pd;
mod port;
mod qp;
mod receive;
mod regions;
mod send;
mod stream;
mod sys;

pub use device::{DeviceSet, Registration, survey};
pub use endpoint::VerbsEndpoint;
pub use fault::{CompletionFault, SetupFault, status_text};
pub use limits::{VerbsError, VerbsLimits};
pub use load::{LoadError, probe};
pub use missing::{DeviceError, Remedy};
pub use mr::RegisterError;
pub use port::{Gid, GidEntry, Port, PortState};
