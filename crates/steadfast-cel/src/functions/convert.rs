//! Conversions between types.

use std::sync::Arc;

use jiff::Timestamp;

use super::call_result::CallResult;
use super::{kubernetes, number};
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::operators::exact_integer;
use crate::time::{CelDuration, CelTimestamp};
use crate::value::CelValue;

/// Converts a value by the function `name`. Returns `None` for an unknown function, and `Ok(None)` if the function has
/// no definition for the types of the arguments.
pub(super) fn convert<'a>(name: &str, arguments: &[CelValue<'a>], meter: &mut Meter) -> Option<CallResult<'a>> {
    let conversion: fn(&CelValue<'a>, &mut Meter) -> CallResult<'a> = match name {
        "dyn" => |value, _| Ok(Some(value.clone())),
        "type" => |value, _| Ok(Some(CelValue::Type(value.type_of()))),
        "bool" => |value, meter| bool(value, meter),
        "bytes" => |value, meter| bytes(value, meter),
        "double" => |value, meter| double(value, meter),
        "duration" => |value, meter| duration(value, meter),
        "int" => |value, meter| int(value, meter),
        "string" => |value, meter| string(value, meter),
        "timestamp" => |value, meter| timestamp(value, meter),
        "uint" => |value, meter| uint(value, meter),
        _ => return None,
    };
    let [argument] = arguments else { return Some(Ok(None)) };
    // All conversions of strings are charged, since each reads the whole text.
    if let CelValue::String(text) = argument
        && let Err(kind) = meter.charge_bytes(text.len())
    {
        return Some(Err(kind));
    }
    Some(conversion(argument, meter))
}

fn bool<'a>(value: &CelValue<'a>, _: &mut Meter) -> CallResult<'a> {
    Ok(Some(match value {
        CelValue::Bool(_) => value.clone(),
        CelValue::String(text) => CelValue::Bool(match &**text {
            // The accepted spellings are those of Go's `strconv.ParseBool`.
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return Err(CelErrorKind::invalid_argument("bool", "a string must be `true` or `false`")),
        }),
        _ => return Ok(None),
    }))
}

fn bytes<'a>(value: &CelValue<'a>, _: &mut Meter) -> CallResult<'a> {
    Ok(Some(match value {
        CelValue::Bytes(_) => value.clone(),
        CelValue::String(text) => CelValue::Bytes(Arc::from(text.as_bytes())),
        _ => return Ok(None),
    }))
}

fn double<'a>(value: &CelValue<'a>, _: &mut Meter) -> CallResult<'a> {
    Ok(Some(CelValue::Double(match value {
        CelValue::Double(number) => *number,
        CelValue::Int(number) => *number as f64,
        CelValue::Uint(number) => *number as f64,
        CelValue::String(text) => {
            // Rust also accepts `inf`, `infinity` and `nan`, as Go's `strconv.ParseFloat` does.
            text.parse().map_err(|_| CelErrorKind::invalid_argument("double", "a string must be a decimal number"))?
        }
        _ => return Ok(None),
    })))
}

fn int<'a>(value: &CelValue<'a>, meter: &mut Meter) -> CallResult<'a> {
    Ok(Some(CelValue::Int(match value {
        CelValue::Int(number) => *number,
        CelValue::Uint(number) => i64::try_from(*number).map_err(|_| CelErrorKind::Overflow)?,
        // CEL rounds towards zero. NaN and infinity have no integer value, so their conversion is an overflow.
        CelValue::Double(number) => exact_integer(number.trunc()).ok_or(CelErrorKind::Overflow)?,
        CelValue::String(text) => text
            .parse()
            .map_err(|_| CelErrorKind::invalid_argument("int", "a string must be a decimal integer of 64 bits"))?,
        CelValue::Timestamp(timestamp) => {
            // The variable `now` advances with the clock, so a number of seconds derived from it changes at the next
            // second.
            meter.recheck_after(next_second(timestamp));
            timestamp.instant.as_second()
        }
        _ => return Ok(None),
    })))
}

fn uint<'a>(value: &CelValue<'a>, _: &mut Meter) -> CallResult<'a> {
    Ok(Some(CelValue::Uint(match value {
        CelValue::Uint(number) => *number,
        CelValue::Int(number) => u64::try_from(*number).map_err(|_| CelErrorKind::Overflow)?,
        CelValue::Double(number) => {
            // 2^64 is the first double beyond the range. The largest `u64` itself is not a double.
            const TWO_POW_64: f64 = 18_446_744_073_709_551_616.0;
            let number = number.trunc();
            if !(0.0..TWO_POW_64).contains(&number) {
                return Err(CelErrorKind::Overflow);
            }
            #[expect(clippy::cast_sign_loss, reason = "the range check excludes negative numbers")]
            let number = number as u64;
            number
        }
        CelValue::String(text) => text.parse().map_err(|_| {
            CelErrorKind::invalid_argument("uint", "a string must be a decimal integer of 64 bits without a sign")
        })?,
        _ => return Ok(None),
    })))
}

fn string<'a>(value: &CelValue<'a>, meter: &mut Meter) -> CallResult<'a> {
    Ok(Some(match value {
        CelValue::String(_) => value.clone(),
        CelValue::Bool(value) => value.to_string().into(),
        CelValue::Int(number) => number.to_string().into(),
        CelValue::Uint(number) => number.to_string().into(),
        CelValue::Double(number) => number::double(*number).into(),
        CelValue::Bytes(bytes) => {
            meter.charge_bytes(bytes.len())?;
            let text = std::str::from_utf8(bytes)
                .map_err(|_| CelErrorKind::invalid_argument("string", "bytes must be valid UTF-8"))?;
            text.to_owned().into()
        }
        CelValue::Timestamp(timestamp) => {
            meter.recheck_after(next_second(timestamp));
            timestamp.instant.to_string().into()
        }
        CelValue::Duration(duration) => duration.text().into(),
        CelValue::Extension(extension) => return Ok(kubernetes::text(extension).map(CelValue::from)),
        _ => return Ok(None),
    }))
}

fn timestamp<'a>(value: &CelValue<'a>, _: &mut Meter) -> CallResult<'a> {
    Ok(Some(CelValue::Timestamp(match value {
        CelValue::Timestamp(timestamp) => *timestamp,
        CelValue::String(text) => CelTimestamp::parse(text).ok_or_else(|| {
            CelErrorKind::invalid_argument("timestamp", "a string must be a time in RFC 3339: `2026-01-02T03:04:05Z`")
        })?,
        CelValue::Int(seconds) => {
            let instant = Timestamp::from_second(*seconds).ok();
            instant.and_then(CelTimestamp::constant).ok_or(CelErrorKind::Overflow)?
        }
        _ => return Ok(None),
    })))
}

fn duration<'a>(value: &CelValue<'a>, _: &mut Meter) -> CallResult<'a> {
    Ok(Some(CelValue::Duration(match value {
        CelValue::Duration(duration) => *duration,
        CelValue::String(text) => CelDuration::parse(text).ok_or_else(|| {
            CelErrorKind::invalid_argument("duration", "a string must be a duration such as `1h30m` or `90s`")
        })?,
        _ => return Ok(None),
    })))
}

/// Returns the nanoseconds until the next second if `timestamp` advances with the clock, and `None` if it is constant.
fn next_second(timestamp: &CelTimestamp) -> Option<i128> {
    let elapsed = timestamp.instant.as_nanosecond().rem_euclid(1_000_000_000);
    (timestamp.clock_rate != 0).then_some(1_000_000_000 - elapsed)
}
