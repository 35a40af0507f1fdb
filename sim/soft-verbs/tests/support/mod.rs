//! What the tests share: the library built once, loaded as a program would, and scenarios run in processes of their own, since
//! the library reads its environment once a process.

#![allow(unsafe_code, reason = "drives a C library")]
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

pub mod ends;

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest any child may take before it counts as hung.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Folder with the library, built once a test program.
pub fn library_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("soft-verbs-library");
        mesh_soft_verbs::artefact::build(&folder).expect("the library builds");
        folder
    })
}

/// A folder for one fabric, removed with everything in it when dropped.
pub struct Scene {
    pub folder: PathBuf,
}

impl Scene {
    pub fn new(fabric: &str) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let name = format!("soft-verbs-test-{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let folder = base.join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("fabric"), fabric).expect("a file");
        Self { folder }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.join("fabric")
    }

    /// `program` with the library in place of the real one, as process of `node`.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>, node: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", library_folder());
        command.env("MESH_SOFT_VERBS", self.file()).env("MESH_SOFT_VERBS_NODE", node);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// This test program again, running the ignored test `scenarios` with the scenario's name, as process of `node`.
    pub fn scenario(&self, name: &str, node: &str) -> Child {
        let own = std::env::current_exe().expect("own path");
        let mut command = self.program(own, node);
        command.args(["--exact", "scenarios", "--ignored", "--nocapture"]);
        command.env("SCENARIO", name).env("SCENE", &self.folder);
        command.spawn().expect("starts")
    }

    /// Runs one scenario that plays all nodes in one process.
    pub fn run(&self, name: &str) {
        succeed(name, self.scenario(name, "a,b,c"));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Waits for a child, killing it when it hangs.
pub fn finish(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        if start.elapsed() > WATCHDOG {
            child.kill().expect("kills");
            let output = child.wait_with_output().expect("ends");
            panic!("a child hung; it said {}", text(&output));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("ends")
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn succeed(name: &str, child: Child) {
    let output = finish(child);
    assert!(output.status.success(), "{name} failed ({}): {}", output.status, text(&output));
    // A scenario that did not run at all must not pass.
    assert!(text(&output).contains("scenario done"), "{name} did not run: {}", text(&output));
}

/// Runs the scenario that the parent asked for.
pub fn play(scenarios: &[(&str, fn())]) {
    let wanted = std::env::var("SCENARIO").expect("set by the parent");
    let (_, play) = scenarios.iter().find(|(name, _)| *name == wanted).expect("a known scenario");
    play();
    println!("scenario done");
}

/// The library, loaded by name as programs that open it at run time do.
pub struct Library(*mut c_void);

impl Library {
    pub fn open(path: &Path) -> Self {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero");
        // SAFETY: loads our own library, whose constructors do nothing.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: `dlerror` after a failure is a string.
            let error = unsafe { CStr::from_ptr(libc::dlerror()) };
            panic!("{}: {}", path.display(), error.to_string_lossy());
        }
        Self(handle)
    }

    pub fn find(&self, name: &str, version: &str) -> *mut c_void {
        let (name, version) = (CString::new(name).expect("no zero"), CString::new(version).expect("no zero"));
        // SAFETY: an open library and two strings.
        unsafe { libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()) }
    }

    /// A function, as the type `F` of a function pointer.
    pub fn function<F: Copy>(&self, name: &str, version: &str) -> F {
        let found = self.find(name, version);
        assert!(!found.is_null(), "{name}@{version}");
        assert_eq!(size_of::<F>(), size_of_val(&found));
        // SAFETY: the caller names the function's C type.
        unsafe { std::mem::transmute_copy(&found) }
    }
}
