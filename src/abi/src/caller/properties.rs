//! A device's properties, owned, in the shape of version 12.
//!
//! For: `Plugin::properties`. Must not know: who fills them. Threads: plain data.

use core::ffi::{CStr, c_char, c_int};
use core::mem::MaybeUninit;

use super::Plugin;
use super::error::{CallError, Result, check};
use super::normal::GetProperties;
use crate::*;

/// Byte with which the structure is filled before the call, to find fields that a plugin forgets.
const POISON: u8 = 0xA5;

/// What a device says about itself. Fields that a version lacks hold what NCCL's adapters put there.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    /// Name of the device.
    pub name: String,
    /// Path in sysfs, if it has one.
    pub pci_path: Option<String>,
    /// Number shared by the ports of one adapter.
    pub guid: u64,
    /// Bits `PTR_*`.
    pub ptr_support: i32,
    /// Whether a registration serves every connection.
    pub reg_is_global: bool,
    /// Whether received GPU data always needs a flush.
    pub force_flush: bool,
    /// Mbit/s.
    pub speed: i32,
    /// Port number.
    pub port: i32,
    /// Microseconds.
    pub latency: f32,
    /// Connections at most.
    pub max_comms: i32,
    /// Receives in one group at most.
    pub max_recvs: i32,
    /// Kind of device, `NET_DEVICE_HOST` for most.
    pub net_device_type: i32,
    /// Version of the kind.
    pub net_device_version: i32,
    /// Numbers of the physical devices.
    pub devices: Vec<i32>,
    /// Bytes.
    pub max_p2p_bytes: usize,
    /// Bytes.
    pub max_coll_bytes: usize,
    /// Requests in one multi-request at most.
    pub max_multi_request_size: i32,
    /// Rail, −1 if unknown.
    pub rail_id: i16,
    /// Plane, −1 if unknown.
    pub plane_id: i16,
}

impl Plugin {
    /// `getProperties` on poisoned memory; NCCL calls it from several threads.
    ///
    /// # Errors
    /// [`CallError`]; `Unwritten` if a field was forgotten.
    pub fn properties(&self, dev: i32) -> Result<Properties> {
        match self.calls.get_properties {
            GetProperties::V6(f) => v6(filled(f, dev)?, dev),
            GetProperties::V7(f) => v7(filled(f, dev)?, dev),
            GetProperties::V8(f) => v8(filled(f, dev)?, dev),
            GetProperties::V9(f) => v9(filled(f, dev)?),
            GetProperties::V11(f) => v11(filled(f, dev)?),
            GetProperties::V12(f) => v12(filled(f, dev)?),
        }
    }
}

fn filled<P: Copy>(get: GetPropertiesFn<P>, dev: i32) -> Result<P> {
    let mut space = MaybeUninit::<P>::uninit();
    // SAFETY: writes the bytes of `space`; every bit pattern of the properties structures is a value.
    unsafe { space.as_mut_ptr().cast::<u8>().write_bytes(POISON, size_of::<P>()) };
    // SAFETY: the plugin gets a structure of the version's layout.
    check("getProperties", unsafe { get(dev, space.as_mut_ptr()) })?;
    // SAFETY: all bytes were written above.
    Ok(unsafe { space.assume_init() })
}

/// The value of an `int` field, unless it is still the poison.
fn int(what: &'static str, value: c_int) -> Result<i32> {
    if value == c_int::from_ne_bytes([POISON; 4]) { Err(unwritten(what)) } else { Ok(value) }
}

fn flag(what: &'static str, value: c_int) -> Result<bool> {
    int(what, value).map(|v| v != 0)
}

fn unwritten(what: &'static str) -> CallError {
    CallError::Unwritten { call: "getProperties", what }
}

fn text(what: &'static str, p: *const c_char) -> Result<Option<String>> {
    if p.addr() == usize::from_ne_bytes([POISON; size_of::<usize>()]) {
        return Err(unwritten(what));
    }
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: a plugin's strings are C strings that live as long as the plugin.
    Ok(Some(unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()))
}

fn bytes(what: &'static str, value: usize) -> Result<usize> {
    if value == usize::from_ne_bytes([POISON; size_of::<usize>()]) { Err(unwritten(what)) } else { Ok(value) }
}

