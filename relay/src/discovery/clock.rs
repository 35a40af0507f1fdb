//! The machine's own time, made from the driver's: it never goes back, and it never leaps.
//!
//! Must not know what happens when. Pure; runs on the thread of the node's owner.
//!
//! The driver was asked to come back by a deadline. What it comes late by beyond a small slack did not pass for the node (the clock was
//! set, the machine was suspended, the process stopped): nothing could have been heard in that time, so nothing is concluded from it.

use super::types::Time;

/// How far the driver's clock leapt, in nanoseconds; negative if it went back.
pub(super) type Leap = i64;

/// See the module.
#[derive(Debug)]
pub(super) struct Clock {
    /// The driver's time of the last input.
    driver: Time,
    /// Ours.
    ours: Time,
}

impl Clock {
    pub(super) const fn new(driver: Time) -> Self {
        // Begins well above 0, so that "long ago" can be told.
        Self { driver, ours: 1 << 40 }
    }

    pub(super) const fn now(&self) -> Time {
        self.ours
    }

    /// The driver says what time it is. `due` is when the driver was to come back at the latest, in our time.
    pub(super) fn advance(&mut self, driver: Time, due: Time, slack: Time) -> (Time, Option<Leap>) {
        let before = std::mem::replace(&mut self.driver, driver);
        if driver < before {
            // A little comes of reading clocks on several processors.
            let back = before - driver;
            return (self.ours, (back > slack).then(|| -i64::try_from(back).unwrap_or(i64::MAX)));
        }
        let told = self.ours.saturating_add(driver - before);
        let most = due.max(self.ours).saturating_add(slack);
        self.ours = told.min(most);
        (self.ours, (told > most).then(|| i64::try_from(told - most).unwrap_or(i64::MAX)))
    }

    /// A moment of ours in the driver's time.
    pub(super) const fn to_driver(&self, ours: Time) -> Time {
        self.driver.saturating_add(ours.saturating_sub(self.ours))
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn time_that_goes_back_stands_still_and_then_goes_on() {
        // given a clock at 100 of the driver's time
        let mut clock = Clock::new(100);
        let start = clock.now();
        // when the driver's clock is set back by 60, then no time has passed, and it is said
        assert_eq!(clock.advance(40, start + 1000, 10), (start, Some(-60)));
        // and when it goes on from there, time goes on
        assert_eq!(clock.advance(45, start + 1000, 10), (start + 5, None));
        assert_eq!(clock.to_driver(start + 1000), 45 + 995);
        // and a step back within the slack is not worth a word
        assert_eq!(clock.advance(40, start + 1000, 10), (start + 5, None));
    }

    #[test]
    fn a_leap_counts_no_more_than_the_slack_beyond_what_was_due() {
        let mut clock = Clock::new(0);
        let start = clock.now();
        // given a driver that was to come back after 50, when it comes after 60, then that is late, but no leap
        assert_eq!(clock.advance(60, start + 50, 10), (start + 60, None));
        // when it comes an hour later, then the time due and the slack have passed
        assert_eq!(clock.advance(3_600_060, start + 110, 10), (start + 120, Some(3_599_940)));
    }
}
