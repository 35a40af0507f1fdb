//! The sending half of an endpoint: queued writes and messages, in the order in which their frames leave.
//!
//! Order: a frame that has begun, then all messages, then writes as posted. Knows no socket options and nothing of receiving.
//! Runs on the thread that owns the endpoint.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::frame::{self, HEADER, Header};
use super::socket::{self, Batch};
use crate::{LinkError, MAX_MESSAGE, MAX_WRITE, PostError, Target, WRITE_HEADER, Window};

/// A write whose frame has not left completely.
#[derive(Debug)]
struct Write {
    id: u64,
    /// The frame's header and, if there is one, the write's own.
    head: [u8; HEADER + WRITE_HEADER],
    head_len: usize,
    payload: Window,
    /// Bytes of head and payload that have left.
    sent: usize,
}

impl Write {
    fn remaining(&self) -> usize {
        self.head_len + self.payload.len() - self.sent
    }

    fn gather<'a>(&'a self, batch: &mut Batch<'a>) -> bool {
        if !batch.has_room(2) {
            return false;
        }
        let head = &self.head[..self.head_len];
        let payload = self.sent.saturating_sub(self.head_len);
        let rest = self.payload.sub(payload, self.payload.len() - payload).unwrap_or(Window::empty());
        batch.push(&head[self.sent.min(head.len())..]) && batch.push_window(rest)
    }
}

#[derive(Clone, Debug)]
struct Message {
    frame: [u8; HEADER + MAX_MESSAGE],
    len: usize,
}

/// What has left since the endpoint was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) payload_bytes: u64,
    pub(super) frames: u64,
    pub(super) messages: u64,
    pub(super) syscalls: u64,
}

#[derive(Debug)]
pub(super) struct Sender {
    writes: VecDeque<Write>,
    write_limit: usize,
    /// Writes that have left but were not reported yet. They count as outstanding.
    written: VecDeque<u64>,
    /// A ring of frames: `queued` of them from `first` on.
    messages: Box<[Message]>,
    first: usize,
    queued: usize,
    /// Bytes of the first message that have left. Not 0 only while no write has begun.
    message_sent: usize,
    /// Queued writes whose payload has bytes.
    payloads: usize,
    byte_budget: usize,
    pub(super) sent: Sent,
}

impl Sender {
    pub(super) fn new(writes: usize, messages: usize, byte_budget: usize) -> Self {
        let message = Message { frame: [0; HEADER + MAX_MESSAGE], len: 0 };
        Self {
            writes: VecDeque::with_capacity(writes),
            write_limit: writes,
            written: VecDeque::with_capacity(writes),
            messages: vec![message; messages].into_boxed_slice(),
            first: 0,
            queued: 0,
            message_sent: 0,
            payloads: 0,
            byte_budget,
            sent: Sent::default(),
        }
    }

    pub(super) fn post_write(
        &mut self,
        id: u64,
        header: Option<&[u8; WRITE_HEADER]>,
        payload: Window,
        target: Target,
        imm: Option<u32>,
    ) -> Result<(), PostError> {
        if payload.len() > MAX_WRITE {
            return Err(PostError::TooLong { len: payload.len(), max: MAX_WRITE });
        }
        if self.writes.len() + self.written.len() >= self.write_limit {
            return Err(PostError::QueueFull);
        }
        let inline = header.map_or(0, |header| header.len());
        // The cast is exact: at most 1 GiB and 32 bytes.
        let len = (inline + payload.len()) as u32;
        let mut head = [0; HEADER + WRITE_HEADER];
        head[..HEADER].copy_from_slice(&frame::encode(&Header::Write { target, len, imm }));
        if let Some(header) = header {
            head[HEADER..].copy_from_slice(header);
        }
        self.payloads += usize::from(!payload.is_empty());
        self.writes.push_back(Write { id, head, head_len: HEADER + inline, payload, sent: 0 });
        Ok(())
    }

