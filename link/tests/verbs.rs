//! What only verbs have: devices, registrations, access, and the faults of a NIC. Skipped without a device; see `fixture`.
#![allow(unsafe_code, reason = "memory that goes away and comes back at the same address")]

mod fixture;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fixture::{Fixture, Seen, contents, drive, failure, fill, pattern, poll, settle, strict, until, verbs_ports};
use mesh_link::endpoint::{Backend, EndpointError};
use mesh_link::memory::Slab;
use mesh_link::poller::{Interest, Poller, Ready};
use mesh_link::tcp::Limits;
use mesh_link::tcp::dial::listen;
use mesh_link::verbs::{DeviceError, DeviceSet, Gid, PortState, VerbsError, VerbsLimits, survey};
use mesh_link::{Endpoint, Key, LinkError, Target, Window};

#[test]
fn ports_are_found_by_their_addresses() {
    let Some(fixture) = Fixture::verbs() else { return };
    // given the two ports, then they are found with their GIDs, in the order asked for
    let set = fixture.set.as_ref().unwrap();
    let ports: Vec<_> = set.ports().collect();
    assert_eq!(ports.iter().map(|(address, _)| *address).collect::<Vec<_>>(), [fixture.near, fixture.far]);
    for (address, port) in &ports {
        assert_eq!(port.state, PortState::Active);
        assert!(port.gids.iter().any(|entry| entry.gid == Gid::of(*address)), "{port}");
        assert!(matches!(port.mtu, 256 | 512 | 1024 | 2048 | 4096), "{port:?}");
    }
    let all = survey(None).unwrap();
    assert!(ports.iter().all(|(_, port)| all.iter().any(|other| other.device == port.device)), "{all:?}");
    // when an address is asked for that no port has, then the error lists those that are there
    let nobody = Ipv4Addr::new(192, 0, 2, 77);
    let error = DeviceSet::open(&[fixture.near, nobody], None).unwrap_err();
    assert!(matches!(error, DeviceError::NoPort { address, .. } if address == nobody), "{error}");
    let text = error.to_string();
    assert!(text.contains(&fixture.near.to_string()) && text.contains(&ports[0].1.device), "{text}");
}

#[test]
fn an_endpoint_needs_a_port_of_the_set() {
    let Some(fixture) = Fixture::verbs() else { return };
    // given a set with the far port alone
    let set = DeviceSet::open(&[fixture.far], None).unwrap();
    let (near, far) = fixture.streams();
    // when endpoints are made with it, then the near one is refused by name
    let backend = Backend::Verbs(set, strict());
    let error = Endpoint::new(near, Limits::default(), &backend).unwrap_err();
    assert!(matches!(&error, EndpointError::Verbs(VerbsError::Device(DeviceError::NotOpened { .. }))), "{error}");
    assert!(error.to_string().contains(&fixture.near.to_string()), "{error}");
    assert!(Endpoint::new(far, Limits::default(), &backend).is_ok());
    // and limits outside their range are, too
    let (near, _far) = fixture.streams();
    let backend = fixture.backend(VerbsLimits { retries: 7, ..strict() });
    let error = Endpoint::new(near, Limits::default(), &backend).unwrap_err();
    assert!(error.to_string().contains("retries is 7"), "{error}");
}

#[test]
fn ends_of_different_backends_tell_each_other() {
    let Some(fixture) = Fixture::verbs() else { return };
    for tcp_speaks in [false, true] {
        // given one end over TCP and one over verbs
        let (near, far) = fixture.streams();
        let mut tcp = Endpoint::new(near, Limits::default(), &Backend::Tcp).unwrap();
        let mut verbs = Endpoint::new(far, Limits::default(), &fixture.backend(strict())).unwrap();
        if tcp_speaks {
            tcp.post_message(b"hello").unwrap();
            tcp.flush().unwrap();
        }
        // when both are polled, then both fail and name the two backends
        let (mut at_tcp, mut at_verbs) = (None, None);
        until("both errors", || {
            at_tcp = at_tcp.or_else(|| poll(&mut tcp, &mut Vec::new()).err());
            at_verbs = at_verbs.or_else(|| poll(&mut verbs, &mut Vec::new()).err());
            at_tcp.is_some() && at_verbs.is_some()
        });
        for error in [at_tcp.unwrap(), at_verbs.unwrap()] {
            let text = error.to_string();
            assert!(text.contains("tcp") && text.contains("verbs"), "{text}");
        }
    }
}

