//! Memory that a NIC, a kernel or a GPU touches behind Rust's back.
//!
//! [`Window`] is a base address and a length, and is never turned into a slice: somebody else may write it at any time. [`Slab`]
//! owns slots of such memory. [`land_ordered`] is the copy for readers that poll flags inside the data while it is being
//! written. Nothing here knows what the bytes mean. Any thread may call anything here.
#![allow(unsafe_code, reason = "raw memory shared with devices; every access is bounds-checked against a window")]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// Bytes of a line: a reader of flags at the end of a line must never see the flag before the rest of the line.
pub const LINE: usize = 128;

/// Copies up to this size are made with volatile accesses, so that a header read while a NIC writes is read exactly once.
const VOLATILE: usize = 64;

/// A stretch of memory that a NIC or a kernel may write: base address and length, no ownership.
///
/// What it points to is plain bytes. Readers and writers that race see torn bytes, never anything worse; who may touch it when
/// is agreed by the protocol above.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    base: *mut u8,
    len: usize,
}

// SAFETY: a window owns nothing and has no thread affinity; `Window::new` makes its caller promise that the memory is valid, from
// whichever thread, until the window is no longer used.
unsafe impl Send for Window {}
// SAFETY: as above; all methods take the window by value or shared and change only the bytes it points to.
unsafe impl Sync for Window {}

impl Window {
    /// A window over `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// Until every copy of the window, and every endpoint or queue it was given to, has stopped using it (for an endpoint: the key
    /// withdrawn, the write reported as written, or the endpoint failed or dropped), the memory must be valid for reads and
    /// writes from any thread, and no Rust reference to it may be alive while it is exposed or queued.
    pub const unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self { base, len }
    }

    /// A window of no bytes.
    pub const fn empty() -> Self {
        Self { base: ptr::dangling_mut(), len: 0 }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of its first byte.
    pub fn addr(&self) -> usize {
        self.base.addr()
    }

    /// Base pointer, for system calls and registration.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// `len` bytes from `offset` on, if they lie inside.
    #[inline]
    pub const fn sub(&self, offset: usize, len: usize) -> Option<Self> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // Wrapping, as the base of an empty window need not be an address; inside a valid window it cannot wrap.
        Some(Self { base: self.base.wrapping_add(offset), len })
    }

    /// Copies `out.len()` bytes from `offset` on. False, and nothing is copied, if they do not lie inside.
    pub fn read_into(&self, offset: usize, out: &mut [u8]) -> bool {
        let Some(part) = self.sub(offset, out.len()) else { return false };
        let (words, rest) = out.as_chunks_mut::<8>();
        if rest.is_empty() && words.len() <= VOLATILE / 8 && part.base.cast::<u64>().is_aligned() {
            for (i, word) in words.iter_mut().enumerate() {
                // SAFETY: the words of `out` fill `part`, which `Window::new`'s caller keeps readable, and its base is a multiple of 8.
                *word = unsafe { part.base.cast::<u64>().add(i).read_volatile() }.to_ne_bytes();
            }
        } else if out.len() <= VOLATILE {
            for (i, byte) in out.iter_mut().enumerate() {
                // SAFETY: i is below the length of `part`, which `Window::new`'s caller keeps readable.
                *byte = unsafe { part.base.add(i).read_volatile() };
            }
        } else {
            // SAFETY: `part` is readable for its length (promise of `Window::new`) and `out` is an exclusive slice of that length;
            // `copy` allows overlap.
            unsafe { ptr::copy(part.base, out.as_mut_ptr(), out.len()) };
        }
        true
    }

    /// Copies `bytes` to `offset`. False, and nothing is copied, if they do not fit inside.
    pub fn write_from(&self, offset: usize, bytes: &[u8]) -> bool {
        let Some(part) = self.sub(offset, bytes.len()) else { return false };
        let (words, rest) = bytes.as_chunks::<8>();
        if rest.is_empty() && words.len() <= VOLATILE / 8 && part.base.cast::<u64>().is_aligned() {
            for (i, word) in words.iter().enumerate() {
                // SAFETY: the words of `bytes` fill `part`, which `Window::new`'s caller keeps writable, and its base is a multiple of 8.
                unsafe { part.base.cast::<u64>().add(i).write_volatile(u64::from_ne_bytes(*word)) };
            }
        } else if bytes.len() <= VOLATILE {
            for (i, byte) in bytes.iter().enumerate() {
                // SAFETY: i is below the length of `part`, which `Window::new`'s caller keeps writable.
                unsafe { part.base.add(i).write_volatile(*byte) };
            }
        } else {
            // SAFETY: `part` is writable for its length (promise of `Window::new`); `copy` allows overlap.
            unsafe { ptr::copy(bytes.as_ptr(), part.base, bytes.len()) };
        }
        true
    }

    /// The 8-byte word at `offset`, little endian, read in one piece; 0 outside the window or across words. A device may be writing it:
    /// see [`from_device_barrier`].
    #[inline]
    pub fn load(&self, offset: usize) -> u64 {
        match self.sub(offset, 8) {
            Some(word) if word.base.addr().is_multiple_of(8) => {
                // SAFETY: the word lies inside the window, readable by the promise of `Window::new`, and is aligned.
                // Acquire: pairs with the release of a peer that stores by hand; devices are the barrier's business.
                u64::from_le(unsafe { AtomicU64::from_ptr(word.base.cast()) }.load(Ordering::Acquire))
            }
            _ => 0,
        }
    }

    /// Copies the whole window to the start of `dst`; they may overlap. False, and nothing is copied, if `dst` is shorter.
    pub fn copy_to(&self, dst: Self) -> bool {
        if self.len > dst.len {
            return false;
        }
        // SAFETY: both are valid for `self.len` bytes (promise of `Window::new`); `copy` allows overlap.
        unsafe { ptr::copy(self.base, dst.base, self.len) };
        true
    }
}

