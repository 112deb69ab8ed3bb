//! Operators of filters. Only values of the same kind are comparable: an integer and a fraction are not.

use std::cmp::Ordering;

use serde_json::Value;

use super::value::JsonPathValue;

/// Value of a comparable kind.
#[derive(Clone, Copy, PartialEq)]
enum Scalar<'a> {
    Bool(bool),
    Whole(i128),
    Float(f64),
    Text(&'a str),
}

impl<'a> Scalar<'a> {
    fn from_value(found: JsonPathValue<'a>) -> Result<Self, String> {
        Ok(match found {
            JsonPathValue::Json(Value::Bool(flag)) => Self::Bool(*flag),
            JsonPathValue::Bool(flag) => Self::Bool(flag),
            JsonPathValue::Json(Value::String(text)) => Self::Text(text),
            JsonPathValue::Text(text) => Self::Text(text),
            JsonPathValue::Int(number) => Self::Whole(number.into()),
            JsonPathValue::Byte(byte) => Self::Whole(byte.into()),
            JsonPathValue::Float(number) => Self::Float(number),
            JsonPathValue::Json(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Self::Whole(whole.into()),
                (None, Some(float)) => Self::Float(float),
                (None, None) => return Err(invalid_type()),
            },
            JsonPathValue::Json(Value::Null | Value::Array(_) | Value::Object(_)) => return Err(invalid_type()),
        })
    }

    fn is_equal(self, other: Self) -> Result<bool, String> {
        // Integers and floats are different kinds in Go's templates and cannot be compared.
        if std::mem::discriminant(&self) == std::mem::discriminant(&other) {
            Ok(self == other)
        } else {
            Err("incompatible types for comparison".to_owned())
        }
    }

    fn is_less(self, other: Self) -> Result<bool, String> {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => Ok(one < other),
            (Self::Float(one), Self::Float(other)) => Ok(one.partial_cmp(&other) == Some(Ordering::Less)),
            (Self::Text(one), Self::Text(other)) => Ok(one < other),
            (Self::Bool(_), Self::Bool(_)) => Err(invalid_type()),
            _ => Err("incompatible types for comparison".to_owned()),
        }
    }
}

fn invalid_type() -> String {
    "invalid type for comparison".to_owned()
}

/// Evaluates `left operator right`.
pub(super) fn evaluate_operator(
    left: JsonPathValue<'_>,
    operator: &str,
    right: JsonPathValue<'_>,
) -> Result<bool, String> {
    let (left, right) = (Scalar::from_value(left)?, Scalar::from_value(right)?);
    let at_most = || Ok(left.is_less(right)? || left.is_equal(right)?);
    match operator {
        "==" => left.is_equal(right),
        "!=" => left.is_equal(right).map(|equal| !equal),
        "<" => left.is_less(right),
        "<=" => at_most(),
        // As in Go's templates, `>` is the negation of `<=`.
        ">" => at_most().map(|at_most: bool| !at_most),
        ">=" => left.is_less(right).map(|less| !less),
        other => Err(format!("unrecognized filter operator {other}")),
    }
}
