//! What reliable connections promise, through the C interface: data, order, immediates, receives, reads, atomics, and the
//! errors of both sides. One process plays both nodes; the data still goes through the kernel.

#![allow(unsafe_code, reason = "drives a C library")]

mod support;

use std::net::Ipv4Addr;

use mesh_soft_verbs::abi::*;
use support::Scene;
use support::ends::{Address, End, Options, Verbs, pair, write_to};

const FABRIC: &str = "port a m0 10.0.0.1 100G\nport b m0 10.0.0.2 100G\ncable 10.0.0.1 10.0.0.2\n\
    port b m1 10.0.1.2 100G\nport c m0 10.0.1.3 100G\ncable 10.0.1.2 10.0.1.3\n";

const SCENARIOS: &[(&str, fn())] = &[
    ("writes", writes),
    ("immediates", immediates),
    ("sends", sends),
    ("reads_and_atomics", reads_and_atomics),
    ("access_errors", access_errors),
    ("local_errors", local_errors),
    ("receive_errors", receive_errors),
    ("no_receive", no_receive),
    ("states", states),
    ("uncabled", uncabled),
    ("nobody_answers", nobody_answers),
    ("error_state_flushes", error_state_flushes),
    ("old_port_attributes", old_port_attributes),
];

#[test]
#[ignore = "runs as a child of the other tests"]
fn scenarios() {
    support::play(SCENARIOS);
}

#[test]
fn every_scenario_in_both_engines() {
    // given each scenario with both engines, when a process of its own plays it, then it holds
    for engine in ["inline", "clock"] {
        for (name, _) in SCENARIOS {
            println!("{name}, {engine}");
            Scene::new(&format!("{FABRIC}engine {engine}\nlatency 1000\n")).run(name);
        }
    }
}

fn fill(end: &mut End<'_>, seed: u8) {
    for (at, byte) in end.memory.iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(31).wrapping_add(seed);
    }
}

fn writes() {
    // given two connected ends
    let verbs = Verbs::load();
    let (mut a, b) = pair(&verbs, 1 << 20, Options::default());
    fill(&mut a, 5);
    let to = b.address();
    // when unsignalled writes of odd lengths, scattered and inline, are followed by a signalled one
    let mut offset = 0;
    for length in [0usize, 1, 7, 64, 129, 4096, 65_537] {
        assert_eq!(a.post(write_to(&to, offset, 1, 0), &mut [a.sge(offset as usize, length)]), 0);
        offset += length as u64;
    }
    let half = [a.sge(offset as usize, 10), a.sge(offset as usize + 10, 22)];
    assert_eq!(a.post(write_to(&to, offset, 2, IBV_SEND_INLINE), &mut half.clone()), 0);
    offset += 32;
    let rest = a.memory.len() - offset as usize;
    assert_eq!(a.post(write_to(&to, offset, 3, IBV_SEND_SIGNALED), &mut [a.sge(offset as usize, rest)]), 0);
    // then one completion tells of all, and every byte is there
    let wc = a.wait();
    assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.qp_num), (3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, a.address().qpn));
    assert!(a.poll().is_none() && b.poll().is_none());
    assert_eq!(a.memory, b.memory);
}

fn immediates() {
    // given receives without memory
    let verbs = Verbs::load();
    let (mut a, b) = pair(&verbs, 4096, Options::default());
    fill(&mut a, 9);
    for id in 0..3 {
        assert_eq!(b.receive(100 + id, &mut []), 0);
    }
    // when writes carry numbers, with and without data
    for (id, length) in [(0u64, 1000usize), (1, 0), (2, 8)] {
        let mut wr = write_to(&b.address(), 0, id, IBV_SEND_SIGNALED);
        (wr.opcode, wr.imm_data) = (IBV_WR_RDMA_WRITE_WITH_IMM, (id as u32 + 7).to_be());
        assert_eq!(a.post(wr, &mut [a.sge(0, length)]), 0);
    }
    // then each takes a receive in order and tells number and length
    for (id, length) in [(0u64, 1000u32), (1, 0), (2, 8)] {
        let wc = b.wait();
        assert_eq!((wc.wr_id, wc.status, wc.opcode), (100 + id, IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM));
        assert_eq!((wc.byte_len, wc.wc_flags), (length, IBV_WC_WITH_IMM));
        assert_eq!((u32::from_be(wc.imm_data), wc.src_qp), (id as u32 + 7, a.address().qpn));
        assert_eq!(a.wait().wr_id, id);
    }
    assert_eq!(a.memory[..1000], b.memory[..1000]);
}

