//! Connections: the one implementation behind all versions of NCCL's interface.
//!
//! ```text
//!   node       this process in the cluster: its ports, the agent
//!   way        the way of a new connection
//!   whole      the node without NCCL: the daemon, and a look at the mesh
//!   mesh       what it knows of the others: a file, what is found, or both
//!   identity   its name and id      job   the job it belongs to
//!   devices    the RDMA devices behind its ports
//!   watch      what is said once at the start of a job
//!   handle     the 128 bytes from a receiver to its sender
//!   lanes      the legs of one connection; errors, watchdog, close
//!   send, recv the two ends over real legs
//!   report     counters as JSON
//!   register   the connections that there are
//!   status     what this process sees now, for whoever asks      ask    asking all processes of a node      json   rows of both
//!   error      every failure, with code and remedy
//! ```
//!
//! Everything returns at once. Listening, connecting and accepting only exchange notes with the agent's thread; data are posted and
//! polled by the caller (NCCL's progress thread). Errors stay with their connection.

pub mod ask;
mod devices;
mod error;
mod handle;
mod identity;
mod job;
mod json;
mod lanes;
mod mesh;
mod node;
mod recv;
mod register;
mod report;
mod send;
mod status;
mod watch;
mod way;
pub mod whole;
mod window;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mesh_abi::HANDLE_BYTES;
use mesh_link::Window;
use mesh_link::endpoint::Backend;
use mesh_relay::agent::{Connecting, Listening};
use mesh_relay::engine::ConnectRequest;

pub(crate) use error::NetError;
use handle::Handle;
use node::Node;
pub(crate) use recv::RecvConn;
pub(crate) use report::{at_exit, snapshot};
pub(crate) use send::SendConn;

use crate::plugin::{Pinned, Properties};

/// A listener and the time since when somebody has been waiting for a connection.
#[derive(Debug)]
pub(crate) struct Listen {
    node: Arc<Node>,
    listening: Listening,
    since: Mutex<Option<Instant>>,
    /// A connection whose last words of the set-up have not left yet.
    settling: Mutex<Option<Box<RecvConn>>>,
}

/// A connection being set up, between two calls of `connect`.
#[derive(Debug)]
struct Pending {
    node: Arc<Node>,
    handle: Handle,
    since: Instant,
    polled: Instant,
    way: Option<OnTheWay>,
}

/// A connection whose way is known.
#[derive(Debug)]
struct OnTheWay {
    connecting: Connecting,
    peer: String,
    route: String,
    weights: Vec<u32>,
}

static PENDING: Mutex<Option<HashMap<u64, Pending>>> = Mutex::new(None);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Without a question for so long, a connection being set up is given up when a communicator ends.
const ABANDONED: Duration = Duration::from_secs(5);

/// Longest that a connection waits for the view to settle.
const SETTLES: Duration = Duration::from_secs(2);

/// A neighbour that runs shows by its beacons in a fraction of this.
const NEIGHBOUR_SHOWS: Duration = Duration::from_secs(2);

/// A connection that is being set up, for status.
#[derive(Debug)]
struct Begun {
    peer: String,
    /// `None` while none is known.
    route: Option<String>,
    waited: Duration,
}

/// The connections that are being set up from here, oldest first.
fn begun(node: &Node) -> Vec<Begun> {
    let guard = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let all = guard.iter().flatten();
    let mut all: Vec<_> =
        all.map(|(id, p)| (*id, p.handle.clone(), p.way.as_ref().map(|way| way.route.clone()), p.since)).collect();
    // Names are looked up once others may go on.
    drop(guard);
    all.sort_by_key(|(id, ..)| *id);
    let told = |(_, handle, route, since): (u64, Handle, Option<String>, Instant)| Begun {
        peer: node.name_of(&handle),
        route,
        waited: since.elapsed(),
    };
    all.into_iter().map(told).collect()
}

/// A communicator begins: starts this node if it does not run yet.
///
/// Trunks are shared by all communicators, so all have the traffic class of the first.
pub(crate) fn init(_comm_id: u64, traffic_class: i32) -> Result<(), NetError> {
    let node = node::start(u8::try_from(traffic_class).ok())?;
    report::start(&node);
    crate::plugin::drain_at_exit();
    Ok(())
}

/// A communicator ends. The node stays: others may relay through it until the process exits.
pub(crate) fn finalize() {
    // NCCL drops connections that are being set up without a word when a communicator is aborted; while it wants one it asks
    // all the time.
    let mut guard = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pending) = guard.as_mut() {
        pending.retain(|_, p| p.polled.elapsed() < ABANDONED);
    }
    drop(guard);
    report::write_now();
}

/// One, whatever the number of ports: the port is chosen by peer.
pub(crate) fn devices() -> usize {
    usize::from(node::get().is_some())
}

pub(crate) fn properties() -> Properties {
    let node = node::get();
    Properties {
        pci_path: None,
        guid: node.as_ref().map_or(0, |n| n.key),
        speed_mbps: node.as_ref().map_or(0, |n| n.speed_mbps()),
        latency_us: 0.0,
    }
}

/// Makes memory known to the NICs; the answer is to be kept as long as the memory is used. Over TCP there is nothing to do. May take
/// milliseconds.
pub(crate) fn pin(window: Window) -> Result<Pinned, NetError> {
    let Some(node) = node::get() else { return Ok(None) };
    match node.backend() {
        Backend::Verbs(devices, _) if !window.is_empty() => match devices.register(window) {
            Ok(registration) => Ok(Some(Box::new(registration))),
            Err(e) => Err(NetError::Pin { node: node.name.clone(), why: e.to_string() }),
        },
        _ => Ok(None),
    }
}

