//! Makes the folder with the shared library: cargo builds a static library, the C compiler links it with versions.
//!
//! A Rust `cdylib` cannot be linked with a version script of one's own, and without versions NCCL finds no symbol. Needs this
//! package's source, `cargo` and `cc`; for tests and for a harness that runs from a source tree.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::symbols;

/// Name that programs are linked to.
pub const SONAME: &str = "libibverbs.so.1";
/// Name that NCCL opens first.
pub const PLAIN_NAME: &str = "libibverbs.so";

/// Why the library could not be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum BuildError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} failed ({status}):\n{stderr}")]
    Failed { program: String, status: std::process::ExitStatus, stderr: String },
}

/// Makes `folder` with `libibverbs.so.1` and a link `libibverbs.so`; returns the library's path. Put the folder into
/// `LD_LIBRARY_PATH`. Several processes may do so at once, with the same folder too.
///
/// # Errors
/// A tool is missing or fails, or the folder cannot be written.
pub fn build(folder: &Path) -> Result<PathBuf, BuildError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| BuildError::Io { path, source }
    };
    std::fs::create_dir_all(folder).map_err(io_error(folder))?;
    let archive = static_library()?;
    let scratch = folder.join(format!(".build-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(io_error(&scratch))?;
    let (script, source) = (scratch.join("versions.map"), scratch.join("refusing.c"));
    std::fs::write(&script, symbols::version_script()).map_err(io_error(&script))?;
    std::fs::write(&source, symbols::refusing_source()).map_err(io_error(&source))?;
    let fresh = scratch.join(SONAME);
    link(&archive, &script, &source, &fresh)?;
    // Whoever loads the old one keeps it; nobody sees half of the new one.
    let library = folder.join(SONAME);
    std::fs::rename(&fresh, &library).map_err(io_error(&library))?;
    let plain = scratch.join(PLAIN_NAME);
    std::os::unix::fs::symlink(SONAME, &plain).map_err(io_error(&plain))?;
    std::fs::rename(&plain, folder.join(PLAIN_NAME)).map_err(io_error(&plain))?;
    std::fs::remove_dir_all(&scratch).map_err(io_error(&scratch))?;
    Ok(library)
}

/// Builds the archive in a target folder of its own, so that neither build disturbs the other's.
fn static_library() -> Result<PathBuf, BuildError> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = package.ancestors().nth(2).unwrap_or(package);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let target = target.join("soft-verbs");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["rustc", "--quiet", "--lib", "--crate-type", "staticlib", "--features", "library"]);
    // A panic must not unwind into C; only this artefact aborts.
    cargo.args([
        "--config",
        "profile.soft-verbs.inherits=\"release\"",
        "--config",
        "profile.soft-verbs.panic=\"abort\"",
    ]);
    cargo.args(["--profile", "soft-verbs", "--manifest-path"]).arg(package.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target);
    // What cargo set for a test or build script that calls this must not reach the inner build.
    for (name, _) in std::env::vars_os() {
        let from_cargo = name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name == "LD_LIBRARY_PATH");
        if from_cargo {
            cargo.env_remove(&name);
        }
    }
    run(&mut cargo)?;
    Ok(target.join("soft-verbs").join("libmesh_soft_verbs.a"))
}

fn link(archive: &Path, script: &Path, source: &Path, library: &Path) -> Result<(), BuildError> {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-shared", "-fPIC", "-O2", "-fvisibility=default", "-Wno-builtin-declaration-mismatch"]);
    cc.arg(format!("-Wl,-soname,{SONAME}"));
    cc.arg(joined("-Wl,--version-script=", script.as_os_str()));
    // The progress thread and exit handlers must find the code even if the program closes the library.
    cc.args(["-Wl,--gc-sections", "-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,--no-undefined"]);
    cc.args(symbols::wanted().map(|name| format!("-Wl,-u,{name}")));
    cc.arg(source).arg(archive).args(["-lc", "-lgcc_s", "-lpthread", "-ldl", "-lm", "-o"]).arg(library);
    run(&mut cc)
}

fn joined(prefix: &str, value: &OsStr) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(prefix);
    text.push(value);
    text
}

fn run(command: &mut Command) -> Result<(), BuildError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| BuildError::Start { program: program.clone(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BuildError::Failed { program, status: output.status, stderr })
}
