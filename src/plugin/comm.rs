//! The objects behind NCCL's pointers: comms and their requests.
//!
//! For: set-up and data path. Must not know: how data move.
//! Threads: set-up calls of NCCL's service thread may meet data calls of its progress thread; everything both touch is atomic,
//! the connection itself is [`Exclusive`].
//!
//! A request is a slot of the comm's own array, so nothing is allocated for a send or a receive.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use mesh_abi::NcclResult;

use super::exclusive::Exclusive;
use super::fault::Fault;
use super::inner::{Failure, SLOTS};

/// Which object a pointer leads to; first thing in it. Values that no other memory starts with by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Kind {
    Listen = 0x6d65_7368_6c69_7374,
    Send = 0x6d65_7368_7365_6e64,
    Recv = 0x6d65_7368_7265_6376,
}

/// In place of the kind once closed.
const CLOSED: u64 = 0;

/// What all comms begin with.
#[repr(C)]
pub(super) struct Head {
    kind: AtomicU64,
    /// Code of the first failure, 0 before.
    failed: AtomicI32,
    slots: [Slot; SLOTS],
}

/// A request.
pub(super) struct Slot {
    /// The comm it is part of.
    head: *const Head,
    number: u32,
    open: AtomicBool,
    /// Id of the registration it uses, 0 if none.
    registration: AtomicU64,
}

/// A comm: `C` is the connection's end, or the listener.
#[repr(C)]
pub(super) struct Comm<C> {
    head: Head,
    end: Exclusive<Box<C>>,
}

impl Head {
    /// The comm at `comm` if it is of one of these kinds.
    ///
    /// # Safety
    /// `comm` is NULL or a comm of this library that is not closed while the reference lives.
    pub(super) unsafe fn at<'a>(comm: *mut c_void, kinds: &[Kind]) -> Result<&'a Self, Fault> {
        if comm.is_null() {
            return Err(Fault::Null { what: "comm" });
        }
        // SAFETY: not NULL, so a comm by the caller's promise, and every comm begins with a head (`repr(C)`).
        let head = unsafe { &*comm.cast::<Self>() };
        let kind = head.kind.load(Ordering::Relaxed);
        if kinds.iter().any(|known| *known as u64 == kind) { Ok(head) } else { Err(Fault::Foreign { what: "comm" }) }
    }

    pub(super) fn is(&self, kind: Kind) -> bool {
        self.kind.load(Ordering::Relaxed) == kind as u64
    }

    /// An error if the comm failed before.
    pub(super) fn check(&self) -> Result<(), Fault> {
        match self.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            code => Err(Fault::Sticky(NcclResult::from_raw(code).unwrap_or(NcclResult::InternalError))),
        }
    }

    /// The comm is of no use from now on: calls get `code` and the connection is not entered again, except to close it.
    pub(super) fn fail(&self, code: NcclResult) {
        let code = if code == NcclResult::Success { NcclResult::InternalError } else { code };
        // The first failure is the one to report.
        let _ = self.failed.compare_exchange(0, code.as_raw(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Opens the request of a slot that the connection gave, and returns NCCL's pointer to it.
    pub(super) fn open(&self, number: u32, registration: u64) -> Result<*mut c_void, Fault> {
        let slot = usize::try_from(number).ok().and_then(|index| self.slots.get(index));
        let broken = |reason| {
            self.fail(NcclResult::InternalError);
            Fault::Slot { slot: number, reason }
        };
        let slot = slot.ok_or_else(|| broken("beyond the last one"))?;
        if slot.open.swap(true, Ordering::Relaxed) {
            return Err(broken("in use already"));
        }
        slot.registration.store(registration, Ordering::Relaxed);
        Ok(std::ptr::from_ref(slot).cast_mut().cast())
    }

    /// Whether an open request uses this registration.
    pub(super) fn uses(&self, registration: u64) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.open.load(Ordering::Relaxed) && slot.registration.load(Ordering::Relaxed) == registration)
    }
}

