//! Wall time of instants, without a clock read a record.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// An instant whose wall time is known; that of others follows from it. Read anew at every sweep, so
/// that it follows a clock that is set.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    instant: Instant,
    since_epoch_us: u64,
}

impl WallClock {
    /// Reads both clocks.
    pub fn read() -> WallClock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallClock { instant: Instant::now(), since_epoch_us: micros(since_epoch) }
    }

    /// Microseconds from 1970-01-01T00:00:00Z to `instant`.
    #[inline]
    pub fn of(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.instant) {
            Some(after) => self.since_epoch_us.saturating_add(micros(after)),
            None => self.since_epoch_us.saturating_sub(micros(self.instant - instant)),
        }
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn instants_before_and_after_have_their_wall_time() {
        let instant = Instant::now() + Duration::from_secs(60);
        let clock = WallClock { instant, since_epoch_us: 1_000_000 };
        assert_eq!(clock.of(instant), 1_000_000);
        assert_eq!(clock.of(instant + Duration::from_micros(7)), 1_000_007);
        assert_eq!(clock.of(instant - Duration::from_micros(7)), 999_993);
        assert_eq!(clock.of(instant - Duration::from_secs(2)), 0, "a clock that is wrong");
        let read = WallClock::read();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        assert!(micros(now).abs_diff(read.of(Instant::now())) < 1_000_000);
    }
}
