//! The service thread: sets up and closes connections as NCCL's does.
//!
//! One thread polls everything that is pending by turns and never waits for one alone, so ranks that are each other's senders
//! and receivers cannot block each other.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use mesh_abi::HANDLE_BYTES;
use mesh_abi::caller::{CallError, Ctx, ListenComm, Plugin};
use thiserror::Error;

use super::messages::HandleMessage;
use super::plugin_ends::{PluginIncoming, PluginOutgoing};
use super::program::Way;

/// Why connections do not stand.
#[derive(Debug, Error)]
pub(super) enum ConnectError {
    #[error("{stage} {direction} {peer} on channel {channel}: {source}")]
    Plugin { stage: &'static str, direction: &'static str, peer: String, channel: usize, source: CallError },
    #[error("no connection within {seconds} s: {pending}")]
    TimedOut { seconds: u64, pending: String },
    #[error("the parent is gone")]
    ParentGone,
}

/// What to connect, in NCCL's order: receivers listen first.
#[derive(Debug)]
pub(super) struct Wishes {
    pub(super) rank: usize,
    pub(super) names: Vec<String>,
    pub(super) outgoing: Vec<Way>,
    pub(super) incoming: Vec<Way>,
    /// Most bytes of a message.
    pub(super) capacity: usize,
    pub(super) deadline: Instant,
    /// The whole time allowed, for the message.
    pub(super) seconds: u64,
}

/// The connections of a rank in the order in which they came to stand.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) outgoing: Vec<(Way, PluginOutgoing)>,
    pub(super) incoming: Vec<(Way, PluginIncoming)>,
    /// Which were made when: `true` for outgoing.
    pub(super) order: Vec<(bool, Way)>,
}

/// Sets up everything wished for. `publish` sends a handle on its way, `handles` brings those for this rank.
pub(super) fn connect_all(
    plugin: &Arc<Plugin>,
    ctx: Ctx,
    wishes: &Wishes,
    handles: &Receiver<HandleMessage>,
    publish: &dyn Fn(HandleMessage) -> bool,
) -> Result<Connections, ConnectError> {
    let failed = |stage, direction, way: Way| {
        let peer = wishes.names[way.peer].clone();
        move |source| ConnectError::Plugin { stage, direction, peer, channel: way.channel, source }
    };
    let mut listening: Vec<(Way, ListenComm)> = Vec::new();
    for way in &wishes.incoming {
        let mut handle = [0; HANDLE_BYTES];
        let listen = plugin.listen(ctx, 0, &mut handle).map_err(failed("listening", "for", *way))?;
        listening.push((*way, listen));
        let message = HandleMessage { channel: way.channel, from: way.peer, to: wishes.rank, handle: handle.to_vec() };
        if !publish(message) {
            return Err(ConnectError::ParentGone);
        }
    }
    let mut waiting: Vec<Way> = wishes.outgoing.clone();
    let mut connecting: HashMap<Way, [u8; HANDLE_BYTES]> = HashMap::new();
    let mut connections = Connections::default();
    while !(listening.is_empty() && waiting.is_empty()) {
        while let Ok(message) = handles.try_recv() {
            let way = Way { channel: message.channel, peer: message.to };
            if let Ok(handle) = message.handle.try_into() {
                connecting.insert(way, handle);
            }
        }
        let mut index = 0;
        while index < waiting.len() {
            let way = waiting[index];
            let comm = match connecting.get_mut(&way) {
                Some(handle) => plugin.connect(ctx, 0, handle).map_err(failed("connecting", "to", way))?,
                None => None,
            };
            let Some(comm) = comm else {
                index += 1;
                continue;
            };
            let end = PluginOutgoing::new(plugin, comm, wishes.rank, wishes.capacity).map_err(failed(
                "registering",
                "to",
                way,
            ))?;
            connections.outgoing.push((way, end));
            connections.order.push((true, way));
            waiting.remove(index);
        }
        let mut index = 0;
        while index < listening.len() {
            let way = listening[index].0;
            let comm = plugin.accept(&listening[index].1).map_err(failed("accepting", "from", way))?;
            let Some(comm) = comm else {
                index += 1;
                continue;
            };
            let (_, listen) = listening.remove(index);
            plugin.close_listen(listen).map_err(failed("closing the listener", "for", way))?;
            let end = PluginIncoming::new(plugin, comm, way.peer, wishes.capacity).map_err(failed(
                "registering",
                "from",
                way,
            ))?;
            connections.incoming.push((way, end));
            connections.order.push((false, way));
        }
        if Instant::now() >= wishes.deadline {
            let pending = pending(wishes, &waiting, &connecting, &listening);
            return Err(ConnectError::TimedOut { seconds: wishes.seconds, pending });
        }
        std::thread::yield_now();
    }
    Ok(connections)
}

/// What is missing, for people.
fn pending(
    wishes: &Wishes,
    waiting: &[Way],
    connecting: &HashMap<Way, [u8; HANDLE_BYTES]>,
    listening: &[(Way, ListenComm)],
) -> String {
    let name = |way: &Way| format!("{} channel {}", wishes.names[way.peer], way.channel);
    let mut missing = Vec::new();
    for way in waiting {
        let reason = if connecting.contains_key(way) { "connect is pending" } else { "it sent no handle" };
        missing.push(format!("to {} ({reason})", name(way)));
    }
    for (way, _) in listening {
        missing.push(format!("from {} (accept is pending)", name(way)));
    }
    missing.join(", ")
}

/// Closes everything in the order in which it was made.
pub(super) fn close_all(mut connections: Connections, names: &[String]) -> Result<(), ConnectError> {
    let failed = |direction, way: Way| {
        let peer = names[way.peer].clone();
        move |source| ConnectError::Plugin { stage: "closing", direction, peer, channel: way.channel, source }
    };
    for (outgoing, way) in connections.order {
        if outgoing {
            if let Some(at) = connections.outgoing.iter().position(|(other, _)| *other == way) {
                connections.outgoing.remove(at).1.close().map_err(failed("to", way))?;
            }
        } else if let Some(at) = connections.incoming.iter().position(|(other, _)| *other == way) {
            connections.incoming.remove(at).1.close().map_err(failed("from", way))?;
        }
    }
    Ok(())
}
