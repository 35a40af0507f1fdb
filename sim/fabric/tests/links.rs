//! What ports hear of what is sent to everyone on a link, and what a cut cable lets through, in real processes.
#![allow(unsafe_code, reason = "socket options that the standard library lacks")]

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use common::{FABRIC, FabricFile, NODE_A, node};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 177);
const NODE_B: &str = "10.7.0.2,10.7.2.1";

/// A node's process, which lives until it has done its work.
struct Node {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Node {
    fn start(fabric: &FabricFile, ports: &str, action: &[&str]) -> Self {
        let mut command = node(action);
        command.env("MESH_FABRIC", &fabric.0).env("MESH_FABRIC_NODE", ports).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    /// The next thing that it reports; no more after a failure.
    fn report(&mut self) -> Option<String> {
        let line = self.lines.by_ref().map_while(Result::ok).find(|line| line.contains("report: "))?;
        line.split_once("report: ").map(|(_, report)| report.to_owned())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ignored unless started as a child of the others.
#[test]
#[ignore = "runs as a child of the other tests"]
fn a_node() {
    let action = std::env::var("FABRIC_TEST_ACTION").expect("set by the parent");
    let words: Vec<&str> = action.split(' ').collect();
    let port = |text: &str| text.parse::<u16>().expect("a number");
    match words[..] {
        ["tell-everyone", from, to] => tell_everyone(from.parse().expect("an address"), port(to)),
        ["listen", at, on] => listen(at.parse().expect("an address"), port(on)),
        ["lose-cable", to, datagrams, cuts] => lose_cable(to, datagrams, cuts),
        ["name"] => name(),
        _ => panic!("unknown action {action}"),
    }
}

fn option<T>(socket: &impl AsRawFd, level: i32, name: i32, value: &T) {
    // SAFETY: the value lives during the call, and its size is given.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const *value).cast(), size_of::<T>() as libc::socklen_t)
    };
    assert_eq!(status, 0, "option {name}: {}", std::io::Error::last_os_error());
}

fn raw(address: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from(address).to_be() }
}

/// Says "all" with `sendto` and "everyone" with `sendmsg` to all on the link of a port.
fn tell_everyone(from: Ipv4Addr, to: u16) {
    let socket = UdpSocket::bind((from, to)).expect("its own port");
    let index = libc::ip_mreqn { imr_multiaddr: raw(GROUP), imr_address: raw(from), imr_ifindex: 0 };
    option(&socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &index);
    socket.set_multicast_ttl_v4(1).expect("an option");
    socket.set_multicast_loop_v4(false).expect("an option");
    assert_eq!(socket.send_to(b"all", (GROUP, to)).expect("sent"), 3);
    let mut group = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.to_be(),
        sin_addr: raw(GROUP),
        sin_zero: [0; 8],
    };
    let mut parts = [&b"every"[..], b"one"]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: an all-zero header is valid; what it points to are locals, which live during the call and are only read.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut group).cast();
        message.msg_namelen = size_of_val(&group) as libc::socklen_t;
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    assert_eq!(sent, 8);
    println!("report: told");
}

/// Hears two datagrams on a port, while a socket of the same node on the group hears nothing.
fn listen(at: Ipv4Addr, on: u16) {
    let socket = UdpSocket::bind((at, on)).expect("its own port");
    let group = group_socket(on);
    group.join_multicast_v4(&GROUP, &at).expect("an option");
    option(&group, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &0_i32);
    option(&group, libc::IPPROTO_IP, libc::IP_PKTINFO, &1_i32);
    println!("report: listening");
    let mut bytes = [0; 64];
    for _ in 0..2 {
        let (size, from) = socket.recv_from(&mut bytes).expect("a datagram");
        println!("report: {} from {from}", String::from_utf8_lossy(&bytes[..size]));
    }
    group.set_nonblocking(true).expect("a socket");
    assert_eq!(group.recv_from(&mut bytes).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    group.leave_multicast_v4(&GROUP, &at).expect("an option");
    println!("report: nothing else");
}

fn group_socket(port: u16) -> UdpSocket {
    use std::os::fd::FromRawFd;
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: raw(GROUP),
        sin_zero: [0; 8],
    };
    // SAFETY: a fresh descriptor, which the socket owns from here on.
    let socket = unsafe { UdpSocket::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)) };
    option(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32);
    // SAFETY: the address lives during the call, and its size is given.
    let status = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    socket
}

/// Has its first cable cut, and mended, while it is connected over it.
fn lose_cable(to: &str, datagrams: &str, cuts: &str) {
    let file = std::fs::OpenOptions::new().write(true).open(cuts).expect("the file of cuts");
    let mut stream = TcpStream::connect(to).expect("a cable");
    let socket = UdpSocket::bind("10.7.0.1:0").expect("its own port");
    let datagrams: SocketAddr = datagrams.parse().expect("an address");
    let everyone = SocketAddr::from((GROUP, datagrams.port()));
    file.write_all_at(&[1], 0).expect("written");
    println!("report: {:?}", TcpStream::connect(to).expect_err("cut").raw_os_error());
    for to in [datagrams, everyone] {
        println!("report: {:?}", socket.send_to(b"lost", to).expect("no error"));
    }
    // What was connected before stays so.
    stream.write_all(b"x").expect("written");
    stream.read_exact(&mut [0]).expect("answered");
    file.write_all_at(&[0], 0).expect("written");
    for to in [datagrams, everyone] {
        socket.send_to(b"there", to).expect("sent");
    }
    println!("report: {:?}", TcpStream::connect(to).map(|_| "connected").expect("mended"));
}

