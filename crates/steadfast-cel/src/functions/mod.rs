//! The standard functions of CEL, and its extensions for strings and optional values.

mod convert;
mod format;
mod number;
mod optional;
mod strings;
mod times;

use crate::error::Fault;
use crate::meter::Meter;
use crate::value::Value;

/// Calls the standard function of a name. The target of a member call is the first argument. None: no such function.
pub(crate) fn call<'a>(
    name: &str,
    is_member: bool,
    arguments: &[Value<'a>],
    meter: &mut Meter,
) -> Option<Result<Value<'a>, Fault>> {
    let found = match name {
        "size" => strings::size(arguments, meter),
        "matches" => strings::matches(arguments, meter),
        "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" | "getFullYear" | "getHours"
        | "getMilliseconds" | "getMinutes" | "getMonth" | "getSeconds"
            if is_member =>
        {
            times::part(name, arguments, meter)
        }
        "hasValue" | "value" if is_member => optional::read(name, arguments),
        "optional.of" | "optional.none" | "optional.ofNonZeroValue" if !is_member => {
            Ok(optional::build(name, arguments))
        }
        "strings.quote" if !is_member => strings::quote(arguments, meter),
        "format" if is_member => format::format(arguments, meter),
        _ if is_member => strings::member(name, arguments, meter)?,
        _ => convert::convert(name, arguments, meter)?,
    };
    // Both functions may return without a definition for the types.
    Some(found.and_then(|value| value.ok_or_else(|| no_overload(name, arguments))))
}

fn no_overload(name: &str, arguments: &[Value]) -> Fault {
    let types: Vec<_> = arguments.iter().map(|argument| argument.type_of().name()).collect();
    Fault::overload(name, if types.is_empty() { vec!["no arguments"] } else { types })
}