fn sends() {
    // given a receive in two pieces
    let verbs = Verbs::load();
    let (mut a, b) = pair(&verbs, 4096, Options::default());
    fill(&mut a, 3);
    assert_eq!(b.receive(1, &mut [b.sge(0, 100), b.sge(1000, 100)]), 0);
    // when a shorter message comes
    let wr = SendWr { wr_id: 2, opcode: IBV_WR_SEND, send_flags: IBV_SEND_SIGNALED, ..SendWr::default() };
    assert_eq!(a.post(wr, &mut [a.sge(0, 150)]), 0);
    // then it fills the first piece and part of the second
    let wc = b.wait();
    assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.wc_flags), (1, IBV_WC_SUCCESS, IBV_WC_RECV, 150, 0));
    assert_eq!(a.memory[..100], b.memory[..100]);
    assert_eq!(a.memory[100..150], b.memory[1000..1050]);
    assert_eq!(b.memory[1050], 0);
    assert_eq!(a.wait().opcode, IBV_WC_SEND);
}

fn reads_and_atomics() {
    // given a peer with data and a counter
    let verbs = Verbs::load();
    let (a, mut b) = pair(&verbs, 4096, Options::default());
    fill(&mut b, 77);
    b.memory[..8].copy_from_slice(&40u64.to_ne_bytes());
    let from = b.address();
    // when it is read
    let wr = SendWr { opcode: IBV_WR_RDMA_READ, ..write_to(&from, 8, 1, IBV_SEND_SIGNALED) };
    assert_eq!(a.post(wr, &mut [a.sge(8, 2000)]), 0);
    let wc = a.wait();
    assert_eq!((wc.status, wc.opcode, wc.byte_len), (IBV_WC_SUCCESS, IBV_WC_RDMA_READ, 2000));
    assert_eq!(a.memory[8..2008], b.memory[8..2008]);
    // and the counter added to, swapped with the right and with the wrong expectation
    let word = |memory: &[u8], at: usize| u64::from_ne_bytes(memory[at..at + 8].try_into().expect("eight"));
    let cases = [
        (IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0, 40, 42),
        (IBV_WR_ATOMIC_CMP_AND_SWP, 42, 7, 42, 7),
        (IBV_WR_ATOMIC_CMP_AND_SWP, 42, 9, 7, 7),
    ];
    for (opcode, compare_add, swap, old, new) in cases {
        let wr =
            SendWr { opcode, compare_add, swap, atomic_rkey: from.rkey, ..write_to(&from, 0, 2, IBV_SEND_SIGNALED) };
        let wr = SendWr { compare_add, ..wr };
        assert_eq!(a.post(wr, &mut [a.sge(3000, 8)]), 0);
        assert_eq!(a.wait().status, IBV_WC_SUCCESS);
        // then the old value is told and the new one in place
        assert_eq!((word(&a.memory, 3000), word(&b.memory, 0)), (old, new));
    }
}

/// What both ends get for one request with a bad aim: status `told` at the sender, `event` at the peer.
fn refused(aim: impl FnOnce(&mut Address) -> (u64, usize), options: Options, opcode: u32, (told, event): (u32, u32)) {
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 4096, options);
    let mut to = b.address();
    let (offset, length) = aim(&mut to);
    assert_eq!(b.receive(5, &mut []), 0);
    let wr = SendWr { opcode, ..write_to(&to, offset, 1, 0) };
    assert_eq!(a.post(wr, &mut [a.sge(0, length)]), 0);
    assert_eq!(a.post(write_to(&to, 0, 2, 0), &mut [a.sge(0, 8)]), 0);
    // unsignalled or not, the failed request and all after it complete
    let wc = a.wait();
    assert_eq!((wc.wr_id, wc.status), (1, told));
    let wc = a.wait();
    assert_eq!((wc.wr_id, wc.status), (2, IBV_WC_WR_FLUSH_ERR));
    assert_eq!(a.state(), IBV_QPS_ERR);
    // and the peer's receives are flushed, its program told
    let wc = b.wait();
    assert_eq!((wc.wr_id, wc.status), (5, IBV_WC_WR_FLUSH_ERR));
    let seen = b.event();
    assert_eq!(seen.event_type, event);
    assert_eq!(seen.element, b.qp.addr() as u64);
    assert!(b.memory.iter().all(|&byte| byte == 0));
}

