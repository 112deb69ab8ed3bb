//! Conversions between types.

use std::sync::Arc;

use jiff::Timestamp;

use super::{kubernetes, number};
use crate::error::Fault;
use crate::meter::Meter;
use crate::operators::whole;
use crate::time::{Moment, Span};
use crate::value::Value;

/// Converts by the function of this name. The outer `None`: unknown function. The inner `None`: not for these types.
pub(super) fn convert<'a>(
    name: &str,
    arguments: &[Value<'a>],
    meter: &mut Meter,
) -> Option<Result<Option<Value<'a>>, Fault>> {
    let conversion: fn(&Value<'a>, &mut Meter) -> Converted<'a> = match name {
        "dyn" => |value, _| Ok(Some(value.clone())),
        "type" => |value, _| Ok(Some(Value::Type(value.type_of()))),
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
    if let Value::String(text) = argument
        && let Err(fault) = meter.charge_bytes(text.len())
    {
        return Some(Err(fault));
    }
    Some(conversion(argument, meter))
}

type Converted<'a> = Result<Option<Value<'a>>, Fault>;

fn bool<'a>(value: &Value<'a>, _: &mut Meter) -> Converted<'a> {
    Ok(Some(match value {
        Value::Bool(_) => value.clone(),
        Value::String(text) => Value::Bool(match &**text {
            // The accepted spellings are those of Go's `strconv.ParseBool`.
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => return Err(Fault::argument("bool", "a string must be `true` or `false`")),
        }),
        _ => return Ok(None),
    }))
}

fn bytes<'a>(value: &Value<'a>, _: &mut Meter) -> Converted<'a> {
    Ok(Some(match value {
        Value::Bytes(_) => value.clone(),
        Value::String(text) => Value::Bytes(Arc::from(text.as_bytes())),
        _ => return Ok(None),
    }))
}

fn double<'a>(value: &Value<'a>, _: &mut Meter) -> Converted<'a> {
    Ok(Some(Value::Double(match value {
        Value::Double(number) => *number,
        Value::Int(number) => *number as f64,
        Value::Uint(number) => *number as f64,
        Value::String(text) => {
            // Rust also accepts `inf`, `infinity` and `nan`, as Go's `strconv.ParseFloat` does.
            text.parse().map_err(|_| Fault::argument("double", "a string must be a decimal number"))?
        }
        _ => return Ok(None),
    })))
}

fn int<'a>(value: &Value<'a>, meter: &mut Meter) -> Converted<'a> {
    Ok(Some(Value::Int(match value {
        Value::Int(number) => *number,
        Value::Uint(number) => i64::try_from(*number).map_err(|_| Fault::Overflow)?,
        // CEL rounds towards zero. NaN and infinity have no integer and overflow.
        Value::Double(number) => whole(number.trunc()).ok_or(Fault::Overflow)?,
        Value::String(text) => {
            text.parse().map_err(|_| Fault::argument("int", "a string must be a decimal integer of 64 bits"))?
        }
        Value::Timestamp(moment) => {
            // The seconds of `now` increase, so the result is valid until the next second only.
            meter.recheck_after(next_second(moment));
            moment.at.as_second()
        }
        _ => return Ok(None),
    })))
}

fn uint<'a>(value: &Value<'a>, _: &mut Meter) -> Converted<'a> {
    Ok(Some(Value::Uint(match value {
        Value::Uint(number) => *number,
        Value::Int(number) => u64::try_from(*number).map_err(|_| Fault::Overflow)?,
        Value::Double(number) => {
            // 2^64 is the first double beyond the range. The largest `u64` itself is not a double.
            const LIMIT: f64 = 18_446_744_073_709_551_616.0;
            let number = number.trunc();
            if !(0.0..LIMIT).contains(&number) {
                return Err(Fault::Overflow);
            }
            #[expect(clippy::cast_sign_loss, reason = "checked before")]
            let number = number as u64;
            number
        }
        Value::String(text) => text
            .parse()
            .map_err(|_| Fault::argument("uint", "a string must be a decimal integer of 64 bits without a sign"))?,
        _ => return Ok(None),
    })))
}

fn string<'a>(value: &Value<'a>, meter: &mut Meter) -> Converted<'a> {
    Ok(Some(match value {
        Value::String(_) => value.clone(),
        Value::Bool(value) => value.to_string().into(),
        Value::Int(number) => number.to_string().into(),
        Value::Uint(number) => number.to_string().into(),
        Value::Double(number) => number::double(*number).into(),
        Value::Bytes(bytes) => {
            meter.charge_bytes(bytes.len())?;
            let text =
                std::str::from_utf8(bytes).map_err(|_| Fault::argument("string", "bytes must be valid UTF-8"))?;
            text.to_owned().into()
        }
        Value::Timestamp(moment) => {
            meter.recheck_after(next_second(moment));
            moment.at.to_string().into()
        }
        Value::Duration(span) => span.text().into(),
        Value::Extension(of) => return Ok(kubernetes::text(of).map(Value::from)),
        _ => return Ok(None),
    }))
}

fn timestamp<'a>(value: &Value<'a>, _: &mut Meter) -> Converted<'a> {
    Ok(Some(Value::Timestamp(match value {
        Value::Timestamp(moment) => *moment,
        Value::String(text) => Moment::parse(text).ok_or_else(|| {
            Fault::argument("timestamp", "a string must be a time in RFC 3339: `2026-01-02T03:04:05Z`")
        })?,
        Value::Int(seconds) => {
            let at = Timestamp::from_second(*seconds).ok();
            at.and_then(Moment::constant).ok_or(Fault::Overflow)?
        }
        _ => return Ok(None),
    })))
}

fn duration<'a>(value: &Value<'a>, _: &mut Meter) -> Converted<'a> {
    Ok(Some(Value::Duration(match value {
        Value::Duration(span) => *span,
        Value::String(text) => Span::parse(text)
            .ok_or_else(|| Fault::argument("duration", "a string must be a duration such as `1h30m` or `90s`"))?,
        _ => return Ok(None),
    })))
}

/// Returns the nanoseconds to the next second of a timestamp that moves with time.
fn next_second(moment: &Moment) -> Option<i128> {
    let within = moment.at.as_nanosecond().rem_euclid(1_000_000_000);
    (moment.rate != 0).then_some(1_000_000_000 - within)
}
