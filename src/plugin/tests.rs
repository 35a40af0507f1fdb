//! Every version's table, called as NCCL calls it, over a transport inside this process.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mesh_abi::caller::{CallError, Ctx, ListenComm, MHandle, Plugin, RecvComm, Request, SendComm};
use mesh_abi::*;

use super::adapters;
use super::loopback::{ALIVE, INITS, Loopback, PANIC};

static V6: NetV6 = adapters::v6::<Loopback>();
static V7: NetV7 = adapters::v7::<Loopback>();
static V8: NetV8 = adapters::v8::<Loopback>();
static V9: NetV9 = adapters::v9::<Loopback>();
static V10: NetV10 = adapters::v10::<Loopback>();
static V11: NetV11 = adapters::v11::<Loopback>();
static V12: NetV12 = adapters::v12::<Loopback>();

/// The transport counts what is alive in the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plugin(version: u32) -> Plugin {
    let table: *const c_void = match version {
        6 => (&raw const V6).cast(),
        7 => (&raw const V7).cast(),
        8 => (&raw const V8).cast(),
        9 => (&raw const V9).cast(),
        10 => (&raw const V10).cast(),
        11 => (&raw const V11).cast(),
        _ => (&raw const V12).cast(),
    };
    // SAFETY: the statics above are tables of these versions.
    unsafe { Plugin::from_table(table, version) }.unwrap()
}

struct Pair {
    ctx: Ctx,
    send: SendComm,
    recv: RecvComm,
}

/// A connection, set up on one thread; the handle lies at an odd address.
fn connect(plugin: &Plugin) -> Pair {
    let ctx = plugin.init(3, -1, None).unwrap();
    let mut space = [0u8; HANDLE_BYTES + 1];
    let handle: &mut [u8; HANDLE_BYTES] = (&mut space[1..]).try_into().unwrap();
    let listen: ListenComm = plugin.listen(ctx, 0, handle).unwrap();
    assert_eq!(plugin.accept(&listen).unwrap(), None);
    assert_eq!(plugin.connect(ctx, 0, handle).unwrap(), None, "the first try is never ready");
    let send = plugin.connect(ctx, 0, handle).unwrap().unwrap();
    let recv = plugin.accept(&listen).unwrap().unwrap();
    plugin.close_listen(listen).unwrap();
    Pair { ctx, send, recv }
}

fn close(plugin: &Plugin, pair: Pair) {
    plugin.close_send(pair.send).unwrap();
    plugin.close_recv(pair.recv).unwrap();
    plugin.finalize(pair.ctx).unwrap();
}

fn wait(plugin: &Plugin, request: Request) -> usize {
    for _ in 0..1000 {
        if let Some(size) = plugin.test(request).unwrap() {
            return size;
        }
    }
    panic!("never done");
}

fn send(plugin: &Plugin, comm: SendComm, bytes: &[u8], mh: MHandle) -> Request {
    for _ in 0..10 {
        // SAFETY: the loopback copies the bytes before isend returns.
        if let Some(request) = unsafe { plugin.isend(comm, bytes.as_ptr(), bytes.len(), 0, mh) }.unwrap() {
            return request;
        }
    }
    panic!("always \"not now\"");
}

