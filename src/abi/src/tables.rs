//! `ncclNet_v6` to `ncclNet_v12`: the tables of functions that a plugin exports.
//!
//! For: the exported statics, and the loader. Must not know: who implements the functions.
//! Threads: NCCL never writes to a table, so sharing it is sound.

use core::ffi::{c_char, c_int};

use crate::calls::*;
use crate::{
    PropertiesV6, PropertiesV7, PropertiesV8, PropertiesV9, PropertiesV10, PropertiesV11, PropertiesV12, assert_layout,
};

/// Table of version 6.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetV6 {
    /// Name of the network.
    pub name: *const c_char,
    /// `init`.
    pub init: Option<InitV6Fn>,
    /// `devices`.
    pub devices: Option<DevicesFn>,
    /// `getProperties`.
    pub get_properties: Option<GetPropertiesFn<PropertiesV6>>,
    /// `listen`.
    pub listen: Option<ListenV6Fn>,
    /// `connect`.
    pub connect: Option<ConnectV6Fn>,
    /// `accept`.
    pub accept: Option<AcceptV6Fn>,
    /// `regMr`.
    pub reg_mr: Option<RegMrFn<c_int>>,
    /// `regMrDmaBuf`; may be NULL.
    pub reg_mr_dma_buf: Option<RegMrDmaBufFn>,
    /// `deregMr`.
    pub dereg_mr: Option<DeregMrFn>,
    /// `isend`.
    pub isend: Option<IsendFn<c_int>>,
    /// `irecv`.
    pub irecv: Option<IrecvFn<c_int>>,
    /// `iflush`.
    pub iflush: Option<IflushFn>,
    /// `test`.
    pub test: Option<TestFn>,
    /// `closeSend`.
    pub close_send: Option<CloseFn>,
    /// `closeRecv`.
    pub close_recv: Option<CloseFn>,
    /// `closeListen`.
    pub close_listen: Option<CloseFn>,
}
assert_layout!(NetV6, 136, {
    name: 0, init: 8, devices: 16, get_properties: 24, listen: 32, connect: 40, accept: 48, reg_mr: 56,
    reg_mr_dma_buf: 64, dereg_mr: 72, isend: 80, irecv: 88, iflush: 96, test: 104, close_send: 112, close_recv: 120,
    close_listen: 128,
});
// SAFETY: `name` points to text that is never written; functions are shareable; nothing writes to a table.
unsafe impl Sync for NetV6 {}

/// Table of version 7.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetV7 {
    /// Name of the network.
    pub name: *const c_char,
    /// `init`.
    pub init: Option<InitV6Fn>,
    /// `devices`.
    pub devices: Option<DevicesFn>,
    /// `getProperties`.
    pub get_properties: Option<GetPropertiesFn<PropertiesV7>>,
    /// `listen`.
    pub listen: Option<ListenV6Fn>,
    /// `connect`.
    pub connect: Option<ConnectV7Fn>,
    /// `accept`.
    pub accept: Option<AcceptV7Fn>,
    /// `regMr`.
    pub reg_mr: Option<RegMrFn<c_int>>,
    /// `regMrDmaBuf`; may be NULL.
    pub reg_mr_dma_buf: Option<RegMrDmaBufFn>,
    /// `deregMr`.
    pub dereg_mr: Option<DeregMrFn>,
    /// `isend`.
    pub isend: Option<IsendFn<c_int>>,
    /// `irecv`.
    pub irecv: Option<IrecvFn<c_int>>,
    /// `iflush`.
    pub iflush: Option<IflushFn>,
    /// `test`.
    pub test: Option<TestFn>,
    /// `closeSend`.
    pub close_send: Option<CloseFn>,
    /// `closeRecv`.
    pub close_recv: Option<CloseFn>,
    /// `closeListen`.
    pub close_listen: Option<CloseFn>,
    /// `getDeviceMr`; may be NULL.
    pub get_device_mr: Option<GetDeviceMrFn>,
    /// `irecvConsumed`; may be NULL.
    pub irecv_consumed: Option<IrecvConsumedFn>,
}
assert_layout!(NetV7, 152, {
    name: 0, init: 8, devices: 16, get_properties: 24, listen: 32, connect: 40, accept: 48, reg_mr: 56,
    reg_mr_dma_buf: 64, dereg_mr: 72, isend: 80, irecv: 88, iflush: 96, test: 104, close_send: 112, close_recv: 120,
    close_listen: 128, get_device_mr: 136, irecv_consumed: 144,
});
// SAFETY: `name` points to text that is never written; functions are shareable; nothing writes to a table.
unsafe impl Sync for NetV7 {}

