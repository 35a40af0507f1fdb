//! The parent of a collective's nodes: starts them, stands in for NCCL's bootstrap, gives them rows, and watches.
//!
//! Lives on the thread that runs the harness; one thread a node reads that node's messages. Whatever happens, it ends within the
//! run's time limit with one line a cause.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::args::{Agents, RunArgs};
use super::children::{Children, Output, describe};
use super::jobs::{Ending, Job};
use super::messages::{FromNode, Setup, ToNode, receive, send};
use super::scene::Scene;
use super::sys;

/// How long other nodes may take to say what went wrong with them after the first did.
const OTHER_CAUSES: Duration = Duration::from_millis(1500);
/// How long a node may take to exit after it closed everything.
const EXIT: Duration = Duration::from_secs(10);
/// How often signals and time limits are looked at.
const TICK: Duration = Duration::from_millis(50);

/// The run has failed; the causes are in [`Hub::problems`].
#[derive(Debug)]
pub(super) struct Failed;

/// A node as the parent sees it.
#[derive(Debug)]
struct NodeSeat {
    name: String,
    rank: Option<usize>,
    /// `None`: absent.
    stream: Option<UnixStream>,
    /// The child's place in [`Children`].
    child: usize,
    phase: String,
    meets: bool,
    /// Said that it closed everything, or failed, or ended: its end of stream is no news.
    over: bool,
}

/// A node's message, or the end of its stream.
type Event = (usize, Option<FromNode>);

/// The nodes of a run.
#[derive(Debug)]
pub(super) struct Hub {
    children: Children,
    seats: Vec<NodeSeat>,
    events: Receiver<Event>,
    deadline: Instant,
    timeout: Duration,
    /// One line a cause.
    pub(super) problems: Vec<String>,
    /// When the job ends before its time.
    ending: Option<Ending>,
    /// It has been killed, as asked.
    pub(super) ended: bool,
}

impl Hub {
    /// Starts all nodes that are not absent and gives each its set-up. `setup` says what a node gets, by its rank.
    pub(super) fn start(
        args: &RunArgs,
        scene: &Scene,
        order: &[usize],
        absent: &[usize],
        job: Job,
        setup: impl Fn(Option<usize>) -> Setup,
    ) -> io::Result<Self> {
        let (event, events) = channel();
        let mut hub = Self {
            children: Children::default(),
            seats: Vec::new(),
            events,
            deadline: Instant::now() + args.timeout,
            timeout: args.timeout,
            problems: Vec::new(),
            ending: job.ending,
            ended: false,
        };
        for (node, name) in scene.names().iter().enumerate() {
            let rank = order.iter().position(|other| *other == node);
            // Where daemons relay, a node without a rank has no process of the job.
            let daemon = rank.is_none() && args.agents != Agents::None;
            let phase = if daemon {
                "a daemon's"
            } else if absent.contains(&node) {
                "absent"
            } else {
                "starting"
            };
            let phase = phase.to_owned();
            let mut seat =
                NodeSeat { name: name.clone(), rank, stream: None, child: 0, phase, meets: false, over: false };
            if daemon || absent.contains(&node) {
                seat.over = true;
            } else {
                let (ours, theirs) = UnixStream::pair()?;
                let mut command = node_command(args, scene, node)?;
                // As launchers do.
                if let Some(rank) = rank {
                    command.env("RANK", rank.to_string()).env("WORLD_SIZE", order.len().to_string());
                }
                scene.enter(&mut command, node, job.number);
                command.stdin(Stdio::from(OwnedFd::from(theirs)));
                let output = Output { prefix: true, shown: shown(), own_stdout: false };
                seat.child = hub.children.count();
                hub.children.start(command, node, &job.label(name), output)?;
                // A node that dies at once does not read this; its end of stream tells.
                let _ = send(&mut &ours, &ToNode::Setup(Box::new(setup(rank))));
                read_messages(node, ours.try_clone()?, event.clone())?;
                seat.stream = Some(ours);
            }
            hub.seats.push(seat);
        }
        Ok(hub)
    }