#[test]
fn all_versions_carry_the_same_messages() {
    let _alone = alone();
    for version in 6..=12 {
        // given a connection and registered buffers
        let plugin = plugin(version);
        assert_eq!((plugin.name().as_str(), plugin.devices().unwrap()), ("Mesh", 1), "v{version}");
        let pair = connect(&plugin);
        let mut source: Vec<u8> = (0..1024u32).map(|i| (i * 7) as u8).collect();
        source[0] = 1;
        let mut sink = vec![0xCC; 1024];
        let out = plugin.reg_mr(pair.send, source.as_mut_ptr(), source.len(), PTR_HOST).unwrap();
        let into = plugin.reg_mr(pair.recv, sink.as_mut_ptr(), sink.len(), PTR_HOST).unwrap();
        // when messages of sizes up to the capacity are sent, with and without the mark
        for (len, marked) in [(0, false), (1, true), (1023, false), (1024, true), (0, true)] {
            sink.fill(0xCC);
            // SAFETY: the sink lives until the request is done.
            let recv = unsafe { plugin.irecv(pair.recv, sink.as_mut_ptr(), sink.len(), 0, into, marked) };
            let recv = recv.unwrap().unwrap();
            let sent = send(&plugin, pair.send, &source[..len], out);
            // then both ends are done, with the size and the bytes that were sent, and nothing beyond
            wait(&plugin, sent);
            assert_eq!(wait(&plugin, recv), len, "v{version}");
            assert_eq!(sink[..len], source[..len], "v{version}");
            assert!(sink[len..].iter().all(|byte| *byte == 0xCC), "v{version}");
            // and a request that is done is not one any more
            assert_eq!(plugin.test(recv).unwrap_err().code(), Some(NcclResult::InternalError));
        }
        // SAFETY: nothing is flushed.
        assert_eq!(unsafe { plugin.iflush(pair.recv, sink.as_mut_ptr(), 1, into) }.unwrap(), None);
        plugin.dereg_mr(pair.send, out).unwrap();
        plugin.dereg_mr(pair.recv, into).unwrap();
        close(&plugin, pair);
        assert_eq!(ALIVE.load(Ordering::SeqCst), 0, "v{version}");
    }
}

#[test]
fn properties_fill_poisoned_memory_in_all_versions() {
    for version in 6..=12 {
        let plugin = plugin(version);
        // given poisoned memory (the caller poisons it), when read twice
        let first = plugin.properties(0).unwrap();
        // then all fields are set and stable
        assert_eq!(first, plugin.properties(0).unwrap());
        assert_eq!((first.name.as_str(), first.pci_path.as_deref()), ("Mesh", Some("/sys/devices/x")));
        assert_eq!((first.guid, first.speed, first.latency), (7, 200_000, 3.0));
        assert_eq!((first.ptr_support, first.max_recvs, first.max_comms), (PTR_HOST, 1, 65536));
        assert_eq!(first.reg_is_global, version >= 8);
        assert_eq!((first.net_device_type, first.net_device_version), (NET_DEVICE_HOST, 0));
        assert_eq!((first.devices.as_slice(), first.force_flush), ([0].as_slice(), false));
        assert_eq!(first.max_p2p_bytes, 1 << 30);
        assert_eq!((first.max_multi_request_size, first.rail_id, first.plane_id), (1, -1, -1));
        // and devices that were not reported have none
        for dev in [-1, 1, c_int::MAX] {
            assert_eq!(plugin.properties(dev).unwrap_err().code(), Some(NcclResult::InvalidArgument));
        }
    }
}

#[test]
fn contexts_are_counted_and_finalize_forgives() {
    let _alone = alone();
    let plugin = plugin(12);
    let before = INITS.load(Ordering::SeqCst);
    // given no init, NULL is fine and anything else is noticed
    plugin.finalize(Ctx::NULL).unwrap();
    // when two contexts are made and given back, and again after the last
    for _ in 0..2 {
        let (one, two) = (plugin.init(1, -1, None).unwrap(), plugin.init(2, 0, None).unwrap());
        assert_ne!(one.as_ptr(), two.as_ptr());
        assert_eq!(INITS.load(Ordering::SeqCst), before + 2);
        plugin.finalize(one).unwrap();
        plugin.finalize(two).unwrap();
        // then the implementation saw each, and a second time is refused
        assert_eq!(INITS.load(Ordering::SeqCst), before);
        assert_eq!(plugin.finalize(two).unwrap_err().code(), Some(NcclResult::InternalError));
    }
}

#[test]
fn old_versions_have_one_context_for_the_process() {
    let _alone = alone();
    // given init of three old versions, some of them twice
    let before = INITS.load(Ordering::SeqCst);
    for version in [8, 9, 10, 8] {
        let plugin = plugin(version);
        let ctx = plugin.init(1, -1, None).unwrap();
        assert!(ctx.as_ptr().is_null());
        plugin.finalize(ctx).unwrap();
    }
    // then the implementation was initialised at most once for all of them
    assert!(INITS.load(Ordering::SeqCst) - before <= 1);
}

