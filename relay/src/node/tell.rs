//! Discovery's events as lines of the log, each with its stable code.
//!
//! On the thread of the node's owner; decides nothing.

use tracing::{info, warn};

use crate::discovery::{Down, Event, Fault};

/// The code of an event, and whether it is a warning.
pub(super) const fn code(event: &Event) -> (bool, u16) {
    match event {
        Event::NeighbourUp { .. } => (false, 6),
        Event::NeighbourDown { why: Down::Restarted, .. } => (false, 7),
        Event::NeighbourDown { .. } => (true, 60),
        Event::PortUnusable { .. } => (true, 61),
        Event::Unreadable { .. } => (true, 62),
        Event::OtherSource { .. } => (true, 63),
        Event::OutsideSubnet { .. } => (true, 64),
        Event::LoopedBack { .. } => (true, 65),
        Event::AddressTaken { .. } => (true, 66),
        Event::SameId { .. } | Event::IdInUse { .. } => (true, 67),
        Event::ThreeEnds { .. } => (true, 68),
        Event::DatabaseFull { .. } => (true, 69),
        Event::Outbid { .. } => (false, 7),
        Event::IdFree { .. } | Event::FaultOver(_) => (false, 8),
        Event::ClockLeapt { .. } => (true, 70),
        Event::Fault(Fault::SameAddress { .. }) => (true, 66),
        Event::Fault(Fault::SameId { .. }) => (true, 67),
        Event::Fault(Fault::ThreeEnds { .. }) => (true, 68),
        Event::Fault(Fault::SubnetTwice { .. }) => (true, 71),
        Event::Fault(Fault::SameName { .. }) => (true, 72),
    }
}

/// Writes the line.
pub(super) fn tell(node: &str, event: &Event) {
    match code(event) {
        (true, code) => warn!("mesh[W{code:02}] node {node}: {event}"),
        (false, code) => info!("mesh[I{code:02}] node {node}: {event}"),
    }
}
