//! Faults that the fabric file or the control puts on a port: programs see them as they see those of real devices.

#![allow(unsafe_code, reason = "drives a C library")]

mod support;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use mesh_soft_verbs::abi::*;
use mesh_soft_verbs::control::{Connected, Control, ControlError};
use support::Scene;
use support::ends::{Address, End, Options, Verbs, pair, write_to};

const FABRIC: &str = "port a m0 10.0.0.1 100G\nport b m0 10.0.0.2 100G\ncable 10.0.0.1 10.0.0.2\n";
const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Scenarios with the statements they are for.
const SCENARIOS: &[(&str, &str, fn())] = &[
    ("small_packets", "mtu 10.0.0.2 1024", small_packets),
    ("no_address", "gids 10.0.0.1 link-local", no_address),
    ("no_gids", "gids 10.0.0.1 none", no_gids),
    ("down", "down 10.0.0.2", down),
    ("uncabled", "uncable 10.0.0.1 10.0.0.2", uncabled),
    ("little_memory", "memlock 65536", little_memory),
    ("own_limit", "memlock limit", own_limit),
    ("moving", "", moving),
];

#[test]
#[ignore = "runs as a child of the other tests"]
fn scenarios() {
    let plays: Vec<_> = SCENARIOS.iter().map(|&(name, _, play)| (name, play)).collect();
    support::play(&plays);
}

#[test]
fn every_fault_is_seen_as_a_real_one() {
    // given each fault in the fabric file, when a process of its own plays the scenario, then it holds
    for (name, statement, _) in SCENARIOS {
        println!("{name}");
        Scene::new(&format!("{FABRIC}{statement}\n")).run(name);
    }
}

fn control() -> Control {
    let folder = PathBuf::from(std::env::var_os("SCENE").expect("set by the parent"));
    Control::open(Path::new(&folder.join("fabric"))).expect("the fabric")
}

/// Brings an end to ready-to-receive with this MTU code and index of its own GID.
fn rtr(end: &End<'_>, peer: &Address, mtu: u32, sgid_index: u8) -> i32 {
    let mut attr = QpAttr { qp_state: IBV_QPS_RTR, path_mtu: mtu, dest_qp_num: peer.qpn, ..QpAttr::default() };
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.sl = 3;
    attr.ah_attr.grh = GlobalRoute { dgid: peer.gid, sgid_index, traffic_class: 106, ..GlobalRoute::default() };
    let mask = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    end.modify(&mut attr, mask)
}

fn gid(end: &End<'_>, index: i32) -> Gid {
    let mut gid = Gid::default();
    // SAFETY: an open device, and a local to fill.
    assert_eq!(unsafe { (end.verbs.query_gid)(end.context, 1, index, &raw mut gid) }, 0);
    gid
}

fn small_packets() {
    // given an end whose port takes packets of 1024 bytes, then it cannot be set to larger ones
    let verbs = Verbs::load();
    let open = |device| End::open(&verbs, device, 4096, Options::default());
    let (a, b) = (open("a-m0"), open("b-m0"));
    let (to_a, to_b) = (a.address(), b.address());
    [&a, &b].iter().for_each(|end| end.to_init());
    assert_eq!(rtr(&b, &to_a, 5, 3), libc::EINVAL);
    assert_eq!(rtr(&b, &to_a, 3, 3), 0);
    // and when the other sends larger ones, then small writes arrive and large ones are lost
    assert_eq!(rtr(&a, &to_b, 5, 3), 0);
    [&a, &b].iter().for_each(|end| end.to_rts());
    for (length, status) in [(1024, IBV_WC_SUCCESS), (1025, IBV_WC_RETRY_EXC_ERR)] {
        assert_eq!(a.post(write_to(&to_b, 0, 1, IBV_SEND_SIGNALED), &mut [a.sge(0, length)]), 0);
        assert_eq!(a.wait().status, status, "{length}");
    }
}

fn no_address() {
    let verbs = Verbs::load();
    let a = End::open(&verbs, "a-m0", 64, Options::default());
    let b = End::open(&verbs, "b-m0", 64, Options::default());
    // given a port without an IPv4 GID, then its entries are empty, and no way leads to that GID
    assert_ne!(gid(&a, 1), Gid::default());
    assert_eq!(gid(&a, 3), Gid::default());
    b.to_init();
    let gone = Address { gid: Gid { raw: A.to_ipv6_mapped().octets() }, ..a.address() };
    assert_eq!(b.to_rtr(&gone), libc::ETIMEDOUT);
}

fn no_gids() {
    let verbs = Verbs::load();
    let a = End::open(&verbs, "a-m0", 64, Options::default());
    assert!((0..16).all(|index| gid(&a, index) == Gid::default()));
}