#[test]
fn a_write_with_a_wrong_key_breaks_both_ends_and_says_why() {
    let Some(fixture) = Fixture::verbs() else { return };
    let (from, into) = (fixture.slab(1, 4096), fixture.slab(1, 4096));
    fill(from.slot(0), 1);
    for shift in [false, true] {
        // given a key that is no key, or a place outside the key's memory
        let (mut near, mut far) = fixture.pair(Limits::default());
        let (key, base) = far.expose(into.slot(0)).unwrap();
        let target = if shift {
            Target { key, offset: base - (1 << 30) }
        } else {
            Target { key: Key::from_raw(key.raw() ^ 0x00ff_f000), offset: base }
        };
        // when written to
        near.post_write(1, None, from.slot(0), target, Some(1)).unwrap();
        // then the sender learns that the peer does not allow it, with both ends named
        let mut error = None;
        until("an error", || {
            let _ = poll(&mut far, &mut Vec::new());
            error = poll(&mut near, &mut Vec::new()).err();
            error.is_some()
        });
        let Some(LinkError::Completion(fault)) = error else { panic!("{error:?}") };
        assert_eq!(fault.status, 10, "{fault}");
        assert_eq!((fault.local, fault.remote), (Gid::of(fixture.near), Gid::of(fixture.far)));
        assert!(fault.to_string().contains("remote access error"), "{fault}");
        // and the other end fails as well, and nothing has landed
        failure(&mut far);
        assert!(contents(into.slot(0)).iter().all(|&byte| byte == 0));
    }
}

