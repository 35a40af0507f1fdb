//! Log events of the whole library, to NCCL's logger or to standard error.
//!
//! For: every `tracing` event of this library's crates. Must not know: what is logged.
//! Threads: any thread logs; `attach` and `detach` run on NCCL's initialising thread.
//!
//! Warnings always go to NCCL's logger (which keeps the last one for `ncclGetLastError`), information and traces if
//! `NCCL_DEBUG` asks for them. `NCCL_MESH_DEBUG` 1 or 2 asks for information or more on its own: lines that NCCL would not
//! print then go to standard error. Without a logger, warnings go to standard error always. What nobody wants is filtered by
//! `tracing` before it is formatted; the filter is fixed when the library's subscriber is installed.

#![allow(unsafe_code, reason = "calls NCCL's logger, a C function")]

use std::ffi::c_ulong;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mesh_abi::{LOG_INFO, LOG_TRACE, LOG_WARN, LoggerFn, SUBSYS_INIT, SUBSYS_NET};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Target of events that belong to NCCL's subsystem INIT; all others belong to NET.
pub const INIT: &str = "mesh_init";

/// Longest line, in bytes; the rest is cut off.
pub const LINE_LIMIT: usize = 4096;

/// How long `detach` waits for lines that are being logged.
const DETACH_WAIT: Duration = Duration::from_millis(100);

/// NCCL's logger, or NULL.
static LOGGER: AtomicPtr<()> = AtomicPtr::new(null_mut());
/// Calls into NCCL's logger that have begun and not ended.
static CALLING: AtomicUsize = AtomicUsize::new(0);
/// Set while NCCL has given up the plugin: background threads are then quiet.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Who wants which events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    /// By `NCCL_DEBUG`.
    nccl: LevelFilter,
    /// By `NCCL_MESH_DEBUG`.
    mesh: LevelFilter,
}

static WANTED: OnceLock<Wanted> = OnceLock::new();

impl Wanted {
    fn new(nccl_debug: Option<&str>, mesh_debug: u8) -> Self {
        let nccl = match nccl_debug.map(|value| value.trim().to_ascii_uppercase()).as_deref() {
            Some("INFO" | "ABORT") => LevelFilter::INFO,
            Some("TRACE") => LevelFilter::TRACE,
            _ => LevelFilter::WARN,
        };
        let mesh = match mesh_debug {
            0 => LevelFilter::OFF,
            1 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        };
        Self { nccl, mesh }
    }

    fn either(self) -> LevelFilter {
        self.nccl.max(self.mesh).max(LevelFilter::WARN)
    }
}

/// Installs the library's subscriber, once; a second call, or a subscriber that is there already, changes nothing.
/// `nccl_debug` is the value of `NCCL_DEBUG`, `mesh_debug` the setting `DEBUG`.
pub(crate) fn install(nccl_debug: Option<&str>, mesh_debug: u8) {
    let mut first = false;
    let wanted = *WANTED.get_or_init(|| {
        first = true;
        Wanted::new(nccl_debug, mesh_debug)
    });
    if first {
        // An error means that the program that links this library logs in its own way.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Bridge { wanted }));
    }
}

/// Takes NCCL's logger, or none.
pub(crate) fn attach(logger: Option<LoggerFn>) {
    LOGGER.store(logger.map_or(null_mut(), |logger| logger as *mut ()), Ordering::SeqCst);
    QUIET.store(false, Ordering::SeqCst);
}

/// Gives NCCL's logger up: when this returns no thread is inside it (or one has been for a long time). From now on
/// background threads are silent, except on standard error if `NCCL_MESH_DEBUG` asks for it.
pub(crate) fn detach() {
    QUIET.store(true, Ordering::SeqCst);
    LOGGER.store(null_mut(), Ordering::SeqCst);
    let begun = Instant::now();
    while CALLING.load(Ordering::SeqCst) != 0 && begun.elapsed() < DETACH_WAIT {
        std::thread::yield_now();
    }
}

/// The layer that formats events and forwards them.
struct Bridge {
    wanted: Wanted,
}

impl<S: Subscriber> Layer<S> for Bridge {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= self.wanted.either()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.wanted.either())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let level = *metadata.level();
        let mut line = Line::default();
        event.record(&mut line);
        let text = line.finish();
        if level <= self.wanted.nccl.max(LevelFilter::WARN)
            && to_nccl(level, metadata.target(), metadata.file(), metadata.line(), &text)
        {
            return;
        }
        let warning = level <= Level::WARN && !QUIET.load(Ordering::Relaxed);
        if warning || level <= self.wanted.mesh {
            to_stderr(level, &text);
        }
    }
}

/// Whether NCCL's logger was there and took the line. `text` is free of NUL bytes.
fn to_nccl(level: Level, target: &str, file: Option<&str>, line: Option<u32>, text: &str) -> bool {
    CALLING.fetch_add(1, Ordering::SeqCst);
    let _end = CallEnd;
    let logger = LOGGER.load(Ordering::SeqCst);
    if logger.is_null() {
        return false;
    }
    // SAFETY: the only other value than NULL is a logger, stored by `attach`; NCCL keeps it callable until the last
    // `finalize`, where `detach` takes it away and waits for this call.
    let logger = unsafe { std::mem::transmute::<*mut (), LoggerFn>(logger) };
    let level = match level {
        Level::ERROR | Level::WARN => LOG_WARN,
        Level::INFO => LOG_INFO,
        _ => LOG_TRACE,
    };
    let subsystem: c_ulong = if target == INIT { SUBSYS_INIT } else { SUBSYS_NET };
    let mut text = text.as_bytes().to_vec();
    text.push(0);
    let mut place = [0u8; 128];
    let file = file.unwrap_or("nccl-mesh").as_bytes();
    // The end of a path says more than its start; the last byte stays NUL.
    let tail = &file[file.len().saturating_sub(place.len() - 1)..];
    place[..tail.len()].copy_from_slice(tail);
    let line = line.and_then(|line| i32::try_from(line).ok()).unwrap_or(0);
    // SAFETY: all texts end with NUL and live through the call; the format takes exactly the one string.
    unsafe { logger(level, subsystem, place.as_ptr().cast(), line, c"%s".as_ptr(), text.as_ptr()) };
    true
}

/// Counts a call into the logger as ended, also if something unwinds.
struct CallEnd;

impl Drop for CallEnd {
    fn drop(&mut self) {
        CALLING.fetch_sub(1, Ordering::SeqCst);
    }
}

fn to_stderr(level: Level, text: &str) {
    // One write, so that lines of several processes do not mix. A closed standard error is no reason to stop a job.
    let line = format!("nccl-mesh[{}] {level} {text}\n", std::process::id());
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// An event's text: the message, then the other fields as `name=value`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    /// One line without NUL bytes, at most [`LINE_LIMIT`] bytes.
    fn finish(self) -> String {
        let mut text = self.message;
        text.push_str(&self.fields);
        text.retain(|c| c != '\0');
        text.truncate(text.floor_char_boundary_at(LINE_LIMIT));
        text
    }
}

/// `str::floor_char_boundary`, which is younger than the oldest compiler supported.
trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, at: usize) -> usize;
}

impl FloorCharBoundary for String {
    fn floor_char_boundary_at(&self, at: usize) -> usize {
        if at >= self.len() {
            return self.len();
        }
        (0..=at).rev().find(|i| self.is_char_boundary(*i)).unwrap_or(0)
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
