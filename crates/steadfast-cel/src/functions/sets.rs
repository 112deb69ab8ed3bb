//! Relations of lists that represent sets.

use super::call_result::CallResult;
use crate::compare::equal;
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::value::{CelList, CelValue};

/// Calls `sets.contains`, `sets.equivalent` or `sets.intersects`.
pub(super) fn relation<'a>(name: &str, arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::List(one), CelValue::List(other)] = arguments else { return Ok(None) };
    let result = match name {
        "sets.contains" => contains(one, other, meter)?,
        "sets.equivalent" => contains(one, other, meter)? && contains(other, one, meter)?,
        _ => {
            let mut intersects = false;
            for item in one.iter() {
                intersects = intersects || has_item(other, &item, meter)?;
            }
            intersects
        }
    };
    Ok(Some(CelValue::Bool(result)))
}

/// Returns whether `one` has every item of `other`.
fn contains<'a>(one: &CelList<'a>, other: &CelList<'a>, meter: &mut Meter) -> Result<bool, CelErrorKind> {
    for item in other.iter() {
        if !has_item(one, &item, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_item<'a>(list: &CelList<'a>, needle: &CelValue<'a>, meter: &mut Meter) -> Result<bool, CelErrorKind> {
    for item in list.iter() {
        if equal(&item, needle, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}