#[test]
fn memory_that_comes_back_at_an_address_is_other_memory() {
    let Some(fixture) = Fixture::verbs() else { return };
    const LEN: usize = 64 << 10;
    let set = fixture.set.as_ref().unwrap();
    let (mut near, mut far) = fixture.pair(Limits::default());
    let into = fixture.slab(1, LEN);
    let (key, base) = far.expose(into.slot(0)).unwrap();
    // A place that nobody else uses: it stays reserved by the slab.
    let place = Slab::new(1, LEN).unwrap();
    for round in 0..5_u64 {
        // given other pages at the same address, every other time registered
        // SAFETY: replaces the slab's own mapping, of at least that length, by another; no endpoint uses the old one any more.
        let at = unsafe {
            libc::mmap(
                place.slot(0).as_ptr().cast(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        assert_eq!(at.addr(), place.slot(0).addr());
        let window: Window = place.slot(0);
        let bytes = pattern(LEN, round);
        assert!(window.write_from(0, &bytes));
        let registration = (round % 2 == 0).then(|| set.register(window).unwrap());
        // when written from there, twice
        for _ in 0..2 {
            near.post_write(round, None, window, Target { key, offset: base }, Some(0)).unwrap();
            drive(&mut near, &mut far, 1);
        }
        // then what arrives is what is there now
        assert!(contents(into.slot(0)) == bytes, "round {round}");
        drop(registration);
    }
}

#[test]
fn a_full_conversation_needs_no_second_receive() {
    let Some(fixture) = Fixture::verbs() else { return };
    // given as few receives as there may be, no tolerance for a missing one, and a receiver that is slow
    let limits = Limits { writes: 64, messages: 16, ..Limits::default() };
    let (mut near, mut far) = fixture.pair_with(limits, VerbsLimits { receives: 8, ..strict() });
    let (from, into) = (fixture.slab(1, 64), fixture.slab(1, 64));
    let (key, base) = far.expose(into.slot(0)).unwrap();
    let (mut posted, mut written, mut notified, mut messages) = (0_u32, 0, 0, 0);
    // when writes and messages come faster than they are taken
    until("all", || {
        if posted < 1000 && near.post_write(0, None, from.slot(0), Target { key, offset: base }, Some(posted)).is_ok() {
            posted += 1;
            while near.post_message(&posted.to_le_bytes()).is_err() {
                near.poll(|e| written += u32::from(matches!(e, mesh_link::Event::Written { .. }))).unwrap();
                far.poll(|e| match e {
                    mesh_link::Event::Notified { .. } => notified += 1,
                    _ => messages += 1,
                })
                .unwrap();
            }
        }
        near.poll(|e| written += u32::from(matches!(e, mesh_link::Event::Written { .. }))).unwrap();
        if posted % 7 == 0 || posted == 1000 {
            far.poll(|e| match e {
                mesh_link::Event::Notified { .. } => notified += 1,
                _ => messages += 1,
            })
            .unwrap();
        }
        (written, notified, messages) == (1000, 1000, 1000)
    });
    // then all arrived, and nobody was ever not ready
    assert_eq!((near.error(), far.error()), (None, None));
}

/// Runs a command of the virtual machine; false if this is not that machine.
fn in_machine(command: &str) -> bool {
    let mut words = command.split(' ');
    std::env::var_os("RDMA_VM").is_some()
        && Command::new(words.next().unwrap()).args(words).status().is_ok_and(|status| status.success())
}

#[test]
fn while_an_endpoint_says_that_it_is_armed_it_can_be_woken() {
    let Some(fixture) = Fixture::verbs() else { return };
    let (mut near, mut far) = fixture.pair(Limits::default());
    settle(&mut near, &mut far);
    let poller = Poller::new().unwrap();
    poller.add(far.completion_fd().expect("verbs"), 0, Interest::READ).unwrap();
    let asked = AtomicU32::new(0);
    let mut ended_by_itself = 0;
    std::thread::scope(|scope| {
        // given a peer on a thread of its own that sends one message whenever it is asked
        scope.spawn(|| {
            for turn in 1..=600 {
                until("the next turn", || asked.load(Ordering::Acquire) >= turn);
                near.post_message(&turn.to_le_bytes()).unwrap();
                near.flush().unwrap();
                near.poll(|_| {}).unwrap();
            }
        });
        for turn in 0..300_u32 {
            far.arm().unwrap();
            asked.fetch_add(1, Ordering::Release);
            let mut seen = Vec::new();
            until("a message", || {
                poll(&mut far, &mut seen).unwrap();
                !seen.is_empty()
            });
            // when a message was taken, perhaps before its event came, and the endpoint is armed and polled a while with nothing to take
            loop {
                far.arm().unwrap();
                for _ in 0..turn % 97 * 40 {
                    assert!(!far.poll(|event| panic!("{event:?}")).unwrap());
                }
                if far.is_armed() {
                    break;
                }
                ended_by_itself += 1;
            }
            // then, as long as it says that it is armed, the next message wakes a sleeper
            asked.fetch_add(1, Ordering::Release);
            let woken = poller.wait(&mut [Ready::default()], Some(Duration::from_secs(10))).unwrap();
            assert_eq!(woken, 1, "turn {turn}: asleep though a message has come");
            until("the second message", || {
                poll(&mut far, &mut seen).unwrap();
                seen.len() == 2
            });
        }
    });
    println!("late events ended the arming {ended_by_itself} times");
}

#[test]
fn a_port_that_changed_since_the_start_is_told() {
    let Some(_fixture) = Fixture::verbs() else { return };
    // given devices opened by the addresses of the second cable, and streams between them
    let (near, far) = (Ipv4Addr::new(10, 77, 1, 1), Ipv4Addr::new(10, 77, 1, 2));
    if !in_machine("cable 1 state") {
        println!("skipped: no second cable outside tests/rdma-vm/run.sh");
        return;
    }
    let set = DeviceSet::open(&[near, far], None).unwrap();
    let (stream, _other) = fixture::streams(near, far);
    let refusal = || {
        let backend = Backend::Verbs(set.clone(), strict());
        match Endpoint::new(stream.try_clone().unwrap(), Limits::default(), &backend) {
            Err(EndpointError::Verbs(VerbsError::Device(error))) => Some(error),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        }
    };
    assert!(refusal().is_none());
    // when the cable is cut, then both opening and connecting tell that the port is down
    assert!(in_machine("cable 1 cut"));
    for error in [DeviceSet::open(&[near], None).unwrap_err(), refusal().unwrap()] {
        assert!(
            matches!(error, DeviceError::PortNotActive { address, state: PortState::Down, .. } if address == near),
            "{error}"
        );
    }
    assert!(in_machine("cable 1 join"));
    until("the port", || refusal().is_none());
    // when the address goes, then connecting tells where it was and what the port has now
    assert!(in_machine("ip addr del 10.77.1.1/30 dev n01r"));
    let error = refusal().unwrap();
    assert!(matches!(&error, DeviceError::GidGone { address, port: 1, .. } if *address == near), "{error}");
    assert!(error.to_string().contains("only link-local GIDs"), "{error}");
    // and when it is back, all is well, wherever in the table it is
    assert!(in_machine("ip addr add 10.77.1.1/30 dev n01r"));
    assert!(in_machine("ip route add 10.77.1.2/32 dev n01r src 10.77.1.1 table 10"));
    until("the address", || refusal().is_none());
}

#[test]
fn a_cut_cable_is_told_with_both_ends_and_in_time() {
    let Some(fixture) = Fixture::verbs() else { return };
    let verbs = VerbsLimits { timeout: 14, retries: 3, ..strict() };
    let (mut near, mut far) = fixture.pair_with(Limits::default(), verbs);
    settle(&mut near, &mut far);
    let (from, into) = (fixture.slab(1, 64), fixture.slab(1, 64));
    let (key, base) = far.expose(into.slot(0)).unwrap();
    // given a cable that is cut
    if !in_machine("cable 0 cut") {
        println!("skipped: no cable to cut outside tests/rdma-vm/run.sh");
        return;
    }
    // when something is written
    let begin = Instant::now();
    near.post_write(1, None, from.slot(0), Target { key, offset: base }, Some(1)).unwrap();
    let (error, _) = failure(&mut near);
    let took = begin.elapsed();
    assert!(in_machine("cable 0 join"));
    // then the NIC gives up after its four tries of 67 ms, not before, and the error names both ends and the times
    let LinkError::Completion(fault) = error else { panic!("{error}") };
    assert_eq!((fault.status, fault.timeout, fault.retries), (12, 14, 3), "{fault}");
    assert!(fault.to_string().contains(&fixture.far.to_string()), "{fault}");
    assert!(took > Duration::from_millis(200), "{took:?}");
    // and a port whose cable is in again can be used again
    until("the ports", || {
        let again = DeviceSet::open(&[fixture.near, fixture.far], None);
        again.is_ok_and(|set| set.down_at_start().next().is_none())
    });
    let (mut near, mut far) = fixture.pair(Limits::default());
    near.post_message(b"back").unwrap();
    drive(&mut near, &mut far, 1);
}

#[test]
fn a_killed_process_is_noticed_after_its_last_words() {
    const CHILD: &str = "MESH_TEST_VERBS_CHILD";
    const WORDS: usize = 20;
    let Some(fixture) = Fixture::verbs() else { return };
    if let Ok(port) = std::env::var(CHILD) {
        // The process that is going to be killed: says its words, and then only waits.
        let stream = fixture::connect(fixture.near, SocketAddrV4::new(fixture.far, port.parse().unwrap()));
        let mut endpoint = Endpoint::new(stream, Limits::default(), &fixture.backend(strict())).unwrap();
        for k in 0..WORDS {
            endpoint.post_message(&[k as u8]).unwrap();
        }
        until("being killed", || endpoint.poll(|event| panic!("{event:?}")).is_err());
        return;
    }
    // given another process at the other end
    let listener = listen(SocketAddrV4::new(fixture.far, 0), 1).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_is_noticed_after_its_last_words"])
        .env(CHILD, listener.local_addr().unwrap().port().to_string())
        .spawn()
        .unwrap();
    let stream = fixture::accept(&listener);
    let mut endpoint = Endpoint::new(stream, Limits::default(), &fixture.backend(strict())).unwrap();
    let mut seen = Vec::new();
    // when it has spoken and is killed
    until("its words to arrive", || {
        poll(&mut endpoint, &mut seen).unwrap();
        seen.len() == WORDS
    });
    child.kill().unwrap();
    child.wait().unwrap();
    // then the link fails without anything being posted here
    let (error, rest) = failure(&mut endpoint);
    assert!(matches!(error, LinkError::Reset { .. } | LinkError::Completion(_)), "{error}");
    assert!(rest.is_empty() && seen.iter().enumerate().all(|(k, e)| *e == Seen::Message(vec![k as u8])));
}

#[test]
fn the_reason_for_skipping_is_told() {
    // given a host without ports to test with, then the fixture says what to set
    if let Err(why) = verbs_ports() {
        assert!(why.contains("MESH_TEST_VERBS") && why.contains("tests/rdma-vm/run.sh"), "{why}");
    }
}
