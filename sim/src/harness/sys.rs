//! The few system calls that the standard library lacks: signals, children that end with their parent, processor time, and the
//! core of a thread.
//!
//! Linux only. Any thread.
#![allow(unsafe_code, reason = "plain system calls")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

static STOPPED_BY: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_stop(signal: libc::c_int) {
    // The second one ends the process at once: its children end with it.
    if STOPPED_BY.swap(signal, Ordering::SeqCst) != 0 {
        // SAFETY: `_exit` may be called in a signal handler.
        unsafe { libc::_exit(128 + signal) };
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP do not end the process but are kept for [`stopped_by`].
pub(super) fn catch_stop_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only touches an atomic and calls `_exit`, both allowed in a handler; an all-zero sigaction
        // is valid, and a failure leaves the default, which also ends the run.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_stop as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// The stop signal that came, if one did.
pub(super) fn stopped_by() -> Option<i32> {
    match STOPPED_BY.load(Ordering::SeqCst) {
        0 => None,
        signal => Some(signal),
    }
}

/// The child leads a process group of its own, and is killed when the thread that starts it ends, however that comes.
pub(super) fn tie_to_parent(command: &mut Command) {
    let parent = std::process::id();
    command.process_group(0);
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid, _exit.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the call.
            if libc::getppid() as u32 != parent {
                libc::_exit(1);
            }
            Ok(())
        });
    }
}

/// Sends a signal to the process group that a child leads.
pub(super) fn signal_group(leader: u32, signal: i32) {
    // SAFETY: kill has no memory preconditions; the group is that of a child not yet waited for, so its number is not
    // somebody else's. A group that is gone gives an error, which is what was wanted.
    unsafe { libc::kill(-(leader as libc::pid_t), signal) };
}

/// Processor time that a process has used, user and system, in seconds; `None` if it is gone.
pub(super) fn processor_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything; the state after it is the third.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some((user + system) as f64 / ticks.max(1) as f64)
}

/// Processor time that this process has used, all its threads together.
pub(super) fn own_processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives through the call. The clock is there on every Linux; were it not, the time stays zero.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The child runs on this core only.
pub(super) fn pin_command(command: &mut Command, core: usize) {
    // SAFETY: between fork and exec only `sched_setaffinity` is called, on a set on the stack, and nothing allocates.
    unsafe {
        command.pre_exec(move || {
            let pinned = core_affinity::set_for_current(core_affinity::CoreId { id: core });
            if pinned { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_processor_time_grows_with_work() {
        let before = own_processor_time();
        let mut sum = 0_u64;
        while own_processor_time() < before + Duration::from_millis(2) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }

    #[test]
    fn processor_time_of_a_running_process_is_known() {
        // given this process, which has used some time
        let mut sum = 0_u64;
        let before = processor_seconds(std::process::id()).expect("it runs");
        while processor_seconds(std::process::id()).is_some_and(|now| now < before + 0.02) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        // then the time grew; and of a process that is not there nothing is known
        assert!(processor_seconds(std::process::id()).expect("it runs") > before);
        assert_eq!(processor_seconds(u32::MAX), None);
    }
}
