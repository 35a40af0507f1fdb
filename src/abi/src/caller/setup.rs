//! Contexts and connections: everything but the data path.
//!
//! For: hosts of a plugin. Must not know: what moves the data.
//! Threads: NCCL calls `init`, `devices`, `finalize` on the initialising thread, the others on its service thread.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::sync::PoisonError;

use super::Plugin;
use super::error::{CallError, Result, check};
use super::handles::{Comm, Ctx, ListenComm, MHandle, RecvComm, SendComm};
use super::normal::{Accept, Connect, Init, Listen, RegMr};
use crate::{CommConfig, HANDLE_BYTES, Logger, NetAttr, NetDeviceHandle};

impl Plugin {
    /// `init` for a communicator: its id (the same on all ranks), traffic class (−1 for none) and the host's logger.
    ///
    /// Before v11 the plugin's `init` runs for the first context only, as in NCCL's adapters.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code.
    pub fn init(&self, comm_id: u64, traffic_class: i32, logger: Logger) -> Result<Ctx> {
        let mut raw = ptr::null_mut();
        match self.calls.init {
            Init::V11(init) => {
                let mut config = CommConfig { traffic_class };
                // SAFETY: outputs and config live through the call; a NULL profiler callback is allowed.
                check("init", unsafe { init(&raw mut raw, comm_id, &raw mut config, logger, None) })?;
            }
            Init::V10(init) => {
                // SAFETY: a NULL profiler callback is allowed.
                self.first_context(|| unsafe { init(logger, None) })?;
            }
            Init::V6(init) => {
                // SAFETY: the logger is NULL or a function of that type.
                self.first_context(|| unsafe { init(logger) })?;
            }
        }
        Ok(Ctx { raw, traffic_class })
    }

    fn first_context(&self, init: impl FnOnce() -> c_int) -> Result<()> {
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        if *contexts == 0 {
            check("init", init())?;
        }
        *contexts += 1;
        Ok(())
    }

    /// `finalize` of a context, or of [`Ctx::NULL`] as NCCL 2.28 does after a failed init. Not forwarded before v11.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code.
    pub fn finalize(&self, ctx: Ctx) -> Result<()> {
        match self.calls.finalize {
            // SAFETY: a context of this plugin, or NULL.
            Some(finalize) => check("finalize", unsafe { finalize(ctx.raw) }),
            None => {
                let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
                *contexts = contexts.saturating_sub(1);
                Ok(())
            }
        }
    }

    /// `devices`: how many devices the plugin offers.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code, `Unwritten` if it left the count.
    pub fn devices(&self) -> Result<usize> {
        let mut count: c_int = -1;
        // SAFETY: the output lives through the call.
        check("devices", unsafe { (self.calls.devices)(&raw mut count) })?;
        usize::try_from(count).map_err(|_| CallError::Unwritten { call: "devices", what: "ndev" })
    }

    /// `setNetAttr`, if the plugin has it (v11 and later).
    ///
    /// # Errors
    /// `Missing` if it has not, else the plugin's code.
    pub fn set_net_attr(&self, ctx: Ctx, attr: &mut NetAttr) -> Result<()> {
        let set = self.calls.set_net_attr.ok_or(CallError::Missing { call: "setNetAttr" })?;
        // SAFETY: a context of this plugin and a structure of the version's layout.
        check("setNetAttr", unsafe { set(ctx.raw, attr) })
    }

    /// `listen` on device `dev`; fills the handle that the sender needs.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code, `Unwritten` if it gave no comm.
    pub fn listen(&self, ctx: Ctx, dev: i32, handle: &mut [u8; HANDLE_BYTES]) -> Result<ListenComm> {
        let mut comm = ptr::null_mut();
        let handle = handle.as_mut_ptr().cast::<c_void>();
        // SAFETY: (both arms) the handle has 128 writable bytes and the output lives through the call.
        let raw = unsafe {
            match self.calls.listen {
                Listen::V6(listen) => listen(dev, handle, &raw mut comm),
                Listen::V11(listen) => listen(ctx.raw, dev, handle, &raw mut comm),
            }
        };
        let comm = comm_of("listen", raw, comm)?;
        if comm.is_null() {
            return Err(CallError::Unwritten { call: "listen", what: "listenComm" });
        }
        Ok(ListenComm(comm))
    }

