//! The legs of one connection, and what both of its ends need: names for messages, counters, the watchdog, an orderly close.
//!
//! Owned by a connection, so by NCCL's progress thread, and at the end by the service thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use mesh_link::{Endpoint, Event, LinkError};
use mesh_relay::wire::{MAX_MESSAGE, Msg};

use super::NetError;
use super::node::Node;
use super::register::{About, Entered};

/// Tests without news between two looks at the clock.
const LOOKS: u32 = 4096;

/// The legs of a connection. See the module.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) node: Arc<Node>,
    /// Its place in the register.
    pub(super) entered: Entered,
    pub(super) endpoints: Vec<Endpoint>,
    /// Payload sent over the link of each lane.
    pub(super) sent: Vec<Arc<AtomicU64>>,
    /// The two ports of each lane's link; a broken socket does not know its peer any more.
    ports: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// "to" or "from".
    pub(super) way: &'static str,
    pub(super) peer: String,
    /// What the peer, or a relay, has closed the connection with.
    pub(super) closed: Option<u16>,
    /// Lanes whose ends have said that nothing follows.
    ended: u32,
    failed: Option<NetError>,
    bytes: Vec<u8>,
    looks: u32,
    still_since: Option<Instant>,
    warned: bool,
}

/// What a poll of one lane can bring up that ends the connection.
#[derive(Debug)]
pub(super) enum Fault {
    Link(usize, LinkError),
    Flow(mesh_relay::send::FlowError),
    Protocol(String),
    /// Closed by the peer, or (code not 0) by a relay.
    Closed(u16),
}

