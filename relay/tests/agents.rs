//! Agents over real sockets: paths of every length, and everything that can be wrong about a peer.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use mesh_relay::agent::AgentError;
use mesh_relay::engine::MS;
use mesh_relay::wire::{HopAddr, Msg};
use support::{Block, Receiver, Sender, config, connect, line, ports, refused, request, start, transfer, until};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn exchange(sender: &mut Sender, receiver: &mut Receiver) {
    for len in [0, 1, 127, 128, 4095, 4096, 4097, 65_536, 300_000, 0, 5] {
        transfer(sender, receiver, &pattern(len));
    }
}

#[test]
fn messages_arrive_over_zero_to_four_relays_both_ways() {
    for nodes in 2..=6 {
        // given a line of nodes
        let (agents, cables) = line(nodes);
        let back: Vec<_> = cables.iter().rev().map(|c| HopAddr::new(c.to, c.from)).collect();
        let (first, last) = (&agents[0], &agents[usize::from(nodes) - 1]);
        // when its ends connect, both ways
        let (mut s1, mut r1) = connect(first, last, &cables);
        let (mut s2, mut r2) = connect(last, first, &back);
        assert_eq!((s1.relays, r1.relays), (nodes - 2, nodes - 2));
        // then every message arrives, of no bytes, of one chunk and of many
        exchange(&mut s1, &mut r1);
        exchange(&mut s2, &mut r2);
        // and every slot is free again
        for (n, agent) in agents.iter().enumerate() {
            let relays = n > 0 && n + 1 < agents.len();
            let report = until("report", || agent.report(Duration::from_secs(5)).filter(|r| r.pool.filled == 0));
            assert_eq!(report.streams, if relays { 2 } else { 0 }, "node {n}");
            assert_eq!(report.forwarded_bytes > 0, relays, "node {n}");
        }
    }
}

#[test]
fn an_orderly_close_reaches_the_other_end_and_frees_the_relays() {
    let (agents, cables) = line(4);
    let (mut sender, mut receiver) = connect(&agents[0], &agents[3], &cables);
    transfer(&mut sender, &mut receiver, &pattern(10_000));
    // when the sender closes
    for lane in &mut sender.lanes {
        let mut bytes = Vec::new();
        Msg::Close { stream: 0, code: 0 }.encode(&mut bytes);
        lane.post_message(&bytes).unwrap();
    }
    agents[0].retire(std::mem::take(&mut sender.lanes));
    // then the receiver hears of it
    until("close", || {
        let _ = receiver.poll();
        receiver.closed
    });
    assert_eq!(receiver.closed, Some(0));
    // and nothing of the path is left
    for agent in &agents {
        until("no streams", || agent.report(Duration::from_secs(5)).filter(|r| r.streams == 0 && r.lingering == 0));
    }
}

#[test]
fn a_node_that_never_starts_is_named_within_the_limit() {
    // given a line whose last node is absent
    let block = Block::new();
    let cables: Vec<_> = (0..3).map(|n| block.cable(n)).collect();
    let agents: Vec<_> = (0..3).map(|n| start(config(&support::name(n), &ports(&cables, n))).unwrap()).collect();
    // when somebody connects to it
    let mut ask = request([1; 16], &cables);
    ask.budget = 1500 * MS;
    let why = refused(&agents[0], ask);
    // then the nearest relay says what it could not reach, and from where
    assert_eq!(why.code, 50, "{}", why.text);
    assert!(why.text.starts_with("mesh[E50] node c: cannot reach"), "{}", why.text);
    assert!(why.text.contains(&cables[2].to.to_string()) && why.text.contains("refused"), "{}", why.text);
    // and if the very first hop is missing, the sender does
    let mut ask = request([1; 16], &[block.cable(9)]);
    ask.budget = 300 * MS;
    ask.lanes[0][0].from = cables[0].from;
    let why = refused(&agents[0], ask);
    assert!(why.text.starts_with("mesh[E50] node a: cannot reach"), "{}", why.text);
    // and nothing is left of either
    for agent in &agents {
        until("no streams", || agent.report(Duration::from_secs(5)).filter(|r| r.streams == 0 && r.pool.filled == 0));
    }
}

#[test]
fn a_node_that_starts_late_is_waited_for() {
    let block = Block::new();
    let cables: Vec<_> = (0..2).map(|n| block.cable(n)).collect();
    let first = start(config("a", &ports(&cables, 0))).unwrap();
    let last = start(config("c", &ports(&cables, 2))).unwrap();
    let listening = last.listen([2; 16]);
    let mut connecting = first.connect(request([2; 16], &cables));
    std::thread::sleep(Duration::from_millis(200));
    assert!(connecting.poll().is_none(), "the relay is not there yet");
    let _middle = start(config("b", &ports(&cables, 1))).unwrap();
    assert!(until("connect", || connecting.poll()).is_ok());
    until("accept", || listening.poll());
}

