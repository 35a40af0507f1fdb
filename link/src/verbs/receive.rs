//! The receiving half: receives that are always posted, and what their completions say.
//!
//! Every message and every notification takes one receive, which is posted again before the peer is told that it may take another. So no
//! request ever meets an empty queue. Used by the thread that owns the endpoint; allocates when made only.
#![allow(unsafe_code, reason = "builds receives for the NIC out of raw addresses")]

use std::io;

use super::qp::Qp;
use super::sys;
use crate::{Event, Key, LinkError, MAX_MESSAGE, Window};

/// Marks the number of a receive apart from that of a send request.
pub(super) const RECEIVE: u64 = 1 << 63;

/// Receives posted at once.
const BATCH: usize = 16;

/// What was received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    pub(super) payload_bytes: u64,
    pub(super) frames: u64,
    pub(super) messages: u64,
}

#[derive(Debug)]
pub(super) struct Receiver {
    /// Registered: 1 KiB for each receive.
    memory: Window,
    lkey: u32,
    count: u32,
    /// Receives taken and not posted again yet.
    idle: [u32; BATCH],
    idle_len: usize,
    /// Receives posted at once.
    batch: usize,
    /// Receives posted again, and the number that the peer was told.
    pub(super) reposted: u64,
    pub(super) told: u64,
    /// Receives taken.
    pub(super) taken: u64,
    /// Bytes that have landed of the write whose notification comes next.
    before: u32,
    message: Box<[u8; MAX_MESSAGE]>,
    pub(super) received: Received,
}

impl Receiver {
    /// Bytes of registered memory for that many receives.
    pub(super) const fn memory(receives: u32) -> usize {
        receives as usize * MAX_MESSAGE
    }

    pub(super) fn new(count: u32, memory: Window, lkey: u32) -> Self {
        Self {
            memory,
            lkey,
            count,
            idle: [0; BATCH],
            idle_len: 0,
            // A small part, so that the peer never waits for some that lie idle here.
            batch: (count as usize / 8).clamp(1, BATCH),
            reposted: 0,
            told: 0,
            taken: 0,
            before: 0,
            message: Box::new([0; MAX_MESSAGE]),
            received: Received::default(),
        }
    }

    /// Posts all receives; once, before the peer knows the queue pair.
    pub(super) fn post_all(&mut self, qp: &mut Qp) -> io::Result<()> {
        for slot in 0..self.count {
            self.rest(slot, qp)?;
        }
        self.repost(qp)?;
        self.reposted = 0;
        Ok(())
    }

    fn rest(&mut self, slot: u32, qp: &mut Qp) -> io::Result<()> {
        self.idle[self.idle_len] = slot;
        self.idle_len += 1;
        if self.idle_len == self.batch { self.repost(qp) } else { Ok(()) }
    }

    /// Posts again what was taken since the last batch. The peer knows only of those that were posted.
    pub(super) fn repost(&mut self, qp: &mut Qp) -> io::Result<()> {
        let count = std::mem::take(&mut self.idle_len);
        if count == 0 {
            return Ok(());
        }
        let mut pieces = [sys::Sge::default(); BATCH];
        let blank = sys::RecvWr { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 1 };
        let mut chain = [blank; BATCH];
        let (first, piece) = (chain.as_mut_ptr(), pieces.as_mut_ptr());
        for (k, &slot) in self.idle[..count].iter().enumerate() {
            let addr = (self.memory.addr() + slot as usize * MAX_MESSAGE) as u64;
            // SAFETY: k, and k + 1 where it is used, are below the arrays' length.
            unsafe {
                *piece.add(k) = sys::Sge { addr, length: MAX_MESSAGE as u32, lkey: self.lkey };
                (*first.add(k)).wr_id = RECEIVE | u64::from(slot);
                (*first.add(k)).sg_list = piece.add(k);
                if k + 1 < count {
                    (*first.add(k)).next = first.add(k + 1);
                }
            }
        }
        // SAFETY: the chain lives during the call; each receive names a kibibyte of the endpoint's registered memory that nobody reads
        // before its completion.
        unsafe { qp.post_recv(first) }?;
        self.reposted += count as u64;
        Ok(())
    }

    /// Takes the completion of a receive and reports what it means.
    pub(super) fn take<F: FnMut(Event<'_>)>(
        &mut self,
        completion: &sys::Wc,
        qp: &mut Qp,
        sink: &mut F,
    ) -> Result<(), LinkError> {
        let violation = |what, value: u32| Err(LinkError::Protocol { what, value: value.into() });
        let slot = (completion.wr_id & !RECEIVE) as u32;
        if slot >= self.count {
            return violation("the NIC completed a receive that was not posted", slot);
        }
        self.taken += 1;
        let imm = u32::from_be(completion.imm_data);
        match (completion.opcode, completion.wc_flags & sys::WC_WITH_IMM != 0) {
            (sys::WC_RECV_RDMA_WITH_IMM, _) => {
                let Some(len) = completion.byte_len.checked_add(std::mem::take(&mut self.before)) else {
                    return violation("write is too long", completion.byte_len);
                };
                self.received.frames += 1;
                self.received.payload_bytes += u64::from(len);
                sink(Event::Notified { key: Key::UNKNOWN, offset: 0, len, imm });
            }
            (sys::WC_RECV, false) => {
                let len = completion.byte_len as usize;
                let at = slot as usize * MAX_MESSAGE;
                let Some(bytes) = self.message.get_mut(..len).filter(|_| at + len <= self.memory.len()) else {
                    return violation("message is too long", completion.byte_len);
                };
                self.memory.read_into(at, bytes);
                self.received.frames += 1;
                self.received.messages += 1;
                sink(Event::Message(bytes));
            }
            (sys::WC_RECV, true) if self.before == 0 && completion.byte_len == 0 => self.before = imm,
            (sys::WC_RECV, true) => return violation("a long write was announced within another", imm),
            (opcode, _) => return violation("the NIC completed a receive in an unknown way", opcode),
        }
        let io = |e: io::Error| LinkError::from_io("ibv_post_recv", &e);
        self.rest(slot, qp).map_err(io)
    }

    /// Whether the peer should be told of receives that were posted again.
    pub(super) fn is_due(&self) -> bool {
        self.reposted - self.told >= u64::from(self.count) / 4
    }
}
