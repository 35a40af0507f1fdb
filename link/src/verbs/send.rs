//! The sending half: what is queued, what the NIC has, and what it has done.
//!
//! Requests are posted in chains. A chain with writes ends in a request that reports its completion, and so does every large write; small
//! messages are reported every few. Nothing that takes a receive of the peer is posted without a credit, and messages go before writes: a
//! part of the credits is theirs alone. Used by the thread that owns the endpoint; allocates when made only.
#![allow(unsafe_code, reason = "chains requests and hands them to the NIC")]

mod build;

use std::fmt;
use std::io;

use super::mr::DeviceRegistration;
use super::qp::Qp;
use super::regions::Regions;
use super::sys;
use crate::{LinkError, MAX_MESSAGE, MAX_SMALL, MAX_WRITE, PostError, Target, WRITE_HEADER, Window};

/// Requests posted at once.
const BATCH: usize = 16;
/// Requests at most from one that reports to the next.
const QUIET: u64 = 16;
/// A write of at least this many bytes reports its completion whatever follows it, so that its memory is free soon.
const LARGE: u64 = 16 << 10;
/// Bytes after which a call hands over no more: the next poll goes on. A NIC reads memory at its own pace and is never short of work by
/// this; where handing over takes as long as copying, the thread gets to see in between what has arrived.
const BURST: u64 = 256 << 10;

/// A write that was posted here and not reported yet.
#[derive(Debug)]
struct Write {
    id: u64,
    header: bool,
    payload: Window,
    lkey: u32,
    target: Target,
    imm: Option<u32>,
    temporary: Option<DeviceRegistration>,
}

/// A message, or a write on the peer's board, whose bytes are in the endpoint's own memory.
#[derive(Clone, Copy, Debug, Default)]
struct Small {
    len: u16,
    /// Where on the peer's board.
    board: Option<u16>,
}

/// What a request's completion means.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Nothing,
    Message,
    /// The last request of a write.
    Write,
}

/// Memory of the peer that is written for it to look at: its words, or its board.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerMemory {
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

/// A number that is written into a word of the peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) to: PeerMemory,
    /// Where its source is in this end's memory: credits and needs may be under way at once.
    pub(super) source: usize,
    pub(super) number: u64,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) payload_bytes: u64,
    pub(super) frames: u64,
    pub(super) messages: u64,
    pub(super) posts: u64,
}

pub(super) struct Sender {
    /// Registered: a word for credits, headers of writes, messages.
    memory: Window,
    lkey: u32,
    writes: Box<[Write]>,
    /// Writes queued, posted completely, completed, and reported since the beginning.
    queued: u64,
    posted: u64,
    done: u64,
    reported: u64,
    /// Bytes of the first write that is not posted completely, and whether its length was announced.
    begun: u64,
    announced: bool,
    /// Messages and writes on the board; twice as many as may be queued, for those that the NIC still reads.
    messages: Box<[Small]>,
    messages_queued: u64,
    messages_posted: u64,
    messages_done: u64,
    meanings: Box<[Meaning]>,
    /// Requests posted and completed.
    requests: u64,
    completed: u64,
    /// Requests since the last one that reports, and how many there may be.
    quiet: u64,
    quiet_limit: u64,
    payloads: usize,
    inline: u64,
    /// Longest request in bytes.
    longest: u64,
    /// The peer's board.
    board: PeerMemory,
    /// Requests posted that took a receive of the peer, receives that it has posted again, and how many it has.
    pub(super) taken: u64,
    granted: u64,
    receives: u64,
    /// Something waits for a credit.
    pub(super) starved: bool,
    requests_built: Box<[sys::SendWr; BATCH]>,
    pieces: Box<[[sys::Sge; 2]; BATCH]>,
    pub(super) sent: Sent,
}

// SAFETY: the raw pointers are in request structures that mean something only during a call of `flush`, or name memory that the endpoint
// owns and that any thread may access.
unsafe impl Send for Sender {}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("writes", &[self.queued, self.posted, self.done, self.reported])
            .field("messages", &[self.messages_queued, self.messages_posted, self.messages_done])
            .field("requests", &[self.requests, self.completed])
            .field("credits", &[self.taken, self.granted, self.receives])
            .finish_non_exhaustive()
    }
}

/// Bytes before the headers: sources of words, in a line of their own.
const HEADERS: usize = 64;

impl Sender {
    /// Bytes of registered memory for that many writes and messages.
    pub(super) const fn memory(writes: usize, messages: usize) -> usize {
        HEADERS + writes * WRITE_HEADER + 2 * messages * MAX_MESSAGE
    }

    /// Requests that may be open at once.
    pub(super) const fn depth(writes: usize, messages: usize) -> usize {
        writes + messages + 8
    }

