//! Types of common functions. Functions that are not listed accept and return any type.

use super::Kind;
use crate::types::Type;

/// Returns the result type of a call; `None` if the function has no definition for the types.
pub(super) fn call(name: &str, target: Option<&Kind>, arguments: &[Kind]) -> Option<Kind> {
    match target {
        Some(target) => member(name, target, arguments),
        None => global(name, arguments),
    }
}

fn global(name: &str, arguments: &[Kind]) -> Option<Kind> {
    use Type::{Bool, Bytes, Cidr, Double, Duration, Int, Ip, Quantity, Semver, String, Timestamp, Uint, Url};
    let (accepted, result): (&[Type], Kind) = match name {
        "size" => {
            return match arguments {
                [Kind::Any | Kind::List(_) | Kind::Map(..) | Kind::Plain(String | Bytes)] => Some(Kind::INT),
                _ => None,
            };
        }
        "type" => return Some(Kind::Plain(Type::Type)),
        "bool" => (&[Bool, String], Kind::BOOL),
        "int" => (&[Int, Uint, Double, String, Timestamp], Kind::INT),
        "uint" => (&[Int, Uint, Double, String], Kind::Plain(Uint)),
        "double" => (&[Int, Uint, Double, String], Kind::Plain(Double)),
        "bytes" => (&[Bytes, String], Kind::Plain(Bytes)),
        "string" => (&[Bool, Int, Uint, Double, String, Bytes, Timestamp, Duration, Ip, Cidr], Kind::STRING),
        "timestamp" => (&[Timestamp, String, Int], Kind::Plain(Timestamp)),
        "duration" => (&[Duration, String], Kind::Plain(Duration)),
        "quantity" => (&[String], Kind::Plain(Quantity)),
        "url" => (&[String], Kind::Plain(Url)),
        "ip" => (&[String], Kind::Plain(Ip)),
        "cidr" => (&[String], Kind::Plain(Cidr)),
        "isQuantity" | "isURL" | "isIP" | "isCIDR" | "ip.isCanonical" => (&[String], Kind::BOOL),
        "sign" => (&[Quantity], Kind::INT),
        "semver" => return strings_first(arguments).then_some(Kind::Plain(Semver)),
        "isSemver" => return strings_first(arguments).then_some(Kind::BOOL),
        "format.named" => (&[String], Kind::optional(Kind::Plain(Type::Format))),
        "optional.of" => return Some(Kind::optional(arguments.first().cloned().unwrap_or(Kind::Any))),
        _ if name.starts_with("format.") => return arguments.is_empty().then_some(Kind::Plain(Type::Format)),
        // An unknown function may be an extension of a newer server. The evaluation reports functions that do not
        // exist.
        _ => return Some(Kind::Any),
    };
    match arguments {
        [Kind::Any] => Some(result),
        // Only exact types match: CEL has no implicit conversions, not even from `int` to `double`.
        [Kind::Plain(found)] if accepted.contains(found) => Some(result),
        _ => None,
    }
}

/// Returns whether the first argument may be a string, and the second a bool.
fn strings_first(arguments: &[Kind]) -> bool {
    match arguments {
        [text] => text.fits(&Kind::STRING),
        [text, flag] => text.fits(&Kind::STRING) && flag.fits(&Kind::BOOL),
        _ => false,
    }
}

fn member(name: &str, target: &Kind, arguments: &[Kind]) -> Option<Kind> {
    match (target, name) {
        // `dyn` disables overload resolution for the target. The result type is known only if all overloads agree.
        (Kind::Any, _) => Some(any_member(name)),
        (Kind::Optional(inner), "value") => Some(Kind::clone(inner)),
        (Kind::Optional(inner), "orValue") => {
            // The default must be of the type of the optional, or the result would have two types.
            arguments.first().is_none_or(|other| inner.fits(other)).then(|| Kind::clone(inner))
        }
        (Kind::Optional(_), "or") => Some(target.clone()),
        (Kind::Optional(_), "hasValue") | (_, "includes") => Some(Kind::BOOL),
        (Kind::List(items), _) => list_member(name, items),
        (Kind::Plain(named), _) => plain_member(name, *named, arguments),
        (Kind::Map(..), "size") => Some(Kind::INT),
        // A function with a known set of targets rejects any other target. Other functions may have targets that this
        // table lacks.
        _ if is_typed(name) => None,
        _ => Some(Kind::Any),
    }
}

/// Functions whose result has one type, whatever their target is.
fn any_member(name: &str) -> Kind {
    match name {
        "size" | "family" | "prefixLength" | "major" | "minor" | "patch" | "compareTo" | "asInteger" => Kind::INT,
        "contains" | "startsWith" | "endsWith" | "matches" | "isSorted" | "hasValue" | "includes" | "isLessThan"
        | "isGreaterThan" | "isInteger" | "containsIP" | "containsCIDR" => Kind::BOOL,
        _ => Kind::Any,
    }
}

