//! Closing in the middle of transfers, forks, and many connections one after another.

use mesh_abi::caller::CallError;
use mesh_abi::{CommAttr, MAX_REQUESTS, NcclResult, NetAttr};

use crate::memory::Area;
use crate::node::{Node, until};
use crate::pump::{Plan, ReceivePump, SendPump, mixed, run};
use crate::scenario::{LINE, scenario};

const PLAN: Plan = Plan { seed: 27, count: 12, slot: 20_000, depth: 4, size: mixed };

const UNKNOWN: CommAttr =
    CommAttr { max_concurrent_peers: -1, min_concurrent_peers: -1, max_flows_per_peer: -1, min_flows_per_peer: -1 };
const ANY_ATTRIBUTES: NetAttr =
    NetAttr { send_comm_attr: UNKNOWN, recv_comm_attr: UNKNOWN, op: u32::MAX, algo: u32::MAX, proto: u32::MAX };

scenario! {
    closing_with_all_requests_open_ends_at_once on LINE, |node| {
        const PART: usize = 100_000;
        for peer in 1..node.world {
            for round in 0..6 {
                let name = |what: &str| format!("{what}{peer}-{round}");
                // given as many requests open on both sides as go; in odd rounds receives are too late for most sends
                if node.rank == 0 {
                    let comm = node.sender(&name("way"));
                    let area = Area::new(MAX_REQUESTS * PART);
                    let registration = node.register(comm, &area);
                    for part in 0..MAX_REQUESTS {
                        // The receiver may have closed already, which is an error but no hang.
                        let _ = node.try_send(comm, &area, part * PART, PART, registration);
                    }
                    // when one side or the other closes first, as an abort does: registration, then connection
                    if round % 3 == 1 {
                        node.hub.get(&name("closed"));
                    }
                    node.deregister(comm, registration);
                    node.close_sender(comm);
                    node.hub.put(&name("closed"), &[]);
                    area.check_guards();
                } else if node.rank == peer {
                    let comm = node.receiver(&name("way"));
                    let area = Area::new(MAX_REQUESTS * PART);
                    let registration = node.register(comm, &area);
                    let parts = if round % 2 == 0 { MAX_REQUESTS } else { 3 };
                    for part in 0..parts {
                        let _ = node.try_receive(comm, &area, part * PART, PART, registration, false);
                    }
                    if round % 3 == 2 {
                        node.hub.get(&name("closed"));
                    }
                    node.deregister(comm, registration);
                    node.close_receiver(comm);
                    node.hub.put(&name("closed"), &[]);
                    area.check_guards();
                }
            }
            // then the next connection works
            let name = format!("after{peer}");
            if node.rank == 0 {
                let comm = node.sender(&name);
                run(node, vec![SendPump::new(node, comm, PLAN)], vec![]);
                node.close_sender(comm);
            } else if node.rank == peer {
                let comm = node.receiver(&name);
                run(node, vec![], vec![ReceivePump::new(node, comm, PLAN)]);
                node.close_receiver(comm);
            }
        }
    }
}

scenario! {
    one_communicator_ends_during_traffic_of_another on LINE, |node| {
        // given a second communicator with a connection of its own, and traffic on the first
        let second = node.plugin.init(2, -1, None).expect("init");
        let plan = Plan { count: 400, ..PLAN };
        if node.rank == 0 {
            let (first, other) = (node.sender("first"), node.sender("second"));
            let mut pump = SendPump::new(node, first, plan);
            while !pump.step(node).expect("sending") {}
            node.close_sender(other);
            node.plugin.finalize(second).expect("finalize");
            run(node, vec![pump], vec![]);
            node.close_sender(first);
        } else if node.rank == 3 {
            let (first, other) = (node.receiver("first"), node.receiver("second"));
            let mut pump = ReceivePump::new(node, first, plan);
            while !pump.step(node).expect("receiving") {}
            node.close_receiver(other);
            node.plugin.finalize(second).expect("finalize");
            run(node, vec![], vec![pump]);
            node.close_receiver(first);
        } else {
            node.plugin.finalize(second).expect("finalize");
        }
    }
}

