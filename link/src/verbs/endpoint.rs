//! One end of a link over a reliable-connected queue pair.
//!
//! Made from a connected stream between the two ports of the link: the stream carries the handshake, and stays open as the sign that the peer
//! lives. Ties the sending and the receiving half to the queue pair and keeps the error. Knows nothing of nodes or routes. Runs on whichever
//! thread owns the endpoint, one at a time; nothing waits. Nothing is allocated after construction, except that memory which nobody
//! registered is registered for each use.

mod progress;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::cq::Cq;
use super::device::{DeviceSet, Place};
use super::handshake::Hello;
use super::limits::{VerbsError, VerbsLimits};
use super::mr::{DeviceRegistration, Mr};
use super::port::Gid;
use super::qp::{Depths, Path, Qp};
use super::receive::Receiver;
use super::regions::Regions;
use super::send::{PeerMemory, Sender};
use super::stream::Stream;
use super::sys;
use crate::memory::Slab;
use crate::tcp::{Counters, Limits, prepare};
use crate::{BOARD, Event, Key, LinkError, PostError, Target, WRITE_HEADER, Window};

/// Where the board is in the memory that the peer may write; in the first slot are the words for credits and needs.
const BOARD_SLOT: usize = 1;
/// The word for credits: receives that the peer has posted again.
const CREDITS: usize = 0;
/// The word for needs: the peer sleeps until more receives than one less than this were posted again. The stream says so too, for an end
/// that sleeps itself; an end that polls need not look there.
const NEEDS: usize = 8;

/// Completions taken at once.
const BATCH: usize = 16;
/// Polls between two looks at the stream, each a system call. Who waits for a descriptor looks when it is ready.
const STREAM: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer's hello has not come.
    Greeting,
    /// The queue pair is connected; the peer's may not be.
    Connecting,
    Open,
}

#[derive(Debug)]
struct Exposure {
    key: Key,
    _temporary: Option<DeviceRegistration>,
}

/// One end of a link over verbs. See [`TcpEndpoint`](crate::tcp::TcpEndpoint) for the calls that both share.
#[derive(Debug)]
pub struct VerbsEndpoint {
    // First, so that the NIC has let go before memory is given back.
    qp: Qp,
    stream: Stream,
    sender: Sender,
    receiver: Receiver,
    regions: Regions,
    exposures: Vec<Exposure>,
    exposure_limit: usize,
    phase: Phase,
    set: DeviceSet,
    path: Path,
    local: std::net::Ipv4Addr,
    remote: SocketAddr,
    local_gid: Gid,
    max_message: u32,
    /// MTU of this end's port, and of the peer's once it is known.
    mtu: (u32, Option<u32>),
    /// The peer's words.
    peer_words: PeerMemory,
    /// The need that was last seen in our word.
    need_seen: u64,
    /// The peer sleeps until more receives than this were posted again.
    peer_needs: Option<u64>,
    /// What the peer was told that is needed here.
    need_said: Option<u64>,
    bye: Option<u64>,
    bye_said: bool,
    ended: bool,
    armed: bool,
    /// The next poll looks at the descriptors.
    ready: bool,
    polls: u32,
    poll_frames: usize,
    completions: Box<[sys::Wc; BATCH]>,
    send_error: Option<LinkError>,
    failed: Option<LinkError>,
    closing: bool,
    /// Regions of this endpoint's own, and their memory, given back in this order.
    _own: Mr,
    credit_word: Mr,
    own_memory: Slab,
    credit_memory: Slab,
}

