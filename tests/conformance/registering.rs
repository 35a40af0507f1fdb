//! Registrations: shared by connections, of parts, given back in any order, also while they are in use.

use mesh_abi::{NcclResult, PTR_CUDA, PTR_HOST};

use crate::memory::{Area, differs, fill};
use crate::node::Node;
use crate::pump::{Plan, ReceivePump, SendPump, run};
use crate::scenario::{Fabric, LINE, scenario};

const LEN: usize = 100_000;
const COMMS: usize = 4;

/// Rank 0 and `peer` with several connections from 0 to it.
fn comms<T>(node: &Node, peer: usize, make: impl Fn(&Node, &str) -> T) -> Vec<T> {
    (0..COMMS).map(|index| make(node, &format!("to{peer}#{index}"))).collect()
}

scenario! {
    one_buffer_serves_many_connections on LINE, |node| {
        for peer in 1..node.world {
            if node.rank == 0 {
                // given one buffer, registered whole by four connections, twice by the first of them, and in overlapping parts
                let comms = comms(node, peer, Node::sender);
                let mut area = Area::new(LEN);
                fill(area.bytes_mut(0..LEN), 22);
                let whole: Vec<_> = comms.iter().map(|comm| node.register(*comm, &area)).collect();
                let again = node.register(comms[0], &area);
                let part = |start, len| node.plugin.reg_mr(comms[1], area.at(start), len, PTR_HOST).expect("regMr");
                let parts = [part(1, 999), part(500, 1000), part(0, 0)];
                // when all send from it, and registrations go in another order than they came
                let send = |index: usize, start, len, mh| node.wait_all([node.send(comms[index], &area, start, len, mh)]);
                (0..COMMS).for_each(|index| send(index, 0, LEN, whole[index]));
                node.deregister(comms[2], whole[2]);
                node.deregister(comms[0], whole[0]);
                send(0, 0, LEN, again);
                send(1, 1, 999, parts[0]);
                node.deregister(comms[1], parts[0]);
                send(1, 500, 1000, parts[1]);
                send(1, 0, LEN, whole[1]);
                // then what is not registered is refused, by size and numbers and not by a crash
                let before = node.try_send(comms[1], &area, 499, 10, parts[1]).expect_err("starts before it");
                assert_eq!(before.code(), Some(NcclResult::InvalidUsage));
                let behind = node.try_send(comms[3], &area, 0, LEN, parts[2]).expect_err("longer than it");
                assert_eq!(behind.code(), Some(NcclResult::InvalidUsage));
                let device = node.plugin.reg_mr(comms[1], area.at(0), 8, PTR_CUDA).expect_err("no device memory");
                assert_eq!(device.code(), Some(NcclResult::InvalidUsage));
                node.deregister(comms[1], parts[2]);
                node.deregister(comms[1], parts[1]);
                node.deregister(comms[3], whole[3]);
                node.deregister(comms[1], whole[1]);
                node.deregister(comms[0], again);
                area.check_guards();
                comms.into_iter().for_each(|comm| node.close_sender(comm));
            } else if node.rank == peer {
                let comms = comms(node, peer, Node::receiver);
                let area = Area::new(LEN);
                let whole: Vec<_> = comms.iter().map(|comm| node.register(*comm, &area)).collect();
                let receive = |index: usize| node.wait(node.receive(comms[index], &area, 0, LEN, whole[index]));
                for index in (0..COMMS).chain([0]) {
                    assert_eq!(receive(index), LEN);
                    assert_eq!(differs(area.bytes(0..LEN), 22), None);
                }
                // Registered for others still, it serves those although one took its own back.
                node.deregister(comms[0], whole[0]);
                assert_eq!([receive(1), receive(1), receive(1)], [999, 1000, LEN]);
                assert_eq!(differs(area.bytes(0..LEN), 22), None);
                (1..COMMS).for_each(|index| node.deregister(comms[index], whole[index]));
                comms.into_iter().for_each(|comm| node.close_receiver(comm));
            }
        }
    }
}

/// Memory whose every use is a fault once it is gone.
struct Mapping(*mut u8, usize);

impl Mapping {
    fn new(len: usize) -> Self {
        // SAFETY: a new private mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start.cast(), len)
    }

    fn unmap(self) {
        // SAFETY: mapped with this length; whoever still used it would be the fault that is looked for.
        assert_eq!(unsafe { libc::munmap(self.0.cast(), self.1) }, 0);
    }
}

scenario! {
    memory_may_go_right_after_deregistration_with_requests_open on Fabric { env: &["NCCL_MESH_RELAY_SLOTS=4"], ..LINE }, |node| {
        const PARTS: usize = 8;
        const PART: usize = 1 << 20;
        for peer in 1..node.world {
            for round in 0..3 {
                let name = |what: &str| format!("{what}{peer}-{round}");
                let map = Mapping::new(PARTS * PART);
                // SAFETY: (both) inside the mapping while it is there.
                let at = |part: usize| unsafe { map.0.add(part * PART) };
                if node.rank == 0 {
                    // given large sends under way to receives that are posted
                    let comm = node.sender(&name("way"));
                    let mh = node.plugin.reg_mr(comm, map.0, PARTS * PART, PTR_HOST).expect("regMr");
                    node.hub.get(&name("posted"));
                    for part in 0..PARTS {
                        // SAFETY: mapped; what happens when it is not any more is the question.
                        unsafe { node.plugin.isend(comm, at(part), PART, 0, mh) }.expect("isend").expect("room");
                    }
                    // when the sender's memory (round 0, 1) goes away right after its registration
                    node.hub.put(&name("sent"), &[]);
                    if round < 2 {
                        node.deregister(comm, mh);
                        map.unmap();
                        node.hub.barrier_of(&name("gone"), &[0, peer]);
                        node.close_sender(comm);
                    } else {
                        node.hub.barrier_of(&name("gone"), &[0, peer]);
                        node.deregister(comm, mh);
                        node.close_sender(comm);
                        map.unmap();
                    }
                } else if node.rank == peer {
                    let comm = node.receiver(&name("way"));
                    let mh = node.plugin.reg_mr(comm, map.0, PARTS * PART, PTR_HOST).expect("regMr");
                    for part in 0..PARTS {
                        // SAFETY: as above.
                        unsafe { node.plugin.irecv(comm, at(part), PART, 0, mh, false) }.expect("irecv").expect("room");
                    }
                    node.hub.put(&name("posted"), &[]);
                    node.hub.get(&name("sent"));
                    // or the receiver's (round 1, 2)
                    if round > 0 {
                        node.deregister(comm, mh);
                        map.unmap();
                        node.hub.barrier_of(&name("gone"), &[0, peer]);
                        node.close_receiver(comm);
                    } else {
                        node.hub.barrier_of(&name("gone"), &[0, peer]);
                        node.deregister(comm, mh);
                        node.close_receiver(comm);
                        map.unmap();
                    }
                } else {
                    map.unmap();
                }
            }
            // then nobody crashes, and further connections work
            let plan = Plan { seed: 22, count: 10, slot: 5000, depth: 4, size: |random, _| random as usize % 5000 };
            let name = format!("after{peer}");
            if node.rank == 0 {
                let comm = node.sender(&name);
                run(node, vec![SendPump::new(node, comm, plan)], vec![]);
                node.close_sender(comm);
            } else if node.rank == peer {
                let comm = node.receiver(&name);
                run(node, vec![], vec![ReceivePump::new(node, comm, plan)]);
                node.close_receiver(comm);
            }
        }
    }
}
