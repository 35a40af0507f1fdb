//! Random traffic against a model of both memories, and the newer way of posting.

#![allow(unsafe_code, reason = "drives a C library")]

mod support;

use std::ffi::c_void;

use mesh_soft_verbs::abi::*;
use support::Scene;
use support::ends::{End, Options, Verbs, pair, write_to};

const FABRIC: &str = "port a m0 10.0.0.1 100G\nport b m0 10.0.0.2 100G\ncable 10.0.0.1 10.0.0.2\n";

const SCENARIOS: &[(&str, fn())] = &[("random", random), ("newer_calls", newer_calls)];

#[test]
#[ignore = "runs as a child of the other tests"]
fn scenarios() {
    support::play(SCENARIOS);
}

#[test]
fn both_scenarios_in_both_engines() {
    for mode in ["engine inline", "engine clock\nstrict on"] {
        for (name, _) in SCENARIOS {
            Scene::new(&format!("{FABRIC}{mode}\n")).run(name);
        }
    }
}

/// Xorshift: small, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

const BYTES: usize = 1 << 16;

/// A length that is often small and sometimes large.
fn length(dice: &mut Dice) -> usize {
    match dice.below(4) {
        0 => dice.below(10),
        1 => dice.below(200),
        2 => dice.below(5000),
        _ => dice.below(BYTES / 2),
    }
}

/// Random places of `total` bytes in up to three stretches, which may overlap.
fn stretches(dice: &mut Dice, total: usize) -> Vec<(usize, usize)> {
    let mut left = total;
    let mut list = Vec::new();
    while list.len() < 2 && left > 0 {
        let piece = dice.below(left + 1);
        list.push((dice.below(BYTES - piece), piece));
        left -= piece;
    }
    list.push((dice.below(BYTES - left), left));
    list
}

fn gather(memory: &[u8], list: &[(usize, usize)]) -> Vec<u8> {
    list.iter().flat_map(|&(at, length)| memory[at..at + length].to_vec()).collect()
}

fn scatter(memory: &mut [u8], list: &[(usize, usize)], bytes: &[u8]) {
    let mut from = 0;
    for &(at, length) in list {
        let length = length.min(bytes.len() - from);
        memory[at..at + length].copy_from_slice(&bytes[from..from + length]);
        from += length;
    }
}

fn random() {
    let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x5eed_1234_5678_9abc);
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let verbs = Verbs::load();
    let (mut a, mut b) = pair(&verbs, BYTES, Options::default());
    for end in [&mut a, &mut b] {
        end.memory.iter_mut().for_each(|byte| *byte = dice.below(256) as u8);
    }
    let (mut model_a, mut model_b) = (a.memory.clone(), b.memory.clone());
    for step in 0..2000u64 {
        // given either end as the sender
        let swapped = dice.below(2) == 1;
        let (from, to) = if swapped { (&b, &a) } else { (&a, &b) };
        let (own, other) = if swapped { (&mut model_b, &mut model_a) } else { (&mut model_a, &mut model_b) };
        let total = length(&mut dice);
        let list = stretches(&mut dice, total);
        let target = dice.below(BYTES - total);
        let sges = |end: &End<'_>, list: &[(usize, usize)]| -> Vec<Sge> {
            list.iter().map(|&(at, length)| end.sge(at, length)).collect()
        };
        let mut wr = write_to(&to.address(), target as u64, step, IBV_SEND_SIGNALED);
        // when a request of a random kind is posted
        let kind = dice.below(4);
        match kind {
            0 => {
                let bytes = gather(own, &list);
                scatter(other, &[(target, total)], &bytes);
            }
            1 => {
                wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
                wr.imm_data = step as u32;
                assert_eq!(to.receive(step, &mut []), 0);
                let bytes = gather(own, &list);
                scatter(other, &[(target, total)], &bytes);
            }
            2 => {
                wr.opcode = IBV_WR_SEND;
                let spare = dice.below(100).min(BYTES - total);
                let places = stretches(&mut dice, total + spare);
                assert_eq!(to.receive(step, &mut sges(to, &places)), 0);
                let bytes = gather(own, &list);
                scatter(other, &places, &bytes);
            }
            _ => {
                wr.opcode = IBV_WR_RDMA_READ;
                let bytes = other[target..target + total].to_vec();
                scatter(own, &list, &bytes);
            }
        }
        assert_eq!(from.post(wr, &mut sges(from, &list)), 0);
        let wc = from.wait();
        assert_eq!((wc.status, wc.wr_id), (IBV_WC_SUCCESS, step), "seed {seed}, step {step}");
        if kind == 1 || kind == 2 {
            let wc = to.wait();
            assert_eq!((wc.status, wc.wr_id, wc.byte_len), (IBV_WC_SUCCESS, step, total as u32), "step {step}");
        }
        // then both memories are as the model says, looked at now and then
        if step % 50 == 0 {
            assert!(a.memory == model_a && b.memory == model_b, "seed {seed}: memory differs by step {step}");
        }
    }
    assert!(a.memory == model_a && b.memory == model_b, "seed {seed}: memory differs");
}

