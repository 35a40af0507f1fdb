//! A reliable-connected queue pair and its way through the states.
//!
//! Owns its completion queue and keeps its protection domain: a queue pair is destroyed before either. Used by one thread at a time.
#![allow(unsafe_code, reason = "calls into libibverbs with the pointers it handed out")]

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::mtu_code;
use super::cq::Cq;
use super::pd::Pd;
use super::port::Gid;
use super::sys;

pub(super) struct Qp {
    pub(super) cq: Cq,
    pd: Arc<Pd>,
    ptr: NonNull<sys::Qp>,
    post_send: sys::PostSend,
    post_recv: sys::PostRecv,
    /// 24 bits.
    pub(super) number: u32,
    /// Bytes that one request may carry inline.
    pub(super) inline: u32,
}

// SAFETY: the queue pair is used through `&mut self` only, from whichever thread owns it.
unsafe impl Send for Qp {}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({:#08x} on {})", self.number, self.pd.context.name)
    }
}

/// Depths of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    pub(super) sends: u32,
    pub(super) receives: u32,
    pub(super) inline: u32,
}

/// What a queue pair must know to receive from and send to its peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) port: u8,
    pub(super) gid_index: u8,
    pub(super) remote_gid: Gid,
    pub(super) remote_qpn: u32,
    pub(super) mtu: u32,
    pub(super) local_psn: u32,
    pub(super) remote_psn: u32,
    pub(super) timeout: u8,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
    pub(super) traffic_class: u8,
    pub(super) service_level: u8,
}

/// 10 µs, the shortest but "655 ms": no receive is ever missing, so this is never waited for.
const MIN_RNR_TIMER: u8 = 1;

impl Qp {
    pub(super) fn new(pd: Arc<Pd>, cq: Cq, depths: Depths) -> io::Result<Self> {
        let ops = pd.context.ops();
        let (Some(post_send), Some(post_recv)) = (ops.post_send, ops.post_recv) else {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        };
        let create = |inline| {
            let mut attr = sys::QpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: cq.ptr.as_ptr(),
                recv_cq: cq.ptr.as_ptr(),
                srq: ptr::null_mut(),
                cap: sys::QpCap {
                    max_send_wr: depths.sends,
                    max_recv_wr: depths.receives,
                    max_send_sge: 2,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: sys::QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: a live protection domain and completion queue; the structure lives during the call.
            let qp = unsafe { (pd.context.verbs.create_qp)(pd.ptr.as_ptr(), &raw mut attr) };
            NonNull::new(qp).map(|qp| (qp, attr.cap.max_inline_data)).ok_or_else(io::Error::last_os_error)
        };
        // Inline is a wish: some devices grant less, some refuse.
        let (ptr, inline) = create(depths.inline).or_else(|_| create(0))?;
        // SAFETY: the library filled the structure, and the number never changes.
        let number = unsafe { (*ptr.as_ptr()).qp_num };
        // Never more than asked for: requests are built for that much.
        Ok(Self { cq, pd, ptr, post_send, post_recv, number, inline: inline.min(depths.inline) })
    }

    fn modify(&mut self, attr: &mut sys::QpAttr, mask: i32) -> io::Result<()> {
        // SAFETY: a live queue pair; the structure lives during the call.
        match unsafe { (self.pd.context.verbs.modify_qp)(self.ptr.as_ptr(), attr, mask) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// To INIT: receives may be posted.
    pub(super) fn init(&mut self, port: u8) -> io::Result<()> {
        let mut attr = sys::QpAttr {
            qp_state: sys::QPS_INIT,
            port_num: port,
            qp_access_flags: sys::ACCESS_REMOTE_WRITE as u32,
            ..Default::default()
        };
        self.modify(&mut attr, sys::QP_STATE | sys::QP_PKEY_INDEX | sys::QP_PORT | sys::QP_ACCESS_FLAGS)
    }

    /// To RTR: what the peer sends is taken. The kernel looks the peer's MAC address up here, and waits for it if it does not know it.
    pub(super) fn ready_to_receive(&mut self, path: &Path) -> io::Result<()> {
        let mut attr = sys::QpAttr {
            qp_state: sys::QPS_RTR,
            path_mtu: mtu_code(path.mtu),
            dest_qp_num: path.remote_qpn,
            rq_psn: path.remote_psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: MIN_RNR_TIMER,
            ah_attr: sys::AhAttr {
                grh: sys::GlobalRoute {
                    dgid: sys::Gid64(path.remote_gid.0),
                    sgid_index: path.gid_index,
                    hop_limit: 64,
                    traffic_class: path.traffic_class,
                    ..Default::default()
                },
                sl: path.service_level,
                is_global: 1,
                port_num: path.port,
                ..Default::default()
            },
            ..Default::default()
        };
        let mask = sys::QP_STATE
            | sys::QP_AV
            | sys::QP_PATH_MTU
            | sys::QP_DEST_QPN
            | sys::QP_RQ_PSN
            | sys::QP_MAX_DEST_RD_ATOMIC
            | sys::QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask)
    }

    /// To RTS: sends may be posted.
    pub(super) fn ready_to_send(&mut self, path: &Path) -> io::Result<()> {
        let mut attr = sys::QpAttr {
            qp_state: sys::QPS_RTS,
            sq_psn: path.local_psn,
            timeout: path.timeout,
            retry_cnt: path.retries,
            rnr_retry: path.rnr_retries,
            max_rd_atomic: 1,
            ..Default::default()
        };
        let mask = sys::QP_STATE
            | sys::QP_TIMEOUT
            | sys::QP_RETRY_CNT
            | sys::QP_RNR_RETRY
            | sys::QP_SQ_PSN
            | sys::QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask)
    }

    /// To the error state: when this returns, the NIC lets no packet of the peer write any more.
    pub(super) fn fail(&mut self) -> io::Result<()> {
        self.modify(&mut sys::QpAttr { qp_state: sys::QPS_ERR, ..Default::default() }, sys::QP_STATE)
    }

    /// Posts a chain of requests.
    ///
    /// # Safety
    ///
    /// `first` begins a chain of valid requests whose scatter lists are valid during the call. All memory named by them must stay registered,
    /// and be left alone as their kind demands, until their completion or until the queue pair has failed.
    pub(super) unsafe fn post_send(&mut self, first: *mut sys::SendWr) -> io::Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair used by this thread alone; the rest is the caller's promise.
        match unsafe { (self.post_send)(self.ptr.as_ptr(), first, &raw mut bad) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Posts a chain of receives.
    ///
    /// # Safety
    ///
    /// As for [`post_send`](Self::post_send); the memory named must be for the NIC alone until the completion.
    pub(super) unsafe fn post_recv(&mut self, first: *mut sys::RecvWr) -> io::Result<()> {
        let mut bad = ptr::null_mut();
        // SAFETY: as above.
        match unsafe { (self.post_recv)(self.ptr.as_ptr(), first, &raw mut bad) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: made in `new`; the completion queue and the protection domain are dropped after this body.
        unsafe { (self.pd.context.verbs.destroy_qp)(self.ptr.as_ptr()) };
    }
}
