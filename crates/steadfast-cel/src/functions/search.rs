//! Matches of regular expressions.

use super::call_result::CallResult;
use crate::meter::Meter;
use crate::value::CelValue;

/// Calls `find` or `findAll`. `find` returns the first match, or an empty string. `findAll` returns all matches, or at
/// most the given number of matches.
pub(super) fn find<'a>(name: &str, arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let (text, pattern, limit) = match (name, arguments) {
        ("find", [CelValue::String(text), CelValue::String(pattern)]) => (text, pattern, 1),
        ("findAll", [CelValue::String(text), CelValue::String(pattern)]) => (text, pattern, usize::MAX),
        ("findAll", [CelValue::String(text), CelValue::String(pattern), CelValue::Int(limit)]) => {
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return Ok(None),
    };
    let mut found = meter.find(text, pattern, limit)?.into_iter();
    Ok(Some(match name {
        "find" => found.next().unwrap_or_default().into(),
        _ => found.map(CelValue::from).collect::<Vec<_>>().into(),
    }))
}
