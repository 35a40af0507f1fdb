//! `ncclNetProperties_v6` to `_v12`: what a device says about itself.
//!
//! For: `getProperties`. Must not know: where the values come from. Threads: plain data.
//!
//! NCCL hands over an uninitialised structure: a plugin writes every field.

use core::ffi::{c_char, c_int};

use crate::{VDeviceProps4, VDeviceProps8, assert_layout};

/// Properties of version 6.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PropertiesV6 {
    /// Name; must stay valid for ever.
    pub name: *const c_char,
    /// Path of the PCI device in sysfs, or NULL; must stay valid for ever.
    pub pci_path: *const c_char,
    /// Number that is the same for ports of one adapter.
    pub guid: u64,
    /// Kinds of memory that can be registered, bits `PTR_*`.
    pub ptr_support: c_int,
    /// Mbit/s.
    pub speed: c_int,
    /// Port number.
    pub port: c_int,
    /// Microseconds.
    pub latency: f32,
    /// Connections at most.
    pub max_comms: c_int,
    /// Receives in one group at most.
    pub max_recvs: c_int,
}
assert_layout!(PropertiesV6, 48, {
    name: 0, pci_path: 8, guid: 16, ptr_support: 24, speed: 28, port: 32, latency: 36, max_comms: 40, max_recvs: 44,
});

/// Properties of version 7.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PropertiesV7 {
    /// Name; must stay valid for ever.
    pub name: *const c_char,
    /// Path of the PCI device in sysfs, or NULL; must stay valid for ever.
    pub pci_path: *const c_char,
    /// Number that is the same for ports of one adapter.
    pub guid: u64,
    /// Kinds of memory that can be registered, bits `PTR_*`.
    pub ptr_support: c_int,
    /// Mbit/s.
    pub speed: c_int,
    /// Port number.
    pub port: c_int,
    /// Microseconds.
    pub latency: f32,
    /// Connections at most.
    pub max_comms: c_int,
    /// Receives in one group at most.
    pub max_recvs: c_int,
    /// `NET_DEVICE_HOST` for plugins that the proxy drives.
    pub net_device_type: c_int,
    /// Version of the device kind.
    pub net_device_version: c_int,
}
assert_layout!(PropertiesV7, 56, {
    name: 0, pci_path: 8, guid: 16, ptr_support: 24, speed: 28, port: 32, latency: 36, max_comms: 40, max_recvs: 44,
    net_device_type: 48, net_device_version: 52,
});

/// Properties of version 8.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PropertiesV8 {
    /// Name; must stay valid for ever.
    pub name: *const c_char,
    /// Path of the PCI device in sysfs, or NULL; must stay valid for ever.
    pub pci_path: *const c_char,
    /// Number that is the same for ports of one adapter.
    pub guid: u64,
    /// Kinds of memory that can be registered, bits `PTR_*`.
    pub ptr_support: c_int,
    /// 1 if a registration serves every connection.
    pub reg_is_global: c_int,
    /// Mbit/s.
    pub speed: c_int,
    /// Port number.
    pub port: c_int,
    /// Microseconds.
    pub latency: f32,
    /// Connections at most.
    pub max_comms: c_int,
    /// Receives in one group at most.
    pub max_recvs: c_int,
    /// `NET_DEVICE_HOST` for plugins that the proxy drives.
    pub net_device_type: c_int,
    /// Version of the device kind.
    pub net_device_version: c_int,
}
assert_layout!(PropertiesV8, 64, {
    name: 0, pci_path: 8, guid: 16, ptr_support: 24, reg_is_global: 28, speed: 32, port: 36, latency: 40,
    max_comms: 44, max_recvs: 48, net_device_type: 52, net_device_version: 56,
});

/// Properties of version 9 and 10 (they are equal).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PropertiesV9 {
    /// Name; must stay valid for ever.
    pub name: *const c_char,
    /// Path of the PCI device in sysfs, or NULL; must stay valid for ever.
    pub pci_path: *const c_char,
    /// Number that is the same for ports of one adapter.
    pub guid: u64,
    /// Kinds of memory that can be registered, bits `PTR_*`.
    pub ptr_support: c_int,
    /// 1 if a registration serves every connection.
    pub reg_is_global: c_int,
    /// 1 if received GPU data always needs a flush.
    pub force_flush: c_int,
    /// Mbit/s.
    pub speed: c_int,
    /// Port number.
    pub port: c_int,
    /// Microseconds.
    pub latency: f32,
    /// Connections at most.
    pub max_comms: c_int,
    /// Receives in one group at most.
    pub max_recvs: c_int,
    /// `NET_DEVICE_HOST` for plugins that the proxy drives.
    pub net_device_type: c_int,
    /// Version of the device kind.
    pub net_device_version: c_int,
    /// The physical devices behind this one.
    pub vprops: VDeviceProps4,
    /// Largest point-to-point message, bytes, in 1 to 1 TiB.
    pub max_p2p_bytes: usize,
    /// Largest collective message, bytes, in 1 to 1 TiB.
    pub max_coll_bytes: usize,
}
assert_layout!(PropertiesV9, 104, {
    name: 0, pci_path: 8, guid: 16, ptr_support: 24, reg_is_global: 28, force_flush: 32, speed: 36, port: 40,
    latency: 44, max_comms: 48, max_recvs: 52, net_device_type: 56, net_device_version: 60, vprops: 64,
    max_p2p_bytes: 88, max_coll_bytes: 96,
});

