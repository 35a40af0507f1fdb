//! Listen, connect, accept, close: nothing waits, whatever the order.

use mesh_abi::HANDLE_BYTES;
use mesh_abi::caller::{ListenComm, RecvComm, SendComm};

use crate::memory::{Area, differs, fill};
use crate::node::{Handle, Node, Pause, until};
use crate::pump::{Plan, ReceivePump, SendPump, mixed, run};
use crate::scenario::{Fabric, LINE, scenario};

/// Polls that must all return, though nobody answers.
const POLLS: usize = 100_000;

/// A few messages, checked.
fn talk(node: &Node, sender: Option<SendComm>, receiver: Option<RecvComm>, seed: u64) {
    let plan = Plan { seed, count: 24, slot: 70_000, depth: 8, size: mixed };
    let senders = sender.map(|comm| SendPump::new(node, comm, plan));
    let receivers = receiver.map(|comm| ReceivePump::new(node, comm, plan));
    run(node, senders.into_iter().collect(), receivers.into_iter().collect());
}

scenario! {
    accept_never_waits_for_a_sender on LINE, |node| {
        for peer in 1..node.world {
            let (name, go) = (format!("way{peer}"), format!("go{peer}"));
            if node.rank == peer {
                // given a listener that nobody connects to, when accept is polled, then it always says "not yet"
                let listen = node.listen(&name);
                for _ in 0..POLLS {
                    assert_eq!(node.plugin.accept(&listen), Ok(None));
                }
                // and when somebody comes, then it has a connection, which works
                node.hub.put(&go, &[]);
                let comm = node.accept(&listen);
                node.plugin.close_listen(listen).unwrap();
                talk(node, None, Some(comm), 6);
                node.close_receiver(comm);
            } else if node.rank == 0 {
                node.hub.get(&go);
                let comm = node.sender(&name);
                talk(node, Some(comm), None, 6);
                node.close_sender(comm);
            }
        }
    }
}

scenario! {
    connect_and_sends_do_not_wait_for_accept on LINE, |node| {
        for peer in 1..node.world {
            let (name, go) = (format!("way{peer}"), format!("go{peer}"));
            let sizes = [0, 1, 5000];
            if node.rank == peer {
                // given a listener whose owner does not accept until the sender has connected and posted
                let listen = node.listen(&name);
                node.hub.get(&go);
                let comm = node.accept(&listen);
                node.plugin.close_listen(listen).unwrap();
                // then the messages come all the same
                let area = Area::new(8192);
                let registration = node.register(comm, &area);
                for size in sizes {
                    let request = node.receive(comm, &area, 0, 8192, registration);
                    assert_eq!(node.wait(request), size);
                    assert_eq!(differs(area.bytes(0..size), 66), None);
                }
                node.deregister(comm, registration);
                node.close_receiver(comm);
            } else if node.rank == 0 {
                let comm = node.sender(&name);
                let mut area = Area::new(8192);
                let registration = node.register(comm, &area);
                fill(area.bytes_mut(0..8192), 66);
                let requests = sizes.map(|size| node.send(comm, &area, 0, size, registration));
                node.hub.put(&go, &[]);
                for request in requests {
                    node.wait(request);
                }
                node.deregister(comm, registration);
                node.close_sender(comm);
            }
        }
    }
}

scenario! {
    a_process_connects_to_itself_on_one_thread on Fabric { nodes: 2, ..LINE }, |node| {
        // given a listener and a sender in one process, polled in turn on one thread
        let mut handle: Handle = [0; HANDLE_BYTES];
        let listen = node.plugin.listen(node.ctx, 0, &mut handle).unwrap();
        let (mut sender, mut receiver) = (None, None);
        let mut pause = Pause::default();
        while sender.is_none() || receiver.is_none() {
            if sender.is_none() {
                sender = node.plugin.connect(node.ctx, 0, &mut handle).expect("connect");
            }
            if receiver.is_none() {
                receiver = node.plugin.accept(&listen).expect("accept");
            }
            pause.wait();
        }
        node.plugin.close_listen(listen).unwrap();
        // then messages go from one to the other
        talk(node, sender, receiver, 61);
        node.close_sender(sender.unwrap());
        node.close_receiver(receiver.unwrap());
    }
}

