//! Agents of several nodes in one process, on addresses in 127/8, and the two ends of connections between them.

#![allow(dead_code, unreachable_pub, reason = "shared by test files, each of which uses a part")]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use mesh_link::endpoint::Backend;
use mesh_link::memory::Slab;
use mesh_link::tcp::Limits;
use mesh_link::{Endpoint, Event, Key, Target};
use mesh_relay::agent::{Agent, AgentConfig, AgentError, CoreChoice, Incoming, Listeners, Listening, Outgoing};
use mesh_relay::engine::{Config, ConnectRequest, LentSlots, MS, SendPath};
use mesh_relay::recv::RecvFlow;
use mesh_relay::send::{Acks, SendFlow, SendLane, SendMode, SendTarget};
use mesh_relay::wire::{Clear, HopAddr, Msg, Note, Refusal, messages};

/// Longest any wait of these tests may take before it counts as hung.
pub const WATCHDOG: Duration = Duration::from_secs(60);

/// A block of addresses of this test alone: the process and a running number make it.
pub struct Block(u8, u8);

impl Block {
    pub fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let pid = std::process::id();
        Self(128 + (pid % 100) as u8, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The two ends of cable `n`.
    pub fn cable(&self, n: u8) -> HopAddr {
        HopAddr::new(Ipv4Addr::new(127, self.0, self.1, n * 4 + 1), Ipv4Addr::new(127, self.0, self.1, n * 4 + 2))
    }
}

pub fn config(name: &str, addresses: &[Ipv4Addr]) -> AgentConfig {
    AgentConfig {
        engine: Config {
            node: name.bytes().map(u64::from).sum(),
            name: name.into(),
            addresses: addresses.to_vec(),
            relay: true,
            chunk: 4096,
            pool_slots: 64,
            entry_slots: 4,
            trunk_slots: 4,
            classes: 3,
            hello: 300 * MS,
            retry: 20 * MS,
            strangers: 8,
            acks: Acks::Receiver,
            ignore_classes: false,
        },
        port: 17_917,
        limits: Limits::default(),
        backend: Backend::Tcp,
        spin: Duration::ZERO,
        core: CoreChoice::None,
        linger: Duration::from_secs(2),
    }
}

/// Starts an agent on the port that all nodes share.
pub fn start(config: AgentConfig) -> Result<Agent, AgentError> {
    let ports: Vec<_> = config.engine.addresses.iter().map(|address| (*address, 30)).collect();
    let listeners = Listeners::open(&config.engine.name, &ports, config.port)?;
    Agent::start(config, listeners)
}

/// A line of nodes `a`, `b`, … each cabled to the next.
pub fn line(nodes: u8) -> (Vec<Agent>, Vec<HopAddr>) {
    let block = Block::new();
    let cables: Vec<_> = (0..nodes - 1).map(|n| block.cable(n)).collect();
    let agents = (0..nodes).map(|n| start(config(&name(n), &ports(&cables, n))).expect("agent")).collect();
    (agents, cables)
}

pub fn name(n: u8) -> String {
    char::from(b'a' + n).to_string()
}

pub fn ports(cables: &[HopAddr], n: u8) -> Vec<Ipv4Addr> {
    let n = usize::from(n);
    let left = n.checked_sub(1).and_then(|l| cables.get(l)).map(|c| c.to);
    left.into_iter().chain(cables.get(n).map(|c| c.from)).collect()
}

pub fn request(token: [u8; 16], hops: &[HopAddr]) -> ConnectRequest {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    ConnectRequest {
        request: 0,
        conn: [NEXT.fetch_add(1, Ordering::Relaxed); 16],
        token,
        lanes: vec![hops.to_vec()],
        budget: 20_000 * MS,
        peer: "the peer".into(),
    }
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + WATCHDOG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "hung while waiting for {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn connect(from: &Agent, to: &Agent, hops: &[HopAddr]) -> (Sender, Receiver) {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let token = [NEXT.fetch_add(1, Ordering::Relaxed); 16];
    let listening = to.listen(token);
    let mut connecting = from.connect(request(token, hops));
    let out = until("connect", || connecting.poll()).unwrap_or_else(|why| panic!("{}", why.text));
    let incoming = until("accept", || listening.poll());
    (Sender::new(out), Receiver::new(incoming, listening))
}

pub fn refused(from: &Agent, request: ConnectRequest) -> Refusal {
    let mut connecting = from.connect(request);
    match until("refusal", || connecting.poll()) {
        Err(why) => why,
        Ok(_) => panic!("connected"),
    }
}

/// Sends one message at a time.
pub struct Sender {
    pub lanes: Vec<Endpoint>,
    pub relays: u8,
    flow: SendFlow,
    slots: Vec<LentSlots>,
    memory: Slab,
    pub closed: Option<u16>,
}

impl Sender {
    fn new(out: Outgoing) -> Self {
        let (chunk, slots, relays) = match out.path {
            SendPath::Direct => (None, Vec::new(), 0),
            SendPath::Relayed { relays, chunk, slots } => (Some(chunk), slots, relays),
        };
        let slots_of = |lane: usize| slots.get(lane).map_or(0, |lent: &LentSlots| lent.count);
        let lanes = (0..out.lanes.len()).map(|lane| SendLane { weight: 1, slots: slots_of(lane) }).collect();
        let mode = SendMode { lanes, chunk, stripe: 4096, acks: Acks::Receiver };
        let mut flow = SendFlow::new(mode);
        for (lane, msg) in out.early {
            if let (0, Msg::Cts { clear, .. }) = (lane, msg) {
                flow.on_cts(&clear).expect("early");
            }
        }
        Self { lanes: out.lanes, relays, flow, slots, memory: Slab::new(1, 1 << 20).expect("memory"), closed: None }
    }

