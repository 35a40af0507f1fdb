//! The processes of a node, played by threads of one process: who owns it, what guests are told, and what becomes of it when the owner goes.
//! Without ports, as discovery takes no loopback addresses: neighbours are the business of runs in network namespaces.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mesh_link::local;
use mesh_relay::agent::Listeners;
use mesh_relay::discovery::{AgentAt, key_of};
use mesh_relay::node::{Claim, Mesh, NodeConfig, Scope};

const SHARED: u16 = 17_917;

fn scope() -> Scope {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Scope::new(SHARED, Some("n"), Some(&format!("test-{}-{number}", std::process::id())))
}

/// A process of the node: what it knows, and the sockets it is given when it becomes the owner.
struct Process {
    mesh: Mesh,
    served: Receiver<Listeners>,
}

fn start(scope: &Scope, agent: u16, job: u32) -> Process {
    let claim = Claim::take("n", scope).expect("a claim");
    let agent = if claim.owns() { SHARED } else { agent };
    let config = NodeConfig {
        id: "n-id".into(),
        name: "n".into(),
        relay: true,
        daemon: false,
        looks_only: agent == 0,
        ports: Vec::new(),
        port: SHARED,
        job,
        rank: 0,
    };
    let (give, served) = channel();
    let serve = Box::new(move |listeners| drop(give.send(listeners)));
    Process { mesh: Mesh::start(config, claim, agent, serve).expect("a thread"), served }
}

fn until(what: &str, mut ask: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !ask() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn agents(process: &Process) -> Option<Vec<AgentAt>> {
    process.mesh.snapshot().view.nodes.get(&key_of("n-id")).map(|node| node.agents.clone())
}

#[test]
fn the_first_owns_the_node_and_tells_of_the_others() {
    let scope = scope();
    // given an owner and two guests of two jobs
    let owner = start(&scope, 0, 7);
    let guests = [start(&scope, 40_001, 7), start(&scope, 40_002, 9)];
    // then all know all three, and only the first owns the node
    let both: Vec<_> =
        [(SHARED, 7), (40_001, 7), (40_002, 9)].into_iter().map(|(port, job)| AgentAt { port, job, rank: 0 }).collect();
    for process in [&owner, &guests[0], &guests[1]] {
        until("all know both", || agents(process).as_ref() == Some(&both));
    }
    assert!(owner.mesh.owns() && !guests[0].mesh.owns() && !guests[1].mesh.owns());
    // when somebody only looks, then it is told and nobody is told of it
    let look = start(&scope, 0, 0);
    until("who looks sees", || agents(&look).as_ref() == Some(&both));
    // when a guest ends, then it is forgotten
    guests[1].mesh.stop();
    until("the guest is forgotten", || agents(&owner).as_deref() == Some(&both[..2]));
    until("the other is told", || agents(&guests[0]).as_deref() == Some(&both[..2]));
}

#[test]
fn when_the_owner_goes_one_guest_takes_its_place_and_the_others_are_its_guests() {
    let scope = scope();
    let mut processes = vec![start(&scope, 0, 1)];
    processes.extend((1..=4).map(|n| start(&scope, 40_000 + n, 1)));
    // given that all are known, when one owner after the other goes
    while processes.len() > 1 {
        let guests = processes.len() - 1;
        until("an owner is known to all", || {
            processes.iter().filter(|process| process.mesh.owns()).count() == 1
                && processes.iter().all(|process| agents(process).is_some_and(|all| all.len() > guests))
        });
        let place = processes.iter().position(|process| process.mesh.owns()).expect("there is one");
        let gone = processes.remove(place);
        gone.mesh.stop();
        // then a guest owns the node, has been given the shared port's sockets, and is itself still told of by its own port
        let owner = |processes: &[Process]| processes.iter().position(|process| process.mesh.owns());
        until("another owns the node", || owner(&processes).is_some());
        let owner = owner(&processes).expect("just seen");
        let listeners = processes[owner].served.recv_timeout(Duration::from_secs(20)).expect("the shared port");
        assert_eq!(listeners.port(), SHARED);
        until("all are known again", || {
            processes.iter().all(|process| agents(process).is_some_and(|all| all.len() == processes.len()))
        });
    }
}

#[test]
fn a_stranger_at_the_owners_door_is_turned_away() {
    let scope = scope();
    let owner = start(&scope, 0, 1);
    until("it owns the node", || owner.mesh.owns() && agents(&owner).is_some());
    // given somebody who speaks another version, when it greets, then it is told so and the stream ends
    let mut other = local::connect(scope.name()).expect("the owner listens");
    other.set_nonblocking(false).expect("blocking");
    let mut hello = vec![11, 0, 0, 0, 1];
    hello.extend_from_slice(&[77, 0, 1, 2, 0, 0, 0, 0, 0, 0]);
    other.write_all(&hello).expect("sent");
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).expect("it ends");
    assert_eq!(answer, [3, 0, 0, 0, 3, 1, 0]);
    // given somebody who speaks something else, then the stream ends
    let mut noise = local::connect(scope.name()).expect("the owner listens");
    noise.set_nonblocking(false).expect("blocking");
    noise.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    answer.clear();
    noise.read_to_end(&mut answer).expect("it ends");
    assert!(answer.is_empty());
    // and the owner still serves guests
    let guest = start(&scope, 40_009, 2);
    until("the guest is told of", || agents(&owner).is_some_and(|all| all.len() == 2));
    until("the guest knows", || agents(&guest).is_some_and(|all| all.len() == 2));
}

/// Plays both parts: the child, in which [`STRANGER`] is set, has the name and answers nobody.
const STRANGER: &str = "MESH_TEST_NODE_STRANGER";

#[test]
fn a_name_that_another_user_has_makes_no_owner() {
    if let Ok(name) = std::env::var(STRANGER) {
        let _listener = local::listen(&name).expect("a free name");
        std::thread::sleep(Duration::from_secs(20));
        return;
    }
    let scope = Scope::new(1, Some(&format!("stranger-{}", std::process::id())), Some("test"));
    // given a process of another user that has the node's name
    let this = std::env::current_exe().expect("a path");
    let mut command = std::process::Command::new(this);
    command.args(["--exact", "a_name_that_another_user_has_makes_no_owner"]).env(STRANGER, scope.name());
    let child = command.uid(65_534).stdout(std::process::Stdio::null()).spawn();
    let Ok(mut child) = child else {
        println!(
            "skipped: this user may not start a process as another one (root may), or that one may not read this program"
        );
        return;
    };
    let until = Instant::now() + Duration::from_secs(10);
    while local::connect(scope.name()).is_err() {
        assert!(Instant::now() < until, "the other process never had the name");
        std::thread::sleep(Duration::from_millis(5));
    }
    // when a process of this user looks for its node's owner, then it believes nobody, and says who is there
    let error = Claim::take("a", &scope).expect_err("nobody to believe").to_string();
    assert!(error.starts_with("mesh[E56] node a") && error.contains("user 65534"), "{error}");
    child.kill().and_then(|()| child.wait()).expect("ended");
}
