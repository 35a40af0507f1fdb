//! Open devices and connected queue pairs, driven through the C interface.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::time::{Duration, Instant};

use mesh_soft_verbs::abi::*;

use super::Library;

macro_rules! functions {
    ($($field:ident: $name:literal $version:literal fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the library that the tests call.
        pub struct Verbs { $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl Verbs {
            /// Found in the library that the environment puts in place.
            pub fn load() -> Self {
                let library = Library::open(Path::new("libibverbs.so.1"));
                Self { $($field: library.function($name, $version),)* }
            }
        }
    };
}

functions! {
    list: "ibv_get_device_list" "IBVERBS_1.1" fn(*mut c_int) -> *mut *mut Device;
    free_list: "ibv_free_device_list" "IBVERBS_1.1" fn(*mut *mut Device);
    name: "ibv_get_device_name" "IBVERBS_1.1" fn(*mut Device) -> *const c_char;
    open: "ibv_open_device" "IBVERBS_1.1" fn(*mut Device) -> *mut Context;
    close: "ibv_close_device" "IBVERBS_1.1" fn(*mut Context) -> c_int;
    query_gid: "ibv_query_gid" "IBVERBS_1.1" fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    old_query_port: "ibv_query_port" "IBVERBS_1.1" fn(*mut Context, u8, *mut c_void) -> c_int;
    alloc_pd: "ibv_alloc_pd" "IBVERBS_1.1" fn(*mut Context) -> *mut Pd;
    reg_mr: "ibv_reg_mr" "IBVERBS_1.1" fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr: "ibv_dereg_mr" "IBVERBS_1.1" fn(*mut Mr) -> c_int;
    create_cq: "ibv_create_cq" "IBVERBS_1.1" fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    destroy_cq: "ibv_destroy_cq" "IBVERBS_1.1" fn(*mut Cq) -> c_int;
    create_channel: "ibv_create_comp_channel" "IBVERBS_1.0" fn(*mut Context) -> *mut CompChannel;
    destroy_channel: "ibv_destroy_comp_channel" "IBVERBS_1.0" fn(*mut CompChannel) -> c_int;
    get_cq_event: "ibv_get_cq_event" "IBVERBS_1.1" fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    create_qp: "ibv_create_qp" "IBVERBS_1.1" fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    modify_qp: "ibv_modify_qp" "IBVERBS_1.1" fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    query_qp: "ibv_query_qp" "IBVERBS_1.1" fn(*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
    destroy_qp: "ibv_destroy_qp" "IBVERBS_1.1" fn(*mut Qp) -> c_int;
    get_async_event: "ibv_get_async_event" "IBVERBS_1.1" fn(*mut Context, *mut AsyncEvent) -> c_int;
}

/// What an end is made with.
#[derive(Clone, Copy)]
pub struct Options {
    pub sends: u32,
    pub receives: u32,
    pub cqe: i32,
    /// Of the region.
    pub access: u32,
    /// Of the queue pair.
    pub pair_access: u32,
    pub channel: bool,
    pub timeout: u8,
    pub retries: u8,
    pub rnr_retries: u8,
}

impl Default for Options {
    fn default() -> Self {
        let access =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        let pair_access = access;
        Self {
            sends: 64,
            receives: 64,
            cqe: 256,
            access,
            pair_access,
            channel: false,
            timeout: 8,
            retries: 1,
            rnr_retries: 7,
        }
    }
}

/// One device with a domain, a queue for completions, a queue pair and a registered buffer.
pub struct End<'a> {
    pub verbs: &'a Verbs,
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub cq: *mut Cq,
    pub qp: *mut Qp,
    pub mr: *mut Mr,
    pub channel: *mut CompChannel,
    pub memory: Box<[u8]>,
    pub options: Options,
}

/// What a peer needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub qpn: u32,
    pub gid: Gid,
    pub address: u64,
    pub rkey: u32,
}

impl<'a> End<'a> {
    /// On the device with this name.
    pub fn open(verbs: &'a Verbs, device: &str, bytes: usize, options: Options) -> Self {
        // SAFETY: the calls are used as their manual pages say, here and below: every object is live and every pointer to fill
        // is a local of the right type.
        unsafe {
            let mut count = 0;
            let list = (verbs.list)(&raw mut count);
            let found = (0..count as usize)
                .map(|at| *list.add(at))
                .find(|&candidate| std::ffi::CStr::from_ptr((verbs.name)(candidate)).to_bytes() == device.as_bytes());
            let context = (verbs.open)(found.unwrap_or_else(|| panic!("no device {device} among {count}")));
            // Devices outlive the list.
            (verbs.free_list)(list);
            assert!(!context.is_null());
            let pd = (verbs.alloc_pd)(context);
            let channel = if options.channel { (verbs.create_channel)(context) } else { std::ptr::null_mut() };
            let cq = (verbs.create_cq)(context, options.cqe, std::ptr::null_mut(), channel, 0);
            assert!(!pd.is_null() && !cq.is_null());
            let mut memory = vec![0u8; bytes].into_boxed_slice();
            let mr = (verbs.reg_mr)(pd, memory.as_mut_ptr().cast(), bytes, options.access as c_int);
            assert!(!mr.is_null());
            let mut init = QpInitAttr {
                qp_context: std::ptr::null_mut(),
                send_cq: cq,
                recv_cq: cq,
                srq: std::ptr::null_mut(),
                cap: QpCap {
                    max_send_wr: options.sends,
                    max_recv_wr: options.receives,
                    max_send_sge: 4,
                    max_recv_sge: 4,
                    max_inline_data: 64,
                },
                qp_type: IBV_QPT_RC,
                sq_sig_all: 0,
            };
            let qp = (verbs.create_qp)(pd, &raw mut init);
            assert!(!qp.is_null());
            Self { verbs, context, pd, cq, qp, mr, channel, memory, options }
        }
    }

    pub fn address(&self) -> Address {
        let mut gid = Gid::default();
        // SAFETY: as in `open`.
        unsafe {
            assert_eq!((self.verbs.query_gid)(self.context, 1, 3, &raw mut gid), 0);
            let address = self.memory.as_ptr().expose_provenance() as u64;
            Address { qpn: (*self.qp).qp_num, gid, address, rkey: (*self.mr).rkey }
        }
    }

    pub fn modify(&self, attr: &mut QpAttr, mask: c_int) -> c_int {
        // SAFETY: as in `open`.
        unsafe { (self.verbs.modify_qp)(self.qp, attr, mask) }
    }

    pub fn to_init(&self) {
        let mut attr = QpAttr {
            qp_state: IBV_QPS_INIT,
            port_num: 1,
            qp_access_flags: self.options.pair_access,
            ..QpAttr::default()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(self.modify(&mut attr, mask), 0);
    }

    pub fn to_rtr(&self, peer: &Address) -> c_int {
        let mut attr = QpAttr {
            qp_state: IBV_QPS_RTR,
            path_mtu: IBV_MTU_4096,
            dest_qp_num: peer.qpn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            ..QpAttr::default()
        };
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh = GlobalRoute { dgid: peer.gid, sgid_index: 3, hop_limit: 255, ..GlobalRoute::default() };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask)
    }

    pub fn to_rts(&self) {
        let mut attr = QpAttr {
            qp_state: IBV_QPS_RTS,
            timeout: self.options.timeout,
            retry_cnt: self.options.retries,
            rnr_retry: self.options.rnr_retries,
            max_rd_atomic: 1,
            ..QpAttr::default()
        };
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        assert_eq!(self.modify(&mut attr, mask), 0);
    }

    pub fn to(&self, state: u32) {
        let mut attr = QpAttr { qp_state: state, ..QpAttr::default() };
        assert_eq!(self.modify(&mut attr, IBV_QP_STATE), 0);
    }

    pub fn connect(&self, peer: &Address) {
        self.to_init();
        assert_eq!(self.to_rtr(peer), 0);
        self.to_rts();
    }

    /// The state that the program reads in its struct.
    pub fn state(&self) -> u32 {
        // SAFETY: as in `open`.
        unsafe { (&raw const (*self.qp).state).read_volatile() }
    }

    /// An entry for `length` bytes of the buffer from `from`.
    pub fn sge(&self, from: usize, length: usize) -> Sge {
        // SAFETY: as in `open`.
        let lkey = unsafe { (*self.mr).lkey };
        Sge { addr: self.memory.as_ptr().expose_provenance() as u64 + from as u64, length: length as u32, lkey }
    }

    pub fn post(&self, wr: SendWr, sges: &mut [Sge]) -> c_int {
        let mut wr = SendWr { sg_list: sges.as_mut_ptr(), num_sge: sges.len() as c_int, ..wr };
        let mut bad = std::ptr::null_mut();
        // SAFETY: as in `open`.
        unsafe { (*self.context).ops.post_send.expect("set")(self.qp, &raw mut wr, &raw mut bad) }
    }

    pub fn receive(&self, wr_id: u64, sges: &mut [Sge]) -> c_int {
        let (sg_list, num_sge) = (sges.as_mut_ptr(), sges.len() as c_int);
        let mut wr = RecvWr { wr_id, next: std::ptr::null_mut(), sg_list, num_sge };
        let mut bad = std::ptr::null_mut();
        // SAFETY: as in `open`.
        unsafe { (*self.context).ops.post_recv.expect("set")(self.qp, &raw mut wr, &raw mut bad) }
    }

    pub fn poll(&self) -> Option<Wc> {
        let mut wc = Wc::default();
        // SAFETY: as in `open`.
        let count = unsafe { (*self.context).ops.poll_cq.expect("set")(self.cq, 1, &raw mut wc) };
        assert!(count >= 0);
        (count == 1).then_some(wc)
    }

    pub fn arm(&self, solicited_only: bool) {
        // SAFETY: as in `open`.
        let code = unsafe { (*self.context).ops.req_notify_cq.expect("set")(self.cq, c_int::from(solicited_only)) };
        assert_eq!(code, 0);
    }

    /// The next completion; fails the test if none comes for a long while.
    pub fn wait(&self) -> Wc {
        let start = Instant::now();
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no completion");
            std::thread::yield_now();
        }
    }

    pub fn event(&self) -> AsyncEvent {
        let mut event = AsyncEvent { element: 0, event_type: u32::MAX };
        // SAFETY: as in `open`.
        unsafe { assert_eq!((self.verbs.get_async_event)(self.context, &raw mut event), 0) };
        event
    }

    pub fn port_state(&self) -> u32 {
        let mut attr = [0u32; OLD_PORT_ATTR_SIZE / 4 + 1];
        attr[OLD_PORT_ATTR_SIZE / 4] = 0x5a5a_5a5a;
        // SAFETY: as in `open`; the plain symbol writes 48 bytes.
        unsafe { assert_eq!((self.verbs.old_query_port)(self.context, 1, attr.as_mut_ptr().cast()), 0) };
        assert_eq!(attr[OLD_PORT_ATTR_SIZE / 4], 0x5a5a_5a5a, "the old symbol wrote beyond the old struct");
        attr[0]
    }

    pub fn destroy_qp(&self) {
        // SAFETY: as in `open`; the end is not used for requests any more.
        unsafe { assert_eq!((self.verbs.destroy_qp)(self.qp), 0) };
    }
}

/// A write of the peer's memory.
pub fn write_to(peer: &Address, offset: u64, wr_id: u64, flags: u32) -> SendWr {
    let mut wr = SendWr {
        wr_id,
        opcode: IBV_WR_RDMA_WRITE,
        send_flags: flags,
        remote_addr: peer.address + offset,
        ..SendWr::default()
    };
    wr.set_rdma_rkey(peer.rkey);
    wr
}

/// Two ends connected to each other, of nodes a and b, played by this process.
pub fn pair<'a>(verbs: &'a Verbs, bytes: usize, options: Options) -> (End<'a>, End<'a>) {
    let a = End::open(verbs, "a-m0", bytes, options);
    let b = End::open(verbs, "b-m0", bytes, options);
    a.connect(&b.address());
    b.connect(&a.address());
    (a, b)
}
