//! Names of ports: GID tables, partition keys, GUIDs. A port has four entries: its link-local and its IPv4 GID, each as RoCE v1
//! and RoCE v2, unless the fabric file takes some away; the rest of the table is empty. The IPv4 GID moves while programs run, as
//! real ones do whenever addresses change.

use std::ffi::{c_int, c_uint};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use super::devices::{ContextObject, object};
use super::minus_one;
use crate::abi::{self, Context, Gid, GidEntry};
use crate::engine::carrier;
use crate::plan::{Gids, Plan, PortPlan};
use crate::shared::layout::USUAL_GID;

/// Entries of a GID table.
pub const TABLE: u32 = 16;
/// The partition every port is a full member of.
const PARTITION: u16 = 0xffff;
/// What the private `ibv_query_gid_type` answers: for RoCE v1 (or InfiniBand), and for RoCE v2.
const PRIVATE_TYPES: [c_uint; 2] = [0, 1];

/// A port's GUID, network byte order.
pub(super) fn guid(port: &PortPlan) -> u64 {
    u64::from_ne_bytes(interface_id(port.address))
}

fn interface_id(address: Ipv4Addr) -> [u8; 8] {
    let [a, b, c, d] = address.octets();
    [0x02, a, b, 0xff, 0xfe, c, d, 0x01]
}

fn mapped(address: Ipv4Addr) -> Gid {
    Gid { raw: address.to_ipv6_mapped().octets() }
}

fn link_local(address: Ipv4Addr) -> Gid {
    let mut raw = [0; 16];
    raw[..2].copy_from_slice(&[0xfe, 0x80]);
    raw[8..].copy_from_slice(&interface_id(address));
    Gid { raw }
}

/// GID and type (`IBV_GID_TYPE_ROCE_*`) of a table entry, with the IPv4 GID at `place` and the next; `None` if it is empty.
fn entry(port: &PortPlan, place: u32, index: u32) -> Option<(Gid, u32)> {
    let v1 = index.is_multiple_of(2);
    let kind = if v1 { abi::IBV_GID_TYPE_ROCE_V1 } else { abi::IBV_GID_TYPE_ROCE_V2 };
    let link_local_place = if place == 0 { USUAL_GID } else { 0 };
    let gid = match index - index % 2 {
        at if at == place && port.gids != Gids::LinkLocal => mapped(port.address),
        at if at == link_local_place => link_local(port.address),
        _ => return None,
    };
    let there = match port.gids {
        Gids::All | Gids::LinkLocal => true,
        Gids::V1 => v1,
        Gids::None => false,
    };
    there.then_some((gid, kind))
}

/// The entry of an open device's table, as it is now.
pub(super) fn entry_at(object: &ContextObject, index: u32) -> Option<(Gid, u32)> {
    let place = object.fabric.shared.tables().ports[object.port].gid.load(Ordering::Acquire);
    entry(&object.fabric.plan.ports[object.port], place, index)
}

/// Whether a GID is made of an IPv4 address.
pub(super) fn is_mapped(gid: &Gid) -> bool {
    std::net::Ipv6Addr::from(gid.raw).to_ipv4_mapped().is_some()
}

/// The port of the fabric that has this GID.
pub(super) fn find(plan: &Plan, gid: &Gid) -> Option<usize> {
    plan.ports.iter().position(|port| {
        let has_address = matches!(port.gids, Gids::All | Gids::V1);
        (has_address && mapped(port.address) == *gid) || (port.gids != Gids::None && link_local(port.address) == *gid)
    })
}

