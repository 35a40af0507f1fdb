//! The sockets that an agent listens on: one a port of its node, all with one TCP port.
//!
//! Made by whoever starts the agent, and handed to its thread. Knows nothing of who owns the node.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use mesh_link::tcp::dial::listen;

use super::AgentError;

/// Connections that may wait to be accepted, a port.
const BACKLOG: u32 = 1024;
/// TCP ports that are tried until one is free on all ports of the node.
const TRIES: usize = 32;

/// See the module.
#[derive(Debug)]
pub struct Listeners {
    port: u16,
    pub(super) each: Vec<(Ipv4Addr, u8, TcpListener)>,
}

impl Listeners {
    /// Listens on the ports (address, prefix length) of a node; with `port` 0 on any TCP port that is free on all of them.
    ///
    /// # Errors
    /// [`AgentError::AddressTaken`] if another process has the port, [`AgentError::Listen`] if a port cannot be listened on.
    pub fn open(node: &str, ports: &[(Ipv4Addr, u8)], port: u16) -> Result<Self, AgentError> {
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match Self::attempt(node, ports, port) {
                Err(AgentError::AddressTaken { .. }) if port == 0 && tries > 0 => {}
                outcome => return outcome,
            }
        }
    }

    fn attempt(node: &str, ports: &[(Ipv4Addr, u8)], wish: u16) -> Result<Self, AgentError> {
        let mut port = wish;
        let mut each = Vec::with_capacity(ports.len());
        for &(address, prefix) in ports {
            let failed = |source: std::io::Error| {
                let node = node.to_owned();
                match source.kind() {
                    ErrorKind::AddrInUse => AgentError::AddressTaken { node, address, port },
                    _ => AgentError::Listen { node, address, port, source },
                }
            };
            let listener = listen(SocketAddrV4::new(address, port), BACKLOG).map_err(failed)?;
            if port == 0 {
                port = listener.local_addr().map_err(failed)?.port();
            }
            each.push((address, prefix, listener));
        }
        Ok(Self { port, each })
    }

    /// The TCP port; 0 if the node has no port.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_one_on_all_addresses() {
        // given a node with three ports
        let ports = [1, 2, 3].map(|n| (Ipv4Addr::new(127, 91, 3, n), 24));
        // when two agents listen on it with ports of their own
        let one = Listeners::open("n", &ports, 0).expect("a free port");
        let two = Listeners::open("n", &ports, 0).expect("another one");
        // then each has one port on all of them, and not the other's
        assert!(one.port() != 0 && two.port() != 0 && one.port() != two.port());
        for listeners in [&one, &two] {
            let at = |l: &(Ipv4Addr, u8, TcpListener)| l.2.local_addr().map(|a| a.port()).ok();
            assert!(listeners.each.iter().all(|l| at(l) == Some(listeners.port())));
        }
        // and who wants a port that is taken hears whose it is
        let taken = Listeners::open("n", &ports, one.port()).expect_err("taken");
        assert!(matches!(taken, AgentError::AddressTaken { port, .. } if port == one.port()), "{taken}");
    }
}