/// Properties of version 10.
pub type PropertiesV10 = PropertiesV9;

/// Properties of version 11.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PropertiesV11 {
    /// Name; must stay valid for ever.
    pub name: *const c_char,
    /// Path of the PCI device in sysfs, or NULL; must stay valid for ever.
    pub pci_path: *const c_char,
    /// Number that is the same for ports of one adapter.
    pub guid: u64,
    /// Kinds of memory that can be registered, bits `PTR_*`.
    pub ptr_support: c_int,
    /// 1 if a registration serves every connection.
    pub reg_is_global: c_int,
    /// 1 if received GPU data always needs a flush.
    pub force_flush: c_int,
    /// Mbit/s.
    pub speed: c_int,
    /// Port number.
    pub port: c_int,
    /// Microseconds.
    pub latency: f32,
    /// Connections at most.
    pub max_comms: c_int,
    /// Receives in one group at most.
    pub max_recvs: c_int,
    /// `NET_DEVICE_HOST` for plugins that the proxy drives.
    pub net_device_type: c_int,
    /// Version of the device kind.
    pub net_device_version: c_int,
    /// The physical devices behind this one.
    pub vprops: VDeviceProps4,
    /// Largest point-to-point message, bytes, in 1 to 1 TiB.
    pub max_p2p_bytes: usize,
    /// Largest collective message, bytes, in 1 to 1 TiB.
    pub max_coll_bytes: usize,
    /// Requests in one multi-request at most.
    pub max_multi_request_size: c_int,
}
assert_layout!(PropertiesV11, 112, {
    name: 0, pci_path: 8, guid: 16, ptr_support: 24, reg_is_global: 28, force_flush: 32, speed: 36, port: 40,
    latency: 44, max_comms: 48, max_recvs: 52, net_device_type: 56, net_device_version: 60, vprops: 64,
    max_p2p_bytes: 88, max_coll_bytes: 96, max_multi_request_size: 104,
});

/// Properties of version 12.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PropertiesV12 {
    /// Name; must stay valid for ever.
    pub name: *const c_char,
    /// Path of the PCI device in sysfs, or NULL; must stay valid for ever.
    pub pci_path: *const c_char,
    /// Number that is the same for ports of one adapter.
    pub guid: u64,
    /// Kinds of memory that can be registered, bits `PTR_*`.
    pub ptr_support: c_int,
    /// 1 if a registration serves every connection.
    pub reg_is_global: c_int,
    /// 1 if received GPU data always needs a flush.
    pub force_flush: c_int,
    /// Mbit/s.
    pub speed: c_int,
    /// Port number.
    pub port: c_int,
    /// Microseconds.
    pub latency: f32,
    /// Connections at most.
    pub max_comms: c_int,
    /// Receives in one group at most.
    pub max_recvs: c_int,
    /// `NET_DEVICE_HOST` for plugins that the proxy drives.
    pub net_device_type: c_int,
    /// Version of the device kind.
    pub net_device_version: c_int,
    /// The physical devices behind this one.
    pub vprops: VDeviceProps8,
    /// Largest point-to-point message, bytes, in 1 to 1 TiB.
    pub max_p2p_bytes: usize,
    /// Largest collective message, bytes, in 1 to 1 TiB.
    pub max_coll_bytes: usize,
    /// Requests in one multi-request at most.
    pub max_multi_request_size: c_int,
    /// Rail, −1 if unknown.
    pub rail_id: i16,
    /// Plane, −1 if unknown.
    pub plane_id: i16,
}
assert_layout!(PropertiesV12, 128, {
    name: 0, pci_path: 8, guid: 16, ptr_support: 24, reg_is_global: 28, force_flush: 32, speed: 36, port: 40,
    latency: 44, max_comms: 48, max_recvs: 52, net_device_type: 56, net_device_version: 60, vprops: 64,
    max_p2p_bytes: 104, max_coll_bytes: 112, max_multi_request_size: 120, rail_id: 124, plane_id: 126,
});
