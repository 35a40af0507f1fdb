//! Discovery's events as lines of the log, each with its stable code.
//!
//! On the thread of the node's owner; decides nothing.

use tracing::{info, warn};

use crate::discovery::{Down, Event, Fault};

/// The code of an event; `W` is a warning.
pub(super) const fn code(event: &Event) -> &'static str {
    match event {
        Event::NeighbourUp { .. } => "mesh[I06]",
        Event::NeighbourDown { why: Down::Restarted, .. } => "mesh[I07]",
        Event::NeighbourDown { .. } => "mesh[W60]",
        Event::PortUnusable { .. } => "mesh[W61]",
        Event::Unreadable { .. } => "mesh[W62]",
        Event::OtherSource { .. } => "mesh[W63]",
        Event::OutsideSubnet { .. } => "mesh[W64]",
        Event::LoopedBack { .. } => "mesh[W65]",
        Event::AddressTaken { .. } | Event::AddressTwice { .. } => "mesh[W66]",
        Event::SameId { .. } | Event::IdInUse { .. } => "mesh[W67]",
        Event::ThreeEnds { .. } => "mesh[W68]",
        Event::NoRoom { .. } => "mesh[W79]",
        Event::DatabaseFull { .. } => "mesh[W69]",
        Event::Outbid { .. } => "mesh[I07]",
        Event::IdFree { .. } | Event::FaultOver(_) => "mesh[I08]",
        Event::ClockLeapt { .. } => "mesh[W70]",
        Event::Fault(Fault::SameAddress { .. }) => "mesh[W66]",
        Event::Fault(Fault::SameId { .. }) => "mesh[W67]",
        Event::Fault(Fault::ThreeEnds { .. } | Fault::HalfSwitched { .. }) => "mesh[W68]",
        Event::Fault(Fault::SubnetTwice { .. }) => "mesh[W71]",
        Event::Fault(Fault::SameName { .. }) => "mesh[W72]",
    }
}

/// Writes the line.
pub(super) fn tell(node: &str, event: &Event) {
    let code = code(event);
    if code.starts_with("mesh[W") {
        warn!("{code} node {node}: {event}");
    } else {
        info!("{code} node {node}: {event}");
    }
}