/// Table of version 8.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetV8 {
    /// Name of the network.
    pub name: *const c_char,
    /// `init`.
    pub init: Option<InitV6Fn>,
    /// `devices`.
    pub devices: Option<DevicesFn>,
    /// `getProperties`.
    pub get_properties: Option<GetPropertiesFn<PropertiesV8>>,
    /// `listen`.
    pub listen: Option<ListenV6Fn>,
    /// `connect`.
    pub connect: Option<ConnectV7Fn>,
    /// `accept`.
    pub accept: Option<AcceptV7Fn>,
    /// `regMr`.
    pub reg_mr: Option<RegMrFn<usize>>,
    /// `regMrDmaBuf`; may be NULL.
    pub reg_mr_dma_buf: Option<RegMrDmaBufFn>,
    /// `deregMr`.
    pub dereg_mr: Option<DeregMrFn>,
    /// `isend`.
    pub isend: Option<IsendFn<c_int>>,
    /// `irecv`.
    pub irecv: Option<IrecvFn<c_int>>,
    /// `iflush`.
    pub iflush: Option<IflushFn>,
    /// `test`.
    pub test: Option<TestFn>,
    /// `closeSend`.
    pub close_send: Option<CloseFn>,
    /// `closeRecv`.
    pub close_recv: Option<CloseFn>,
    /// `closeListen`.
    pub close_listen: Option<CloseFn>,
    /// `getDeviceMr`; may be NULL.
    pub get_device_mr: Option<GetDeviceMrFn>,
    /// `irecvConsumed`; may be NULL.
    pub irecv_consumed: Option<IrecvConsumedFn>,
}
assert_layout!(NetV8, 152, {
    name: 0, init: 8, devices: 16, get_properties: 24, listen: 32, connect: 40, accept: 48, reg_mr: 56,
    reg_mr_dma_buf: 64, dereg_mr: 72, isend: 80, irecv: 88, iflush: 96, test: 104, close_send: 112, close_recv: 120,
    close_listen: 128, get_device_mr: 136, irecv_consumed: 144,
});
// SAFETY: `name` points to text that is never written; functions are shareable; nothing writes to a table.
unsafe impl Sync for NetV8 {}

/// Table of version 9.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetV9 {
    /// Name of the network.
    pub name: *const c_char,
    /// `init`.
    pub init: Option<InitV6Fn>,
    /// `devices`.
    pub devices: Option<DevicesFn>,
    /// `getProperties`.
    pub get_properties: Option<GetPropertiesFn<PropertiesV9>>,
    /// `listen`.
    pub listen: Option<ListenV6Fn>,
    /// `connect`.
    pub connect: Option<ConnectV7Fn>,
    /// `accept`.
    pub accept: Option<AcceptV7Fn>,
    /// `regMr`.
    pub reg_mr: Option<RegMrFn<usize>>,
    /// `regMrDmaBuf`; may be NULL.
    pub reg_mr_dma_buf: Option<RegMrDmaBufFn>,
    /// `deregMr`.
    pub dereg_mr: Option<DeregMrFn>,
    /// `isend`.
    pub isend: Option<IsendFn<usize>>,
    /// `irecv`.
    pub irecv: Option<IrecvFn<usize>>,
    /// `iflush`.
    pub iflush: Option<IflushFn>,
    /// `test`.
    pub test: Option<TestFn>,
    /// `closeSend`.
    pub close_send: Option<CloseFn>,
    /// `closeRecv`.
    pub close_recv: Option<CloseFn>,
    /// `closeListen`.
    pub close_listen: Option<CloseFn>,
    /// `getDeviceMr`; may be NULL.
    pub get_device_mr: Option<GetDeviceMrFn>,
    /// `irecvConsumed`; may be NULL.
    pub irecv_consumed: Option<IrecvConsumedFn>,
    /// `makeVDevice`; may be NULL.
    pub make_vdevice: Option<MakeVDeviceV9Fn>,
}
assert_layout!(NetV9, 160, {
    name: 0, init: 8, devices: 16, get_properties: 24, listen: 32, connect: 40, accept: 48, reg_mr: 56,
    reg_mr_dma_buf: 64, dereg_mr: 72, isend: 80, irecv: 88, iflush: 96, test: 104, close_send: 112, close_recv: 120,
    close_listen: 128, get_device_mr: 136, irecv_consumed: 144, make_vdevice: 152,
});
// SAFETY: `name` points to text that is never written; functions are shareable; nothing writes to a table.
unsafe impl Sync for NetV9 {}

