//! Timestamps: in local time for people, in UTC for programs.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Time zone of the times that are printed for people.
#[derive(Clone, Debug)]
pub(crate) struct Clock(TimeZone);

impl Clock {
    /// Returns UTC, or the local time zone (`$TZ`, else the system's, else UTC).
    pub(crate) fn choose(utc: bool) -> Self {
        Self(if utc { TimeZone::UTC } else { TimeZone::system() })
    }

    /// Formats the time of day with its offset from UTC: `10:45:51.988+02:00`, in UTC `08:45:51.988Z`.
    pub(crate) fn format_time_of_day(&self, time: Timestamp) -> String {
        // Local zones may have the offset `+00:00` too, such as London in winter, so `Z` marks UTC.
        let format = if self.0 == TimeZone::UTC { "%H:%M:%S%.3fZ" } else { "%H:%M:%S%.3f%:z" };
        time.to_zoned(self.0.clone()).strftime(format).to_string()
    }
}

/// Formats a time in RFC 3339, UTC, always with six decimals, so that the text sorts by time.
pub(crate) fn format_micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_time_has_offset() -> Result<(), jiff::Error> {
        let time: Timestamp = "2026-01-02T20:04:05.678901Z".parse()?;
        let time_in = |zone: &str| Ok::<_, jiff::Error>(Clock(TimeZone::posix(zone)?).format_time_of_day(time));
        assert_eq!(time_in("IST-5:30")?, "01:34:05.678+05:30");
        assert_eq!(time_in("EST5EDT,M3.2.0,M11.1.0")?, "15:04:05.678-05:00");
        assert_eq!(Clock::choose(true).format_time_of_day(time), "20:04:05.678Z");
        Ok(())
    }

    #[test]
    fn precise_time_keeps_zero_microseconds() {
        assert_eq!(format_micros(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
