//! A line of nodes in this process, each with its own agent on addresses in 127/8, and connections between its two ends, both ways.
//!
//! The sizes are the plugin's defaults: chunks of 128 KiB, 4 slots a connection, 8 slots a class of a trunk. The ends poll and yield, as NCCL's progress
//! threads do; the relay threads sleep when idle, which is the default on two cores.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use mesh_link::Endpoint;
use mesh_link::endpoint::Backend;
use mesh_link::memory::Slab;
use mesh_link::tcp::Limits;
use mesh_link::{Event, Key, Target};
use mesh_relay::agent::{Agent, AgentConfig, CoreChoice, Incoming, Listeners, Listening, Outgoing};
use mesh_relay::engine::{Config, ConnectRequest, MS, SendPath};
use mesh_relay::recv::RecvFlow;
use mesh_relay::send::{Acks, SendFlow, SendMode, SendTarget};
use mesh_relay::wire::{Clear, HopAddr, Msg, Note, messages};

use crate::{DEPTH, Outcome, median};

/// Longest that anything may stand still.
const PATIENCE: Duration = Duration::from_secs(20);

/// Largest message.
const ROOM: usize = 512 << 10;

/// Nodes and the connections between the first and the last.
pub(crate) struct Line {
    agents: Vec<Agent>,
    forth: (Sender, Receiver),
    back: (Sender, Receiver),
}

impl Line {
    pub(crate) fn new(nodes: u8) -> Outcome<Self> {
        // Processes side by side, and lines of one process, have addresses of their own.
        let block = 128 + (std::process::id() % 100) as u8;
        let end = |cable: u8, host: u8| Ipv4Addr::new(127, block, 100 + nodes, cable * 4 + host);
        let cables: Vec<_> = (0..nodes - 1).map(|n| HopAddr::new(end(n, 1), end(n, 2))).collect();
        let mut agents = Vec::new();
        for n in 0..usize::from(nodes) {
            let left = n.checked_sub(1).and_then(|left| cables.get(left)).map(|cable| cable.to);
            let right = cables.get(n).map(|cable| cable.from);
            let config = config(n, left.into_iter().chain(right).collect());
            let ports: Vec<_> = config.engine.addresses.iter().map(|address| (*address, 30)).collect();
            let listeners = Listeners::open(&config.engine.name, &ports, config.port)?;
            agents.push(Agent::start(config, listeners)?);
        }
        let back: Vec<_> = cables.iter().rev().map(|cable| HopAddr::new(cable.to, cable.from)).collect();
        let (first, last) = (&agents[0], &agents[agents.len() - 1]);
        let (forth, back) = (connect(first, last, cables, 1)?, connect(last, first, back, 2)?);
        Ok(Self { agents, forth, back })
    }

    /// Bytes per second of messages that are posted 8 deep, from the first post to the last completion at both ends.
    pub(crate) fn bandwidth(&mut self, size: usize, count: usize) -> Outcome<f64> {
        let (sender, receiver) = &mut self.forth;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || sender.stream(size, count));
            receiver.stream(size, count)?;
            // The last acknowledgement may still be queued.
            until("the sender", || receiver.poll().map(|_| sending.is_finished().then_some(())))?;
            sending.join().map_err(|_| "sender panicked")?
        })?;
        Ok((size * count) as f64 / begin.elapsed().as_secs_f64())
    }

    /// Half the median time of a message there and back, both ends driven by this thread, in seconds. Receives are posted one message
    /// ahead, as NCCL does; acknowledgements come while the next message is on its way.
    pub(crate) fn half_trip(&mut self, size: usize, trips: usize) -> Outcome<f64> {
        let mut times = Vec::with_capacity(trips);
        self.forth.1.post(size)?;
        self.back.1.post(size)?;
        for _ in 0..trips {
            self.forth.1.post(size)?;
            self.back.1.post(size)?;
            let begin = Instant::now();
            self.forth.0.post(size)?;
            self.until("a ping", |line| line.forth.1.places.len() == 1)?;
            self.back.0.post(size)?;
            self.until("a pong", |line| line.back.1.places.len() == 1)?;
            times.push(begin.elapsed().as_secs_f64() / 2.0);
        }
        // The receives that are still posted get their messages.
        self.forth.0.post(size)?;
        self.back.0.post(size)?;
        let idle = |(sender, receiver): &(Sender, Receiver)| sender.places.is_empty() && receiver.places.is_empty();
        self.until("the last messages", |line| idle(&line.forth) && idle(&line.back))?;
        Ok(median(&mut times))
    }

    /// Makes progress at both ends until something holds.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Outcome<()> {
        until(what, || {
            for (sender, receiver) in [&mut self.forth, &mut self.back] {
                sender.poll()?;
                receiver.poll()?;
            }
            Ok(holds(self).then_some(()))
        })
    }

    /// That the nodes in between have carried the bytes, and the ends nothing for others.
    pub(crate) fn check_relayed(&self) -> Outcome<()> {
        let last = self.agents.len() - 1;
        for (n, agent) in self.agents.iter().enumerate() {
            let report = agent.report(PATIENCE).ok_or("an agent does not report")?;
            let relays = n > 0 && n < last;
            if relays != (report.forwarded_bytes > 0) {
                return Err(format!("node {n} of {last} forwarded {} bytes", report.forwarded_bytes).into());
            }
        }
        Ok(())
    }
}