scenario! {
    all_pairs_connect_at_once_on_one_thread on Fabric { shape: "ring", nodes: 6, ..LINE }, |node| {
        // given a listener for every other rank
        let others: Vec<usize> = (0..node.world).filter(|rank| *rank != node.rank).collect();
        let name = |from: usize, to: usize| format!("{from}>{to}");
        let listeners: Vec<ListenComm> = others.iter().map(|from| node.listen(&name(*from, node.rank))).collect();
        let mut handles: Vec<Handle> = others.iter().map(|to| node.handle(&name(node.rank, *to))).collect();
        let (mut senders, mut receivers) = (vec![None; others.len()], vec![None; others.len()]);
        // when all connect and accept in turn on one thread each
        let mut pause = Pause::default();
        while senders.iter().any(Option::is_none) || receivers.iter().any(Option::is_none) {
            for (sender, handle) in senders.iter_mut().zip(&mut handles).filter(|(sender, _)| sender.is_none()) {
                *sender = node.plugin.connect(node.ctx, 0, handle).expect("connect");
            }
            for (receiver, listen) in receivers.iter_mut().zip(&listeners).filter(|(receiver, _)| receiver.is_none()) {
                *receiver = node.plugin.accept(listen).expect("accept");
            }
            pause.wait();
        }
        for listen in listeners {
            node.plugin.close_listen(listen).unwrap();
        }
        // then all talk to all, every pair of its own, at the same time
        let plan = |from: usize, to: usize| {
            Plan { seed: (from * 16 + to) as u64, count: 20, slot: 70_000, depth: 4, size: mixed }
        };
        let sending = senders.iter().zip(&others).map(|(comm, to)| SendPump::new(node, comm.unwrap(), plan(node.rank, *to)));
        let receiving =
            receivers.iter().zip(&others).map(|(comm, from)| ReceivePump::new(node, comm.unwrap(), plan(*from, node.rank)));
        run(node, sending.collect(), receiving.collect());
        senders.into_iter().flatten().for_each(|comm| node.close_sender(comm));
        receivers.into_iter().flatten().for_each(|comm| node.close_receiver(comm));
    }
}

/// Sends or receives one small message that holds a number.
fn number(node: &Node, sender: Option<(SendComm, u64)>, receiver: Option<RecvComm>) -> u64 {
    let mut area = Area::new(8);
    if let Some((comm, number)) = sender {
        area.bytes_mut(0..8).copy_from_slice(&number.to_le_bytes());
        let registration = node.register(comm, &area);
        node.wait(node.send(comm, &area, 0, 8, registration));
        node.deregister(comm, registration);
    }
    if let Some(comm) = receiver {
        let registration = node.register(comm, &area);
        assert_eq!(node.wait(node.receive(comm, &area, 0, 8, registration)), 8);
        node.deregister(comm, registration);
    }
    u64::from_le_bytes(area.bytes(0..8).try_into().unwrap())
}

