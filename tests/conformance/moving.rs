//! Messages of all sizes, empty ones, too large ones, and requests: what `isend`, `irecv` and `test` promise.

use std::ffi::{c_int, c_void};
use std::ptr;

use mesh_abi::caller::{MHandle, RecvComm, Request};
use mesh_abi::{MAX_REQUESTS, NcclResult, NetV12};

use crate::memory::{Area, CANARY, differs, fill, mix, not_all};
use crate::node::{Node, Pause};
use crate::pump::{Plan, ReceivePump, SendPump, run};
use crate::scenario::{LINE, scenario};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZES: [usize; 15] = [0, 1, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097, 64 * KIB, 512 * KIB, MIB - 1, MIB + 1];
/// More than any window of chunks or socket buffer holds.
const LARGE: usize = 128 * MIB + 4097;

scenario! {
    every_size_arrives_whole_and_nothing_else_changes on LINE, |node| {
        // given messages sent in one buffer, each at an odd place in it
        node.each_way(
            |comm, _| {
                let mut area = Area::new(2 * MIB);
                let registration = node.register(comm, &area);
                for (turn, size) in SIZES.into_iter().chain(SIZES).enumerate() {
                    fill(area.bytes_mut(turn..turn + size), turn as u64);
                    node.wait(node.send(comm, &area, turn, size, registration));
                }
                node.deregister(comm, registration);
                area.check_guards();
            },
            // when received with exactly their size, and with more
            |comm, _| {
                let mut area = Area::new(2 * MIB);
                let registration = node.register(comm, &area);
                for (turn, size) in SIZES.into_iter().chain(SIZES).enumerate() {
                    let capacity = if turn < SIZES.len() { size } else { size + 1 + size / 3 };
                    let got = node.wait(node.receive(comm, &area, turn, capacity, registration));
                    // then the size is the sent one, every byte is right, and none around it has changed
                    assert_eq!(got, size);
                    assert_eq!(differs(area.bytes(turn..turn + size), turn as u64), None, "in {size} bytes");
                    area.bytes_mut(turn..turn + size).fill(CANARY);
                    assert_eq!(not_all(area.bytes(0..area.len()), CANARY), None, "around {size} bytes");
                }
                node.deregister(comm, registration);
                area.check_guards();
            },
        );
    }
}

scenario! {
    a_message_of_more_than_128_mib_arrives on LINE, |node| {
        node.each_way(
            |comm, _| {
                let mut area = Area::new(LARGE);
                let registration = node.register(comm, &area);
                fill(area.bytes_mut(0..LARGE), 13);
                node.wait(node.send(comm, &area, 0, LARGE, registration));
                node.deregister(comm, registration);
            },
            |comm, _| {
                let area = Area::new(LARGE + 1);
                let registration = node.register(comm, &area);
                assert_eq!(node.wait(node.receive(comm, &area, 0, LARGE + 1, registration)), LARGE);
                assert_eq!(differs(area.bytes(0..LARGE), 13), None);
                assert_eq!(area.bytes(LARGE..LARGE + 1), [CANARY]);
                node.deregister(comm, registration);
                area.check_guards();
            },
        );
    }
}

scenario! {
    empty_messages_keep_their_place on LINE, |node| {
        // given thousands of empty messages in a row, every second one empty, and in runs
        let kinds: [fn(u64, u64) -> usize; 3] = [
            |_, message| if message % 1000 == 999 { 100 } else { 0 },
            |random, message| if message % 2 == 0 { 0 } else { 1 + random as usize % 300 },
            |random, message| if mix(message / 7).is_multiple_of(2) { 0 } else { random as usize % 9000 },
        ];
        let plans = kinds.into_iter().zip([8, MAX_REQUESTS, MAX_REQUESTS]).map(|(size, depth)| {
            Plan { seed: 14, count: 2000, slot: 9 * KIB, depth, size }
        });
        // when they pass, then each meets its own receive
        let plans: Vec<Plan> = plans.collect();
        node.each_way(
            |comm, _| plans.iter().for_each(|plan| run(node, vec![SendPump::new(node, comm, *plan)], vec![])),
            |comm, _| plans.iter().for_each(|plan| run(node, vec![], vec![ReceivePump::new(node, comm, *plan)])),
        );
    }
}

/// Posts until the plugin says "not now".
fn post_all(mut post: impl FnMut(usize) -> Option<Request>) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some(request) = post(requests.len()) {
        requests.push(request);
        assert!(requests.len() <= MAX_REQUESTS, "more requests than there are slots");
    }
    requests
}

