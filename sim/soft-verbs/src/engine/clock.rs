//! Time on ports: when the bytes of a request have left one port and arrived at another.
//!
//! A port sends one thing after another at its rate, and receives so; a request occupies the sender's side and the receiver's
//! side for as long as the slower of the two needs. Any thread; takes the clocks' lock.

use std::sync::atomic::Ordering;

use super::Fabric;
use super::request::Request;
use crate::plan::MAX_PORTS;

/// Payload of a packet at the fabric's MTU.
const PACKET: u64 = 4096;
/// What headers and gaps add to each packet on RoCE v2, bytes.
const OVERHEAD: u64 = 82;

impl Fabric {
    /// Reserves time for a request from port `from` to port `to` and notes when it arrives and is acknowledged.
    pub fn reserve(&self, request: &mut Request, from: u32, to: u32, now: u64) {
        let ports = &self.shared.tables().ports;
        let latency = [from, to].map(|port| ports[port as usize % MAX_PORTS].latency.load(Ordering::Relaxed));
        let latency = latency[0].max(latency[1]);
        let packets = request.length.div_ceil(PACKET).max(1);
        let bytes = request.length + packets * OVERHEAD;
        // What is read flows the other way, once the question has arrived.
        if request.operation.fetches() {
            let sent = self.occupy(to, from, bytes, now + latency);
            request.arrives_at = sent + latency;
            request.acknowledged_at = request.arrives_at;
        } else {
            let sent = self.occupy(from, to, bytes, now);
            request.arrives_at = sent + latency;
            request.acknowledged_at = request.arrives_at + latency;
        }
    }

    fn occupy(&self, from: u32, to: u32, bytes: u64, earliest: u64) -> u64 {
        let tables = self.shared.tables();
        let (sender, receiver) = (&tables.ports[from as usize % MAX_PORTS], &tables.ports[to as usize % MAX_PORTS]);
        let rate = sender.rate.load(Ordering::Relaxed).min(receiver.rate.load(Ordering::Relaxed)).max(1);
        let takes = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(rate)) as u64;
        let _held = tables.clocks.lock();
        let free = sender.sends_until.load(Ordering::Relaxed).max(receiver.receives_until.load(Ordering::Relaxed));
        let until = free.max(earliest) + takes;
        sender.sends_until.store(until, Ordering::Relaxed);
        receiver.receives_until.store(until, Ordering::Relaxed);
        until
    }
}
