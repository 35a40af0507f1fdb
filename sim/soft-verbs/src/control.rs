//! Changes a fabric while programs run on it: cuts and restores cables, moves GIDs, sets rate and latency, reads counters and what
//! queue pairs are connected with, cleans up.
//!
//! For harnesses and tests, in a process of their own. Any thread.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::{IBV_EVENT_GID_CHANGE, IBV_QPS_RTS};
use crate::engine::{Fabric, FabricError};
use crate::shared::layout::{MAX_QPS, NO_GID, PortCell};
use crate::surface::gids;

/// The control of one fabric.
#[derive(Debug)]
pub struct Control {
    fabric: Fabric,
}

/// Why a change cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No such port.
    #[error("no port of the fabric has address {address}")]
    NoPort {
        /// The address asked for.
        address: Ipv4Addr,
    },
    /// The two ports exist, but nothing connects them.
    #[error("no cable joins {a} and {b}")]
    NoCable {
        /// One end.
        a: Ipv4Addr,
        /// The other.
        b: Ipv4Addr,
    },
    /// A rate of zero.
    #[error("a rate must be at least 1 bit a second")]
    NoRate,
    /// No entry of a GID table can hold a RoCE v2 GID there.
    #[error("a RoCE v2 GID has an odd index below {}, not {index}", gids::TABLE)]
    NoIndex {
        /// The index asked for.
        index: u32,
    },
}

/// What a connected queue pair was told about its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// Its own port.
    pub local: Ipv4Addr,
    /// Its peer's.
    pub remote: Ipv4Addr,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Index of its own GID.
    pub gid_index: u32,
    /// Traffic class.
    pub traffic_class: u32,
    /// Service level.
    pub service_level: u32,
}

/// What a port has done since the fabric began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests carried out for queue pairs of this port.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Tries that could not go on: no answer, or no receive.
    pub waits: u64,
    /// Sleepers on completion channels woken.
    pub wakes: u64,
}

impl Control {
    /// Opens the fabric that a file describes, making its memory if no program has yet.
    ///
    /// # Errors
    /// The file or the memory cannot be used.
    pub fn open(file: &Path) -> Result<Self, FabricError> {
        Fabric::open(file).map(|fabric| Self { fabric })
    }

    /// Cuts (`up` false) or restores the cable between two ports: both lose or get their carrier, and their devices tell.
    ///
    /// # Errors
    /// No such ports, or no cable.
    pub fn set_cable(&self, a: Ipv4Addr, b: Ipv4Addr, up: bool) -> Result<(), ControlError> {
        let ends = [self.find(a)?, self.find(b)?];
        if !self.fabric.plan.cabled(ends[0], ends[1]) {
            return Err(ControlError::NoCable { a, b });
        }
        for end in ends {
            self.fabric.set_carrier(end, up);
        }
        Ok(())
    }

    /// Takes one port's carrier or gives it back: a cable of a switch, for one. A port that has a netdev's carrier gets that again.
    ///
    /// # Errors
    /// No such port.
    pub fn set_port(&self, address: Ipv4Addr, up: bool) -> Result<(), ControlError> {
        self.fabric.set_carrier(self.find(address)?, up);
        Ok(())
    }

    /// Sets a port's rate, bits a second. Holds for requests posted from now on; only the clock engine keeps to it.
    ///
    /// # Errors
    /// No such port, or a rate of zero.
    pub fn set_rate(&self, address: Ipv4Addr, rate: u64) -> Result<(), ControlError> {
        if rate == 0 {
            return Err(ControlError::NoRate);
        }
        self.cell(self.find(address)?).rate.store(rate, Ordering::Relaxed);
        Ok(())
    }

    /// Sets a port's one-way latency, ns; between two ports the longer holds. As [`Self::set_rate`].
    ///
    /// # Errors
    /// No such port.
    pub fn set_latency(&self, address: Ipv4Addr, latency_ns: u64) -> Result<(), ControlError> {
        self.cell(self.find(address)?).latency.store(latency_ns, Ordering::Relaxed);
        Ok(())
    }

    /// Moves a port's IPv4 GID, so that its RoCE v2 entry has this index, and leaves its old entries empty. Queue pairs that are
    /// connected stay so.
    ///
    /// # Errors
    /// No such port, or an index that cannot be.
    pub fn set_gid_index(&self, address: Ipv4Addr, index: u32) -> Result<(), ControlError> {
        let port = self.find(address)?;
        if index.is_multiple_of(2) || index >= gids::TABLE {
            return Err(ControlError::NoIndex { index });
        }
        self.cell(port).gid.store(index - 1, Ordering::Release);
        self.fabric.tell(port, IBV_EVENT_GID_CHANGE);
        Ok(())
    }

    /// Takes a port's IPv4 GID away, as when its interface loses its address; [`Self::set_gid_index`] gives it back.
    ///
    /// # Errors
    /// No such port.
    pub fn take_gid(&self, address: Ipv4Addr) -> Result<(), ControlError> {
        let port = self.find(address)?;
        self.cell(port).gid.store(NO_GID, Ordering::Release);
        self.fabric.tell(port, IBV_EVENT_GID_CHANGE);
        Ok(())
    }

    /// The queue pairs that may send now, in no order.
    pub fn connected(&self) -> Vec<Connected> {
        let tables = self.fabric.shared.tables();
        let used = (tables.qps_high.load(Ordering::Acquire) as usize).min(MAX_QPS);
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let live = tables.qps[..used]
            .iter()
            .filter(|qp| qp.number.load(Ordering::Acquire) != 0 && qp.state.load(Ordering::Acquire) == IBV_QPS_RTS);
        let told = live.filter_map(|qp| {
            Some(Connected {
                local: self.fabric.plan.ports.get(load(&qp.port) as usize)?.address,
                remote: self.fabric.plan.ports.get(load(&qp.peer_port) as usize)?.address,
                mtu: load(&qp.mtu),
                gid_index: load(&qp.gid),
                traffic_class: load(&qp.traffic_class),
                service_level: load(&qp.service_level),
            })
        });
        told.collect()
    }

    /// Whether a port has its carrier.
    ///
    /// # Errors
    /// No such port.
    pub fn is_up(&self, address: Ipv4Addr) -> Result<bool, ControlError> {
        Ok(self.cell(self.find(address)?).down.load(Ordering::Acquire) == 0)
    }

    /// What a port has done.
    ///
    /// # Errors
    /// No such port.
    pub fn counters(&self, address: Ipv4Addr) -> Result<Counters, ControlError> {
        let cell = self.cell(self.find(address)?);
        Ok(Counters {
            requests: cell.requests.load(Ordering::Relaxed),
            bytes: cell.bytes.load(Ordering::Relaxed),
            waits: cell.waits.load(Ordering::Relaxed),
            wakes: cell.wakes.load(Ordering::Relaxed),
        })
    }

    /// Frees what dead processes left; programs do so themselves when they open a device. Returns the objects freed.
    pub fn sweep(&self) -> usize {
        self.fabric.shared.sweep()
    }

    fn find(&self, address: Ipv4Addr) -> Result<usize, ControlError> {
        self.fabric.plan.find(address).ok_or(ControlError::NoPort { address })
    }

    fn cell(&self, port: usize) -> &PortCell {
        &self.fabric.shared.tables().ports[port]
    }
}
