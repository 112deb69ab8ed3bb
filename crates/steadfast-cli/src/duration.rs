//! Durations in arguments.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses a duration such as `200ms`, `30s` or `1h30m`. Returns `None` for another text and for a negative duration.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    Duration::try_from(text.parse::<SignedDuration>().ok()?).ok()
}
