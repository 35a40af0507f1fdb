//! Registered memory, and the registrations of one device.
//!
//! Registering pins pages and costs microseconds to milliseconds, so a device keeps what was registered in a table with counts: a window
//! inside memory that is registered already costs a look-up. A region that nobody holds any more is marked dead at once, so that an
//! endpoint which remembers it does not use it for other memory that has come to the same address, and is given back when the last
//! reference goes. The table's lock is for registering alone; the data path reads only the marks. Any thread.
#![allow(unsafe_code, reason = "calls into libibverbs with the pointers it handed out")]

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::pd::Pd;
use super::sys;
use crate::Window;

/// Memory could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The limit on locked memory is in the way.
    #[error(
        "cannot register {bytes} bytes with {device}: not enough lockable memory (limit {limit_kib} KiB); raise it: ulimit -l unlimited, \
         or LimitMEMLOCK=infinity in the unit, or --ulimit memlock=-1 --cap-add IPC_LOCK for a container"
    )]
    Memlock {
        /// Device.
        device: String,
        /// Bytes asked for.
        bytes: usize,
        /// The process's soft limit.
        limit_kib: u64,
    },
    /// Something else.
    #[error("cannot register {bytes} bytes at {addr:#x} with {device}: {}", io::Error::from_raw_os_error(*.errno))]
    Failed {
        /// Device.
        device: String,
        /// First byte.
        addr: usize,
        /// Bytes asked for.
        bytes: usize,
        /// The errno.
        errno: i32,
    },
}

/// A registered stretch of memory.
pub(super) struct Mr {
    pd: Arc<Pd>,
    ptr: NonNull<sys::Mr>,
    start: usize,
    end: usize,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    /// Somebody vouches for the memory. Cleared with release once, read with acquire.
    live: AtomicBool,
}

// SAFETY: a region may be used and given back from any thread.
unsafe impl Send for Mr {}
// SAFETY: as above; what changes is atomic.
unsafe impl Sync for Mr {}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({:#x}..{:#x} on {})", self.start, self.end, self.pd.context.name)
    }
}

impl Mr {
    /// Memory of an endpoint's own: in no table, live until dropped. `remote`: the peer may write it.
    pub(super) fn own(pd: &Arc<Pd>, window: Window, remote: bool) -> Result<Self, RegisterError> {
        Self::new(pd, window.addr(), window.addr() + window.len(), remote)
    }

    fn new(pd: &Arc<Pd>, start: usize, end: usize, remote: bool) -> Result<Self, RegisterError> {
        let (context, bytes) = (&pd.context, end - start);
        // No relaxed ordering: readers may look for flags inside data, and notifications must not overtake payload.
        let access = sys::ACCESS_LOCAL_WRITE | if remote { sys::ACCESS_REMOTE_WRITE } else { 0 };
        // SAFETY: a live protection domain. The range is that of a window, rounded out to pages, which exist if the window does.
        let ptr =
            unsafe { (context.verbs.reg_mr)(pd.ptr.as_ptr(), std::ptr::without_provenance_mut(start), bytes, access) };
        let Some(ptr) = NonNull::new(ptr) else {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            let device = context.name.clone();
            return Err(match memlock_kib() {
                Some(limit_kib) if errno == libc::ENOMEM => RegisterError::Memlock { device, bytes, limit_kib },
                _ => RegisterError::Failed { device, addr: start, bytes, errno },
            });
        };
        // SAFETY: the library filled the structure before it returned it, and its keys never change.
        let (lkey, rkey) = unsafe { ((*ptr.as_ptr()).lkey, (*ptr.as_ptr()).rkey) };
        Ok(Self { pd: Arc::clone(pd), ptr, start, end, lkey, rkey, live: AtomicBool::new(true) })
    }