fn devices(ndevs: c_int, devs: &[c_int]) -> Result<Vec<i32>> {
    let count = usize::try_from(int("vProps.ndevs", ndevs)?).unwrap_or(0).min(devs.len());
    devs[..count].iter().map(|d| int("vProps.devs", *d)).collect()
}

/// Fills what all versions have from `$p`, and the rest as given.
macro_rules! common {
    ($p:ident, { $($field:ident: $value:expr),* $(,)? }) => {
        Ok(Properties {
            name: text("name", $p.name)?.ok_or(unwritten("name"))?,
            pci_path: text("pciPath", $p.pci_path)?,
            guid: if $p.guid == u64::from_ne_bytes([POISON; 8]) { return Err(unwritten("guid")) } else { $p.guid },
            ptr_support: int("ptrSupport", $p.ptr_support)?,
            speed: int("speed", $p.speed)?,
            port: int("port", $p.port)?,
            latency: if $p.latency.to_ne_bytes() == [POISON; 4] { return Err(unwritten("latency")) } else { $p.latency },
            max_comms: int("maxComms", $p.max_comms)?,
            max_recvs: int("maxRecvs", $p.max_recvs)?,
            $($field: $value,)*
        })
    };
}

/// As `common`, with what v9 and later have.
macro_rules! since_v9 {
    ($p:ident, { $($field:ident: $value:expr),* $(,)? }) => {
        common!($p, {
            reg_is_global: flag("regIsGlobal", $p.reg_is_global)?,
            force_flush: flag("forceFlush", $p.force_flush)?,
            net_device_type: int("netDeviceType", $p.net_device_type)?,
            net_device_version: int("netDeviceVersion", $p.net_device_version)?,
            devices: devices($p.vprops.ndevs, &$p.vprops.devs)?,
            max_p2p_bytes: bytes("maxP2pBytes", $p.max_p2p_bytes)?,
            max_coll_bytes: bytes("maxCollBytes", $p.max_coll_bytes)?,
            $($field: $value,)*
        })
    };
}

/// As `common`, with what NCCL's adapters assume for plugins older than v9.
macro_rules! before_v9 {
    ($p:ident, $dev:ident, { $($field:ident: $value:expr),* $(,)? }) => {
        common!($p, {
            force_flush: false,
            devices: vec![$dev],
            max_p2p_bytes: MAX_NET_SIZE,
            max_coll_bytes: MAX_COLLNET_SIZE,
            max_multi_request_size: 1,
            rail_id: RAIL_UNDEFINED,
            plane_id: RAIL_UNDEFINED,
            $($field: $value,)*
        })
    };
}

fn v6(p: PropertiesV6, dev: i32) -> Result<Properties> {
    before_v9!(p, dev, { reg_is_global: false, net_device_type: NET_DEVICE_HOST, net_device_version: 0 })
}

fn v7(p: PropertiesV7, dev: i32) -> Result<Properties> {
    before_v9!(p, dev, {
        reg_is_global: false,
        net_device_type: int("netDeviceType", p.net_device_type)?,
        net_device_version: int("netDeviceVersion", p.net_device_version)?,
    })
}

fn v8(p: PropertiesV8, dev: i32) -> Result<Properties> {
    before_v9!(p, dev, {
        reg_is_global: flag("regIsGlobal", p.reg_is_global)?,
        net_device_type: int("netDeviceType", p.net_device_type)?,
        net_device_version: int("netDeviceVersion", p.net_device_version)?,
    })
}

fn v9(p: PropertiesV9) -> Result<Properties> {
    since_v9!(p, { max_multi_request_size: 1, rail_id: RAIL_UNDEFINED, plane_id: RAIL_UNDEFINED })
}

fn v11(p: PropertiesV11) -> Result<Properties> {
    since_v9!(p, {
        max_multi_request_size: int("maxMultiRequestSize", p.max_multi_request_size)?,
        rail_id: RAIL_UNDEFINED,
        plane_id: RAIL_UNDEFINED,
    })
}

fn v12(p: PropertiesV12) -> Result<Properties> {
    let short = |what, value: i16| {
        if value == i16::from_ne_bytes([POISON; 2]) { Err(unwritten(what)) } else { Ok(value) }
    };
    since_v9!(p, {
        max_multi_request_size: int("maxMultiRequestSize", p.max_multi_request_size)?,
        rail_id: short("railId", p.rail_id)?,
        plane_id: short("planeId", p.plane_id)?,
    })
}