    /// `connect` to the owner of `handle`; `None` while it is not ready. Call again with the same handle buffer.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code; `CommOnError` if it left a comm then.
    pub fn connect(&self, ctx: Ctx, dev: i32, handle: &mut [u8; HANDLE_BYTES]) -> Result<Option<SendComm>> {
        let mut comm = ptr::null_mut();
        let mut device: *mut NetDeviceHandle = ptr::null_mut();
        let handle = handle.as_mut_ptr().cast::<c_void>();
        let mut config = CommConfig { traffic_class: ctx.traffic_class };
        // SAFETY: (all arms) the handle has 128 writable bytes; outputs and config live through the call.
        let raw = unsafe {
            match self.calls.connect {
                Connect::V6(connect) => connect(dev, handle, &raw mut comm),
                Connect::V7(connect) => connect(dev, handle, &raw mut comm, &raw mut device),
                Connect::V10(connect) => connect(dev, &raw mut config, handle, &raw mut comm, &raw mut device),
                Connect::V11(connect) => connect(ctx.raw, dev, handle, &raw mut comm, &raw mut device),
            }
        };
        comm_of("connect", raw, comm).map(|comm| (!comm.is_null()).then_some(SendComm(comm)))
    }

    /// `accept` on a listening comm; `None` while no sender is ready.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code; `CommOnError` if it left a comm then.
    pub fn accept(&self, listen: &ListenComm) -> Result<Option<RecvComm>> {
        let mut comm = ptr::null_mut();
        let mut device: *mut NetDeviceHandle = ptr::null_mut();
        // SAFETY: (both arms) a comm of this plugin; outputs live through the call.
        let raw = unsafe {
            match self.calls.accept {
                Accept::V6(accept) => accept(listen.0, &raw mut comm),
                Accept::V7(accept) => accept(listen.0, &raw mut comm, &raw mut device),
            }
        };
        comm_of("accept", raw, comm).map(|comm| (!comm.is_null()).then_some(RecvComm(comm)))
    }

    /// `regMr`: registers `len` bytes at `ptr` (kind `PTR_*`) for a connection. The plugin does not read them yet.
    ///
    /// # Errors
    /// [`CallError`]; `TooLarge` if `len` does not fit the `int` of v6 and v7.
    pub fn reg_mr(&self, comm: impl Into<Comm>, ptr: *mut u8, len: usize, type_: i32) -> Result<MHandle> {
        let comm = comm.into().0;
        let mut handle = ptr::null_mut();
        let data = ptr.cast::<c_void>();
        // SAFETY: (both arms) a comm of this plugin; the output lives through the call; the range is the user's.
        let raw = unsafe {
            match self.calls.reg_mr {
                RegMr::Int(reg) => {
                    let limit = c_int::MAX as usize;
                    let len =
                        c_int::try_from(len).map_err(|_| CallError::TooLarge { call: "regMr", bytes: len, limit })?;
                    reg(comm, data, len, type_, &raw mut handle)
                }
                RegMr::Size(reg) => reg(comm, data, len, type_, &raw mut handle),
            }
        };
        check("regMr", raw).map(|()| MHandle(handle))
    }

    /// `deregMr`.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code.
    pub fn dereg_mr(&self, comm: impl Into<Comm>, handle: MHandle) -> Result<()> {
        // SAFETY: a comm and a registration of this plugin, given back once.
        check("deregMr", unsafe { (self.calls.dereg_mr)(comm.into().0, handle.0) })
    }

    /// `closeSend`; NULL is allowed.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code.
    pub fn close_send(&self, comm: SendComm) -> Result<()> {
        // SAFETY: a comm of this plugin, given back once, or NULL.
        check("closeSend", unsafe { (self.calls.close_send)(comm.0) })
    }

    /// `closeRecv`; NULL is allowed.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code.
    pub fn close_recv(&self, comm: RecvComm) -> Result<()> {
        // SAFETY: a comm of this plugin, given back once, or NULL.
        check("closeRecv", unsafe { (self.calls.close_recv)(comm.0) })
    }

    /// `closeListen`.
    ///
    /// # Errors
    /// [`CallError`] with the plugin's code.
    pub fn close_listen(&self, comm: ListenComm) -> Result<()> {
        // SAFETY: a comm of this plugin, given back once, or NULL.
        check("closeListen", unsafe { (self.calls.close_listen)(comm.0) })
    }
}

/// The comm of a call that succeeded; one that failed must have left NULL.
fn comm_of(call: &'static str, raw: c_int, comm: *mut c_void) -> Result<*mut c_void> {
    match check(call, raw) {
        Ok(()) => Ok(comm),
        Err(_) if !comm.is_null() => Err(CallError::CommOnError { call, raw }),
        Err(error) => Err(error),
    }
}
