//! Bounds of numbers, with the messages of the real server's validation.

use serde_json::{Number, Value};

use super::findings::{Finding, Findings};
use super::{JsonType, Limit, Schema};
use crate::go;

/// Relative tolerance for multiples.
const MULTIPLE_TOLERANCE: f64 = 1e-9;
/// Largest float up to which all integers are exact.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_991.0;

/// Number in the representation of the real server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NumericValue {
    Whole(i64),
    Float(f64),
}

impl NumericValue {
    pub(super) fn from_number(number: &Number) -> Self {
        number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or_default()), Self::Whole)
    }

    pub(super) fn as_float(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Float(float) => float,
        }
    }

    /// Returns whether the number is an integer, even if written with a zero fraction.
    pub(super) fn is_whole(self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Float(float) => is_whole(float),
        }
    }
}

/// Returns whether a float is an integer within the tolerance.
fn is_whole(float: f64) -> bool {
    // Above this limit, an `f64` cannot represent every integer.
    if !float.is_finite() || float.abs() > LARGEST_WHOLE {
        return false;
    }
    let difference = (float - float.trunc()).abs();
    difference == 0.0 || difference / (float.abs() + float.trunc().abs()) < MULTIPLE_TOLERANCE
}

/// Checks a number.
pub(super) fn check(schema: &Schema, path: &str, number: &Number, findings: &mut Findings) {
    let numeric = NumericValue::from_number(number);
    let value = Value::Number(number.clone());
    if let Some(detail) = out_of_range(schema, numeric, "Checked", path) {
        findings.add(Finding::plain(detail));
    }
    let invalid = |detail: String| Finding::invalid(path, value.clone(), detail);
    // A bound that does not fit the type and format is reported. The number is then compared as a float.
    let bound = |findings: &mut Findings, limit: f64, name: &str| {
        let range_error = out_of_range(schema, NumericValue::Float(limit), name, path);
        let compares_floats = range_error.is_some();
        if let Some(detail) = range_error {
            findings.add(Finding::plain(detail));
        }
        if compares_floats { NumericValue::Float(numeric.as_float()) } else { numeric }
    };
    if let Some(factor) = schema.multiple_of {
        let numeric = bound(findings, factor, "MultipleOf");
        if !is_multiple(numeric, factor) {
            findings.add(invalid(format!("{path} in body should be a multiple of {}", bound_text(numeric, factor))));
        }
    }
    if let Some(Limit { value: limit, is_exclusive }) = schema.maximum {
        let numeric = bound(findings, limit, "Maximum boundary");
        if exceeds(numeric, limit, is_exclusive) {
            let relation = if is_exclusive { "less than" } else { "less than or equal to" };
            findings.add(invalid(format!("{path} in body should be {relation} {}", bound_text(numeric, limit))));
        }
    }
    if let Some(Limit { value: limit, is_exclusive }) = schema.minimum {
        let numeric = bound(findings, limit, "Minimum boundary");
        let is_below = match numeric {
            NumericValue::Whole(whole) => whole < limit as i64 || is_exclusive && whole == limit as i64,
            NumericValue::Float(float) => float < limit || is_exclusive && float <= limit,
        };
        if is_below {
            let relation = if is_exclusive { "greater than" } else { "greater than or equal to" };
            findings.add(invalid(format!("{path} in body should be {relation} {}", bound_text(numeric, limit))));
        }
    }
}

fn exceeds(numeric: NumericValue, limit: f64, is_exclusive: bool) -> bool {
    match numeric {
        NumericValue::Whole(whole) => whole > limit as i64 || is_exclusive && whole == limit as i64,
        NumericValue::Float(float) => float > limit || is_exclusive && float >= limit,
    }
}

/// Formats a bound: without its fraction for an integer.
fn bound_text(numeric: NumericValue, limit: f64) -> String {
    match numeric {
        NumericValue::Whole(_) => (limit as i64).to_string(),
        NumericValue::Float(_) => go::float(limit),
    }
}

fn is_multiple(numeric: NumericValue, factor: f64) -> bool {
    match numeric {
        // A factor of zero has no multiples.
        NumericValue::Whole(whole) => whole.checked_rem(factor as i64) == Some(0),
        NumericValue::Float(float) if factor < 1.0 => is_whole(1.0 / factor * float),
        NumericValue::Float(float) => is_whole(float / factor),
    }
}

/// Returns the reason if a number exceeds the range of its type and format. The type is known only if the schema names
/// a single type.
fn out_of_range(schema: &Schema, numeric: NumericValue, subject: &str, path: &str) -> Option<String> {
    let whole = match numeric {
        NumericValue::Whole(whole) => Some(whole),
        // Converts the float as if its digits were parsed as an integer.
        NumericValue::Float(float) if float.fract() == 0.0 && (-9.3e18..9.2e18).contains(&float) => Some(float as i64),
        NumericValue::Float(_) => None,
    };
    let (kind, is_in_range) = match (schema.kind, schema.format.as_str()) {
        (Some(JsonType::Integer), "int32") => ("integer", whole.is_some_and(|whole| i32::try_from(whole).is_ok())),
        (Some(JsonType::Integer), _) => ("integer", whole.is_some()),
        (Some(JsonType::Number), "float") => ("number", numeric.as_float().abs() <= f64::from(f32::MAX)),
        _ => return None,
    };
    if is_in_range {
        return None;
    }
    let format = match schema.format.as_str() {
        "" => "(default format)".to_owned(),
        format => format!("with format {format}"),
    };
    Some(format!("{subject} value must be of type {kind} {format} in {path}"))
}