#[test]
fn closing_null_is_fine_and_closing_the_wrong_kind_is_not() {
    let _alone = alone();
    let plugin = plugin(12);
    plugin.close_send(SendComm::NULL).unwrap();
    plugin.close_recv(RecvComm::NULL).unwrap();
    plugin.close_listen(ListenComm::NULL).unwrap();
    let pair = connect(&plugin);
    // given a sending comm where a receiving one belongs
    // SAFETY: the table's functions take any comm of this library.
    let raw = unsafe { V12.close_recv.unwrap()(pair.send.as_ptr()) };
    assert_eq!(raw, NcclResult::InternalError.as_raw());
    close(&plugin, pair);
}

#[test]
fn failures_leave_no_comm_and_stay() {
    let _alone = alone();
    let plugin = plugin(12);
    let pair = connect(&plugin);
    // given a handle of a listener that is gone: the loader checks that the comm is NULL
    let mut handle = [0; HANDLE_BYTES];
    let error = plugin.connect(pair.ctx, 0, &mut handle).unwrap_err();
    assert_eq!(error, CallError::Failed { call: "connect", code: NcclResult::RemoteError });
    // given a message that is longer than its receive
    let mut sink = [0u8; 4];
    // SAFETY: the sink lives until the comm is closed.
    let recv = unsafe { plugin.irecv(pair.recv, sink.as_mut_ptr(), 4, 0, MHandle::NULL, true) }.unwrap().unwrap();
    wait(&plugin, send(&plugin, pair.send, &[1; 5], MHandle::NULL));
    // then the error comes, and comes again, and new receives get it too
    for _ in 0..2 {
        assert_eq!(plugin.test(recv).unwrap_err().code(), Some(NcclResult::InvalidUsage));
    }
    // SAFETY: as above.
    let again = unsafe { plugin.irecv(pair.recv, sink.as_mut_ptr(), 4, 0, MHandle::NULL, false) };
    assert_eq!(again.unwrap_err().code(), Some(NcclResult::InvalidUsage));
    assert_eq!(sink, [0; 4]);
    close(&plugin, pair);
}

#[test]
fn a_panic_is_an_internal_error_and_ends_the_comm_only() {
    let _alone = alone();
    let plugin = plugin(11);
    let (pair, other) = (connect(&plugin), connect(&plugin));
    // given a send that panics inside
    let bytes = [PANIC];
    for _ in 0..2 {
        // SAFETY: the loopback keeps nothing.
        let error = unsafe { plugin.isend(pair.send, bytes.as_ptr(), 1, 0, MHandle::NULL) }.unwrap_err();
        assert_eq!(error.code(), Some(NcclResult::InternalError));
    }
    // then another connection still works, and both can be closed
    wait(&plugin, send(&plugin, other.send, &[1], MHandle::NULL));
    close(&plugin, pair);
    close(&plugin, other);
}

#[test]
fn messages_must_lie_inside_their_registration() {
    let _alone = alone();
    let plugin = plugin(12);
    let pair = connect(&plugin);
    let mut buffer = [0u8; 256];
    let base = buffer.as_mut_ptr();
    let mh = plugin.reg_mr(pair.send, base.wrapping_add(64), 64, PTR_HOST).unwrap();
    // given ranges inside, across both ends, and empty ones anywhere
    for (offset, len, fits) in
        [(64, 64, true), (127, 1, true), (64, 65, false), (63, 1, false), (128, 1, false), (0, 0, true), (200, 0, true)]
    {
        // SAFETY: the buffer lives through the test.
        let outcome = unsafe { plugin.isend(pair.send, base.wrapping_add(offset), len, 0, mh) };
        match outcome {
            Ok(_) => assert!(fits, "{offset} {len}"),
            Err(error) => {
                assert!(!fits, "{offset} {len}");
                assert_eq!(error.code(), Some(NcclResult::InvalidUsage));
            }
        }
    }
    plugin.dereg_mr(pair.send, mh).unwrap();
    // and device memory is not taken
    let error = plugin.reg_mr(pair.recv, base, 1, PTR_CUDA).unwrap_err();
    assert_eq!(error.code(), Some(NcclResult::InvalidUsage));
    close(&plugin, pair);
}

