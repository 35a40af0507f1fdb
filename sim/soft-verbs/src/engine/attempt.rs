//! One try to carry out a request: checks as the two NICs make them, the copy, and the completion at the peer.
//!
//! Any thread that holds the lock of the send queue; takes the peer's inbound lock for the whole try, so that a queue pair
//! whose owner took it to error state receives nothing any more.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Fabric;
use super::request::{Operation, Payload, Request};
use crate::abi::{self, Sge};
use crate::copying::{Span, Way, copy, probe};
use crate::process::Identity;
use crate::shared::layout::{QpCell, RegionCell};
use crate::shared::rings::{Completion, Receive};

/// How a try went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Carried out: data and the peer's completion are in place.
    Done,
    /// Refused by either side, with the sender's `IBV_WC_*` status.
    Failed(u32),
    /// Nobody answers: a port is down, the process gone, the peer's queue pair not ready, in error or another's.
    NoAnswer,
    /// The peer has no receive posted.
    NoReceive,
}

/// How long a peer that answered counts as alive for requests that move no data, ns.
const PULSE: u64 = 1_000_000;

/// Why a try ends before its end.
struct Stop(Attempt);

impl From<u32> for Stop {
    fn from(status: u32) -> Self {
        Self(Attempt::Failed(status))
    }
}

impl Fabric {
    /// Tries `request` of the queue pair `own` once. `pulse` is when the peer's process was last reached (ns).
    pub fn attempt(&self, own: &QpCell, request: &Request, now: u64, pulse: &mut u64) -> Attempt {
        let port = own.port.load(Ordering::Relaxed);
        let peer_port = own.peer_port.load(Ordering::Relaxed);
        let outcome =
            self.try_once(own, request, now, pulse, (port, peer_port)).err().map_or(Attempt::Done, |stop| stop.0);
        let counters = &self.shared.tables().ports[port as usize % crate::plan::MAX_PORTS];
        match outcome {
            Attempt::Done => {
                counters.requests.fetch_add(1, Ordering::Relaxed);
                counters.bytes.fetch_add(request.length, Ordering::Relaxed);
            }
            Attempt::NoAnswer | Attempt::NoReceive => {
                counters.waits.fetch_add(1, Ordering::Relaxed);
            }
            Attempt::Failed(_) => {}
        }
        outcome
    }

    fn try_once(
        &self,
        own: &QpCell,
        request: &Request,
        now: u64,
        pulse: &mut u64,
        (port, peer_port): (u32, u32),
    ) -> Result<(), Stop> {
        let here = self.own_spans(own, request)?;
        let number = own.peer.load(Ordering::Relaxed);
        let peer = self.shared.qp(number).ok_or(Stop(Attempt::NoAnswer))?;
        let _inbound = peer.inbound.lock();
        let ready = matches!(peer.state.load(Ordering::SeqCst), abi::IBV_QPS_RTR | abi::IBV_QPS_RTS)
            && peer.number.load(Ordering::SeqCst) == number
            && peer.peer.load(Ordering::Relaxed) == own.number.load(Ordering::Relaxed)
            && peer.port.load(Ordering::Relaxed) == peer_port
            && peer.peer_port.load(Ordering::Relaxed) == port;
        let owner = Identity::from_raw(peer.owner.load(Ordering::Relaxed));
        let passes = self.path_up(port, peer_port) && self.fits(own, request, peer_port);
        let (true, true, Some(owner)) = (ready, passes, owner) else {
            return Err(Stop(Attempt::NoAnswer));
        };
        // A copy notices by itself that the peer is gone; what copies nothing must look, now and then.
        let look = now.saturating_sub(*pulse) > PULSE;
        let gone =
            || look && probe(owner.pid(), peer.pulse.load(Ordering::Relaxed)).is_err_and(|error| is_gone(&error));
        if request.length == 0 && gone() {
            return Err(Stop(Attempt::NoAnswer));
        }
        let exchange = Exchange { fabric: self, own, peer, pid: owner.pid(), request, here: &here };
        match exchange.carry_out() {
            // It may wait for a receive for ever.
            Err(Stop(Attempt::NoReceive)) if gone() => return Err(Stop(Attempt::NoAnswer)),
            outcome => outcome?,
        }
        *pulse = now;
        Ok(())
    }

    /// Whether the request's packets are not too large for the peer's port, which drops those that are.
    fn fits(&self, own: &QpCell, request: &Request, peer_port: u32) -> bool {
        let most = self.plan.ports.get(peer_port as usize).map_or(0, |port| u64::from(port.mtu));
        request.length.min(u64::from(own.mtu.load(Ordering::Relaxed))) <= most
    }