/// Has a name among the Unix sockets of the machine.
fn name() {
    let name = UnixAddr::from_abstract_name(format!("mesh-fabric-test-{}", std::process::id())).expect("a name");
    let listener = UnixListener::bind_addr(&name).expect("free");
    let taken = UnixListener::bind_addr(&name).expect_err("taken").kind();
    let _guest = UnixStream::connect_addr(&name).expect("connected");
    listener.accept().expect("a guest");
    println!("report: {taken:?}");
}

/// Sockets at a place and on the same number at others, all free.
fn at_places<const N: usize>(places: [&str; N]) -> ([UdpSocket; N], u16) {
    loop {
        let number =
            UdpSocket::bind((places[0], 0)).and_then(|free| free.local_addr()).expect("loopback address").port();
        let sockets: Vec<_> = places.iter().filter_map(|place| UdpSocket::bind((*place, number)).ok()).collect();
        if let Ok(sockets) = <[UdpSocket; N]>::try_from(sockets) {
            for socket in &sockets {
                socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
            }
            return (sockets, number);
        }
    }
}

fn hears_nothing(socket: &UdpSocket) {
    socket.set_nonblocking(true).expect("a socket");
    assert_eq!(socket.recv_from(&mut [0; 16]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
}

#[test]
fn what_is_told_to_everyone_on_a_link_is_heard_at_the_other_end_and_nowhere_else() {
    // given b on its port and on the group, and sockets at the places of c and d on the same number
    let fabric = FabricFile::with(FABRIC);
    let ([free, c, d], number) = at_places(["127.77.0.2", "127.77.1.2", "127.77.2.2"]);
    drop(free);
    let on = number.to_string();
    let mut b = Node::start(&fabric, NODE_B, &["listen", "10.7.0.2", &on]);
    assert_eq!(b.report().as_deref(), Some("listening"));
    // when a tells everyone on its first link
    let mut a = Node::start(&fabric, NODE_A, &["tell-everyone", "10.7.0.1", &on]);
    assert_eq!(a.report().as_deref(), Some("told"));
    // then b hears it as from a's port, once each
    for said in ["all", "everyone"] {
        assert_eq!(b.report(), Some(format!("{said} from 10.7.0.1:{number}")));
    }
    assert_eq!(b.report().as_deref(), Some("nothing else"));
    // and nobody else, not even who is on another link of a or of b
    hears_nothing(&c);
    hears_nothing(&d);
}

#[test]
fn where_nobody_is_cabled_telling_everyone_is_no_error() {
    let lonely = FabricFile::with("port 10.7.5.1 127.77.5.1\nport 10.7.5.2 127.77.5.2\n");
    let ([other], number) = at_places(["127.77.5.2"]);
    let mut a = Node::start(&lonely, "10.7.5.1", &["tell-everyone", "10.7.5.1", &number.to_string()]);
    assert_eq!(a.report().as_deref(), Some("told"));
    hears_nothing(&other);
}

#[test]
fn a_cut_cable_swallows_datagrams_and_refuses_connections_until_it_is_mended() {
    // given b that answers connections, and datagrams to b
    let fabric = FabricFile::with(FABRIC);
    let cuts = PathBuf::from(format!("{}.cuts", fabric.0.display()));
    std::fs::write(&cuts, [0; 3]).expect("a temporary file");
    let listener = TcpListener::bind("127.77.0.2:0").expect("loopback address");
    let to = listener.local_addr().expect("bound").to_string().replace("127.77.", "10.7.");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut byte = [0];
                while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
            });
        }
    });
    let ([b], number) = at_places(["127.77.0.2"]);
    // when a's cable to b is cut while a is connected over it
    let datagrams = format!("10.7.0.2:{number}");
    let path = cuts.to_str().expect("plain");
    let mut a = Node::start(&fabric, NODE_A, &["lose-cable", &to, &datagrams, path]);
    // then no new connection comes about, datagrams leave without an error, and when it is mended there is a connection again
    let lines = [format!("Some({})", libc::EHOSTUNREACH), "4".to_owned(), "4".to_owned(), "\"connected\"".to_owned()];
    for line in lines {
        assert_eq!(a.report(), Some(line));
    }
    // and the datagrams that arrive are those from after that
    let mut bytes = [0; 16];
    for _ in 0..2 {
        let size = b.recv(&mut bytes).expect("delivered");
        assert_eq!(&bytes[..size], b"there");
    }
    hears_nothing(&b);
    std::fs::remove_file(&cuts).expect("its own");
}

#[test]
fn a_file_of_cuts_that_lacks_a_cable_ends_the_process() {
    let fabric = FabricFile::with(FABRIC);
    let cuts = PathBuf::from(format!("{}.cuts", fabric.0.display()));
    std::fs::write(&cuts, [0; 2]).expect("a temporary file");
    let mut command = node(&["name"]);
    let output = command.env("MESH_FABRIC", &fabric.0).env("MESH_FABRIC_NODE", NODE_A).output().expect("starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("2 bytes for 3 cables"), "{text}");
    std::fs::remove_file(&cuts).expect("its own");
}

#[test]
fn names_of_unix_sockets_are_the_machines() {
    let fabric = FabricFile::with(FABRIC);
    let mut a = Node::start(&fabric, NODE_A, &["name"]);
    assert_eq!(a.report().as_deref(), Some("AddrInUse"));
}
