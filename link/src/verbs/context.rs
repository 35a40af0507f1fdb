//! One open device, and how its ports are asked about themselves.
//!
//! Owns the `ibv_context`; everything made from it holds an `Arc` of it, so that it is closed last. Knows no link. Any thread: libibverbs
//! locks what it must.
#![allow(unsafe_code, reason = "calls into libibverbs with the pointers it handed out")]

use std::ffi::{CStr, c_int};
use std::fmt;
use std::fs;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::load::Verbs;
use super::port::{Gid, GidEntry, GidKind, Port, PortState};
use super::sys;

/// An open device.
pub(super) struct Context {
    pub(super) verbs: &'static Verbs,
    pub(super) name: String,
    pub(super) ptr: NonNull<sys::Context>,
    pub(super) attr: sys::DeviceAttr,
}

// SAFETY: libibverbs contexts may be used from any thread, several at once; the rest is plain data.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The device that could not be opened, and why.
pub(super) type OpenError = (String, io::Error);

impl Context {
    /// Opens all devices of this host. An empty list if there are none; `Err` only if a device is there and cannot be opened.
    pub(super) fn open_all(verbs: &'static Verbs) -> Result<Vec<Arc<Self>>, OpenError> {
        let mut count: c_int = 0;
        // SAFETY: writes one int that lives here; returns null or a list of `count` devices.
        let list = unsafe { (verbs.get_device_list)(&raw mut count) };
        if list.is_null() {
            return Ok(Vec::new());
        }
        let mut opened = Vec::new();
        let mut failed = None;
        for k in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: k is below the list's length.
            match Self::open(verbs, unsafe { *list.add(k) }) {
                Ok(context) => opened.push(Arc::new(context)),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        // SAFETY: the list came from get_device_list and is not used any more; open contexts keep their devices.
        unsafe { (verbs.free_device_list)(list) };
        match failed {
            Some(e) if opened.is_empty() => Err(e),
            _ => Ok(opened),
        }
    }

    fn open(verbs: &'static Verbs, device: *mut sys::Device) -> Result<Self, OpenError> {
        // SAFETY: `device` is in the live list; the name is a C string inside it and is copied.
        let name = unsafe { CStr::from_ptr((verbs.get_device_name)(device)) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        let Some(ptr) = NonNull::new(unsafe { (verbs.open_device)(device) }) else {
            return Err((name, io::Error::last_os_error()));
        };
        // SAFETY: the structure is integers only, for which all-zero is a value.
        let attr: sys::DeviceAttr = unsafe { std::mem::zeroed() };
        let mut context = Self { verbs, name, ptr, attr };
        // SAFETY: an open context and a structure of the size that this version of the call fills.
        match unsafe { (verbs.query_device)(ptr.as_ptr(), &raw mut context.attr) } {
            0 => Ok(context),
            errno => Err((context.name.clone(), io::Error::from_raw_os_error(errno))),
        }
    }

    /// The inlined calls of this device.
    pub(super) fn ops(&self) -> sys::ContextOps {
        // SAFETY: the context is open until self is dropped, and its table of calls never changes.
        unsafe { (*self.ptr.as_ptr()).ops }
    }

    /// All ports as they are now. Some milliseconds on devices with long GID tables.
    pub(super) fn ports(&self) -> io::Result<Vec<Port>> {
        (1..=self.attr.phys_port_cnt).map(|port| self.port(port)).collect()
    }

    fn port_attr(&self, port: u8) -> io::Result<sys::PortAttr> {
        let mut attr = sys::PortAttr::default();
        // SAFETY: an open context and a zeroed structure at least as long as what any version of the call fills.
        match unsafe { (self.verbs.query_port)(self.ptr.as_ptr(), port, &raw mut attr) } {
            0 => Ok(attr),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// A port's state now. One call, without its table of GIDs.
    pub(super) fn state(&self, port: u8) -> io::Result<PortState> {
        Ok(state_of(&self.port_attr(port)?))
    }

    /// One port as it is now.
    pub(super) fn port(&self, port: u8) -> io::Result<Port> {
        let attr = self.port_attr(port)?;
        // An index has 8 bits in an address vector.
        let len = u8::try_from(attr.gid_tbl_len.clamp(0, 255)).unwrap_or(u8::MAX);
        let (mut gids, mut v1) = (Vec::new(), Vec::new());
        for (entry, kind) in (0..len).filter_map(|index| self.entry(port, index)) {
            match kind {
                GidKind::RoceV2 => gids.push(entry),
                GidKind::Other => v1.extend(entry.gid.address()),
            }
        }
        Ok(Port {
            device: self.name.clone(),
            port,
            state: state_of(&attr),
            mtu: mtu_bytes(attr.active_mtu),
            speed_mbps: speed_mbps(attr.active_speed, attr.active_width),
            max_message: attr.max_msg_sz,
            gids,
            v1,
        })
    }

    /// The entry at that index, if there is one.
    pub(super) fn entry(&self, port: u8, index: u8) -> Option<(GidEntry, GidKind)> {
        if let Some(query) = self.verbs.query_gid_ex {
            let mut entry = sys::GidEntry::default();
            let (port, at, size) = (port.into(), index.into(), size_of::<sys::GidEntry>());
            // SAFETY: an open context, and an entry of the size given.
            let found = unsafe { query(self.ptr.as_ptr(), port, at, &raw mut entry, 0, size) } == 0;
            let gid = Gid(entry.gid.0);
            let kind = if entry.gid_type == sys::GID_ROCE_V2 { GidKind::RoceV2 } else { GidKind::Other };
            let there = found && !gid.is_empty();
            return there.then(|| (GidEntry { index, gid, netdev: interface_name(entry.ndev_ifindex) }, kind));
        }
        let mut gid = sys::Gid64::default();
        // SAFETY: an open context, and a GID that lives during the call.
        let found = unsafe { (self.verbs.query_gid)(self.ptr.as_ptr(), port, index.into(), &raw mut gid) } == 0;
        let gid = Gid(gid.0);
        if !found || gid.is_empty() {
            return None;
        }
        let read = |what: &str| {
            let path = format!("/sys/class/infiniband/{}/ports/{port}/gid_attrs/{what}/{index}", self.name);
            fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        let kind = if read("types")? == "RoCE v2" { GidKind::RoceV2 } else { GidKind::Other };
        Some((GidEntry { index, gid, netdev: read("ndevs") }, kind))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened in `open`, and everything made from it held an Arc of it and is gone. A failure leaks, which is safe.
        unsafe { (self.verbs.close_device)(self.ptr.as_ptr()) };
    }
}

fn state_of(attr: &sys::PortAttr) -> PortState {
    match attr.state {
        sys::PORT_DOWN => PortState::Down,
        sys::PORT_INIT | sys::PORT_ARMED => PortState::Starting,
        sys::PORT_ACTIVE => PortState::Active,
        other => PortState::Other(other),
    }
}

fn interface_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the length that the call asks for.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    // SAFETY: on success the buffer holds a C string.
    (!found.is_null()).then(|| unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// Bytes of `enum ibv_mtu`.
pub(super) const fn mtu_bytes(code: u32) -> u32 {
    if code >= 1 && code <= 5 { 128 << code } else { 0 }
}

/// `enum ibv_mtu` of that many bytes, rounded down.
pub(super) const fn mtu_code(bytes: u32) -> u32 {
    match bytes {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

/// Rate of a port: lane rate times lanes. Rates are net of line coding, as their names are.
const fn speed_mbps(speed: u8, width: u8) -> u32 {
    let lane = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    lane * lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_follow_their_codes() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!((mtu_bytes(code), mtu_code(bytes), mtu_code(bytes - 1)), (bytes, code, (code - 1).max(1)));
        }
        assert_eq!((mtu_bytes(0), mtu_bytes(6), mtu_code(9000)), (0, 0, 5));
        assert_eq!((speed_mbps(32, 2), speed_mbps(128, 2), speed_mbps(0, 2)), (100_000, 400_000, 0));
    }
}