fn newer_calls() {
    let verbs = Verbs::load();
    let (mut a, b) = pair(&verbs, 4096, Options { sends: 4, ..Options::default() });
    a.memory.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    let to = b.address();
    let lkey = a.sge(0, 0).lkey;
    let own = a.address().address;
    let qp = a.qp.cast::<QpEx>();
    // SAFETY: the struct of a live queue pair, and its functions called as the manual says: between start and completion.
    unsafe {
        let start = (*qp).wr_start.expect("set");
        let complete = (*qp).wr_complete.expect("set");
        let write = (*qp).wr_rdma_write.expect("set");
        let set_sge = (*qp).wr_set_sge.expect("set");
        // given three requests of different kinds in one go
        assert_eq!(b.receive(70, &mut []), 0);
        start(qp);
        (*qp).wr_id = 1;
        (*qp).wr_flags = 0;
        write(qp, to.rkey, to.address);
        set_sge(qp, lkey, own, 100);
        write(qp, to.rkey, to.address + 100);
        let list =
            [DataBuf { addr: std::ptr::with_exposed_provenance_mut::<c_void>(own as usize + 100), length: 20 }; 2];
        (*qp).wr_set_inline_data_list.expect("set")(qp, 2, list.as_ptr());
        (*qp).wr_id = 3;
        (*qp).wr_flags = IBV_SEND_SIGNALED;
        (*qp).wr_rdma_write_imm.expect("set")(qp, to.rkey, to.address + 140, 9u32.to_be());
        let sges = [a.sge(140, 60), a.sge(200, 100)];
        (*qp).wr_set_sge_list.expect("set")(qp, 2, sges.as_ptr());
        assert!(b.poll().is_none());
        // when completed, then all are carried out in order
        assert_eq!(complete(qp), 0);
        assert_eq!((a.wait().wr_id, b.wait().imm_data), (3, 9u32.to_be()));
        assert_eq!(b.memory[..120], a.memory[..120]);
        assert_eq!(b.memory[120..140], a.memory[100..120]);
        assert_eq!(b.memory[140..300], a.memory[140..300]);
        // given requests that are given up, then nothing happens
        start(qp);
        write(qp, to.rkey, to.address + 1000);
        set_sge(qp, lkey, own, 100);
        (*qp).wr_abort.expect("set")(qp);
        // given data without a request, or more requests than there is room for, then none of them is posted
        start(qp);
        set_sge(qp, lkey, own, 100);
        assert_eq!(complete(qp), libc::EINVAL);
        start(qp);
        for _ in 0..5 {
            write(qp, to.rkey, to.address + 1000);
            set_sge(qp, lkey, own, 8);
        }
        assert_eq!(complete(qp), libc::ENOMEM);
        assert!(b.memory[1000..].iter().all(|&byte| byte == 0));
        // and the pair is as good as before
        start(qp);
        (*qp).wr_id = 8;
        (*qp).wr_rdma_read.expect("set")(qp, to.rkey, to.address + 2000);
        set_sge(qp, lkey, own, 8);
        assert_eq!(complete(qp), 0);
    }
    assert_eq!((a.wait().wr_id, a.memory[0]), (8, 0));
}
