//! Where cargo leaves what it builds for a test.

use std::path::{Path, PathBuf};

/// The plugin that cargo built for this test: `cargo test` leaves it in `deps`, `cargo build` beside it as well, so the newer of
/// the two is the one.
pub(crate) fn plugin_file() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let built = |folder: &Path| {
        let path = folder.join("libnccl_net_mesh.so");
        path.metadata().and_then(|data| data.modified()).ok().map(|when| (when, path))
    };
    [built(deps), deps.parent().and_then(built)]
        .into_iter()
        .flatten()
        .max()
        .unwrap_or_else(|| panic!("no libnccl_net_mesh.so at {}", deps.display()))
        .1
}
