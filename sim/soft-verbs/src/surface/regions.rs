//! Protection domains and memory regions.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::devices::object;
use super::null;
use crate::abi::{self, Context, Mr, Pd};
use crate::copying::probe;
use crate::plan::Memlock;
use crate::process::Identity;

/// How long deregistration waits for a peer's copy that a killed peer may never end.
const COPY_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that this process has registered, in whole pages as a kernel counts them.
static REGISTERED: AtomicU64 = AtomicU64::new(0);
/// First of the access bits that a device may ignore.
const OPTIONAL: u32 = 1 << 20;

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut Context) -> *mut Pd {
    // SAFETY: an open context.
    let fabric = unsafe { object(context) }.fabric;
    let handle = fabric.shared.tables().domains.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    Box::into_raw(Box::new(Pd { context, handle }))
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut Pd) -> c_int {
    // SAFETY: made by `ibv_alloc_pd` and not used any more.
    drop(unsafe { Box::from_raw(pd) });
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_reg_mr(pd: *mut Pd, address: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    // SAFETY: the caller's promises are the same.
    unsafe { ibv_reg_mr_iova2(pd, address, length, address.addr() as u64, access as u32) }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut Pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut Mr {
    // SAFETY: the caller's promises are the same.
    unsafe { ibv_reg_mr_iova2(pd, address, length, iova, access as u32) }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut Pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut Mr {
    let first = address.expose_provenance() as u64;
    let iova = if access & abi::IBV_ACCESS_ZERO_BASED == 0 { iova } else { 0 };
    let ends = first.checked_add(length as u64).and_then(|_| iova.checked_add(length as u64));
    let remote_change = access & (abi::IBV_ACCESS_REMOTE_WRITE | abi::IBV_ACCESS_REMOTE_ATOMIC) != 0;
    let unknown = access & (OPTIONAL - 1) & !0xff != 0;
    if length == 0 || ends.is_none() || unknown || (remote_change && access & abi::IBV_ACCESS_LOCAL_WRITE == 0) {
        return null(libc::EINVAL);
    }
    // As a kernel that pins the pages would: memory that is not there is not registered.
    let own = Identity::own().pid();
    if probe(own, first).is_err() || probe(own, first + length as u64 - 1).is_err() {
        return null(libc::EFAULT);
    }
    // SAFETY: a live domain, whose context is open.
    let (context, domain) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: as above.
    let fabric = unsafe { object(context) }.fabric;
    if !lock(fabric.plan.memlock, first, length as u64) {
        return null(libc::ENOMEM);
    }
    let Some((cell, key)) = fabric.shared.take_region() else {
        unlock(first, length as u64);
        return null(libc::ENOMEM);
    };
    cell.access.store(access, Ordering::Relaxed);
    cell.domain.store(domain, Ordering::Relaxed);
    cell.iova.store(iova, Ordering::Relaxed);
    cell.address.store(first, Ordering::Relaxed);
    cell.length.store(length as u64, Ordering::Relaxed);
    cell.key.store(key, Ordering::Release);
    Box::into_raw(Box::new(Mr { context, pd, addr: address, length, handle: key >> 8, lkey: key, rkey: key }))
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut Mr) -> c_int {
    // SAFETY: made by a registration and not used any more; its context is open.
    let mr = unsafe { Box::from_raw(mr) };
    // SAFETY: as above.
    let fabric = unsafe { object(mr.context) }.fabric;
    if let Some(cell) = fabric.shared.region(mr.lkey) {
        cell.key.store(0, Ordering::SeqCst);
        let start = Instant::now();
        while cell.users.load(Ordering::SeqCst) != 0 && start.elapsed() < COPY_PATIENCE {
            std::thread::yield_now();
        }
        cell.owner.store(0, Ordering::Release);
    }
    unlock(mr.addr.addr() as u64, mr.length as u64);
    0
}

/// Bytes of the pages that a range touches.
fn pages(first: u64, length: u64) -> u64 {
    (first + length).div_ceil(4096) * 4096 - first / 4096 * 4096
}

/// Counts a range as locked, unless that is more than the process may.
fn lock(memlock: Memlock, first: u64, length: u64) -> bool {
    let most = match memlock {
        Memlock::Unlimited => u64::MAX,
        Memlock::Limit => soft_limit(),
        Memlock::Bytes(most) => most,
    };
    let bytes = pages(first, length);
    let added = |now: u64| now.checked_add(bytes).filter(|&sum| sum <= most);
    REGISTERED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok()
}

fn unlock(first: u64, length: u64) {
    REGISTERED.fetch_sub(pages(first, length), Ordering::Relaxed);
}

/// The process's `RLIMIT_MEMLOCK` in bytes.
fn soft_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one structure that lives here.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    // No limit is all ones.
    limit.rlim_cur
}

/// Device memory cannot be reached from another process: programs fall back to host memory.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut Pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut Mr {
    null(libc::EOPNOTSUPP)
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`: registered pages are not pinned.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