    /// Where the data lies in this process.
    fn own_spans(&self, own: &QpCell, request: &Request) -> Result<Vec<Span>, Stop> {
        match &request.payload {
            Payload::Inline(bytes) => {
                Ok(vec![Span { address: bytes.as_ptr().expose_provenance() as u64, length: bytes.len() as u64 }])
            }
            Payload::Scattered(sges) => {
                let needs = if request.operation.fetches() { abi::IBV_ACCESS_LOCAL_WRITE } else { 0 };
                self.spans(own, sges, needs).ok_or(Stop(Attempt::Failed(abi::IBV_WC_LOC_PROT_ERR)))
            }
        }
    }

    /// Addresses of a scatter list in the memory of the owner of `pair`; none if a key does not cover it.
    fn spans(&self, pair: &QpCell, sges: &[Sge], needs: u32) -> Option<Vec<Span>> {
        let filled = sges.iter().filter(|sge| sge.length > 0);
        filled
            .map(|sge| self.place(pair, sge.lkey, sge.addr, u64::from(sge.length), needs).map(|(span, _)| span))
            .collect()
    }

    /// The memory behind a key and an address, if the key is of the pair's process and domain, grants `needs` and covers it.
    fn place(&self, pair: &QpCell, key: u32, address: u64, length: u64, needs: u32) -> Option<(Span, &RegionCell)> {
        let region = self.shared.region(key)?;
        let offset = address.checked_sub(region.iova.load(Ordering::Relaxed))?;
        let fits = offset.checked_add(length)? <= region.length.load(Ordering::Relaxed);
        let granted = region.access.load(Ordering::Relaxed) & needs == needs;
        let same = region.owner.load(Ordering::Relaxed) == pair.owner.load(Ordering::Relaxed)
            && region.domain.load(Ordering::Relaxed) == pair.domain.load(Ordering::Relaxed);
        let span = Span { address: region.address.load(Ordering::Relaxed).checked_add(offset)?, length };
        (fits && granted && same).then_some((span, region))
    }
}

/// A try that has found a peer that answers; the peer's inbound lock is held.
struct Exchange<'a> {
    fabric: &'a Fabric,
    own: &'a QpCell,
    peer: &'a QpCell,
    pid: i32,
    request: &'a Request,
    here: &'a [Span],
}