    /// `memory` is of [`memory`](Self::memory) bytes, 8-aligned, registered under `lkey`.
    pub(super) fn new(writes: usize, messages: usize, depth: usize, memory: Window, lkey: u32, inline: u32) -> Self {
        let write = || Write {
            id: 0,
            header: false,
            payload: Window::empty(),
            lkey: 0,
            target: Target { key: crate::Key::UNKNOWN, offset: 0 },
            imm: None,
            temporary: None,
        };
        Self {
            memory,
            lkey,
            writes: (0..writes).map(|_| write()).collect(),
            queued: 0,
            posted: 0,
            done: 0,
            reported: 0,
            begun: 0,
            announced: false,
            messages: vec![Small::default(); 2 * messages].into_boxed_slice(),
            messages_queued: 0,
            messages_posted: 0,
            messages_done: 0,
            meanings: vec![Meaning::Nothing; depth].into_boxed_slice(),
            requests: 0,
            completed: 0,
            quiet: 0,
            // Messages with the NIC are limited, so one of them must report in time.
            quiet_limit: QUIET.min(messages as u64 / 2).max(1),
            payloads: 0,
            inline: inline.into(),
            longest: 0,
            board: PeerMemory { addr: 0, rkey: 0 },
            taken: 0,
            granted: 0,
            receives: 0,
            starved: false,
            requests_built: Box::new([sys::SendWr::EMPTY; BATCH]),
            pieces: Box::new([[sys::Sge::default(); 2]; BATCH]),
            sent: Sent::default(),
        }
    }

    /// The peer has that many receives and this board, and takes requests of at most `longest` bytes.
    pub(super) fn open(&mut self, receives: u32, longest: u32, board: PeerMemory) {
        self.board = board;
        (self.receives, self.longest) = (receives.into(), u64::from(longest) & !4095);
    }

    pub(super) fn post_write(
        &mut self,
        id: u64,
        header: Option<&[u8; WRITE_HEADER]>,
        payload: Window,
        target: Target,
        imm: Option<u32>,
        regions: &mut Regions,
    ) -> Result<(), PostError> {
        if payload.len() > MAX_WRITE {
            return Err(PostError::TooLong { len: payload.len(), max: MAX_WRITE });
        }
        if self.queued - self.reported >= self.writes.len() as u64 {
            return Err(PostError::QueueFull);
        }
        let (mut lkey, mut temporary) = (0, None);
        if !payload.is_empty() {
            let found = regions.find(&payload).map_err(|_| PostError::NotRegistered { len: payload.len() })?;
            (lkey, temporary) = (found.lkey, found.temporary);
        }
        let at = (self.queued % self.writes.len() as u64) as usize;
        if let Some(header) = header {
            self.memory.write_from(HEADERS + at * WRITE_HEADER, header);
        }
        self.payloads += usize::from(!payload.is_empty());
        self.writes[at] = Write { id, header: header.is_some(), payload, lkey, target, imm, temporary };
        self.queued += 1;
        Ok(())
    }

    /// A message, or with a place a write on the peer's board.
    pub(super) fn post_message(&mut self, bytes: &[u8], board: Option<u16>) -> Result<(), PostError> {
        let max = if board.is_some() { MAX_SMALL } else { MAX_MESSAGE };
        if bytes.len() > max {
            return Err(PostError::TooLong { len: bytes.len(), max });
        }
        if self.messages_queued - self.messages_posted >= self.most_messages() {
            return Err(PostError::QueueFull);
        }
        let at = (self.messages_queued % self.messages.len() as u64) as usize;
        // The cast is exact: at most 1024.
        self.messages[at] = Small { len: bytes.len() as u16, board };
        self.memory.write_from(self.message_at(at), bytes);
        self.messages_queued += 1;
        Ok(())
    }

    /// Messages that may be queued, and that may be with the NIC.
    fn most_messages(&self) -> u64 {
        self.messages.len() as u64 / 2
    }

    fn message_at(&self, at: usize) -> usize {
        HEADERS + self.writes.len() * WRITE_HEADER + at * MAX_MESSAGE
    }

    fn address(&self, offset: usize) -> u64 {
        (self.memory.addr() + offset) as u64
    }

    /// Takes the number of receives that the peer says it has posted again.
    pub(super) fn grant(&mut self, number: u64) -> Result<(), LinkError> {
        if number > self.taken {
            return Err(LinkError::Protocol { what: "the peer gives more credits than were taken", value: number });
        }
        if number > self.granted {
            (self.granted, self.starved) = (number, false);
        }
        Ok(())
    }

    /// Receives that the peer has posted again, as far as known.
    pub(super) fn granted(&self) -> u64 {
        self.granted
    }

