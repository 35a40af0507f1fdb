//! Groups that stay on their link, in real processes: who may send to them and by which port, who is a member, and that nothing from
//! outside the fabric is heard by them. What comes of a datagram to a group is in `links.rs`.
#![allow(unsafe_code, reason = "socket options that the standard library lacks")]

mod common;

use std::io::{BufRead, BufReader, Error, ErrorKind, Result, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

use common::{FABRIC, FabricFile, NODE_A, node};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 177);
const OTHER_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 178);
const NO_ADDRESS: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const A0: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const A1: Ipv4Addr = Ipv4Addr::new(10, 7, 1, 1);
const B0: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

/// Ignored unless started as a child of the others: does one thing on node a, and checks what the C library says to it.
#[test]
#[ignore = "runs as a child of the other tests"]
fn a_node() {
    let action = std::env::var("FABRIC_TEST_ACTION").expect("set by the parent");
    let words: Vec<&str> = action.split(' ').collect();
    match words[..] {
        ["send", on] => send(on.parse().expect("a number")),
        ["members"] => members(),
        ["deaf", on] => deaf(on.parse().expect("a number")),
        _ => panic!("unknown action {action}"),
    }
    println!("report: done");
}

/// The error's number, 0 for none.
fn errno<T>(outcome: Result<T>) -> i32 {
    outcome.err().map_or(0, |error| error.raw_os_error().expect("from the system"))
}

fn option<T>(socket: &UdpSocket, name: i32, value: &T) -> Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value lives during the call, and its size is given.
    let status =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, name, (&raw const *value).cast(), length) };
    if status == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// As drivers name an interface: by group, address and number.
fn interface(group: Ipv4Addr, address: Ipv4Addr, number: i32) -> libc::ip_mreqn {
    let raw = |address: Ipv4Addr| libc::in_addr { s_addr: u32::from(address).to_be() };
    libc::ip_mreqn { imr_multiaddr: raw(group), imr_address: raw(address), imr_ifindex: number }
}

fn send(on: u16) {
    let bind = |at| UdpSocket::bind((at, 0)).expect("an address of this node");
    // Who belongs to no port has no route to a group, by whatever call and of whatever family.
    for at in [NO_ADDRESS, Ipv4Addr::LOCALHOST, OTHER_GROUP] {
        assert_eq!(errno(bind(at).send_to(b"nowhere", (GROUP, on))), libc::ENETUNREACH, "from {at}");
    }
    let mapped = UdpSocket::bind("[::]:0").map(|socket| socket.send_to(b"nowhere", (GROUP.to_ipv6_mapped(), on)));
    assert!(mapped.is_err() || mapped.is_ok_and(|sent| errno(sent) == libc::ENETUNREACH));
    // What follows a connect would go by no port.
    assert_eq!(errno(bind(A0).connect((GROUP, on))), libc::ENETUNREACH);
    // Who has named a port for groups sends by that, and as that.
    let named = bind(NO_ADDRESS);
    option(&named, libc::IP_MULTICAST_IF, &interface(NO_ADDRESS, A0, 0)).expect("an own port");
    assert_eq!(named.send_to(b"named", (GROUP, on)).expect("sent"), 5);
    // The one that was named last holds, also over the one that the socket is bound to; none can be named that is not ours.
    let bound = bind(A1);
    option(&bound, libc::IP_MULTICAST_IF, &interface(NO_ADDRESS, A0, 0)).expect("an own port");
    for foreign in [B0, Ipv4Addr::new(127, 77, 0, 1)] {
        assert_eq!(errno(option(&bound, libc::IP_MULTICAST_IF, &foreign.octets())), libc::EADDRNOTAVAIL, "{foreign}");
    }
    assert_eq!(bound.send_to(b"by a0", (GROUP, on)).expect("sent"), 5);
}

fn members() {
    let socket = UdpSocket::bind((A0, 0)).expect("its own port");
    let join = |group, at| errno(socket.join_multicast_v4(&group, &at));
    let leave = |group, at| errno(socket.leave_multicast_v4(&group, &at));
    // Nothing is left that was not joined.
    assert_eq!(leave(GROUP, A0), libc::EADDRNOTAVAIL);
    // Each group can be joined once at each port.
    for (group, at) in [(GROUP, A0), (GROUP, A1), (OTHER_GROUP, A0)] {
        assert_eq!((join(group, at), join(group, at)), (0, libc::EADDRINUSE), "{group} at {at}");
    }
    // What is left is left alone, and once.
    assert_eq!((leave(GROUP, A0), leave(GROUP, A0)), (0, libc::EADDRNOTAVAIL));
    assert_eq!((join(GROUP, A1), join(OTHER_GROUP, A0)), (libc::EADDRINUSE, libc::EADDRINUSE));
    assert_eq!(leave(OTHER_GROUP, A1), libc::EADDRNOTAVAIL);
    assert_eq!(join(GROUP, A0), 0);
    // Another socket is a member by itself.
    let other = UdpSocket::bind((A0, 0)).expect("its own port");
    assert_eq!(errno(other.leave_multicast_v4(&GROUP, &A0)), libc::EADDRNOTAVAIL);
    assert_eq!(errno(other.join_multicast_v4(&GROUP, &A0)), 0);
    // An interface that is not ours is none, whether named by address, by number or not at all.
    for (at, number) in [(B0, 0), (Ipv4Addr::LOCALHOST, 0), (NO_ADDRESS, 1), (NO_ADDRESS, 0)] {
        let foreign = interface(GROUP, at, number);
        assert_eq!(errno(option(&socket, libc::IP_ADD_MEMBERSHIP, &foreign)), libc::ENODEV, "{at}, {number}");
        assert_eq!(errno(option(&socket, libc::IP_DROP_MEMBERSHIP, &foreign)), libc::EADDRNOTAVAIL, "{at}, {number}");
    }
    // What is no group cannot be joined, and half a request is none.
    assert_eq!(join(B0, A0), libc::EINVAL);
    assert_eq!(errno(option(&socket, libc::IP_ADD_MEMBERSHIP, &GROUP.octets())), libc::EINVAL);
}

