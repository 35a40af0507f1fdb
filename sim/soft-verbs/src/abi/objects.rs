//! Objects that programs hold pointers to: devices, contexts, domains, regions, queues and queue pairs.

use std::ffi::{c_char, c_int, c_void};

use super::layout;
use super::work::{RecvWr, SendWr, Sge, Wc};

/// `union ibv_gid`: 16 bytes in network order, aligned as the C union is.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gid {
    pub raw: [u8; 16],
}

/// `struct ibv_device`, and behind it room that vendor libraries read to tell whether a device is theirs.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    pub ops: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
    /// Vendor libraries take the device for the head of their own struct and compare what follows with their own pointers.
    pub behind: [u64; 16],
}
layout!(Device, 664 + 128, name = 24, dev_name = 88, dev_path = 152, ibdev_path = 408, behind = 664);

/// A function pointer of a kind that is never called as such.
pub type Unused = Option<unsafe extern "C" fn() -> *mut c_void>;
/// `poll_cq` of a context's operations.
pub type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
/// `post_send` of a context's operations.
pub type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
/// `post_recv` of a context's operations.
pub type PostRecv = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// `struct ibv_context_ops`.
#[repr(C)]
#[derive(Debug)]
pub struct ContextOps {
    pub before_mw: [Unused; 7],
    pub alloc_mw: Option<unsafe extern "C" fn(*mut Pd, u32) -> *mut c_void>,
    pub bind_mw: Option<unsafe extern "C" fn(*mut Qp, *mut c_void, *mut c_void) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub create_cq: Unused,
    pub poll_cq: Option<PollCq>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    pub before_srq: [Unused; 7],
    pub post_srq_recv: Option<unsafe extern "C" fn(*mut c_void, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub before_post: [Unused; 4],
    pub post_send: Option<PostSend>,
    pub post_recv: Option<PostRecv>,
    pub after_post: [Unused; 5],
}
layout!(ContextOps, 256, poll_cq = 88, req_notify_cq = 96, post_srq_recv = 160, post_send = 200, post_recv = 208);

/// `struct ibv_context`.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut c_void,
}
layout!(Context, 328, ops = 8, cmd_fd = 264, async_fd = 268, abi_compat = 320);

/// `struct verbs_context`: inline functions of the headers find newer calls by walking backwards from the context.
#[repr(C)]
#[derive(Debug)]
pub struct ExtendedContext {
    pub query_port: Option<unsafe extern "C" fn(*mut Context, u8, *mut c_void, usize) -> c_int>,
    /// Null: the inline functions then answer "not supported".
    pub before_create_cq_ex: [Unused; 24],
    pub create_cq_ex: Unused,
    pub private: *mut c_void,
    pub query_device_ex: Option<unsafe extern "C" fn(*mut Context, *const c_void, *mut c_void, usize) -> c_int>,
    pub flows: [Unused; 2],
    pub srq: [Unused; 1],
    pub tail: [Unused; 2],
    pub create_qp_ex: Option<unsafe extern "C" fn(*mut Context, *mut super::work::QpInitAttrEx) -> *mut Qp>,
    pub after_create_qp_ex: [Unused; 4],
    pub placeholder: u64,
    /// Bytes of this struct: how far back the inline functions may look.
    pub size: usize,
    pub context: Context,
}

/// `struct ibv_pd`.
#[repr(C)]
#[derive(Debug)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}
layout!(Pd, 16);

/// `struct ibv_mr`.
#[repr(C)]
#[derive(Debug)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}
layout!(Mr, 48, lkey = 36, rkey = 40);

/// `struct ibv_comp_channel`.
#[repr(C)]
#[derive(Debug)]
pub struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}
layout!(CompChannel, 16, fd = 8);

/// `struct ibv_cq`.
#[repr(C)]
#[derive(Debug)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}
layout!(Cq, 128, cqe = 28);

/// `struct ibv_qp`.
#[repr(C)]
#[derive(Debug)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
    pub state: u32,
    pub qp_type: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}
layout!(Qp, 160, qp_num = 52, state = 56, qp_type = 60);

/// `struct ibv_data_buf`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DataBuf {
    pub addr: *mut c_void,
    pub length: usize,
}

/// `struct ibv_qp_ex`: the queue pair with the calls that build requests one by one.
#[repr(C)]
#[derive(Debug)]
pub struct QpEx {
    pub base: Qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: u32,
    pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64)>,
    pub wr_bind_mw: Unused,
    pub wr_local_inv: Unused,
    pub wr_rdma_read: Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub wr_rdma_write: Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub wr_send: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_send_imm: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub wr_send_inv: Unused,
    pub wr_send_tso: Unused,
    pub wr_set_ud_addr: Unused,
    pub wr_set_xrc_srqn: Unused,
    pub wr_set_inline_data: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, usize)>,
    pub wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf)>,
    pub wr_set_sge: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub wr_set_sge_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const Sge)>,
    pub wr_start: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_complete: Option<unsafe extern "C" fn(*mut QpEx) -> c_int>,
    pub wr_abort: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_atomic_write: Unused,
}
layout!(QpEx, 352, wr_id = 168, wr_flags = 176, wr_rdma_write = 224, wr_set_inline_data = 288, wr_complete = 328);
layout!(ExtendedContext, 648, create_cq_ex = 200, query_device_ex = 216, create_qp_ex = 264, size = 312, context = 320);
