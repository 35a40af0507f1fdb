//! The file of cuts, in this process's memory.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU8;

use crate::cuts::Cuts;

/// How the file is called after the fabric file.
fn beside(fabric: &Path) -> PathBuf {
    let mut name = OsString::from(fabric);
    name.push(".cuts");
    PathBuf::from(name)
}

/// The cuts of a fabric with so many cables. Without a file no cable can be cut.
pub(super) fn open(fabric: &Path, cables: usize) -> Result<Cuts, String> {
    let path = beside(fabric);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Cuts::default()),
        other => other.map_err(failed)?,
    };
    let bytes = file.metadata().map_err(failed)?.len();
    if bytes < cables as u64 {
        return Err(format!("{} has {bytes} bytes for {cables} cables: it must have one a cable", path.display()));
    }
    if cables == 0 {
        return Ok(Cuts::default());
    }
    // SAFETY: a new mapping somewhere, of a file that has as many bytes; nothing else of the process is touched.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), cables, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if memory == libc::MAP_FAILED {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: the mapping has `cables` bytes and is never removed. Others write them while this process reads, so they are atomics,
    // which are only loaded: the memory is not writable. Whoever made the file never shortens it.
    Ok(Cuts::new(unsafe { std::slice::from_raw_parts(memory.cast::<AtomicU8>(), cables) }))
}