scenario! {
    thirty_two_requests_are_open_and_the_next_is_not_now on LINE, |node| {
        const PART: usize = 3000;
        // given, in the first round, sends that wait for their receives, in the second receives that wait for their sends
        for peer in 1..node.world {
            let name = format!("way{peer}");
            let step = |what: &str| node.hub.barrier_of(&format!("{what}{peer}"), &[0, peer]);
            if node.rank == 0 {
                let comm = node.sender(&name);
                let mut area = Area::new((MAX_REQUESTS + 1) * PART);
                let registration = node.register(comm, &area);
                for turn in 0..=MAX_REQUESTS {
                    fill(area.bytes_mut(turn * PART..(turn + 1) * PART), turn as u64);
                }
                let post = |turn: usize| node.try_send(comm, &area, turn * PART, PART, registration).expect("isend");
                // when one too many is posted, then it is "not now", as often as it is tried
                let requests = post_all(post);
                assert_eq!(requests.len(), MAX_REQUESTS);
                (0..1000).for_each(|_| assert_eq!(post(0), None));
                for request in &requests {
                    assert_eq!(node.plugin.test(*request), Ok(None), "done before its receive was posted");
                }
                step("sends posted");
                node.wait_all(requests);
                step("receives posted");
                let requests = post_all(post);
                node.wait_all(requests);
                node.deregister(comm, registration);
                node.close_sender(comm);
            } else if node.rank == peer {
                let comm = node.receiver(&name);
                let area = Area::new((MAX_REQUESTS + 1) * PART);
                let registration = node.register(comm, &area);
                step("sends posted");
                receive_all(node, comm, &area, PART, registration, || {});
                receive_all(node, comm, &area, PART, registration, || step("receives posted"));
                node.deregister(comm, registration);
                node.close_receiver(comm);
            }
        }
    }
}

fn receive_all(node: &Node, comm: RecvComm, area: &Area, part: usize, mh: MHandle, when_posted: impl FnOnce()) {
    let post = |turn: usize| node.try_receive(comm, area, turn * part, part, mh, false).expect("irecv");
    let requests = post_all(post);
    assert_eq!(requests.len(), MAX_REQUESTS);
    when_posted();
    for (turn, request) in requests.into_iter().enumerate() {
        assert_eq!(node.wait(request), part);
        assert_eq!(differs(area.bytes(turn * part..(turn + 1) * part), turn as u64), None, "message {turn}");
    }
}

scenario! {
    what_lies_in_the_outputs_on_entry_does_not_matter on LINE, |node| {
        // SAFETY: the symbol's type.
        let table: &NetV12 = unsafe { &*node.plugin.symbol::<*const NetV12>(c"ncclNetPlugin_v12").unwrap() };
        let (isend, irecv, test) = (table.isend.unwrap(), table.irecv.unwrap(), table.test.unwrap());
        let entries = [0, 1, 0xDEAD_BEE0, usize::MAX].map(ptr::without_provenance_mut::<c_void>);
        // given a request pointer, a count and a size that hold garbage; and no place for sizes at all
        let finish = |request: *mut c_void, with_sizes: bool| {
            let mut sizes = [-7; 64];
            let mut pause = Pause::default();
            loop {
                let mut done: c_int = 0x5A5A;
                let place = if with_sizes { sizes.as_mut_ptr() } else { ptr::null_mut() };
                // SAFETY: an open request; outputs live through the call.
                assert_eq!(unsafe { test(request, &raw mut done, place) }, 0);
                // then `done` is written every time, and nothing but the first size
                assert!(done == 0 || done == 1, "{done:#x}");
                assert!(sizes[1..].iter().all(|size| *size == -7));
                if done == 1 {
                    return sizes[0];
                }
                pause.wait();
            }
        };
        node.each_way(
            |comm, _| {
                let area = Area::new(64);
                let registration = node.register(comm, &area);
                for (turn, entry) in entries.into_iter().enumerate() {
                    let mut request = entry;
                    while request == entry || request.is_null() {
                        request = entry;
                        let data = area.at(0).cast();
                        // SAFETY: a comm, its registration, and bytes of the area, which outlives the request.
                        let code = unsafe { isend(comm.as_ptr(), data, turn, 0, registration.as_ptr(), ptr::null_mut(), &raw mut request) };
                        assert_eq!(code, 0);
                        assert!(request != entry || entry.is_null(), "the request was left unwritten");
                    }
                    finish(request, turn % 2 == 0);
                }
                node.deregister(comm, registration);
            },
            |comm, _| {
                let area = Area::new(64);
                let registration = node.register(comm, &area);
                for (turn, entry) in entries.into_iter().enumerate() {
                    let mut request = entry;
                    while request == entry || request.is_null() {
                        request = entry;
                        let (mut data, mut size, mut tag) = (area.at(0).cast::<c_void>(), 64_usize, 0);
                        let mut mh = registration.as_ptr();
                        let (data, size, tag, mh) = (&raw mut data, &raw mut size, &raw mut tag, &raw mut mh);
                        // SAFETY: as above; arrays of one element.
                        let code = unsafe { irecv(comm.as_ptr(), 1, data, size, tag, mh, ptr::null_mut(), &raw mut request) };
                        assert_eq!(code, 0);
                        assert!(request != entry || entry.is_null(), "the request was left unwritten");
                    }
                    let with_sizes = turn % 2 == 1;
                    let size = finish(request, with_sizes);
                    assert!(!with_sizes || size == turn as c_int, "{size} bytes of {turn}");
                }
                node.deregister(comm, registration);
            },
        );
    }
}

