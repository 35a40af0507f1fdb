//! A logger for hosts that have none: plugin lines to standard error.
//!
//! For: tests and the simulator, in the place of NCCL's logger. Must not know: what is logged.
//! Threads: any; a line is written with one call.

use core::ffi::{CStr, c_char, c_int, c_ulong};
use std::io::Write;

use crate::{LOG_ABORT, LOG_INFO, LOG_TRACE, LOG_VERSION, LOG_WARN, LoggerFn};

/// The same function as [`to_stderr`] returns, with the one argument that `"%s"` needs written out.
///
/// Stable Rust calls variadic C functions but cannot define them. On x86-64 and aarch64 Linux a variadic call passes
/// its first arguments in the same registers as a call with fixed arguments, so six fixed arguments read what a
/// variadic caller passed; the sixth is looked at only if the format is `"%s"`.
unsafe extern "C" fn stderr_fixed(
    level: c_int,
    _flags: c_ulong,
    file: *const c_char,
    line: c_int,
    format: *const c_char,
    argument: *const c_char,
) {
    // SAFETY: the caller of a logger passes NULL or C strings that live through the call, and with "%s" one such
    // argument.
    let text = unsafe { line_of(level, file, line, format, argument) };
    // A closed standard error is no reason to stop a job.
    let _ = writeln!(std::io::stderr().lock(), "[{}] {text}", std::process::id());
}

/// The line to print.
///
/// # Safety
/// `file` and `format` are NULL or C strings; so is `argument` if the format is `"%s"`.
unsafe fn line_of(
    level: c_int,
    file: *const c_char,
    line: c_int,
    format: *const c_char,
    argument: *const c_char,
) -> String {
    // SAFETY: NULL is sorted out, the rest is the caller's promise; `argument` is read for "%s" only.
    let text = |p: *const c_char| (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy());
    let format = text(format).unwrap_or_default();
    let message = if format == "%s" { text(argument).unwrap_or_default() } else { format };
    match level {
        LOG_WARN => format!("{}:{line} NCCL WARN {message}", text(file).unwrap_or_default()),
        LOG_VERSION => format!("NCCL VERSION {message}"),
        LOG_INFO => format!("NCCL INFO {message}"),
        LOG_ABORT => format!("NCCL ABORT {message}"),
        LOG_TRACE => format!("NCCL TRACE {message}"),
        _ => format!("NCCL level {level} {message}"),
    }
}

/// A logger that prints every line to standard error; formats other than `"%s"` are printed as they are.
pub fn to_stderr() -> LoggerFn {
    // SAFETY: the types differ only in `...` for the last argument; on the supported targets (x86-64 and aarch64
    // Linux) both calls use the same registers, see `stderr_fixed`.
    unsafe {
        core::mem::transmute::<
            unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char),
            LoggerFn,
        >(stderr_fixed)
    }
}

#[cfg(test)]
mod tests {
    use core::ptr::{null, without_provenance};
    use std::cell::RefCell;

    use super::*;
    use crate::SUBSYS_NET;

    thread_local! {
        static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// As `stderr_fixed`, keeping the line.
    unsafe extern "C" fn keeping(
        level: c_int,
        flags: c_ulong,
        file: *const c_char,
        line: c_int,
        format: *const c_char,
        argument: *const c_char,
    ) {
        assert_eq!(flags, SUBSYS_NET);
        // SAFETY: the test below passes literals or NULL.
        let text = unsafe { line_of(level, file, line, format, argument) };
        SEEN.with_borrow_mut(|seen| seen.push(text));
    }

    #[test]
    fn variadic_calls_reach_the_fixed_function() {
        // given a fixed function behind the variadic type that a plugin calls
        // SAFETY: as in `to_stderr`.
        let log: LoggerFn = unsafe {
            core::mem::transmute::<
                unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char),
                LoggerFn,
            >(keeping)
        };
        // when called with "%s", without arguments, and with NULL
        // SAFETY: all strings are literals or NULL.
        unsafe {
            log(LOG_WARN, SUBSYS_NET, c"file.rs".as_ptr(), 7, c"%s".as_ptr(), c"hello".as_ptr());
            log(LOG_INFO, SUBSYS_NET, null(), 0, c"plain text".as_ptr());
            log(99, SUBSYS_NET, null(), 0, null());
        }
        // then every line is whole
        let seen = SEEN.with_borrow(Clone::clone);
        assert_eq!(seen, ["file.rs:7 NCCL WARN hello", "NCCL INFO plain text", "NCCL level 99 "]);
    }

    #[test]
    fn the_argument_is_read_for_percent_s_only() {
        // given an argument that must not be followed
        let wild = without_provenance::<c_char>(8);
        // when the format has no place for it, then it is left alone
        // SAFETY: the format is not "%s".
        let line = unsafe { line_of(LOG_TRACE, null(), 0, c"50%s off".as_ptr(), wild) };
        assert_eq!(line, "NCCL TRACE 50%s off");
    }
}
