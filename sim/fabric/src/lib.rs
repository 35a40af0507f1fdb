//! Preloaded library that lets only cabled ports of a make-believe fabric talk.
//!
//! All nodes of a make-believe fabric live on one machine, where every loopback address reaches every other. Loaded with
//! `LD_PRELOAD` into a node's process, this library stands between the process and the C library's socket functions, and gives
//! the node the view of a host on real cables: its own ports, and through each port only what that port is cabled to. Ports keep
//! the addresses of the topology, whatever they are: each stands for a loopback address, its place, and the process sees the
//! address where the kernel sees the place. Addresses that are no port of the fabric are left alone.
//!
//! Two environment variables say what is cabled: `MESH_FABRIC` names the fabric file ([`rules::Fabric::parse`] has its
//! format), `MESH_FABRIC_NODE` lists the addresses of this node's own ports, separated by commas. If either is missing or
//! malformed the process ends with status 125 before its `main`: a fabric is never silently open.
//!
//! Where a file named as the fabric file with `.cuts` behind lies beside it, a byte a cable, in the order of their lines, cuts that
//! cable at once, and 0 mends it, while processes run. Over a cable that is cut, datagrams vanish and new connections are refused with
//! `EHOSTUNREACH`; connected sockets stay as they are.
//!
//! Datagrams to a group that does not leave a link (224.0.0.0/24), from a socket that is bound to a port or has named one for groups, arrive
//! at the addresses of all ports cabled to it; from any other socket they are refused with `ENETUNREACH`. Sockets bound to such a group hear
//! nothing, from wherever it comes. Whether a socket is a member of a group at a port is kept account of, and makes no difference.
//!
//! It must not know what the processes talk about, nor any name of the plugin: it sees sockets only.

pub mod cuts;
pub mod groups;
pub mod rules;

// Not in this crate's own unit tests: there the symbols would replace the C library's in the test program itself.
#[cfg(not(test))]
mod interpose;
