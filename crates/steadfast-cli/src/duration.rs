//! Durations in arguments.

use std::ops::RangeBounds;
use std::time::Duration;

use jiff::SignedDuration;

/// Parses a duration such as `200ms`, `30s` or `1h30m`. Returns `None` for another text and for a negative duration.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    Duration::try_from(text.parse::<SignedDuration>().ok()?).ok()
}

/// Parses a duration within `range`. Another text is rejected with `expected`: `a duration from 1s to 10m, such as 10s`.
pub(crate) fn parse_within(text: &str, range: impl RangeBounds<Duration>, expected: &str) -> Result<Duration, String> {
    parse(text).filter(|time| range.contains(time)).ok_or_else(|| expected.to_owned())
}