/// The table's entries of an open device.
///
/// # Safety
/// `context` is open.
unsafe fn entry_of(context: *mut Context, index: u32) -> Option<GidEntry> {
    // SAFETY: promised by the caller.
    let object = unsafe { object(context) };
    let (gid, gid_type) = entry_at(object, index)?;
    let netdev = object.fabric.plan.ports[object.port].netdev.as_deref();
    Some(GidEntry { gid, gid_index: index, port_num: 1, gid_type, ndev_ifindex: netdev.map_or(0, carrier::index) })
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_query_gid(context: *mut Context, port: u8, index: c_int, gid: *mut Gid) -> c_int {
    let Some(index) = u32::try_from(index).ok().filter(|&index| port == 1 && index < TABLE) else {
        return minus_one(libc::EINVAL);
    };
    // SAFETY: an open context; `gid` is the caller's to fill. Empty entries read as zeros.
    unsafe { gid.write(entry_of(context, index).map_or_else(Gid::default, |entry| entry.gid)) };
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut Context,
    port: u32,
    index: u32,
    to: *mut GidEntry,
    flags: u32,
    size: usize,
) -> c_int {
    if port != 1 || index >= TABLE || flags != 0 || size < size_of::<GidEntry>() {
        return libc::EINVAL;
    }
    // SAFETY: an open context.
    let Some(found) = (unsafe { entry_of(context, index) }) else { return libc::ENODATA };
    // SAFETY: `to` has `size` bytes, which is enough.
    unsafe { to.write(found) };
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut Context,
    entries: *mut GidEntry,
    most: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 || size < size_of::<GidEntry>() {
        return -(libc::EINVAL as isize);
    }
    let mut count = 0;
    for index in 0..TABLE {
        // SAFETY: an open context.
        let Some(found) = (unsafe { entry_of(context, index) }) else { continue };
        if count == most {
            return -(libc::EINVAL as isize);
        }
        // SAFETY: below `most` entries of `size` bytes each.
        unsafe { entries.byte_add(count * size).write(found) };
        count += 1;
    }
    count as isize
}

/// Serves the private symbol `ibv_query_gid_type`.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn soft_verbs_query_gid_type(
    context: *mut Context,
    port: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    if port != 1 || index >= TABLE {
        return minus_one(libc::EINVAL);
    }
    // SAFETY: an open context; `kind` is the caller's to fill.
    unsafe {
        let v2 = entry_of(context, index).is_some_and(|entry| entry.gid_type == abi::IBV_GID_TYPE_ROCE_V2);
        kind.write(PRIVATE_TYPES[usize::from(v2)]);
    }
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_query_pkey(_context: *mut Context, port: u8, index: c_int, pkey: *mut u16) -> c_int {
    if port != 1 || index != 0 {
        return minus_one(libc::EINVAL);
    }
    // SAFETY: `pkey` is the caller's to fill.
    unsafe { pkey.write(PARTITION.to_be()) };
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_get_pkey_index(_context: *mut Context, port: u8, pkey: u16) -> c_int {
    if port == 1 && pkey == PARTITION.to_be() { 0 } else { minus_one(libc::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::layout::NO_GID;

    #[test]
    fn tables_are_as_the_fabric_file_and_the_control_say() {
        // given a port whose GIDs are cut down in each way, at its usual place and moved
        let plan = Plan::parse("port a m0 10.0.0.1 100G").expect("well formed");
        for (gids, place, filled) in [
            (Gids::All, 2, &[0, 1, 2, 3][..]),
            (Gids::LinkLocal, 2, &[0, 1]),
            (Gids::V1, 2, &[0, 2]),
            (Gids::None, 2, &[]),
            (Gids::All, 6, &[0, 1, 6, 7]),
            (Gids::All, 0, &[0, 1, 2, 3]),
            (Gids::All, NO_GID, &[0, 1]),
        ] {
            let port = PortPlan { gids, ..plan.ports[0].clone() };
            // then its table has these entries, and the IPv4 GID is where it was put
            let found: Vec<u32> = (0..TABLE).filter(|&index| entry(&port, place, index).is_some()).collect();
            assert_eq!(found, filled, "{gids:?} at {place}");
            let of_address =
                (0..TABLE).find(|&index| entry(&port, place, index).is_some_and(|(gid, _)| is_mapped(&gid)));
            assert_eq!(of_address.unwrap_or(place), place, "{gids:?}");
        }
    }
}
