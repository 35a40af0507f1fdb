//! Devices: the list, opening and closing, attributes of devices and ports.

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::{fabric, gids, null, pairs, posting, queues, refusing};
use crate::abi::{self, Context, ContextOps, Device, DeviceAttr, DeviceAttrEx, ExtendedContext, PortAttr};
use crate::engine::{Fabric, carrier};
use crate::plan::PortPlan;
use crate::shared::layout::{MAX_CQS, MAX_QPS, MAX_REGIONS, MAX_SGE};
use crate::wake;

/// Most entries of a completion queue.
pub const MAX_CQE: u32 = 1 << 17;
/// Most outstanding requests or receives of a queue pair.
pub const MAX_WR: u32 = 1 << 14;
/// Most bytes of an inline request.
pub const MAX_INLINE: u32 = 1024;
/// Longest message.
pub const MAX_MESSAGE: u64 = 1 << 30;

/// A device with what the program does not see.
#[repr(C)]
pub(super) struct DeviceObject {
    public: Device,
    port: usize,
}

struct Devices(Box<[DeviceObject]>);

// SAFETY: the structs hold null pointers and plain data, and are never written after they were made.
unsafe impl Send for Devices {}
// SAFETY: as above.
unsafe impl Sync for Devices {}

/// The devices of this process's nodes; they live as long as the process, whatever lists are freed.
fn devices() -> &'static [DeviceObject] {
    static DEVICES: OnceLock<Devices> = OnceLock::new();
    &DEVICES
        .get_or_init(|| {
            let nodes = super::nodes();
            let ports = fabric().map_or(&[][..], |fabric| &fabric.plan.ports);
            let own = ports.iter().enumerate().filter(|(_, port)| nodes.contains(&port.node));
            Devices(own.map(|(at, port)| device(at, port, nodes.len() > 1)).collect())
        })
        .0
}

fn device(port: usize, plan: &PortPlan, several: bool) -> DeviceObject {
    let name = if several { format!("{}-{}", plan.node, plan.device) } else { plan.device.clone() };
    DeviceObject {
        public: Device {
            ops: [std::ptr::null_mut(); 2],
            node_type: abi::IBV_NODE_CA,
            transport_type: abi::IBV_TRANSPORT_IB,
            name: c_name(&name),
            dev_name: c_name(&format!("uverbs{port}")),
            dev_path: c_name(&format!("/sys/class/infiniband_verbs/uverbs{port}")),
            ibdev_path: c_name(&format!("/sys/class/infiniband/{name}")),
            behind: [0; 16],
        },
        port,
    }
}