fn access_errors() {
    let all = Options::default();
    let access = (IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    // given a key that is wrong, a stretch beyond the region at either side, or a right that the region lacks, then it is refused
    refused(|to| ((to.rkey ^= 1, 0).1, 8), all, IBV_WR_RDMA_WRITE, access);
    refused(|_| (4096 - 7, 8), all, IBV_WR_RDMA_WRITE, access);
    refused(|to| ((to.address -= 1, 0).1, 8), all, IBV_WR_RDMA_WRITE, access);
    let local = Options { access: IBV_ACCESS_LOCAL_WRITE, ..all };
    refused(|_| (0, 8), local, IBV_WR_RDMA_WRITE, access);
    refused(|_| (0, 8), local, IBV_WR_RDMA_READ, access);
    // given a right that the queue pair lacks, then it is an invalid request, whatever the key, and with nothing to write too
    let invalid = (IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    let deaf = Options { pair_access: 0, ..all };
    for opcode in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP] {
        refused(|to| ((to.rkey ^= 1, 0).1, 8), deaf, opcode, invalid);
    }
    refused(|_| (0, 0), deaf, IBV_WR_RDMA_WRITE, invalid);
}

fn local_errors() {
    // given an own key that does not cover the stretch
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 4096, Options::default());
    let mut beyond = a.sge(4090, 8);
    assert_eq!(a.post(write_to(&b.address(), 0, 1, 0), std::slice::from_mut(&mut beyond)), 0);
    // then the request fails here and the peer does not notice
    assert_eq!(a.wait().status, IBV_WC_LOC_PROT_ERR);
    assert_eq!((a.state(), b.state()), (IBV_QPS_ERR, IBV_QPS_RTS));
    // given requests that no device takes, then posting says so
    let (a, b) = pair(&verbs, 4096, Options::default());
    let to = b.address();
    assert_eq!(a.post(write_to(&to, 0, 1, IBV_SEND_INLINE), &mut [a.sge(0, 65)]), libc::EINVAL);
    assert_eq!(a.post(write_to(&to, 0, 1, 0), &mut [a.sge(0, 1); 5]), libc::EINVAL);
    assert_eq!(a.post(SendWr { opcode: 9, ..write_to(&to, 0, 1, 0) }, &mut [a.sge(0, 1)]), libc::EINVAL);
    assert_eq!(a.post(write_to(&to, 0, 1, IBV_SEND_INLINE | IBV_SEND_SIGNALED), &mut [a.sge(0, 64)]), 0);
    assert_eq!(a.wait().status, IBV_WC_SUCCESS);
}

fn receive_errors() {
    // given a receive that is too short
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 4096, Options::default());
    assert_eq!(b.receive(1, &mut [b.sge(0, 10)]), 0);
    let send = SendWr { wr_id: 2, opcode: IBV_WR_SEND, ..SendWr::default() };
    assert_eq!(a.post(send, &mut [a.sge(0, 11)]), 0);
    // then both sides fail, each in its way
    assert_eq!((b.wait().status, a.wait().status), (IBV_WC_LOC_LEN_ERR, IBV_WC_REM_INV_REQ_ERR));
    // given a receive whose key does not cover its memory
    let (a, b) = pair(&verbs, 4096, Options::default());
    assert_eq!(b.receive(1, &mut [b.sge(4000, 200)]), 0);
    let send = SendWr { wr_id: 2, opcode: IBV_WR_SEND, ..SendWr::default() };
    assert_eq!(a.post(send, &mut [a.sge(0, 11)]), 0);
    assert_eq!((b.wait().status, a.wait().status), (IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR));
    // given as many receives as there is room for, then one more is refused
    let (_a, b) = pair(&verbs, 4096, Options { receives: 3, ..Options::default() });
    for _ in 0..3 {
        assert_eq!(b.receive(1, &mut []), 0);
    }
    assert_eq!(b.receive(1, &mut []), libc::ENOMEM);
    assert_eq!(b.receive(1, &mut [b.sge(0, 1); 5]), libc::EINVAL);
}

