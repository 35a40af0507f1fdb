//! The agent's loop: wait, poll endpoints (`polling`), feed the engine, carry out its actions (`act`). No decision is made here.
//!
//! Runs on the thread `mesh-relay` alone. Per chunk: no lock, allocation or log, and no clock reading but one a batch that a leg brings;
//! system calls are the endpoints' own. Queue pairs are polled in every round, those that have been quiet for long in every few; sockets
//! show in the poller, which is asked in every round if the links are sockets, else now and then. After `spin` without anything to do the
//! thread arms the queue pairs, if there are any, and sleeps in the poller until an endpoint, a command or a deadline wakes it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use mesh_link::Endpoint;
use mesh_link::endpoint::Backend;
use mesh_link::memory::Slab;
use mesh_link::poller::{Interest, Poller, Ready};
use mesh_link::tcp::Limits;
use mesh_link::verbs::Registration;
use tracing::{info, warn};

use super::legs::{Legs, Lingering};
use super::lingering::LOOK;
use super::opening::Dialed;
use super::{AgentConfig, Command, Incoming, Outgoing, Report, Shared, cores};
use crate::engine::{Engine, LegId, Time};
use crate::wire::{MAX_MESSAGE, Refusal};

/// The poller's name for the waker.
pub(super) const WAKER: u64 = 0;
const LISTENER: u64 = 1 << 32;
pub(super) const LEG: u64 = 2 << 32;
pub(super) const DIAL: u64 = 3 << 32;
pub(super) const LINGER: u64 = 4 << 32;
const KIND: u64 = 0xffff_ffff << 32;

/// Legs on the list polled between two looks at the poller.
const ROUND: usize = 256;
/// Rounds between two looks at the poller, which is a system call, while queue pairs are polled.
const LOOKS: u32 = 32;

/// The two ports of a link, this node's first.
pub(super) type Link = (Ipv4Addr, Ipv4Addr);

pub(super) struct Runner {
    /// Queues of legs that were opened here.
    pub(super) outgoing: Limits,
    /// Queues of legs that were opened to here.
    pub(super) incoming: Limits,
    pub(super) config: AgentConfig,
    pub(super) engine: Engine,
    /// Goes before the memory does.
    _pinned: Option<Registration>,
    pub(super) slab: Slab,
    pub(super) poller: Poller,
    pub(super) listeners: Vec<(Ipv4Addr, u8, TcpListener)>,
    pub(super) shared: Arc<Shared>,
    pub(super) started: Instant,
    pub(super) legs: Legs,
    /// Legs to be polled: those that the poller found ready, or that had something to do.
    pub(super) list: VecDeque<LegId>,
    /// Legs with writes that have not been handed to their links, and legs with messages.
    pub(super) written: Vec<LegId>,
    pub(super) spoken: Vec<LegId>,
    /// Whether arrivals show on no descriptor.
    pub(super) silent: bool,
    pub(super) dials: HashMap<u32, Dialed>,
    pub(super) next_dial: u32,
    pub(super) lingering: HashMap<u32, Lingering>,
    pub(super) next_linger: u32,
    pub(super) connects: HashMap<u64, Arc<ArrayQueue<Result<Outgoing, Refusal>>>>,
    pub(super) accepts: HashMap<u64, Arc<ArrayQueue<Incoming>>>,
    pub(super) bytes: Vec<u8>,
    /// What was said of a link, by code: it is not said again.
    pub(super) told: HashSet<(Link, u16)>,
    /// Why no leg stands over a link, as far as it is this node's own trouble.
    pub(super) reasons: HashMap<Link, String>,
    /// What was last said of a stranger: one that comes again and again is said once.
    pub(super) strangers: HashMap<Ipv4Addr, String>,
    stop: bool,
}

