//! Sizes and times of a queue pair, and why an endpoint could not be made. Pure.

use std::io;
use std::net::SocketAddr;

use super::handshake::RECEIVES;
use super::missing::DeviceError;
use super::mr::RegisterError;

/// What is particular to queue pairs; sizes common to all backends are in [`Limits`](crate::tcp::Limits).
#[derive(Clone, Copy, Debug)]
pub struct VerbsLimits {
    /// Receives kept posted, 8 to 32768: messages and notifications that may be under way to this end. 1 KiB each.
    pub receives: u32,
    /// Bytes that requests may carry themselves, if the device can.
    pub inline: u32,
    /// Time until the NIC repeats what was not acknowledged: 4.096 µs times two to this power, 1 to 31. With `retries` it bounds how long a
    /// cut cable goes unnoticed: (`retries` + 1) times as long.
    pub timeout: u8,
    /// Repetitions, 0 to 6. Seven means "for ever" to some drivers and is not allowed.
    pub retries: u8,
    /// Repetitions if the peer has no receive posted, 0 to 6. Credits see to it that it always has.
    pub rnr_retries: u8,
    /// Longest request in bytes, cut down to 4 KiB multiples and to what the devices can; longer writes go in parts, so that messages and
    /// other writes need not wait for a long one.
    pub longest: u32,
    /// Traffic class of all packets: the byte that switches and NICs sort them by. Cables between two hosts need none.
    pub traffic_class: u8,
    /// Service level, 0 to 7: the priority of Ethernet frames.
    pub service_level: u8,
}

impl Default for VerbsLimits {
    /// Timeout code 17 and 6 repetitions make 3.8 s: long enough for a link that flaps or a NIC that pauses, and shorter than the 5 s
    /// after which the layers above call a transfer stuck, so that the NIC's own reason is the one told.
    fn default() -> Self {
        Self {
            receives: 256,
            inline: 128,
            timeout: 17,
            retries: 6,
            rnr_retries: 6,
            // A relay's chunk of 256 KiB and its header go in one.
            longest: (256 << 10) + 4096,
            traffic_class: 0,
            service_level: 0,
        }
    }
}

impl VerbsLimits {
    pub(super) fn check(&self) -> Result<(), VerbsError> {
        for (good, what, value, range) in [
            (RECEIVES.contains(&self.receives), "receives", u64::from(self.receives), "8 to 32768"),
            ((1..=31).contains(&self.timeout), "timeout code", self.timeout.into(), "1 to 31"),
            (self.retries <= 6, "retries", self.retries.into(), "0 to 6"),
            (self.rnr_retries <= 6, "receiver-not-ready retries", self.rnr_retries.into(), "0 to 6"),
            (self.service_level <= 7, "service level", self.service_level.into(), "0 to 7"),
            (self.longest >= 4096, "longest request", self.longest.into(), "at least 4096 bytes"),
        ] {
            if !good {
                return Err(VerbsError::Limit { what, value, range });
            }
        }
        Ok(())
    }
}

/// An endpoint could not be made.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The stream cannot be used.
    #[error("stream: {0}")]
    Stream(#[from] io::Error),
    /// The stream is not one between IPv4 addresses.
    #[error("stream between {local} and {remote}: both must be IPv4 addresses of ports")]
    Addresses {
        /// This end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// The port cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Memory of the endpoint itself.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A queue could not be made.
    #[error("{call} failed for RDMA device {device}: {source}")]
    Call {
        /// The call.
        call: &'static str,
        /// Device.
        device: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// A limit is outside its range.
    #[error("{what} is {value}, must be {range}")]
    Limit {
        /// Which.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed.
        range: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_on_both_sides() {
        let default = VerbsLimits::default;
        assert!(default().check().is_ok());
        for (limits, good) in [
            (VerbsLimits { receives: 7, ..default() }, false),
            (VerbsLimits { receives: 8, ..default() }, true),
            (VerbsLimits { timeout: 0, ..default() }, false),
            (VerbsLimits { timeout: 31, ..default() }, true),
            (VerbsLimits { timeout: 32, ..default() }, false),
            (VerbsLimits { retries: 6, ..default() }, true),
            (VerbsLimits { retries: 7, ..default() }, false),
            (VerbsLimits { rnr_retries: 7, ..default() }, false),
            (VerbsLimits { service_level: 7, traffic_class: 255, ..default() }, true),
            (VerbsLimits { service_level: 8, ..default() }, false),
            (VerbsLimits { longest: 4095, ..default() }, false),
            (VerbsLimits { longest: 4096, ..default() }, true),
        ] {
            assert_eq!(limits.check().is_ok(), good, "{limits:?}");
        }
    }
}