    pub fn post(&mut self, bytes: &[u8]) -> u32 {
        assert!(self.memory.slot(0).write_from(0, bytes));
        self.flow.post(bytes.len() as u64).expect("room")
    }

    /// Polls once; an error of a lane is answered.
    pub fn poll(&mut self) -> Result<(), String> {
        for (n, lane) in self.lanes.iter_mut().enumerate() {
            let (flow, closed) = (&mut self.flow, &mut self.closed);
            lane.poll(|event| match event {
                Event::Written { id } => flow.on_written(n as u8, id),
                Event::Message(frame) => messages(frame).for_each(|msg| match msg.expect("message") {
                    Msg::Cts { clear, .. } => flow.on_cts(&clear).expect("cts"),
                    Msg::Ack { count, .. } => flow.on_ack(count).expect("ack"),
                    Msg::Credit { n: count, slots } => {
                        slots.iter().take(count.into()).for_each(|s| flow.on_credit(n as u8, *s).expect("credit"));
                    }
                    Msg::Close { code, .. } => *closed = Some(code),
                    other => panic!("{other:?}"),
                }),
                Event::Notified { .. } => panic!("a write to a sender"),
            })
            .map_err(|e| e.to_string())?;
        }
        while let Some(w) = self.flow.poll().expect("flow") {
            let part = self.memory.slot(0).sub(w.offset as usize, w.len as usize).expect("inside");
            let lane = &mut self.lanes[usize::from(w.lane)];
            match w.target {
                SendTarget::Buffer { key, at, note } => {
                    let target = Target { key: Key::from_raw(key), offset: at };
                    lane.post_write(w.id, None, part, target, Some(note.encode())).expect("post");
                }
                SendTarget::Slot { slot, header } => {
                    let lent = self.slots[usize::from(w.lane)];
                    let target =
                        Target { key: Key::from_raw(lent.key), offset: u64::from(slot) * u64::from(lent.stride) };
                    lane.post_write(w.id, Some(&header.encode()), part, target, Some(slot.into())).expect("post");
                }
            }
        }
        Ok(())
    }

    pub fn done(&mut self, place: u32) -> Option<u64> {
        self.flow.take(place)
    }
}

/// Receives one message at a time.
pub struct Receiver {
    pub lanes: Vec<Endpoint>,
    pub relays: u8,
    flow: RecvFlow,
    memory: Slab,
    pub closed: Option<u16>,
    _listening: Listening,
}

impl Receiver {
    fn new(incoming: Incoming, listening: Listening) -> Self {
        let memory = Slab::new(1, 1 << 20).expect("memory");
        let Incoming { lanes, relays, .. } = incoming;
        Self { lanes, relays, flow: RecvFlow::default(), memory, closed: None, _listening: listening }
    }

    pub fn post(&mut self, capacity: usize) -> u32 {
        let (place, seq) = self.flow.post(capacity as u64).expect("room");
        let mut bytes = Vec::new();
        let buffer = self.memory.slot(0).sub(0, capacity).expect("inside");
        let keys: Vec<_> = self.lanes.iter_mut().map(|lane| lane.expose(buffer).expect("expose").0.raw()).collect();
        Msg::Cts { stream: 0, clear: Clear::new(seq, &keys, 0, capacity as u64) }.encode(&mut bytes);
        self.lanes[0].post_message(&bytes).expect("cts");
        place
    }

    pub fn poll(&mut self) -> Result<(), String> {
        for lane in &mut self.lanes {
            let (flow, closed) = (&mut self.flow, &mut self.closed);
            lane.poll(|event| match event {
                Event::Notified { len, imm, .. } => {
                    flow.on_note(Note::decode(imm).expect("note"), len.into()).expect("flow");
                }
                Event::Message(frame) => messages(frame).for_each(|msg| match msg.expect("message") {
                    Msg::Close { code, .. } => *closed = Some(code),
                    other => panic!("{other:?}"),
                }),
                Event::Written { .. } => {}
            })
            .map_err(|e| e.to_string())?;
        }
        if let Some(count) = self.flow.poll_ack() {
            let mut bytes = Vec::new();
            Msg::Ack { stream: 0, count }.encode(&mut bytes);
            self.lanes[0].post_message(&bytes).expect("ack");
        }
        Ok(())
    }

    pub fn bytes(&mut self, place: u32) -> Option<Vec<u8>> {
        let len = self.flow.take(place)?;
        let mut bytes = vec![0; len as usize];
        assert!(self.memory.slot(0).read_into(0, &mut bytes));
        Some(bytes)
    }
}

/// One message from end to end, checked.
pub fn transfer(sender: &mut Sender, receiver: &mut Receiver, bytes: &[u8]) {
    let from = sender.post(bytes);
    let to = receiver.post(bytes.len() + 100);
    let got = until("the message", || {
        sender.poll().expect("sender");
        receiver.poll().expect("receiver");
        receiver.bytes(to)
    });
    assert!(got == bytes, "{} bytes differ", bytes.len());
    let sent = until("the acknowledgement", || {
        sender.poll().expect("sender");
        receiver.poll().expect("receiver");
        sender.done(from)
    });
    assert_eq!(sent, bytes.len() as u64);
}