impl Runner {
    pub(super) fn new(
        config: AgentConfig,
        engine: Engine,
        (slab, pinned): (Slab, Option<Registration>),
        poller: Poller,
        listeners: Vec<(Ipv4Addr, u8, TcpListener)>,
        shared: Arc<Shared>,
    ) -> std::io::Result<Self> {
        for (n, (_, _, listener)) in listeners.iter().enumerate() {
            poller.add(listener.as_raw_fd(), LISTENER | n as u64, Interest::READ)?;
        }
        // Chunks and messages' payload leave by legs that were opened here; clear-to-sends, credits and acknowledgements by the others.
        let silent = matches!(config.backend, Backend::Verbs(..));
        let slots = usize::from(config.engine.trunk_slots) * usize::from(config.engine.classes);
        let outgoing = Limits { writes: slots.max(64), messages: 32, exposures: 1, staging: 8 << 10, ..config.limits };
        let incoming = Limits { writes: 1, messages: 160, exposures: 64, ..config.limits };
        Ok(Self {
            outgoing,
            incoming,
            config,
            engine,
            _pinned: pinned,
            slab,
            poller,
            listeners,
            shared,
            started: Instant::now(),
            legs: Legs::default(),
            list: VecDeque::with_capacity(256),
            written: Vec::with_capacity(256),
            spoken: Vec::with_capacity(256),
            silent,
            dials: HashMap::new(),
            next_dial: 0,
            lingering: HashMap::new(),
            next_linger: 0,
            connects: HashMap::new(),
            accepts: HashMap::new(),
            bytes: Vec::with_capacity(MAX_MESSAGE),
            told: HashSet::new(),
            reasons: HashMap::new(),
            strangers: HashMap::new(),
            stop: false,
        })
    }

