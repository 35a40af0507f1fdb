//! Topology, routes, link load and rank order of a switchless cluster.
//!
//! A [`Topology`] is made from a topology file, from a generated [`Shape`], or from what nodes advertise. A [`Router`]
//! answers which way a connection goes; [`flows`](fn@flows) and [`LinkLoad`] say what a collective asks of every link;
//! [`RankOrder`] puts Ring on real cables; [`cuts`] says what breaks if a link or a node does.
//!
//! Everything here is a pure function of its arguments: no I/O, no threads, no clock, no randomness. Every node that
//! knows the same topology comes to the same answers, whatever the order in which it learned of the nodes. All types
//! are `Send + Sync` and may be used from any thread.
#![forbid(unsafe_code)]

mod advice;
mod check;
mod contract;
pub mod cuts;
mod derive;
mod file;
pub mod flows;
mod fnv;
mod footprint;
mod graph;
mod ids;
mod lane;
mod load;
mod model;
mod natural;
mod nearest;
mod pins;
mod policy;
mod problem;
mod rank_order;
pub mod render;
mod route;
mod router;
mod search;
mod shape;
mod split;
mod spread;
mod subnet;
mod topology;

pub use advice::{Advice, RingCost, advice};
pub use contract::{Difference, PortAt, Severity, compare, compare_cables};
pub use file::parse_speed;
pub use flows::{Algo, Collective, Flow, FlowError, flows};
pub use ids::{EdgeId, LinkId, NodeId};
pub use lane::{Hop, Lane};
pub use load::{LinkLoad, USUAL_MBPS, link_load};
pub use model::{Edge, End, Link, Node, NodeSpec, Port, PortSpec};
pub use nearest::nearest;
pub use policy::{Differences, PinnedRoute, Policy};
pub use problem::{Problem, ProblemCode};
pub use rank_order::{OrderError, RankOrder};
pub use route::{Cost, Route};
pub use router::{MAX_EQUAL_COST, Router};
pub use shape::{AddressPlan, Shape, ShapeError, grid_sides};
pub use subnet::Subnet;
pub use topology::Topology;
