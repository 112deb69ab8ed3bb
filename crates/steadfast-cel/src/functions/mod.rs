//! Functions of CEL.
//!
//! The modules contain the standard functions, the extensions for strings, lists, sets and optional values, and the
//! functions of the Kubernetes API.

mod call_result;
mod convert;
mod format;
mod kubernetes;
mod lists;
mod number;
mod optional;
mod search;
mod sets;
mod strings;
mod timestamps;

pub(crate) use self::lists::sort_by;
use crate::budget::Budget;
use crate::error::CelErrorKind;
use crate::meter::{Meter, Patterns};
use crate::value::CelValue;

/// Calls the function `name`. In a member call, the receiver is the first argument. Returns `None` for an unknown
/// function.
pub(crate) fn call<'a>(
    name: &str,
    is_member: bool,
    arguments: &[CelValue<'a>],
    meter: &mut Meter,
) -> Option<Result<CelValue<'a>, CelErrorKind>> {
    let found = match name {
        "size" => strings::size(arguments, meter),
        "matches" => strings::matches(arguments, meter),
        "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" | "getFullYear" | "getHours"
        | "getMilliseconds" | "getMinutes" | "getMonth" | "getSeconds"
            if is_member =>
        {
            timestamps::part(name, arguments, meter)
        }
        "hasValue" | "value" if is_member => optional::read(name, arguments),
        "unwrapOpt" if is_member => optional::unwrap(arguments, meter),
        "optional.unwrap" if !is_member => optional::unwrap(arguments, meter),
        "optional.of" | "optional.none" | "optional.ofNonZeroValue" if !is_member => {
            Ok(optional::build(name, arguments))
        }
        "strings.quote" if !is_member => strings::quote(arguments, meter),
        "sets.contains" | "sets.equivalent" | "sets.intersects" if !is_member => sets::relation(name, arguments, meter),
        "lists.range" if !is_member => lists::range(arguments, meter),
        "find" | "findAll" if is_member => search::find(name, arguments, meter),
        // Strings have functions with these names too, so the type of the receiver selects the function.
        "indexOf" | "lastIndexOf" | "reverse" if is_member && matches!(arguments, [CelValue::List(_), ..]) => {
            lists::member(name, arguments, meter)
        }
        "includes" if is_member => lists::includes(arguments, meter),
        _ if kubernetes::has_function(name, is_member) => kubernetes::call(name, is_member, arguments, meter),
        _ if is_member && lists::LIST_ONLY_FUNCTIONS.contains(&name) => lists::member(name, arguments, meter),
        "format" if is_member => format::format(arguments, meter),
        _ if is_member => strings::member(name, arguments, meter)?,
        _ => convert::convert(name, arguments, meter)?,
    };
    // A function returns `Ok(None)` if it has no definition for the types of the arguments.
    Some(found.and_then(|value| value.ok_or_else(|| no_overload(name, arguments))))
}

/// Returns whether [`call`] knows a function of this name. The evaluator implements `or` and `orValue`, which count as
/// known.
pub(crate) fn is_known(name: &str) -> bool {
    // The probe calls have no arguments and charge at most one unit each.
    let mut budget = Budget::new(1_000);
    let constants = Patterns::new();
    let mut meter = Meter::new(&mut budget, &constants, None);
    // A known function rejects a call without arguments; an unknown function returns `None`.
    matches!(name, "or" | "orValue")
        || [true, false].into_iter().any(|is_member| call(name, is_member, &[], &mut meter).is_some())
}

fn no_overload(name: &str, arguments: &[CelValue]) -> CelErrorKind {
    let types: Vec<_> = arguments.iter().map(|argument| argument.type_of().name()).collect();
    CelErrorKind::no_such_overload(name, if types.is_empty() { vec!["no arguments"] } else { types })
}
