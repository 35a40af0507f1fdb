//! Posting of sends and receives through the pointers in a context's operations.

use std::ffi::c_int;

use super::devices::MAX_MESSAGE;
use super::is_forked;
use super::pairs::{QpObject, qp_object};
use crate::abi::{self, Qp, RecvWr, SendWr, Sge};
use crate::engine::request::{Operation, Payload, Request};

/// Posts a chain of sends; at the first that cannot be posted, `bad` names it and the errno value is returned.
pub(super) unsafe extern "C" fn post_send(qp: *mut Qp, mut wr: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    if is_forked() {
        // SAFETY: `bad` is the caller's to fill.
        unsafe { bad.write(wr) };
        return libc::EPERM;
    }
    // SAFETY: a live queue pair.
    let made = unsafe { qp_object(qp) };
    while !wr.is_null() {
        // SAFETY: a chain of the caller's requests.
        let asked = unsafe { &*wr };
        // SAFETY: as above.
        let posted = unsafe { request(made, asked) }.and_then(|request| made.pair.post(std::iter::once(request)));
        if let Err(code) = posted {
            // SAFETY: `bad` is the caller's to fill.
            unsafe { bad.write(wr) };
            return code;
        }
        wr = asked.next;
    }
    0
}

/// # Safety
/// The scatter list is valid, and for inline requests what it names is readable.
unsafe fn request(made: &QpObject, asked: &SendWr) -> Result<Request, c_int> {
    let operation = Operation::from_code(asked.opcode).ok_or(libc::EINVAL)?;
    // SAFETY: promised by the caller.
    let sges = unsafe { scatter(asked.sg_list, asked.num_sge) }?;
    let inline = asked.send_flags & abi::IBV_SEND_INLINE != 0;
    let payload = if inline {
        // SAFETY: promised by the caller.
        Payload::Inline(unsafe { gather(sges) })
    } else {
        Payload::Scattered(sges.to_vec())
    };
    let atomic = matches!(operation, Operation::CompareSwap | Operation::FetchAdd);
    let rkey = if atomic { asked.atomic_rkey } else { asked.rdma_rkey() };
    let parts = Parts { wr_id: asked.wr_id, flags: asked.send_flags, operation, remote: asked.remote_addr, rkey };
    let mut request = parts.request(made, payload)?;
    request.imm = asked.imm_data;
    (request.compare, request.swap) = (asked.compare_add, asked.swap);
    Ok(request)
}

/// What all requests have.
pub(super) struct Parts {
    pub(super) wr_id: u64,
    pub(super) flags: u32,
    pub(super) operation: Operation,
    pub(super) remote: u64,
    pub(super) rkey: u32,
}

impl Parts {
    /// The request, checked against what the queue pair was made for.
    pub(super) fn request(&self, made: &QpObject, payload: Payload) -> Result<Request, c_int> {
        let limits = &made.pair.limits;
        let length = match &payload {
            Payload::Inline(bytes) if bytes.len() > limits.inline as usize || self.operation.fetches() => {
                return Err(libc::EINVAL);
            }
            Payload::Inline(bytes) => bytes.len() as u64,
            Payload::Scattered(sges) if sges.len() > limits.send_sges as usize => return Err(libc::EINVAL),
            Payload::Scattered(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        };
        let atomic = matches!(self.operation, Operation::CompareSwap | Operation::FetchAdd);
        if length > MAX_MESSAGE || (atomic && length != 8) {
            return Err(libc::EINVAL);
        }
        Ok(Request {
            wr_id: self.wr_id,
            operation: self.operation,
            signalled: made.signal_all || self.flags & abi::IBV_SEND_SIGNALED != 0,
            solicited: self.flags & abi::IBV_SEND_SOLICITED != 0,
            imm: 0,
            remote: self.remote,
            rkey: self.rkey,
            compare: 0,
            swap: 0,
            payload,
            length,
            posted: 0,
            arrives_at: 0,
            acknowledged_at: 0,
        })
    }
}

/// # Safety
/// `list` holds `count` entries.
unsafe fn scatter<'a>(list: *const Sge, count: c_int) -> Result<&'a [Sge], c_int> {
    let count = usize::try_from(count).map_err(|_| libc::EINVAL)?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

/// # Safety
/// The entries name readable memory.
unsafe fn gather(sges: &[Sge]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(sges.iter().map(|sge| sge.length as usize).sum());
    for sge in sges.iter().filter(|sge| sge.length > 0) {
        let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        // SAFETY: promised by the caller; inline data needs no registration.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(from, sge.length as usize) });
    }
    bytes.into_boxed_slice()
}

/// Posts a chain of receives, as [`post_send`].
pub(super) unsafe extern "C" fn post_recv(qp: *mut Qp, mut wr: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    // SAFETY: a live queue pair.
    let made = unsafe { qp_object(qp) };
    while !wr.is_null() {
        // SAFETY: a chain of the caller's requests.
        let asked = unsafe { &*wr };
        // SAFETY: as above.
        let posted = unsafe { scatter(asked.sg_list, asked.num_sge) }.and_then(|sges| {
            if sges.len() > made.pair.limits.recv_sges as usize || is_forked() {
                return Err(libc::EINVAL);
            }
            made.pair.post_receive(asked.wr_id, sges)
        });
        if let Err(code) = posted {
            // SAFETY: `bad` is the caller's to fill.
            unsafe { bad.write(wr) };
            return code;
        }
        wr = asked.next;
    }
    0
}