/// A C string in a field of fixed size, cut if too long.
fn c_name<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, &from) in field.iter_mut().zip(text.as_bytes()).take(N - 1) {
        *to = from as c_char;
    }
    field
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut Device {
    let devices = devices();
    // SAFETY: an allocation for one pointer more than devices, freed by `ibv_free_device_list`.
    let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut Device>()) }.cast::<*mut Device>();
    if list.is_null() {
        return null(libc::ENOMEM);
    }
    for (at, device) in devices.iter().enumerate() {
        // SAFETY: `at` is below the length just allocated.
        unsafe { list.add(at).write((&raw const device.public).cast_mut()) };
    }
    if !count.is_null() {
        // SAFETY: the caller gave a valid pointer or null.
        unsafe { count.write(devices.len() as c_int) };
    }
    list
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut Device) {
    // SAFETY: the list came from `ibv_get_device_list`; devices are not part of it.
    unsafe { libc::free(list.cast()) };
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut Device) -> *const c_char {
    // SAFETY: the device is one of ours and lives for ever.
    unsafe { (&raw const (*device).name).cast() }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut Device) -> u64 {
    // SAFETY: as in `ibv_get_device_name`.
    let port = unsafe { (*device.cast::<DeviceObject>()).port };
    fabric().map_or(0, |fabric| gids::guid(&fabric.plan.ports[port]))
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_get_device_index(_device: *mut Device) -> c_int {
    -1
}

/// An open device.
#[repr(C)]
pub(super) struct ContextObject {
    extended: ExtendedContext,
    pub(super) fabric: &'static Fabric,
    pub(super) port: usize,
    slot: usize,
    pub(super) fifo: u32,
    pub(super) events: File,
}

/// The whole object of a context that a program holds.
///
/// # Safety
/// `context` came from [`ibv_open_device`] and is not closed.
pub(super) unsafe fn object<'a>(context: *mut Context) -> &'a ContextObject {
    // SAFETY: the context lies at this offset of its object, which lives until it is closed.
    unsafe { &*context.byte_sub(std::mem::offset_of!(ExtendedContext, context)).cast::<ContextObject>() }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_open_device(device: *mut Device) -> *mut Context {
    let Some(fabric) = fabric() else { return null(libc::ENODEV) };
    if super::is_forked() {
        eprintln!("soft verbs: a process forked from one that had opened a device cannot open any: let it exec");
        return null(libc::ENODEV);
    }
    // SAFETY: the device is one of ours.
    let port = unsafe { (*device.cast::<DeviceObject>()).port };
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: lets processes of the same user copy from and to this one where Yama restricts that, and registers a function
        // that stores one flag, which is safe in a forked child.
        unsafe {
            libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
            libc::pthread_atfork(None, None, Some(super::forked));
        }
    });
    fabric.shared.sweep();
    carrier::follow(fabric, super::nodes);
    let (fifo, events) = match wake::make(&fabric.shared) {
        Ok(made) => made,
        Err(error) => return null(super::code_of(&error)),
    };
    let Some(slot) = fabric.shared.take_context() else {
        let _ = std::fs::remove_file(fabric.shared.fifo(fifo));
        return null(libc::ENOMEM);
    };
    let cell = &fabric.shared.tables().contexts[slot];
    cell.port.store(port as u32, Ordering::Relaxed);
    cell.fifo.store(fifo, Ordering::Release);
    let fd = events.as_raw_fd();
    let extended = extended_context(device, fd);
    let object = Box::into_raw(Box::new(ContextObject { extended, fabric, port, slot, fifo, events }));
    // SAFETY: the object was just made.
    unsafe { &raw mut (*object).extended.context }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_close_device(context: *mut Context) -> c_int {
    // SAFETY: by contract the context is ours, open, and used by nobody any more.
    let object = unsafe {
        Box::from_raw(context.byte_sub(std::mem::offset_of!(ExtendedContext, context)).cast::<ContextObject>())
    };
    let cell = &object.fabric.shared.tables().contexts[object.slot];
    cell.fifo.store(0, Ordering::Relaxed);
    cell.owner.store(0, Ordering::Release);
    let _ = std::fs::remove_file(object.fabric.shared.fifo(object.fifo));
    0
}

fn extended_context(device: *mut Device, async_fd: c_int) -> ExtendedContext {
    let ops = ContextOps {
        before_mw: [None; 7],
        alloc_mw: Some(refusing::alloc_mw),
        bind_mw: Some(refusing::bind_mw),
        dealloc_mw: Some(refusing::dealloc_mw),
        create_cq: None,
        poll_cq: Some(queues::poll_cq),
        req_notify_cq: Some(queues::req_notify_cq),
        before_srq: [None; 7],
        post_srq_recv: Some(refusing::post_srq_recv),
        before_post: [None; 4],
        post_send: Some(posting::post_send),
        post_recv: Some(posting::post_recv),
        after_post: [None; 5],
    };
    ExtendedContext {
        query_port: Some(query_port),
        before_create_cq_ex: [None; 24],
        create_cq_ex: None,
        private: std::ptr::null_mut(),
        query_device_ex: Some(query_device_ex),
        flows: [None; 2],
        srq: [None; 1],
        tail: [None; 2],
        create_qp_ex: Some(pairs::create_qp_ex),
        after_create_qp_ex: [None; 4],
        placeholder: 0,
        size: size_of::<ExtendedContext>(),
        context: Context {
            device,
            ops,
            cmd_fd: -1,
            async_fd,
            num_comp_vectors: 1,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            // All ones: "look in front of this struct for newer calls".
            abi_compat: std::ptr::without_provenance_mut(usize::MAX),
        },
    }
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_query_device(context: *mut Context, attr: *mut DeviceAttr) -> c_int {
    // SAFETY: an open context; `attr` is the caller's to fill.
    unsafe { attr.write(device_attributes(object(context))) };
    0
}

unsafe extern "C" fn query_device_ex(
    context: *mut Context,
    _input: *const c_void,
    attr: *mut c_void,
    len: usize,
) -> c_int {
    if len < size_of::<DeviceAttr>() {
        return libc::EINVAL;
    }
    // SAFETY: an open context.
    let orig_attr = device_attributes(unsafe { object(context) });
    let full = DeviceAttrEx { orig_attr, comp_mask: 0, rest: [0; 41] };
    // SAFETY: `attr` has `len` bytes by contract.
    unsafe { fill(attr, len, &full) };
    0
}

fn device_attributes(object: &ContextObject) -> DeviceAttr {
    let guid = gids::guid(&object.fabric.plan.ports[object.port]);
    DeviceAttr {
        fw_ver: c_name("soft"),
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX >> 1,
        page_size_cap: 0xffff_f000,
        // Of no vendor: programs then use nothing that only one vendor's devices do.
        vendor_id: 0,
        vendor_part_id: 0,
        hw_ver: 0,
        max_qp: MAX_QPS as c_int,
        max_qp_wr: MAX_WR as c_int,
        device_cap_flags: 0,
        max_sge: MAX_SGE as c_int,
        max_sge_rd: MAX_SGE as c_int,
        max_cq: MAX_CQS as c_int,
        max_cqe: MAX_CQE as c_int,
        max_mr: MAX_REGIONS as c_int,
        max_pd: MAX_REGIONS as c_int,
        max_qp_rd_atom: 16,
        max_ee_rd_atom: 0,
        max_res_rd_atom: 16 * MAX_QPS as c_int,
        max_qp_init_rd_atom: 16,
        max_ee_init_rd_atom: 0,
        atomic_cap: abi::IBV_ATOMIC_HCA,
        none_of: [0; 14],
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
    }
}

unsafe extern "C" fn query_port(context: *mut Context, port: u8, attr: *mut c_void, len: usize) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: an open context; `attr` has `len` bytes by contract.
    unsafe { fill(attr, len, &port_attributes(object(context))) };
    0
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_query_port(context: *mut Context, port: u8, attr: *mut c_void) -> c_int {
    // SAFETY: callers of the plain symbol have the old struct; the newer one comes through the extended context.
    unsafe { query_port(context, port, attr, abi::OLD_PORT_ATTR_SIZE) }
}

/// Speed in units of 100 Mb/s.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn ibv_query_port_speed(context: *mut Context, port: u32, speed: *mut u64) -> c_int {
    // Some headers say that the port has eight bits: what lies above them is then not defined.
    if port & 0xff != 1 || speed.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: an open context; `speed` is the caller's to fill.
    unsafe { speed.write(rate(object(context)) / 100_000_000) };
    0
}

fn rate(object: &ContextObject) -> u64 {
    object.fabric.shared.tables().ports[object.port].rate.load(Ordering::Relaxed)
}

fn port_attributes(object: &ContextObject) -> PortAttr {
    let up = object.fabric.shared.tables().ports[object.port].down.load(Ordering::Acquire) == 0;
    let (active_width, active_speed) = width_and_speed(rate(object));
    PortAttr {
        state: if up { abi::IBV_PORT_ACTIVE } else { abi::IBV_PORT_DOWN },
        max_mtu: abi::IBV_MTU_4096,
        active_mtu: abi::mtu_code(object.fabric.plan.ports[object.port].mtu),
        gid_tbl_len: gids::TABLE as c_int,
        max_msg_sz: MAX_MESSAGE as u32,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        active_width,
        active_speed,
        // Link up, or disabled.
        phys_state: if up { 5 } else { 3 },
        link_layer: abi::IBV_LINK_LAYER_ETHERNET,
        ..PortAttr::default()
    }
}

/// The fastest pair of codes that is not faster than `rate`: lanes (1: one, 2: four, 4: eight) and rate of a lane.
fn width_and_speed(rate: u64) -> (u8, u8) {
    const LANES: [(u8, u64); 3] = [(1, 1), (2, 4), (4, 8)];
    const SPEEDS: [(u8, u64); 6] = [(1, 25), (4, 100), (16, 140), (32, 250), (64, 500), (128, 1000)];
    let pairs = LANES.iter().flat_map(|lane| SPEEDS.iter().map(move |speed| (lane.1 * speed.1, lane.0, speed.0)));
    let units = rate / 100_000_000;
    let best = pairs.filter(|pair| pair.0 <= units).max_by_key(|pair| (pair.0, pair.1 == 2, pair.2));
    best.map_or((1, 1), |pair| (pair.1, pair.2))
}

/// Fills `len` bytes at `to` with `from` and, beyond its size, zeros: structs of callers are older or newer than ours.
///
/// # Safety
/// `to` is valid for `len` bytes.
unsafe fn fill<T: Copy>(to: *mut c_void, len: usize, from: &T) {
    let known = len.min(size_of::<T>());
    // SAFETY: at most `len` bytes of `to` and the size of `from` are touched.
    unsafe {
        std::ptr::write_bytes(to.cast::<u8>(), 0, len);
        std::ptr::copy_nonoverlapping((&raw const *from).cast::<u8>(), to.cast::<u8>(), known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_usual_rates() {
        // given usual rates and odd ones, then the codes multiply to the rate, or to the next below
        let cases = [
            (100, (2, 32)),
            (200, (2, 64)),
            (400, (2, 128)),
            (800, (4, 128)),
            (25, (1, 32)),
            (50, (1, 64)),
            (40, (2, 4)),
            (10, (2, 1)),
            (1, (1, 1)),
        ];
        for (gigabits, codes) in cases {
            assert_eq!(width_and_speed(gigabits * 1_000_000_000), codes, "{gigabits}G");
        }
    }
}