scenario! {
    a_handle_may_lie_anywhere_and_be_used_again on LINE, |node| {
        const TIMES: u64 = 10;
        for peer in 1..node.world {
            let name = format!("way{peer}");
            if node.rank == peer {
                // given one listener for twelve connections
                let listen = node.listen(&name);
                for turn in 0..TIMES {
                    let comm = node.accept(&listen);
                    assert_eq!(number(node, None, Some(comm)), turn);
                    node.close_receiver(comm);
                }
                // the last two come at once, in any order: each must be served without the other
                let comms = [node.accept(&listen), node.accept(&listen)];
                let areas = [Area::new(8), Area::new(8)];
                let registrations = [0, 1].map(|index| node.register(comms[index], &areas[index]));
                let posted = [0, 1].map(|at| node.receive(comms[at], &areas[at], 0, 8, registrations[at]));
                let mut open: Vec<usize> = vec![0, 1];
                until(|| {
                    open.retain(|index| node.plugin.test(posted[*index]).expect("test").is_none());
                    open.is_empty().then_some(())
                });
                let mut got = areas.each_ref().map(|area| u64::from_le_bytes(area.bytes(0..8).try_into().unwrap()));
                [0, 1].into_iter().for_each(|index| node.deregister(comms[index], registrations[index]));
                got.sort_unstable();
                assert_eq!(got, [TIMES, TIMES + 1]);
                comms.into_iter().for_each(|comm| node.close_receiver(comm));
                node.plugin.close_listen(listen).unwrap();
            } else if node.rank == 0 {
                let handle = node.handle(&name);
                let mut reused = handle;
                // when it is connected to with copies at all odd addresses of a buffer, and with one buffer again and again
                let mut buffer = [0_u8; 2 * HANDLE_BYTES];
                for turn in 0..TIMES {
                    let offset = 2 * turn as usize + 1;
                    let place: &mut Handle = (&mut buffer[offset..offset + HANDLE_BYTES]).try_into().unwrap();
                    *place = handle;
                    let comm = node.connect(if turn % 2 == 0 { place } else { &mut reused });
                    number(node, Some((comm, turn)), None);
                    node.close_sender(comm);
                }
                // and with two copies at the same time
                let mut copies = [handle; 2];
                let mut comms = [None; 2];
                until(|| {
                    for (comm, copy) in comms.iter_mut().zip(&mut copies).filter(|(comm, _)| comm.is_none()) {
                        *comm = node.plugin.connect(node.ctx, 0, copy).expect("connect");
                    }
                    comms.iter().all(Option::is_some).then_some(())
                });
                for (turn, comm) in (TIMES..).zip(comms) {
                    number(node, Some((comm.unwrap(), turn)), None);
                }
                comms.into_iter().flatten().for_each(|comm| node.close_sender(comm));
            }
        }
    }
}

scenario! {
    what_is_closed_early_or_abandoned_harms_nobody on LINE, |node| {
        // given NULL where NCCL passes it after a failure
        node.close_sender(SendComm::NULL);
        node.close_receiver(RecvComm::NULL);
        for peer in 1..node.world {
            let name = |what: &str| format!("{what}{peer}");
            if node.rank == peer {
                // and a listener that is never used nor closed, one that is closed with a sender on the way, and a receiver that is
                // closed as soon as it is there
                let _abandoned = node.listen(&name("abandoned"));
                let closed = node.listen(&name("closed"));
                node.hub.get(&name("begun"));
                node.plugin.close_listen(closed).unwrap();
                node.close_receiver(node.receiver(&name("short")));
                // then a further connection works
                let comm = node.receiver(&name("last"));
                talk(node, None, Some(comm), 11);
                node.close_receiver(comm);
            } else if node.rank == 0 {
                // senders that give up after some tries, or close at once
                let mut handle = node.handle(&name("abandoned"));
                for _ in 0..3 {
                    if let Some(comm) = node.plugin.connect(node.ctx, 0, &mut handle).expect("connect") {
                        node.close_sender(comm);
                        break;
                    }
                }
                let mut handle = node.handle(&name("closed"));
                let begun = node.plugin.connect(node.ctx, 0, &mut handle).expect("connect");
                node.hub.put(&name("begun"), &[]);
                begun.into_iter().for_each(|comm| node.close_sender(comm));
                node.close_sender(node.sender(&name("short")));
                let comm = node.sender(&name("last"));
                talk(node, Some(comm), None, 11);
                node.close_sender(comm);
            }
        }
    }
}
