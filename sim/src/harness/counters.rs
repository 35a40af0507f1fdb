//! The plugin's counters, read through the one function that it exports beside NCCL's tables.
//!
//! `size_t nccl_mesh_snapshot(char* buffer, size_t capacity)` writes a JSON text as a C string of at most `capacity` bytes and returns
//! the bytes that the whole of it needs. Any thread.
#![allow(unsafe_code, reason = "takes a function of the plugin by name")]

use std::ffi::c_char;

use mesh_abi::caller::Plugin;

use super::snapshot::Snapshot;

type SnapshotFn = unsafe extern "C" fn(*mut c_char, usize) -> usize;

/// The function, if the plugin has it.
#[derive(Debug)]
pub(super) struct Counters(Option<SnapshotFn>);

impl Counters {
    pub(super) fn of(plugin: &Plugin) -> Self {
        // SAFETY: a plugin that exports this name gives it this type: that is the name's contract.
        Self(unsafe { plugin.symbol::<SnapshotFn>(c"nccl_mesh_snapshot") }.ok())
    }

    /// What is counted now; `None` if the plugin does not count.
    ///
    /// # Errors
    /// The text is no snapshot.
    pub(super) fn read(&self) -> Result<Option<Snapshot>, String> {
        let Some(snapshot) = self.0 else { return Ok(None) };
        let mut buffer = vec![0_u8; 64 << 10];
        loop {
            // SAFETY: the function writes at most as many bytes as it is told and returns how many it has.
            let length = unsafe { snapshot(buffer.as_mut_ptr().cast(), buffer.len()) };
            // One more than it needs: a text that just fits may have lost its end to a terminating zero.
            if length < buffer.len() {
                let text = String::from_utf8_lossy(&buffer[..length]);
                let text = text.trim_end_matches('\0');
                if text.is_empty() {
                    // Nothing has been started that could count.
                    return Ok(Some(Snapshot::default()));
                }
                return Snapshot::parse(text)
                    .map(Some)
                    .map_err(|error| format!("the plugin's snapshot does not parse: {error}: {text}"));
            }
            // Counters grow between two calls, so there is room for more.
            buffer.resize(length + 4096, 0);
        }
    }
}
