//! What single nodes do in the tests of faults: NCCL's part through the plugin's C interface, with changes of the fabric in between.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;

use mesh_abi::caller::{CallError, Ctx, Plugin, RecvComm, SendComm};
use mesh_abi::logger::to_stderr;
use mesh_abi::{HANDLE_BYTES, NcclResult, PTR_HOST};
use mesh_link::endpoint::Backend;
use mesh_link::tcp::Limits;
use mesh_link::verbs::{DeviceSet, VerbsLimits};
use mesh_link::{Endpoint, Event};
use mesh_soft_verbs::control::{Connected, Control};

use crate::memory::{Area, differs, fill};
use crate::node::{Node, until};

/// Tells a node what to do.
pub(crate) const WHAT: &str = "MESH_BAD_VERBS";
/// The test that does it.
pub(crate) const NAME: &str = "nodes::what_a_node_does";
/// What a node says at the end.
pub(crate) const DONE: &str = "the node is done";

/// Bytes that nodes of the tests of locked memory may lock.
const LOCKED: u64 = 4 << 20;

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);

#[test]
#[ignore = "the other tests run it, on a node of a fabric"]
fn what_a_node_does() {
    match variable(WHAT).as_str() {
        "starts" => starts(),
        "goes_down" => fault_before_connecting(
            |c| c.set_port(FIRST, false).expect("a port"),
            |c| c.set_port(FIRST, true).expect("a port"),
        ),
        "loses_address" => fault_before_connecting(
            |c| c.take_gid(FIRST).expect("a port"),
            |c| c.set_gid_index(FIRST, 5).expect("a port"),
        ),
        "little_memory" => little_memory(),
        "large_buffer" => large_buffer(),
        "moves" => moves(),
        "moves_late" => moves_late(),
        "classes" => classes(),
        other => panic!("unknown: {other}"),
    }
    println!("{DONE}");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by `nccl-mesh sim run`"))
}

fn control() -> Control {
    Control::open(Path::new(&variable("MESH_SOFT_VERBS"))).expect("the fabric")
}

fn open(traffic_class: i32) -> (Plugin, Result<Ctx, CallError>) {
    let plugin = Plugin::open(variable("NCCL_NET_PLUGIN"), 12).expect("the plugin opens");
    let ctx = plugin.init(1, traffic_class, Some(to_stderr()));
    (plugin, ctx)
}

/// Starts the plugin, and says what it tells NCCL.
fn starts() {
    let (plugin, ctx) = open(-1);
    let ctx = ctx.expect("init");
    println!("speed {}", plugin.properties(0).expect("a device").speed);
    plugin.finalize(ctx).expect("finalize");
}

fn locking_limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills one structure that lives here.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) }, 0);
    limit
}

/// Whether the limit of the tests can be set here; says why not.
pub(crate) fn may_lock_4_mib() -> bool {
    let most = locking_limit().rlim_max;
    if most < LOCKED {
        println!("skipped: the hard limit on locked memory is {} KiB, and {} are needed", most >> 10, LOCKED >> 10);
    }
    most >= LOCKED
}

/// Lets this process lock 4 MiB, and takes away what would make that no limit.
fn limit_locked_memory() {
    let limit = libc::rlimit { rlim_cur: LOCKED, ..locking_limit() };
    // SAFETY: reads the same structure. Lowering a limit is allowed to everybody.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
    // The third version of the interface, this thread; effective, permitted and inheritable bits in two words each. Threads that the
    // plugin starts have what this one has.
    let header = [0x2008_0522_u32, 0];
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: a header of two words and two sets of three, as this version has them.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) }, 0);
    sets[0][0] &= !(1 << 14);
    // SAFETY: as above. Giving a capability up is allowed to everybody.
    assert_eq!(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }, 0);
}

fn little_memory() {
    limit_locked_memory();
    let (plugin, ctx) = open(-1);
    assert_eq!(ctx.expect_err("no memory").code(), Some(NcclResult::SystemError));
    assert_eq!(plugin.devices(), Ok(0));
}

/// A connection from this node to itself, over its own port.
fn to_oneself(plugin: &Plugin, ctx: Ctx) -> (SendComm, RecvComm) {
    let mut handle = [0; HANDLE_BYTES];
    let listen = plugin.listen(ctx, 0, &mut handle).expect("listen");
    let (mut sender, mut receiver) = (None, None);
    until(|| {
        sender = sender.or_else(|| plugin.connect(ctx, 0, &mut handle).expect("connect"));
        receiver = receiver.or_else(|| plugin.accept(&listen).expect("accept"));
        sender.zip(receiver)
    })
}

fn large_buffer() {
    limit_locked_memory();
    let (plugin, ctx) = open(-1);
    let ctx = ctx.expect("the slots fit");
    let (sender, _receiver) = to_oneself(&plugin, ctx);
    let (small, large) = (Area::new(1 << 20), Area::new(4 << 20));
    let fits = plugin.reg_mr(sender, small.at(0), small.len(), PTR_HOST).expect("it fits");
    let error = plugin.reg_mr(sender, large.at(0), large.len(), PTR_HOST).expect_err("it does not fit");
    assert_eq!(error.code(), Some(NcclResult::SystemError), "{error}");
    plugin.dereg_mr(sender, fits).expect("deregMr");
}

