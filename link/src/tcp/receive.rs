//! The receiving half of an endpoint: takes frames out of the byte stream and lands writes in exposed windows.
//!
//! Headers, messages and small bodies come through a staging buffer. The rest of a body is received straight into its window, and
//! what follows it into the staging buffer in the same system call. No byte of a write lands before its whole extent was checked.
//! Runs on the thread that owns the endpoint.

use std::io;
use std::os::fd::BorrowedFd;

use super::frame::{self, HEADER, Header};
use super::limits::Limits;
use super::socket;
use crate::exposures::Exposures;
use crate::memory::{LINE, Window, land_ordered};
use crate::{Event, Key, LinkError, MAX_MESSAGE};

/// Bodies from this size on are worth a system call of their own: the staging buffer then takes only [`AHEAD`] bytes at a time, so
/// that few bytes of the next body are copied twice.
const LARGE: usize = 16 << 10;

/// Bytes received past a large body: the next header and a few small frames.
const AHEAD: usize = 512;

/// The staging buffer holds the longest message with its header, and some lines.
const MIN_STAGING: usize = 4 << 10;

/// Where the stream stands.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Header,
    Message { len: usize },
    Write(Landing),
}

/// A write on its way into a window.
#[derive(Clone, Copy, Debug)]
struct Landing {
    key: Key,
    offset: u64,
    imm: Option<u32>,
    /// Exactly what is written.
    window: Window,
    ordered: bool,
    /// Bytes that have landed.
    done: usize,
}

impl Landing {
    fn rest(&self) -> Window {
        self.window.sub(self.done, self.window.len() - self.done).unwrap_or(Window::empty())
    }

    /// Lands as much of `bytes` as belongs here and may land now; returns how much.
    fn land(&mut self, bytes: &[u8]) -> usize {
        let rest = self.rest();
        let mut take = bytes.len().min(rest.len());
        if self.ordered {
            if take < rest.len() {
                // A flag-polled body is cut at lines only, so that no word and no line is landed in two steps.
                take = take.saturating_sub((rest.addr() + take) % LINE);
            }
            land_ordered(rest, &bytes[..take]);
        } else {
            rest.write_from(0, &bytes[..take]);
        }
        self.done += take;
        take
    }
}

/// What has arrived since the endpoint was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    pub(super) payload_bytes: u64,
    pub(super) frames: u64,
    pub(super) messages: u64,
    pub(super) syscalls: u64,
}

#[derive(Debug)]
pub(super) struct Receiver {
    staging: Box<[u8]>,
    /// Bytes of the staging buffer that are filled and not taken yet.
    start: usize,
    end: usize,
    stage: Stage,
    /// The last body was large, so the next one probably is.
    large: bool,
    byte_budget: usize,
    frame_budget: usize,
    pub(super) received: Received,
}