impl Slot {
    /// The open request at `request`.
    ///
    /// # Safety
    /// `request` is NULL or a request of a comm of this library that is not closed while the reference lives.
    pub(super) unsafe fn at<'a>(request: *mut c_void) -> Result<&'a Self, Fault> {
        if request.is_null() {
            return Err(Fault::Null { what: "request" });
        }
        // SAFETY: not NULL, so a slot by the caller's promise.
        let slot = unsafe { &*request.cast_const().cast::<Self>() };
        if slot.open.load(Ordering::Relaxed) { Ok(slot) } else { Err(Fault::NotOpen) }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The comm it is part of, as NCCL's pointer.
    pub(super) fn comm(&self) -> *mut c_void {
        self.head.cast_mut().cast()
    }

    /// The request is done: the slot may be given out again.
    pub(super) fn recycle(&self) {
        self.open.store(false, Ordering::Relaxed);
    }
}

impl<C: Send> Comm<C> {
    /// Makes a comm and returns NCCL's pointer to it.
    pub(super) fn into_ptr(kind: Kind, end: Box<C>) -> *mut c_void {
        let slot = |index: usize| Slot {
            head: std::ptr::null(),
            // Below SLOTS.
            number: index as u32,
            open: AtomicBool::new(false),
            registration: AtomicU64::new(0),
        };
        let head =
            Head { kind: AtomicU64::new(kind as u64), failed: AtomicI32::new(0), slots: std::array::from_fn(slot) };
        let comm = Box::into_raw(Box::new(Self { head, end: Exclusive::new(end) }));
        for index in 0..SLOTS {
            // SAFETY: the comm was made above, nobody else knows it yet, and the index is inside the array.
            unsafe { (&raw mut (*comm).head.slots[index].head).write(comm.cast_const().cast()) };
        }
        comm.cast()
    }

    /// The comm at `comm`, of this kind, which goes with `C`.
    ///
    /// # Safety
    /// As [`Head::at`]; comms of `kind` were made with this `C`.
    pub(super) unsafe fn at<'a>(comm: *mut c_void, kind: Kind) -> Result<&'a Self, Fault> {
        // SAFETY: the caller's promise.
        unsafe { Head::at(comm, &[kind]) }?;
        // SAFETY: of this kind, as just seen, so a `Comm<C>` by the caller's promise.
        Ok(unsafe { &*comm.cast_const().cast::<Self>() })
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// Runs `f` on the connection, alone. A failure of `f`, or a panic in it, makes the comm fail for good.
    pub(super) fn with<R, E: Failure>(&self, f: impl FnOnce(&mut C) -> Result<R, E>) -> Result<R, Fault> {
        self.head.check()?;
        let mut end = self.end.enter().ok_or(Fault::Concurrent)?;
        let unwinding = FailOnUnwind(&self.head);
        let outcome = f(&mut end);
        std::mem::forget(unwinding);
        outcome.map_err(|error| {
            self.head.fail(error.code());
            Fault::net(&error)
        })
    }

    /// Takes the comm at `comm` back and frees it; `None` for NULL. If a thread is using the connection it is left alone, and
    /// its memory is lost.
    ///
    /// # Safety
    /// As [`at`](Self::at), and no reference or request of the comm is used afterwards.
    pub(super) unsafe fn take(comm: *mut c_void, kind: Kind) -> Result<Option<Box<C>>, Fault> {
        if comm.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        let this = unsafe { Self::at(comm, kind) }?;
        // Never left: whoever came in now would hold what is freed.
        std::mem::forget(this.end.enter().ok_or(Fault::Concurrent)?);
        this.head.kind.store(CLOSED, Ordering::Relaxed);
        // SAFETY: made by `into_ptr` from a box of this type, and closed here once: the kind changed above.
        let this = unsafe { Box::from_raw(comm.cast::<Self>()) };
        Ok(Some(this.end.into_inner()))
    }
}

/// Marks the comm as failed if dropped, which happens while unwinding only.
struct FailOnUnwind<'a>(&'a Head);

impl Drop for FailOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.fail(NcclResult::InternalError);
    }
}

/// An output of NCCL's that is set to NULL, to be overwritten if the call succeeds.
///
/// # Safety
/// `place` is NULL or valid for writes.
pub(super) unsafe fn cleared(place: *mut *mut c_void, what: &'static str) -> Result<(), Fault> {
    if place.is_null() {
        return Err(Fault::Null { what });
    }
    // SAFETY: not NULL, so valid by the caller's promise.
    unsafe { place.write(std::ptr::null_mut()) };
    Ok(())
}

/// A size from C, which may be an `int`.
pub(super) fn size_of_c<S: Into<CSize>>(size: S) -> Result<usize, Fault> {
    let CSize(as_signed) = size.into();
    usize::try_from(as_signed).ok().filter(|size| isize::try_from(*size).is_ok()).ok_or(Fault::Size { size: as_signed })
}

/// Either of NCCL's size types. Sizes of 2⁶³ and more turn negative, and are refused as the negative ones are.
pub(super) struct CSize(i64);

impl From<c_int> for CSize {
    fn from(size: c_int) -> Self {
        Self(size.into())
    }
}

impl From<usize> for CSize {
    fn from(size: usize) -> Self {
        Self(size as i64)
    }
}
