//! Maps the shared file and hands out blocks of its heap.
//!
//! The only place, with [`super::rings`], that turns places in the file into addresses. Any thread of any process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::layout::{FILE_SIZE, HEAP_CLASSES, HEAP_START, MAGIC, Tables, USUAL_GID};
use crate::plan::Plan;

/// The mapped memory of one fabric. Unmapped when dropped; the library never drops its own.
#[derive(Debug)]
pub struct Shared {
    base: NonNull<u8>,
    folder: PathBuf,
}

// SAFETY: everything in the mapping is atomic or reached under a lock in it; the base address never changes.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Why the memory of a fabric cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum SharedError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} belongs to another fabric file or another build: remove it, or use a new folder for each run")]
    Foreign { path: PathBuf },
}

/// Where the memory of the fabric described by `plan_file` lies: the same name with `.memory` behind it.
pub fn memory_path(plan_file: &Path) -> PathBuf {
    with_suffix(plan_file, ".memory")
}

/// Folder of the FIFOs that wake sleepers: the same name with `.fifos` behind it.
pub fn fifo_folder(plan_file: &Path) -> PathBuf {
    with_suffix(plan_file, ".fifos")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl Shared {
    /// Maps the memory of the fabric that `plan_file` describes, and sets it up if nobody has yet.
    ///
    /// # Errors
    /// The file cannot be made or mapped, or is another fabric's.
    pub fn open(plan_file: &Path, plan: &Plan) -> Result<Self, SharedError> {
        let path = memory_path(plan_file);
        let folder = fifo_folder(plan_file);
        let wrap = |source| SharedError::Io { path: path.clone(), source };
        std::fs::create_dir_all(&folder).map_err(wrap)?;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(wrap)?;
        flock(&file, libc::LOCK_EX).map_err(wrap)?;
        if file.metadata().map_err(wrap)?.len() < FILE_SIZE as u64 {
            file.set_len(FILE_SIZE as u64).map_err(wrap)?;
        }
        // SAFETY: a shared mapping of a file of this very size at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                FILE_SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(wrap(io::Error::last_os_error()));
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| wrap(io::Error::other("mapped at address 0")))?;
        // A core dump of the program must not hold gigabytes of zeros.
        // SAFETY: the range is the mapping just made.
        unsafe { libc::madvise(base.as_ptr().cast(), FILE_SIZE, libc::MADV_DONTDUMP) };
        let shared = Self { base, folder };
        let ours = shared.set_up(plan);
        // Closing the file is not enough: the mapping keeps it open.
        flock(&file, libc::LOCK_UN).map_err(wrap)?;
        if ours { Ok(shared) } else { Err(SharedError::Foreign { path: path.clone() }) }
    }

    /// Under the file's lock: initialises fresh memory, or says whether what is there is this plan's.
    fn set_up(&self, plan: &Plan) -> bool {
        let tables = self.tables();
        match tables.magic.load(Ordering::Acquire) {
            MAGIC => tables.fingerprint.load(Ordering::Relaxed) == plan.fingerprint(),
            0 => {
                for (port, cell) in plan.ports.iter().zip(&tables.ports) {
                    cell.rate.store(port.rate, Ordering::Relaxed);
                    cell.down.store(u32::from(port.down), Ordering::Relaxed);
                    cell.gid.store(USUAL_GID, Ordering::Relaxed);
                    cell.latency.store(plan.latency_ns, Ordering::Relaxed);
                }
                tables.heap_end.store(HEAP_START, Ordering::Relaxed);
                tables.fingerprint.store(plan.fingerprint(), Ordering::Relaxed);
                tables.magic.store(MAGIC, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// The tables at the memory's start.
    pub fn tables(&self) -> &Tables {
        // SAFETY: the mapping is larger than the tables, aligned to pages, lives as long as `self`, and consists of atomics for
        // which any bytes are valid.
        unsafe { self.base.cast::<Tables>().as_ref() }
    }

    /// Path of a FIFO by its number.
    pub fn fifo(&self, number: u32) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// Address of `length` bytes at `place`, if they lie in the heap.
    pub(super) fn at(&self, place: u64, length: usize) -> Option<NonNull<u8>> {
        let end = place.checked_add(length as u64)?;
        if place < HEAP_START || end > FILE_SIZE as u64 {
            return None;
        }
        // SAFETY: the sum stays inside the mapping, as just checked.
        Some(unsafe { self.base.add(place as usize) })
    }

    /// A heap block of at least `bytes`; its content is whatever was there. The caller holds the allocation lock.
    pub fn allocate(&self, bytes: usize) -> Option<u64> {
        let tables = self.tables();
        let class = class_of(bytes)?;
        let free = &tables.heap_free[class];
        let first = free.load(Ordering::Relaxed);
        if first != 0 {
            let next = self.word(first)?;
            free.store(next.load(Ordering::Relaxed), Ordering::Relaxed);
            return Some(first);
        }
        let place = tables.heap_end.load(Ordering::Relaxed);
        let end = place + (64u64 << class);
        if end > FILE_SIZE as u64 {
            return None;
        }
        tables.heap_end.store(end, Ordering::Relaxed);
        Some(place)
    }

    /// Takes back a block of [`Self::allocate`]. The caller holds the allocation lock.
    pub fn release(&self, place: u64, bytes: usize) {
        let (Some(class), Some(word)) = (class_of(bytes), self.word(place)) else { return };
        let free = &self.tables().heap_free[class];
        word.store(free.load(Ordering::Relaxed), Ordering::Relaxed);
        free.store(place, Ordering::Relaxed);
    }

    fn word(&self, place: u64) -> Option<&std::sync::atomic::AtomicU64> {
        let address = self.at(place, 8)?;
        // SAFETY: the eight bytes lie in the mapping, blocks are 64-byte aligned, and the owner of the block does not use it
        // while it is on a free list.
        Some(unsafe { address.cast().as_ref() })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `base` is the mapping of this size made in `open`; no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), FILE_SIZE) };
    }
}

fn class_of(bytes: usize) -> Option<usize> {
    let class = bytes.div_ceil(64).max(1).next_power_of_two().trailing_zeros() as usize;
    (class < HEAP_CLASSES).then_some(class)
}

/// Waits for the file's lock, or gives it back.
fn flock(file: &File, operation: libc::c_int) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open while `file` lives.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