    pub(super) fn run(mut self) {
        let chosen = cores::choose(&self.config.core, self.config.engine.node);
        info!(
            "relay thread of {} on {}; slots {} x {} KiB = {} MiB",
            self.config.engine.name,
            chosen.why,
            self.config.engine.pool_slots,
            self.config.engine.stride() >> 10,
            (u64::from(self.config.engine.pool_slots) * u64::from(self.config.engine.stride())) >> 20,
        );
        let shared = Arc::clone(&self.shared);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.turn(chosen.yields)));
        // Release: pairs with the acquire in `Agent::alive`; whoever sees the flag sees all that was done before.
        shared.ended.store(true, Ordering::Release);
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(e)) => warn!("mesh[E83] node {}: the relay thread ends: {e}", shared.node),
            Err(_) => {
                warn!("mesh[E83] node {}: the relay thread has failed; all its connections are lost", shared.node)
            }
        }
    }

    /// `yields`: others want this core, so a round that found nothing gives it away.
    fn turn(&mut self, yields: bool) -> std::io::Result<()> {
        let mut ready = [Ready::default(); 64];
        let mut busy_until = Instant::now();
        let (mut round, mut worked, mut spinning) = (0_u32, false, false);
        while !self.stop {
            round = round.wrapping_add(1);
            if !(self.silent && spinning) || round.is_multiple_of(LOOKS) {
                let clock = Instant::now();
                if std::mem::take(&mut worked) {
                    busy_until = clock + self.config.spin;
                }
                spinning = clock < busy_until;
                let mut rest = !spinning && self.list.is_empty();
                if rest && self.silent {
                    worked = self.arm_silent();
                    rest = !worked;
                }
                let timeout = if rest { self.patience(clock) } else { Some(Duration::ZERO) };
                let n = self.poller.wait(&mut ready, timeout)?;
                let now = self.time(Instant::now());
                for r in &ready[..n] {
                    self.on_ready(now, r.token);
                }
                worked |= n > 0;
                self.engine.on_time(now);
                self.carry_out(now);
                self.expire(now);
            }
            let mut any = false;
            for _ in 0..ROUND {
                let Some(leg) = self.list.pop_front() else { break };
                any |= self.poll_leg(leg);
            }
            if self.silent {
                any |= self.poll_silent(round);
            }
            worked |= any;
            if yields && !any {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    pub(super) fn unwatch(&self, endpoint: &Endpoint) {
        unwatch(&self.poller, endpoint);
    }

    pub(super) fn time(&self, clock: Instant) -> Time {
        clock.duration_since(self.started).as_nanos() as Time
    }

    /// How long the poller may wait.
    fn patience(&self, clock: Instant) -> Option<Duration> {
        let now = self.time(clock);
        let linger =
            self.lingering.values().map(|l| if l.endpoint.is_woken_by_itself() { l.until } else { now + LOOK }).min();
        self.engine.deadline().into_iter().chain(linger).min().map(|t| Duration::from_nanos(t.saturating_sub(now)))
    }

    fn on_ready(&mut self, now: Time, token: u64) {
        let low = (token & !KIND) as u32;
        match token & KIND {
            LISTENER => self.accept(now, low as usize),
            LEG => {
                if let Some(leg) = self.legs.get(LegId(low)) {
                    leg.armed = false;
                    leg.endpoint.on_ready();
                }
                self.enlist(LegId(low));
            }
            DIAL => self.dialed(now, low),
            LINGER => {
                if let Some(l) = self.lingering.get_mut(&low) {
                    l.endpoint.on_ready();
                }
                self.linger_on(low);
            }
            _ => {
                self.shared.waker.clear();
                while let Some(command) = self.shared.commands.pop() {
                    self.command(now, command);
                    self.carry_out(now);
                }
            }
        }
    }

    fn command(&mut self, now: Time, command: Command) {
        match command {
            Command::Connect(request, mailbox) => {
                self.connects.insert(request.request, mailbox);
                self.engine.connect(now, request);
            }
            Command::Cancel(id) => {
                self.connects.remove(&id);
                self.engine.cancel(id);
            }
            Command::Listen(token, id, mailbox) => {
                self.accepts.insert(id, mailbox);
                self.engine.listen(token, id);
            }
            Command::Unlisten(token, id) => {
                self.engine.unlisten(&token);
                if let Some(mailbox) = self.accepts.remove(&id) {
                    // Connections that nobody has fetched.
                    while let Some(incoming) = mailbox.pop() {
                        for lane in incoming.lanes {
                            self.linger(now, lane);
                        }
                    }
                }
            }
            Command::Retire(lanes) => {
                for lane in lanes {
                    self.linger(now, lane);
                }
            }
            Command::Report(mailbox) => {
                // The mailbox has room for one, and one is asked for.
                let _ = mailbox.push(self.report());
            }
            Command::Serve(listeners) => {
                for listener in listeners.each {
                    let token = LISTENER | self.listeners.len() as u64;
                    if let Err(e) = self.poller.add(listener.2.as_raw_fd(), token, Interest::READ) {
                        warn!("mesh[E83] node {}: listening on {}: {e}", self.shared.node, listener.0);
                    }
                    self.listeners.push(listener);
                }
            }
            Command::Stop => self.stop = true,
        }
    }

    fn report(&self) -> Report {
        let stats = self.engine.stats();
        Report {
            forwarded_bytes: stats.forwarded_bytes,
            forwarded_chunks: stats.forwarded_chunks,
            residence_ns: [
                stats.residence.value_at_quantile(0.5),
                stats.residence.value_at_quantile(0.99),
                stats.residence.value_at_quantile(0.999),
                stats.residence.max(),
            ],
            queue: [stats.queue.value_at_quantile(0.5), stats.queue.value_at_quantile(0.99), stats.queue.max()],
            streams: self.engine.streams(),
            lingering: self.lingering.len(),
            pool: self.engine.pool_use(),
            links: self.shared.links.read(),
            trunks: self.engine.trunks(),
        }
    }
}

/// Adds an endpoint's descriptors to the poller.
pub(super) fn watch(poller: &Poller, endpoint: &Endpoint, token: u64, interest: Interest) -> std::io::Result<()> {
    poller.add(endpoint.fd(), token, interest)?;
    endpoint.completion_fd().map_or(Ok(()), |fd| poller.add(fd, token, Interest::READ))
}

/// Takes them out; one that has left by its own error is gone already.
pub(super) fn unwatch(poller: &Poller, endpoint: &Endpoint) {
    let _ = poller.remove(endpoint.fd());
    if let Some(fd) = endpoint.completion_fd() {
        let _ = poller.remove(fd);
    }
}
