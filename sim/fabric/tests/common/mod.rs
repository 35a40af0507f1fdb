//! What the tests in real processes share: a fabric, and this test program started again with the library preloaded.
//!
//! Knows nothing of what a node does: every test program has an ignored test `a_node` for that. Any thread.

use std::path::PathBuf;
use std::process::Command;

/// Node a: 10.7.0.1 (cabled to b's 10.7.0.2) and 10.7.1.1 (cabled to c's 10.7.1.2); b and d share a cable that does not touch a.
/// The place of 10.7.x.y is 127.77.x.y.
pub(crate) const FABRIC: &str = "port 10.7.0.1 127.77.0.1\nport 10.7.0.2 127.77.0.2\ncable 10.7.0.1 10.7.0.2\n\
    port 10.7.1.1 127.77.1.1\nport 10.7.1.2 127.77.1.2\ncable 10.7.1.1 10.7.1.2\n\
    port 10.7.2.1 127.77.2.1 # b to d\nport 10.7.2.2 127.77.2.2\ncable 10.7.2.1 10.7.2.2\n";
pub(crate) const NODE_A: &str = "10.7.0.1,10.7.1.1";

fn library() -> PathBuf {
    let program = std::env::current_exe().expect("own path");
    let folder = program.parent().expect("a folder");
    let found = folder.join("libmesh_fabric.so");
    assert!(found.exists(), "{} is built together with its tests", found.display());
    found
}

pub(crate) struct FabricFile(pub(crate) PathBuf);

impl FabricFile {
    pub(crate) fn with(text: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("mesh-fabric-test-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("temporary file");
        Self(path)
    }
}

impl Drop for FabricFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// This test program again, as a process of a node that does one thing.
pub(crate) fn node(action: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", "a_node", "--ignored", "--nocapture"]);
    command.env("LD_PRELOAD", library()).env("FABRIC_TEST_ACTION", action.join(" "));
    command
}