    /// Waits until every node that is there has sent what `wanted` takes; everything else is dealt with meanwhile.
    pub(super) fn await_all<T>(&mut self, wanted: impl Fn(FromNode) -> Option<T>) -> Result<Vec<(String, T)>, Failed> {
        let mut got: Vec<Option<T>> = self.seats.iter().map(|_| None).collect();
        while (0..self.seats.len()).any(|node| self.seats[node].stream.is_some() && got[node].is_none()) {
            let Some((node, message)) = self.next_event()? else { continue };
            if let Some(answer) = wanted(message) {
                got[node] = Some(answer);
            }
        }
        let named = |(seat, answer): (&NodeSeat, Option<T>)| Some((seat.name.clone(), answer?));
        Ok(self.seats.iter().zip(got).filter_map(named).collect())
    }

    /// Lets time pass, seeing whether all stays well.
    pub(super) fn linger(&mut self, time: Duration) -> Result<(), Failed> {
        self.deadline += time;
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.next_event()?;
        }
        Ok(())
    }

    /// Processor time that all nodes have used, in seconds.
    pub(super) fn processor_seconds(&self) -> f64 {
        self.children.processor_seconds()
    }

    /// Whether the job is to do no more.
    pub(super) fn is_over(&self) -> bool {
        self.ending.is_some_and(|ending| Instant::now() >= ending.at)
    }

    /// Sends the same to every node that is there.
    pub(super) fn tell_all(&mut self, message: &ToNode) {
        for stream in self.seats.iter().filter_map(|seat| seat.stream.as_ref()) {
            // A node that is gone is noticed by its end of stream.
            let _ = send(&mut &*stream, message);
        }
    }

    /// Lets the nodes close and exit.
    pub(super) fn finish(&mut self) -> Result<(), Failed> {
        self.tell_all(&ToNode::Finish);
        self.await_all(|message| matches!(message, FromNode::Finished).then_some(()))?;
        let until = (Instant::now() + EXIT).min(self.deadline);
        while self.children.running() > 0 && Instant::now() < until {
            match self.children.ended() {
                Some((index, status)) if !status.success() => {
                    let name = &self.children.get(index).name;
                    self.problems.push(format!("{name}: closed everything, then ended with {}", describe(status)));
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        if self.children.running() > 0 {
            self.problems.push(format!("{} nodes closed everything but did not exit", self.children.running()));
        }
        if self.problems.is_empty() { Ok(()) } else { Err(Failed) }
    }

    /// Ends what still runs and copies the last lines.
    pub(super) fn end(&mut self, gently: bool) {
        self.children.end(if gently { Duration::from_secs(1) } else { Duration::ZERO });
        self.children.drain();
    }

    /// The next message that is somebody's answer; `None` if a tick passed or it was dealt with here.
    fn next_event(&mut self) -> Result<Option<(usize, FromNode)>, Failed> {
        self.look_at_limits()?;
        let (node, message) = match self.events.recv_timeout(TICK) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            // All streams ended; that of the first was a failure already.
            Err(RecvTimeoutError::Disconnected) => return Err(self.failed()),
        };
        if self.note(node, message.as_ref()) {
            return Err(self.failed());
        }
        match message {
            Some(FromNode::Handle(handle)) => {
                let sender = self.seats.iter().find(|seat| seat.rank == Some(handle.from));
                if let Some(stream) = sender.and_then(|seat| seat.stream.as_ref()) {
                    let _ = send(&mut &*stream, &ToNode::Handle(handle));
                }
                Ok(None)
            }
            Some(FromNode::Meet) => {
                self.seats[node].meets = true;
                if self.seats.iter().all(|seat| seat.meets || seat.stream.is_none()) {
                    self.seats.iter_mut().for_each(|seat| seat.meets = false);
                    self.tell_all(&ToNode::Go);
                }
                Ok(None)
            }
            Some(FromNode::Phase(_)) | None => Ok(None),
            Some(answer) => Ok(Some((node, answer))),
        }
    }

    /// Keeps what a message says of its node's state; says whether that is a failure.
    fn note(&mut self, node: usize, message: Option<&FromNode>) -> bool {
        let seat = &mut self.seats[node];
        match message {
            Some(FromNode::Phase(phase)) => seat.phase.clone_from(phase),
            Some(FromNode::Connected) => "running".clone_into(&mut seat.phase),
            Some(FromNode::Finished) => seat.over = true,
            Some(FromNode::Failed(reason)) => {
                seat.over = true;
                self.problems.push(format!("{}: while {}: {reason}", seat.name, seat.phase));
                return true;
            }
            None if !seat.over => {
                seat.over = true;
                // The stream ends a moment before the process does.
                let child = seat.child;
                let status = self.children.status_within(child, Duration::from_millis(500));
                let how = status.map_or_else(|| "its connection to the parent ended".to_owned(), describe);
                let seat = &self.seats[node];
                self.problems.push(format!("{}: process ended while {}: {how}", seat.name, seat.phase));
                return true;
            }
            _ => {}
        }
        false
    }

    /// Collects what others have to say, and adds what is known from the start.
    fn failed(&mut self) -> Failed {
        let until = Instant::now() + OTHER_CAUSES;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Ok((node, message)) = self.events.recv_timeout(left) else { break };
            self.note(node, message.as_ref());
        }
        self.name_absent();
        Failed
    }

    fn name_absent(&mut self) {
        for seat in self.seats.iter().filter(|seat| seat.phase == "absent") {
            let has_rank = seat.rank.map_or_else(|| "no rank".to_owned(), |rank| format!("rank {rank}"));
            self.problems.push(format!("{}: absent from the start as asked ({has_rank})", seat.name));
        }
    }

    fn look_at_limits(&mut self) -> Result<(), Failed> {
        if let Some(signal) = sys::stopped_by() {
            self.problems.push(format!("stopped by signal {signal}"));
            return Err(Failed);
        }
        if self.ending.is_some_and(|ending| ending.killed && Instant::now() >= ending.at) {
            self.children.end(Duration::ZERO);
            self.ended = true;
            return Err(Failed);
        }
        if Instant::now() < self.deadline {
            return Ok(());
        }
        for seat in self.seats.iter().filter(|seat| seat.stream.is_some() && !seat.over) {
            let seconds = self.timeout.as_secs_f64();
            self.problems.push(format!("{}: still {} when the run's {seconds:.0} s were over", seat.name, seat.phase));
        }
        self.name_absent();
        Err(Failed)
    }
}

