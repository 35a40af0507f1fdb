//! The 128 bytes that travel from a receiver to its sender: who listens, where, with which token.
//!
//! Layout, little endian, no alignment assumed:
//!
//! ```text
//!   0  magic u32      4  protocol u16    6  ports u8    7  control addresses u8
//!   8  token [16]    24  node key u64   32  topology hash u64 (0: none)   40  agent's TCP port u16
//!  44  ports: address [4], prefix u8, each; then control addresses [4] each; at most 76 bytes
//! 120  the sender's own: which pending connection this buffer belongs to, 0 as listened
//! ```

use std::net::Ipv4Addr;

use mesh_abi::HANDLE_BYTES;
use mesh_relay::wire::PROTOCOL;

use super::NetError;

const MAGIC: u32 = u32::from_le_bytes(*b"MshH");
const LIST: usize = 44;
const PENDING: usize = 120;

/// A listener's address in the widest sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) token: [u8; 16],
    pub(crate) node: u64,
    pub(crate) topology: u64,
    pub(crate) port: u16,
    pub(crate) ports: Vec<(Ipv4Addr, u8)>,
    pub(crate) control: Vec<Ipv4Addr>,
}

impl Handle {
    /// As bytes. Ports come first; what does not fit is left out (15 ports do).
    pub(crate) fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut b = [0; HANDLE_BYTES];
        b[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        b[4..6].copy_from_slice(&PROTOCOL.to_le_bytes());
        b[8..24].copy_from_slice(&self.token);
        b[24..32].copy_from_slice(&self.node.to_le_bytes());
        b[32..40].copy_from_slice(&self.topology.to_le_bytes());
        b[40..42].copy_from_slice(&self.port.to_le_bytes());
        let mut at = LIST;
        for (address, prefix) in &self.ports {
            if at + 5 > PENDING {
                break;
            }
            b[at..at + 4].copy_from_slice(&address.octets());
            b[at + 4] = *prefix;
            at += 5;
            b[6] += 1;
        }
        for address in &self.control {
            if at + 4 > PENDING {
                break;
            }
            b[at..at + 4].copy_from_slice(&address.octets());
            at += 4;
            b[7] += 1;
        }
        b
    }

    /// From bytes.
    pub(crate) fn decode(b: &[u8; HANDLE_BYTES]) -> Result<Self, NetError> {
        if b[0..4] != MAGIC.to_le_bytes() {
            return Err(NetError::Handle { what: "wrong first word" });
        }
        let (ports, control) = (usize::from(b[6]), usize::from(b[7]));
        if LIST + ports * 5 + control * 4 > PENDING || ports == 0 {
            return Err(NetError::Handle { what: "impossible number of ports" });
        }
        let theirs = u16::from_le_bytes([b[4], b[5]]);
        let address = |at: usize| Ipv4Addr::new(b[at], b[at + 1], b[at + 2], b[at + 3]);
        if theirs != PROTOCOL {
            return Err(NetError::Version { peer: address(LIST).to_string(), theirs, ours: PROTOCOL });
        }
        let list = (0..ports).map(|n| (address(LIST + n * 5), b[LIST + n * 5 + 4])).collect::<Vec<_>>();
        if list.iter().any(|(_, prefix)| !(1..=32).contains(prefix)) {
            return Err(NetError::Handle { what: "impossible prefix" });
        }
        Ok(Self {
            token: array(b, 8),
            node: u64::from_le_bytes(array(b, 24)),
            topology: u64::from_le_bytes(array(b, 32)),
            port: u16::from_le_bytes(array(b, 40)),
            ports: list,
            control: (0..control).map(|n| address(LIST + ports * 5 + n * 4)).collect(),
        })
    }

    /// The pending connection that a sender noted in its copy.
    pub(crate) fn pending(b: &[u8; HANDLE_BYTES]) -> u64 {
        u64::from_le_bytes(array(b, PENDING))
    }

    /// Notes a pending connection in the sender's copy.
    pub(crate) fn set_pending(b: &mut [u8; HANDLE_BYTES], id: u64) {
        b[PENDING..].copy_from_slice(&id.to_le_bytes());
    }
}

fn array<const N: usize>(b: &[u8; HANDLE_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|n| b[at + n])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(ports: usize) -> Handle {
        Handle {
            token: [7; 16],
            node: 0x1122_3344_5566_7788,
            topology: 9,
            port: 17917,
            ports: (0..ports).map(|n| (Ipv4Addr::new(10, 0, n as u8, 1), 30)).collect(),
            control: vec![Ipv4Addr::new(192, 168, 0, 1)],
        }
    }

    #[test]
    fn handles_survive_and_keep_the_pending_mark_apart() {
        let h = handle(14);
        let mut bytes = h.encode();
        assert_eq!(Handle::decode(&bytes).unwrap(), h);
        assert_eq!(Handle::pending(&bytes), 0);
        Handle::set_pending(&mut bytes, u64::MAX);
        assert_eq!(Handle::decode(&bytes).unwrap(), h);
        assert_eq!(Handle::pending(&bytes), u64::MAX);
    }

    #[test]
    fn what_does_not_fit_is_left_out_ports_first() {
        let got = Handle::decode(&handle(15).encode()).unwrap();
        assert_eq!((got.ports.len(), got.control.len()), (15, 0));
        let got = Handle::decode(&handle(20).encode()).unwrap();
        assert_eq!((got.ports.len(), got.control.len()), (15, 0));
    }

    #[test]
    fn strange_handles_are_refused_by_name() {
        let good = handle(2).encode();
        for (at, value, want) in
            [(0, 0, "wrong first word"), (6, 0, "number of ports"), (6, 16, "number of ports"), (48, 33, "prefix")]
        {
            let mut bytes = good;
            bytes[at] = value;
            let text = Handle::decode(&bytes).unwrap_err().to_string();
            assert!(text.contains(want), "{text}");
        }
        let mut bytes = good;
        bytes[4] = 9;
        let text = Handle::decode(&bytes).unwrap_err().to_string();
        assert!(text.starts_with("mesh[E43]") && text.contains("protocol 9"), "{text}");
    }
}
