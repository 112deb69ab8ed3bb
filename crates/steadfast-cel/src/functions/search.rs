//! Matches of regular expressions.

use crate::error::Fault;
use crate::meter::Meter;
use crate::value::Value;

/// Calls `find` or `findAll`. `find` returns the first match, or an empty string. `findAll` returns all matches, or at
/// most the given number of matches.
pub(super) fn find<'a>(name: &str, arguments: &[Value<'a>], meter: &mut Meter) -> Result<Option<Value<'a>>, Fault> {
    let (text, pattern, most) = match (name, arguments) {
        ("find", [Value::String(text), Value::String(pattern)]) => (text, pattern, 1),
        ("findAll", [Value::String(text), Value::String(pattern)]) => (text, pattern, usize::MAX),
        ("findAll", [Value::String(text), Value::String(pattern), Value::Int(most)]) => {
            (text, pattern, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Ok(None),
    };
    let mut found = meter.find(text, pattern, most)?.into_iter();
    Ok(Some(match name {
        "find" => found.next().unwrap_or_default().into(),
        _ => found.map(Value::from).collect::<Vec<_>>().into(),
    }))
}
