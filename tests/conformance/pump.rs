//! The two ends of a stream of checked messages, as machines that never wait: many of them run on one thread, as on NCCL's
//! progress thread.
//!
//! Both ends derive every message's size, capacity and content from a [`Plan`], so nothing but the messages has to travel.
//! Slots are filled with canaries before they are posted, refilled at once when they are free, and tested in no particular order.

use mesh_abi::caller::{CallError, MHandle, RecvComm, Request, SendComm};

use crate::memory::{Area, CANARY, differs, fill, mix, not_all};
use crate::node::{Node, Pause};

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Told in every message of a failure.
    pub(crate) seed: u64,
    /// Messages.
    pub(crate) count: u64,
    /// Largest message, and bytes of a slot.
    pub(crate) slot: usize,
    /// Most messages open at once.
    pub(crate) depth: usize,
    /// Size of a message, from a random number and its own number; cut to the slot.
    pub(crate) size: fn(u64, u64) -> usize,
}

impl Plan {
    fn key(&self, message: u64) -> u64 {
        mix(self.seed ^ mix(message))
    }

    fn size(&self, message: u64) -> usize {
        (self.size)(self.key(message), message).min(self.slot)
    }

    /// The size, a little more, or all there is.
    fn capacity(&self, message: u64) -> usize {
        let size = self.size(message);
        let spare = self.slot - size;
        match mix(self.key(message)) % 3 {
            0 => size,
            1 => size + spare.min(message as usize % 64),
            _ => self.slot,
        }
    }
}

/// Sizes of all kinds: empty, tiny, some that fill a chunk, odd ones.
pub(crate) fn mixed(random: u64, _: u64) -> usize {
    let size = (random >> 8) as usize;
    match random % 8 {
        0 | 1 => 0,
        2 | 3 => size % 64,
        4..=6 => size % 4096,
        _ => size % (1 << 20),
    }
}

/// Requests that are open, with slot and message.
#[derive(Debug)]
struct Open {
    requests: Vec<(Request, usize, u64)>,
    free: Vec<usize>,
    next: u64,
    done: u64,
    tests: u64,
}

impl Open {
    fn new(depth: usize) -> Self {
        Self { requests: Vec::new(), free: (0..depth).rev().collect(), next: 0, done: 0, tests: 0 }
    }

