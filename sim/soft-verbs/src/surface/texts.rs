//! Names of codes, for people, and conversions of rates.

use std::ffi::{CStr, c_char, c_int};

fn pick(names: &[&'static CStr], code: c_int, unknown: &'static CStr) -> *const c_char {
    usize::try_from(code).ok().and_then(|code| names.get(code)).unwrap_or(&unknown).as_ptr()
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    pick(&NAMES, status, c"unknown")
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    pick(&NAMES, event, c"unknown")
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_node_type_str(kind: c_int) -> *const c_char {
    const NAMES: [&CStr; 8] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    pick(&NAMES, kind, c"unknown")
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const NAMES: [&CStr; 6] = [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active deferred"];
    pick(&NAMES, state, c"invalid state")
}

/// Codes of `enum ibv_rate` with their rates: multiples of 2.5 Gb/s (0 if none is whole) and Mb/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 0, 14_062),
    (12, 0, 56_250),
    (13, 0, 112_500),
    (14, 0, 168_750),
    (15, 10, 25_781),
    (16, 40, 103_125),
    (17, 80, 206_250),
    (18, 120, 309_375),
    (19, 0, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|entry| entry.0 == rate && entry.1 != 0).map_or(-1, |entry| entry.1)
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    RATES.iter().find(|entry| entry.1 == multiple && multiple != 0).map_or(0, |entry| entry.0)
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|entry| entry.0 == rate).map_or(-1, |entry| entry.2)
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|entry| entry.2 == mbps).map_or(0, |entry| entry.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pointer: *const c_char) -> String {
        // SAFETY: all of this module's strings are literals.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    }

    #[test]
    fn names_match_their_codes_and_unknown_ones_are_said_so() {
        // given codes at both ends of the tables and beyond, then names are those of the interface
        assert_eq!(text(ibv_wc_status_str(12)), "transport retry counter exceeded");
        assert_eq!(text(ibv_wc_status_str(24)), "unknown");
        assert_eq!(text(ibv_wc_status_str(-1)), "unknown");
        assert_eq!(text(ibv_event_type_str(10)), "port error");
        assert_eq!(text(ibv_port_state_str(4)), "active");
        assert_eq!(text(ibv_node_type_str(1)), "InfiniBand channel adapter");
        assert_eq!((ibv_rate_to_mbps(16), mbps_to_ibv_rate(103_125), ibv_rate_to_mbps(99)), (103_125, 16, -1));
        assert_eq!((ibv_rate_to_mult(9), mult_to_ibv_rate(32), mult_to_ibv_rate(0)), (32, 9, 0));
    }
}
