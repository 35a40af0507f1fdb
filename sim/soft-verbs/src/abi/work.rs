//! Work requests, completions and the attributes of queue pairs.

use std::ffi::{c_int, c_void};

use super::layout;
use super::objects::{Cq, Gid, Pd};

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}
layout!(Sge, 16, lkey = 12);

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Debug)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}
layout!(RecvWr, 32, num_sge = 24);

/// `struct ibv_send_wr`. The union `wr` is laid out as its widest member, the atomic one; for writes and reads the key lies in
/// the low half of `compare_add`.
#[repr(C)]
#[derive(Debug)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    /// Network byte order.
    pub imm_data: u32,
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub atomic_rkey: u32,
    pub rest: [u64; 7],
}
layout!(SendWr, 128, opcode = 28, imm_data = 36, remote_addr = 40, compare_add = 48, atomic_rkey = 64);

impl SendWr {
    /// The key of a write or read: the word behind `remote_addr`.
    pub fn rdma_rkey(&self) -> u32 {
        let bytes = self.compare_add.to_ne_bytes();
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Sets the key of a write or read.
    pub fn set_rdma_rkey(&mut self, rkey: u32) {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&rkey.to_ne_bytes());
        self.compare_add = u64::from_ne_bytes(bytes);
    }
}

impl Default for SendWr {
    fn default() -> Self {
        Self {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            imm_data: 0,
            remote_addr: 0,
            compare_add: 0,
            swap: 0,
            atomic_rkey: 0,
            rest: [0; 7],
        }
    }
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Network byte order.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}
layout!(Wc, 48, status = 8, byte_len = 20, imm_data = 24, qp_num = 28, wc_flags = 36, sl = 44);

/// `struct ibv_global_route`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct GlobalRoute {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}
layout!(AhAttr, 32, dlid = 24, is_global = 29, port_num = 30);

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
}
layout!(QpInitAttr, 64, cap = 32, qp_type = 52, sq_sig_all = 56);

/// `struct ibv_qp_init_attr_ex`. Its first part is not [`QpInitAttr`] as a member: the C compiler puts `comp_mask` into what
/// would be that struct's padding.
#[repr(C)]
#[derive(Debug)]
pub struct QpInitAttrEx {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub qp_type: u32,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut Pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}
layout!(QpInitAttrEx, 136, comp_mask = 60, pd = 64, send_ops_flags = 128);

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}
layout!(QpAttr, 144, cap = 36, ah_attr = 56, pkey_index = 120, timeout = 130, rate_limit = 136);