    pub(super) fn post_message(&mut self, bytes: &[u8]) -> Result<(), PostError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(PostError::TooLong { len: bytes.len(), max: MAX_MESSAGE });
        }
        if self.queued == self.messages.len() {
            return Err(PostError::QueueFull);
        }
        let index = (self.first + self.queued) % self.messages.len();
        let message = &mut self.messages[index];
        // The cast is exact: at most 1024.
        message.frame[..HEADER].copy_from_slice(&frame::encode(&Header::Message { len: bytes.len() as u32 }));
        message.frame[HEADER..HEADER + bytes.len()].copy_from_slice(bytes);
        message.len = HEADER + bytes.len();
        self.queued += 1;
        Ok(())
    }

    /// Sends until all has left, the kernel takes no more, or the byte budget is used. Whether anything left.
    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<bool, LinkError> {
        let mut budget = self.byte_budget;
        let mut progress = false;
        while !self.is_empty() {
            let mut batch = Batch::new();
            self.gather(&mut batch, budget);
            let asked = batch.bytes();
            let result = socket::send(fd, &mut batch);
            self.sent.syscalls += 1;
            let count = match result {
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(LinkError::from_io("send", &e)),
            };
            self.advance(count);
            progress = true;
            budget = budget.saturating_sub(count);
            // A short count means that the kernel's buffer is full.
            if count < asked || budget == 0 {
                break;
            }
        }
        Ok(progress)
    }

    /// Frames in the order in which they leave, until `budget` bytes are reached.
    fn gather<'a>(&'a self, batch: &mut Batch<'a>, budget: usize) {
        let mut writes = self.writes.iter();
        if self.write_has_begun()
            && let Some(write) = writes.next()
        {
            write.gather(batch);
        }
        for k in 0..self.queued {
            let message = &self.messages[(self.first + k) % self.messages.len()];
            let sent = if k == 0 { self.message_sent } else { 0 };
            if batch.bytes() >= budget || !batch.push(&message.frame[sent..message.len]) {
                return;
            }
        }
        for write in writes {
            if batch.bytes() >= budget || !write.gather(batch) {
                return;
            }
        }
    }

    /// Takes note that `count` bytes of what [`gather`](Self::gather) gathered have left.
    fn advance(&mut self, mut count: usize) {
        if self.write_has_begun() {
            count = self.advance_write(count);
        }
        while count > 0 && self.queued > 0 {
            let remaining = self.messages[self.first].len - self.message_sent;
            if count < remaining {
                self.message_sent += count;
                return;
            }
            count -= remaining;
            self.message_sent = 0;
            self.first = (self.first + 1) % self.messages.len();
            self.queued -= 1;
            self.sent.frames += 1;
            self.sent.messages += 1;
        }
        while count > 0 && !self.writes.is_empty() {
            count = self.advance_write(count);
        }
    }

    /// The same for the first write; returns the bytes left for those behind it.
    fn advance_write(&mut self, count: usize) -> usize {
        let Some(write) = self.writes.front_mut() else { return count };
        let remaining = write.remaining();
        if count < remaining {
            write.sent += count;
            return 0;
        }
        self.sent.frames += 1;
        self.sent.payload_bytes += (write.head_len - HEADER + write.payload.len()) as u64;
        self.payloads -= usize::from(!write.payload.is_empty());
        self.written.push_back(write.id);
        self.writes.pop_front();
        count - remaining
    }

    fn write_has_begun(&self) -> bool {
        self.writes.front().is_some_and(|write| write.sent > 0)
    }

    /// The next write that has left and was not reported yet.
    pub(super) fn pop_written(&mut self) -> Option<u64> {
        self.written.pop_front()
    }

    /// Whether no frame is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queued == 0 && self.writes.is_empty()
    }

    /// Writes that have not left completely.
    pub(super) fn queued_writes(&self) -> usize {
        self.writes.len()
    }

    /// Whether memory of the layers above is still referenced.
    pub(super) fn has_payload(&self) -> bool {
        self.payloads > 0
    }

    /// Forgets all that is queued or unreported.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.written.clear();
        (self.queued, self.message_sent, self.payloads) = (0, 0, 0);
    }
}
