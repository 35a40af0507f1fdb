//! Why a connection, or the node itself, cannot do what NCCL asked; each with its stable code, its facts and a remedy.
//!
//! The texts are what users read; `docs/errors.md` explains them. Knows how they map to NCCL's result codes, nothing else.

use std::path::PathBuf;

use mesh_abi::NcclResult;
use mesh_link::{LinkError, PostError};
use mesh_relay::send::FlowError;
use thiserror::Error;

/// A failure of the connection layer.
#[derive(Clone, Debug, Error)]
pub(crate) enum NetError {
    /// Anything that kept the node from starting; the text carries its own code.
    #[error("{0}")]
    Start(String),
    /// The topology file cannot be read.
    #[error("mesh[E78] {}: cannot be read: {why}; set NCCL_MESH_TOPOLOGY to the topology file", path.display())]
    TopologyFile { path: PathBuf, why: String },
    /// The topology file is wrong; all its problems, one a line.
    #[error("{problems}")]
    Topology { problems: String },
    /// This host is not in the topology.
    #[error(
        "mesh[E84] no node of {} is this host: its addresses are {addresses}; correct the file, or name the node with NCCL_MESH_NODE",
        path.display()
    )]
    NotInTopology { path: PathBuf, addresses: String },
    /// NCCL_MESH_NODE names no node.
    #[error("mesh[E84] NCCL_MESH_NODE={name:?} is no node of {}: its nodes are {nodes}", path.display())]
    NoSuchNode { name: String, path: PathBuf, nodes: String },
    /// The host has no address to talk from.
    #[error(
        "mesh[E85] no interface of this host has an IPv4 address other than loopback; give each cabled port an address of its own subnet"
    )]
    NoPorts,
    /// A port that was named is none.
    #[error("mesh[E89] NCCL_MESH_PORTS: {word:?} is no port: {why}")]
    Ports { word: String, why: &'static str },
    /// A switched segment that was named is none.
    #[error("mesh[E91] NCCL_MESH_SWITCHES: {word:?} is no subnet: {why}")]
    Switches { word: String, why: String },
    /// What is found differs from the topology file, whose policy refuses that.
    #[error(
        "mesh[E09] node {node}: the topology file says differences = \"refuse\", and what is found differs: {how}; correct the cabling or the \
         file (nccl-mesh topology discover writes what is found)"
    )]
    Differs { node: String, how: String },
    /// RDMA links were asked for and cannot be had.
    #[error(
        "mesh[E{code:02}] node {node}: links are RDMA (NCCL_MESH_LINK=verbs, the default), but {why} (or set NCCL_MESH_LINK=tcp on all nodes)"
    )]
    NoVerbs { code: u16, node: String, why: String },
    /// The forced index is not the right one.
    #[error(
        "mesh[E16] node {node}: NCCL_MESH_GID_INDEX={index}, but {why}; unset it: indices are found by address, and move"
    )]
    GidIndex { node: String, index: u8, why: String },
    /// Two ports cannot be told apart.
    #[error("mesh[E11] node {node}: {what}")]
    SharedSubnet { node: String, what: String },
    /// The NICs would not take memory.
    #[error("mesh[E05] node {node}: {why}")]
    Pin { node: String, why: String },
    /// NCCL handed over something that is no handle of ours.
    #[error("mesh[E86] the peer's handle is not one of nccl-mesh ({what}); set NCCL_NET=Mesh on all nodes")]
    Handle { what: &'static str },
    /// The peer runs another build.
    #[error(
        "mesh[E43] node {peer} speaks mesh protocol {theirs}, this node {ours}: install the same build of nccl-mesh on all nodes"
    )]
    Version { peer: String, theirs: u16, ours: u16 },
    /// The peer has another topology file.
    #[error(
        "mesh[E44] node {peer} has another topology file than node {node}: give all nodes the same file (NCCL_MESH_TOPOLOGY)"
    )]
    OtherTopology { node: String, peer: String },
    /// No way to the peer.
    #[error("mesh[E02] no path from node {node} to node {peer}: this node has {own}; {peer} has {theirs}; {hint}")]
    NoPath { node: String, peer: String, own: String, theirs: String, hint: &'static str },
    /// Path set-up failed; the text comes from the node that knows why.
    #[error("{text} (connecting node {node} to node {peer} by {route})")]
    Connect { code: u16, text: String, node: String, peer: String, route: String },
    /// Nobody connected to a listener.
    #[error(
        "mesh[E87] node {node}: nobody has connected for {seconds} s; is the sending rank running? (limit: NCCL_MESH_ACCEPT_TIMEOUT_SEC)"
    )]
    AcceptTimeout { node: String, seconds: u64 },
    /// A message did not fit.
    #[error("mesh[E57] node {node}, connection {way} {peer}: {source}; sender and receiver disagree about the size")]
    TooLarge { node: String, way: &'static str, peer: String, source: FlowError },
    /// The peer or a relay broke the protocol.
    #[error("mesh[E51] node {node}, connection {way} {peer}: {what}; install the same build of nccl-mesh on all nodes")]
    Protocol { node: String, way: &'static str, peer: String, what: String },
    /// The peer has closed, with transfers open.
    #[error(
        "mesh[E58] node {node}: {peer} closed the connection {way} it with {open} transfers open; look for the first error on {peer}"
    )]
    Closed { node: String, way: &'static str, peer: String, open: u32 },
    /// A relay on the way is gone.
    #[error(
        "mesh[E{code:02}] node {node}: a relay on the way {way} {peer} ended the path with {open} transfers open; look at the log of the nodes between"
    )]
    PathBroken { code: u16, node: String, way: &'static str, peer: String, open: u32 },
    /// The leg broke.
    #[error(
        "mesh[E59] node {node}: the leg of the connection {way} {peer} over {link} broke: {source}; {open} transfers were open"
    )]
    Leg { node: String, way: &'static str, peer: String, link: String, source: Box<LinkError>, open: u32 },
    /// A posted transfer stands still.
    #[error(
        "mesh[E40] node {node}: the connection {way} {peer} has made no progress for {seconds} s: message {seq} waits for {what} \
         (limit: NCCL_MESH_TIMEOUT_SEC)"
    )]
    Stalled { node: String, way: &'static str, peer: String, seconds: u64, seq: u32, what: &'static str },
    /// The link would not take a post.
    #[error("mesh[E59] node {node}, connection {way} {peer}: posting failed: {source}")]
    Post { node: String, way: &'static str, peer: String, source: PostError },
}

impl NetError {
    /// What NCCL is told.
    pub(crate) fn code(&self) -> NcclResult {
        match self {
            Self::Start(_)
            | Self::TopologyFile { .. }
            | Self::Topology { .. }
            | Self::NotInTopology { .. }
            | Self::NoSuchNode { .. }
            | Self::NoVerbs { .. }
            | Self::GidIndex { .. }
            | Self::SharedSubnet { .. }
            | Self::Pin { .. }
            | Self::Ports { .. }
            | Self::Switches { .. }
            | Self::Differs { .. }
            | Self::NoPorts => NcclResult::SystemError,
            Self::Handle { .. } | Self::Version { .. } | Self::OtherTopology { .. } | Self::TooLarge { .. } => {
                NcclResult::InvalidUsage
            }
            Self::NoPath { .. }
            | Self::Connect { .. }
            | Self::AcceptTimeout { .. }
            | Self::Protocol { .. }
            | Self::Closed { .. }
            | Self::PathBroken { .. }
            | Self::Leg { .. }
            | Self::Stalled { .. }
            | Self::Post { .. } => NcclResult::RemoteError,
        }
    }
}