fn config(n: usize, addresses: Vec<Ipv4Addr>) -> AgentConfig {
    let engine = Config {
        node: n as u64 + 1,
        name: format!("node{n}"),
        relay: true,
        chunk: 128 << 10,
        pool_slots: 256,
        entry_slots: 4,
        trunk_slots: 8,
        classes: 3,
        hello: 5000 * MS,
        retry: 50 * MS,
        strangers: 64,
        acks: Acks::Receiver,
        ignore_classes: false,
        addresses,
    };
    AgentConfig {
        port: 17_917,
        limits: limits(),
        backend: Backend::Tcp,
        spin: Duration::ZERO,
        core: CoreChoice::None,
        linger: Duration::from_secs(2),
        engine,
    }
}

fn limits() -> Limits {
    Limits { writes: 1024, messages: 160, ..Limits::default() }
}

/// Asks until there is an answer.
fn until<T>(what: &str, mut look: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(format!("nothing for {} s while waiting for {what}", PATIENCE.as_secs()).into());
        }
        std::thread::yield_now();
    }
}

fn connect(from: &Agent, to: &Agent, hops: Vec<HopAddr>, number: u8) -> Outcome<(Sender, Receiver)> {
    let token = [number; 16];
    let listening = to.listen(token);
    let mut connecting = from.connect(ConnectRequest {
        request: 0,
        conn: token,
        token,
        lanes: vec![hops],
        budget: 10_000 * MS,
        peer: "the last node".into(),
    });
    let out = until("a connection", || connecting.poll().transpose().map_err(|why| why.text.into()))?;
    let incoming = until("an accept", || Ok(listening.poll()))?;
    Ok((Sender::new(out)?, Receiver::new(incoming, listening)?))
}

/// The sending end. Message `k` lies in slot `k` modulo the depth.
struct Sender {
    lanes: Vec<Endpoint>,
    flow: SendFlow,
    /// Key and stride of the first relay's slots.
    slots: (u32, u32),
    memory: Slab,
    /// Messages not yet done.
    places: VecDeque<u32>,
}

impl Sender {
    fn new(out: Outgoing) -> Outcome<Self> {
        let acks = Acks::Receiver;
        let (mode, slots) = match &out.path {
            SendPath::Direct => (SendMode::direct(out.lanes.len() as u8, 64 << 10, acks), (0, 0)),
            SendPath::Relayed { chunk, slots, .. } => {
                (SendMode::relayed(*chunk, slots[0].count, acks), (slots[0].key, slots[0].stride))
            }
        };
        let memory = Slab::new(DEPTH, ROOM)?;
        (0..DEPTH).for_each(|k| assert!(memory.slot(k).write_from(0, &vec![1; ROOM])));
        Ok(Self { lanes: out.lanes, flow: SendFlow::new(mode), slots, memory, places: VecDeque::new() })
    }

    fn post(&mut self, size: usize) -> Outcome<()> {
        self.places.push_back(self.flow.post(size as u64).ok_or("no room to send")?);
        Ok(())
    }

    fn stream(&mut self, size: usize, count: usize) -> Outcome<()> {
        let mut posted = 0;
        while posted < count || !self.places.is_empty() {
            while posted < count && self.places.len() < DEPTH {
                self.post(size)?;
                posted += 1;
            }
            until("room to send", || self.poll().map(|moved| moved.then_some(())))?;
        }
        Ok(())
    }

    /// Makes progress; says whether there was any.
    fn poll(&mut self) -> Outcome<bool> {
        let (mut moved, mut wrong) = (false, None);
        for (n, lane) in self.lanes.iter_mut().enumerate() {
            let flow = &mut self.flow;
            moved |= lane.poll(|event| {
                if let Err(what) = sender_event(flow, n as u8, &event) {
                    wrong = Some(what);
                }
            })?;
        }
        if let Some(what) = wrong {
            return Err(what);
        }
        while let Some(write) = self.flow.poll()? {
            let from = self.memory.slot(write.id as usize % DEPTH);
            let part = from.sub(write.offset as usize, write.len as usize).ok_or("outside the message")?;
            let lane = &mut self.lanes[usize::from(write.lane)];
            match write.target {
                SendTarget::Buffer { key, at, note } => {
                    let target = Target { key: Key::from_raw(key), offset: at };
                    lane.post_write(write.id, None, part, target, Some(note.encode()))?;
                }
                SendTarget::Slot { slot, header } => {
                    let offset = u64::from(slot) * u64::from(self.slots.1);
                    let target = Target { key: Key::from_raw(self.slots.0), offset };
                    lane.post_write(write.id, Some(&header.encode()), part, target, Some(slot.into()))?;
                }
            }
            moved = true;
        }
        while let Some(&place) = self.places.front()
            && self.flow.take(place).is_some()
        {
            self.places.pop_front();
            moved = true;
        }
        Ok(moved)
    }
}

