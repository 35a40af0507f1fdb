//! What a poll does: listening to the stream, connecting, reaping completions, handing over what may go.
//!
//! Part of the endpoint, apart for its length; see there for threads.

use std::io;
use std::net::IpAddr;

use super::super::fault::{CompletionFault, SetupFault};
use super::super::handshake::{Control, Hello};
use super::super::port::Gid;
use super::super::receive::RECEIVE;
use super::super::send::{PeerMemory, Word};
use super::super::stream::Came;
use super::super::sys;
use super::{BOARD_SLOT, CREDITS, NEEDS, Phase, STREAM, VerbsEndpoint};
use crate::{Event, LinkError};

impl VerbsEndpoint {
    pub(super) fn poll_once<F: FnMut(Event<'_>)>(&mut self, sink: &mut F) -> Result<bool, LinkError> {
        let mut progress = false;
        self.polls = self.polls.wrapping_add(1);
        let look = self.phase != Phase::Open || self.ready || self.polls.is_multiple_of(STREAM);
        self.ready = false;
        if look && self.send_error.is_none() {
            match self.listen() {
                Ok(heard) => progress |= heard,
                // As a failure to send: what the NIC has received comes before it.
                Err(error) => self.send_error = Some(error),
            }
        }
        let reaped = self.reap(sink)?;
        if !(look || reaped) && self.has_nothing_to_do() {
            return Ok(false);
        }
        progress |= reaped;
        if self.armed && (look || reaped) && self.qp.cq.drain() {
            self.armed = false;
        }
        // An error is kept, and returned once everything received has been reported.
        progress |= self.flush().unwrap_or(false);
        while let Some(id) = self.sender.pop_written() {
            progress = true;
            sink(Event::Written { id });
        }
        if look {
            self.regions.forget_dead();
        }
        if progress {
            return Ok(true);
        }
        match (self.send_error, self.ended, self.bye) {
            (Some(error), ..) => Err(error),
            // All that was sent has been acknowledged, so it is in the completion queue or about to be.
            (None, true, Some(sent)) if self.receiver.taken < sent => Ok(false),
            // The peer keeps its queue pair until this end has closed, so what was written there is still acknowledged, or fails.
            (None, true, Some(_)) if self.sender.queued_writes() > 0 => Ok(false),
            (None, true, Some(_)) => Err(LinkError::ClosedByPeer { missing: 0 }),
            (None, true, None) => Err(LinkError::Reset { op: "receive: the peer ended without closing" }),
            (None, false, _) => Ok(false),
        }
    }

    /// Whether a poll that took nothing can end at once, which is what most polls come to.
    fn has_nothing_to_do(&self) -> bool {
        self.phase == Phase::Open
            && self.sender.is_quiet_for_now()
            && !self.receiver.is_due()
            && self.word(CREDITS) == self.sender.granted()
            && self.word(NEEDS) == self.need_seen
            && self.peer_needs.is_none()
            && self.send_error.is_none()
            && !(self.closing || self.ended || self.stream.wants_write())
    }

    /// Takes what came over the stream.
    fn listen(&mut self) -> Result<bool, LinkError> {
        let mut progress = false;
        while let Some(came) = self.stream.read()? {
            progress = true;
            match (came, self.phase) {
                (Came::Hello(hello), Phase::Greeting) => self.connect(&hello)?,
                (Came::Control(Control::Ready), Phase::Connecting) => self.phase = Phase::Open,
                (Came::Control(Control::Need(known)), Phase::Open) => self.peer_needs = Some(known),
                (Came::Control(Control::Ring(number)), Phase::Open) => self.sender.grant(number)?,
                (Came::Control(Control::Bye(sent)), Phase::Open) => self.bye = Some(sent),
                (Came::End, _) => self.ended = true,
                (Came::Control(_) | Came::Hello(_), _) => {
                    return Err(LinkError::Protocol { what: "control frame out of turn", value: 0 });
                }
            }
        }
        Ok(progress)
    }

    fn connect(&mut self, hello: &Hello) -> Result<(), LinkError> {
        let IpAddr::V4(remote) = self.remote.ip() else {
            return Err(LinkError::Protocol { what: "peer without an IPv4 address", value: 0 });
        };
        if hello.gid != Gid::of(remote) {
            let value = hello.gid.address().map_or(0, |a| u32::from(a).into());
            return Err(LinkError::Protocol { what: "the peer's GID is not of the address that it calls from", value });
        }
        self.path.remote_gid = hello.gid;
        self.path.remote_qpn = hello.qpn;
        self.path.remote_psn = hello.psn;
        self.path.mtu = self.path.mtu.min(hello.mtu);
        self.mtu.1 = Some(hello.mtu);
        self.peer_words = PeerMemory { addr: hello.credit_addr, rkey: hello.credit_rkey };
        // The peer's board is where ours is, behind the word.
        let addr = hello.credit_addr + self.credit_memory.stride() as u64 * BOARD_SLOT as u64;
        let board = PeerMemory { addr, rkey: hello.credit_rkey };
        self.sender.open(hello.receives, self.max_message.min(hello.max_message), board);
        let (local, remote) = (self.local_gid, hello.gid);
        let fault = |call| {
            move |e: io::Error| {
                let errno = e.raw_os_error().unwrap_or(libc::EIO);
                LinkError::Setup(SetupFault { call, errno, local, remote })
            }
        };
        // The table may have changed since the endpoint was made, and another GID may be at that index now: no call would fail for it.
        if let Ok(index) = self.set.index_now(self.local, self.path.gid_index) {
            self.path.gid_index = index;
        }
        let mut result = self.qp.ready_to_receive(&self.path);
        if result.as_ref().is_err_and(|e| matches!(e.raw_os_error(), Some(libc::ENODATA | libc::EINVAL)))
            && let Ok(index) = self.set.index_now(self.local, self.path.gid_index)
            && index != self.path.gid_index
        {
            // It has changed in this very moment.
            self.path.gid_index = index;
            result = self.qp.ready_to_receive(&self.path);
        }
        result.map_err(fault("ibv_modify_qp to RTR"))?;
        self.qp.ready_to_send(&self.path).map_err(fault("ibv_modify_qp to RTS"))?;
        self.stream.ready = true;
        self.phase = Phase::Connecting;
        Ok(())
    }

