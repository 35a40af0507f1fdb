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

use super::locking::Locking;
use super::pd::Pd;
use super::sys;
use crate::Window;

/// Memory could not be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The limit on locked memory is in the way.
    #[error(
        "cannot register {bytes} bytes with {device}: this process may lock {limit_kib} KiB (RLIMIT_MEMLOCK) and holds {held_kib} KiB; raise \
         it: ulimit -l unlimited in the shell, or LimitMEMLOCK=infinity in the unit, or --ulimit memlock=-1 --cap-add IPC_LOCK for the \
         container"
    )]
    Memlock {
        /// Device.
        device: String,
        /// Bytes asked for.
        bytes: usize,
        /// The process's soft limit.
        limit_kib: u64,
        /// What is registered already.
        held_kib: u64,
    },
    /// The kernel has no memory for it, and the limit is not the reason.
    #[error(
        "cannot register {bytes} bytes with {device}: cannot allocate memory, although {excuse} and {available_kib} KiB are available; {}",
        match .cma_kib {
            Some((free, total)) => format!(
                "the kernel's counters of contiguous memory are impossible (CmaFree {free} kB of CmaTotal {total} kB): boot with kho=off"
            ),
            None => "the kernel's log (dmesg) may say what the driver lacks".to_owned(),
        }
    )]
    NoMemory {
        /// Device.
        device: String,
        /// Bytes asked for.
        bytes: usize,
        /// Why it is not the limit.
        excuse: String,
        /// Memory that could be had.
        available_kib: u64,
        /// Free and total contiguous memory, if these numbers cannot be.
        cma_kib: Option<(u64, u64)>,
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

/// Bytes that this process has registered, for the reason why no more can be. Relaxed: a statistic.
static REGISTERED: AtomicU64 = AtomicU64::new(0);

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
            return Err(refused(context.name.clone(), start, bytes, errno));
        };
        REGISTERED.fetch_add(bytes as u64, Ordering::Relaxed);
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

/// What stood in the way of a registration.
#[cold]
fn refused(device: String, addr: usize, bytes: usize, errno: i32) -> RegisterError {
    if errno != libc::ENOMEM {
        return RegisterError::Failed { device, addr, bytes, errno };
    }
    let (locking, registered) = (Locking::now(), REGISTERED.load(Ordering::Relaxed));
    match locking.limit {
        Some(limit) if locking.forbids(registered, bytes as u64) => {
            let held = locking.pinned.max(registered);
            RegisterError::Memlock { device, bytes, limit_kib: limit >> 10, held_kib: held >> 10 }
        }
        _ => RegisterError::NoMemory {
            device,
            bytes,
            excuse: locking.excuse(),
            available_kib: locking.available >> 10,
            cma_kib: locking.impossible_cma(),
        },
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: made in `new`; whoever posts work that names its keys holds an Arc of it meanwhile, or a registration.
        unsafe { (self.pd.context.verbs.dereg_mr)(self.ptr.as_ptr()) };
        REGISTERED.fetch_sub((self.end - self.start) as u64, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_for_locked_memory_is_told() {
        let device = "rocep1s0f0".to_owned();
        let error = RegisterError::Memlock { device: device.clone(), bytes: 1 << 20, limit_kib: 64, held_kib: 8 };
        let text = error.to_string();
        assert!(text.contains("64 KiB (RLIMIT_MEMLOCK)") && text.contains("--ulimit memlock=-1"), "{text}");
        // and the kernel's own trouble is told apart from it
        let excuse = "RLIMIT_MEMLOCK is unlimited".to_owned();
        let error = |cma_kib| RegisterError::NoMemory {
            device: device.clone(),
            bytes: 1 << 20,
            excuse: excuse.clone(),
            available_kib: 7,
            cma_kib,
        };
        let text = error(Some((65, 64))).to_string();
        assert!(text.contains("CmaFree 65 kB of CmaTotal 64 kB") && text.contains("kho=off"), "{text}");
        let text = error(None).to_string();
        assert!(text.contains("although RLIMIT_MEMLOCK is unlimited and 7 KiB") && text.contains("dmesg"), "{text}");
        assert!(page_size().is_power_of_two());
    }
}
