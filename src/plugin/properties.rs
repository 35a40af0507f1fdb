//! devices and getProperties.
//!
//! For: the adapters. Must not know: where speed and latency come from. Threads: any.
//!
//! One device, so that NCCL has nothing to choose: ports are chosen for each peer inside.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use mesh_abi::*;

use super::fault::Fault;
use super::inner::{self, Transport};

/// Name of network and device, to be compared with `NCCL_NET`.
pub(super) const NAME: &CStr = c"Mesh";
/// Port number reported; ports are numbered from 1.
const PORT: c_int = 1;
/// Connections that NCCL may open.
const MAX_COMMS: c_int = 65536;
/// Receives in one request.
const MAX_RECVS: c_int = 1;
/// Largest message, bytes.
const MAX_BYTES: usize = MAX_NET_SIZE;

pub(super) unsafe fn devices<T: Transport>(ndev: *mut c_int) -> Result<(), Fault> {
    if ndev.is_null() {
        return Err(Fault::Null { what: "ndev" });
    }
    // SAFETY: not NULL, so valid by NCCL's promise. There is one device or none.
    unsafe { ndev.write(T::devices().min(1) as c_int) };
    Ok(())
}

/// getProperties for every layout: nothing is read from `props`, which NCCL does not initialise.
///
/// # Safety
/// `props` is NULL or valid for writes.
pub(super) unsafe fn get<T: Transport, P: Layout>(dev: c_int, props: *mut P) -> Result<(), Fault> {
    if props.is_null() {
        return Err(Fault::Null { what: "props" });
    }
    check_device::<T>(dev)?;
    // SAFETY: not NULL, so valid by the caller's promise; a whole value is written.
    unsafe { props.write(P::of(dev, &T::properties())) };
    Ok(())
}

/// Only devices that were reported.
pub(super) fn check_device<T: Transport>(dev: c_int) -> Result<(), Fault> {
    let count = T::devices().min(1);
    match usize::try_from(dev) {
        Ok(index) if index < count => Ok(()),
        _ => Err(Fault::Device { dev, count }),
    }
}

/// A version's layout, filled.
pub(super) trait Layout {
    fn of(dev: c_int, inner: &inner::Properties) -> Self;
}

fn pci_path(inner: &inner::Properties) -> *const c_char {
    inner.pci_path.map_or(ptr::null(), CStr::as_ptr)
}

/// NCCL compares latencies for equality, so they are whole numbers.
fn latency(inner: &inner::Properties) -> f32 {
    inner.latency_us.max(0.0).round()
}

macro_rules! layout {
    ($type:ident, |$dev:ident, $inner:ident| { $($field:ident: $value:expr),* $(,)? }) => {
        impl Layout for $type {
            fn of($dev: c_int, $inner: &inner::Properties) -> Self {
                // Versions without virtual devices have no use for the number.
                let _ = $dev;
                Self {
                    name: NAME.as_ptr(),
                    pci_path: pci_path($inner),
                    guid: $inner.guid,
                    ptr_support: PTR_HOST,
                    speed: $inner.speed_mbps,
                    port: PORT,
                    latency: latency($inner),
                    max_comms: MAX_COMMS,
                    max_recvs: MAX_RECVS,
                    $($field: $value,)*
                }
            }
        }
    };
}

const fn one_of_4(dev: c_int) -> VDeviceProps4 {
    VDeviceProps4 { ndevs: 1, devs: [dev, 0, 0, 0] }
}

const fn one_of_8(dev: c_int) -> VDeviceProps8 {
    VDeviceProps8 { ndevs: 1, devs: [dev, 0, 0, 0, 0, 0, 0, 0] }
}

layout!(PropertiesV6, |dev, inner| {});
layout!(PropertiesV7, |dev, inner| { net_device_type: NET_DEVICE_HOST, net_device_version: 0 });
layout!(PropertiesV8, |dev, inner| { reg_is_global: 1, net_device_type: NET_DEVICE_HOST, net_device_version: 0 });
layout!(PropertiesV9, |dev, inner| {
    reg_is_global: 1,
    force_flush: 0,
    net_device_type: NET_DEVICE_HOST,
    net_device_version: 0,
    vprops: one_of_4(dev),
    max_p2p_bytes: MAX_BYTES,
    max_coll_bytes: MAX_BYTES,
});
layout!(PropertiesV11, |dev, inner| {
    reg_is_global: 1,
    force_flush: 0,
    net_device_type: NET_DEVICE_HOST,
    net_device_version: 0,
    vprops: one_of_4(dev),
    max_p2p_bytes: MAX_BYTES,
    max_coll_bytes: MAX_BYTES,
    max_multi_request_size: 1,
});
layout!(PropertiesV12, |dev, inner| {
    reg_is_global: 1,
    force_flush: 0,
    net_device_type: NET_DEVICE_HOST,
    net_device_version: 0,
    vprops: one_of_8(dev),
    max_p2p_bytes: MAX_BYTES,
    max_coll_bytes: MAX_BYTES,
    max_multi_request_size: 1,
    rail_id: RAIL_UNDEFINED,
    plane_id: RAIL_UNDEFINED,
});