fn down() {
    let verbs = Verbs::load();
    let a = End::open(&verbs, "a-m0", 64, Options::default());
    let b = End::open(&verbs, "b-m0", 64, Options::default());
    // given a port that is down from the start, then it says so and cannot be reached, until it comes up
    assert_eq!((a.port_state(), b.port_state()), (IBV_PORT_ACTIVE, IBV_PORT_DOWN));
    a.to_init();
    assert_eq!(a.to_rtr(&b.address()), libc::ETIMEDOUT);
    control().set_port(B, true).expect("a port");
    assert_eq!(b.port_state(), IBV_PORT_ACTIVE);
    assert_eq!(a.to_rtr(&b.address()), 0);
}

fn uncabled() {
    let verbs = Verbs::load();
    let a = End::open(&verbs, "a-m0", 64, Options::default());
    let b = End::open(&verbs, "b-m0", 64, Options::default());
    // given ports that are up and not joined, then neither reaches the other
    assert_eq!((a.port_state(), b.port_state()), (IBV_PORT_ACTIVE, IBV_PORT_ACTIVE));
    a.to_init();
    assert_eq!(a.to_rtr(&b.address()), libc::ETIMEDOUT);
}

/// Registers this many bytes of a page-aligned buffer, or the error.
fn register(end: &End<'_>, bytes: usize) -> Result<*mut Mr, Option<i32>> {
    let memory = Box::leak(vec![0u8; bytes + 4096].into_boxed_slice());
    let at = memory.as_mut_ptr();
    // SAFETY: inside the buffer, which is never freed.
    let mr = unsafe { (end.verbs.reg_mr)(end.pd, at.add(at.align_offset(4096)).cast(), bytes, 1) };
    if mr.is_null() { Err(std::io::Error::last_os_error().raw_os_error()) } else { Ok(mr) }
}

fn little_memory() {
    // given 64 KiB that may be registered, and an end that has taken a page or two
    let verbs = Verbs::load();
    let a = End::open(&verbs, "a-m0", 64, Options::default());
    // when more than the rest is asked for, then it is refused, and what is given back can be had again
    assert_eq!(register(&a, 64 << 10), Err(Some(libc::ENOMEM)));
    for _ in 0..3 {
        let mr = register(&a, 56 << 10).expect("it fits");
        assert_eq!(register(&a, 8 << 10), Err(Some(libc::ENOMEM)));
        // SAFETY: registered just now.
        assert_eq!(unsafe { (verbs.dereg_mr)(mr) }, 0);
    }
}

fn own_limit() {
    // given a process that may lock 1 MiB
    let verbs = Verbs::load();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one structure that lives here, filled and changed.
    unsafe { assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit), 0) };
    limit.rlim_cur = (1 << 20).min(limit.rlim_max);
    // SAFETY: as above.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0) };
    let a = End::open(&verbs, "a-m0", 64, Options::default());
    // then that much can be registered, and no more
    let most = limit.rlim_cur as usize;
    assert_eq!(register(&a, most), Err(Some(libc::ENOMEM)));
    assert!(register(&a, most - (16 << 10)).is_ok());
}

fn moving() {
    // given two connected ends
    let verbs = Verbs::load();
    let control = control();
    let (a, b) = pair(&verbs, 64, Options::default());
    let to = b.address();
    let own = gid(&a, 3);
    // when the GID of one is moved, then the table has it there alone, and the program is told
    assert_eq!(control.set_gid_index(A, 4), Err(ControlError::NoIndex { index: 4 }));
    assert_eq!(control.set_gid_index(A, 17), Err(ControlError::NoIndex { index: 17 }));
    control.set_gid_index(A, 7).expect("a port");
    assert_eq!((gid(&a, 3), gid(&a, 7)), (Gid::default(), own));
    assert_eq!(a.event().event_type, IBV_EVENT_GID_CHANGE);
    // and the ends stay connected
    assert_eq!(a.post(write_to(&to, 0, 1, IBV_SEND_SIGNALED), &mut [a.sge(0, 8)]), 0);
    assert_eq!(a.wait().status, IBV_WC_SUCCESS);
    // and another queue pair needs the new index, also where the old one holds another GID by now
    let (c, d) = (End::open(&verbs, "a-m0", 64, Options::default()), End::open(&verbs, "b-m0", 64, Options::default()));
    let to = d.address();
    c.to_init();
    assert_eq!(rtr(&c, &to, 5, 3), libc::EINVAL);
    control.set_gid_index(A, 1).expect("a port");
    assert_eq!(rtr(&c, &to, 5, 3), libc::EINVAL);
    assert_eq!(rtr(&c, &to, 4, 1), 0);
    c.to_rts();
    // and one whose GID is gone is not to be reached
    control.take_gid(B).expect("a port");
    let (e, f) = (End::open(&verbs, "a-m0", 64, Options::default()), End::open(&verbs, "b-m0", 64, Options::default()));
    assert_eq!(gid(&f, 3), Gid::default());
    e.to_init();
    assert_eq!(rtr(&e, &to, 5, 1), libc::ETIMEDOUT);
    // and the control says what each was connected with
    let told = Connected { local: A, remote: B, mtu: 2048, gid_index: 1, traffic_class: 106, service_level: 3 };
    let connected = control.connected();
    assert!(connected.len() == 3 && connected.contains(&told), "{connected:?}");
}
