//! A node of the cluster: its machine while it runs, and what outlives it.

use mesh_relay::discovery::{Config, Discovery, Event, PortChange, PortId, PortInfo, Time};

/// See the module.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) config: Config,
    pub(super) ports: Vec<(PortId, PortInfo)>,
    /// The cable at each port and which of its ends that is; `None`: nothing is plugged in.
    pub(super) cables: Vec<Option<(usize, usize)>>,
    pub(super) machine: Option<Discovery>,
    /// What its clock shows more than the world's, wrapping.
    pub(super) clock: u64,
    /// When it is woken next.
    pub(super) wake: Time,
    /// When its view changed last.
    pub(super) changed: Time,
    /// All that it noted, since the beginning of the world.
    pub(super) notes: Vec<(Time, Event)>,
}

impl Node {
    pub(super) fn new(config: Config, clock: u64) -> Self {
        Self {
            config,
            ports: Vec::new(),
            cables: Vec::new(),
            machine: None,
            clock,
            wake: Time::MAX,
            changed: 0,
            notes: Vec::new(),
        }
    }

    pub(super) fn shows(&self, now: Time) -> Time {
        now.wrapping_add(self.clock)
    }

    /// A port is as its cable makes it.
    pub(super) fn tell_port(&mut self, now: Time, index: usize, carrier: bool) {
        let now = self.shows(now);
        let Some(machine) = &mut self.machine else { return };
        let (id, info) = self.ports[index].clone();
        machine.on_port(now, PortChange::Up(id, info));
        if !carrier {
            machine.on_port(now, PortChange::Down(id));
        }
    }
}
