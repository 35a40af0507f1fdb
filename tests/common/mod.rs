//! What the end-to-end tests share: the files of the build, and running the operator's command under a watchdog.
//!
//! Knows nothing of what a test wants to see. Any thread.
#![allow(dead_code, reason = "every test program uses a part of it")]

mod files;
pub(crate) mod verbs;

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[allow(unused_imports, reason = "every test program uses a part of it")]
pub(crate) use files::{fabric_file, plugin_file};

/// The operator's command.
pub(crate) const COMMAND: &str = env!("CARGO_BIN_EXE_nccl-mesh");
/// Marks every process of a run, so that those left over are found.
const MARK: &str = "MESH_TEST_RUN";

/// How a command ended and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its arguments, for messages.
    pub(crate) line: String,
    /// Exit status; `None` if a signal ended it.
    pub(crate) status: Option<i32>,
    /// Number that its process had.
    pub(crate) process: u32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    mark: String,
}

impl Ran {
    /// Everything a person needs to see what went wrong.
    pub(crate) fn told(&self) -> String {
        format!("{}\nstatus {:?}\n--- stdout\n{}\n--- stderr\n{}", self.line, self.status, self.stdout, self.stderr)
    }

    /// Lines of both streams with this text.
    pub(crate) fn lines_with(&self, text: &str) -> Vec<&str> {
        self.stdout.lines().chain(self.stderr.lines()).filter(|line| line.contains(text)).collect()
    }

    /// Panics unless the status is `status`.
    #[track_caller]
    pub(crate) fn ends(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{}", self.told());
        self
    }

    /// Panics if a process of this run still lives. One that was killed may take a moment to go.
    #[track_caller]
    pub(crate) fn leaves_nothing(self) -> Self {
        let mark = format!("{MARK}={}", self.mark);
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = marked(&mark);
            if left.is_empty() {
                return self;
            }
            assert!(Instant::now() < deadline, "processes {left:?} are left of {}", self.told());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Numbers of the processes with this text in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let of = |entry: std::fs::DirEntry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        // Others' environments cannot be read, and they are not ours.
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        environment.split(|byte| *byte == 0).any(|text| text == mark.as_bytes()).then_some(process)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).collect()
}

/// Runs `nccl-mesh` with these arguments and nothing of NCCL's in its environment but `env`; ends it after `limit`, which fails the
/// test.
#[track_caller]
pub(crate) fn nccl_mesh_with(arguments: &[&str], env: &[(&str, &str)], limit: Duration) -> Ran {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let mark = format!("{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
    let mut command = Command::new(COMMAND);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NCCL_")) {
        command.env_remove(name);
    }
    // Tests that name no kind of link mean sockets, whatever lies beside the program.
    let end = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
    let sockets = matches!(arguments, ["sim", "run", ..] | ["bench", ..]) && !arguments[..end].contains(&"--link");
    command.args(&arguments[..end]).args(sockets.then_some(["--link", "tcp"]).into_iter().flatten());
    command.args(&arguments[end..]).envs(env.iter().copied()).env(MARK, &mark);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let line = format!("nccl-mesh {}", arguments.join(" "));
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{COMMAND}: {error}"));
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let deadline = Instant::now() + limit;
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() >= deadline && !late {
            late = true;
            // Its nodes end with it.
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    let ran = Ran { line, status: status.code(), process: child.id(), stdout, stderr, mark };
    assert!(!late, "still running after {} s: {}", limit.as_secs(), ran.told());
    ran
}

/// As [`nccl_mesh_with`], with words, and a limit that only a hang can reach.
#[track_caller]
pub(crate) fn nccl_mesh(words: &str) -> Ran {
    nccl_mesh_with(&words.split_whitespace().collect::<Vec<_>>(), &[], Duration::from_secs(240))
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.expect("piped").read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
