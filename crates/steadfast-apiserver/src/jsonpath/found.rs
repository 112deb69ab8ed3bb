//! Values that a path finds.

use serde_json::Value;

use crate::schema::go;

/// Value that a path finds: part of the object, or computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Found<'a> {
    Json(&'a Value),
    /// Number in the path itself.
    Int(i64),
    /// Number in the path itself.
    Float(f64),
    /// `true` or `false` in the path itself.
    Bool(bool),
    /// Text in the path itself.
    Text(&'a str),
    /// Byte of a string: a wildcard iterates over the bytes of a string.
    Byte(u8),
}

impl Found<'_> {
    /// Text of the value: objects and lists as JSON, all else as Go prints it.
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
