//! `format`: values in a template.

use std::fmt::Write;

use super::call_result::CallResult;
use super::number;
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::value::CelValue;

/// Maximum number of digits behind the point.
const MAX_PRECISION: usize = 100;

/// Maximum nesting of lists and maps in a template.
const MAX_DEPTH: usize = 64;

/// Calls `template.format([values])` with `%s`, `%d`, `%f`, `%e`, `%x`, `%X`, `%o`, `%b` and `%%`.
pub(super) fn format<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::String(template), CelValue::List(values)] = arguments else { return Ok(None) };
    meter.charge_bytes(template.len())?;
    let invalid = |why| CelErrorKind::argument("format", why);
    let mut built = String::new();
    let mut values = values.iter();
    let mut rest = &**template;
    while let Some(offset) = rest.find('%') {
        built.push_str(&rest[..offset]);
        rest = &rest[offset + 1..];
        if let Some(behind) = rest.strip_prefix('%') {
            built.push('%');
            rest = behind;
            continue;
        }
        let mut precision = None;
        if let Some(behind) = rest.strip_prefix('.') {
            let end = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
            // The limit keeps one clause from building megabytes that are charged only afterwards.
            let digits = behind[..end].parse().ok().filter(|digits| *digits <= MAX_PRECISION);
            precision = Some(digits.ok_or_else(|| invalid("a precision must be a number up to 100"))?);
            rest = &behind[end..];
        }
        let letter = rest.chars().next().ok_or_else(|| invalid("the template ends within a `%` clause"))?;
        let value = values.next().ok_or_else(|| invalid("the template has more clauses than values"))?;
        let start = built.len();
        clause(letter, precision, &value, &mut built, meter)?;
        // The result is charged too: a clause can be longer than its value.
        meter.charge_bytes(built.len() - start)?;
        rest = &rest[letter.len_utf8()..];
    }
    built.push_str(rest);
    Ok(Some(built.into()))
}

fn clause(
    letter: char,
    precision: Option<usize>,
    value: &CelValue,
    built: &mut String,
    meter: &mut Meter,
) -> Result<(), CelErrorKind> {
    let unsuitable = || CelErrorKind::argument("format", "a value does not suit its clause");
    match letter {
        's' => text(value, built, meter, MAX_DEPTH)?,
        'd' => match value {
            CelValue::Int(_) | CelValue::Uint(_) => text(value, built, meter, MAX_DEPTH)?,
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
            if number.is_finite() && letter == 'e' {
                let scientific = format!("{number:.precision$e}");
                let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
                let exponent: i32 = exponent.parse().unwrap_or(0);
                // Go writes exponents with a sign and at least two digits.
                let sign = if exponent < 0 { '-' } else { '+' };
                let _ = write!(built, "{digits}e{sign}{:02}", exponent.abs());
            } else if number.is_finite() {
                let _ = write!(built, "{number:.precision$}");
            } else {
                built.push_str(&number::double(number));
            }
        }
        'x' | 'X' => {
            let digits = match value {
                CelValue::String(text) => hex(text.as_bytes(), meter)?,
                CelValue::Bytes(bytes) => hex(bytes, meter)?,
                // The sign precedes the digits of the magnitude; two's complement would be another text.
                CelValue::Int(number) => signed(*number, |magnitude| format!("{magnitude:x}")),
                CelValue::Uint(number) => format!("{number:x}"),
                _ => return Err(unsuitable()),
            };
            built.push_str(&if letter == 'X' { digits.to_ascii_uppercase() } else { digits });
        }
        'o' | 'b' => {
            let digits =
                |magnitude: u64| if letter == 'o' { format!("{magnitude:o}") } else { format!("{magnitude:b}") };
            match value {
                CelValue::Int(number) => built.push_str(&signed(*number, digits)),
                CelValue::Uint(number) => built.push_str(&digits(*number)),
                CelValue::Bool(value) if letter == 'b' => built.push(if *value { '1' } else { '0' }),
                _ => return Err(unsuitable()),
            }
        }
        _ => {
            return Err(CelErrorKind::argument(
                "format",
                "a clause is `%s`, `%d`, `%f`, `%e`, `%x`, `%X`, `%o`, `%b` or `%%`",
            ));
        }
    }
    Ok(())
}

fn signed(number: i64, digits: impl Fn(u64) -> String) -> String {
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

fn text(value: &CelValue, built: &mut String, meter: &mut Meter, depth: usize) -> Result<(), CelErrorKind> {
    let depth = depth.checked_sub(1).ok_or(CelErrorKind::TooDeep(MAX_DEPTH))?;
    meter.charge(1)?;
    match value {
        CelValue::Null => built.push_str("null"),
        CelValue::Bool(value) => built.push_str(&value.to_string()),
        CelValue::Int(number) => built.push_str(&number.to_string()),
        CelValue::Uint(number) => built.push_str(&number.to_string()),
        CelValue::Double(number) => built.push_str(&number::double(*number)),
        CelValue::String(text) => {
            meter.charge_bytes(text.len())?;
            built.push_str(text);
        }
        CelValue::Bytes(bytes) => {
            meter.charge_bytes(bytes.len())?;
            built.push_str(&String::from_utf8_lossy(bytes));
        }
        CelValue::Timestamp(timestamp) => built.push_str(&timestamp.instant.to_string()),
        CelValue::Duration(duration) => built.push_str(&duration.text()),
        CelValue::Type(named) => built.push_str(named.name()),
        CelValue::List(list) => {
            built.push('[');
            for (index, item) in list.iter().enumerate() {
                built.push_str(if index > 0 { ", " } else { "" });
                text(&item, built, meter, depth)?;
            }
            built.push(']');
        }
        CelValue::Map(map) => {
            built.push('{');
            for (index, (key, value)) in map.entries().enumerate() {
                built.push_str(if index > 0 { ", " } else { "" });
                text(&CelValue::from(key), built, meter, depth)?;
                built.push_str(": ");
                text(&value, built, meter, depth)?;
            }
            built.push('}');
        }
        CelValue::Optional(_) => return Err(CelErrorKind::argument("format", "a value must not be optional")),
        CelValue::Invalid(why) => return Err(CelErrorKind::Unavailable((*why).to_owned())),
        CelValue::Extension(_) => return Err(CelErrorKind::argument("format", "a value has no text")),
    }
    Ok(())
}