fn no_receive() {
    // given a sender that waits for receives for ever
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 4096, Options::default());
    let send = || SendWr { wr_id: 2, opcode: IBV_WR_SEND, send_flags: IBV_SEND_SIGNALED, ..SendWr::default() };
    assert_eq!(a.post(send(), &mut [a.sge(0, 11)]), 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(a.poll().is_none());
    // when a receive comes, then the message does
    assert_eq!(b.receive(1, &mut [b.sge(0, 11)]), 0);
    assert_eq!((b.wait().status, a.wait().status), (IBV_WC_SUCCESS, IBV_WC_SUCCESS));
    // given one with few retries and no receive, then it fails
    let (a, b) = pair(&verbs, 4096, Options { rnr_retries: 2, ..Options::default() });
    assert_eq!(a.post(send(), &mut [a.sge(0, 11)]), 0);
    assert_eq!(a.wait().status, IBV_WC_RNR_RETRY_EXC_ERR);
    assert_eq!((a.state(), b.state()), (IBV_QPS_ERR, IBV_QPS_RTS));
}

fn states() {
    let verbs = Verbs::load();
    let a = End::open(&verbs, "a-m0", 64, Options::default());
    let b = End::open(&verbs, "b-m0", 64, Options::default());
    let (to_a, to_b) = (a.address(), b.address());
    // given a pair before it can send, then posting is refused
    assert_eq!(a.post(write_to(&to_b, 0, 1, 0), &mut []), libc::EINVAL);
    assert_eq!(a.receive(1, &mut []), libc::EINVAL);
    a.to_init();
    assert_eq!(a.state(), IBV_QPS_INIT);
    assert_eq!(a.receive(1, &mut []), 0);
    // steps that leave states out, or values that a step needs, are refused
    let mut attr = QpAttr { qp_state: IBV_QPS_RTS, ..QpAttr::default() };
    assert_eq!(a.modify(&mut attr, IBV_QP_STATE), libc::EINVAL);
    let mut attr = QpAttr { qp_state: IBV_QPS_RTR, ..QpAttr::default() };
    assert_eq!(a.modify(&mut attr, IBV_QP_STATE | IBV_QP_AV), libc::EINVAL);
    assert_eq!(a.to_rtr(&to_b), 0);
    assert_eq!(a.post(write_to(&to_b, 0, 1, 0), &mut []), libc::EINVAL);
    a.to_rts();
    // a request before the peer is ready waits for it
    assert_eq!(a.post(write_to(&to_b, 0, 4, IBV_SEND_SIGNALED), &mut [a.sge(0, 8)]), 0);
    b.connect(&to_a);
    assert_eq!((a.wait().wr_id, a.state()), (4, IBV_QPS_RTS));
    // what was set can be asked for
    let (mut attr, mut init) = (QpAttr::default(), std::mem::MaybeUninit::<QpInitAttr>::uninit());
    // SAFETY: both are filled by the call.
    unsafe { assert_eq!((verbs.query_qp)(a.qp, &raw mut attr, 0, init.as_mut_ptr()), 0) };
    assert_eq!((attr.qp_state, attr.dest_qp_num, attr.timeout), (IBV_QPS_RTS, to_b.qpn, 8));
    assert_eq!(attr.ah_attr.grh.dgid, to_b.gid);
    // reset forgets the receive that was posted, and the pair can be used again
    a.to(IBV_QPS_RESET);
    b.to(IBV_QPS_RESET);
    assert!(a.poll().is_none());
    a.connect(&to_b);
    b.connect(&to_a);
    assert_eq!(a.post(write_to(&to_b, 0, 6, IBV_SEND_SIGNALED), &mut [a.sge(0, 8)]), 0);
    assert_eq!(a.wait().wr_id, 6);
}