impl VerbsEndpoint {
    /// An endpoint over a connected stream between two addresses of ports, this one among the set's. Looks the port's GID up anew, and
    /// returns without waiting for the peer: what is posted before it has answered is queued. Takes about a millisecond, most of it for
    /// making the queue pair and registering its memory.
    pub fn new(stream: TcpStream, limits: Limits, verbs: VerbsLimits, set: &DeviceSet) -> Result<Self, VerbsError> {
        verbs.check()?;
        prepare(&stream, &limits)?;
        let (local_addr, remote) = (stream.local_addr()?, stream.peer_addr()?);
        let (IpAddr::V4(local), IpAddr::V4(_)) = (local_addr.ip(), remote.ip()) else {
            return Err(VerbsError::Addresses { local: local_addr, remote });
        };
        let Place { device, port, entry } = set.place(local)?;
        let context = &device.context;
        let call = |call| {
            let device = context.name.clone();
            move |source| VerbsError::Call { call, device, source }
        };
        let (writes, messages) = (limits.writes.max(1), limits.messages.max(1));
        let depth = Sender::depth(writes, messages).min(usize::try_from(context.attr.max_qp_wr).unwrap_or(usize::MAX));
        let capacity = depth as u32 + verbs.receives;
        let cq = Cq::new(Arc::clone(context), capacity).map_err(|(what, source)| call(what)(source))?;
        let depths = Depths { sends: depth as u32, receives: verbs.receives, inline: verbs.inline };
        let mut qp = Qp::new(Arc::clone(&device.pd), cq, depths).map_err(call("ibv_create_qp"))?;
        qp.init(port.port).map_err(call("ibv_modify_qp to INIT"))?;

        let sending = Sender::memory(writes, messages).next_multiple_of(64);
        let own_memory = Slab::new(1, sending + Receiver::memory(verbs.receives))?;
        // A page of its own: all that the peer may write without having been given a key by the layers above.
        let credit_memory = Slab::new(2, BOARD)?;
        let own = Mr::own(&device.pd, own_memory.whole(), false)?;
        let credit_word = Mr::own(&device.pd, credit_memory.whole(), true)?;
        let whole = own_memory.slot(0);
        // Both parts lie inside by the sum above.
        let part = |at, len| whole.sub(at, len).unwrap_or_else(Window::empty);
        let sender = Sender::new(writes, messages, depth, part(0, sending), own.lkey, qp.inline);
        let mut receiver = Receiver::new(verbs.receives, part(sending, Receiver::memory(verbs.receives)), own.lkey);
        receiver.post_all(&mut qp).map_err(call("ibv_post_recv"))?;

        let local_psn = first_psn(qp.number);
        let max_message = port.max_message.min(verbs.longest);
        let hello = Hello {
            qpn: qp.number,
            psn: local_psn,
            mtu: port.mtu,
            gid: entry.gid,
            receives: verbs.receives,
            max_message,
            credit_addr: credit_memory.slot(0).addr() as u64,
            credit_rkey: credit_word.rkey,
        };
        let path = Path {
            port: port.port,
            gid_index: entry.index,
            remote_gid: Gid([0; 16]),
            remote_qpn: 0,
            mtu: port.mtu,
            local_psn,
            remote_psn: 0,
            timeout: verbs.timeout,
            retries: verbs.retries,
            rnr_retries: verbs.rnr_retries,
            traffic_class: verbs.traffic_class,
            service_level: verbs.service_level,
        };
        let mut endpoint = Self {
            qp,
            stream: Stream::new(stream, &hello),
            sender,
            receiver,
            regions: Regions::new(Arc::clone(&device.regions)),
            exposures: Vec::with_capacity(limits.exposures),
            exposure_limit: limits.exposures,
            phase: Phase::Greeting,
            set: set.clone(),
            path,
            local,
            remote,
            local_gid: entry.gid,
            max_message,
            mtu: (port.mtu, None),
            peer_words: PeerMemory { addr: 0, rkey: 0 },
            need_seen: 0,
            peer_needs: None,
            need_said: None,
            bye: None,
            bye_said: false,
            ended: false,
            armed: false,
            ready: false,
            polls: 0,
            poll_frames: limits.poll_frames.max(1),
            completions: Box::new([sys::Wc::default(); BATCH]),
            send_error: None,
            failed: None,
            closing: false,
            _own: own,
            credit_word,
            own_memory,
            credit_memory,
        };
        // An error is kept and returned by the next poll.
        let _ = endpoint.flush();
        Ok(endpoint)
    }