#[test]
fn one_range_is_one_registration_for_all_comms() {
    let _alone = alone();
    let plugin = plugin(12);
    let (one, two) = (connect(&plugin), connect(&plugin));
    let mut buffer = [0u8; 64];
    let base = buffer.as_mut_ptr();
    let a = plugin.reg_mr(one.send, base, 64, PTR_HOST).unwrap();
    let b = plugin.reg_mr(two.recv, base, 64, PTR_HOST).unwrap();
    assert_eq!(a.as_ptr(), b.as_ptr());
    // when one comm takes it back, then the other can go on
    plugin.dereg_mr(one.send, a).unwrap();
    // SAFETY: the buffer lives until the request is done.
    let recv = unsafe { plugin.irecv(two.recv, base, 64, 0, b, false) }.unwrap().unwrap();
    wait(&plugin, send(&plugin, two.send, &[9; 3], MHandle::NULL));
    assert_eq!(wait(&plugin, recv), 3);
    plugin.dereg_mr(two.recv, b).unwrap();
    plugin.dereg_mr(two.recv, MHandle::NULL).unwrap();
    close(&plugin, one);
    close(&plugin, two);
}

#[test]
fn taking_memory_back_under_open_requests_stops_the_comm() {
    let _alone = alone();
    let plugin = plugin(12);
    let pair = connect(&plugin);
    let mut buffer = [0u8; 64];
    let base = buffer.as_mut_ptr();
    let (used, idle) =
        (plugin.reg_mr(pair.recv, base, 64, PTR_HOST).unwrap(), plugin.reg_mr(pair.recv, base, 32, PTR_HOST).unwrap());
    // SAFETY: the buffer lives through the test.
    let recv = unsafe { plugin.irecv(pair.recv, base, 64, 0, used, false) }.unwrap().unwrap();
    wait(&plugin, send(&plugin, pair.send, &[7; 8], MHandle::NULL));
    // when a registration without requests goes, then all is well
    plugin.dereg_mr(pair.recv, idle).unwrap();
    assert_eq!(plugin.test(recv).unwrap(), None);
    // when that of the open receive goes, then its bytes never land
    plugin.dereg_mr(pair.recv, used).unwrap();
    for _ in 0..10 {
        assert_eq!(plugin.test(recv).unwrap_err().code(), Some(NcclResult::InternalError));
    }
    assert_eq!(buffer, [0; 64]);
    close(&plugin, pair);
}

#[test]
fn all_slots_can_be_open_and_more_is_not_now() {
    let _alone = alone();
    let plugin = plugin(12);
    let pair = connect(&plugin);
    let mut buffer = [0u8; 8];
    let base = buffer.as_mut_ptr();
    // SAFETY: the buffer lives until the comm is closed.
    let post = || unsafe { plugin.irecv(pair.recv, base, 8, 0, MHandle::NULL, false) }.unwrap();
    // given as many receives as there are slots, all different
    let mut open: Vec<*mut c_void> = (0..64).map(|_| post().unwrap().as_ptr()).collect();
    open.sort_unstable();
    open.dedup();
    assert_eq!(open.len(), 64);
    // when one more is posted, then it is refused for now only
    assert_eq!(post(), None);
    close(&plugin, pair);
}