    /// Whether the window lies inside, and somebody still vouches for the memory.
    pub(super) fn covers(&self, window: &Window) -> bool {
        let at = window.addr();
        // Acquire: pairs with the release in `MrCache::drop_user`.
        at >= self.start && at <= self.end && window.len() <= self.end - at && self.live()
    }

    pub(super) fn live(&self) -> bool {
        // Acquire: pairs with the release in `MrCache::drop_user`.
        self.live.load(Ordering::Acquire)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: made in `new`; whoever posts work that names its keys holds an Arc of it meanwhile, or a registration.
        unsafe { (self.pd.context.verbs.dereg_mr)(self.ptr.as_ptr()) };
    }
}

/// The regions of one device.
#[derive(Debug)]
pub(super) struct MrCache {
    pub(super) pd: Arc<Pd>,
    regions: Mutex<Vec<Entry>>,
    /// Counts regions that died, so that endpoints know when to look through what they remember.
    deaths: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    mr: Arc<Mr>,
    users: usize,
}

impl MrCache {
    pub(super) fn new(pd: Arc<Pd>) -> Arc<Self> {
        Arc::new(Self { pd, regions: Mutex::new(Vec::new()), deaths: AtomicU64::new(0) })
    }

    /// Registers the pages that the window touches, or finds them registered.
    pub(super) fn register(self: &Arc<Self>, window: Window) -> Result<DeviceRegistration, RegisterError> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let mr = match regions.iter_mut().find(|entry| entry.mr.covers(&window)) {
            Some(entry) => {
                entry.users += 1;
                Arc::clone(&entry.mr)
            }
            None => {
                let page = page_size();
                let start = window.addr() & !(page - 1);
                // A window ends inside the address space, and the last page of that belongs to the kernel.
                let end = (window.addr() + window.len().max(1)).next_multiple_of(page);
                let mr = Arc::new(Mr::new(&self.pd, start, end, true)?);
                regions.push(Entry { mr: Arc::clone(&mr), users: 1 });
                mr
            }
        };
        Ok(DeviceRegistration { cache: Arc::clone(self), mr })
    }

    /// A live region around the window, if there is one. Takes the lock: for endpoints that do not remember one.
    pub(super) fn find(&self, window: &Window) -> Option<Arc<Mr>> {
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.iter().find(|entry| entry.mr.covers(window)).map(|entry| Arc::clone(&entry.mr))
    }

    /// How many regions have died so far.
    pub(super) fn deaths(&self) -> u64 {
        // Relaxed: a hint to look at the marks, which have their own order.
        self.deaths.load(Ordering::Relaxed)
    }

    fn drop_user(&self, mr: &Arc<Mr>) {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = regions.iter().position(|entry| Arc::ptr_eq(&entry.mr, mr)) else { return };
        regions[at].users -= 1;
        if regions[at].users == 0 {
            // Release: whoever sees other memory at this address sees this mark too.
            mr.live.store(false, Ordering::Release);
            self.deaths.fetch_add(1, Ordering::Relaxed);
            let entry = regions.swap_remove(at);
            drop(regions);
            // Given back outside the lock, as that takes as long as registering.
            drop(entry);
        }
    }
}

/// A promise that memory stays registered with one device while this lives.
#[derive(Debug)]
pub(super) struct DeviceRegistration {
    cache: Arc<MrCache>,
    pub(super) mr: Arc<Mr>,
}

impl Drop for DeviceRegistration {
    fn drop(&mut self) {
        self.cache.drop_user(&self.mr);
    }
}

fn page_size() -> usize {
    // SAFETY: asks for a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(4096)
}

/// The limit on locked memory, if there is one.
fn memlock_kib() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one structure that lives here.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_for_locked_memory_is_told() {
        let error = RegisterError::Memlock { device: "rocep1s0f0".into(), bytes: 1 << 20, limit_kib: 64 };
        let text = error.to_string();
        assert!(text.contains("limit 64 KiB") && text.contains("--ulimit memlock=-1"), "{text}");
        assert!(page_size().is_power_of_two());
    }
}
