//! Types of the functions in the tables, one alias a shape.
//!
//! For: the tables of both sides. Must not know: who implements them. Threads: as NCCL's documentation of each call.
//!
//! Every function returns `ncclResult_t` as a plain `c_int`, since a foreign plugin may return a code we do not know.

use core::ffi::{c_int, c_void};

use crate::{CommConfig, Logger, NetAttr, NetDeviceHandle, ProfilerCallback, VDeviceProps4, VDeviceProps8};

/// `devices(int* ndev)`.
pub type DevicesFn = unsafe extern "C" fn(*mut c_int) -> c_int;
/// `getProperties(int dev, Properties* props)`.
pub type GetPropertiesFn<P> = unsafe extern "C" fn(c_int, *mut P) -> c_int;

/// `init(logger)`, v6 to v9.
pub type InitV6Fn = unsafe extern "C" fn(Logger) -> c_int;
/// `init(logger, profiler)`, v10.
pub type InitV10Fn = unsafe extern "C" fn(Logger, ProfilerCallback) -> c_int;
/// `init(ctx, commId, config, logger, profiler)`, v11 and v12.
pub type InitV11Fn = unsafe extern "C" fn(*mut *mut c_void, u64, *mut CommConfig, Logger, ProfilerCallback) -> c_int;
/// `finalize(ctx)`, v11 and v12; ctx may be NULL.
pub type FinalizeFn = unsafe extern "C" fn(*mut c_void) -> c_int;
/// `setNetAttr(ctx, attr)`, v11 and v12.
pub type SetNetAttrFn = unsafe extern "C" fn(*mut c_void, *mut NetAttr) -> c_int;

/// `listen(dev, handle, listenComm)`, v6 to v10.
pub type ListenV6Fn = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> c_int;
/// `listen(ctx, dev, handle, listenComm)`, v11 and v12.
pub type ListenV11Fn = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void) -> c_int;

/// `connect(dev, handle, sendComm)`, v6.
pub type ConnectV6Fn = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void) -> c_int;
/// `connect(dev, handle, sendComm, sendDevComm)`, v7 to v9.
pub type ConnectV7Fn = unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut *mut NetDeviceHandle) -> c_int;
/// `connect(dev, config, handle, sendComm, sendDevComm)`, v10.
pub type ConnectV10Fn =
    unsafe extern "C" fn(c_int, *mut CommConfig, *mut c_void, *mut *mut c_void, *mut *mut NetDeviceHandle) -> c_int;
/// `connect(ctx, dev, handle, sendComm, sendDevComm)`, v11 and v12.
pub type ConnectV11Fn =
    unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut *mut c_void, *mut *mut NetDeviceHandle) -> c_int;

/// `accept(listenComm, recvComm)`, v6.
pub type AcceptV6Fn = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
/// `accept(listenComm, recvComm, recvDevComm)`, v7 to v12.
pub type AcceptV7Fn = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut NetDeviceHandle) -> c_int;

/// `regMr(comm, data, size, type, mhandle)` with `int` (v6, v7) or `size_t` (v8 and later) as `S`.
pub type RegMrFn<S> = unsafe extern "C" fn(*mut c_void, *mut c_void, S, c_int, *mut *mut c_void) -> c_int;
/// `regMrDmaBuf(comm, data, size, type, offset, fd, mhandle)`.
pub type RegMrDmaBufFn =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, u64, c_int, *mut *mut c_void) -> c_int;
/// `deregMr(comm, mhandle)`.
pub type DeregMrFn = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

/// `isend(sendComm, data, size, tag, mhandle, request)` with `int` (v6 to v8) or `size_t` (v9) as `S`.
pub type IsendFn<S> = unsafe extern "C" fn(*mut c_void, *mut c_void, S, c_int, *mut c_void, *mut *mut c_void) -> c_int;
/// `isend(sendComm, data, size, tag, mhandle, phandle, request)`, v10 to v12.
pub type IsendV10Fn =
    unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int, *mut c_void, *mut c_void, *mut *mut c_void) -> c_int;
/// `irecv(recvComm, n, data, sizes, tags, mhandles, request)` with `int` (v6 to v8) or `size_t` (v9) as `S`.
pub type IrecvFn<S> = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut S,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
/// `irecv(recvComm, n, data, sizes, tags, mhandles, phandles, request)`, v10 to v12; `phandles` may be NULL.
pub type IrecvV10Fn = unsafe extern "C" fn(
    *mut c_void,
    c_int,
    *mut *mut c_void,
    *mut usize,
    *mut c_int,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;
/// `iflush(recvComm, n, data, sizes, mhandles, request)`; sizes are `int` in all versions.
pub type IflushFn =
    unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void, *mut c_int, *mut *mut c_void, *mut *mut c_void) -> c_int;
/// `test(request, done, sizes)`; sizes are `int` in all versions and may be NULL.
pub type TestFn = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> c_int;
/// `closeSend`, `closeRecv`, `closeListen`: `(comm)`; the first two must accept NULL.
pub type CloseFn = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `getDeviceMr(comm, mhandle, deviceHandle)`, v7 and later.
pub type GetDeviceMrFn = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut *mut c_void) -> c_int;
/// `irecvConsumed(recvComm, n, request)`, v7 and later.
pub type IrecvConsumedFn = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
/// `makeVDevice(d, props)`, v9 to v11.
pub type MakeVDeviceV9Fn = unsafe extern "C" fn(*mut c_int, *mut VDeviceProps4) -> c_int;
/// `makeVDevice(d, props)`, v12.
pub type MakeVDeviceV12Fn = unsafe extern "C" fn(*mut c_int, *mut VDeviceProps8) -> c_int;
