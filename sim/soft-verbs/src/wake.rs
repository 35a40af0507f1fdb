//! Wakes sleepers of other processes: one FIFO per completion channel and per open device, records of fixed size.
//!
//! A FIFO is a file descriptor that programs can poll, reaches into other network namespaces, holds thousands of records,
//! and a record of this size is written whole or not at all. Any thread.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::shared::Shared;

/// Bytes of a record.
pub const RECORD: usize = 16;
/// Writing ends kept open; more and all are closed, to be opened again when needed.
const KEPT: usize = 64;

/// Makes a FIFO; returns its number and its reading end, which blocks.
///
/// # Errors
/// What the file system said.
pub fn make(shared: &Shared) -> io::Result<(u32, File)> {
    loop {
        let number = shared.tables().fifos.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let path = shared.fifo(number);
        let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
        // SAFETY: `name` is a C string that lives through the call.
        let made = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
        if made == 0 {
            // Read and write: opening does not wait for a writer, and the end of the last writer is not an end of file.
            let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(&path)?;
            return Ok((number, file));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
    }
}

/// Writing ends by FIFO number.
#[derive(Debug, Default)]
pub struct Wakers {
    ends: Mutex<HashMap<u32, File>>,
}

impl Wakers {
    /// Writes a record into a FIFO. A FIFO that is gone or full gets none: its owner is gone, or has thousands to read.
    pub fn wake(&self, shared: &Shared, fifo: u32, record: [u64; 2]) {
        if fifo == 0 {
            return;
        }
        let mut bytes = [0u8; RECORD];
        bytes[..8].copy_from_slice(&record[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&record[1].to_ne_bytes());
        // A panic while the map was locked cannot have left it half changed.
        let mut ends = self.ends.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !ends.contains_key(&fifo) {
            if ends.len() >= KEPT {
                ends.clear();
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
            let Ok(end) = options.open(shared.fifo(fifo)) else { return };
            ends.insert(fifo, end);
        }
        if let Some(mut end) = ends.get(&fifo) {
            let _ = end.write_all(&bytes);
        }
    }
}