#[test]
fn raw_calls_with_null_and_groups_are_refused() {
    let _alone = alone();
    let plugin = plugin(12);
    let pair = connect(&plugin);
    let invalid = NcclResult::InvalidUsage.as_raw();
    let internal = NcclResult::InternalError.as_raw();
    let mut byte = 0u8;
    let mut data = [ptr::from_mut(&mut byte).cast::<c_void>(); 2];
    let (mut sizes, mut tags, mut handles) = ([1usize; 2], [0; 2], [ptr::null_mut(); 2]);
    for n in [-1, 0, 2, 8] {
        let mut request = ptr::without_provenance_mut(0x1);
        // SAFETY: n is looked at before any array.
        let raw = unsafe {
            V12.irecv.unwrap()(
                pair.recv.as_ptr(),
                n,
                data.as_mut_ptr(),
                sizes.as_mut_ptr(),
                tags.as_mut_ptr(),
                handles.as_mut_ptr(),
                ptr::null_mut(),
                &raw mut request,
            )
        };
        // then no stale mark is left to be taken for a request
        assert_eq!((raw, request.is_null()), (invalid, true), "{n}");
    }
    // given NULL where something must be; done is written even then
    let mut done = 77;
    // SAFETY: NULL is allowed everywhere.
    unsafe {
        assert_eq!(V12.test.unwrap()(ptr::null_mut(), &raw mut done, ptr::null_mut()), internal);
        assert_eq!(done, 0);
        assert_eq!(V12.test.unwrap()(ptr::null_mut(), ptr::null_mut(), ptr::null_mut()), internal);
        assert_eq!(V12.devices.unwrap()(ptr::null_mut()), internal);
        assert_eq!(V12.get_properties.unwrap()(0, ptr::null_mut()), internal);
        assert_eq!(V12.init.unwrap()(ptr::null_mut(), 0, ptr::null_mut(), None, None), internal);
        let mut comm = ptr::dangling_mut();
        assert_eq!(V12.listen.unwrap()(pair.ctx.as_ptr(), 0, ptr::null_mut(), &raw mut comm), internal);
        assert!(comm.is_null());
        let mut comm = ptr::dangling_mut();
        assert_eq!(V12.accept.unwrap()(ptr::null_mut(), &raw mut comm, ptr::null_mut()), internal);
        assert!(comm.is_null());
    }
    // and a negative size of the old versions
    let mut request = ptr::null_mut();
    // SAFETY: the size is refused before the buffer is used.
    let raw = unsafe { V8.isend.unwrap()(pair.send.as_ptr(), data[0], -1, 0, ptr::null_mut(), &raw mut request) };
    assert_eq!((raw, request.is_null()), (NcclResult::InvalidArgument.as_raw(), true));
    // SAFETY: as above.
    let error = unsafe { plugin.isend(pair.send, data[0].cast(), usize::MAX, 0, MHandle::NULL) }.unwrap_err();
    assert_eq!(error.code(), Some(NcclResult::InvalidArgument));
    // and sizes may be NULL in test
    let sent = send(&plugin, pair.send, &[1, 2, 3], MHandle::NULL);
    // SAFETY: an open request; sizes may be NULL.
    assert_eq!(unsafe { V12.test.unwrap()(sent.as_ptr(), &raw mut done, ptr::null_mut()) }, 0);
    assert_eq!(done, 1);
    close(&plugin, pair);
}

#[test]
fn two_threads_on_one_connection_are_refused_not_mixed() {
    let _alone = alone();
    let plugin = plugin(12);
    let pair = connect(&plugin);
    // given two threads that send on one connection against NCCL's promise
    let sent: u32 = std::thread::scope(|scope| {
        let threads = [1u8, 2].map(|id| {
            let (plugin, comm) = (&plugin, pair.send);
            scope.spawn(move || {
                let bytes = [id; 32];
                let mut sent = 0;
                for _ in 0..5_000 {
                    // SAFETY: the loopback copies the bytes before isend returns.
                    match unsafe { plugin.isend(comm, bytes.as_ptr(), bytes.len(), 0, MHandle::NULL) } {
                        Ok(None) => {}
                        Ok(Some(request)) => {
                            sent += 1;
                            loop {
                                match plugin.test(request) {
                                    Ok(Some(size)) => break assert_eq!(size, 32),
                                    Ok(None) => {}
                                    Err(error) => assert_eq!(error.code(), Some(NcclResult::InternalError)),
                                }
                            }
                        }
                        // then the one that comes second is told so
                        Err(error) => assert_eq!(error.code(), Some(NcclResult::InternalError)),
                    }
                }
                sent
            })
        });
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    // and every message that was taken arrives once and whole
    let mut sink = [0u8; 32];
    for _ in 0..sent {
        // SAFETY: the sink lives until the request is done.
        let recv = unsafe { plugin.irecv(pair.recv, sink.as_mut_ptr(), 32, 0, MHandle::NULL, false) };
        assert_eq!(wait(&plugin, recv.unwrap().unwrap()), 32);
        assert!(sink == [1; 32] || sink == [2; 32], "{sink:?}");
    }
    // SAFETY: as above.
    let beyond = unsafe { plugin.irecv(pair.recv, sink.as_mut_ptr(), 32, 0, MHandle::NULL, false) }.unwrap().unwrap();
    assert!((0..10).all(|_| plugin.test(beyond).unwrap().is_none()));
    close(&plugin, pair);
}
