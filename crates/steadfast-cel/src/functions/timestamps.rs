//! Parts of timestamps and durations.

use super::call_result::CallResult;
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::time::{CelDuration, CelTimestamp};
use crate::value::CelValue;

const MILLISECOND_NANOS: i128 = 1_000_000;
const SECOND_NANOS: i128 = 1_000_000_000;
const MINUTE_NANOS: i128 = 60 * SECOND_NANOS;
const HOUR_NANOS: i128 = 60 * MINUTE_NANOS;

/// Returns a part of a timestamp or duration.
pub(super) fn part<'a>(name: &str, arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let part = match arguments {
        [CelValue::Timestamp(timestamp)] => timestamp_part(name, *timestamp, "UTC", meter)?,
        [CelValue::Timestamp(timestamp), CelValue::String(zone)] => timestamp_part(name, *timestamp, zone, meter)?,
        [CelValue::Duration(duration)] => duration_part(name, *duration, meter),
        _ => None,
    };
    Ok(part.map(CelValue::Int))
}

fn timestamp_part(
    name: &str,
    timestamp: CelTimestamp,
    zone: &str,
    meter: &mut Meter,
) -> Result<Option<i64>, CelErrorKind> {
    let reason = "a time zone must be `UTC` or an offset such as `+02:00`";
    let local = timestamp.in_zone(zone).ok_or_else(|| CelErrorKind::invalid_argument(name, reason))?;
    let (part, unit) = match name {
        "getFullYear" => (i64::from(local.year()), HOUR_NANOS),
        // CEL counts months, days of the year and `getDayOfMonth` from zero, and `getDate` from one.
        "getMonth" => (i64::from(local.month()) - 1, HOUR_NANOS),
        "getDayOfYear" => (i64::from(local.day_of_year()) - 1, HOUR_NANOS),
        "getDayOfMonth" => (i64::from(local.day()) - 1, HOUR_NANOS),
        "getDate" => (i64::from(local.day()), HOUR_NANOS),
        "getDayOfWeek" => (i64::from(local.weekday().to_sunday_zero_offset()), HOUR_NANOS),
        "getHours" => (i64::from(local.hour()), MINUTE_NANOS),
        "getMinutes" => (i64::from(local.minute()), MINUTE_NANOS),
        "getSeconds" => (i64::from(local.second()), SECOND_NANOS),
        "getMilliseconds" => (i64::from(local.millisecond()), MILLISECOND_NANOS),
        _ => return Ok(None),
    };
    if timestamp.clock_rate != 0 {
        // Offsets are whole minutes, so a local hour or day can start in the middle of an hour of UTC. The re-check at
        // the next minute covers these parts.
        let unit = if unit == HOUR_NANOS { MINUTE_NANOS } else { unit };
        meter.recheck_after(Some(unit - timestamp.instant.as_nanosecond().rem_euclid(unit)));
    }
    Ok(Some(part))
}

fn duration_part(name: &str, duration: CelDuration, meter: &mut Meter) -> Option<i64> {
    let nanos = duration.length.as_nanos();
    let (part, unit) = match name {
        "getHours" => (nanos / HOUR_NANOS, HOUR_NANOS),
        "getMinutes" => (nanos / MINUTE_NANOS, MINUTE_NANOS),
        "getSeconds" => (nanos / SECOND_NANOS, SECOND_NANOS),
        // For durations, milliseconds are the part below a second, while hours, minutes and seconds are totals.
        "getMilliseconds" => (nanos % SECOND_NANOS / MILLISECOND_NANOS, MILLISECOND_NANOS),
        _ => return None,
    };
    let speed = i128::from(duration.clock_rate.unsigned_abs());
    if speed != 0 {
        // The rate decides the direction: a growing duration passes the next unit, and a shrinking duration leaves the
        // current one.
        let nanos_to_change =
            if duration.clock_rate > 0 { unit - nanos.rem_euclid(unit) } else { nanos.rem_euclid(unit) + 1 };
        meter.recheck_after(Some((nanos_to_change + speed - 1) / speed));
    }
    i64::try_from(part).ok()
}
