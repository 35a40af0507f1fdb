//! Soft verbs for tests: built by the first that asks.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The folder with soft verbs' libibverbs, built once a test program.
pub(crate) fn soft_verbs() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("soft-verbs");
        mesh_soft_verbs::artefact::build(&folder).expect("soft verbs");
        folder
    })
}
