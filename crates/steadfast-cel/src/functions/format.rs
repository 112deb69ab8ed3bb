//! `format`: values in a template.

use std::fmt::Write;

use super::call_result::CallResult;
use super::number;
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::value::CelValue;

/// Maximum number of digits after the decimal point.
const MAX_PRECISION: usize = 100;

/// Maximum nesting of lists and maps in a value.
const MAX_FORMAT_DEPTH: usize = 64;

/// Calls `template.format([values])` with `%s`, `%d`, `%f`, `%e`, `%x`, `%X`, `%o`, `%b` and `%%`.
pub(super) fn format<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::String(template), CelValue::List(values)] = arguments else { return Ok(None) };
    meter.charge_bytes(template.len())?;
    let invalid = |reason| CelErrorKind::invalid_argument("format", reason);
    let mut output = String::new();
    let mut values = values.iter();
    let mut rest = &**template;
    while let Some(offset) = rest.find('%') {
        output.push_str(&rest[..offset]);
        rest = &rest[offset + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            output.push('%');
            rest = behind;
            continue;
        }
        let mut precision = None;
        if let Some(behind) = rest.strip_prefix('.') {
            let end = behind.find(|character: char| !character.is_ascii_digit()).unwrap_or(behind.len());
            // The limit keeps one clause from building megabytes that are charged only afterwards.
            let digits = behind[..end].parse().ok().filter(|digits| *digits <= MAX_PRECISION);
            precision = Some(digits.ok_or_else(|| invalid("a precision must be a number up to 100"))?);
            rest = &behind[end..];
        }
        let character = rest.chars().next().ok_or_else(|| invalid("the template ends within a `%` clause"))?;
        let value = values.next().ok_or_else(|| invalid("the template has more clauses than values"))?;
        let start = output.len();
        write_clause(character, precision, &value, &mut output, meter)?;
        // The result is charged too: the text of a clause can be longer than its value.
        meter.charge_bytes(output.len() - start)?;
        rest = &rest[character.len_utf8()..];
    }
    output.push_str(rest);
    Ok(Some(output.into()))
}

fn write_clause(
    character: char,
    precision: Option<usize>,
    value: &CelValue,
    output: &mut String,
    meter: &mut Meter,
) -> Result<(), CelErrorKind> {
    let unsuitable = || CelErrorKind::invalid_argument("format", "a value does not suit its clause");
    match character {
        's' => write_text(value, output, meter, MAX_FORMAT_DEPTH)?,
        'd' => match value {
            CelValue::Int(_) | CelValue::Uint(_) => write_text(value, output, meter, MAX_FORMAT_DEPTH)?,
            _ => return Err(unsuitable()),
        },
        'f' | 'e' => {
            let number = match value {
                CelValue::Double(number) => *number,
                CelValue::Int(number) => *number as f64,
                CelValue::Uint(number) => *number as f64,
                _ => return Err(unsuitable()),
            };
            // Six digits are the default of cel-go.
            let precision = precision.unwrap_or(6);
            if number.is_finite() && character == 'e' {
                let scientific = format!("{number:.precision$e}");
                let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
                let exponent: i32 = exponent.parse().unwrap_or(0);
                // Go writes exponents with a sign and at least two digits.
                let sign = if exponent < 0 { '-' } else { '+' };
                let _ = write!(output, "{digits}e{sign}{:02}", exponent.abs());
            } else if number.is_finite() {
                let _ = write!(output, "{number:.precision$}");
            } else {
                output.push_str(&number::double(number));
            }
        }
        'x' | 'X' => {
            let digits = match value {
                CelValue::String(text) => hex(text.as_bytes(), meter)?,
                CelValue::Bytes(bytes) => hex(bytes, meter)?,
                // The sign precedes the digits of the magnitude; two's complement would be another text.
                CelValue::Int(number) => signed_text(*number, |magnitude| format!("{magnitude:x}")),
                CelValue::Uint(number) => format!("{number:x}"),
                _ => return Err(unsuitable()),
            };
            output.push_str(&if character == 'X' { digits.to_ascii_uppercase() } else { digits });
        }
        'o' | 'b' => {
            let digits =
                |magnitude: u64| if character == 'o' { format!("{magnitude:o}") } else { format!("{magnitude:b}") };
            match value {
                CelValue::Int(number) => output.push_str(&signed_text(*number, digits)),
                CelValue::Uint(number) => output.push_str(&digits(*number)),
                CelValue::Bool(value) if character == 'b' => output.push(if *value { '1' } else { '0' }),
                _ => return Err(unsuitable()),
            }
        }
        _ => {
            return Err(CelErrorKind::invalid_argument(
                "format",
                "a clause is `%s`, `%d`, `%f`, `%e`, `%x`, `%X`, `%o`, `%b` or `%%`",
            ));
        }
    }
    Ok(())
}

fn signed_text(number: i64, digits: impl Fn(u64) -> String) -> String {
    format!("{}{}", if number < 0 { "-" } else { "" }, digits(number.unsigned_abs()))
}

fn hex(bytes: &[u8], meter: &mut Meter) -> Result<String, CelErrorKind> {
    meter.charge_bytes(2 * bytes.len())?;
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    Ok(digits)
}

fn write_text(value: &CelValue, output: &mut String, meter: &mut Meter, depth: usize) -> Result<(), CelErrorKind> {
    let depth = depth.checked_sub(1).ok_or(CelErrorKind::TooDeep(MAX_FORMAT_DEPTH))?;
    meter.charge(1)?;
    match value {
        CelValue::Null => output.push_str("null"),
        CelValue::Bool(value) => output.push_str(&value.to_string()),
        CelValue::Int(number) => output.push_str(&number.to_string()),
        CelValue::Uint(number) => output.push_str(&number.to_string()),
        CelValue::Double(number) => output.push_str(&number::double(*number)),
        CelValue::String(text) => {
            meter.charge_bytes(text.len())?;
            output.push_str(text);
        }
        CelValue::Bytes(bytes) => {
            meter.charge_bytes(bytes.len())?;
            output.push_str(&String::from_utf8_lossy(bytes));
        }
        CelValue::Timestamp(timestamp) => output.push_str(&timestamp.instant.to_string()),
        CelValue::Duration(duration) => output.push_str(&duration.text()),
        CelValue::Type(cel_type) => output.push_str(cel_type.name()),
        CelValue::List(list) => {
            output.push('[');
            for (index, item) in list.iter().enumerate() {
                output.push_str(if index > 0 { ", " } else { "" });
                write_text(&item, output, meter, depth)?;
            }
            output.push(']');
        }
        CelValue::Map(map) => {
            output.push('{');
            for (index, (key, value)) in map.entries().enumerate() {
                output.push_str(if index > 0 { ", " } else { "" });
                write_text(&CelValue::from(key), output, meter, depth)?;
                output.push_str(": ");
                write_text(&value, output, meter, depth)?;
            }
            output.push('}');
        }
        CelValue::Optional(_) => return Err(CelErrorKind::invalid_argument("format", "a value must not be optional")),
        CelValue::Invalid(reason) => return Err(CelErrorKind::Unavailable((*reason).to_owned())),
        CelValue::Extension(_) => return Err(CelErrorKind::invalid_argument("format", "a value has no text")),
    }
    Ok(())
}