impl Lanes {
    pub(super) fn new(node: Arc<Node>, endpoints: Vec<Endpoint>, about: About) -> Self {
        let port = |a: std::io::Result<SocketAddr>| match a {
            Ok(SocketAddr::V4(a)) => *a.ip(),
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let ports: Vec<_> = endpoints.iter().map(|e| (port(e.local_addr()), port(e.peer_addr()))).collect();
        let sent = ports.iter().map(|(local, remote)| node.agent.links().of(*local, *remote)).collect();
        let (way, peer) = (if about.sends { "to" } else { "from" }, about.peer.clone());
        let entered = node.connections.enter(about, ports.clone());
        Self {
            node,
            entered,
            endpoints,
            sent,
            ports,
            way,
            peer,
            closed: None,
            ended: 0,
            failed: None,
            bytes: Vec::with_capacity(MAX_MESSAGE),
            looks: 0,
            still_since: None,
            warned: false,
        }
    }

    /// The first error, for ever after.
    pub(super) fn check(&self) -> Result<(), NetError> {
        match &self.failed {
            None => Ok(()),
            Some(e) => Err(e.clone()),
        }
    }

    /// Posts messages on the first lane, where all go that are not about one lane, as one frame. The queues are sized so that it fits; a
    /// broken lane says so when polled.
    pub(super) fn send(&mut self, messages: impl IntoIterator<Item = Msg>) -> Result<(), NetError> {
        self.bytes.clear();
        for msg in messages {
            msg.append(&mut self.bytes);
        }
        match self.endpoints[0].post_message(&self.bytes) {
            Ok(()) => Ok(()),
            Err(source) => self.post_failed(0, source),
        }
    }

    /// A close has come on a lane. In order it counts once it has come on the first, where whatever the peer said before comes too; with a
    /// code, at once.
    pub(super) fn close_came(&mut self, lane: usize, code: u16) {
        self.ended |= 1 << lane;
        if lane == 0 || code != 0 {
            self.entered.closing();
            self.closed.get_or_insert(code);
        }
    }

    /// Hands what was posted on the lanes of this set of bits to their links.
    pub(super) fn flush(&mut self, lanes: u32) {
        for (lane, endpoint) in self.endpoints.iter_mut().enumerate() {
            if lanes >> lane & 1 == 1 {
                // An error is kept, and told by the next poll.
                let _ = endpoint.flush();
            }
        }
    }

    #[cold]
    pub(super) fn post_failed(&mut self, lane: usize, source: mesh_link::PostError) -> Result<(), NetError> {
        // A lane that broke while it was posted to has a better reason than the refusal to post.
        let broken = self.endpoints[lane].poll(|_: Event<'_>| {});
        let (node, way, peer) = (self.node.name.clone(), self.way, self.peer.clone());
        match broken {
            Err(e) => self.fail_with(Fault::Link(lane, e), 0),
            Ok(_) => self.latch(NetError::Post { node, way, peer, source }),
        }
    }

    #[cold]
    fn latch(&mut self, error: NetError) -> Result<(), NetError> {
        // The first error is kept: what follows from it would only mislead.
        let first = self.failed.get_or_insert(error).clone();
        self.entered.failed(&first);
        Err(first)
    }

    /// Makes a fault the connection's end. `open`: transfers that are lost.
    #[cold]
    pub(super) fn fail_with(&mut self, fault: Fault, open: u32) -> Result<(), NetError> {
        let (node, way, peer) = (self.node.name.clone(), self.way, self.peer.clone());
        let error = match fault {
            Fault::Link(lane, source) => {
                let link =
                    self.ports.get(lane).map_or_else(|| "?".into(), |(local, remote)| format!("{local} - {remote}"));
                NetError::Leg { node, way, peer, link, source: Box::new(source), open }
            }
            Fault::Flow(source @ mesh_relay::send::FlowError::TooLarge { .. }) => {
                NetError::TooLarge { node, way, peer, source }
            }
            Fault::Flow(e) => NetError::Protocol { node, way, peer, what: e.to_string() },
            Fault::Protocol(what) => NetError::Protocol { node, way, peer, what },
            Fault::Closed(0) => NetError::Closed { node, way, peer, open },
            Fault::Closed(code) => NetError::PathBroken { code, node, way, peer, open },
        };
        self.latch(error)
    }

    /// What one poll of a lane comes to: whether it moved anything, or the connection's end. `open`: transfers that are lost with the lane.
    /// Once all lanes are polled, [`check_closed`](Self::check_closed) tells what an orderly close comes to.
    pub(super) fn polled(
        &mut self,
        lane: usize,
        fault: Option<Fault>,
        polled: Result<bool, LinkError>,
        open: u32,
    ) -> Result<bool, NetError> {
        match (fault, polled) {
            (None, Ok(moved)) => Ok(moved),
            (Some(fault), _) => self.fail_with(fault, open).map(|()| false),
            // Rails of a peer that has closed in order end one after the other, each with all of its own writes reported.
            (None, Err(LinkError::ClosedByPeer { missing: 0 })) if self.ended >> lane & 1 == 1 => Ok(false),
            (None, Err(_)) if self.closed.is_some() => self.check_closed(open).map(|()| false),
            (None, Err(e)) => self.fail_with(Fault::Link(lane, e), open).map(|()| false),
        }
    }

    /// A connection that was closed while transfers are open has lost them.
    pub(super) fn check_closed(&mut self, open: u32) -> Result<(), NetError> {
        match self.closed {
            Some(code) if open > 0 => self.fail_with(Fault::Closed(code), open),
            _ => Ok(()),
        }
    }

    /// There was progress: the watchdog starts anew.
    pub(super) fn moved(&mut self) {
        self.looks = 0;
        self.still_since = None;
        self.warned = false;
    }

    /// Nothing moved in this test. Every [`LOOKS`]th time the clock is read; when the transfer has stood still for too long, that is an
    /// error, or a warning if so set. `seq` and `what`: what it waits for, if that is for others to do.
    pub(super) fn still(&mut self, waits: impl FnOnce() -> Option<(u32, &'static str)>) -> Result<(), NetError> {
        self.looks += 1;
        if self.looks < LOOKS {
            return Ok(());
        }
        self.looks = 0;
        match waits() {
            None => {
                self.still_since = None;
                Ok(())
            }
            Some((seq, what)) => self.watch(seq, what),
        }
    }

    #[cold]
    fn watch(&mut self, seq: u32, what: &'static str) -> Result<(), NetError> {
        let now = Instant::now();
        let since = *self.still_since.get_or_insert(now);
        let stood = now.duration_since(since);
        let settings = self.node.settings;
        if stood < settings.timeout || self.warned {
            return Ok(());
        }
        let error = NetError::Stalled {
            node: self.node.name.clone(),
            way: self.way,
            peer: self.peer.clone(),
            seconds: stood.as_secs(),
            seq,
            what,
        };
        if settings.fatal_on_timeout {
            return self.latch(error);
        }
        self.warned = true;
        tracing::warn!("{error}");
        Ok(())
    }

    /// Ends the connection: tells the peer and lets the agent send what is left. Never waits. What still refers to NCCL's memory is
    /// dropped, and the peer then sees a broken leg.
    pub(super) fn close(mut self) {
        let mut rest = Vec::with_capacity(self.endpoints.len());
        for mut endpoint in self.endpoints.drain(..) {
            if endpoint.has_payload_queued() || endpoint.error().is_some() {
                endpoint.abort();
                continue;
            }
            Msg::Close { stream: 0, code: 0 }.encode(&mut self.bytes);
            if endpoint.post_message(&self.bytes).is_ok() {
                rest.push(endpoint);
            }
        }
        if !rest.is_empty() {
            self.node.agent.retire(rest);
        }
    }
}
