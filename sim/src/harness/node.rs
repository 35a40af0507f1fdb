//! A node's process: loads the plugin through its C interface and does what the parent says, on the threads that NCCL has.
//!
//! The main thread initialises, finalises and talks to the parent; the service thread ([`super::connect`]) sets up and closes;
//! the progress thread moves data. A fourth one only reads the parent's messages. Knows the parent's messages and the C interface,
//! nothing of the plugin's inside.

use std::collections::BTreeSet;
use std::io::stdin;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use mesh_abi::caller::{Ctx, Plugin};
use mesh_abi::logger;

use super::algorithms::Task;
use super::bench;
use super::connect::{Connections, Wishes, close_all, connect_all};
use super::content::Areas;
use super::counters::Counters;
use super::executor::{Ends, Executor, Prepared};
use super::messages::{
    CollectiveWork, FromNode, HandleMessage, NodeWork, Row, RowResult, Setup, ToNode, receive, send,
};
use super::patience::Patience;
use super::plugin_ends::{PluginIncoming, PluginOutgoing};
use super::program::Way;

/// Runs the node whose parent is at the other end of standard input; the hidden command `nccl-mesh sim node`.
#[must_use]
pub fn run_node() -> ExitCode {
    let stream = match stdin().as_fd().try_clone_to_owned() {
        Ok(owned) => UnixStream::from(owned),
        Err(error) => {
            eprintln!("a node is started by `nccl-mesh sim run` or `bench` only: {error}");
            return ExitCode::FAILURE;
        }
    };
    let parent = match Parent::over(stream) {
        Ok(parent) => parent,
        Err(error) => {
            eprintln!("a node is started by `nccl-mesh sim run` or `bench` only: {error}");
            return ExitCode::FAILURE;
        }
    };
    match obey(&parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            if parent.tell(&FromNode::Failed(reason.clone())).is_err() {
                eprintln!("a node is started by `nccl-mesh sim run` or `bench` only, and ends with it: {reason}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The parent's side of the conversation: messages sorted by who waits for them.
pub(super) struct Parent {
    out: Mutex<UnixStream>,
    commands: Mutex<Receiver<ToNode>>,
    handles: Mutex<Option<Receiver<HandleMessage>>>,
}

impl Parent {
    fn over(stream: UnixStream) -> std::io::Result<Self> {
        let mut reader = stream.try_clone()?;
        let (command, commands) = channel();
        let (handle, handles) = channel();
        std::thread::Builder::new().name("from parent".to_owned()).spawn(move || {
            while let Ok(Some(message)) = receive(&mut reader) {
                // A closed channel means that nobody waits for such messages any more.
                let _ = match message {
                    ToNode::Handle(message) => handle.send(message).map_err(drop),
                    other => command.send(other).map_err(drop),
                };
            }
        })?;
        Ok(Self { out: Mutex::new(stream), commands: Mutex::new(commands), handles: Mutex::new(Some(handles)) })
    }

    /// Says something to the parent.
    pub(super) fn tell(&self, message: &FromNode) -> Result<(), String> {
        let mut out = self.out.lock().map_err(|_| "a thread of this node panicked".to_owned())?;
        send(&mut *out, message).map_err(|error| format!("the parent is gone: {error}"))
    }

    /// Waits for the parent's next command.
    pub(super) fn next(&self) -> Result<ToNode, String> {
        let commands = self.commands.lock().map_err(|_| "a thread of this node panicked".to_owned())?;
        commands.recv().map_err(|_| "the parent is gone".to_owned())
    }

    /// Waits until all nodes are here.
    pub(super) fn meet(&self) -> Result<(), String> {
        self.tell(&FromNode::Meet)?;
        match self.next()? {
            ToNode::Go => Ok(()),
            other => Err(format!("expected the others to arrive, got {other:?}")),
        }
    }
}

fn obey(parent: &Parent) -> Result<(), String> {
    let ToNode::Setup(setup) = parent.next()? else { return Err("expected a set-up first".to_owned()) };
    let phase = |text: &str| parent.tell(&FromNode::Phase(text.to_owned()));
    phase("loading the plugin")?;
    let plugin = Plugin::open(&setup.plugin, setup.abi).map_err(|error| error.to_string())?;
    let plugin = Arc::new(plugin);
    let ctx = plugin.init(setup.comm_id, -1, Some(logger::to_stderr())).map_err(|error| error.to_string())?;
    let devices = plugin.devices().map_err(|error| error.to_string())?;
    if devices == 0 {
        return Err("the plugin reports no device: it refuses this host".to_owned());
    }
    for device in 0..devices {
        plugin.properties(device as i32).map_err(|error| error.to_string())?;
    }
    phase("connecting")?;
    std::thread::scope(|scope| {
        let (stand, standing) = channel();
        let (retire, retiring) = channel();
        let (its_plugin, its_setup) = (&plugin, &setup);
        let service = spawn(scope, "NCCL Service", move || {
            let connections = connect(its_plugin, ctx, its_setup, parent)?;
            // If nobody takes them, or nobody gives them back, this node has failed and ends without closing.
            if stand.send(connections).is_err() {
                return Ok(());
            }
            drop(stand);
            let Ok(connections) = retiring.recv() else { return Ok(()) };
            close_all(connections, &its_setup.names).map_err(|error| error.to_string())
        })?;
        let Ok(Connections { outgoing, incoming, order }) = standing.recv() else {
            return joined(service).and_then(|()| Err("the service thread ended early".to_owned()));
        };
        parent.tell(&FromNode::Connected)?;
        let (its_setup, counters) = (&setup, Counters::of(&plugin));
        let progress = spawn(scope, "NCCL Progress", move || match &its_setup.work {
            NodeWork::Collective(work) => {
                let executor = Executor::new(outgoing, incoming);
                Progress { executor, areas: Areas::default(), setup: its_setup, work, counters, parent }.rows()
            }
            NodeWork::Bench(work) => bench::node::points(its_setup, work, outgoing, incoming, &counters, parent),
        })?;
        let (outgoing, incoming) = joined(progress)?;
        phase("closing")?;
        // If the thread is gone it says why below.
        let _ = retire.send(Connections { outgoing, incoming, order });
        joined(service)
    })?;
    phase("finalising")?;
    plugin.finalize(ctx).map_err(|error| error.to_string())?;
    parent.tell(&FromNode::Finished)
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> Result<T, String> + Send + 'scope,
) -> Result<std::thread::ScopedJoinHandle<'scope, Result<T, String>>, String> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, work)
        .map_err(|error| format!("no thread: {error}"))
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, String>>) -> Result<T, String> {
    thread.join().unwrap_or_else(|_| Err("a thread of this node panicked".to_owned()))
}

fn task(ranks: usize, work: &CollectiveWork, bytes: usize, distance: usize) -> Task {
    let slice = work.collective.slice_bytes();
    Task { collective: work.collective, algo: work.algo, ranks, channels: work.channels, distance, bytes, slice }
}

fn connect(plugin: &Arc<Plugin>, ctx: Ctx, setup: &Setup, parent: &Parent) -> Result<Connections, String> {
    let Some(rank) = setup.rank else { return Ok(Connections::default()) };
    let (outgoing, incoming, capacity) = match &setup.work {
        NodeWork::Collective(work) => {
            // The ways of a collective do not depend on its size.
            let program = |distance: &usize| task(setup.names.len(), work, 0, *distance).program(rank);
            let programs: Vec<_> = work.distances.iter().map(program).collect();
            let all = |ways: &dyn Fn(usize) -> BTreeSet<Way>| -> Vec<Way> {
                (0..programs.len()).flat_map(ways).collect::<BTreeSet<_>>().into_iter().collect()
            };
            let outgoing = all(&|index| programs[index].outgoing());
            (outgoing, all(&|index| programs[index].incoming()), work.collective.slice_bytes())
        }
        NodeWork::Bench(work) => {
            let other = vec![Way { channel: 0, peer: 1 - rank.min(1) }];
            (other.clone(), other, work.capacity)
        }
    };
    let wishes = Wishes {
        rank,
        names: setup.names.clone(),
        outgoing,
        incoming,
        capacity,
        deadline: Instant::now() + setup.limit,
        seconds: setup.limit.as_secs(),
    };
    let handles = parent.handles.lock().ok().and_then(|mut handles| handles.take());
    let handles = handles.ok_or("connections are set up once")?;
    connect_all(plugin, ctx, &wishes, &handles, &|message| parent.tell(&FromNode::Handle(message)).is_ok())
        .map_err(|error| error.to_string())
}

/// The progress thread's work, kept between rows.
struct Progress<'a> {
    executor: Executor<PluginOutgoing, PluginIncoming>,
    areas: Areas,
    setup: &'a Setup,
    work: &'a CollectiveWork,
    counters: Counters,
    parent: &'a Parent,
}

impl Progress<'_> {
    /// Runs rows until the parent wants no more, then gives the connections back.
    fn rows(mut self) -> Result<(Ends<PluginOutgoing>, Ends<PluginIncoming>), String> {
        loop {
            match self.parent.next()? {
                ToNode::Row(row) => {
                    let result = self.row(&row)?;
                    self.parent.tell(&FromNode::Row(result))?;
                }
                ToNode::Finish => return Ok(self.executor.into_ends()),
                other => return Err(format!("expected a row, got {other:?}")),
            }
        }
    }

    fn row(&mut self, row: &Row) -> Result<RowResult, String> {
        let task = task(self.setup.names.len(), self.work, row.bytes, row.distance);
        let prepared = self.setup.rank.map(|rank| (rank, Prepared::new(task.program(rank))));
        let before = self.counters.read()?;
        let mut result = RowResult::default();
        for iteration in 0..row.warm_up + row.iterations {
            let serial = row.serial.wrapping_add(iteration as u32);
            if let Some((rank, _)) = &prepared {
                self.areas.prepare(&task, *rank, serial);
            }
            if iteration == 0 || row.meet_each_time {
                self.parent.meet()?;
            }
            let Some((rank, prepared)) = &prepared else { continue };
            let started = Instant::now();
            self.run(prepared, started)?;
            let time = started.elapsed();
            let checked = self.areas.check(&task, *rank, serial);
            result.checked_bytes += checked.bytes;
            result.wrong_bytes += checked.wrong;
            if iteration >= row.warm_up {
                result.times_us.push(time.as_secs_f64() * 1e6);
            }
        }
        // Only when all are through has everything been counted that others relay.
        self.parent.meet()?;
        result.counted = self.counters.read()?.map(|after| after.since(&before.unwrap_or_default()));
        Ok(result)
    }

    fn run(&mut self, prepared: &Prepared, started: Instant) -> Result<(), String> {
        self.executor.start(prepared).map_err(|error| error.named(&self.setup.names))?;
        let mut patience = Patience::default();
        while !self.executor.is_done() {
            let moved =
                self.executor.pass(prepared, &mut self.areas).map_err(|error| error.named(&self.setup.names))?;
            if moved {
                patience.moved();
                continue;
            }
            if !patience.wait().is_zero() && started.elapsed() >= self.setup.limit {
                let pending = self.executor.pending(|rank| self.setup.names[rank].clone());
                return Err(format!("not done within {} s: {pending}", self.setup.limit.as_secs()));
            }
        }
        Ok(())
    }
}
