//! Closed legs that still send: they are let finish, for a bounded time.
//!
//! A part of [`super::thread`], on the same thread. Not on the path of a chunk.

use mesh_link::Endpoint;
use mesh_link::poller::Interest;

use super::legs::Lingering;
use super::thread::{LINGER, Runner, unwatch, watch};
use crate::engine::Time;

/// How often closed queue pairs that still send are looked at.
pub(super) const LOOK: Time = 5_000_000;

impl Runner {
    /// Lets a closed leg send what it has.
    pub(super) fn linger(&mut self, now: Time, mut endpoint: Endpoint) {
        endpoint.shutdown_write();
        if endpoint.error().is_some() {
            return;
        }
        let key = self.next_linger;
        self.next_linger = self.next_linger.wrapping_add(1);
        if watch(&self.poller, &endpoint, LINGER | u64::from(key), Interest::BOTH).is_ok() {
            let until = now + self.config.linger.as_nanos() as Time;
            self.lingering.insert(key, Lingering { endpoint, until });
        }
    }

    pub(super) fn linger_on(&mut self, key: u32) {
        let Some(l) = self.lingering.get_mut(&key) else { return };
        loop {
            match l.endpoint.poll(|_| {}) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    // The peer has closed too, or the leg broke: either way it is over.
                    unwatch(&self.poller, &l.endpoint);
                    self.lingering.remove(&key);
                    return;
                }
            }
        }
        if !l.endpoint.interest().write {
            // Only the end of the peer's stream is of interest now.
            let _ = self.poller.modify(l.endpoint.fd(), LINGER | u64::from(key), Interest::READ);
        }
    }

    pub(super) fn expire(&mut self, now: Time) {
        let silent: Vec<u32> =
            self.lingering.iter().filter(|(_, l)| !l.endpoint.is_woken_by_itself()).map(|(key, _)| *key).collect();
        for key in silent {
            self.linger_on(key);
        }
        if self.lingering.values().any(|l| l.until <= now) {
            let poller = &self.poller;
            self.lingering.retain(|_, l| {
                let keep = l.until > now;
                if !keep {
                    unwatch(poller, &l.endpoint);
                    l.endpoint.abort();
                }
                keep
            });
        }
    }
}
