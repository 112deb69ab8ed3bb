//! Relations of lists that represent sets.

use crate::compare::equal;
use crate::error::Fault;
use crate::meter::Meter;
use crate::value::{List, Value};

/// Calls `sets.contains`, `sets.equivalent` or `sets.intersects`.
pub(super) fn relation<'a>(name: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Option<Value<'a>>, Fault> {
    let [Value::List(one), Value::List(other)] = arguments else { return Ok(None) };
    let result = match name {
        "sets.contains" => contains(one, other, meter)?,
        "sets.equivalent" => contains(one, other, meter)? && contains(other, one, meter)?,
        _ => {
            let mut intersects = false;
            for item in one.iter() {
                intersects = intersects || has(other, &item, meter)?;
            }
            intersects
        }
    };
    Ok(Some(Value::Bool(result)))
}

/// Returns whether `one` has every item of `other`.
fn contains<'a>(one: &List<'a>, other: &List<'a>, meter: &mut Meter) -> Result<bool, Fault> {
    for item in other.iter() {
        if !has(one, &item, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has<'a>(list: &List<'a>, wanted: &Value<'a>, meter: &mut Meter) -> Result<bool, Fault> {
    for item in list.iter() {
        if equal(&item, wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}
