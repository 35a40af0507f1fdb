//! How many slots a relay lends, from the speed of the links: enough that a link never waits for a credit.
//!
//! Pure arithmetic; knows no link and no setting.

/// What a chunk's slot is busy for besides the chunk's own way in and out, in microseconds: two hops' latency, the relay's look at the chunk,
/// and the credit's way back, with room for a relay that is at something else.
const ROUND_TRIP_US: u64 = 20;

/// Slots of `chunk` bytes for one sender on links of so many Mbit/s: one that fills, one that empties, one whose credit is on its way back,
/// and as many as the link fills in a round trip.
pub(super) fn entry_slots(mbps: u32, chunk: u64) -> u16 {
    let bytes = u64::from(mbps) * ROUND_TRIP_US / 8;
    // The cast is exact: at most 32.
    (3 + bytes.div_ceil(chunk.max(1))).min(32) as u16
}

/// Slots of each class of a trunk, which many senders share.
pub(super) fn trunk_slots(mbps: u32, chunk: u64) -> u16 {
    2 * entry_slots(mbps, chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faster_links_and_smaller_chunks_need_more_slots() {
        let kib = 1024;
        // 100 Gbit/s fill two chunks of 128 KiB in 20 µs, 200 four, 400 eight
        assert_eq!([100_000, 200_000, 400_000].map(|mbps| entry_slots(mbps, 128 * kib)), [5, 7, 11]);
        assert_eq!([1_000, 10_000].map(|mbps| entry_slots(mbps, 128 * kib)), [4, 4]);
        assert_eq!(entry_slots(100_000, 512 * kib), 4);
        // and there is a bound
        assert_eq!((entry_slots(800_000, 4 * kib), entry_slots(u32::MAX, 0)), (32, 32));
        assert_eq!(trunk_slots(100_000, 128 * kib), 10);
    }
}
