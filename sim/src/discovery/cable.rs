//! Cables and switched segments: what becomes of a datagram between the ports that one joins.
//!
//! Must not know what a datagram says.

use std::net::Ipv4Addr;

use mesh_relay::discovery::{PortId, Time};

use crate::virtual_time::Rng;

/// How well a cable carries.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Shortest and longest time on the way, in nanoseconds, drawn for every datagram: with a wide range they overtake one another.
    pub latency: (Time, Time),
    /// So many of a thousand datagrams are lost.
    pub lose: u64,
    /// So many of a thousand arrive twice.
    pub repeat: u64,
}

impl Default for Weather {
    /// A short cable that loses nothing.
    fn default() -> Self {
        Self { latency: (20_000, 100_000), lose: 0, repeat: 0 }
    }
}

/// How a cable is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ends lose their carrier.
    Seen,
    /// One end loses its carrier, the other only hears nothing.
    SeenByOne,
    /// Nobody notices: a switch or a converter in between keeps the carrier.
    Silent,
    /// Only what leaves the first end is lost.
    OneWay,
}

/// A port at the end of a cable.
#[derive(Clone, Copy, Debug)]
pub(super) struct CableEnd {
    pub(super) node: usize,
    pub(super) port: PortId,
    pub(super) address: Ipv4Addr,
}

/// Joins two ports; more where a test wants a mistake, or where it is a switched segment.
#[derive(Debug)]
pub(super) struct Cable {
    pub(super) ends: Vec<CableEnd>,
    pub(super) switched: bool,
    pub(super) cut: Option<Cut>,
    /// How the cable of each end to the switch is cut.
    pub(super) off: Vec<Option<Cut>>,
    pub(super) weather: Weather,
}

impl Cable {
    /// Whether the port at this end has carrier.
    pub(super) fn carrier(&self, end: usize) -> bool {
        match self.cut {
            _ if matches!(self.off[end], Some(Cut::Seen | Cut::SeenByOne)) => false,
            Some(Cut::Seen) => false,
            Some(Cut::SeenByOne) => end != 0,
            _ => true,
        }
    }

    /// Whether what leaves one end gets through to another.
    pub(super) fn carries(&self, from: usize, to: usize) -> bool {
        let whole = match self.cut {
            None => true,
            Some(Cut::OneWay) => from != 0,
            Some(_) => false,
        };
        whole && self.off[from].is_none() && matches!(self.off[to], None | Some(Cut::OneWay))
    }

    /// The ends that are linked with one another if their nodes run.
    pub(super) fn joined(&self) -> Vec<&CableEnd> {
        let sound = |at: &usize| self.cut.is_none() && self.off[*at].is_none();
        (0..self.ends.len()).filter(sound).map(|at| &self.ends[at]).collect()
    }

    /// When a datagram arrives that leaves now, as often as it does.
    pub(super) fn arrivals(&self, now: Time, rng: &mut Rng) -> [Option<Time>; 2] {
        let Weather { latency: (low, high), lose, repeat } = self.weather;
        let mut once = || (rng.below(1000) >= lose).then(|| now + rng.between(low, high));
        let first = once();
        let again = if repeat == 0 { None } else { once() };
        [first, again.filter(|_| rng.below(1000) < repeat)]
    }
}
