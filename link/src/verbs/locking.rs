//! How much memory this process may lock, for the reason why a registration failed.
//!
//! Reads `/proc` and the process's limit, after a failure only. Knows nothing of devices. Any thread.
#![allow(unsafe_code, reason = "asks the kernel for a limit")]

use std::fs;

/// `CAP_IPC_LOCK` among the bits of `CapEff`: the kernel asks for no limit then.
const IPC_LOCK: u64 = 1 << 14;

/// What the kernel counts and allows, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Locking {
    /// Soft `RLIMIT_MEMLOCK`; `None` if there is no limit.
    pub(super) limit: Option<u64>,
    /// Pages of this process that devices hold.
    pub(super) pinned: u64,
    /// The process has `CAP_IPC_LOCK`.
    pub(super) exempt: bool,
    /// Memory that could be had.
    pub(super) available: u64,
    /// `CmaTotal` and `CmaFree`.
    cma: (u64, u64),
}

impl Locking {
    /// As of now.
    pub(super) fn now() -> Self {
        // Capabilities are a thread's own.
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self { limit: soft_limit(), ..Self::parse(&read("/proc/thread-self/status"), &read("/proc/meminfo")) }
    }

    fn parse(status: &str, meminfo: &str) -> Self {
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next().map(str::to_owned))
        };
        let kib = |text, name| field(text, name).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10;
        let effective = field(status, "CapEff").and_then(|bits| u64::from_str_radix(&bits, 16).ok());
        Self {
            limit: None,
            pinned: kib(status, "VmPin"),
            exempt: effective.is_some_and(|bits| bits & IPC_LOCK != 0),
            available: kib(meminfo, "MemAvailable"),
            cma: (kib(meminfo, "CmaTotal"), kib(meminfo, "CmaFree")),
        }
    }

    /// Whether the limit forbids `bytes` more, with at least `registered` held already.
    pub(super) fn forbids(&self, registered: u64, bytes: u64) -> bool {
        let held = self.pinned.max(registered);
        !self.exempt && self.limit.is_some_and(|limit| held.saturating_add(bytes) > limit)
    }

    /// Free and total contiguous memory in KiB, if the kernel's numbers contradict each other: then nothing can be pinned any more.
    pub(super) fn impossible_cma(&self) -> Option<(u64, u64)> {
        let (total, free) = self.cma;
        (free > total).then_some((free >> 10, total >> 10))
    }

    /// Why the limit is not what is in the way.
    pub(super) fn excuse(&self) -> String {
        match self.limit {
            None => "RLIMIT_MEMLOCK is unlimited".into(),
            Some(_) if self.exempt => "this process may lock any amount (CAP_IPC_LOCK)".into(),
            Some(limit) => format!("RLIMIT_MEMLOCK ({} KiB) would allow it", limit >> 10),
        }
    }
}

fn soft_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one structure that lives here.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\ttrain\nVmLck:\t       0 kB\nVmPin:\t      48 kB\nCapEff:\t00000000a80425fb\n";

    #[test]
    fn the_limit_is_to_blame_only_if_it_is_passed() {
        // given 64 KiB that may be locked and 48 that are
        let locking = Locking { limit: Some(64 << 10), ..Locking::parse(STATUS, "") };
        assert_eq!((locking.pinned, locking.exempt), (48 << 10, false));
        // then 16 more fit and a byte more does not, by whichever count is higher
        assert!(!locking.forbids(0, 16 << 10));
        assert!(locking.forbids(0, (16 << 10) + 1));
        assert!(locking.forbids(56 << 10, 16 << 10));
        assert_eq!(locking.excuse(), "RLIMIT_MEMLOCK (64 KiB) would allow it");
        // and without a limit, or with the capability, it never is
        assert!(!Locking { limit: None, ..locking }.forbids(0, 1 << 40));
        let capable = STATUS.replace("a80425fb", "a80465fb");
        let exempt = Locking { limit: Some(0), ..Locking::parse(&capable, "") };
        assert!(exempt.exempt && !exempt.forbids(0, 1 << 40) && exempt.excuse().contains("CAP_IPC_LOCK"));
    }

    #[test]
    fn impossible_counters_of_contiguous_memory_are_seen() {
        let of = |total, free| {
            let text = format!("MemAvailable:  1024 kB\nCmaTotal:  {total} kB\nCmaFree:  {free} kB\n");
            let locking = Locking::parse("", &text);
            assert_eq!(locking.available, 1 << 20);
            locking.impossible_cma()
        };
        assert_eq!(of(64, 64), None);
        assert_eq!(of(64, 65), Some((65, 64)));
        assert_eq!(of(0, 0), None);
        assert_eq!(Locking::parse("", "").impossible_cma(), None);
    }

    #[test]
    fn this_process_is_read() {
        assert!(Locking::now().available > 0);
    }
}
