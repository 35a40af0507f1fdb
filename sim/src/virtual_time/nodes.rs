//! Nodes: one input to an engine at a time, then all that it answers; waking, dialing, dying.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use mesh_relay::engine::{Action, Config, ConnectRequest, DialId, Engine, LegId, Time};

use super::Ending;
use super::memory::Pool;
use super::pipe::{Pipe, PipeEnd, Side};
use super::world::{What, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Absent,
    Up,
    Dead,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) engine: Engine,
    pub(super) life: Life,
    pub(super) pool: Pool,
    pub(super) legs: BTreeMap<LegId, PipeEnd>,
    pub(super) peak: u32,
    /// Numbers of legs that are gone; used again, as an operating system would.
    free: Vec<u32>,
    next: u32,
    wake: Option<Time>,
}

impl Node {
    pub(super) fn new(config: Config) -> Self {
        Self {
            name: config.name.clone(),
            pool: Pool::new(config.pool_slots),
            engine: Engine::new(config),
            life: Life::Up,
            legs: BTreeMap::new(),
            peak: 0,
            free: Vec::new(),
            next: 0,
            wake: None,
        }
    }
}

impl World {
    pub(super) fn free_leg(&mut self, node: usize, leg: LegId) {
        self.nodes[node].legs.remove(&leg);
        self.nodes[node].free.push(leg.0);
    }

    fn fresh_leg(&mut self, node: usize, end: PipeEnd) -> LegId {
        let node = &mut self.nodes[node];
        let leg = LegId(node.free.pop().unwrap_or_else(|| {
            node.next += 1;
            node.next
        }));
        node.legs.insert(leg, end);
        leg
    }

    /// Gives one input to a node's engine and carries out what it answers.
    pub(super) fn drive(&mut self, node: usize, input: impl FnOnce(&mut Engine, Time)) {
        if self.nodes[node].life != Life::Up {
            return;
        }
        input(&mut self.nodes[node].engine, self.now);
        while let Some(action) = self.nodes[node].engine.poll() {
            self.carry_out(node, action);
        }
        self.arm(node);
        self.check_node(node);
    }

    fn arm(&mut self, node: usize) {
        let now = self.now;
        let n = &mut self.nodes[node];
        let Some(at) = n.engine.deadline().map(|t| t.max(now)) else { return };
        if n.wake.is_none_or(|w| at < w || w < now) {
            n.wake = Some(at);
            self.schedule(at, What::Wake { node });
        }
    }

    pub(super) fn wake(&mut self, node: usize) {
        let now = self.now;
        let n = &mut self.nodes[node];
        if n.life != Life::Up {
            return;
        }
        n.wake = None;
        if n.engine.deadline().is_some_and(|t| t <= now) {
            self.drive(node, |engine, now| engine.on_time(now));
            if self.nodes[node].engine.deadline().is_some_and(|t| t <= now) {
                self.broken(format!("{}: a deadline stays after it has passed", self.nodes[node].name));
            }
        } else {
            self.arm(node);
        }
    }

    /// A node was to be woken, but nothing of it is due any more: as if it had never been said.
    pub(super) fn is_stale(&mut self, at: Time, what: &What) -> bool {
        let &What::Wake { node } = what else { return false };
        let node = &mut self.nodes[node];
        if node.wake == Some(at) && node.engine.deadline().is_none() {
            node.wake = None;
        }
        node.wake != Some(at)
    }

    pub(super) fn open(&mut self, conn: usize) {
        let c = &mut self.conns[conn];
        // Its user may have given up before.
        if c.sender.ending != Ending::None {
            return;
        }
        let request = ConnectRequest {
            request: conn as u64,
            conn: c.name,
            token: c.token,
            lanes: c.hops.clone(),
            budget: c.spec.budget,
            peer: format!("node{}", c.spec.to),
        };
        c.opened = true;
        let from = c.spec.from;
        if self.nodes[from].life == Life::Up {
            self.drive(from, |engine, now| engine.connect(now, request));
        } else {
            self.conns[conn].sender.end(self.now, Ending::Killed);
        }
    }

    pub(super) fn dialed(&mut self, node: usize, dial: DialId, from: Ipv4Addr, to: Ipv4Addr) {
        if self.nodes[node].life != Life::Up {
            return;
        }
        let target = self.ports.get(&to).copied().filter(|t| self.nodes[*t].life == Life::Up);
        let fails = self.rng.percent(self.physics.dial_fails);
        let outcome = match target {
            None => Err("connection refused".to_owned()),
            Some(_) if fails => Err("connection timed out".to_owned()),
            Some(target) => {
                let pipe = self.pipes.len();
                let [near, far] = [0, 1].map(|side| PipeEnd { pipe, side });
                let legs = [self.fresh_leg(node, near), self.fresh_leg(target, far)];
                let sides = [Side::new(node, legs[0], from, self.now), Side::new(target, legs[1], to, self.now)];
                self.pipes.push(Pipe { sides });
                self.drive(target, |engine, now| engine.on_accepted(now, legs[1], to, from));
                Ok(legs[0])
            }
        };
        self.drive(node, |engine, now| engine.on_dialed(now, dial, outcome));
    }

    pub(super) fn die(&mut self, node: usize) {
        if self.nodes[node].life == Life::Up {
            self.nodes[node].life = Life::Dead;
            for pipe in 0..self.pipes.len() {
                for side in 0..2 {
                    if self.pipes[pipe].sides[side].node == node {
                        self.sever(PipeEnd { pipe, side });
                    }
                }
            }
        }
        for c in &mut self.conns {
            if c.spec.from == node {
                c.sender.end(self.now, Ending::Killed);
            }
            if c.spec.to == node {
                c.receiver.end(self.now, Ending::Killed);
            }
        }
    }
}

/// So that an action can be told in a fault without its payload.
pub(super) fn brief(action: &Action) -> String {
    let text = format!("{action:?}");
    text.chars().take(200).collect()
}