fn uncabled() {
    // given ports that no cable joins, and a GID that no port has
    let verbs = Verbs::load();
    let a = End::open(&verbs, "a-m0", 64, Options::default());
    let c = End::open(&verbs, "c-m0", 64, Options::default());
    a.to_init();
    assert_eq!(a.to_rtr(&c.address()), libc::ETIMEDOUT);
    let nobody = Address { gid: Gid { raw: Ipv4Addr::new(9, 9, 9, 9).to_ipv6_mapped().octets() }, ..c.address() };
    assert_eq!(a.to_rtr(&nobody), libc::ETIMEDOUT);
    // then the pair stays where it was, and the way to oneself is open
    assert_eq!(a.state(), IBV_QPS_INIT);
    assert_eq!(a.to_rtr(&a.address()), 0);
    // and an own GID that is not in the table, or of another family than the peer's, is an error of another kind
    assert_eq!(a.to_rtr(&Address { gid: Gid { raw: [9; 16] }, ..c.address() }), libc::EINVAL);
    let b = End::open(&verbs, "b-m1", 64, Options::default());
    b.to_init();
    let mut attr = QpAttr { qp_state: IBV_QPS_RTR, path_mtu: IBV_MTU_4096, ..QpAttr::default() };
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh = GlobalRoute { dgid: c.address().gid, sgid_index: 4, ..GlobalRoute::default() };
    assert_eq!(b.modify(&mut attr, i32::MAX), libc::EINVAL);
}

fn nobody_answers() {
    // given a peer that is gone
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 4096, Options::default());
    let to = b.address();
    b.destroy_qp();
    // when two requests are posted, then the first runs out of retries and the second is flushed
    assert_eq!(a.post(write_to(&to, 0, 1, 0), &mut [a.sge(0, 8)]), 0);
    assert_eq!(a.post(write_to(&to, 0, 2, 0), &mut [a.sge(0, 8)]), 0);
    let wc = a.wait();
    assert_eq!((wc.wr_id, wc.status), (1, IBV_WC_RETRY_EXC_ERR));
    let wc = a.wait();
    assert_eq!((wc.wr_id, wc.status), (2, IBV_WC_WR_FLUSH_ERR));
    // given a queue with room for two, then a third that waits finds none
    let (a, b) = pair(&verbs, 4096, Options { sends: 2, timeout: 0, ..Options::default() });
    let to = b.address();
    b.to(IBV_QPS_RESET);
    for expected in [0, 0, libc::ENOMEM] {
        assert_eq!(a.post(write_to(&to, 0, 1, 0), &mut [a.sge(0, 8)]), expected);
    }
}

fn error_state_flushes() {
    // given requests that wait and receives that are posted
    let verbs = Verbs::load();
    let (a, b) = pair(&verbs, 4096, Options { timeout: 0, ..Options::default() });
    let to = b.address();
    b.to(IBV_QPS_RESET);
    assert_eq!(a.receive(1, &mut []), 0);
    assert_eq!(a.post(write_to(&to, 0, 2, 0), &mut [a.sge(0, 8)]), 0);
    // when the pair is taken to error
    a.to(IBV_QPS_ERR);
    // then both are flushed, and whatever is posted later is too
    let mut seen = [a.wait(), a.wait()].map(|wc| (wc.wr_id, wc.status));
    seen.sort_unstable();
    assert_eq!(seen, [(1, IBV_WC_WR_FLUSH_ERR), (2, IBV_WC_WR_FLUSH_ERR)]);
    assert_eq!(a.receive(3, &mut []), 0);
    assert_eq!(a.wait().wr_id, 3);
    assert_eq!(a.post(write_to(&to, 0, 4, 0), &mut []), 0);
    assert_eq!((a.wait().wr_id, a.state()), (4, IBV_QPS_ERR));
}

fn old_port_attributes() {
    // given the plain symbol, which programs call with an older and shorter struct, then nothing beyond it is written
    let verbs = Verbs::load();
    assert_eq!(End::open(&verbs, "a-m0", 64, Options::default()).port_state(), IBV_PORT_ACTIVE);
}
