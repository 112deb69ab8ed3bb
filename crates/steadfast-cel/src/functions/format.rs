//! `format`: values in a template.

use std::fmt::Write;

use super::number;
use crate::error::Fault;
use crate::meter::Meter;
use crate::value::Value;

/// Maximum number of digits behind the point.
const MAX_PRECISION: usize = 100;

/// Maximum nesting of lists and maps in a template.
const MAX_DEPTH: usize = 64;

/// Calls `template.format([values])` with `%s`, `%d`, `%f`, `%e`, `%x`, `%X`, `%o`, `%b` and `%%`.
pub(super) fn format<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Result<Option<Value<'a>>, Fault> {
    let [Value::String(template), Value::List(values)] = arguments else { return Ok(None) };
    meter.charge_bytes(template.len())?;
    let invalid = |why| Fault::argument("format", why);
    let mut built = String::new();
    let mut values = values.iter();
    let mut rest = &**template;
    while let Some(at) = rest.find('%') {
        built.push_str(&rest[..at]);
        rest = &rest[at + 1..];
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
    value: &Value,
    built: &mut String,
    meter: &mut Meter,
) -> Result<(), Fault> {
    let unsuitable = || Fault::argument("format", "a value does not suit its clause");
    match letter {
        's' => text(value, built, meter, MAX_DEPTH)?,
        'd' => match value {
            Value::Int(_) | Value::Uint(_) => text(value, built, meter, MAX_DEPTH)?,
            _ => return Err(unsuitable()),
        },
        'f' | 'e' => {
            let number = match value {
                Value::Double(number) => *number,
                Value::Int(number) => *number as f64,
                Value::Uint(number) => *number as f64,
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
                Value::String(text) => hex(text.as_bytes(), meter)?,
                Value::Bytes(bytes) => hex(bytes, meter)?,
                // The sign precedes the digits of the magnitude; two's complement would be another text.
                Value::Int(number) => signed(*number, |magnitude| format!("{magnitude:x}")),
                Value::Uint(number) => format!("{number:x}"),
                _ => return Err(unsuitable()),
            };
            built.push_str(&if letter == 'X' { digits.to_ascii_uppercase() } else { digits });
        }
        'o' | 'b' => {
            let digits =
                |magnitude: u64| if letter == 'o' { format!("{magnitude:o}") } else { format!("{magnitude:b}") };
            match value {
                Value::Int(number) => built.push_str(&signed(*number, digits)),
                Value::Uint(number) => built.push_str(&digits(*number)),
                Value::Bool(value) if letter == 'b' => built.push(if *value { '1' } else { '0' }),
                _ => return Err(unsuitable()),
            }
        }
        _ => {
            return Err(Fault::argument(
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

fn hex(bytes: &[u8], meter: &mut Meter) -> Result<String, Fault> {
    meter.charge_bytes(2 * bytes.len())?;
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    Ok(digits)
}

fn text(value: &Value, built: &mut String, meter: &mut Meter, depth: usize) -> Result<(), Fault> {
    let depth = depth.checked_sub(1).ok_or(Fault::TooDeep(MAX_DEPTH))?;
    meter.charge(1)?;
    match value {
        Value::Null => built.push_str("null"),
        Value::Bool(value) => built.push_str(&value.to_string()),
        Value::Int(number) => built.push_str(&number.to_string()),
        Value::Uint(number) => built.push_str(&number.to_string()),
        Value::Double(number) => built.push_str(&number::double(*number)),
        Value::String(text) => {
            meter.charge_bytes(text.len())?;
            built.push_str(text);
        }
        Value::Bytes(bytes) => {
            meter.charge_bytes(bytes.len())?;
            built.push_str(&String::from_utf8_lossy(bytes));
        }
        Value::Timestamp(moment) => built.push_str(&moment.at.to_string()),
        Value::Duration(span) => built.push_str(&span.text()),
        Value::Type(named) => built.push_str(named.name()),
        Value::List(list) => {
            built.push('[');
            for (index, item) in list.iter().enumerate() {
                built.push_str(if index > 0 { ", " } else { "" });
                text(&item, built, meter, depth)?;
            }
            built.push(']');
        }
        Value::Map(map) => {
            built.push('{');
            for (index, (key, value)) in map.entries().enumerate() {
                built.push_str(if index > 0 { ", " } else { "" });
                text(&Value::from(key), built, meter, depth)?;
                built.push_str(": ");
                text(&value, built, meter, depth)?;
            }
            built.push('}');
        }
        Value::Optional(_) => return Err(Fault::argument("format", "a value must not be optional")),
        Value::Invalid(why) => return Err(Fault::Unavailable((*why).to_owned())),
        Value::Extension(_) => return Err(Fault::argument("format", "a value has no text")),
    }
    Ok(())
}
