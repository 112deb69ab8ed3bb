//! The server's time: tokio's, so that it can be virtual.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Measures time since the server's start and writes it as API timestamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    wall: Timestamp,
}

impl Clock {
    /// Starts now; `wall` is what the calendar is said to show at this moment.
    pub(crate) fn starting_at(wall: Timestamp) -> Self {
        Self { started: Instant::now(), wall }
    }

    /// Time since the server's start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The calendar time, as it is in `creationTimestamp`: whole seconds, UTC.
    pub(crate) fn timestamp(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// The age of something created at `timestamp`, as tables print it: `42s`, `7m`, `3h`, `12d`; `<unknown>` without a
    /// timestamp, `<invalid>` if the timestamp is in the future or no timestamp at all.
    pub(crate) fn age_of(&self, timestamp: &str) -> String {
        if matches!(timestamp, "" | "null") {
            return "<unknown>".to_owned();
        }
        match timestamp.parse::<Timestamp>() {
            Ok(created) if created == UNSET => "<unknown>".to_owned(),
            Ok(created) => spoken(self.now().duration_since(created)),
            Err(_) => "<invalid>".to_owned(),
        }
    }

    /// Seconds since 1970.
    pub(crate) fn seconds(&self) -> i64 {
        self.now().as_second()
    }

    /// Timestamp of a second since 1970; the last one there is if it is beyond.
    pub(crate) fn timestamp_of(seconds: i64) -> String {
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        self.wall.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// The time from one moment to another, both as API timestamps, as tables print it.
pub(crate) fn between(start: &str, end: &str) -> String {
    let (Ok(start), Ok(end)) = (start.parse::<Timestamp>(), end.parse::<Timestamp>()) else {
        return "<unknown>".to_owned();
    };
    spoken(end.duration_since(start))
}

/// Year 1, which the API takes for no time at all.
const UNSET: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// A length of time in at most two units, the coarser the longer it is. A negative length is `<invalid>`, but for one
/// second, by which clocks differ.
fn spoken(duration: SignedDuration) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let seconds = duration.as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let two = |large: i64, letter: char, small: i64, second: char| match (seconds / large, seconds % large / small) {
        (whole, 0) => format!("{whole}{letter}"),
        (whole, rest) => format!("{whole}{letter}{rest}{second}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::spoken;

    #[test]
    fn the_longer_a_time_the_coarser_it_is_told() {
        let told = |hours: i64, seconds: i64| spoken(SignedDuration::from_secs(hours * 3600 + seconds));
        assert_eq!([told(0, -1), told(0, 119), told(0, 120), told(0, 599)], ["0s", "119s", "2m", "9m59s"]);
        assert_eq!(told(0, -2), "<invalid>", "a date in the future");
        assert_eq!([told(0, 600), told(2, 3599), told(3, 300), told(7, 3599)], ["10m", "179m", "3h5m", "7h59m"]);
        assert_eq!([told(8, 60), told(48, 0), told(53, 0), told(192, 3600)], ["8h", "2d", "2d5h", "8d"]);
        assert_eq!([told(24 * 730, 0), told(24 * 735, 0), told(24 * 2920, 0)], ["2y", "2y5d", "8y"]);
    }
}