    /// Takes completions. After a failed one the queue is emptied: what was received before is still reported.
    fn reap<F: FnMut(Event<'_>)>(&mut self, sink: &mut F) -> Result<bool, LinkError> {
        let mut count = 0;
        let mut failed: Option<sys::Wc> = None;
        while count < self.poll_frames || failed.is_some() {
            let taken = self.qp.cq.poll(&mut *self.completions).map_err(|e| LinkError::from_io("ibv_poll_cq", &e))?;
            if taken == 0 {
                break;
            }
            for completion in &self.completions[..taken] {
                if completion.status != sys::WC_SUCCESS {
                    // The first that was not merely flushed tells why.
                    if failed.is_none_or(|f| f.status == sys::WC_FLUSHED && completion.status != sys::WC_FLUSHED) {
                        failed = Some(*completion);
                    }
                } else if completion.wr_id & RECEIVE == 0 {
                    self.sender.complete(completion.wr_id)?;
                } else {
                    self.receiver.take(completion, &mut self.qp, sink)?;
                }
            }
            count += taken;
        }
        match failed {
            Some(completion) => Err(self.fault(&completion)),
            None => Ok(count > 0),
        }
    }

    #[cold]
    fn fault(&self, completion: &sys::Wc) -> LinkError {
        LinkError::Completion(CompletionFault {
            what: if completion.wr_id & RECEIVE == 0 { "send" } else { "receive" },
            status: completion.status,
            vendor: completion.vendor_err,
            qpn: self.qp.number,
            remote_qpn: self.path.remote_qpn,
            local: self.local_gid,
            remote: self.path.remote_gid,
            outstanding: self.sender.open_requests() as u32,
            timeout: self.path.timeout,
            retries: self.path.retries,
        })
    }

    pub(super) fn push(&mut self) -> Result<bool, LinkError> {
        let mut progress = false;
        if self.phase == Phase::Open {
            self.sender.grant(self.word(CREDITS))?;
            let need = self.word(NEEDS);
            if need != self.need_seen {
                self.need_seen = need;
                // Never 0 from a peer of ours; from another it means nothing.
                self.peer_needs = need.checked_sub(1);
            }
            if self.peer_needs.is_some() {
                self.receiver.repost(&mut self.qp).map_err(|e| LinkError::from_io("ibv_post_recv", &e))?;
            }
            let reposted = self.receiver.reposted;
            if self.peer_needs.is_some_and(|known| reposted > known) {
                self.peer_needs = None;
                self.receiver.told = reposted;
                self.stream.ring = Some(reposted);
            }
            // Without room for the request the credit waits for the next time.
            let credit =
                (self.receiver.is_due() && self.sender.has_room()).then(|| self.word_for_peer(CREDITS, reposted));
            if credit.is_some() {
                self.receiver.told = reposted;
            }
            let posting = |e: io::Error| LinkError::from_io("ibv_post_send", &e);
            progress |= self.sender.flush(&mut self.qp, credit, false).map_err(posting)?;
            if self.closing && self.sender.is_empty() && !self.bye_said {
                if self.sender.open_requests() == 0 {
                    self.bye_said = true;
                    self.stream.bye = Some(self.sender.taken);
                } else if self.sender.is_quiet() && self.sender.has_room() {
                    // One more request, so that the last ones are reported.
                    self.receiver.told = reposted;
                    let credit = Some(self.word_for_peer(CREDITS, reposted));
                    progress |= self.sender.flush(&mut self.qp, credit, true).map_err(posting)?;
                }
            }
        }
        if self.stream.wants_write() {
            progress |= self.stream.write()?;
        }
        if self.bye_said && !self.stream.is_shut() && !self.stream.wants_write() {
            self.stream.shut()?;
        }
        Ok(progress)
    }

    /// The number in a word that the peer's NIC writes. What it stands for happened before, at the peer.
    fn word(&self, at: usize) -> u64 {
        self.credit_memory.slot(0).load(at)
    }

    fn word_for_peer(&self, at: usize, number: u64) -> Word {
        let PeerMemory { addr, rkey } = self.peer_words;
        Word { to: PeerMemory { addr: addr + at as u64, rkey }, source: at, number }
    }

    /// Writes a word of the peer's, if there is room for the request.
    pub(super) fn push_word(&mut self, at: usize, number: u64) -> Result<(), LinkError> {
        if self.sender.has_room() {
            let word = Some(self.word_for_peer(at, number));
            self.sender.flush(&mut self.qp, word, false).map_err(|e| LinkError::from_io("ibv_post_send", &e))?;
        }
        Ok(())
    }
}