/// Is bound to the group, and a member of it, while the parent speaks to it past the fabric.
fn deaf(on: u16) {
    let group = UdpSocket::bind((GROUP, on)).expect("a group");
    for at in [A0, A1] {
        group.join_multicast_v4(&GROUP, &at).expect("joined");
    }
    // Nobody else on the machine, another node for one, finds the number taken.
    let _another = UdpSocket::bind((GROUP, on)).expect("the same group and number");
    println!("report: {}", group.local_addr().expect("bound").port());
    std::io::stdin().read_line(&mut String::new()).expect("told to go on");
    group.set_nonblocking(true).expect("a socket");
    assert_eq!(group.recv_from(&mut [0; 16]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
}

#[track_caller]
fn passes_on_node_a(action: &[&str]) {
    let file = FabricFile::with(FABRIC);
    let output = node(action).env("MESH_FABRIC", &file.0).env("MESH_FABRIC_NODE", NODE_A).output().expect("starts");
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (told(&output.stdout), told(&output.stderr));
    assert!(output.status.success() && stdout.contains("report: done"), "{stdout}{stderr}");
}

#[test]
fn only_who_belongs_to_a_port_or_names_one_may_send_to_a_group() {
    // given a socket at the place of b, one at that of c, and one of the machine that is a member of the group
    let b = UdpSocket::bind("127.77.0.2:0").expect("loopback address");
    b.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let number = b.local_addr().expect("bound").port();
    let c = UdpSocket::bind(("127.77.1.2", number)).expect("a free number");
    let machine = UdpSocket::bind((GROUP, number)).expect("a free number");
    machine.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST).expect("loopback");
    // when a sends to the group from sockets of all kinds, each of which is told what becomes of it
    passes_on_node_a(&["send", &number.to_string()]);
    // then b hears those that left by its cable, and as from which port
    let mut bytes = [0; 16];
    for (said, from) in [("named", "127.77.0.1"), ("by a0", "127.77.1.1")] {
        let (size, source) = b.recv_from(&mut bytes).expect("a datagram");
        assert_eq!((&bytes[..size], source.ip().to_string().as_str()), (said.as_bytes(), from));
    }
    // and nobody hears anything else, on or off the fabric
    for socket in [b, c, machine] {
        socket.set_nonblocking(true).expect("a socket");
        assert_eq!(socket.recv_from(&mut bytes).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn members_are_kept_account_of_as_the_kernel_does() {
    passes_on_node_a(&["members"]);
}

#[test]
fn a_socket_of_a_group_hears_nothing_of_the_machine() {
    // given a node with a socket of the group, and a member of the same group and number that is not on the fabric
    let machine = UdpSocket::bind((GROUP, 0)).expect("a group");
    machine.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST).expect("loopback");
    let number = machine.local_addr().expect("bound").port();
    let file = FabricFile::with(FABRIC);
    let mut command = node(&["deaf", &number.to_string()]);
    command.env("MESH_FABRIC", &file.0).env("MESH_FABRIC_NODE", NODE_A);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut report = || lines.find_map(|line| line.split_once("report: ").map(|(_, report)| report.to_owned()));
    let underneath: u16 = report().expect("bound").parse().expect("a number");
    // when somebody speaks to the group on the machine, and to where the node's socket is underneath
    let outside = UdpSocket::bind("127.0.0.1:0").expect("loopback address");
    outside.send_to(b"outside", (GROUP, number)).expect("sent");
    outside.send_to(b"outside", (Ipv4Addr::LOCALHOST, underneath)).expect("sent");
    // then the other member has heard it, and the node nothing
    machine.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    assert_eq!(machine.recv_from(&mut [0; 16]).expect("a datagram").0, 7);
    child.stdin.take().expect("piped").write_all(b"\n").expect("a node that waits");
    assert_eq!(report().as_deref(), Some("done"));
    assert!(child.wait().expect("ended").success());
}
