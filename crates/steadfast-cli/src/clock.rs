//! Times: for people by the clock on their wall, for programs in UTC.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The clock by which times are printed for people.
#[derive(Clone, Debug)]
pub(crate) struct Clock(TimeZone);

impl Clock {
    /// UTC, or the time zone of this machine (`$TZ`, else the system's; UTC where neither is known).
    pub(crate) fn choose(utc: bool) -> Self {
        Self(if utc { TimeZone::UTC } else { TimeZone::system() })
    }

    /// The time of day with its offset from UTC, for people: `10:45:51.988+02:00`, in UTC `08:45:51.988Z`.
    pub(crate) fn of_day(&self, at: Timestamp) -> String {
        let form = if self.0 == TimeZone::UTC { "%H:%M:%S%.3fZ" } else { "%H:%M:%S%.3f%:z" };
        at.to_zoned(self.0.clone()).strftime(form).to_string()
    }
}

/// RFC 3339, UTC, with microseconds, always: as text it sorts by time.
pub(crate) fn precise(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_the_time_of_their_zone_with_its_offset() -> Result<(), jiff::Error> {
        let at: Timestamp = "2026-01-02T20:04:05.678901Z".parse()?;
        let told = |zone: &str| Ok::<_, jiff::Error>(Clock(TimeZone::posix(zone)?).of_day(at));
        assert_eq!(told("IST-5:30")?, "01:34:05.678+05:30");
        assert_eq!(told("EST5EDT,M3.2.0,M11.1.0")?, "15:04:05.678-05:00");
        assert_eq!(Clock::choose(true).of_day(at), "20:04:05.678Z");
        Ok(())
    }

    #[test]
    fn programs_get_microseconds_even_where_they_are_zero() {
        assert_eq!(precise(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
