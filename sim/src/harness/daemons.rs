//! Daemons of nodes: started before the ranks, ended after them.
//!
//! Lives on the thread that runs the harness. Knows of a daemon only the command that starts it, the name by which it owns its node, and
//! the command that says what it counts.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::args::{Agents, RunArgs};
use super::children::{Children, Output, describe};
use super::scene::Scene;
use super::snapshot::Snapshot;

/// How long a daemon may take until it owns its node.
const READY: Duration = Duration::from_secs(10);
/// How long it may take to end, once asked.
const GRACE: Duration = Duration::from_secs(5);

/// The daemons of a run; they end with the value.
#[derive(Debug, Default)]
pub(super) struct Daemons {
    children: Children,
    program: OsString,
    nodes: Vec<usize>,
}

/// Asks the daemons of a run for what they have counted, by the command that people use, on each node.
#[derive(Debug)]
pub(super) struct Counting {
    program: OsString,
    nodes: Vec<usize>,
}

impl Counting {
    /// What they have counted so far, in the order of their nodes.
    ///
    /// # Errors
    /// One does not say.
    pub(super) fn read(&self, scene: &Scene) -> Result<Vec<(String, Snapshot)>, String> {
        let one = |node: &usize| {
            let name = &scene.names()[*node];
            let mut command = scene.program(*node, &self.program);
            command.args(["status", "--json"]).stdin(Stdio::null());
            scene.enter(&mut command, *node, 0);
            let output =
                command.output().map_err(|error| format!("{name} agent: cannot be asked what it counts: {error}"))?;
            let counted = Snapshot::of_daemon(&String::from_utf8_lossy(&output.stdout)).map_err(|why| {
                let said = String::from_utf8_lossy(&output.stderr);
                format!("{name} agent: does not say what it counts: {why}; {}", said.trim())
            })?;
            Ok((name.clone(), counted))
        };
        self.nodes.iter().map(one).collect()
    }
}

impl Daemons {
    /// Starts them where they are asked for, and waits until each owns its node. `order` says which nodes have a rank.
    pub(super) fn start(args: &RunArgs, scene: &Scene, order: &[usize]) -> io::Result<Self> {
        let mut daemons = Self::default();
        let wanted = |node: &usize| match args.agents {
            Agents::None => false,
            Agents::Idle => !order.contains(node),
            Agents::All => true,
        };
        let program = match args.node_program.first() {
            Some(program) => program.clone(),
            None => std::env::current_exe()?.into_os_string(),
        };
        let mut waiting = Vec::new();
        daemons.program.clone_from(&program);
        daemons.nodes = (0..scene.names().len()).filter(wanted).collect();
        for node in daemons.nodes.clone() {
            let name = format!("{} agent", scene.names()[node]);
            let mut command = scene.program(node, &program);
            command.arg("agent").stdin(Stdio::null());
            scene.enter(&mut command, node, 0);
            command.env_remove("NCCL_MESH_STATS_FILE").env_remove("NCCL_MESH_JOB");
            // A fabric says more where the user asks for it.
            let asked = args.environment.iter().any(|(name, _)| name == "NCCL_MESH_DEBUG");
            let shown: super::children::LineFilter = if asked { |_| true } else { |line| !line.contains("INFO") };
            let pid =
                daemons.children.start(command, node, &name, Output { prefix: true, shown, own_stdout: false })?;
            waiting.push((pid, format!("@nccl-mesh-{}-{}-{}", scene.port(), scene.cluster(), scene.names()[node])));
        }
        let until = Instant::now() + READY;
        while let Some((pid, name)) = waiting.last() {
            // A name in the abstract namespace shows in the list of the process's own network namespace.
            let names = std::fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
            if names.lines().any(|line| line.ends_with(name.as_str())) {
                waiting.pop();
                continue;
            }
            if let Some(problem) = daemons.ended() {
                return Err(io::Error::other(problem));
            }
            if Instant::now() >= until {
                return Err(io::Error::other(format!("nobody had the name {name} after {} s", READY.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemons)
    }

    /// How they are asked for what they have counted.
    pub(super) fn counting(&self) -> Counting {
        Counting { program: self.program.clone(), nodes: self.nodes.clone() }
    }

    /// What a daemon says by ending before it was asked.
    fn ended(&mut self) -> Option<String> {
        let (index, status) = self.children.ended()?;
        Some(format!("{} ended: {}", self.children.get(index).name, describe(status)))
    }

    /// Ends them; answers what went wrong with them.
    pub(super) fn end(mut self) -> Vec<String> {
        let mut problems = Vec::new();
        while let Some(problem) = self.ended() {
            problems.push(problem);
        }
        self.children.end(GRACE);
        self.children.drain();
        problems
    }
}
