//! What the library exports beside NCCL's tables, and what it does when the process ends.
//!
//! For: programs that embed the plugin or test it. Must not know: NCCL's types. Threads: any.

use std::ffi::c_char;
use std::panic::catch_unwind;
use std::sync::Once;

use crate::net;

/// Writes this process's counters as a JSON object into `buffer`, as a C string cut to `capacity` bytes with its NUL. Returns the bytes
/// that the whole text needs, with the NUL; 1 if nothing has been started. May wait some milliseconds for the relay thread, so it is not
/// for NCCL's threads. `buffer` may be NULL if `capacity` is 0.
///
/// # Safety
/// `buffer` must have room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nccl_mesh_snapshot(buffer: *mut c_char, capacity: usize) -> usize {
    let text = catch_unwind(net::snapshot).unwrap_or_default();
    if capacity > 0 && !buffer.is_null() {
        let len = text.len().min(capacity - 1);
        // SAFETY: the caller has room for `capacity` bytes, and len + 1 are at most that many.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), buffer, len);
        }
        // SAFETY: as above: `len` is below `capacity`.
        unsafe { buffer.add(len).write(0) };
    }
    text.len() + 1
}

/// Makes the process drain its relay before it exits; registered once.
pub(crate) fn drain_at_exit() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler is a function of this library, which stays mapped for good (linked with nodelete).
        let failed = unsafe { libc::atexit(run) };
        if failed != 0 {
            tracing::warn!(
                "mesh[W46] cannot register for the end of the process; paths through this node may break then"
            );
        }
    });
}

extern "C" fn run() {
    // A panic has nowhere to go at this point.
    let _ = catch_unwind(net::at_exit);
}
