//! Queue pairs: making, changing, asking, destroying.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::building::{self, Building};
use super::devices::{ContextObject, MAX_INLINE, MAX_WR, object};
use super::queues::cq_object;
use super::{gids, null};
use crate::abi::{self, Context, Pd, Qp, QpAttr, QpCap, QpEx, QpInitAttr, QpInitAttrEx};
use crate::engine::pair::{Limits, Pair, Patience};
use crate::shared::layout::{MAX_SGE, NO_GID};

/// A queue pair with what the program does not see.
#[repr(C)]
pub(super) struct QpObject {
    /// Programs and the engine write into it.
    pub(super) public: UnsafeCell<QpEx>,
    pub(super) pair: Arc<Pair>,
    pub(super) signal_all: bool,
    attributes: Mutex<QpAttr>,
    /// Requests between `wr_start` and `wr_complete`; whoever set `busy` owns it.
    pub(super) building: UnsafeCell<Building>,
    pub(super) busy: AtomicBool,
}

/// The object of a queue pair.
///
/// # Safety
/// `qp` came from a creation here and is not destroyed.
pub(super) unsafe fn qp_object<'a>(qp: *mut Qp) -> &'a QpObject {
    // SAFETY: the public struct is the first field of the object; what is written behind this reference is in cells.
    unsafe { &*qp.cast::<QpObject>() }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_create_qp(pd: *mut Pd, init: *mut QpInitAttr) -> *mut Qp {
    // SAFETY: a live domain and the caller's attributes.
    let (asked, context) = unsafe { (&mut *init, (*pd).context) };
    let wanted = Wanted {
        qp_context: asked.qp_context,
        queues: (asked.send_cq, asked.recv_cq),
        srq: !asked.srq.is_null(),
        kind: asked.qp_type,
        signal_all: asked.sq_sig_all != 0,
    };
    // SAFETY: as above.
    unsafe { create(context, pd, &wanted, &mut asked.cap) }
}

pub(super) unsafe extern "C" fn create_qp_ex(context: *mut Context, init: *mut QpInitAttrEx) -> *mut Qp {
    // SAFETY: the caller's attributes.
    let asked = unsafe { &mut *init };
    let known = abi::IBV_QP_INIT_ATTR_PD | abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let sends_ops = asked.comp_mask & abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    if asked.comp_mask & !known != 0 || (sends_ops && asked.send_ops_flags & !abi::SEND_OPS != 0) {
        return null(libc::EOPNOTSUPP);
    }
    if asked.comp_mask & abi::IBV_QP_INIT_ATTR_PD == 0 || asked.pd.is_null() {
        return null(libc::EINVAL);
    }
    let wanted = Wanted {
        qp_context: asked.qp_context,
        queues: (asked.send_cq, asked.recv_cq),
        srq: !asked.srq.is_null(),
        kind: asked.qp_type,
        signal_all: asked.sq_sig_all != 0,
    };
    // SAFETY: as in `ibv_create_qp`.
    unsafe { create(context, asked.pd, &wanted, &mut asked.cap) }
}

/// What both ways of making a queue pair ask for.
struct Wanted {
    qp_context: *mut std::ffi::c_void,
    queues: (*mut abi::Cq, *mut abi::Cq),
    srq: bool,
    kind: u32,
    signal_all: bool,
}

/// # Safety
/// `context` is open, `pd` and the queues are live.
unsafe fn create(context: *mut Context, pd: *mut Pd, wanted: &Wanted, cap: &mut QpCap) -> *mut Qp {
    if wanted.kind != abi::IBV_QPT_RC || wanted.srq {
        return null(libc::EOPNOTSUPP);
    }
    let most_sge = MAX_SGE as u32;
    let fits = cap.max_send_wr <= MAX_WR
        && cap.max_recv_wr <= MAX_WR
        && cap.max_send_sge <= most_sge
        && cap.max_recv_sge <= most_sge
        && cap.max_inline_data <= MAX_INLINE;
    let (send_cq, recv_cq) = wanted.queues;
    if !fits || send_cq.is_null() || recv_cq.is_null() {
        return null(libc::EINVAL);
    }
    // SAFETY: promised by the caller.
    let (opened, send_slot, recv_slot) = unsafe { (object(context), cq_object(send_cq).slot, cq_object(recv_cq).slot) };
    let fabric = opened.fabric;
    let Some(cell) = fabric.shared.take_qp(cap.max_recv_wr.max(1).next_power_of_two()) else {
        return null(libc::ENOMEM);
    };
    cell.port.store(opened.port as u32, Ordering::Relaxed);
    // SAFETY: a live domain.
    cell.domain.store(unsafe { (*pd).handle }, Ordering::Relaxed);
    cell.recv_cq.store(recv_slot, Ordering::Relaxed);
    cell.events.store(opened.fifo, Ordering::Relaxed);
    cell.pulse.store((&raw const *opened).expose_provenance() as u64, Ordering::Relaxed);
    let limits = Limits {
        sends: cap.max_send_wr,
        receives: cap.max_recv_wr,
        send_sges: cap.max_send_sge,
        recv_sges: cap.max_recv_sge,
        inline: cap.max_inline_data,
    };
    let pair = Pair::new(fabric, cell, send_slot, limits);
    fabric.progress.add(&pair);
    let base = Qp {
        context,
        qp_context: wanted.qp_context,
        pd,
        send_cq,
        recv_cq,
        srq: std::ptr::null_mut(),
        handle: pair.number & 0x3fff,
        qp_num: pair.number,
        state: abi::IBV_QPS_RESET,
        qp_type: wanted.kind,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let made = Box::into_raw(Box::new(QpObject {
        public: UnsafeCell::new(building::extended(base)),
        pair: pair.clone(),
        signal_all: wanted.signal_all,
        attributes: Mutex::new(QpAttr { cap: *cap, ..QpAttr::default() }),
        building: UnsafeCell::default(),
        busy: AtomicBool::new(false),
    }));
    pair.public.store(made.cast(), Ordering::Release);
    made.cast()
}

/// Every queue pair is an extended one in memory.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_qp_to_qp_ex(qp: *mut Qp) -> *mut QpEx {
    qp.cast()
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut Qp) -> c_int {
    // SAFETY: by contract a live queue pair, whose context is open.
    let (made, fabric) = unsafe { (qp_object(qp), object((*qp).context).fabric) };
    made.pair.retire();
    fabric.progress.remove(made.pair.number);
    fabric.shared.free_qp(made.pair.cell);
    // SAFETY: the program uses it no more by contract, the engine not since it retired.
    drop(unsafe { Box::from_raw(qp.cast::<QpObject>()) });
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_modify_qp(qp: *mut Qp, attr: *mut QpAttr, mask: c_int) -> c_int {
    // SAFETY: a live queue pair, its open context, and the caller's attributes.
    let (made, asked, opened) = unsafe { (qp_object(qp), &*attr, object((*qp).context)) };
    match modify(made, asked, mask, opened) {
        Ok(()) => 0,
        Err(code) => code,
    }
}

fn modify(made: &QpObject, asked: &QpAttr, mask: c_int, opened: &ContextObject) -> Result<(), c_int> {
    let mut kept = made.attributes.lock().unwrap_or_else(PoisonError::into_inner);
    let current = made.pair.state();
    let next = if mask & abi::IBV_QP_STATE != 0 { asked.qp_state } else { current };
    let needed = match (current, next) {
        (_, abi::IBV_QPS_RESET | abi::IBV_QPS_ERR) => 0,
        (abi::IBV_QPS_RESET, abi::IBV_QPS_INIT) => abi::IBV_QP_PKEY_INDEX | abi::IBV_QP_PORT | abi::IBV_QP_ACCESS_FLAGS,
        (abi::IBV_QPS_INIT, abi::IBV_QPS_INIT) | (abi::IBV_QPS_RTS, abi::IBV_QPS_RTS) => 0,
        (abi::IBV_QPS_INIT, abi::IBV_QPS_RTR) => {
            abi::IBV_QP_AV
                | abi::IBV_QP_PATH_MTU
                | abi::IBV_QP_DEST_QPN
                | abi::IBV_QP_RQ_PSN
                | abi::IBV_QP_MAX_DEST_RD_ATOMIC
                | abi::IBV_QP_MIN_RNR_TIMER
        }
        (abi::IBV_QPS_RTR, abi::IBV_QPS_RTS) => {
            abi::IBV_QP_TIMEOUT
                | abi::IBV_QP_RETRY_CNT
                | abi::IBV_QP_RNR_RETRY
                | abi::IBV_QP_SQ_PSN
                | abi::IBV_QP_MAX_QP_RD_ATOMIC
        }
        _ => return Err(libc::EINVAL),
    };
    if mask & needed != needed {
        return Err(libc::EINVAL);
    }
    check(asked, mask)?;
    let cell = made.pair.cell;
    if next == abi::IBV_QPS_RTR && current == abi::IBV_QPS_INIT {
        let peer_port = resolve(asked, opened)?;
        cell.peer.store(asked.dest_qp_num & 0xff_ffff, Ordering::Relaxed);
        cell.peer_port.store(peer_port as u32, Ordering::Relaxed);
        let route = &asked.ah_attr;
        cell.mtu.store(abi::mtu_bytes(asked.path_mtu), Ordering::Relaxed);
        cell.gid.store(u32::from(route.grh.sgid_index), Ordering::Relaxed);
        cell.traffic_class.store(u32::from(route.grh.traffic_class), Ordering::Relaxed);
        cell.service_level.store(u32::from(route.sl), Ordering::Relaxed);
    }
    merge(&mut kept, asked, mask);
    store(&cell.access, mask & abi::IBV_QP_ACCESS_FLAGS, asked.qp_access_flags);
    store(&cell.rnr_timer, mask & abi::IBV_QP_MIN_RNR_TIMER, u32::from(asked.min_rnr_timer));
    match next {
        abi::IBV_QPS_RESET => made.pair.reset(),
        abi::IBV_QPS_ERR => made.pair.set_error(),
        _ => {
            let patience = Patience { timeout: kept.timeout, retries: kept.retry_cnt, rnr_retries: kept.rnr_retry };
            if !made.pair.set_state(current, next, patience) {
                return Err(libc::EINVAL);
            }
        }
    }
    Ok(())
}

fn store(word: &AtomicU32, given: c_int, value: u32) {
    if given != 0 {
        word.store(value, Ordering::Relaxed);
    }
}

/// Values that the hardware's own checks would refuse.
fn check(asked: &QpAttr, mask: c_int) -> Result<(), c_int> {
    let given = |bit| mask & bit != 0;
    let bad = (given(abi::IBV_QP_PORT) && asked.port_num != 1)
        || (given(abi::IBV_QP_PKEY_INDEX) && asked.pkey_index != 0)
        || (given(abi::IBV_QP_PATH_MTU) && !(1..=abi::IBV_MTU_4096).contains(&asked.path_mtu))
        || (given(abi::IBV_QP_TIMEOUT) && asked.timeout > 31)
        || (given(abi::IBV_QP_RETRY_CNT) && asked.retry_cnt > 7)
        || (given(abi::IBV_QP_RNR_RETRY) && asked.rnr_retry > 7)
        || (given(abi::IBV_QP_MIN_RNR_TIMER) && asked.min_rnr_timer > 31);
    if bad { Err(libc::EINVAL) } else { Ok(()) }
}

/// The port that the address vector leads to: over a cable or switch, or back to the own port.
fn resolve(asked: &QpAttr, opened: &ContextObject) -> Result<usize, c_int> {
    let (plan, own) = (&opened.fabric.plan, opened.port);
    let route = &asked.ah_attr.grh;
    let port = asked.ah_attr.port_num;
    // RoCE has no addresses but GIDs.
    if asked.ah_attr.is_global == 0 || port != 1 {
        return Err(libc::EINVAL);
    }
    // An entry that is empty, or of the other family of addresses than the peer's.
    let source = gids::entry_at(opened, u32::from(route.sgid_index));
    if source.is_none_or(|(gid, _)| gids::is_mapped(&gid) != gids::is_mapped(&route.dgid)) {
        return Err(libc::EINVAL);
    }
    if abi::mtu_bytes(asked.path_mtu) > plan.ports[own].mtu {
        return Err(libc::EINVAL);
    }
    let ports = &opened.fabric.shared.tables().ports;
    let taken = |peer: usize| gids::is_mapped(&route.dgid) && ports[peer].gid.load(Ordering::Acquire) == NO_GID;
    let found = gids::find(plan, &route.dgid).filter(|&peer| plan.cabled(own, peer) && !taken(peer));
    match found.filter(|&peer| opened.fabric.path_up(own as u32, peer as u32)) {
        Some(peer) => Ok(peer),
        None => {
            // The real driver asks the neighbour table first, and nobody answers.
            std::thread::sleep(Duration::from_millis(plan.unreachable_delay_ms));
            Err(libc::ETIMEDOUT)
        }
    }
}

fn merge(kept: &mut QpAttr, asked: &QpAttr, mask: c_int) {
    macro_rules! take {
        ($($bit:ident => $($field:ident),+;)*) => {
            $(if mask & abi::$bit != 0 { $(kept.$field = asked.$field;)+ })*
        };
    }
    take! {
        IBV_QP_ACCESS_FLAGS => qp_access_flags;
        IBV_QP_PKEY_INDEX => pkey_index;
        IBV_QP_PORT => port_num;
        IBV_QP_AV => ah_attr;
        IBV_QP_PATH_MTU => path_mtu;
        IBV_QP_TIMEOUT => timeout;
        IBV_QP_RETRY_CNT => retry_cnt;
        IBV_QP_RNR_RETRY => rnr_retry;
        IBV_QP_RQ_PSN => rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC => max_rd_atomic;
        IBV_QP_MIN_RNR_TIMER => min_rnr_timer;
        IBV_QP_SQ_PSN => sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
        IBV_QP_DEST_QPN => dest_qp_num;
    }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_query_qp(qp: *mut Qp, attr: *mut QpAttr, _mask: c_int, init: *mut QpInitAttr) -> c_int {
    // SAFETY: a live queue pair.
    let made = unsafe { qp_object(qp) };
    let mut kept = *made.attributes.lock().unwrap_or_else(PoisonError::into_inner);
    kept.qp_state = made.pair.state();
    kept.cur_qp_state = kept.qp_state;
    // SAFETY: as above; these fields do not change.
    let (qp_context, send_cq, recv_cq) = unsafe { ((*qp).qp_context, (*qp).send_cq, (*qp).recv_cq) };
    let told = QpInitAttr {
        qp_context,
        send_cq,
        recv_cq,
        srq: std::ptr::null_mut(),
        cap: kept.cap,
        qp_type: abi::IBV_QPT_RC,
        sq_sig_all: c_int::from(made.signal_all),
    };
    // SAFETY: both are the caller's to fill.
    unsafe {
        attr.write(kept);
        init.write(told);
    }
    0
}

/// Enhanced connection establishment is a matter of vendors.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_query_ece(_qp: *mut Qp, _ece: *mut std::ffi::c_void) -> c_int {
    libc::EOPNOTSUPP
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_set_ece(_qp: *mut Qp, _ece: *mut std::ffi::c_void) -> c_int {
    libc::EOPNOTSUPP
}

/// No order of the bytes of a message is promised, only that of small writes.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_query_qp_data_in_order(_qp: *mut Qp, _operation: u32, _flags: u32) -> c_int {
    0
}

/// Layer-2 address of a GID's port: made from its IPv4 address. Returns 0, or −1 for a GID that no port has.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut Context,
    attr: *mut abi::AhAttr,
    mac: *mut [u8; 6],
    vlan: *mut u16,
) -> c_int {
    // SAFETY: an open context and the caller's address vector.
    let (plan, dgid) = unsafe { (&object(context).fabric.plan, (*attr).grh.dgid) };
    let Some(found) = gids::find(plan, &dgid) else { return super::minus_one(libc::EINVAL) };
    let [a, b, c, d]: [u8; 4] = Ipv4Addr::octets(&plan.ports[found].address);
    // SAFETY: both are the caller's to fill.
    unsafe {
        mac.write([0x02, 0, a, b, c, d]);
        vlan.write(0xffff);
    }
    0
}