fn node_command(args: &RunArgs, scene: &Scene, node: usize) -> io::Result<Command> {
    match &args.node_program[..] {
        [] => {
            let mut command = scene.program(node, std::env::current_exe()?.as_os_str());
            command.args(["sim", "node"]);
            Ok(command)
        }
        [program, rest @ ..] => {
            let mut command = scene.program(node, program);
            command.args(rest);
            Ok(command)
        }
    }
}

/// Which lines of a node's standard error are shown: the plugin hands every line to the logger, and NCCL's shows those that
/// NCCL_DEBUG asks for.
fn shown() -> super::children::LineFilter {
    let wanted = std::env::var("NCCL_DEBUG").unwrap_or_default().to_ascii_uppercase();
    match wanted.as_str() {
        "INFO" | "TRACE" => |_| true,
        _ => |line| {
            !(line.contains("] NCCL INFO ") || line.contains("] NCCL TRACE ") || line.contains("] NCCL VERSION "))
        },
    }
}

fn read_messages(node: usize, mut stream: UnixStream, event: Sender<Event>) -> io::Result<()> {
    std::thread::Builder::new().name(format!("from node {node}")).spawn(move || {
        loop {
            // What does not parse ends the conversation like the end of the stream: the node is not one of ours.
            let message = receive(&mut stream).unwrap_or_default();
            let last = message.is_none();
            if event.send((node, message)).is_err() || last {
                return;
            }
        }
    })?;
    Ok(())
}
