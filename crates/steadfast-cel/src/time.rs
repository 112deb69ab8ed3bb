//! Timestamps and durations, and their change over time.
//!
//! A timestamp derived from `now` advances with the clock, and so does a duration such as `now - created`. Both store
//! their rate, so that a comparison can compute the time of its next change.

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// Timestamp value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CelTimestamp {
    /// Instant.
    pub instant: Timestamp,
    /// Rate of the value, in seconds per second of the clock: 0 for a constant, 1 for `now`.
    pub clock_rate: i32,
}

/// Duration value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CelDuration {
    /// Length.
    pub length: SignedDuration,
    /// Rate of the value, in seconds per second of the clock: 0 for a constant, 1 for `now - constant`.
    pub clock_rate: i32,
}

/// Longest duration: 10,000 years.
const MAX_DURATION_SECONDS: i64 = 315_576_000_000;

impl CelTimestamp {
    /// Creates a constant timestamp, if CEL's range of the years 1 to 9999 includes the instant.
    pub fn constant(instant: Timestamp) -> Option<Self> {
        Self::new(instant, 0)
    }

    fn new(instant: Timestamp, clock_rate: i32) -> Option<Self> {
        // 0001-01-01T00:00:00Z; jiff ends with the year 9999 itself.
        const FIRST_SECOND: i64 = -62_135_596_800;
        (instant.as_second() >= FIRST_SECOND).then_some(Self { instant, clock_rate })
    }

    /// Parses a timestamp in RFC 3339.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        // jiff also accepts other forms of ISO 8601, which CEL rejects.
        let has_rfc_3339_layout = bytes.len() >= 20
            && bytes.len() <= 40
            && bytes[10].eq_ignore_ascii_case(&b'T')
            && !text.contains('[')
            && bytes[4] == b'-'
            && bytes[13] == b':'
            && bytes[16] == b':';
        if !has_rfc_3339_layout {
            return None;
        }
        Self::constant(text.parse().ok()?)
    }

    pub(crate) fn plus(self, duration: CelDuration) -> Option<Self> {
        // Rates add up: `now + (now - t)` advances two seconds per second.
        Self::new(self.instant.checked_add(duration.length).ok()?, self.clock_rate.saturating_add(duration.clock_rate))
    }

    pub(crate) fn minus(self, duration: CelDuration) -> Option<Self> {
        Self::new(self.instant.checked_sub(duration.length).ok()?, self.clock_rate.saturating_sub(duration.clock_rate))
    }

    pub(crate) fn since(self, other: Self) -> Option<CelDuration> {
        CelDuration::new(self.instant.duration_since(other.instant), self.clock_rate.saturating_sub(other.clock_rate))
    }

    /// Returns the local date and time at a fixed offset, such as `UTC`, `Z`, `+02:00` or `-08:00`.
    pub(crate) fn in_zone(self, zone: &str) -> Option<jiff::Zoned> {
        let offset = match zone {
            "" | "UTC" | "Z" | "Etc/UTC" => Offset::UTC,
            _ => {
                // An offset without a sign is positive, as in cel-go.
                let (sign, digits) = match zone.split_at_checked(1)? {
                    ("-", digits) => (-1, digits),
                    ("+", digits) => (1, digits),
                    _ => (1, zone),
                };
                let (hours, minutes) = digits.split_once(':')?;
                let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
                if !is_number(hours) || !is_number(minutes) {
                    return None;
                }
                let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
                if hours > 23 || minutes > 59 {
                    return None;
                }
                Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()?
            }
        };
        Some(self.instant.to_zoned(TimeZone::fixed(offset)))
    }
}

impl CelDuration {
    /// Creates a constant duration, if CEL's range of 10,000 years includes the length.
    pub fn constant(length: SignedDuration) -> Option<Self> {
        Self::new(length, 0)
    }

