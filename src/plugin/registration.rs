//! Registered memory, process-wide.
//!
//! For: regMr, deregMr, and the checks of isend and irecv. Must not know: connections; NICs.
//! Threads: any. The same address and length registered again is the same registration with one more owner, as NCCL registers
//! one shared buffer for every connection.
//!
//! A registration is a promise of NCCL that the range is valid memory until deregMr, and the bound that sends and receives
//! are checked against.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use mesh_link::memory::Window;

/// Why a range was not registered.
#[derive(Debug)]
pub(crate) enum Refused<E> {
    /// It wraps around the address space.
    Wraps,
    /// The NICs would not have it.
    Pin(E),
}

/// One registered range.
pub(crate) struct Registration {
    base: usize,
    len: usize,
    /// Never 0 and never used twice.
    id: u64,
    /// What keeps the pages known to the NICs, if links need that; goes with the last owner.
    _pinned: Pinned,
}

/// Something of the layer below that lives as long as the registration.
pub(crate) type Pinned = Option<Box<dyn Any + Send + Sync>>;

type Key = (usize, usize);

static CACHE: LazyLock<Mutex<HashMap<Key, Weak<Registration>>>> = LazyLock::new(Mutex::default);

fn cache() -> MutexGuard<'static, HashMap<Key, Weak<Registration>>> {
    // The map is valid after every single operation on it, so a panic elsewhere does not spoil it.
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a range, or gives the registration of the same range. `pin` makes the pages of a new one known to the NICs.
///
/// # Errors
/// [`Refused`], with nothing registered.
pub(crate) fn register<E>(
    window: Window,
    pin: impl FnOnce() -> Result<Pinned, E>,
) -> Result<Arc<Registration>, Refused<E>> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let key = (window.addr(), window.len());
    if key.0.checked_add(key.1).is_none() {
        return Err(Refused::Wraps);
    }
    let mut cache = cache();
    if let Some(known) = cache.get(&key).and_then(Weak::upgrade) {
        return Ok(known);
    }
    let pinned = pin().map_err(Refused::Pin)?;
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let registration = Arc::new(Registration { base: key.0, len: key.1, id, _pinned: pinned });
    cache.insert(key, Arc::downgrade(&registration));
    Ok(registration)
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("base", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Registration {
    /// A number that no other registration ever has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// First address.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether `len` bytes at `address` lie inside.
    pub(crate) fn covers(&self, address: usize, len: usize) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| offset <= self.len && len <= self.len - offset)
    }

    /// The pointer that NCCL gets for one owner.
    pub(crate) fn into_handle(self: Arc<Self>) -> *mut c_void {
        Arc::into_raw(self).cast_mut().cast()
    }

    /// Takes the owner back that [`into_handle`](Self::into_handle) gave away.
    ///
    /// # Safety
    /// `handle` came from `into_handle` and is given back once.
    pub(crate) unsafe fn from_handle(handle: *mut c_void) -> Arc<Self> {
        // SAFETY: the caller's promise.
        unsafe { Arc::from_raw(handle.cast_const().cast()) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut cache = cache();
        let key = (self.base, self.len);
        // Between the last owner's going and this lock the same range may have been registered anew.
        if cache.get(&key).is_some_and(|known| known.strong_count() == 0) {
            cache.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(window: Window) -> Option<Arc<Registration>> {
        super::register(window, || Ok::<_, ()>(None)).ok()
    }

    fn window(base: usize, len: usize) -> Window {
        // SAFETY: the window is registered only, never read or written.
        unsafe { Window::new(std::ptr::without_provenance_mut(base), len) }
    }

    #[test]
    fn the_same_range_is_shared_and_forgotten_with_its_last_owner() {
        // given one range registered twice, and a part of it
        let first = register(window(0x7000_0000, 4096)).unwrap();
        let second = register(window(0x7000_0000, 4096)).unwrap();
        let part = register(window(0x7000_0000, 4095)).unwrap();
        assert_eq!(first.id(), second.id());
        assert_ne!(first.id(), part.id());
        // when one owner goes, then the registration stays; when both go, then the next one is new
        let id = first.id();
        // SAFETY: taken back once.
        drop(unsafe { Registration::from_handle(first.into_handle()) });
        assert_eq!(register(window(0x7000_0000, 4096)).unwrap().id(), id);
        drop(second);
        assert_ne!(register(window(0x7000_0000, 4096)).unwrap().id(), id);
    }

    #[test]
    fn ranges_are_covered_to_the_last_byte_and_not_beyond() {
        let registration = register(window(0x7100_0000, 100)).unwrap();
        let base = registration.base();
        assert_eq!(registration.len(), 100);
        for (offset, len, inside) in
            [(0, 100, true), (0, 101, false), (1, 100, false), (99, 1, true), (100, 0, true), (101, 0, false)]
        {
            assert_eq!(registration.covers(base + offset, len), inside, "{offset} {len}");
        }
        assert!(!registration.covers(base - 1, 1));
        assert!(!registration.covers(base + 1, usize::MAX));
    }

    #[test]
    fn ranges_that_wrap_are_refused() {
        assert!(register(window(usize::MAX - 10, 10)).is_some());
        assert!(register(window(usize::MAX - 10, 11)).is_none());
    }

    #[test]
    fn threads_share_one_registration() {
        // given threads that register and give back the same range, at random times against each other
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let one = register(window(0x7200_0000, 64)).unwrap();
                        // then two registrations alive at once are the same
                        let two = register(window(0x7200_0000, 64)).unwrap();
                        assert_eq!(one.id(), two.id());
                    }
                });
            }
        });
        assert!(!cache().contains_key(&(0x7200_0000, 64)));
    }
}