/// Table of version 10.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetV10 {
    /// Name of the network.
    pub name: *const c_char,
    /// `init`.
    pub init: Option<InitV10Fn>,
    /// `devices`.
    pub devices: Option<DevicesFn>,
    /// `getProperties`.
    pub get_properties: Option<GetPropertiesFn<PropertiesV10>>,
    /// `listen`.
    pub listen: Option<ListenV6Fn>,
    /// `connect`.
    pub connect: Option<ConnectV10Fn>,
    /// `accept`.
    pub accept: Option<AcceptV7Fn>,
    /// `regMr`.
    pub reg_mr: Option<RegMrFn<usize>>,
    /// `regMrDmaBuf`; may be NULL.
    pub reg_mr_dma_buf: Option<RegMrDmaBufFn>,
    /// `deregMr`.
    pub dereg_mr: Option<DeregMrFn>,
    /// `isend`.
    pub isend: Option<IsendV10Fn>,
    /// `irecv`.
    pub irecv: Option<IrecvV10Fn>,
    /// `iflush`.
    pub iflush: Option<IflushFn>,
    /// `test`.
    pub test: Option<TestFn>,
    /// `closeSend`.
    pub close_send: Option<CloseFn>,
    /// `closeRecv`.
    pub close_recv: Option<CloseFn>,
    /// `closeListen`.
    pub close_listen: Option<CloseFn>,
    /// `getDeviceMr`; may be NULL.
    pub get_device_mr: Option<GetDeviceMrFn>,
    /// `irecvConsumed`; may be NULL.
    pub irecv_consumed: Option<IrecvConsumedFn>,
    /// `makeVDevice`; may be NULL.
    pub make_vdevice: Option<MakeVDeviceV9Fn>,
}
assert_layout!(NetV10, 160, {
    name: 0, init: 8, devices: 16, get_properties: 24, listen: 32, connect: 40, accept: 48, reg_mr: 56,
    reg_mr_dma_buf: 64, dereg_mr: 72, isend: 80, irecv: 88, iflush: 96, test: 104, close_send: 112, close_recv: 120,
    close_listen: 128, get_device_mr: 136, irecv_consumed: 144, make_vdevice: 152,
});
// SAFETY: `name` points to text that is never written; functions are shareable; nothing writes to a table.
unsafe impl Sync for NetV10 {}