/// Returns whether [`list_member`] and [`plain_member`] know all targets of a function.
fn is_typed(name: &str) -> bool {
    matches!(
        name,
        "contains"
            | "startsWith"
            | "endsWith"
            | "matches"
            | "lowerAscii"
            | "upperAscii"
            | "trim"
            | "split"
            | "substring"
            | "replace"
            | "charAt"
            | "find"
            | "findAll"
            | "join"
            | "isSorted"
            | "sum"
            | "size"
            | "hasValue"
            | "value"
            | "orValue"
            | "isLessThan"
            | "isGreaterThan"
            | "compareTo"
            | "isInteger"
            | "asInteger"
            | "asApproximateFloat"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "family"
            | "isLoopback"
            | "isUnspecified"
            | "isGlobalUnicast"
            | "isLinkLocalUnicast"
            | "isLinkLocalMulticast"
            | "containsIP"
            | "containsCIDR"
            | "prefixLength"
            | "masked"
            | "getScheme"
            | "getHost"
            | "getHostname"
            | "getPort"
            | "getEscapedPath"
            | "getQuery"
            | "validate"
            | "sign"
    )
}

fn list_member(name: &str, items: &Kind) -> Option<Kind> {
    match name {
        "size" | "indexOf" | "lastIndexOf" => Some(Kind::INT),
        "isSorted" => Some(Kind::BOOL),
        "join" => items.fits(&Kind::STRING).then_some(Kind::STRING),
        "sum" => match items {
            Kind::Any | Kind::Plain(Type::Int | Type::Uint | Type::Double | Type::Duration) => Some(items.clone()),
            _ => None,
        },
        "min" | "max" => Some(items.clone()),
        _ if is_typed(name) => None,
        _ => Some(Kind::Any),
    }
}

#[expect(clippy::match_same_arms, reason = "one arm for each group of functions")]
fn plain_member(name: &str, target: Type, arguments: &[Kind]) -> Option<Kind> {
    // The number of arguments is not checked: the checker accepts more than a real server, never less.
    let takes = |kind: &Kind| arguments.iter().all(|argument| argument.fits(kind));
    let text = |result: Kind| takes(&Kind::STRING).then_some(result);
    match (target, name) {
        (Type::String | Type::Bytes, "size") => Some(Kind::INT),
        (Type::String, "contains" | "startsWith" | "endsWith" | "matches") => text(Kind::BOOL),
        (Type::String, "find" | "lowerAscii" | "upperAscii" | "trim") => text(Kind::STRING),
        (Type::String, "substring" | "charAt") => takes(&Kind::INT).then_some(Kind::STRING),
        (Type::String, "replace") => Some(Kind::STRING),
        (Type::String, "split" | "findAll") => Some(Kind::list(Kind::STRING)),
        (Type::String, "indexOf" | "lastIndexOf") => Some(Kind::INT),
        (Type::String, "format") => Some(Kind::STRING),
        (Type::Timestamp | Type::Duration, _) if name.starts_with("get") && !is_typed(name) => Some(Kind::INT),
        (Type::Quantity | Type::Semver, "isLessThan" | "isGreaterThan") => {
            takes(&Kind::Plain(target)).then_some(Kind::BOOL)
        }
        (Type::Quantity | Type::Semver, "compareTo") => takes(&Kind::Plain(target)).then_some(Kind::INT),
        (Type::Quantity, "isInteger") => Some(Kind::BOOL),
        (Type::Quantity, "asInteger") => Some(Kind::INT),
        (Type::Quantity, "asApproximateFloat") => Some(Kind::Plain(Type::Double)),
        (Type::Quantity, "add" | "sub") => {
            // Quantities also accept a plain integer as the operand of `add` and `sub`.
            (takes(&Kind::Plain(target)) || takes(&Kind::INT)).then_some(Kind::Plain(target))
        }
        (Type::Semver, "major" | "minor" | "patch") | (Type::Ip, "family") | (Type::Cidr, "prefixLength") => {
            Some(Kind::INT)
        }
        (
            Type::Ip,
            "isLoopback" | "isUnspecified" | "isGlobalUnicast" | "isLinkLocalUnicast" | "isLinkLocalMulticast",
        ) => Some(Kind::BOOL),
        // Both functions parse a string argument themselves, as the Kubernetes library for CIDR defines.
        (Type::Cidr, "containsIP") => (takes(&Kind::STRING) || takes(&Kind::Plain(Type::Ip))).then_some(Kind::BOOL),
        (Type::Cidr, "containsCIDR") => (takes(&Kind::STRING) || takes(&Kind::Plain(target))).then_some(Kind::BOOL),
        (Type::Cidr, "masked") => Some(Kind::Plain(target)),
        (Type::Cidr, "ip") => Some(Kind::Plain(Type::Ip)),
        (Type::Url, "getQuery") => Some(Kind::map_of(Kind::list(Kind::STRING))),
        (Type::Url, "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath") => Some(Kind::STRING),
        (Type::Format, "validate") => text(Kind::optional(Kind::list(Kind::STRING))),
        _ if is_typed(name) => None,
        _ => Some(Kind::Any),
    }
}