impl Exchange<'_> {
    fn carry_out(&self) -> Result<(), Stop> {
        let request = self.request;
        // What the queue pair is not set up for is no matter of keys, nor of receives.
        let needs = request.operation.needs();
        if self.peer.access.load(Ordering::Relaxed) & needs != needs {
            self.break_peer(abi::IBV_EVENT_QP_REQ_ERR);
            return Err(abi::IBV_WC_REM_INV_REQ_ERR.into());
        }
        // Only we take receives while the inbound lock is held, so what is seen here stays until it is dropped below.
        let receive = if request.operation.takes_receive() {
            Some(self.fabric.shared.peek_receive(self.peer).ok_or(Stop(Attempt::NoReceive))?)
        } else {
            None
        };
        match (request.operation, &receive) {
            (Operation::Send | Operation::SendImm, Some(receive)) => self.fill(receive)?,
            (Operation::CompareSwap | Operation::FetchAdd, _) => self.atomic()?,
            (Operation::Read, _) => self.remote_copy(Way::In)?,
            _ => self.remote_copy(Way::Out)?,
        }
        if let Some(receive) = receive {
            let opcode = match request.operation {
                Operation::WriteImm => abi::IBV_WC_RECV_RDMA_WITH_IMM,
                _ => abi::IBV_WC_RECV,
            };
            self.finish_receive(&receive, abi::IBV_WC_SUCCESS, opcode);
        }
        Ok(())
    }

    fn remote_copy(&self, way: Way) -> Result<(), Stop> {
        // As on hardware, a request without data looks at no key.
        if self.request.length == 0 {
            return Ok(());
        }
        self.with_remote(self.request.length, |span| copy(self.pid, way, self.here, &[span]))
    }

    fn with_remote(&self, length: u64, work: impl FnOnce(Span) -> io::Result<()>) -> Result<(), Stop> {
        let (peer, request) = (self.peer, self.request);
        let found = self.fabric.place(peer, request.rkey, request.remote, length, request.operation.needs());
        let Some((span, region)) = found else {
            self.break_peer(abi::IBV_EVENT_QP_ACCESS_ERR);
            return Err(abi::IBV_WC_REM_ACCESS_ERR.into());
        };
        // Deregistration takes the key away and then waits for users: whoever counted in time is waited for.
        region.users.fetch_add(1, Ordering::SeqCst);
        let result = if region.key.load(Ordering::SeqCst) == request.rkey {
            work(span).map_err(|error| self.copy_failed(&error))
        } else {
            self.break_peer(abi::IBV_EVENT_QP_ACCESS_ERR);
            Err(abi::IBV_WC_REM_ACCESS_ERR.into())
        };
        // Never below zero: the slot may have been taken anew while we were counted.
        let _ = region.users.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |users| users.checked_sub(1));
        result
    }

    /// A send: into the memory of the receive.
    fn fill(&self, receive: &Receive) -> Result<(), Stop> {
        let sges = &receive.sges[..receive.count as usize];
        let room: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
        if self.request.length > room {
            self.finish_receive(receive, abi::IBV_WC_LOC_LEN_ERR, abi::IBV_WC_RECV);
            self.break_peer(abi::IBV_EVENT_QP_REQ_ERR);
            return Err(abi::IBV_WC_REM_INV_REQ_ERR.into());
        }
        let Some(mut spans) = self.fabric.spans(self.peer, sges, abi::IBV_ACCESS_LOCAL_WRITE) else {
            self.finish_receive(receive, abi::IBV_WC_LOC_PROT_ERR, abi::IBV_WC_RECV);
            self.break_peer(abi::IBV_EVENT_QP_FATAL);
            return Err(abi::IBV_WC_REM_OP_ERR.into());
        };
        let mut left = self.request.length;
        for span in &mut spans {
            span.length = span.length.min(left);
            left -= span.length;
        }
        copy(self.pid, Way::Out, self.here, &spans).map_err(|error| self.copy_failed(&error))
    }

    /// Reads a word of the peer, changes it, and writes what it was here; other atomic operations of the fabric wait.
    fn atomic(&self) -> Result<(), Stop> {
        let request = self.request;
        if !request.remote.is_multiple_of(8) {
            self.break_peer(abi::IBV_EVENT_QP_REQ_ERR);
            return Err(abi::IBV_WC_REM_INV_REQ_ERR.into());
        }
        let _held = self.fabric.shared.tables().atomics.lock();
        let mut old = 0u64;
        let word = |value: &mut u64| Span { address: (&raw mut *value).expose_provenance() as u64, length: 8 };
        self.with_remote(8, |span| {
            copy(self.pid, Way::In, &[word(&mut old)], &[span])?;
            let mut new = match request.operation {
                Operation::CompareSwap if old == request.compare => request.swap,
                Operation::CompareSwap => old,
                _ => old.wrapping_add(request.compare),
            };
            copy(self.pid, Way::Out, &[word(&mut new)], &[span])
        })?;
        let own_pid = Identity::own().pid();
        copy(own_pid, Way::Out, &[word(&mut old)], self.here).map_err(|_| Stop::from(abi::IBV_WC_LOC_PROT_ERR))
    }

    fn finish_receive(&self, receive: &Receive, status: u32, opcode: u32) {
        self.fabric.shared.drop_receive(self.peer);
        let with_imm = self.request.operation.has_imm();
        let wc = abi::Wc {
            wr_id: receive.wr_id,
            status,
            opcode,
            byte_len: self.request.length as u32,
            imm_data: if with_imm { self.request.imm } else { 0 },
            qp_num: self.peer.number.load(Ordering::Relaxed),
            src_qp: self.own.number.load(Ordering::Relaxed),
            wc_flags: if with_imm { abi::IBV_WC_WITH_IMM } else { 0 },
            ..abi::Wc::default()
        };
        let queue = self.peer.recv_cq.load(Ordering::Relaxed);
        self.fabric.complete(queue, &Completion::new(wc, 0), self.request.solicited);
    }

    /// The peer's queue pair goes to error; its receives are flushed. Its sends are, when the owner next looks.
    fn break_peer(&self, event: u32) {
        self.peer.state.store(abi::IBV_QPS_ERR, Ordering::SeqCst);
        self.fabric.flush_receives(self.peer);
        self.fabric.pair_event(self.peer, event);
    }

    fn copy_failed(&self, error: &io::Error) -> Stop {
        if is_gone(error) {
            return Stop(Attempt::NoAnswer);
        }
        static TOLD: AtomicBool = AtomicBool::new(false);
        if error.raw_os_error() == Some(libc::EPERM) && !TOLD.swap(true, Ordering::Relaxed) {
            eprintln!(
                "soft verbs: the kernel forbids access to process {}: run all nodes as one user, with \
                 /proc/sys/kernel/yama/ptrace_scope at 0 or 1 and a seccomp profile that allows process_vm_writev",
                self.pid
            );
        }
        abi::IBV_WC_REM_OP_ERR.into()
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}