impl Receiver {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            staging: vec![0; limits.staging.max(MIN_STAGING)].into_boxed_slice(),
            start: 0,
            end: 0,
            stage: Stage::Header,
            large: false,
            byte_budget: limits.poll_bytes,
            frame_budget: limits.poll_frames.max(1),
            received: Received::default(),
        }
    }

    /// Takes what is there, until nothing is or a budget is used. Whether anything was taken.
    pub(super) fn poll<F: FnMut(Event<'_>)>(
        &mut self,
        fd: BorrowedFd<'_>,
        exposures: &Exposures,
        sink: &mut F,
    ) -> Result<bool, LinkError> {
        let (mut bytes, mut frames) = (self.byte_budget, self.frame_budget);
        let mut progress = self.digest(exposures, &mut frames, sink)?;
        while frames > 0 {
            self.received.syscalls += 1;
            let (count, asked) = match self.fill(fd) {
                Ok(counts) => counts,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(LinkError::from_io("receive", &e)),
            };
            if count == 0 {
                return Err(LinkError::ClosedByPeer { missing: self.missing() });
            }
            self.digest(exposures, &mut frames, sink)?;
            progress = true;
            bytes = bytes.saturating_sub(count);
            // A short count means that the kernel's buffer is empty.
            if count < asked || bytes == 0 {
                break;
            }
        }
        Ok(progress)
    }

    /// One system call; returns the bytes received and the bytes asked for.
    fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
        // Only the beginning of something is left here: less than a header, a message or a line.
        self.staging.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let Stage::Write(landing) = &mut self.stage else {
            let until = if self.large { HEADER + MAX_MESSAGE + AHEAD } else { self.staging.len() };
            let space = &mut self.staging[self.end..until];
            let asked = space.len();
            let count = socket::receive(fd, Window::empty(), space)?;
            self.end += count;
            return Ok((count, asked));
        };
        if landing.ordered {
            let space = &mut self.staging[self.end..];
            let asked = space.len();
            let count = socket::receive(fd, Window::empty(), space)?;
            self.end += count;
            return Ok((count, asked));
        }
        // A body that lands directly has taken all that was staged, so the staging buffer is empty.
        let rest = landing.rest();
        let beyond = if self.large { AHEAD } else { self.staging.len() };
        let count = socket::receive(fd, rest, &mut self.staging[..beyond])?;
        landing.done += count.min(rest.len());
        self.end = count.saturating_sub(rest.len());
        Ok((count, rest.len() + beyond))
    }

    /// Takes frames out of what is staged. Whether there were any bytes to take.
    fn digest<F: FnMut(Event<'_>)>(
        &mut self,
        exposures: &Exposures,
        frames: &mut usize,
        sink: &mut F,
    ) -> Result<bool, LinkError> {
        let before = self.start;
        while *frames > 0 {
            let staged = &self.staging[self.start..self.end];
            match &mut self.stage {
                Stage::Header => {
                    let Some(header) = staged.first_chunk::<HEADER>() else { break };
                    self.stage = begin(frame::parse(header)?, exposures)?;
                    self.start += HEADER;
                }
                Stage::Message { len } => {
                    let Some(message) = staged.get(..*len) else { break };
                    self.start += *len;
                    self.stage = Stage::Header;
                    self.received.frames += 1;
                    self.received.messages += 1;
                    *frames -= 1;
                    sink(Event::Message(message));
                }
                Stage::Write(landing) => {
                    self.start += landing.land(staged);
                    if landing.done < landing.window.len() {
                        self.large = landing.window.len() >= LARGE;
                        break;
                    }
                    let Landing { key, offset, imm, window, .. } = *landing;
                    self.stage = Stage::Header;
                    self.large = window.len() >= LARGE;
                    self.received.frames += 1;
                    self.received.payload_bytes += window.len() as u64;
                    *frames -= 1;
                    if let Some(imm) = imm {
                        // The cast is exact: the length was 32 bits on the wire.
                        sink(Event::Notified { key, offset, len: window.len() as u32, imm });
                    }
                }
            }
        }
        Ok(self.start > before)
    }

    /// Whether a write to that key has begun and not ended.
    pub(super) fn is_landing(&self, key: Key) -> bool {
        matches!(self.stage, Stage::Write(landing) if landing.key == key)
    }

    /// Bytes at least that the frame begun lacks.
    fn missing(&self) -> u64 {
        let staged = self.end - self.start;
        let missing = match self.stage {
            Stage::Header if staged == 0 => 0,
            Stage::Header => HEADER - staged,
            Stage::Message { len } => len - staged,
            Stage::Write(landing) => landing.window.len() - landing.done - staged,
        };
        missing as u64
    }
}

/// What a header begins. A write is checked against its window here, before any byte of it lands.
fn begin(header: Header, exposures: &Exposures) -> Result<Stage, LinkError> {
    match header {
        Header::Message { len } => Ok(Stage::Message { len: len as usize }),
        Header::Write { target, len, imm } => {
            let place = exposures.place(target.key, target.offset, len)?;
            Ok(Stage::Write(Landing {
                key: target.key,
                offset: target.offset,
                imm,
                window: place.window,
                ordered: place.ordered,
                done: 0,
            }))
        }
    }
}
