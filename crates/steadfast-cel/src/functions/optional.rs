//! Optional values.

use crate::error::Fault;
use crate::value::Value;

/// `optional.of`, `optional.none` and `optional.ofNonZeroValue`.
pub(super) fn build<'a>(name: &str, arguments: &[Value<'a>]) -> Option<Value<'a>> {
    match (name, arguments) {
        ("optional.none", []) => Some(Value::Optional(None)),
        ("optional.ofNonZeroValue", [value]) if value.is_zero() => Some(Value::Optional(None)),
        ("optional.of" | "optional.ofNonZeroValue", [value]) => Some(Value::some(value.clone())),
        _ => None,
    }
}

/// `hasValue` and `value`.
pub(super) fn read<'a>(name: &str, arguments: &[Value<'a>]) -> Result<Option<Value<'a>>, Fault> {
    match (name, arguments) {
        ("hasValue", [Value::Optional(value)]) => Ok(Some(Value::Bool(value.is_some()))),
        ("value", [Value::Optional(Some(value))]) => Ok(Some(Value::clone(value))),
        ("value", [Value::Optional(None)]) => Err(Fault::NoValue),
        _ => Ok(None),
    }
}
