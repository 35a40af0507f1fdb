//! The nodes' processes: started, heard, ended.
//!
//! Children never outlive their parent: they are killed when it ends, on every way out of [`Children`], and with the groups of
//! processes that they lead. Lives on the thread that runs the harness; each child has two threads that copy its output.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::sys;

/// Where a child's lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// One child.
#[derive(Debug)]
pub struct NodeProcess {
    /// The node's place in the topology.
    pub node: usize,
    /// The node's name.
    pub name: String,
    child: Child,
    copiers: Vec<JoinHandle<()>>,
    status: Option<ExitStatus>,
}

/// All children of a run.
#[derive(Debug, Default)]
pub struct Children {
    list: Vec<NodeProcess>,
}

/// How a line of a child is treated.
pub type LineFilter = fn(&str) -> bool;

/// How a child's output is copied.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Whether lines begin with the node's name.
    pub prefix: bool,
    /// Which lines of standard error are shown.
    pub shown: LineFilter,
    /// Whether standard output is copied to standard output (else to standard error, for results of our own go there).
    pub own_stdout: bool,
}

impl Children {
    /// Starts a node's process. Its standard input is whatever `command` says.
    ///
    /// # Errors
    /// The system's, if it does not start.
    pub fn start(&mut self, mut command: Command, node: usize, name: &str, output: Output) -> std::io::Result<u32> {
        sys::tie_to_parent(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let mut copiers = Vec::new();
        let stdout = if output.own_stdout { Stream::Out } else { Stream::Err };
        if let Some(pipe) = child.stdout.take() {
            copiers.push(copy_lines(pipe, stdout, name, output.prefix, |_| true));
        }
        if let Some(pipe) = child.stderr.take() {
            copiers.push(copy_lines(pipe, Stream::Err, name, output.prefix, output.shown));
        }
        let pid = child.id();
        self.list.push(NodeProcess { node, name: name.to_owned(), child, copiers, status: None });
        Ok(pid)
    }

    /// Looks for children that ended; returns the index and status of one that had not been reported.
    pub fn ended(&mut self) -> Option<(usize, ExitStatus)> {
        self.list.iter_mut().enumerate().filter(|(_, process)| process.status.is_none()).find_map(|(index, process)| {
            let status = process.child.try_wait().ok().flatten()?;
            process.status = Some(status);
            Some((index, status))
        })
    }

    /// The child at an index.
    #[must_use]
    pub fn get(&self, index: usize) -> &NodeProcess {
        &self.list[index]
    }

    /// The status of a child, if it ends within `time`; it then counts as reported.
    pub fn status_within(&mut self, index: usize, time: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + time;
        let process = &mut self.list[index];
        while process.status.is_none() {
            process.status = process.child.try_wait().ok().flatten();
            if process.status.is_none() {
                if Instant::now() >= deadline {
                    return None;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        process.status
    }

    /// How many were started.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// How many still run, as far as [`Self::ended`] has seen.
    #[must_use]
    pub fn running(&self) -> usize {
        self.list.iter().filter(|process| process.status.is_none()).count()
    }

    /// Processor time that all children that run have used, in seconds.
    #[must_use]
    pub fn processor_seconds(&self) -> f64 {
        self.list.iter().filter_map(|process| sys::processor_seconds(process.child.id())).sum()
    }

    /// Asks all that run to end, and after `grace` makes them.
    pub fn end(&mut self, grace: Duration) {
        if self.running() > 0 && !grace.is_zero() {
            self.signal(libc::SIGTERM);
            let deadline = Instant::now() + grace;
            while Instant::now() < deadline && self.running() > 0 {
                if self.ended().is_none() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        for process in &mut self.list {
            // The group too: a child may have left children of its own. One that ended is not waited for yet only if
            // its status is unknown; after that its number may be somebody else's.
            if process.status.is_none() {
                sys::signal_group(process.child.id(), libc::SIGKILL);
                let _ = process.child.kill();
                process.status = process.child.wait().ok();
            }
        }
    }

    fn signal(&self, signal: i32) {
        for process in self.list.iter().filter(|process| process.status.is_none()) {
            sys::signal_group(process.child.id(), signal);
        }
    }

    /// Waits until all output of children that ended has been copied. A process that a child left behind may hold the
    /// pipes open, so this does not wait for ever.
    pub fn drain(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        for copier in self.list.iter_mut().flat_map(|process| process.copiers.drain(..)) {
            while !copier.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if copier.is_finished() {
                // A copier that panicked has lost a few lines, no more.
                let _ = copier.join();
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

fn copy_lines(
    pipe: impl Read + Send + 'static,
    stream: Stream,
    name: &str,
    prefix: bool,
    shown: LineFilter,
) -> JoinHandle<()> {
    let start = if prefix { format!("{name}: ") } else { String::new() };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        // Read errors end the copy like the end of the pipe.
        while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            if shown(text) {
                // One call a line, so that lines of different nodes do not mix. Nobody listening is no reason to stop.
                let whole = format!("{start}{text}\n");
                let _ = match stream {
                    Stream::Out => std::io::stdout().lock().write_all(whole.as_bytes()),
                    Stream::Err => std::io::stderr().lock().write_all(whole.as_bytes()),
                };
            }
            line.clear();
        }
    })
}

/// How a process ended, in words.
#[must_use]
pub fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Output = Output { prefix: true, shown: |_| true, own_stdout: false };

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    fn wait_for_end(children: &mut Children) -> ExitStatus {
        loop {
            match children.ended() {
                Some((_, status)) => return status,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    #[test]
    fn the_end_of_a_child_is_told_once() {
        let mut children = Children::default();
        children.start(shell("exit 3"), 0, "node0", QUIET).expect("starts");
        let status = wait_for_end(&mut children);
        assert_eq!((status.code(), describe(status)), (Some(3), "exit status 3".to_owned()));
        assert_eq!(children.ended(), None);
        assert_eq!(children.running(), 0);
    }

    #[test]
    fn dropping_ends_children_and_what_they_started() {
        // given a child that started another process and told us its number
        let file = std::env::temp_dir().join(format!("nccl-mesh-children-{}", std::process::id()));
        let mut children = Children::default();
        let script = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display());
        let leader = children.start(shell(&script), 0, "node0", QUIET).expect("starts");
        let grandchild: u32 = loop {
            match std::fs::read_to_string(&file) {
                Ok(text) => break text.trim().parse().expect("a number"),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let _ = std::fs::remove_file(&file);
        // when the children are dropped
        drop(children);
        // then both end: the child is waited for, the other is gone or only waits for its new parent to notice
        assert_eq!(sys::processor_seconds(leader), None);
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{grandchild}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_child_that_ignores_the_request_is_killed_after_the_grace() {
        let mut children = Children::default();
        children.start(shell("trap '' TERM; while :; do sleep 600; done"), 0, "node0", QUIET).expect("starts");
        std::thread::sleep(Duration::from_millis(100));
        children.end(Duration::from_millis(50));
        assert_eq!(children.running(), 0);
    }
}