/// Forks; the child makes calls that must be refused, and exits with the number of those that were.
fn fork_and_misuse(node: &Node) -> i32 {
    // SAFETY: the child makes calls of the plugin, which refuses them before it takes a lock, and ends without running any
    // handler of this process.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "fork");
        if child == 0 {
            let refused = [
                node.plugin.devices().map(drop),
                node.plugin.set_net_attr(node.ctx, &mut { ANY_ATTRIBUTES }),
                node.plugin.finalize(node.ctx),
            ];
            let code = |call: &Result<(), CallError>| call.err().and_then(|error| error.code());
            let count = refused.iter().filter(|call| code(call) == Some(NcclResult::SystemError)).count();
            libc::_exit(count as i32);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status), "the child ended by {status:#x}");
        libc::WEXITSTATUS(status)
    }
}

scenario! {
    a_child_of_fork_disturbs_nobody on LINE, |node| {
        node.each_way(
            |comm, _| {
                let mut pump = SendPump::new(node, comm, Plan { count: 100, ..PLAN });
                while !pump.step(node).expect("sending") {}
                // given a child in the middle of traffic, which calls the plugin and exits; setNetAttr may do nothing at all
                let refused = fork_and_misuse(node);
                assert!(refused == 2 || refused == 3, "{refused} calls were refused");
                // then the parent's connections go on
                run(node, vec![pump], vec![]);
            },
            |comm, _| {
                let mut pump = ReceivePump::new(node, comm, Plan { count: 100, ..PLAN });
                while !pump.step(node).expect("receiving") {}
                fork_and_misuse(node);
                run(node, vec![], vec![pump]);
            },
        );
    }
}

/// What this process holds: descriptors and threads.
fn held() -> (usize, usize) {
    let count = |folder| std::fs::read_dir(folder).unwrap().count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

scenario! {
    hundreds_of_connections_leave_nothing_behind on LINE, |node| {
        const WARM: usize = 10;
        const CYCLES: usize = 110;
        let mut before = None;
        for cycle in 0..CYCLES {
            if cycle == WARM {
                // given what is held after a few connections, trunks between the relays among it, on all nodes
                node.hub.barrier("warm");
                before = Some(until_settled(None));
                node.hub.barrier("counted");
            }
            // when connections over every number of relays come and go, one communicator each time
            let ctx = node.plugin.init(cycle as u64, -1, None).expect("init");
            for peer in 1..node.world {
                let name = format!("{cycle}-{peer}");
                let plan = Plan { count: 2, ..PLAN };
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
            node.plugin.finalize(ctx).expect("finalize");
        }
        node.hub.barrier("cycled");
        // then no node holds more than before: closed connections linger for a bounded time, so it may take a moment
        until_settled(before);
    }
}

/// Waits until no more is held than `limit`, or, without one, until the count has not changed for a second.
fn until_settled(limit: Option<(usize, usize)>) -> (usize, usize) {
    let (mut last, mut same) = (held(), 0);
    until(|| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = held();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        match limit {
            None => (same >= 20).then_some(now),
            Some((descriptors, threads)) => (now.0 <= descriptors && now.1 <= threads).then_some(now),
        }
    })
}

scenario! {
    net_attributes_may_be_set_by_two_threads_at_any_rate on LINE, |node| {
        // given traffic, and two threads that set attributes as often as NCCL's do
        node.each_way(
            |comm, _| std::thread::scope(|scope| {
                let plugin = &node.plugin;
                let set = |ctx| {
                    for _ in 0..20_000 {
                        let outcome = plugin.set_net_attr(ctx, &mut { ANY_ATTRIBUTES });
                        let missing = matches!(outcome, Err(CallError::Missing { .. }));
                        assert!(missing || outcome.is_ok(), "{outcome:?}");
                    }
                };
                let ctx = node.ctx;
                let threads = [ctx, ctx].map(|ctx| scope.spawn(move || set(ctx)));
                run(node, vec![SendPump::new(node, comm, Plan { count: 100, ..PLAN })], vec![]);
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            }),
            |comm, _| run(node, vec![], vec![ReceivePump::new(node, comm, Plan { count: 100, ..PLAN })]),
        );
    }
}
