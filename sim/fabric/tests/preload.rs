//! The library in real processes: this test program starts itself again with the library preloaded and asks what it can reach.

mod common;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use common::{FABRIC, FabricFile, NODE_A, node};

/// What node a reports about one action: the line behind the mark.
fn on_node_a(action: &[&str]) -> String {
    let file = FabricFile::with(FABRIC);
    let output = node(action).env("MESH_FABRIC", &file.0).env("MESH_FABRIC_NODE", NODE_A).output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = text.lines().find_map(|line| line.split_once("report: ")).map(|(_, report)| report.to_owned());
    report.unwrap_or_else(|| panic!("no report from the node: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// The other end of every test: a child that does one thing and reports. Ignored unless started as such a child.
#[test]
#[ignore = "runs as a child of the other tests"]
fn a_node() {
    let action = std::env::var("FABRIC_TEST_ACTION").expect("set by the parent");
    let words: Vec<&str> = action.split(' ').collect();
    let report = match words[..] {
        ["connect", to] => TcpStream::connect(address(to)).and_then(|stream| stream.local_addr()),
        ["connect-from", from, to] => connect_from(from, address(to)),
        ["bind", at] => TcpListener::bind((at, 0)).and_then(|listener| listener.local_addr()),
        ["udp", from, to] => UdpSocket::bind((from, 0)).and_then(|socket| {
            socket.send_to(b"beacon", address(to))?;
            socket.local_addr()
        }),
        ["meet", at] => TcpListener::bind((at, 0)).and_then(|listener| {
            let caller = TcpStream::connect(listener.local_addr()?)?;
            let (accepted, source) = listener.accept()?;
            assert_eq!((caller.local_addr()?, caller.peer_addr()?), (source, accepted.local_addr()?));
            assert_eq!(accepted.peer_addr()?, source);
            Ok(source)
        }),
        ["everyone", from, port] => UdpSocket::bind((from, 0)).and_then(|socket| {
            // What a driver of beacons asks for: a port as the interface for groups, and membership on it.
            let own: Ipv4Addr = from.parse().expect("an address");
            socket.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 177), &own)?;
            socket.send_to(b"beacon", (Ipv4Addr::new(224, 0, 0, 177), port.parse::<u16>().expect("a port")))?;
            socket.leave_multicast_v4(&Ipv4Addr::new(224, 0, 0, 177), &own)?;
            socket.local_addr()
        }),
        ["echo", at] => UdpSocket::bind((at, 0)).and_then(|socket| {
            socket.send_to(b"self", socket.local_addr()?)?;
            socket.recv_from(&mut [0; 8]).map(|(_, source)| source)
        }),
        _ => panic!("unknown action {action}"),
    };
    match report {
        Ok(address) => println!("report: from {}", address.ip()),
        Err(error) => println!("report: errno {}", error.raw_os_error().expect("from the system")),
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// The standard library cannot bind before it connects; the C library can.
#[allow(unsafe_code, reason = "plain socket calls")]
fn connect_from(from: &str, to: SocketAddr) -> std::io::Result<SocketAddr> {
    use std::os::fd::FromRawFd;
    let raw = |ip: Ipv4Addr, port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
        sin_zero: [0; 8],
    };
    let SocketAddr::V4(to) = to else { panic!("IPv4 only") };
    let source = raw(from.parse().expect("an address"), 0);
    let destination = raw(*to.ip(), to.port());
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    let check = |status: i32| if status < 0 { Err(std::io::Error::last_os_error()) } else { Ok(status) };
    // SAFETY: the descriptor is fresh and owned by the stream; both addresses are whole and of the given size.
    unsafe {
        let socket = check(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0))?;
        let stream = TcpStream::from_raw_fd(socket);
        check(libc::bind(socket, (&raw const source).cast(), size))?;
        check(libc::connect(socket, (&raw const destination).cast(), size))?;
        stream.local_addr()
    }
}

/// A listener at a place (this program is outside the fabric), and its address inside the fabric.
fn listener(at: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind((at, 0)).expect("loopback address");
    let address = listener.local_addr().expect("bound").to_string();
    (listener, inside(&address))
}

fn inside(place: &str) -> String {
    place.replace("127.77.", "10.7.")
}

#[test]
fn a_cabled_pair_connects_from_the_right_port() {
    // given listeners on b and c, when a connects without choosing a source, then it comes from the port cabled to each
    let (_b, b) = listener("127.77.0.2");
    assert_eq!(on_node_a(&["connect", &b]), "from 10.7.0.1");
    let (_c, c) = listener("127.77.1.2");
    assert_eq!(on_node_a(&["connect", &c]), "from 10.7.1.1");
    // and when it chooses the cabled port itself, then that holds
    assert_eq!(on_node_a(&["connect-from", "10.7.1.1", &c]), "from 10.7.1.1");
}

#[test]
fn what_is_not_cabled_is_refused() {
    // given listeners that every process of this machine could reach
    let (_d, d) = listener("127.77.2.2");
    let (_b, b) = listener("127.77.0.2");
    // when no port of a is cabled to it, then the network is unreachable
    assert_eq!(on_node_a(&["connect", &d]), format!("errno {}", libc::ENETUNREACH));
    // when the chosen port is not the one that is cabled, or no port of the fabric, then it is refused
    assert_eq!(on_node_a(&["connect-from", "10.7.1.1", &b]), format!("errno {}", libc::ECONNREFUSED));
    assert_eq!(on_node_a(&["connect-from", "127.0.0.1", &b]), format!("errno {}", libc::ECONNREFUSED));
    // when it goes for the place behind the address, then there is no way either
    let place = b.replace("10.7.", "127.77.");
    assert_eq!(on_node_a(&["connect", &place]), format!("errno {}", libc::ENETUNREACH));
}

#[test]
fn another_nodes_port_cannot_be_bound() {
    assert_eq!(on_node_a(&["bind", "10.7.0.2"]), format!("errno {}", libc::EADDRNOTAVAIL));
    assert_eq!(on_node_a(&["bind", "10.7.0.1"]), "from 10.7.0.1");
    let place = on_node_a(&["bind", "127.77.0.1"]);
    assert_eq!(place, format!("errno {}", libc::EADDRNOTAVAIL), "a place is not an address");
    assert_eq!(on_node_a(&["bind", "0.0.0.0"]), "from 0.0.0.0");
}

#[test]
fn addresses_outside_the_fabric_pass() {
    let (_outside, at) = listener("127.0.0.1");
    assert_eq!(on_node_a(&["connect", &at]), "from 127.0.0.1");
    assert_eq!(on_node_a(&["bind", "127.0.0.1"]), "from 127.0.0.1");
}

#[test]
fn a_node_reaches_its_own_port() {
    // given a listener on a's own port, when a connects to it, then the source is a port of a as on a real host
    let (_own, at) = listener("127.77.1.1");
    assert_eq!(on_node_a(&["connect", &at]), "from 10.7.1.1");
}

#[test]
fn a_listening_node_sees_addresses_not_places() {
    // given a that listens on its own port and connects to it, then both ends have the fabric's addresses
    assert_eq!(on_node_a(&["meet", "10.7.0.1"]), "from 10.7.0.1");
    // and so has the source of a datagram
    assert_eq!(on_node_a(&["echo", "10.7.0.1"]), "from 10.7.0.1");
}

#[test]
fn what_is_sent_to_everyone_goes_to_the_cabled_port_alone() {
    // given sockets with one port number on b, which a's first port is cabled to, and on c and d, which it is not
    let b = UdpSocket::bind("127.77.0.2:0").expect("loopback address");
    b.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let port = b.local_addr().expect("bound").port();
    let others = ["127.77.1.2", "127.77.2.2"].map(|at| UdpSocket::bind((at, port)).expect("a free port"));
    // when a sends to everyone on its first port, then b hears it from that port, and nobody else does
    assert_eq!(on_node_a(&["everyone", "10.7.0.1", &port.to_string()]), "from 10.7.0.1");
    let mut bytes = [0; 16];
    let (n, from) = b.recv_from(&mut bytes).expect("a datagram");
    assert_eq!((&bytes[..n], inside(&from.ip().to_string()).as_str()), (&b"beacon"[..], "10.7.0.1"));
    for other in others {
        other.set_nonblocking(true).expect("a socket");
        assert_eq!(other.recv_from(&mut bytes).expect_err("silence").kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn datagrams_keep_to_the_cables_too() {
    // given a socket on b and one on d
    let b = UdpSocket::bind("127.77.0.2:0").expect("loopback address");
    b.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    let d = UdpSocket::bind("127.77.2.2:0").expect("loopback address");
    d.set_nonblocking(true).expect("a socket");
    let to_b = inside(&b.local_addr().expect("bound").to_string());
    let to_d = inside(&d.local_addr().expect("bound").to_string());
    // when a sends to b unbound, then b sees a's cabled port as the source
    assert_eq!(on_node_a(&["udp", "0.0.0.0", &to_b]), "from 0.0.0.0");
    let mut buffer = [0; 16];
    let (size, source) = b.recv_from(&mut buffer).expect("delivered");
    assert_eq!((&buffer[..size], source.ip().to_string()), (&b"beacon"[..], "127.77.0.1".to_owned()));
    // when a sends to d, or to b from the wrong port, then nothing leaves
    assert_eq!(on_node_a(&["udp", "0.0.0.0", &to_d]), format!("errno {}", libc::ENETUNREACH));
    assert_eq!(on_node_a(&["udp", "10.7.1.1", &to_d]), format!("errno {}", libc::ECONNREFUSED));
    assert_eq!(d.recv_from(&mut buffer).expect_err("nothing came").kind(), ErrorKind::WouldBlock);
}

fn ended_with_reason(output: &Output, reason: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains(reason), "{text}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("report:"), "nothing of the program may run");
}

#[test]
fn without_a_sound_fabric_the_process_ends() {
    // given no file, a missing one, a malformed one, no list of ports, and a list that the file does not know
    let sound = FabricFile::with(FABRIC);
    let malformed = FabricFile::with("port 10.7.0.1 127.77.0.one\n");
    let start = |fabric: Option<&PathBuf>, own: Option<&str>| {
        let mut command = node(&["bind", "127.0.0.1"]);
        command.env_remove("MESH_FABRIC").env_remove("MESH_FABRIC_NODE");
        fabric.map(|path| command.env("MESH_FABRIC", path));
        own.map(|ports| command.env("MESH_FABRIC_NODE", ports));
        command.output().expect("starts")
    };
    // when a process starts with it, then it ends before its main and says why
    ended_with_reason(&start(None, Some(NODE_A)), "MESH_FABRIC is not set");
    ended_with_reason(&start(Some(&PathBuf::from("/nonexistent/fabric")), Some(NODE_A)), "cannot read");
    ended_with_reason(&start(Some(&malformed.0), Some(NODE_A)), "line 1");
    ended_with_reason(&start(Some(&sound.0), None), "MESH_FABRIC_NODE is not set");
    ended_with_reason(&start(Some(&sound.0), Some("10.7.9.9")), "not in the fabric file");
}
