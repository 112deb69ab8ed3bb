//! Formatting of values as in Go, for the messages of the Kubernetes API.

use std::fmt::Write;

use serde_json::{Number, Value};

/// Formats a violation with its value: `Invalid value: "x": why`.
pub(crate) fn field_error(summary: &str, value: Option<&Value>, detail: &str) -> String {
    let mut message = summary.to_owned();
    if let Some(value) = value {
        message.push_str(": ");
        message.push_str(&shown(value));
    }
    if !detail.is_empty() {
        message.push_str(": ");
        message.push_str(detail);
    }
    message
}

/// Formats a value for violations: strings quoted, numbers plain, other values as JSON.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Number(number) => number_text(number),
        Value::Bool(flag) => flag.to_string(),
        other => json(other),
    }
}

/// Formats a value without quotes, `%v`.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number_text(number),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            // Go prints maps in the order of their keys.
            fields.sort_by_key(|(name, _)| *name);
            let fields = fields.iter().map(|(name, value)| format!("{name}:{}", plain(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Formats a string in quotes, `%q`.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            character if (character as u32) < 0x20 || character as u32 == 0x7f => {
                let _ = write!(quoted, "\\x{:02x}", character as u32);
            }
            character if (0x80..0xa1).contains(&(character as u32)) || character == '\u{ad}' => {
                let _ = write!(quoted, "\\u{:04x}", character as u32);
            }
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Formats a number, `%v`.
pub(crate) fn number_text(number: &Number) -> String {
    if number.is_f64() { float(number.as_f64().unwrap_or_default()) } else { number.to_string() }
}

/// Formats a float as `%v` does: the shortest digits that parse to the same number. Numbers from 1e21 on and below 1e-4
/// have an exponent.
pub(crate) fn float(value: f64) -> String {
    let magnitude = value.abs();
    // Go's `%v` uses an exponent outside this range.
    if value == 0.0 || (1e-4..1e21).contains(&magnitude) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            // Go prints at least two digits of an exponent.
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// Formats compact JSON with sorted keys and escaped HTML characters.
pub(crate) fn json(value: &Value) -> String {
    let mut sorted = value.clone();
    // Go encodes maps in the order of their keys.
    sorted.sort_all_objects();
    normalize_numbers(&mut sorted);
    let text = sorted.to_string();
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // Go escapes these characters for HTML.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(escaped, "\\u{:04x}", character as u32);
            }
            character => escaped.push(character),
        }
    }
    escaped
}

/// Removes the fractions of whole numbers, as a real server does when it stores and reads them.
pub(crate) fn normalize_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            // Beyond this limit, a float need not be an exact integer.
            if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 {
                *number = Number::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(normalize_numbers),
        Value::Object(fields) => fields.values_mut().for_each(normalize_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{field_error, float, plain, shown};

    #[test]
    fn values_are_formatted_like_go() {
        assert_eq!(shown(&json!("a\"b\n\u{1}ü")), r#""a\"b\n\x01ü""#);
        assert_eq!(shown(&json!(1.50)), "1.5");
        assert_eq!(plain(&json!({"b": [1, "x", null], "a": true})), "map[a:true b:[1 x <nil>]]");
        assert_eq!(shown(&json!({"b": "<", "a": [1, null]})), "{\"a\":[1,null],\"b\":\"\\u003c\"}");
        assert_eq!(
            [float(1e21), float(2.5e-7), float(100.0), float(1e20)],
            ["1e+21", "2.5e-07", "100", "100000000000000000000"]
        );
    }

    #[test]
    fn violations_contain_value_and_reason() {
        assert_eq!(field_error("Invalid value", Some(&json!(-1)), "too small"), "Invalid value: -1: too small");
        assert_eq!(field_error("Required value", None, ""), "Required value");
    }
}