    /// Lets the peer write `window`, until the key is withdrawn; returns the key and what to add to offsets in the window. Windows inside
    /// one registered region have the same key.
    pub fn expose(&mut self, window: Window) -> Result<(Key, u64), PostError> {
        if self.failed.is_some() {
            return Err(PostError::Broken);
        }
        if self.exposures.len() >= self.exposure_limit {
            return Err(PostError::QueueFull);
        }
        let (key, base, temporary) = if window.is_empty() {
            // A write of no bytes still names a key.
            (self.credit_word.rkey, self.credit_memory.slot(0).addr(), None)
        } else {
            let found = self.regions.find(&window).map_err(|_| PostError::NotRegistered { len: window.len() })?;
            (found.rkey, window.addr(), found.temporary)
        };
        let key = Key::from_raw(key);
        self.exposures.push(Exposure { key, _temporary: temporary });
        Ok((key, base as u64))
    }

    /// Takes a window back that the peer has no more business in: it has notified all that it was allowed to write. A NIC does not check
    /// that again; [`revoke`](Self::revoke) is for windows that may still be written. Whether the key was exposed.
    pub fn withdraw(&mut self, key: Key) -> bool {
        let found = self.exposures.iter().rposition(|exposure| exposure.key == key);
        if let Some(at) = found {
            self.exposures.swap_remove(at);
        }
        found.is_some()
    }

    /// Takes a window back that the peer may be writing: no byte of it is written any more when this returns. The link is broken by it, as
    /// the queue pair is the only thing that can be stopped. Whether the key was exposed.
    pub fn revoke(&mut self, key: Key) -> bool {
        let exposed = self.exposures.iter().any(|exposure| exposure.key == key);
        if exposed {
            self.abort();
        }
        self.withdraw(key);
        exposed
    }

    /// Queues a write. As for TCP; `target.offset` is the offset in the peer's window plus the window's base.
    pub fn post_write(
        &mut self,
        id: u64,
        header: Option<&[u8; WRITE_HEADER]>,
        payload: Window,
        target: Target,
        imm: Option<u32>,
    ) -> Result<(), PostError> {
        self.may_post()?;
        self.sender.post_write(id, header, payload, target, imm, &mut self.regions)
    }

    /// Queues a message of at most [`MAX_MESSAGE`](crate::MAX_MESSAGE) bytes, ahead of all writes that the NIC does not have yet.
    pub fn post_message(&mut self, bytes: &[u8]) -> Result<(), PostError> {
        self.may_post()?;
        self.sender.post_message(bytes, None)
    }

    /// Queues a write of at most [`MAX_SMALL`](crate::MAX_SMALL) bytes at that place of the peer's [`board`](Self::board), in order with
    /// messages. Nobody is notified of it.
    pub fn post_on_board(&mut self, at: usize, bytes: &[u8]) -> Result<(), PostError> {
        self.may_post()?;
        match u16::try_from(at) {
            Ok(place) if at + bytes.len() <= BOARD => self.sender.post_message(bytes, Some(place)),
            _ => Err(PostError::TooLong { len: at.saturating_add(bytes.len()), max: BOARD }),
        }
    }

    /// The memory that the peer writes unseen: [`BOARD`] bytes, zero at first, for as long as the endpoint lives.
    pub fn board(&self) -> Window {
        self.credit_memory.slot(BOARD_SLOT)
    }

    fn may_post(&self) -> Result<(), PostError> {
        let broken = self.closing || self.send_error.is_some() || self.failed.is_some();
        if broken { Err(PostError::Broken) } else { Ok(()) }
    }

    /// Takes what has arrived, hands the NIC what may go, and reports events to `sink`. True if there was progress. As for TCP; a write is
    /// reported as written once the peer's NIC has acknowledged it.
    pub fn poll<F: FnMut(Event<'_>)>(&mut self, mut sink: F) -> Result<bool, LinkError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let result = self.poll_once(&mut sink);
        if let Err(error) = result {
            self.fail(error);
        }
        result
    }

    /// Hands the NIC what may go, without receiving. Whether anything left. [`Event::Written`] waits for the next poll.
    pub fn flush(&mut self) -> Result<bool, LinkError> {
        if let Some(error) = self.failed.or(self.send_error) {
            return Err(error);
        }
        let result = self.push();
        if let Err(error) = result {
            self.send_error = Some(error);
        }
        result
    }

