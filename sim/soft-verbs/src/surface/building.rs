//! The newer way to post: `wr_start`, one call per request and its data, `wr_complete`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::is_forked;
use super::pairs::{QpObject, qp_object};
use super::posting::Parts;
use crate::abi::{DataBuf, Qp, QpEx, Sge};
use crate::engine::request::{Operation, Payload, Request};

/// Requests under construction.
#[derive(Debug, Default)]
pub(super) struct Building {
    drafts: Vec<Draft>,
    fault: c_int,
}

#[derive(Debug)]
struct Draft {
    wr_id: u64,
    flags: u32,
    operation: Operation,
    remote: u64,
    rkey: u32,
    imm: u32,
    compare: u64,
    swap: u64,
    payload: Payload,
}

/// An extended queue pair around the plain one.
pub(super) fn extended(base: Qp) -> QpEx {
    QpEx {
        base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(wr_atomic_cmp_swp),
        wr_atomic_fetch_add: Some(wr_atomic_fetch_add),
        wr_bind_mw: None,
        wr_local_inv: None,
        wr_rdma_read: Some(wr_rdma_read),
        wr_rdma_write: Some(wr_rdma_write),
        wr_rdma_write_imm: Some(wr_rdma_write_imm),
        wr_send: Some(wr_send),
        wr_send_imm: Some(wr_send_imm),
        wr_send_inv: None,
        wr_send_tso: None,
        wr_set_ud_addr: None,
        wr_set_xrc_srqn: None,
        wr_set_inline_data: Some(wr_set_inline_data),
        wr_set_inline_data_list: Some(wr_set_inline_data_list),
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: Some(wr_set_sge_list),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
        wr_atomic_write: None,
    }
}

/// Runs `work` on what is under construction.
///
/// # Safety
/// `qp` is live, and the calling thread is between `wr_start` and `wr_complete` of it.
unsafe fn with<T>(qp: *mut QpEx, work: impl FnOnce(&QpObject, &mut Building) -> T) -> T {
    // SAFETY: a live queue pair.
    let made = unsafe { qp_object(qp.cast()) };
    // SAFETY: `wr_start` gave the calling thread sole use until `wr_complete` or `wr_abort`.
    work(made, unsafe { &mut *made.building.get() })
}

/// # Safety
/// As [`with`].
unsafe fn draft(qp: *mut QpEx, operation: Operation, remote: u64, rkey: u32) {
    // SAFETY: the program set both fields on this thread before the call.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let payload = Payload::Scattered(Vec::new());
    let draft = Draft { wr_id, flags, operation, remote, rkey, imm: 0, compare: 0, swap: 0, payload };
    // SAFETY: promised by the caller.
    unsafe { with(qp, |_, building| building.drafts.push(draft)) };
}

/// # Safety
/// As [`with`].
unsafe fn last(qp: *mut QpEx, change: impl FnOnce(&mut Draft)) {
    // SAFETY: promised by the caller.
    unsafe {
        with(qp, |_, building| match building.drafts.last_mut() {
            Some(draft) => change(draft),
            None => building.fault = libc::EINVAL,
        });
    }
}

unsafe extern "C" fn wr_rdma_write(qp: *mut QpEx, rkey: u32, remote: u64) {
    // SAFETY: called between start and completion, as all below.
    unsafe { draft(qp, Operation::Write, remote, rkey) };
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut QpEx, rkey: u32, remote: u64, imm: u32) {
    // SAFETY: as above.
    unsafe {
        draft(qp, Operation::WriteImm, remote, rkey);
        last(qp, |draft| draft.imm = imm);
    }
}

unsafe extern "C" fn wr_rdma_read(qp: *mut QpEx, rkey: u32, remote: u64) {
    // SAFETY: as above.
    unsafe { draft(qp, Operation::Read, remote, rkey) };
}

unsafe extern "C" fn wr_send(qp: *mut QpEx) {
    // SAFETY: as above.
    unsafe { draft(qp, Operation::Send, 0, 0) };
}

unsafe extern "C" fn wr_send_imm(qp: *mut QpEx, imm: u32) {
    // SAFETY: as above.
    unsafe {
        draft(qp, Operation::SendImm, 0, 0);
        last(qp, |draft| draft.imm = imm);
    }
}

unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut QpEx, rkey: u32, remote: u64, compare: u64, swap: u64) {
    // SAFETY: as above.
    unsafe {
        draft(qp, Operation::CompareSwap, remote, rkey);
        last(qp, |draft| (draft.compare, draft.swap) = (compare, swap));
    }
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut QpEx, rkey: u32, remote: u64, add: u64) {
    // SAFETY: as above.
    unsafe {
        draft(qp, Operation::FetchAdd, remote, rkey);
        last(qp, |draft| draft.compare = add);
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut QpEx, lkey: u32, addr: u64, length: u32) {
    // SAFETY: as above.
    unsafe { last(qp, |draft| draft.payload = Payload::Scattered(vec![Sge { addr, length, lkey }])) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut QpEx, count: usize, list: *const Sge) {
    // SAFETY: the program's list of `count` entries.
    let sges = if count == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(list, count) }.to_vec() };
    // SAFETY: as above.
    unsafe { last(qp, |draft| draft.payload = Payload::Scattered(sges)) };
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut QpEx, addr: *mut c_void, length: usize) {
    let one = DataBuf { addr, length };
    // SAFETY: as above; the list is of one.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const one) };
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut QpEx, count: usize, list: *const DataBuf) {
    let mut bytes = Vec::new();
    for at in 0..count {
        // SAFETY: the program's list of `count` entries, each of readable memory.
        unsafe {
            let one = *list.add(at);
            if one.length > 0 {
                bytes.extend_from_slice(std::slice::from_raw_parts(one.addr.cast::<u8>(), one.length));
            }
        }
    }
    // SAFETY: as above.
    unsafe { last(qp, |draft| draft.payload = Payload::Inline(bytes.into_boxed_slice())) };
}

unsafe extern "C" fn wr_start(qp: *mut QpEx) {
    // SAFETY: a live queue pair.
    let made = unsafe { qp_object(qp.cast()) };
    // Real devices hold a lock from here to the completion call.
    while made.busy.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    // SAFETY: the flag just set gives sole use.
    unsafe { *made.building.get() = Building::default() };
}

unsafe extern "C" fn wr_complete(qp: *mut QpEx) -> c_int {
    // SAFETY: as above.
    let built = unsafe { with(qp, |made, building| build(made, std::mem::take(building))) };
    // SAFETY: a live queue pair.
    let made = unsafe { qp_object(qp.cast()) };
    let result = built.and_then(|requests| made.pair.post(requests.into_iter()));
    made.busy.store(false, Ordering::Release);
    result.err().unwrap_or(0)
}

/// All requests, or the first fault: then none is posted.
fn build(made: &QpObject, building: Building) -> Result<Vec<Request>, c_int> {
    if building.fault != 0 {
        return Err(building.fault);
    }
    if is_forked() {
        return Err(libc::EPERM);
    }
    let build_one = |draft: Draft| {
        let Draft { wr_id, flags, operation, remote, rkey, .. } = draft;
        let mut request = Parts { wr_id, flags, operation, remote, rkey }.request(made, draft.payload)?;
        (request.imm, request.compare, request.swap) = (draft.imm, draft.compare, draft.swap);
        Ok(request)
    };
    building.drafts.into_iter().map(build_one).collect()
}

unsafe extern "C" fn wr_abort(qp: *mut QpEx) {
    // SAFETY: a live queue pair.
    let made = unsafe { qp_object(qp.cast()) };
    made.busy.store(false, Ordering::Release);
}
