//! Moments into distributions: of round trips, and of the parts of a stream.
//!
//! Pure. Runs after the loop that took the times, so nothing here is measured.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::point::Latency;

/// Longer round trips count as this, in nanoseconds.
const LONGEST: u64 = 600_000_000_000;
/// Decimal digits that are kept of each time.
const DIGITS: u8 = 3;

/// The distribution of half the time from each moment to the next; `None` of fewer than two moments.
pub(super) fn distribution(ends_of_rounds: &[Instant]) -> Option<Latency> {
    of_round_trips(ends_of_rounds.windows(2).map(|pair| pair[1].duration_since(pair[0])))
}

/// Messages a second, so that only a tenth of the parts of a stream were faster; `messages` are between two moments.
pub(super) fn fast_rate(moments: &[Instant], messages: usize) -> Option<f64> {
    let mut times: Vec<_> = moments.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 10).map(|seconds| messages as f64 / seconds.max(1e-9))
}

fn of_round_trips(times: impl Iterator<Item = Duration>) -> Option<Latency> {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, LONGEST, DIGITS).ok()?;
    for time in times {
        histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(LONGEST));
    }
    if histogram.is_empty() {
        return None;
    }
    let one_way_us = |round_trip_ns: u64| round_trip_ns as f64 / 2e3;
    let at = |quantile| one_way_us(histogram.value_at_quantile(quantile));
    Some(Latency {
        p50_us: at(0.5),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: one_way_us(histogram.max()),
        min_us: one_way_us(histogram.min()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_is_half_of_the_round_trip() {
        // given 1000 round trips: 980 of 4 µs, 19 of 10 µs, one of 1 ms
        let times = [(980, 4_000), (19, 10_000), (1, 1_000_000)];
        let times = times.into_iter().flat_map(|(count, ns)| std::iter::repeat_n(Duration::from_nanos(ns), count));
        let latency = of_round_trips(times).expect("some");
        // then each quantile is half of its time, within the digits that are kept
        let expected = [(latency.p50_us, 2.0), (latency.p99_us, 5.0), (latency.p999_us, 5.0), (latency.max_us, 500.0)];
        for (found, expected) in expected {
            assert!((found / expected - 1.0).abs() < 0.002, "{latency:?}");
        }
        assert!((latency.min_us / 2.0 - 1.0).abs() < 0.002, "{latency:?}");
    }

    #[test]
    fn a_fast_part_has_a_tenth_that_are_faster() {
        // given twenty parts of 1 to 20 ms, ten messages each
        let mut moments = vec![Instant::now()];
        for part in 1..=20 {
            moments.push(moments[moments.len() - 1] + Duration::from_millis(part));
        }
        // then two are faster than the one that counts
        let rate = fast_rate(&moments, 10).expect("parts");
        assert!((rate - 10.0 / 0.003).abs() < 1.0, "{rate}");
        assert_eq!(fast_rate(&moments[..1], 10), None);
    }

    #[test]
    fn no_rounds_have_no_distribution() {
        assert_eq!(distribution(&[Instant::now()]), None);
        assert_eq!(distribution(&[]), None);
    }
}
