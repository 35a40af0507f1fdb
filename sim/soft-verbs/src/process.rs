//! Who a process is, and whether it still lives: process ids get used again, so the time of its start belongs to it.
//!
//! Any thread. Knows nothing of verbs.

use std::sync::OnceLock;

/// A process: its id in the upper half, the low 32 bits of its start time (clock ticks since boot) in the lower. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(u64);

impl Identity {
    /// The calling process, as it was when first asked: a forked child has the parent's.
    pub fn own() -> Self {
        static OWN: OnceLock<Identity> = OnceLock::new();
        *OWN.get_or_init(|| {
            let pid = std::process::id();
            Self(u64::from(pid) << 32 | started(pid).map_or(0, u64::from))
        })
    }

    /// From the number kept in shared memory; 0 is nobody.
    pub fn from_raw(raw: u64) -> Option<Self> {
        (raw != 0).then_some(Self(raw))
    }

    /// The number to keep.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The process id.
    pub fn pid(self) -> i32 {
        (self.0 >> 32) as i32
    }

    /// Whether the process runs. A killed process that its parent has not reaped is dead. Costs a read of `/proc`.
    pub fn alive(self) -> bool {
        started(self.pid() as u32) == Some(self.0 as u32)
    }
}

/// Start time of a running process, clock ticks since boot, low 32 bits; `None` if there is none or it is a zombie.
fn started(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything, brackets and spaces too: fields count from the last bracket.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    // Start time is field 22 of the line; the state was field 3.
    fields.nth(18)?.parse::<u64>().ok().map(|ticks| ticks as u32)
}

/// Nanoseconds of the monotonic clock, which all processes of the machine share.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill; the monotonic clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The program's signal handlers do not run on the calling thread: on one that the program does not know they must not.
pub fn keep_signals_away() {
    // SAFETY: changes the calling thread only; the set is filled before it is used.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_child_is_dead_before_it_is_reaped() {
        // given a child that runs
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let start = started(child.id()).expect("runs");
        let identity = Identity(u64::from(child.id()) << 32 | u64::from(start));
        assert!(identity.alive());
        // when it is killed but not yet waited for
        child.kill().expect("kill");
        let mut patience = 1000;
        while identity.alive() && patience > 0 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            patience -= 1;
        }
        // then it counts as dead, and so it does afterwards
        assert!(!identity.alive());
        child.wait().expect("reaped");
        assert!(!identity.alive());
    }

    #[test]
    fn another_process_under_the_same_id_is_not_it() {
        // given our own identity with another start time, then it is dead while we live
        assert!(Identity::own().alive());
        assert!(!Identity(Identity::own().raw() ^ 1).alive());
    }
}
