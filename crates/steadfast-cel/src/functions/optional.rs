//! Optional values.

use crate::error::Fault;
use crate::meter::Meter;
use crate::value::Value;

/// Calls `optional.of`, `optional.none` or `optional.ofNonZeroValue`.
pub(super) fn build<'a>(name: &str, arguments: &[Value<'a>]) -> Option<Value<'a>> {
    match (name, arguments) {
        ("optional.none", []) => Some(Value::Optional(None)),
        ("optional.ofNonZeroValue", [value]) if value.is_zero() => Some(Value::Optional(None)),
        ("optional.of" | "optional.ofNonZeroValue", [value]) => Some(Value::some(value.clone())),
        _ => None,
    }
}

/// Calls `hasValue` or `value`.
pub(super) fn read<'a>(name: &str, arguments: &[Value<'a>]) -> Result<Option<Value<'a>>, Fault> {
    match (name, arguments) {
        ("hasValue", [Value::Optional(value)]) => Ok(Some(Value::Bool(value.is_some()))),
        ("value", [Value::Optional(Some(value))]) => Ok(Some(Value::clone(value))),
        ("value", [Value::Optional(None)]) => Err(Fault::NoValue),
        _ => Ok(None),
    }
}

/// Calls `optional.unwrap` or `unwrapOpt`: returns the values of the present optionals in a list.
pub(super) fn unwrap<'a>(arguments: &[Value<'a>], meter: &mut Meter) -> Result<Option<Value<'a>>, Fault> {
    let [Value::List(list)] = arguments else { return Ok(None) };
    meter.charge(1 + list.len() as u64)?;
    let mut present = Vec::new();
    for item in list.iter() {
        match item {
            Value::Optional(Some(value)) => present.push(Value::clone(&value)),
            Value::Optional(None) => {}
            _ => return Ok(None),
        }
    }
    Ok(Some(present.into()))
}
