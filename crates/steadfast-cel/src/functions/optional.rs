//! Optional values.

use super::call_result::CallResult;
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::value::CelValue;

/// Calls `optional.of`, `optional.none` or `optional.ofNonZeroValue`.
pub(super) fn build<'a>(name: &str, arguments: &[CelValue<'a>]) -> Option<CelValue<'a>> {
    match (name, arguments) {
        ("optional.none", []) => Some(CelValue::Optional(None)),
        ("optional.ofNonZeroValue", [value]) if value.is_zero() => Some(CelValue::Optional(None)),
        ("optional.of" | "optional.ofNonZeroValue", [value]) => Some(CelValue::some(value.clone())),
        _ => None,
    }
}

/// Calls `hasValue` or `value`.
pub(super) fn read<'a>(name: &str, arguments: &[CelValue<'a>]) -> CallResult<'a> {
    match (name, arguments) {
        ("hasValue", [CelValue::Optional(value)]) => Ok(Some(CelValue::Bool(value.is_some()))),
        ("value", [CelValue::Optional(Some(value))]) => Ok(Some(CelValue::clone(value))),
        ("value", [CelValue::Optional(None)]) => Err(CelErrorKind::NoValue),
        _ => Ok(None),
    }
}

/// Calls `optional.unwrap` or `unwrapOpt`: returns the values of the present optionals in a list.
pub(super) fn unwrap<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::List(list)] = arguments else { return Ok(None) };
    meter.charge(1 + list.len() as u64)?;
    let mut present = Vec::new();
    for item in list.iter() {
        match item {
            CelValue::Optional(Some(value)) => present.push(CelValue::clone(&value)),
            CelValue::Optional(None) => {}
            _ => return Ok(None),
        }
    }
    Ok(Some(present.into()))
}