scenario! {
    a_request_used_again_is_not_done_early on LINE, |node| {
        for peer in 1..node.world {
            let name = format!("way{peer}");
            if node.rank == 0 {
                let comm = node.sender(&name);
                let area = Area::new(256);
                let registration = node.register(comm, &area);
                for turn in 0..40 {
                    // given a send whose receive is not posted, with a request that was used before
                    let request = node.send(comm, &area, 0, turn, registration);
                    // when tested again and again, then it is not done
                    (0..200).for_each(|_| assert_eq!(node.plugin.test(request), Ok(None)));
                    node.hub.put(&format!("{name}/{turn}"), &[]);
                    node.wait(request);
                }
                node.deregister(comm, registration);
                node.close_sender(comm);
            } else if node.rank == peer {
                let comm = node.receiver(&name);
                let area = Area::new(256);
                let registration = node.register(comm, &area);
                for turn in 0..40 {
                    node.hub.get(&format!("{name}/{turn}"));
                    assert_eq!(node.wait(node.receive(comm, &area, 0, 256, registration)), turn);
                }
                node.deregister(comm, registration);
                node.close_receiver(comm);
            }
        }
    }
}

scenario! {
    a_send_larger_than_its_receive_is_refused on LINE, |node| {
        const CAPACITY: usize = 4096;
        for peer in 1..node.world {
            let name = format!("way{peer}");
            let told = format!("told{peer}");
            if node.rank == 0 {
                // given a send of one byte more than its receive takes, after one that fits
                let comm = node.sender(&name);
                let area = Area::new(2 * CAPACITY);
                let registration = node.register(comm, &area);
                node.wait(node.send(comm, &area, 0, CAPACITY, registration));
                // when they meet, then the sender is told that it is its mistake, at once or when it tests
                let error = match node.try_send(comm, &area, 0, CAPACITY + 1, registration) {
                    Ok(request) => node.wait_for_error(request.expect("room for a second request")),
                    Err(error) => error,
                };
                assert_eq!(error.code(), Some(NcclResult::InvalidUsage), "{error}");
                // and again for every further call
                let error = node.try_send(comm, &area, 0, 1, registration).expect_err("the connection has failed");
                assert_eq!(error.code(), Some(NcclResult::InvalidUsage), "{error}");
                node.deregister(comm, registration);
                node.close_sender(comm);
                node.hub.put(&told, &[]);
            } else if node.rank == peer {
                let comm = node.receiver(&name);
                let area = Area::new(2 * CAPACITY);
                let registration = node.register(comm, &area);
                let requests = [0, CAPACITY].map(|at| node.receive(comm, &area, at, CAPACITY, registration));
                assert_eq!(node.wait(requests[0]), CAPACITY);
                node.hub.get(&told);
                // and the receiver learns that the sender is gone, and nothing was written
                let error = node.wait_for_error(requests[1]);
                assert_eq!(error.code(), Some(NcclResult::RemoteError), "{error}");
                assert_eq!(not_all(area.bytes(CAPACITY..2 * CAPACITY), CANARY), None);
                area.check_guards();
                node.plugin.dereg_mr(comm, registration).expect("deregMr");
                node.close_receiver(comm);
            }
        }
    }
}
