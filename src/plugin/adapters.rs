//! The C functions of each version, and tables made of them.
//!
//! For: the exported statics. Must not know: what the calls do; each function only sorts its version's arguments.
//! Threads: as the functions called.

use std::ffi::{c_int, c_void};

use mesh_abi::*;

use super::comm::{CSize, size_of_c};
use super::data::{self, Receive};
use super::fault::guarded;
use super::inner::Transport;
use super::properties::{self, Layout, NAME};
use super::{context, setup};

// The safety of every function here is NCCL's promise to a plugin, as told in the module `plugin`.
type Out = *mut *mut c_void;
type Ptr = *mut c_void;
type Device = *mut *mut NetDeviceHandle;

unsafe extern "C" fn init_v6<T: Transport, const V: u32>(logger: Logger) -> c_int {
    guarded("init", || context::init_process::<T>(V, logger))
}

unsafe extern "C" fn init_v10<T: Transport>(logger: Logger, _: ProfilerCallback) -> c_int {
    guarded("init", || context::init_process::<T>(10, logger))
}

unsafe extern "C" fn init_v11<T: Transport, const V: u32>(
    ctx: Out,
    comm_id: u64,
    config: *mut CommConfig,
    logger: Logger,
    _: ProfilerCallback,
) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("init", || unsafe { context::init::<T>(V, ctx, comm_id, config, logger) })
}

unsafe extern "C" fn finalize<T: Transport>(ctx: Ptr) -> c_int {
    guarded("finalize", || context::finalize::<T>(ctx))
}

unsafe extern "C" fn devices<T: Transport>(ndev: *mut c_int) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("devices", || unsafe { properties::devices::<T>(ndev) })
}

unsafe extern "C" fn get_properties<T: Transport, P: Layout>(dev: c_int, props: *mut P) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("getProperties", || unsafe { properties::get::<T, P>(dev, props) })
}

unsafe extern "C" fn listen_v6<T: Transport>(dev: c_int, handle: Ptr, comm: Out) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("listen", || unsafe { setup::listen::<T>(dev, handle, comm) })
}

unsafe extern "C" fn listen_v11<T: Transport>(_: Ptr, dev: c_int, handle: Ptr, comm: Out) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("listen", || unsafe { setup::listen::<T>(dev, handle, comm) })
}

unsafe extern "C" fn connect_v6<T: Transport>(dev: c_int, handle: Ptr, comm: Out) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("connect", || unsafe { setup::connect::<T>(dev, handle, comm) })
}

unsafe extern "C" fn connect_v7<T: Transport>(dev: c_int, handle: Ptr, comm: Out, _: Device) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("connect", || unsafe { setup::connect::<T>(dev, handle, comm) })
}

unsafe extern "C" fn connect_v10<T: Transport>(
    dev: c_int,
    _: *mut CommConfig,
    handle: Ptr,
    comm: Out,
    _: Device,
) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("connect", || unsafe { setup::connect::<T>(dev, handle, comm) })
}

unsafe extern "C" fn connect_v11<T: Transport>(_: Ptr, dev: c_int, handle: Ptr, comm: Out, _: Device) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("connect", || unsafe { setup::connect::<T>(dev, handle, comm) })
}

unsafe extern "C" fn accept_v6<T: Transport>(listener: Ptr, comm: Out) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("accept", || unsafe { setup::accept::<T>(listener, comm) })
}

unsafe extern "C" fn accept_v7<T: Transport>(listener: Ptr, comm: Out, _: Device) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("accept", || unsafe { setup::accept::<T>(listener, comm) })
}

unsafe extern "C" fn reg_mr<S: Into<CSize>>(comm: Ptr, data: Ptr, size: S, kind: c_int, mhandle: Out) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("regMr", || unsafe { setup::reg_mr(comm, data, size_of_c(size)?, kind, mhandle) })
}

unsafe extern "C" fn dereg_mr(comm: Ptr, mhandle: Ptr) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("deregMr", || unsafe { setup::dereg_mr(comm, mhandle) })
}

unsafe extern "C" fn isend<T: Transport, S: Into<CSize>>(
    comm: Ptr,
    data: Ptr,
    size: S,
    _tag: c_int,
    mhandle: Ptr,
    request: Out,
) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("isend", || unsafe { data::isend::<T>(comm, data, size, mhandle, request) })
}

unsafe extern "C" fn isend_v10<T: Transport>(
    comm: Ptr,
    data: Ptr,
    size: usize,
    _tag: c_int,
    mhandle: Ptr,
    _phandle: Ptr,
    request: Out,
) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("isend", || unsafe { data::isend::<T>(comm, data, size, mhandle, request) })
}

/// v6 to v8 have no mark in `*request`, v9 has.
unsafe extern "C" fn irecv<T: Transport, S: Copy + Into<CSize>, const MARKS: bool>(
    comm: Ptr,
    n: c_int,
    data: Out,
    sizes: *mut S,
    _tags: *mut c_int,
    mhandles: Out,
    request: Out,
) -> c_int {
    let receive = Receive { n, data, sizes, mhandles };
    // SAFETY: NCCL's promise.
    guarded("irecv", || unsafe { data::irecv::<T, S>(comm, &receive, MARKS, request) })
}