/// Table of version 11.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetV11 {
    /// Name of the network.
    pub name: *const c_char,
    /// `init`.
    pub init: Option<InitV11Fn>,
    /// `devices`.
    pub devices: Option<DevicesFn>,
    /// `getProperties`.
    pub get_properties: Option<GetPropertiesFn<PropertiesV11>>,
    /// `listen`.
    pub listen: Option<ListenV11Fn>,
    /// `connect`.
    pub connect: Option<ConnectV11Fn>,
    /// `accept`.
    pub accept: Option<AcceptV7Fn>,
    /// `regMr`.
    pub reg_mr: Option<RegMrFn<usize>>,
    /// `regMrDmaBuf`; may be NULL.
    pub reg_mr_dma_buf: Option<RegMrDmaBufFn>,
    /// `deregMr`.
    pub dereg_mr: Option<DeregMrFn>,
    /// `isend`.
    pub isend: Option<IsendV10Fn>,
    /// `irecv`.
    pub irecv: Option<IrecvV10Fn>,
    /// `iflush`.
    pub iflush: Option<IflushFn>,
    /// `test`.
    pub test: Option<TestFn>,
    /// `closeSend`.
    pub close_send: Option<CloseFn>,
    /// `closeRecv`.
    pub close_recv: Option<CloseFn>,
    /// `closeListen`.
    pub close_listen: Option<CloseFn>,
    /// `getDeviceMr`; may be NULL.
    pub get_device_mr: Option<GetDeviceMrFn>,
    /// `irecvConsumed`; may be NULL.
    pub irecv_consumed: Option<IrecvConsumedFn>,
    /// `makeVDevice`; may be NULL.
    pub make_vdevice: Option<MakeVDeviceV9Fn>,
    /// `finalize`.
    pub finalize: Option<FinalizeFn>,
    /// `setNetAttr`; may be NULL.
    pub set_net_attr: Option<SetNetAttrFn>,
}
assert_layout!(NetV11, 176, {
    name: 0, init: 8, devices: 16, get_properties: 24, listen: 32, connect: 40, accept: 48, reg_mr: 56,
    reg_mr_dma_buf: 64, dereg_mr: 72, isend: 80, irecv: 88, iflush: 96, test: 104, close_send: 112, close_recv: 120,
    close_listen: 128, get_device_mr: 136, irecv_consumed: 144, make_vdevice: 152, finalize: 160, set_net_attr: 168,
});
// SAFETY: `name` points to text that is never written; functions are shareable; nothing writes to a table.
unsafe impl Sync for NetV11 {}

/// Table of version 12.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NetV12 {
    /// Name of the network.
    pub name: *const c_char,
    /// `init`.
    pub init: Option<InitV11Fn>,
    /// `devices`.
    pub devices: Option<DevicesFn>,
    /// `getProperties`.
    pub get_properties: Option<GetPropertiesFn<PropertiesV12>>,
    /// `listen`.
    pub listen: Option<ListenV11Fn>,
    /// `connect`.
    pub connect: Option<ConnectV11Fn>,
    /// `accept`.
    pub accept: Option<AcceptV7Fn>,
    /// `regMr`.
    pub reg_mr: Option<RegMrFn<usize>>,
    /// `regMrDmaBuf`; may be NULL.
    pub reg_mr_dma_buf: Option<RegMrDmaBufFn>,
    /// `deregMr`.
    pub dereg_mr: Option<DeregMrFn>,
    /// `isend`.
    pub isend: Option<IsendV10Fn>,
    /// `irecv`.
    pub irecv: Option<IrecvV10Fn>,
    /// `iflush`.
    pub iflush: Option<IflushFn>,
    /// `test`.
    pub test: Option<TestFn>,
    /// `closeSend`.
    pub close_send: Option<CloseFn>,
    /// `closeRecv`.
    pub close_recv: Option<CloseFn>,
    /// `closeListen`.
    pub close_listen: Option<CloseFn>,
    /// `getDeviceMr`; may be NULL.
    pub get_device_mr: Option<GetDeviceMrFn>,
    /// `irecvConsumed`; may be NULL.
    pub irecv_consumed: Option<IrecvConsumedFn>,
    /// `makeVDevice`; may be NULL.
    pub make_vdevice: Option<MakeVDeviceV12Fn>,
    /// `finalize`.
    pub finalize: Option<FinalizeFn>,
    /// `setNetAttr`; may be NULL.
    pub set_net_attr: Option<SetNetAttrFn>,
}
assert_layout!(NetV12, 176, {
    name: 0, init: 8, devices: 16, get_properties: 24, listen: 32, connect: 40, accept: 48, reg_mr: 56,
    reg_mr_dma_buf: 64, dereg_mr: 72, isend: 80, irecv: 88, iflush: 96, test: 104, close_send: 112, close_recv: 120,
    close_listen: 128, get_device_mr: 136, irecv_consumed: 144, make_vdevice: 152, finalize: 160, set_net_attr: 168,
});
// SAFETY: `name` points to text that is never written; functions are shareable; nothing writes to a table.
unsafe impl Sync for NetV12 {}