fn sender_event(flow: &mut SendFlow, lane: u8, event: &Event<'_>) -> Outcome<()> {
    match event {
        Event::Written { id } => flow.on_written(lane, *id),
        Event::Notified { .. } => return Err("a write to a sender".into()),
        Event::Message(frame) => {
            for msg in messages(frame) {
                match msg? {
                    Msg::Cts { clear, .. } => flow.on_cts(&clear)?,
                    Msg::Ack { count, .. } => flow.on_ack(count)?,
                    Msg::Credit { n, slots } => {
                        for &slot in slots.iter().take(n.into()) {
                            flow.on_credit(lane, slot)?;
                        }
                    }
                    other => return Err(format!("a {} to a sender", other.name()).into()),
                }
            }
        }
    }
    Ok(())
}

/// The receiving end. Message `k` lands in slot `k` modulo the depth.
struct Receiver {
    lanes: Vec<Endpoint>,
    flow: RecvFlow,
    memory: Slab,
    /// Messages not yet done, with their sizes and the keys of their buffers, one a lane.
    places: VecDeque<(u32, usize, Vec<Key>)>,
    bytes: Vec<u8>,
    _listening: Listening,
}

impl Receiver {
    fn new(incoming: Incoming, listening: Listening) -> Outcome<Self> {
        let memory = Slab::new(DEPTH, ROOM)?;
        (0..DEPTH).for_each(|k| assert!(memory.slot(k).write_from(0, &vec![0; ROOM])));
        let (lanes, flow) = (incoming.lanes, RecvFlow::default());
        Ok(Self { lanes, flow, memory, places: VecDeque::new(), bytes: Vec::new(), _listening: listening })
    }

    fn post(&mut self, size: usize) -> Outcome<()> {
        let (place, seq) = self.flow.post(size as u64).ok_or("no room to receive")?;
        let buffer = self.memory.slot(place as usize % DEPTH).sub(0, size).ok_or("too large")?;
        let mut keys = Vec::with_capacity(self.lanes.len());
        for lane in &mut self.lanes {
            keys.push(lane.expose(buffer)?.0);
        }
        let raw: Vec<_> = keys.iter().map(|key| key.raw()).collect();
        Msg::Cts { stream: 0, clear: Clear::new(seq, &raw, 0, size as u64) }.encode(&mut self.bytes);
        self.lanes[0].post_message(&self.bytes)?;
        self.places.push_back((place, size, keys));
        Ok(())
    }

    fn stream(&mut self, size: usize, count: usize) -> Outcome<()> {
        let mut posted = 0;
        while posted < count || !self.places.is_empty() {
            while posted < count && self.places.len() < DEPTH {
                self.post(size)?;
                posted += 1;
            }
            until("a message", || self.poll().map(|moved| moved.then_some(())))?;
        }
        Ok(())
    }

    /// Makes progress; says whether there was any.
    fn poll(&mut self) -> Outcome<bool> {
        let (mut moved, mut wrong) = (false, None);
        for lane in &mut self.lanes {
            let flow = &mut self.flow;
            moved |= lane.poll(|event| {
                if let Event::Notified { len, imm, .. } = event {
                    let note = Note::decode(imm).ok_or_else(|| format!("notification {imm:#x}").into());
                    if let Err(what) = note.and_then(|note| Ok(flow.on_note(note, len.into())?)) {
                        wrong = Some(what);
                    }
                }
            })?;
        }
        if let Some(what) = wrong {
            return Err(what);
        }
        if let Some(count) = self.flow.poll_ack() {
            Msg::Ack { stream: 0, count }.encode(&mut self.bytes);
            self.lanes[0].post_message(&self.bytes)?;
            moved = true;
        }
        while let Some((place, size, keys)) = self.places.front()
            && let Some(len) = self.flow.take(*place)
        {
            if len != *size as u64 {
                return Err(format!("{len} bytes came, {size} were sent").into());
            }
            for (lane, key) in self.lanes.iter_mut().zip(keys) {
                lane.withdraw(*key);
            }
            self.places.pop_front();
            moved = true;
        }
        Ok(moved)
    }
}