    fn new(length: SignedDuration, clock_rate: i32) -> Option<Self> {
        (length.as_secs().abs() <= MAX_DURATION_SECONDS).then_some(Self { length, clock_rate })
    }

    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        Self::new(self.length.checked_add(other.length)?, self.clock_rate.saturating_add(other.clock_rate))
    }

    pub(crate) fn minus(self, other: Self) -> Option<Self> {
        Self::new(self.length.checked_sub(other.length)?, self.clock_rate.saturating_sub(other.clock_rate))
    }

    pub(crate) fn negated(self) -> Option<Self> {
        Self::new(self.length.checked_neg()?, self.clock_rate.saturating_neg())
    }

    /// Parses a duration such as `1h30m`, `-1.5s` or `250ms`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is_negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        // Go accepts a zero without a unit, and no other number without one.
        if rest == "0" {
            return Self::constant(SignedDuration::ZERO);
        }
        // 100 bytes bound the number of parts and thereby the sums below.
        if rest.is_empty() || rest.len() > 100 {
            return None;
        }
        let mut nanos: i128 = 0;
        while !rest.is_empty() {
            let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
            let (number, behind) = rest.split_at(end);
            let unit_end =
                behind.find(|character: char| character.is_ascii_digit() || character == '.').unwrap_or(behind.len());
            let (unit, behind) = behind.split_at(unit_end);
            let unit: i128 = match unit {
                "h" => 3_600_000_000_000,
                "m" => 60_000_000_000,
                "s" => 1_000_000_000,
                "ms" => 1_000_000,
                // Both the micro sign and the Greek letter mu are valid, as in Go's `time.ParseDuration`.
                "us" | "µs" | "μs" => 1_000,
                "ns" => 1,
                _ => return None,
            };
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            // 19 digits of the largest unit still fit 128 bits.
            if (whole.is_empty() && fraction.is_empty()) || whole.len() > 19 || fraction.contains('.') {
                return None;
            }
            let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
            // 18 digits resolve even an hour to less than a nanosecond, so further digits do not matter.
            let fraction = &fraction[..fraction.len().min(18)];
            let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
            let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
            nanos = nanos.checked_add(whole.checked_mul(unit)?)?.checked_add(part.checked_mul(unit)? / scale)?;
            rest = behind;
        }
        let nanos = if is_negative { -nanos } else { nanos };
        let seconds = i64::try_from(nanos / 1_000_000_000).ok()?;
        Self::constant(SignedDuration::new(seconds, (nanos % 1_000_000_000) as i32))
    }

    /// Returns the text in seconds, such as `90s` or `1.5s`.
    pub(crate) fn text(self) -> String {
        let nanos = self.length.as_nanos();
        let sign = if nanos < 0 { "-" } else { "" };
        let nanos = nanos.unsigned_abs();
        let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        if fraction == 0 {
            return format!("{sign}{seconds}s");
        }
        let fraction = format!("{fraction:09}");
        format!("{sign}{seconds}.{}s", fraction.trim_end_matches('0'))
    }
}

/// Returns the nanoseconds until `holds(order)` changes, where `order` compares a difference with zero and the
/// difference moves by `clock_rate` nanoseconds per nanosecond. Returns `None` if the result never changes.
pub(crate) fn nanos_until_flip(
    difference: i128,
    clock_rate: i32,
    holds: impl Fn(std::cmp::Ordering) -> bool,
) -> Option<i128> {
    let clock_rate = i128::from(clock_rate);
    if clock_rate == 0 {
        // Constant operands never flip.
        return None;
    }
    let current = holds(difference.cmp(&0));
    let result_after = |after: i128| holds((difference + clock_rate * after).cmp(&0));
    // The order changes at the first whole nanosecond at or after the crossing, and once more after an exact crossing.
    let crossing = if difference == 0 {
        1
    // The difference moves towards zero; in the other case it never crosses zero.
    } else if (difference < 0) == (clock_rate > 0) {
        let (distance, speed) = (difference.abs(), clock_rate.abs());
        // Round up to the first whole nanosecond at or after the crossing.
        (distance + speed - 1) / speed
    } else {
        return None;
    };
    [crossing, crossing + 1].into_iter().find(|after| result_after(*after) != current)
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    #[test]
    fn durations_of_all_units_round_trip() {
        for (text, printed) in [
            ("0", "0s"),
            ("1h30m", "5400s"),
            ("-1.5s", "-1.5s"),
            ("250ms", "0.25s"),
            ("1us2ns", "0.000001002s"),
            (".5m", "30s"),
            ("87660000h", "315576000000s"),
        ] {
            assert_eq!(CelDuration::parse(text).map(CelDuration::text).as_deref(), Some(printed), "{text}");
        }
        for text in ["", "1", "s", "1.2.3s", "1d", "1h m", "-", "99999999999999999999h", "87660001h", "é", "1é"] {
            assert_eq!(CelDuration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn timestamps_outside_rfc_3339_are_rejected() {
        for text in ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789+02:00", "0001-01-01T00:00:00Z"] {
            assert!(CelTimestamp::parse(text).is_some(), "{text}");
        }
        for text in
            ["", "2026-01-02", "2026-01-02T03:04Z", "20260102T030405Z", "2026-01-02T03:04:05", "0000-01-01T00:00:00Z"]
        {
            assert_eq!(CelTimestamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn flip_is_the_first_changed_instant() {
        let after =
            |difference, clock_rate, holds: fn(Ordering) -> bool| nanos_until_flip(difference, clock_rate, holds);
        assert_eq!(after(-10, 1, Ordering::is_lt), Some(10));
        assert_eq!(after(-10, 1, Ordering::is_le), Some(11));
        assert_eq!(after(-10, 1, Ordering::is_gt), Some(11));
        assert_eq!(after(-10, 3, Ordering::is_ge), Some(4));
        assert_eq!(after(0, 1, Ordering::is_eq), Some(1));
        assert_eq!(after(10, -1, Ordering::is_eq), Some(10));
        assert_eq!(after(10, 1, Ordering::is_lt), None);
        assert_eq!(after(-10, 0, Ordering::is_lt), None);
    }
}
