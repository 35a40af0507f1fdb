//! How legs begin: connections that are accepted or have been dialed become endpoints, or it is said why not.
//!
//! A part of [`super::thread`], on the same thread. Decides nothing: the engine tries again, or gives up.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use mesh_link::poller::Interest;
use mesh_link::tcp::Limits;
use mesh_link::tcp::dial::{DialState, Dialing};
use mesh_link::{Endpoint, LinkError};
use tracing::warn;

use super::legs::Leg;
use super::thread::{LEG, Link, Runner, watch};
use crate::code;
use crate::engine::{DialId, Event, LegId, Time};

/// Number of the warning that a link's packets are small.
const SMALL_PACKETS: u16 = 20;

/// A leg being opened.
pub(super) struct Dialed {
    pub(super) id: DialId,
    pub(super) dialing: Dialing,
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
}

impl Runner {
    pub(super) fn accept(&mut self, now: Time, n: usize) {
        loop {
            let Some(&(local, prefix, ref listener)) = self.listeners.get(n) else { return };
            match listener.accept() {
                Ok((_, SocketAddr::V4(peer))) if !same_subnet(local, prefix, *peer.ip()) => {
                    let why = format!("it is outside the subnet of {local}/{prefix}");
                    self.log(&Event::Stranger { peer: *peer.ip(), why });
                }
                Ok((stream, SocketAddr::V4(peer))) => {
                    let added = self.add_leg(stream, local, *peer.ip(), self.incoming);
                    let Ok(leg) = added else { return };
                    self.engine.on_accepted(now, leg, local, *peer.ip());
                    self.carry_out(now);
                    return self.enlist(leg);
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted || e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => return warn!("mesh[E83] node {}: accept on {local}: {e}", self.shared.node),
            }
        }
    }

    /// A new leg, or why there is none.
    fn add_leg(
        &mut self,
        stream: TcpStream,
        local: Ipv4Addr,
        remote: Ipv4Addr,
        limits: Limits,
    ) -> Result<LegId, String> {
        let endpoint = Endpoint::new(stream, limits, &self.config.backend)
            .map_err(|e| self.no_leg((local, remote), code::of_endpoint(&e), e.to_string()))?;
        let leg = self.legs.add(Leg::new(endpoint, (local, remote), self.shared.links.of(local, remote)));
        let added = match self.legs.get(leg) {
            Some(l) => watch(&self.poller, &l.endpoint, LEG | u64::from(leg.0), Interest::READ),
            None => Ok(()),
        };
        if let Err(e) = added {
            self.legs.remove(leg);
            return Err(self.no_leg((local, remote), code::SYSTEM, e.to_string()));
        }
        Ok(leg)
    }

    /// Says why a leg cannot be made, once a link and reason: whoever wants it tries again until its time is up.
    #[cold]
    fn no_leg(&mut self, link: Link, code: u16, why: String) -> String {
        if self.told.insert((link, code)) {
            warn!("mesh[E{code:02}] node {}: leg between {} and {}: {why}", self.shared.node, link.0, link.1);
        }
        self.reasons.insert(link, why.clone());
        why
    }

    /// Why a leg broke before it stood. Of the two ends one fails first, and the other only sees that it is gone: if this node knows a
    /// reason of its own, from another attempt, that is the one to tell.
    #[cold]
    pub(super) fn not_opened(&mut self, link: Link, error: LinkError) -> String {
        match (error, self.reasons.get(&link)) {
            (LinkError::Setup(_), _) => self.no_leg(link, code::NO_ANSWER, error.to_string()),
            (LinkError::Reset { .. } | LinkError::ClosedByPeer { .. }, Some(own)) => own.clone(),
            (LinkError::Reset { .. } | LinkError::ClosedByPeer { .. }, None) => {
                format!("{} gave it up before it stood ({error}); its log says why", link.1)
            }
            _ => error.to_string(),
        }
    }

    /// A leg stands: whatever kept others from it is over. Says once a link, at the end that is in the way, if its packets are smaller
    /// than they could be.
    #[cold]
    pub(super) fn opened(&mut self, link: Link, mtu: Option<(u32, u32)>) {
        self.reasons.remove(&link);
        if let Some((own, peer)) = mtu
            && own < peer
            && self.told.insert((link, SMALL_PACKETS))
        {
            let (local, remote) = link;
            warn!(
                "mesh[W20] node {}: packets of {own} bytes between {local} (RDMA MTU {own}) and {remote} (RDMA MTU {peer}): expect a lower \
                 rate; give the interface of {local} the MTU of the other end's (ip link set INTERFACE mtu 9000)",
                self.shared.node
            );
        }
    }

    pub(super) fn dialed(&mut self, now: Time, key: u32) {
        let Some(d) = self.dials.get_mut(&key) else { return };
        let fd = d.dialing.fd();
        let outcome = match d.dialing.poll() {
            DialState::Pending => return,
            // The descriptor has left the poller with the dial: it is closed, or belongs to the stream now.
            DialState::Connected(stream) => {
                let _ = self.poller.remove(fd);
                Ok(stream)
            }
            DialState::Failed(e) => Err(e.to_string()),
        };
        let Some(Dialed { id, from, to, .. }) = self.dials.remove(&key) else { return };
        let outcome = outcome.and_then(|s| self.add_leg(s, from, to, self.outgoing));
        if let Ok(leg) = &outcome {
            self.enlist(*leg);
        }
        self.engine.on_dialed(now, id, outcome);
        self.carry_out(now);
    }
}

fn same_subnet(local: Ipv4Addr, prefix: u8, peer: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
    (u32::from(local) ^ u32::from(peer)) & mask == 0
}