    /// Tests one of the open requests and takes it out if it is done.
    fn test(&mut self, node: &Node) -> Result<Option<(usize, u64, usize)>, CallError> {
        if self.requests.is_empty() {
            return Ok(None);
        }
        self.tests += 1;
        let index = mix(self.tests) as usize % self.requests.len();
        let (request, slot, message) = self.requests[index];
        let Some(size) = node.plugin.test(request)? else { return Ok(None) };
        self.requests.swap_remove(index);
        self.free.push(slot);
        self.done += 1;
        Ok(Some((slot, message, size)))
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct SendPump {
    comm: SendComm,
    plan: Plan,
    area: Area,
    registration: MHandle,
    open: Open,
    /// A filled slot whose send was answered with "not now".
    waiting: Option<usize>,
}

/// The receiving end.
#[derive(Debug)]
pub(crate) struct ReceivePump {
    comm: RecvComm,
    plan: Plan,
    area: Area,
    registration: MHandle,
    open: Open,
}

impl SendPump {
    pub(crate) fn new(node: &Node, comm: SendComm, plan: Plan) -> Self {
        let area = Area::new(plan.depth * plan.slot);
        let registration = node.register(comm, &area);
        Self { comm, plan, area, registration, open: Open::new(plan.depth), waiting: None }
    }

    pub(crate) fn done(&self) -> bool {
        self.open.done == self.plan.count
    }

    /// Posts and tests a little; whether anything moved.
    pub(crate) fn step(&mut self, node: &Node) -> Result<bool, CallError> {
        let mut moved = false;
        while self.open.next < self.plan.count {
            let message = self.open.next;
            let size = self.plan.size(message);
            let slot = match self.waiting.take() {
                Some(slot) => slot,
                None => {
                    let Some(slot) = self.open.free.pop() else { break };
                    let start = slot * self.plan.slot;
                    fill(self.area.bytes_mut(start..start + size), self.plan.key(message));
                    slot
                }
            };
            match node.try_send(self.comm, &self.area, slot * self.plan.slot, size, self.registration)? {
                Some(request) => self.open.requests.push((request, slot, message)),
                None => {
                    self.waiting = Some(slot);
                    break;
                }
            }
            self.open.next += 1;
            moved = true;
        }
        for _ in 0..self.open.requests.len() {
            let Some((slot, message, _)) = self.open.test(node)? else { continue };
            // What is done belongs to the sender again: nothing of this may arrive.
            let start = slot * self.plan.slot;
            self.area.bytes_mut(start..start + self.plan.size(message)).fill(0xEE);
            moved = true;
        }
        Ok(moved)
    }

    /// Takes the memory back.
    pub(crate) fn finish(self, node: &Node) {
        node.deregister(self.comm, self.registration);
        self.area.check_guards();
    }
}

impl ReceivePump {
    pub(crate) fn new(node: &Node, comm: RecvComm, plan: Plan) -> Self {
        let area = Area::new(plan.depth * plan.slot);
        let registration = node.register(comm, &area);
        Self { comm, plan, area, registration, open: Open::new(plan.depth) }
    }

    pub(crate) fn done(&self) -> bool {
        self.open.done == self.plan.count
    }

    /// Only posts, as many as go.
    pub(crate) fn post(&mut self, node: &Node) -> Result<bool, CallError> {
        let mut moved = false;
        while self.open.next < self.plan.count {
            let Some(&slot) = self.open.free.last() else { break };
            let (message, start) = (self.open.next, slot * self.plan.slot);
            let capacity = self.plan.capacity(message);
            let mark = message.is_multiple_of(5);
            match node.try_receive(self.comm, &self.area, start, capacity, self.registration, mark)? {
                Some(request) => self.open.requests.push((request, slot, message)),
                None => break,
            }
            self.open.free.pop();
            self.open.next += 1;
            moved = true;
        }
        Ok(moved)
    }

    /// Posts and tests a little, and checks what has come; whether anything moved.
    pub(crate) fn step(&mut self, node: &Node) -> Result<bool, CallError> {
        let mut moved = self.post(node)?;
        for _ in 0..self.open.requests.len() {
            let Some((slot, message, size)) = self.open.test(node)? else { continue };
            moved = true;
            let plan = &self.plan;
            let told = format!("message {message} of seed {:#x} with depth {}", plan.seed, plan.depth);
            assert_eq!(size, plan.size(message), "size of {told}");
            let start = slot * plan.slot;
            let got = self.area.bytes(start..start + size);
            assert_eq!(differs(got, plan.key(message)), None, "first wrong byte of {size} of {told}");
            let rest = self.area.bytes(start + size..start + plan.slot);
            assert_eq!(not_all(rest, CANARY), None, "first overwritten byte behind {told}");
            self.area.bytes_mut(start..start + size).fill(CANARY);
        }
        Ok(moved)
    }

    /// Takes the memory back; nothing may have touched it since.
    pub(crate) fn finish(self, node: &Node) {
        node.deregister(self.comm, self.registration);
        assert_eq!(not_all(self.area.bytes(0..self.area.len()), CANARY), None, "written after it was done");
        self.area.check_guards();
    }
}

/// Runs pumps to their end on this thread.
pub(crate) fn run(node: &Node, mut senders: Vec<SendPump>, mut receivers: Vec<ReceivePump>) {
    let mut pause = Pause::default();
    while !(senders.iter().all(SendPump::done) && receivers.iter().all(ReceivePump::done)) {
        let mut moved = false;
        for pump in &mut senders {
            moved |= pump.step(node).expect("sending");
        }
        for pump in &mut receivers {
            moved |= pump.step(node).expect("receiving");
        }
        pause.moved(moved);
    }
    senders.into_iter().for_each(|pump| pump.finish(node));
    receivers.into_iter().for_each(|pump| pump.finish(node));
}
