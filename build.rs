//! Links the plugin so that it stays mapped after NCCL's `dlclose`, and leaves a link with the file name NCCL searches for.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // NCCL closes the library when its last communicator goes, while our threads may still run in it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Cargo cannot name a library with a hyphen. OUT_DIR is <target>/<profile>/build/<package>/out.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if let Some(profile) = out.ancestors().nth(3) {
        let link = profile.join("libnccl-net-mesh.so");
        if std::fs::symlink_metadata(&link).is_err() {
            // A failure only costs the convenience: the file is also loadable by its path.
            let _ = std::os::unix::fs::symlink("libnccl_net_mesh.so", &link);
        }
    }
}
