//! The backend over one TCP connection between the two ports of a link.
//!
//! One connection carries frames both ways ([`frame`]); [`TcpEndpoint`] is the queue pair; [`dial`] opens connections from a
//! link's own address without blocking. Everything runs on the thread that owns the endpoint.

pub mod dial;
mod endpoint;
pub mod frame;
mod limits;
mod receive;
mod send;
mod socket;

pub(crate) use endpoint::prepare;
pub use endpoint::{Counters, TcpEndpoint};
pub use limits::{Keepalive, Limits};