/// Orders loads of what a device wrote after the load that told of it. Devices on Arm are not in the inner domain that an acquire fence is
/// about; elsewhere the fence keeps the compiler in order and the processor is strong enough.
#[inline]
pub fn from_device_barrier() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction; it changes no register and no memory.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    fence(Ordering::Acquire);
}

/// Copies `src` to the start of `dst` so that a GPU or another thread may poll `dst` meanwhile. False, and nothing is copied, if
/// `dst` is shorter than `src`.
///
/// Every aligned 8-byte word that is covered completely is stored whole, and the last 8 bytes of each [`LINE`]-aligned line
/// become visible after the rest of that line. Order between lines is free. Bytes before the first and after the last whole
/// word are stored one by one. A message that is copied in parts must be cut at line boundaries of `dst`.
pub fn land_ordered(dst: Window, src: &[u8]) -> bool {
    if src.len() > dst.len {
        return false;
    }
    let lead = dst.base.align_offset(8).min(src.len());
    let (head, rest) = src.split_at(lead);
    let (words, tail) = rest.as_chunks::<8>();
    land_bytes(dst.base, head);
    let mut at = dst.base.wrapping_add(lead);
    for word in words {
        if closes_line(at) {
            fence(Ordering::Release);
        }
        // SAFETY: `at` is 8-aligned and the word lies inside `dst`, valid for writes (promise of `Window::new`); all concurrent
        // accesses by Rust code are atomic or made after a notification.
        unsafe { AtomicU64::from_ptr(at.cast()) }.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        at = at.wrapping_add(8);
    }
    land_bytes(at, tail);
    true
}

/// Fewer than 8 bytes inside one word.
fn land_bytes(at: *mut u8, bytes: &[u8]) {
    if closes_line(at) {
        fence(Ordering::Release);
    }
    for (i, byte) in bytes.iter().enumerate() {
        // SAFETY: called by `land_ordered` only, with parts of a window that was checked there to be long enough.
        unsafe { AtomicU8::from_ptr(at.add(i)) }.store(*byte, Ordering::Relaxed);
    }
}

/// Whether this address lies in the last word of its line.
fn closes_line(at: *mut u8) -> bool {
    at.addr() % LINE >= LINE - 8
}

/// Page-aligned, zeroed memory in equal slots.
///
/// Dropping it gives the memory back to the system but keeps the addresses reserved and inaccessible: a window that was used too
/// long faults at once instead of writing into memory that has become somebody else's.
#[derive(Debug)]
pub struct Slab {
    base: *mut u8,
    mapped: usize,
    slots: usize,
    size: usize,
    stride: usize,
}

// SAFETY: the slab owns its mapping, which has no thread affinity.
unsafe impl Send for Slab {}
// SAFETY: shared use only computes windows.
unsafe impl Sync for Slab {}

impl Slab {
    /// `slots` slots of `size` bytes each. Slots begin at multiples of [`LINE`]. Memory is taken from the system when touched.
    pub fn new(slots: usize, size: usize) -> io::Result<Self> {
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        let stride = size.checked_next_multiple_of(LINE).ok_or_else(too_large)?;
        let mapped = stride.checked_mul(slots).filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(too_large)?;
        if mapped == 0 {
            return Ok(Self { base: Window::empty().base, mapped, slots, size, stride });
        }
        // SAFETY: an anonymous mapping at an address that the kernel chooses touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), mapped, slots, size, stride })
    }

    /// The slot of that index.
    ///
    /// # Panics
    ///
    /// As indexing a slice does, if `index` is not below [`slots`](Self::slots).
    #[inline]
    pub fn slot(&self, index: usize) -> Window {
        assert!(index < self.slots, "slot {index} of a slab of {}", self.slots);
        Window { base: self.base.wrapping_add(index * self.stride), len: self.size }
    }

    /// How many slots there are.
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Length of one slot in bytes.
    pub const fn slot_size(&self) -> usize {
        self.size
    }

    /// Bytes from the start of one slot to the start of the next.
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// All slots with the gaps between them, for registering them at once.
    pub const fn whole(&self) -> Window {
        Window { base: self.base, len: self.mapped }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.mapped == 0 {
            return;
        }
        // SAFETY: the range is the mapping made in `new`, owned by this slab alone; it is replaced by one that no access can
        // reach, so windows left over cannot reach anybody else's memory. If that fails the old mapping stays, which is safe too.
        unsafe {
            libc::mmap(
                self.base.cast(),
                self.mapped,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