#[test]
fn an_unknown_token_and_a_node_that_does_not_relay_are_refused() {
    let (agents, cables) = line(3);
    let why = refused(&agents[0], request([99; 16], &cables));
    assert!(why.text.starts_with("mesh[E52] node c: nobody listens"), "{}", why.text);

    let block = Block::new();
    let cables: Vec<_> = (0..2).map(|n| block.cable(n)).collect();
    let mut middle = config("b", &ports(&cables, 1));
    middle.engine.relay = false;
    let first = start(config("a", &ports(&cables, 0))).unwrap();
    let _middle = start(middle).unwrap();
    let why = refused(&first, request([3; 16], &cables));
    assert!(why.text.starts_with("mesh[E01] node b:") && why.text.contains("relay = false"), "{}", why.text);
}

#[test]
fn a_second_process_on_a_node_is_told_so() {
    let block = Block::new();
    let cables = [block.cable(0)];
    let _first = start(config("a", &ports(&cables, 0))).unwrap();
    let error = start(config("a", &ports(&cables, 0))).unwrap_err();
    assert!(matches!(error, AgentError::AddressTaken { .. }), "{error}");
    assert!(error.to_string().starts_with("mesh[E55] node a:"), "{error}");
}

fn dial(from: std::net::Ipv4Addr, to: std::net::Ipv4Addr) -> TcpStream {
    let mut dialing = mesh_link::tcp::dial::start_connect(from, SocketAddrV4::new(to, 17_917)).unwrap();
    let stream = until("dial", || match dialing.poll() {
        mesh_link::tcp::dial::DialState::Connected(stream) => Some(stream),
        mesh_link::tcp::dial::DialState::Failed(e) => panic!("{e}"),
        mesh_link::tcp::dial::DialState::Pending => None,
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(support::WATCHDOG)).unwrap();
    stream
}

/// Bytes that the agent sends until it closes the connection.
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => bytes,
        Err(e) => panic!("the agent keeps a stranger: {e}"),
    }
}

#[test]
fn strangers_are_dropped_and_everybody_else_is_served() {
    let (agents, cables) = line(2);
    let (from, to) = (cables[0].from, cables[0].to);
    // given strangers who say nothing, half a frame, garbage, a wrong message, and one from another subnet
    let silent = dial(from, to);
    let mut half = dial(from, to);
    half.write_all(&[0x4d, 0x01]).unwrap();
    let mut garbage = dial(from, to);
    garbage.write_all(&[0xa5; 4096]).unwrap();
    let mut http = dial(from, to);
    http.write_all(b"GET / HTTP/1.1\r\nHost: mesh\r\n\r\n                      ").unwrap();
    let outside = dial(std::net::Ipv4Addr::new(127, 0, 0, 1), to);
    // when a real peer comes meanwhile, it is served
    let (mut sender, mut receiver) = connect(&agents[0], &agents[1], &cables);
    transfer(&mut sender, &mut receiver, &pattern(1000));
    // then each stranger is turned away, without an answer
    for stranger in [silent, half, garbage, http, outside] {
        assert!(until_closed(stranger).is_empty());
    }
    transfer(&mut sender, &mut receiver, &pattern(1000));
}

#[test]
fn too_many_strangers_do_not_keep_real_peers_out_for_long() {
    let (agents, cables) = line(2);
    let crowd: Vec<_> = (0..20).map(|_| dial(cables[0].from, cables[0].to)).collect();
    let (mut sender, mut receiver) = connect(&agents[0], &agents[1], &cables);
    transfer(&mut sender, &mut receiver, &pattern(10));
    for stranger in crowd {
        assert!(until_closed(stranger).is_empty());
    }
}

#[test]
fn a_peer_with_another_protocol_is_told_both_versions() {
    let (_agents, cables) = line(2);
    let stream = dial(cables[0].from, cables[0].to);
    let mut peer = mesh_link::tcp::TcpEndpoint::new(stream, mesh_link::tcp::Limits::default()).unwrap();
    let mut bytes = Vec::new();
    Msg::TrunkHello { node: 1 }.encode(&mut bytes);
    bytes[5] = 9;
    peer.post_message(&bytes).unwrap();
    let mut answer = None;
    until("the refusal", || {
        let polled = peer.poll(|event| {
            if let mesh_link::Event::Message(bytes) = event {
                answer = Msg::decode(bytes).ok();
            }
        });
        polled.is_err().then_some(())
    });
    let Some(Msg::Refused { why, .. }) = answer else { panic!("{answer:?}") };
    assert!(why.text.starts_with("mesh[E43] node b speaks mesh protocol 3, the peer 9"), "{}", why.text);
}

#[test]
fn a_relay_that_stops_breaks_its_paths_at_both_ends() {
    let (agents, cables) = line(3);
    let (mut sender, mut receiver) = connect(&agents[0], &agents[2], &cables);
    transfer(&mut sender, &mut receiver, &pattern(10));
    agents[1].stop();
    // The relay's process is gone: both ends see their leg end.
    until("the sender's end", || sender.poll().err());
    until("the receiver's end", || receiver.poll().err());
}
