//! Where cargo leaves what it builds for a test.

use std::path::{Path, PathBuf};

/// The plugin that cargo built for this test.
pub(crate) fn plugin_file() -> PathBuf {
    built("libnccl_net_mesh.so")
}

/// The preloaded library of make-believe fabrics.
#[allow(dead_code, reason = "every test program uses a part of it")]
pub(crate) fn fabric_file() -> PathBuf {
    built("libmesh_fabric.so")
}

/// `cargo test` leaves it in `deps`, `cargo build` beside it as well, so the newer of the two is the one.
fn built(file: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let built = |folder: &Path| {
        let path = folder.join(file);
        path.metadata().and_then(|data| data.modified()).ok().map(|when| (when, path))
    };
    [built(deps), deps.parent().and_then(built)]
        .into_iter()
        .flatten()
        .max()
        .unwrap_or_else(|| panic!("no {file} at {}", deps.display()))
        .1
}