    /// Before sleeping: call this, then poll once more, and sleep only if there was no progress. The descriptors that
    /// [`fd`](Self::fd) and [`completion_fd`](Self::completion_fd) name are readable as soon as there is something to poll for.
    pub fn arm(&mut self) -> Result<(), LinkError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.armed {
            self.qp.cq.arm().map_err(|e| LinkError::from_io("ibv_req_notify_cq", &e))?;
            self.armed = true;
        }
        let granted = self.sender.granted();
        if self.phase == Phase::Open && self.sender.starved && self.need_said != Some(granted) {
            self.need_said = Some(granted);
            self.stream.need = Some(granted);
            self.push_word(NEEDS, granted + 1)?;
            self.flush()?;
        }
        Ok(())
    }

    /// A descriptor was found ready: the next poll looks at it.
    pub fn on_ready(&mut self) {
        self.ready = true;
    }

    /// As for TCP. The end of the stream follows once the peer's NIC has acknowledged everything.
    pub fn shutdown_write(&mut self) {
        self.closing = true;
        // An error is kept and returned by the next poll.
        let _ = self.flush();
    }

    /// Gives the link up at once: queued writes are forgotten, the queue pair fails, no window is written any more.
    pub fn abort(&mut self) {
        if self.failed.is_none() {
            self.fail(LinkError::Aborted);
        }
    }

    fn fail(&mut self, error: LinkError) {
        self.failed = Some(error);
        // It may have failed by itself; a queue pair that cannot be told so is destroyed with the endpoint.
        let _ = self.qp.fail();
        self.sender.clear();
        self.stream.abort();
    }

    /// The final error, if there is one.
    pub fn error(&self) -> Option<LinkError> {
        self.failed
    }

    /// Whether frames, or the end of the stream, have not left yet. Unlike with TCP there is nothing to watch for writing because of it:
    /// see [`stream_wants_write`](Self::stream_wants_write).
    pub fn wants_write(&self) -> bool {
        let pending = !self.sender.is_empty() || (self.closing && !self.stream.is_shut());
        pending && self.send_error.is_none() && self.failed.is_none()
    }

    /// Whether the stream is to be watched for writing.
    pub fn stream_wants_write(&self) -> bool {
        self.stream.wants_write() && self.send_error.is_none() && self.failed.is_none()
    }

    /// Whether a write that the NIC has not reported still refers to payload memory.
    pub fn has_payload_queued(&self) -> bool {
        self.sender.has_payload()
    }

    /// Writes that the NIC has not reported.
    pub fn queued_writes(&self) -> usize {
        self.sender.queued_writes()
    }

    /// What was done so far. Frames count when handed to the NIC; of writes that came, only those that notify are seen; a system call is one
    /// of the stream's, or, outwards, a chain of requests.
    pub fn counters(&self) -> Counters {
        let (sent, received) = (&self.sender.sent, &self.receiver.received);
        Counters {
            payload_bytes_out: sent.payload_bytes,
            payload_bytes_in: received.payload_bytes,
            frames_out: sent.frames,
            frames_in: received.frames,
            messages_out: sent.messages,
            messages_in: received.messages,
            syscalls_out: sent.posts + self.stream.calls.0,
            syscalls_in: self.stream.calls.1,
        }
    }

    /// Whether the next completion shows on [`completion_fd`](Self::completion_fd). A poll without progress may have ended it: it takes the
    /// events that came late, after their completions were taken.
    pub fn is_armed(&self) -> bool {
        self.armed
    }

    /// Whether both queue pairs are connected.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// The largest packets that the ports of the two ends take, in bytes, once both are known: the smaller is used.
    pub fn mtu(&self) -> Option<(u32, u32)> {
        Some((self.mtu.0, self.mtu.1?))
    }

    /// The stream's descriptor.
    pub fn fd(&self) -> RawFd {
        self.stream.socket().as_raw_fd()
    }

    /// The descriptor that is readable when a completion came after [`arm`](Self::arm).
    pub fn completion_fd(&self) -> RawFd {
        self.qp.cq.fd()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.socket().peer_addr()
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.socket().local_addr()
    }

    /// Bytes of memory registered for the endpoint itself.
    pub fn own_memory(&self) -> usize {
        self.own_memory.whole().len() + self.credit_memory.whole().len()
    }
}

impl AsFd for VerbsEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.socket().as_fd()
    }
}

/// A sequence number that an earlier queue pair of this number hardly had.
fn first_psn(qpn: u32) -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    ((now ^ u64::from(qpn)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}
