//! Clock of the server, based on tokio's time, which can be virtual.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Clock that measures the time since the server's start and formats API timestamps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started_at: Instant,
    wall_start: Timestamp,
}

impl Clock {
    /// Starts the clock. `wall_start` is the wall-clock time at the start.
    pub(crate) fn starting_at(wall_start: Timestamp) -> Self {
        Self { started_at: Instant::now(), wall_start }
    }

    /// Returns the time since the server's start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Returns the wall-clock time in the form of `creationTimestamp`: whole seconds, UTC.
    pub(crate) fn timestamp(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Returns the age of an object created at `timestamp`, in the form of tables: `42s`, `7m`, `3h`, `12d`. Returns
    /// `<unknown>` without a timestamp, and `<invalid>` if the timestamp is in the future or cannot be parsed.
    pub(crate) fn age_of(&self, timestamp: &str) -> String {
        if matches!(timestamp, "" | "null") {
            return "<unknown>".to_owned();
        }
        match timestamp.parse::<Timestamp>() {
            Ok(created) if created == UNSET_TIME => "<unknown>".to_owned(),
            Ok(created) => human_duration(self.now().duration_since(created)),
            Err(_) => "<invalid>".to_owned(),
        }
    }

    /// Returns the seconds since 1970.
    pub(crate) fn seconds(&self) -> i64 {
        self.now().as_second()
    }

    /// Formats a second since 1970 as a timestamp; the latest possible timestamp if the second is out of range.
    pub(crate) fn timestamp_of(seconds: i64) -> String {
        Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        self.wall_start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// Returns the time between two API timestamps, in the form of tables.
pub(crate) fn duration_between(start: &str, end: &str) -> String {
    let (Ok(start), Ok(end)) = (start.parse::<Timestamp>(), end.parse::<Timestamp>()) else {
        return "<unknown>".to_owned();
    };
    human_duration(end.duration_since(start))
}

/// Year 1, which the API treats as unset.
const UNSET_TIME: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Formats a duration in at most two units; longer durations use coarser units. A negative duration is `<invalid>`,
/// except for one second of clock skew.
fn human_duration(duration: SignedDuration) -> String {
    const MINUTE_SECONDS: i64 = 60;
    const HOUR_SECONDS: i64 = 60 * MINUTE_SECONDS;
    const DAY_SECONDS: i64 = 24 * HOUR_SECONDS;
    const YEAR_SECONDS: i64 = 365 * DAY_SECONDS;
    let seconds = duration.as_secs();
    // A clock that differs by a second is tolerated, as in apimachinery.
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let two_units = |large: i64, large_letter: char, small: i64, small_letter: char| match (
        seconds / large,
        seconds % large / small,
    ) {
        (whole, 0) => format!("{whole}{large_letter}"),
        (whole, rest) => format!("{whole}{large_letter}{rest}{small_letter}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two_units(MINUTE_SECONDS, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE_SECONDS),
        10_800..28_800 => two_units(HOUR_SECONDS, 'h', MINUTE_SECONDS, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR_SECONDS),
        172_800..691_200 => two_units(DAY_SECONDS, 'd', HOUR_SECONDS, 'h'),
        _ if seconds < 2 * YEAR_SECONDS => format!("{}d", seconds / DAY_SECONDS),
        _ if seconds < 8 * YEAR_SECONDS => two_units(YEAR_SECONDS, 'y', DAY_SECONDS, 'd'),
        _ => format!("{}y", seconds / YEAR_SECONDS),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::human_duration;

    #[test]
    fn longer_durations_use_coarser_units() {
        let age = |hours: i64, seconds: i64| human_duration(SignedDuration::from_secs(hours * 3600 + seconds));
        assert_eq!([age(0, -1), age(0, 119), age(0, 120), age(0, 599)], ["0s", "119s", "2m", "9m59s"]);
        assert_eq!(age(0, -2), "<invalid>", "a date in the future");
        assert_eq!([age(0, 600), age(2, 3599), age(3, 300), age(7, 3599)], ["10m", "179m", "3h5m", "7h59m"]);
        assert_eq!([age(8, 60), age(48, 0), age(53, 0), age(192, 3600)], ["8h", "2d", "2d5h", "8d"]);
        assert_eq!([age(24 * 730, 0), age(24 * 735, 0), age(24 * 2920, 0)], ["2y", "2y5d", "8y"]);
    }
}
