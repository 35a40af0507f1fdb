//! Requests for the NIC, built in place: words, messages, and writes with their parts.
//!
//! Part of the sending half, apart for its length; see there for threads.
#![allow(unsafe_code, reason = "a word that the NIC reads while it may be overwritten")]

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::sys;
use super::{HEADERS, Meaning, PeerMemory, Sender, Small, Word};
use crate::WRITE_HEADER;

impl Sender {
    /// The word may be overwritten while the NIC reads it: a newer number is as good.
    pub(super) fn build_word(&mut self, k: usize, Word { to, source, number }: Word) -> (Meaning, u64) {
        let place = self.memory.sub(source, 8).unwrap_or(self.memory);
        // SAFETY: 8 bytes before the headers, at a multiple of 8 in memory that is 8-aligned and lives as long as self; only atomics and the
        // NIC touch them.
        unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) }.store(number, Ordering::Release);
        let piece = sys::Sge { addr: self.address(source), length: 8, lkey: self.lkey };
        self.pieces[k][0] = piece;
        self.requests_built[k] = sys::SendWr {
            opcode: sys::WR_RDMA_WRITE,
            send_flags: self.inline_flag(8),
            num_sge: 1,
            remote_addr: to.addr,
            rkey: to.rkey,
            ..sys::SendWr::EMPTY
        };
        (Meaning::Nothing, 8)
    }

    fn inline_flag(&self, bytes: u64) -> u32 {
        if bytes <= self.inline && bytes > 0 { sys::SEND_INLINE } else { 0 }
    }

    pub(super) fn build_message(&mut self, k: usize) -> Option<(Meaning, u64)> {
        if self.messages_posted == self.messages_queued
            || self.messages_posted - self.messages_done >= self.most_messages()
        {
            return None;
        }
        let at = (self.messages_posted % self.messages.len() as u64) as usize;
        let Small { len, board } = self.messages[at];
        if board.is_none() && self.credits() == 0 {
            self.starved = true;
            return None;
        }
        self.pieces[k][0] = sys::Sge { addr: self.address(self.message_at(at)), length: len.into(), lkey: self.lkey };
        let request = sys::SendWr {
            opcode: sys::WR_SEND,
            send_flags: self.inline_flag(len.into()),
            num_sge: i32::from(len > 0),
            ..sys::SendWr::EMPTY
        };
        self.requests_built[k] = match board {
            None => request,
            Some(at) => {
                let PeerMemory { addr, rkey } = self.board;
                sys::SendWr { opcode: sys::WR_RDMA_WRITE, remote_addr: addr + u64::from(at), rkey, ..request }
            }
        };
        self.messages_posted += 1;
        self.taken += u64::from(board.is_none());
        self.sent.frames += 1;
        self.sent.messages += 1;
        Some((Meaning::Message, len.into()))
    }

    /// The next request of the first write, which may need several: one that announces how many bytes come before the last request, the
    /// parts, and the last one, which notifies. Messages that wait go first, so that no write overtakes a message.
    pub(super) fn build_write(&mut self, k: usize) -> Option<(Meaning, u64)> {
        if self.posted == self.queued || self.messages_posted != self.messages_queued {
            return None;
        }
        let at = (self.posted % self.writes.len() as u64) as usize;
        let write = &self.writes[at];
        let header = if write.header { WRITE_HEADER as u64 } else { 0 };
        let total = header + write.payload.len() as u64;
        let split = total > self.longest;
        if write.imm.is_some() && self.begun == 0 && !self.announced {
            // A quarter of the credits is for messages.
            if self.credits() < self.receives / 4 + 1 + u64::from(split) {
                self.starved = true;
                return None;
            }
            if split {
                self.announced = true;
                self.taken += 1;
                let before = (total - 1) / self.longest * self.longest;
                self.requests_built[k] = sys::SendWr {
                    opcode: sys::WR_SEND_WITH_IMM,
                    // The cast is exact: at most 1 GiB and 32 bytes.
                    imm_data: (before as u32).to_be(),
                    ..sys::SendWr::EMPTY
                };
                return Some((Meaning::Nothing, 0));
            }
        }
        let from = self.begun;
        let len = (total - from).min(self.longest);
        let last = from + len == total;
        let mut count = 0;
        if from < header {
            // The header is never cut: a part is far longer.
            let place = HEADERS + at * WRITE_HEADER;
            self.pieces[k][0] = sys::Sge { addr: self.address(place), length: WRITE_HEADER as u32, lkey: self.lkey };
            count = 1;
        }
        let skip = from.saturating_sub(header);
        let body = len - if from < header { header } else { 0 };
        if body > 0 {
            self.pieces[k][count] = sys::Sge {
                addr: write.payload.addr() as u64 + skip,
                // The cast is exact, as above.
                length: body as u32,
                lkey: write.lkey,
            };
            count += 1;
        }
        let imm = write.imm.filter(|_| last);
        self.requests_built[k] = sys::SendWr {
            opcode: if imm.is_some() { sys::WR_RDMA_WRITE_WITH_IMM } else { sys::WR_RDMA_WRITE },
            send_flags: self.inline_flag(len),
            num_sge: count as i32,
            imm_data: imm.unwrap_or(0).to_be(),
            remote_addr: write.target.offset.wrapping_add(from),
            rkey: write.target.key.raw(),
            ..sys::SendWr::EMPTY
        };
        self.taken += u64::from(imm.is_some());
        if !last {
            self.begun += len;
            return Some((Meaning::Nothing, len));
        }
        (self.begun, self.announced) = (0, false);
        self.posted += 1;
        self.sent.frames += 1;
        self.sent.payload_bytes += total;
        Some((Meaning::Write, len))
    }
}