    fn credits(&self) -> u64 {
        self.receives - (self.taken - self.granted)
    }

    /// Posts what may go; whether anything did. `word`: one for the peer that goes first. `report`: the last request is to report its
    /// completion.
    pub(super) fn flush(&mut self, qp: &mut Qp, mut word: Option<Word>, report: bool) -> io::Result<bool> {
        let mut any = false;
        let mut handed = 0;
        loop {
            let mut count = 0;
            let mut loud = false;
            while count < BATCH && handed < BURST && self.has_room() {
                let built = match word.take() {
                    Some(word) => Some(self.build_word(count, word)),
                    None => self.build_message(count).or_else(|| self.build_write(count)),
                };
                let Some((meaning, bytes)) = built else { break };
                handed += bytes;
                let request = &mut self.requests_built[count];
                request.wr_id = self.requests;
                request.next = std::ptr::null_mut();
                request.sg_list = self.pieces[count].as_mut_ptr();
                self.quiet += 1;
                loud |= matches!(meaning, Meaning::Write);
                if bytes >= LARGE || self.quiet >= self.quiet_limit {
                    request.send_flags |= sys::SEND_SIGNALED;
                    self.quiet = 0;
                    loud = false;
                }
                let at = (self.requests % self.meanings.len() as u64) as usize;
                self.meanings[at] = meaning;
                self.requests += 1;
                count += 1;
            }
            if count == 0 {
                return Ok(any);
            }
            let last = &mut self.requests_built[count - 1];
            if loud || (report && self.quiet > 0) {
                last.send_flags |= sys::SEND_SIGNALED;
                self.quiet = 0;
            }
            let first = self.requests_built.as_mut_ptr();
            for k in 0..count - 1 {
                // SAFETY: k and k + 1 are below the array's length.
                unsafe { (*first.add(k)).next = first.add(k + 1) };
            }
            self.sent.posts += 1;
            // SAFETY: the chain and its pieces are in arrays that live as long as self. Headers, messages and the credit word are in the
            // endpoint's registered memory, in places that are not used again before their completion; payload is a window that the
            // poster leaves alone until the write is reported, registered by whoever vouches for it or by `temporary`.
            unsafe { qp.post_send(first) }?;
            any = true;
        }
    }

    /// The request of that number, and all before it, are complete.
    pub(super) fn complete(&mut self, number: u64) -> Result<(), LinkError> {
        if number >= self.requests {
            return Err(LinkError::Protocol { what: "the NIC completed a request that was not posted", value: number });
        }
        while self.completed <= number {
            let at = (self.completed % self.meanings.len() as u64) as usize;
            match self.meanings[at] {
                Meaning::Nothing => {}
                Meaning::Message => self.messages_done += 1,
                Meaning::Write => {
                    let at = (self.done % self.writes.len() as u64) as usize;
                    self.payloads -= usize::from(!self.writes[at].payload.is_empty());
                    self.writes[at].temporary = None;
                    self.done += 1;
                }
            }
            self.completed += 1;
        }
        Ok(())
    }

    /// The next write that is complete and was not reported yet.
    pub(super) fn pop_written(&mut self) -> Option<u64> {
        (self.reported < self.done).then(|| {
            let id = self.writes[(self.reported % self.writes.len() as u64) as usize].id;
            self.reported += 1;
            id
        })
    }

    /// Whether there is nothing to hand to the NIC and nothing to report.
    pub(super) fn is_quiet_for_now(&self) -> bool {
        self.is_empty() && self.reported == self.done
    }

    /// Whether all that was queued is with the NIC.
    pub(super) fn is_empty(&self) -> bool {
        self.posted == self.queued && self.messages_posted == self.messages_queued
    }

    /// Whether one more request may be posted.
    pub(super) fn has_room(&self) -> bool {
        self.open_requests() < self.meanings.len() as u64
    }

    /// Requests that the NIC has not reported.
    pub(super) fn open_requests(&self) -> u64 {
        self.requests - self.completed
    }

    /// Whether none of the open requests will report.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet > 0
    }

    pub(super) fn queued_writes(&self) -> usize {
        (self.queued - self.done) as usize
    }

    pub(super) fn has_payload(&self) -> bool {
        self.payloads > 0
    }

    /// Forgets all that is queued or unreported. The queue pair has failed.
    pub(super) fn clear(&mut self) {
        for write in &mut self.writes {
            write.temporary = None;
        }
        (self.posted, self.done, self.reported) = (self.queued, self.queued, self.queued);
        (self.messages_posted, self.messages_done) = (self.messages_queued, self.messages_queued);
        self.completed = self.requests;
        self.payloads = 0;
        self.starved = false;
    }
}