unsafe extern "C" fn irecv_v10<T: Transport>(
    comm: Ptr,
    n: c_int,
    data: Out,
    sizes: *mut usize,
    _tags: *mut c_int,
    mhandles: Out,
    _phandles: Out,
    request: Out,
) -> c_int {
    let receive = Receive { n, data, sizes, mhandles };
    // SAFETY: NCCL's promise.
    guarded("irecv", || unsafe { data::irecv::<T, usize>(comm, &receive, true, request) })
}

unsafe extern "C" fn iflush(_: Ptr, _: c_int, _: Out, _: *mut c_int, _: Out, request: Out) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("iflush", || unsafe { data::iflush(request) })
}

unsafe extern "C" fn test<T: Transport>(request: Ptr, done: *mut c_int, sizes: *mut c_int) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("test", || unsafe { data::test::<T>(request, done, sizes) })
}

unsafe extern "C" fn close_send<T: Transport>(comm: Ptr) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("closeSend", || unsafe { setup::close_send::<T>(comm) })
}

unsafe extern "C" fn close_recv<T: Transport>(comm: Ptr) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("closeRecv", || unsafe { setup::close_recv::<T>(comm) })
}

unsafe extern "C" fn close_listen<T: Transport>(comm: Ptr) -> c_int {
    // SAFETY: NCCL's promise.
    guarded("closeListen", || unsafe { setup::close_listen::<T>(comm) })
}

/// A table: what differs between versions is given, what all have is the same, and what a version adds is NULL unless given.
macro_rules! table {
    ($name:ident, $type:ident, $props:ty, $init:expr, $listen:expr, $connect:expr, $accept:expr, $size:ty,
     $isend:expr, $irecv:expr, { $($field:ident: $value:expr),* $(,)? }) => {
        pub(in crate::plugin) const fn $name<T: Transport>() -> $type {
            $type {
                name: NAME.as_ptr(),
                init: Some($init),
                devices: Some(devices::<T>),
                get_properties: Some(get_properties::<T, $props>),
                listen: Some($listen),
                connect: Some($connect),
                accept: Some($accept),
                reg_mr: Some(reg_mr::<$size>),
                reg_mr_dma_buf: None,
                dereg_mr: Some(dereg_mr),
                isend: Some($isend),
                irecv: Some($irecv),
                iflush: Some(iflush),
                test: Some(test::<T>),
                close_send: Some(close_send::<T>),
                close_recv: Some(close_recv::<T>),
                close_listen: Some(close_listen::<T>),
                $($field: $value,)*
            }
        }
    };
}

#[rustfmt::skip]
mod tables {
    use super::*;

    table!(v6, NetV6, PropertiesV6, init_v6::<T, 6>, listen_v6::<T>, connect_v6::<T>, accept_v6::<T>, c_int,
        isend::<T, c_int>, irecv::<T, c_int, false>, {});
    table!(v7, NetV7, PropertiesV7, init_v6::<T, 7>, listen_v6::<T>, connect_v7::<T>, accept_v7::<T>, c_int,
        isend::<T, c_int>, irecv::<T, c_int, false>, { get_device_mr: None, irecv_consumed: None });
    table!(v8, NetV8, PropertiesV8, init_v6::<T, 8>, listen_v6::<T>, connect_v7::<T>, accept_v7::<T>, usize,
        isend::<T, c_int>, irecv::<T, c_int, false>, { get_device_mr: None, irecv_consumed: None });
    table!(v9, NetV9, PropertiesV9, init_v6::<T, 9>, listen_v6::<T>, connect_v7::<T>, accept_v7::<T>, usize,
        isend::<T, usize>, irecv::<T, usize, true>,
        { get_device_mr: None, irecv_consumed: None, make_vdevice: None });
    table!(v10, NetV10, PropertiesV10, init_v10::<T>, listen_v6::<T>, connect_v10::<T>, accept_v7::<T>, usize,
        isend_v10::<T>, irecv_v10::<T>,
        { get_device_mr: None, irecv_consumed: None, make_vdevice: None });
    table!(v11, NetV11, PropertiesV11, init_v11::<T, 11>, listen_v11::<T>, connect_v11::<T>, accept_v7::<T>, usize,
        isend_v10::<T>, irecv_v10::<T>,
        { get_device_mr: None, irecv_consumed: None, make_vdevice: None, finalize: Some(finalize::<T>), set_net_attr: None });
    table!(v12, NetV12, PropertiesV12, init_v11::<T, 12>, listen_v11::<T>, connect_v11::<T>, accept_v7::<T>, usize,
        isend_v10::<T>, irecv_v10::<T>,
        { get_device_mr: None, irecv_consumed: None, make_vdevice: None, finalize: Some(finalize::<T>), set_net_attr: None });
}

pub(super) use tables::*;