/// Sends from the first node to the second over a connection of this name, and compares.
fn transfer(node: &Node, name: &str) {
    const LEN: usize = 300_000;
    let mut area = Area::new(LEN);
    if node.rank == 0 {
        fill(area.bytes_mut(0..LEN), 7);
        let comm = node.sender(name);
        let registration = node.register(comm, &area);
        let request = node.send(comm, &area, 0, LEN, registration);
        assert_eq!(node.wait(request), LEN);
        node.deregister(comm, registration);
        node.close_sender(comm);
    } else {
        let comm = node.receiver(name);
        let registration = node.register(comm, &area);
        let request = node.receive(comm, &area, 0, LEN, registration);
        assert_eq!(node.wait(request), LEN);
        assert_eq!(differs(area.bytes(0..LEN), 7), None);
        node.deregister(comm, registration);
        node.close_receiver(comm);
    }
}

fn moves() {
    let node = Node::enter(12);
    // given nodes that have started, when their GIDs move, to a free place and to that of another GID, then they connect all the same;
    // and again after another move
    for (round, indices) in [[7, 1], [1, 9], [3, 3]].into_iter().enumerate() {
        node.hub.barrier(&format!("before {round}"));
        if node.rank == 0 {
            let control = control();
            for (address, index) in [FIRST, SECOND].into_iter().zip(indices) {
                control.set_gid_index(address, index).expect("a port");
            }
        }
        node.hub.barrier(&format!("moved {round}"));
        let pair = format!("pair {round}");
        let comm = if node.rank == 0 { Ok(node.sender(&pair)) } else { Err(node.receiver(&pair)) };
        node.hub.barrier(&format!("connected {round}"));
        if node.rank == 0 {
            let of = |address, index| move |pair: &Connected| pair.local == address && pair.gid_index == index;
            let pairs = control().connected();
            assert!(pairs.iter().any(of(FIRST, indices[0])) && pairs.iter().any(of(SECOND, indices[1])), "{pairs:?}");
        }
        match comm {
            Ok(sender) => node.close_sender(sender),
            Err(receiver) => node.close_receiver(receiver),
        }
        transfer(&node, &format!("data {round}"));
    }
    node.leave_with(&[0, 1]);
}

fn own_address() -> Ipv4Addr {
    if variable("RANK") == "0" { FIRST } else { SECOND }
}

/// The endpoints alone: the GID moves after both have said theirs and before either has connected its queue pair.
fn moves_late() {
    let (own, control) = (own_address(), control());
    let set = DeviceSet::open(&[own], None).expect("the port");
    let backend = Backend::Verbs(set, VerbsLimits::default());
    // To a free place, and to that of the link-local GID, which then is where this one was.
    for index in [9, 1, 3] {
        let listener = TcpListener::bind(SocketAddrV4::new(own, 0)).expect("a port of its own");
        let address = listener.local_addr().expect("bound");
        assert_eq!(address.ip(), IpAddr::V4(own));
        let near = TcpStream::connect(SocketAddr::new(own.into(), address.port())).expect("connects");
        let (far, _) = listener.accept().expect("accepts");
        let make = |stream| Endpoint::new(stream, Limits::default(), &backend).expect("a queue pair");
        let (mut near, mut far) = (make(near), make(far));
        control.set_gid_index(own, index).expect("a port");
        near.post_message(b"still here").expect("room");
        let mut came = false;
        until(|| {
            near.poll(|_| {}).expect("near");
            far.poll(|event| came |= matches!(event, Event::Message(b"still here"))).expect("far");
            came.then_some(())
        });
        let pairs = control.connected();
        let right = |pair: &&Connected| pair.local == own && pair.gid_index == index;
        assert!(pairs.iter().filter(right).count() >= 2, "{pairs:?}");
    }
}

/// The first node cannot connect from `begin` to `end`, and can afterwards.
fn fault_before_connecting(begin: fn(&Control), end: fn(&Control)) {
    let node = Node::enter(12);
    node.hub.barrier("started");
    if node.rank == 0 {
        begin(&control());
        let mut handle = node.handle("in vain");
        let error = until(|| node.plugin.connect(node.ctx, 0, &mut handle).err());
        assert_eq!(error.code(), Some(NcclResult::RemoteError), "{error}");
        end(&control());
        node.hub.put("sound", &[]);
    } else {
        let listen = node.listen("in vain");
        node.hub.get("sound");
        node.plugin.close_listen(listen).expect("closeListen");
    }
    transfer(&node, "after all");
    node.leave_with(&[0, 1]);
}

/// NCCL's class, then what queue pairs must have.
fn classes() {
    let told: Vec<i64> = variable("MESH_TEST_CLASSES").split(' ').map(|word| word.parse().expect("a number")).collect();
    let (plugin, ctx) = open(told[0] as i32);
    let (sender, receiver) = to_oneself(&plugin, ctx.expect("init"));
    let own = own_address();
    let pairs: Vec<Connected> = control().connected().into_iter().filter(|pair| pair.local == own).collect();
    assert!(pairs.len() >= 2, "{pairs:?}");
    let right = |pair: &Connected| (i64::from(pair.traffic_class), i64::from(pair.service_level)) == (told[1], told[2]);
    assert!(pairs.iter().all(right), "{pairs:?}");
    plugin.close_send(sender).expect("closeSend");
    plugin.close_recv(receiver).expect("closeRecv");
}
