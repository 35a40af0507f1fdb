//! The state machines put together so that one call moves one message: a relay's engine, and the two ends of a connection.
//!
//! For benches that time them or count their instructions; knows neither clocks nor output, and does no I/O. Run by the caller's thread.
//! Every message that does not end as it should is an error, so that nothing is measured that does not happen.

pub(crate) mod ends;
pub(crate) mod relay;

use std::error::Error;

/// Outcome of everything in benches.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Payload of a chunk; the machines see no bytes, so it does not matter.
pub(crate) const CHUNK: u32 = 256;
/// Chunks of a message.
pub(crate) const CHUNKS: u16 = 4;
