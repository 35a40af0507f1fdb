//! A lane: a route pinned to one link a hop.

use crate::LinkId;
use std::net::Ipv4Addr;

/// One hop of a lane: a link in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hop {
    /// The link.
    pub link: LinkId,
    /// Address of the port that sends.
    pub from: Ipv4Addr,
    /// Address of the port that receives.
    pub to: Ipv4Addr,
}

/// One link for each hop of a route, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lane {
    /// The hops; at least one.
    pub hops: Vec<Hop>,
}

impl Lane {
    /// The same way back.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let back = |hop: &Hop| Hop { link: hop.link, from: hop.to, to: hop.from };
        Self { hops: self.hops.iter().rev().map(back).collect() }
    }
}
