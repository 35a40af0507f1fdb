//! The bridge with a logger of our own in NCCL's place.

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::subscriber::with_default;

use super::*;

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    level: c_int,
    flags: c_ulong,
    file: String,
    text: String,
}

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
/// Tests share the process's one logger.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// As NCCL's logger for the one format in use; see `mesh_abi::logger` for why fixed arguments fit.
unsafe extern "C" fn keep(
    level: c_int,
    flags: c_ulong,
    file: *const c_char,
    line: c_int,
    format: *const c_char,
    text: *const c_char,
) {
    // SAFETY: `to_nccl` passes C strings.
    let (file, format, text) = unsafe { (CStr::from_ptr(file), CStr::from_ptr(format), CStr::from_ptr(text)) };
    assert_eq!(format, c"%s");
    assert!(line > 0);
    let (file, text) = (file.to_string_lossy().into_owned(), text.to_string_lossy().into_owned());
    SEEN.lock().unwrap().push(Seen { level, flags, file, text });
}

fn keeper() -> LoggerFn {
    // SAFETY: differs from the variadic type in `...` only, see `mesh_abi::logger::to_stderr`.
    unsafe {
        std::mem::transmute::<
            unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char),
            LoggerFn,
        >(keep)
    }
}

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What reaches NCCL's logger from `events` under these wishes.
fn seen(nccl_debug: Option<&str>, mesh_debug: u8, events: impl FnOnce()) -> Vec<Seen> {
    let wanted = Wanted::new(nccl_debug, mesh_debug);
    attach(Some(keeper()));
    SEEN.lock().unwrap().clear();
    with_default(tracing_subscriber::registry().with(Bridge { wanted }), events);
    detach();
    std::mem::take(&mut *SEEN.lock().unwrap())
}

fn one_of_each() {
    tracing::error!("e");
    tracing::warn!("w");
    tracing::info!("i");
    tracing::debug!("d");
    tracing::trace!("t");
}

fn texts(seen: &[Seen]) -> String {
    seen.iter().map(|seen| seen.text.as_str()).collect()
}

#[test]
fn levels_follow_nccl_debug() {
    let _alone = alone();
    // given each value of NCCL_DEBUG, when one event of each level is logged, then NCCL's logger gets those it would print
    for (value, expected) in [
        (None, "ew"),
        (Some("VERSION"), "ew"),
        (Some("WARN"), "ew"),
        (Some("info"), "ewi"),
        (Some("TRACE"), "ewidt"),
        (Some("nonsense"), "ew"),
    ] {
        assert_eq!(texts(&seen(value, 0, one_of_each)), expected, "{value:?}");
    }
    // and what only NCCL_MESH_DEBUG wants goes elsewhere
    assert_eq!(texts(&seen(None, 2, one_of_each)), "ew");
    assert_eq!(Wanted::new(None, 1).either(), LevelFilter::INFO);
    assert_eq!(Wanted::new(None, 2).either(), LevelFilter::DEBUG);
    assert_eq!(Wanted::new(Some("TRACE"), 1).either(), LevelFilter::TRACE);
}

#[test]
fn levels_subsystems_and_places_are_nccls() {
    let _alone = alone();
    let seen = seen(Some("TRACE"), 0, || {
        tracing::warn!("a");
        tracing::info!(target: INIT, "b");
        tracing::trace!("c");
    });
    let numbers: Vec<_> = seen.iter().map(|seen| (seen.level, seen.flags)).collect();
    assert_eq!(numbers, [(LOG_WARN, SUBSYS_NET), (LOG_INFO, SUBSYS_INIT), (LOG_TRACE, SUBSYS_NET)]);
    assert!(seen.iter().all(|seen| seen.file.ends_with("log_tests.rs")), "{seen:?}");
}

#[test]
fn lines_hold_fields_and_no_nul_and_end_at_the_limit() {
    let _alone = alone();
    let long = "é".repeat(LINE_LIMIT);
    let seen = seen(None, 0, || {
        tracing::warn!(peer = "spark-b", port = 3, "lost\0 it, 100%s");
        tracing::warn!("{long}");
        tracing::warn!("x{long}");
    });
    assert_eq!(seen[0].text, "lost it, 100%s peer=spark-b port=3");
    assert_eq!(seen[1].text.len(), LINE_LIMIT);
    assert_eq!(seen[2].text.len(), LINE_LIMIT - 1, "cut between letters");
}

#[test]
fn after_detach_nothing_reaches_the_logger() {
    let _alone = alone();
    attach(Some(keeper()));
    detach();
    SEEN.lock().unwrap().clear();
    with_default(tracing_subscriber::registry().with(Bridge { wanted: Wanted::new(None, 0) }), one_of_each);
    assert_eq!(*SEEN.lock().unwrap(), []);
    // and with a logger that is NULL neither
    attach(None);
    with_default(tracing_subscriber::registry().with(Bridge { wanted: Wanted::new(None, 0) }), one_of_each);
    assert_eq!(*SEEN.lock().unwrap(), []);
}

#[test]
fn installing_twice_is_harmless() {
    install(Some("WARN"), 0);
    install(Some("TRACE"), 2);
    // then the first wishes stay
    assert_eq!(WANTED.get(), Some(&Wanted::new(Some("WARN"), 0)));
}
