//! Typed copies of the pointers that a plugin hands out.
//!
//! For: the methods of `Plugin`. Must not know: what they point to; nothing here follows them.
//! Threads: NCCL passes them from its service thread to its progress thread, so plugins must allow that and all are
//! `Send`. Not two threads at once on one connection.

use core::ffi::c_void;
use core::ptr;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub(super) *mut c_void);

        // SAFETY: an opaque pointer that this crate never follows; plugins take their own pointers back on any thread.
        unsafe impl Send for $name {}

        impl $name {
            /// NULL, which NCCL passes in some places after a failure.
            pub const NULL: Self = Self(ptr::null_mut());

            /// The plugin's pointer.
            pub fn as_ptr(self) -> *mut c_void {
                self.0
            }
        }
    };
}

handle! {
    /// A listening comm.
    ListenComm
}
handle! {
    /// The sending end of a connection.
    SendComm
}
handle! {
    /// The receiving end of a connection.
    RecvComm
}
handle! {
    /// A registration of memory.
    MHandle
}
handle! {
    /// An open send or receive.
    Request
}

/// A communicator's context: the plugin's pointer (NULL before v11) and the traffic class, which v10 takes in `connect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ctx {
    pub(super) raw: *mut c_void,
    pub(super) traffic_class: i32,
}

// SAFETY: as for the handles above.
unsafe impl Send for Ctx {}

impl Ctx {
    /// The context that NCCL 2.28 and 2.29 pass to `finalize` when `init` failed.
    pub const NULL: Self = Self { raw: ptr::null_mut(), traffic_class: crate::TRAFFIC_CLASS_UNDEFINED };

    /// The plugin's pointer.
    pub fn as_ptr(self) -> *mut c_void {
        self.raw
    }
}

/// Either end of a connection, for registrations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm(pub(super) *mut c_void);

// SAFETY: as for the handles above.
unsafe impl Send for Comm {}

impl From<SendComm> for Comm {
    fn from(comm: SendComm) -> Self {
        Self(comm.0)
    }
}

impl From<RecvComm> for Comm {
    fn from(comm: RecvComm) -> Self {
        Self(comm.0)
    }
}
