//! What connections that share relays do to each other, and what happens when a relay is gone.

use std::time::Duration;

use mesh_abi::NcclResult;
use mesh_abi::caller::CallError;

use crate::node::{Node, Pause};
use crate::pump::{Plan, ReceivePump, SendPump, run};
use crate::scenario::{Fabric, LINE, passed, scenario};

/// Few slots, so that one connection could take them all.
const NARROW: &[&str] = &["NCCL_MESH_RELAY_SLOTS=2", "NCCL_MESH_TRUNK_SLOTS=2", "NCCL_MESH_SOCKET_BUFFER_KB=64"];

/// What a process says at its end goes to standard error only if that is asked for: NCCL's logger is gone by then.
const ENDING: &[&str] = &["NCCL_MESH_DRAIN_MS=200", "NCCL_MESH_DEBUG=1"];

const fn plan(seed: u64, count: u64) -> Plan {
    Plan { seed, count, slot: 300_000, depth: 8, size: |random, _| 100_000 + random as usize % 200_000 }
}

scenario! {
    a_receiver_that_stands_still_does_not_stop_others on Fabric { env: NARROW, ..LINE }, |node| {
        for peer in [2, 3] {
            let name = |what: &str| format!("{what}{peer}");
            if node.rank == 0 {
                // given a connection whose receives are posted but not looked at, with as much sent as goes
                let slow = node.sender(&name("slow"));
                let mut sending = SendPump::new(node, slow, plan(1, 40));
                node.hub.get(&name("posted"));
                let mut pause = Pause::default();
                for _ in 0..2000 {
                    pause.moved(sending.step(node).expect("sending"));
                }
                // when another passes through the same relays, while the first is still being pushed
                let fast = node.sender(&name("fast"));
                let mut other = SendPump::new(node, fast, plan(2, 100));
                while !other.done() {
                    let moved = other.step(node).expect("sending");
                    pause.moved(sending.step(node).expect("sending") || moved);
                }
                // then it comes to its end, and after that so does the first
                other.finish(node);
                run(node, vec![sending], vec![]);
                node.close_sender(slow);
                node.close_sender(fast);
            } else if node.rank == peer {
                let slow = node.receiver(&name("slow"));
                let mut receiving = ReceivePump::new(node, slow, plan(1, 40));
                receiving.post(node).expect("irecv");
                node.hub.put(&name("posted"), &[]);
                let fast = node.receiver(&name("fast"));
                run(node, vec![], vec![ReceivePump::new(node, fast, plan(2, 100))]);
                run(node, vec![], vec![receiving]);
                node.close_receiver(slow);
                node.close_receiver(fast);
            }
        }
    }
}

scenario! {
    all_send_to_all_with_one_slot_a_class on Fabric {
        shape: "ring",
        nodes: 5,
        env: &["NCCL_MESH_RELAY_SLOTS=1", "NCCL_MESH_TRUNK_SLOTS=1"],
        ..LINE
    }, |node| {
        let others: Vec<usize> = (0..node.world).filter(|rank| *rank != node.rank).collect();
        let name = |from: usize, to: usize| format!("{from}>{to}");
        let listeners: Vec<_> = others.iter().map(|from| node.listen(&name(*from, node.rank))).collect();
        let senders: Vec<_> = others.iter().map(|to| node.sender(&name(node.rank, *to))).collect();
        let receivers: Vec<_> = listeners.iter().map(|listen| node.accept(listen)).collect();
        listeners.into_iter().for_each(|listen| node.plugin.close_listen(listen).unwrap());
        let plan = |from: usize, to: usize| plan((from * 8 + to) as u64, 12);
        let sending = senders.iter().zip(&others).map(|(comm, to)| SendPump::new(node, *comm, plan(node.rank, *to)));
        let receiving =
            receivers.iter().zip(&others).map(|(comm, from)| ReceivePump::new(node, *comm, plan(*from, node.rank)));
        run(node, sending.collect(), receiving.collect());
        senders.into_iter().for_each(|comm| node.close_sender(comm));
        receivers.into_iter().for_each(|comm| node.close_receiver(comm));
    }
}

/// Runs a pump until the connection reports an error.
fn until_error(mut step: impl FnMut() -> Result<bool, CallError>) -> CallError {
    let mut pause = Pause::default();
    loop {
        match step() {
            Ok(moved) => pause.moved(moved),
            Err(error) => return error,
        }
    }
}

/// Rank 0 sends to rank 3 for ever, and rank 1 goes by `end` in the middle of it.
fn lose_a_relay(node: &Node, end: fn()) {
    let mut plan = plan(25, u64::MAX);
    plan.slot = 300_000;
    let error = match node.rank {
        0 => {
            let comm = node.sender("way");
            let mut pump = SendPump::new(node, comm, plan);
            let error = until_error(|| pump.step(node));
            // and says the same again
            assert_eq!(pump.step(node).map_err(|error| error.code()), Err(error.code()));
            node.close_sender(comm);
            error
        }
        3 => {
            let comm = node.receiver("way");
            let mut pump = ReceivePump::new(node, comm, plan);
            let mut steps = 0;
            let error = until_error(|| {
                steps += 1;
                if steps == 50 {
                    node.hub.put("flowing", &[]);
                }
                pump.step(node)
            });
            node.close_receiver(comm);
            error
        }
        1 => {
            node.hub.get("flowing");
            return end();
        }
        _ => return,
    };
    // then both ends are told, in bounded time
    assert_eq!(error.code(), Some(NcclResult::RemoteError), "{error}");
}

scenario! {
    both_ends_learn_that_a_relay_was_killed on Fabric { leaves: Some(1), ..LINE }, |node| {
        lose_a_relay(node, || {
            // SAFETY: no memory is involved.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        });
    }, judged by |ran, _| {
        assert_eq!(ran.status, Some(137), "{}", ran.told());
        passed(ran, [0, 2, 3]);
    }
}

scenario! {
    both_ends_learn_that_a_relay_has_ended on Fabric { leaves: Some(1), env: ENDING, ..LINE }, |node| {
        lose_a_relay(node, || ());
    }, judged by |ran, _| {
        passed(ran, [0, 1, 2, 3]);
        // The relay says what it does to others, and each end which node to look at.
        assert!(!ran.lines_with("mesh[W45] node node1").is_empty(), "{}", ran.told());
        assert!(!ran.lines_with("mesh[E").is_empty(), "{}", ran.told());
    }
}

scenario! {
    a_middle_node_without_a_communicator_still_relays on LINE, |node| {
        // given relays whose only communicator has ended
        if node.rank == 1 || node.rank == 2 {
            let again = node.plugin.init(99, -1, None).expect("init");
            node.plugin.finalize(again).expect("finalize");
        }
        node.hub.barrier("ended");
        let plan = plan(26, 30);
        if node.rank == 0 {
            let comm = node.sender("way");
            run(node, vec![SendPump::new(node, comm, plan)], vec![]);
            // then an idle connection is no stalled one, and goes on
            std::thread::sleep(Duration::from_millis(1500));
            run(node, vec![SendPump::new(node, comm, plan)], vec![]);
            node.close_sender(comm);
        } else if node.rank == 3 {
            let comm = node.receiver("way");
            run(node, vec![], vec![ReceivePump::new(node, comm, plan)]);
            run(node, vec![], vec![ReceivePump::new(node, comm, plan)]);
            node.close_receiver(comm);
        }
    }
}