pub(crate) fn listen() -> Result<(Box<Listen>, [u8; HANDLE_BYTES]), NetError> {
    let node = node::start(None)?;
    let token = random();
    let handle = node.handle(token).encode();
    let listening = node.agent.listen(token);
    Ok((Box::new(Listen { node, listening, since: Mutex::new(None), settling: Mutex::new(None) }), handle))
}

pub(crate) fn connect(bytes: &mut [u8; HANDLE_BYTES]) -> Result<Option<Box<SendConn>>, NetError> {
    let known = Handle::pending(bytes);
    let mut guard = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let pending = guard.get_or_insert_default();
    if !pending.contains_key(&known) {
        let id = begin(bytes, pending)?;
        Handle::set_pending(bytes, id);
        return Ok(None);
    }
    let Some(p) = pending.get_mut(&known) else { return Ok(None) };
    p.polled = Instant::now();
    let outcome = match &mut p.way {
        Some(way) => way.connecting.poll(),
        None => match p.set_out() {
            Ok(()) => None,
            Err(e) => {
                pending.remove(&known);
                Handle::set_pending(bytes, 0);
                return Err(e);
            }
        },
    };
    let Some(outcome) = outcome else { return Ok(None) };
    let Some(Pending { node, way: Some(way), .. }) = pending.remove(&known) else { return Ok(None) };
    Handle::set_pending(bytes, 0);
    match outcome {
        Ok(out) => SendConn::new(node, out, &way.weights, way.peer, way.route).map(|conn| Some(Box::new(conn))),
        Err(why) => {
            let (code, text) = (why.code, why.text);
            Err(NetError::Connect { code, text, node: node.name.clone(), peer: way.peer, route: way.route })
        }
    }
}

fn begin(bytes: &[u8; HANDLE_BYTES], pending: &mut HashMap<u64, Pending>) -> Result<u64, NetError> {
    let node = node::start(None)?;
    let handle = Handle::decode(bytes)?;
    let now = Instant::now();
    node.suits(&handle)?;
    let mut fresh = Pending { node, handle, since: now, polled: now, way: None };
    fresh.set_out()?;
    // Relaxed: only uniqueness matters.
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    pending.insert(id, fresh);
    Ok(id)
}

impl Pending {
    /// Sets out, if the way is known. While the nodes are still finding one another it may not be; a neighbour is then looked for by its
    /// subnet after a moment, everybody else until the time for a connection is up.
    fn set_out(&mut self) -> Result<(), NetError> {
        let node = &self.node;
        let waited = self.since.elapsed();
        let limit = node.settings.connect_timeout;
        match node.knowledge.broken() {
            None => return Ok(()),
            Some(Some(how)) => return Err(NetError::Differs { node: node.name.clone(), how: how.to_owned() }),
            Some(None) => {}
        }
        if node.knowledge.grows() && waited < SETTLES {
            return Ok(());
        }
        let patient = waited < limit && !(waited > NEIGHBOUR_SHOWS && node.is_neighbour(&self.handle));
        let Some(way) = node.way_to(&self.handle, patient)? else { return Ok(()) };
        let peer = node.name_of(&self.handle);
        let request = ConnectRequest {
            request: 0,
            conn: random(),
            token: self.handle.token,
            lanes: way.lanes,
            budget: limit.saturating_sub(waited).max(Duration::from_secs(1)).as_nanos() as u64,
            peer: peer.clone(),
        };
        let connecting = node.agent.connect(request);
        tracing::info!("node {}: connecting to {peer} by {}", node.name, way.text);
        self.way = Some(OnTheWay { connecting, peer, route: way.text, weights: way.weights });
        Ok(())
    }
}

pub(crate) fn accept(listen: &Listen) -> Result<Option<Box<RecvConn>>, NetError> {
    let mut settling = listen.settling.lock().unwrap_or_else(PoisonError::into_inner);
    if settling.is_none()
        && let Some(incoming) = listen.listening.poll()
    {
        *settling = Some(Box::new(RecvConn::new(Arc::clone(&listen.node), incoming)?));
    }
    if let Some(mut conn) = settling.take() {
        // Nobody but us polls its legs now, and until the sender has had our answer it does not count as connected there.
        if conn.settled()? {
            return Ok(Some(conn));
        }
        *settling = Some(conn);
        return Ok(None);
    }
    let mut since = listen.since.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = since.get_or_insert_with(Instant::now).elapsed();
    let limit = listen.node.settings.accept_timeout;
    if waited > limit {
        return Err(NetError::AcceptTimeout { node: listen.node.name.clone(), seconds: limit.as_secs() });
    }
    Ok(None)
}

pub(crate) fn close_listen(listen: Box<Listen>) {
    drop(listen);
}

/// At the end of the process: goes on relaying while others need it, at most for the set time. **Waits.**
pub(crate) fn drain() {
    if let Some(node) = node::get() {
        let limit: Duration = node.settings.drain;
        if !limit.is_zero() && !node.agent.drain(limit) {
            tracing::warn!(
                "mesh[W45] node {}: this process ends while others still relay through it; their paths break (limit: NCCL_MESH_DRAIN_MS)",
                node.name
            );
        }
    }
}

/// Sixteen random bytes from the kernel; names that nobody can guess and nobody else draws.
fn random() -> [u8; 16] {
    use std::io::Read;
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
    if read.is_err() {
        // Without the device: the standard library's own source, seeded by the kernel's system call.
        use std::hash::{BuildHasher, Hasher};
        for half in bytes.chunks_exact_mut(8) {
            let hash = std::hash::RandomState::new().build_hasher().finish();
            half.copy_from_slice(&hash.to_le_bytes());
        }
    }
    bytes
}
