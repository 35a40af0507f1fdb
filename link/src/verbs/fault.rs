//! Failed completions, in words.
//!
//! Pure; any thread.

use super::port::Gid;

/// A request that the NIC could not carry out, with all that is needed to find out why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} failed: {} (status {status}, vendor error {vendor:#x}); queue pair {qpn:#08x} at {local}, peer {remote_qpn:#08x} at {remote}, \
     {outstanding} requests open, timeout code {timeout}, {retries} retries{}", status_text(*.status), hint(*.status)
)]
pub struct CompletionFault {
    /// "send" or "receive".
    pub what: &'static str,
    /// `enum ibv_wc_status`.
    pub status: u32,
    /// The vendor's own code.
    pub vendor: u32,
    /// This end's queue pair.
    pub qpn: u32,
    /// The peer's.
    pub remote_qpn: u32,
    /// This end's GID.
    pub local: Gid,
    /// The peer's.
    pub remote: Gid,
    /// Requests posted and not completed.
    pub outstanding: u32,
    /// Code of the time that the NIC waits for an acknowledgement: 4.096 µs times two to this power.
    pub timeout: u8,
    /// How often it tries again.
    pub retries: u8,
}

/// A set-up step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed between {local} and {remote}: {}{}", std::io::Error::from_raw_os_error(*.errno), check(self))]
pub struct SetupFault {
    /// The call, and the state it leads to.
    pub call: &'static str,
    /// The errno.
    pub errno: i32,
    /// This end's GID.
    pub local: Gid,
    /// The peer's; all zero before it is known.
    pub remote: Gid,
}

/// What to look at, if nobody answers.
fn check(fault: &SetupFault) -> String {
    match (fault.errno, fault.local.address(), fault.remote.address()) {
        (libc::ETIMEDOUT, Some(local), Some(remote)) => format!(
            ": no frame passes between these two ports; are they cabled to each other, and both up? (ping -I {local} {remote}, ip neigh show \
             {remote})"
        ),
        _ => String::new(),
    }
}

/// `enum ibv_wc_status` in words.
pub const fn status_text(status: u32) -> &'static str {
    match status {
        0 => "success",
        1 => "local length error",
        2 => "local queue pair operation error",
        3 => "local EE context operation error",
        4 => "local protection error",
        5 => "flushed, as the queue pair had failed before",
        6 => "memory window bind error",
        7 => "bad response",
        8 => "local access error",
        9 => "remote invalid request",
        10 => "remote access error",
        11 => "remote operation error",
        12 => "transport retries exceeded",
        13 => "receiver-not-ready retries exceeded",
        14 => "local RDD violation",
        15 => "remote invalid RD request",
        16 => "remote abort",
        17 => "invalid EE context number",
        18 => "invalid EE context state",
        19 => "fatal error of the device",
        20 => "response timeout",
        21 => "general error",
        22 => "tag matching error",
        23 => "tag matching rendezvous incomplete",
        _ => "unknown status",
    }
}

const fn hint(status: u32) -> &'static str {
    match status {
        12 => {
            ": the peer's port did not answer in time (cable, power, its process, or packets larger than something on the way lets pass)"
        }
        10 => ": the peer does not allow a write there",
        5 => ": the peer may have broken a rule of access",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_fault_tells_both_ends_and_the_cause() {
        let fault = CompletionFault {
            what: "send",
            status: 12,
            vendor: 129,
            qpn: 0x1a2,
            remote_qpn: 0xab_cdef,
            local: Gid::of(Ipv4Addr::new(10, 0, 0, 1)),
            remote: Gid::of(Ipv4Addr::new(10, 0, 0, 2)),
            outstanding: 3,
            timeout: 17,
            retries: 6,
        };
        let text = fault.to_string();
        for part in [
            "transport retries exceeded",
            "0x81",
            "0x0001a2 at ::ffff:10.0.0.1",
            "0xabcdef at ::ffff:10.0.0.2",
            "cable",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let setup = SetupFault {
            call: "ibv_modify_qp to RTR",
            errno: libc::ETIMEDOUT,
            local: fault.local,
            remote: fault.remote,
        };
        let text = setup.to_string();
        assert!(
            text.contains("(os error 110): no frame passes") && text.contains("ping -I 10.0.0.1 10.0.0.2"),
            "{text}"
        );
        // and other errors stand for themselves
        let setup = SetupFault { errno: libc::EINVAL, ..setup };
        assert!(setup.to_string().ends_with("(os error 22)"), "{setup}");
    }

    #[test]
    fn every_status_has_words_of_its_own() {
        let mut all: Vec<_> = (0..=23).map(status_text).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 24);
        assert_eq!(status_text(24), "unknown status");
    }
}
