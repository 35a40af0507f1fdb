//! Attributes of devices and ports, GID entries, asynchronous events.

use std::ffi::{c_char, c_int};

use super::layout;
use super::objects::Gid;

/// `struct ibv_device_attr`. GUIDs in network byte order.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceAttr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: u32,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: u32,
    /// End-to-end contexts, windows, multicast groups, shared receive queues and other kinds of which there are none.
    pub none_of: [c_int; 14],
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}
layout!(DeviceAttr, 232, max_mr_size = 80, max_qp = 108, max_pkeys = 224, phys_port_cnt = 227);

/// `struct ibv_device_attr_ex` of rdma-core 44; what lies behind the plain attributes stays zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceAttrEx {
    pub orig_attr: DeviceAttr,
    pub comp_mask: u32,
    pub rest: [u32; 41],
}
layout!(DeviceAttrEx, 400, comp_mask = 232);

/// `struct ibv_port_attr` with the newest field at its end; older programs' structs are 52 or 48 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct PortAttr {
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
    pub active_speed_ex: u32,
}
layout!(PortAttr, 56, port_cap_flags = 16, lid = 34, active_width = 43, link_layer = 46, active_speed_ex = 52);

/// Bytes of the port attributes that the plain symbol `ibv_query_port` may write.
pub const OLD_PORT_ATTR_SIZE: usize = 48;

/// `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct GidEntry {
    pub gid: Gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}
layout!(GidEntry, 32, gid_type = 24);

/// `struct ibv_async_event`. The element is a pointer to a queue or queue pair, or a port number in its low half.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AsyncEvent {
    pub element: u64,
    pub event_type: u32,
}
layout!(AsyncEvent, 16, event_type = 8);
