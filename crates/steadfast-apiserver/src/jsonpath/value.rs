//! Results of a path.

use serde_json::Value;

use crate::go;

/// Result of a path: part of the object, or computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum JsonPathValue<'a> {
    Json(&'a Value),
    /// Literal integer in the path.
    Int(i64),
    /// Literal float in the path.
    Float(f64),
    /// Literal `true` or `false` in the path.
    Bool(bool),
    /// Literal text in the path.
    Text(&'a str),
    /// Byte of a string. A wildcard iterates over the bytes of a string.
    Byte(u8),
}

impl JsonPathValue<'_> {
    /// Formats the value: objects and lists as JSON, other values as Go prints them.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Json(Value::Null) => "<no value>".to_owned(),
            Self::Json(value @ (Value::Array(_) | Value::Object(_))) => go::json(value),
            Self::Json(value) => go::plain(value),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => go::float(*number),
            Self::Bool(flag) => flag.to_string(),
            Self::Text(text) => (*text).to_owned(),
            Self::Byte(byte) => byte.to_string(),
        }
    }
}
