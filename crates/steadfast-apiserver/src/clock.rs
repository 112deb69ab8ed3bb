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

    /// The calendar time, as it stands in `creationTimestamp`: whole seconds, UTC.
    pub(crate) fn timestamp(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// The age of something created at `timestamp`, as tables print it: `42s`, `7m`, `3h`, `12d`.
    pub(crate) fn age_of(&self, timestamp: &str) -> String {
        let Ok(created) = timestamp.parse::<Timestamp>() else {
            return "<unknown>".to_owned();
        };
        let seconds = self.now().duration_since(created).as_secs().max(0);
        match seconds {
            0..120 => format!("{seconds}s"),
            120..600 => match (seconds / 60, seconds % 60) {
                (minutes, 0) => format!("{minutes}m"),
                (minutes, rest) => format!("{minutes}m{rest}s"),
            },
            600..10_800 => format!("{}m", seconds / 60),
            10_800..172_800 => format!("{}h", seconds / 3600),
            _ => format!("{}d", seconds / 86_400),
        }
    }

    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.elapsed()).unwrap_or(SignedDuration::MAX);
        self.wall.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}
