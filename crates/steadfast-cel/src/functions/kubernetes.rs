//! Functions of quantities, URLs, addresses, semantic versions and named formats.

use std::net::IpAddr;
use std::sync::Arc;

use super::call_result::CallResult;
use crate::error::CelErrorKind;
use crate::kubernetes::{
    ADDRESS_SYNTAX, Content, Extension, NETWORK_SYNTAX, NamedFormat, Network, QUANTITY_SYNTAX, Quantity, SEMVER_SYNTAX,
    Semver, URL_SYNTAX, Url, is_global_unicast, is_link_local_multicast, is_link_local_unicast, parse_address,
};
use crate::meter::Meter;
use crate::text::Text;
use crate::value::CelValue;

/// Names of the member functions.
const MEMBER_FUNCTIONS: [&str; 29] = [
    "add",
    "asApproximateFloat",
    "asInteger",
    "compareTo",
    "containsCIDR",
    "containsIP",
    "family",
    "getEscapedPath",
    "getHost",
    "getHostname",
    "getPort",
    "getQuery",
    "getScheme",
    "ip",
    "isGlobalUnicast",
    "isGreaterThan",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isUnspecified",
    "major",
    "masked",
    "minor",
    "patch",
    "prefixLength",
    "sub",
    "validate",
];

/// Names of the global functions except the constants of formats.
const GLOBAL_FUNCTIONS: [&str; 13] = [
    "cidr",
    "format.named",
    "ip",
    "ip.isCanonical",
    "isCIDR",
    "isIP",
    "isQuantity",
    "isSemver",
    "isURL",
    "quantity",
    "semver",
    "sign",
    "url",
];

/// Returns whether a function of this name exists.
pub(super) fn has_function(name: &str, is_member: bool) -> bool {
    if is_member {
        MEMBER_FUNCTIONS.contains(&name)
    } else {
        GLOBAL_FUNCTIONS.contains(&name) || constant(name).is_some()
    }
}

/// Returns the format of a constant such as `format.dns1123Label`.
fn constant(name: &str) -> Option<NamedFormat> {
    name.strip_prefix("format.").and_then(NamedFormat::named)
}

/// Calls the function of a name. Returns `Ok(None)` if the function is not defined for these types.
pub(super) fn call<'a>(name: &str, is_member: bool, arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    meter.charge(1)?;
    match arguments {
        [] => Ok(constant(name).map(|format| extension_value(Content::Format(format)))),
        [CelValue::Extension(Extension(content)), rest @ ..] if is_member => call_member(name, content, rest, meter),
        [CelValue::Extension(Extension(Content::Quantity(quantity)))] if name == "sign" => {
            Ok(Some(CelValue::Int(quantity.sign())))
        }
        [CelValue::String(text), rest @ ..] if !is_member => {
            meter.charge_bytes(text.len())?;
            call_global(name, text, rest)
        }
        _ => Ok(None),
    }
}

fn extension_value<'a>(content: Content) -> CelValue<'a> {
    CelValue::Extension(Extension(content))
}

fn call_global<'a>(name: &str, text: &str, rest: &[CelValue<'a>]) -> CallResult<'a> {
    let extension_or_error = |content: Option<Content>, reason| match content {
        Some(content) => Ok(Some(extension_value(content))),
        None => Err(CelErrorKind::invalid_argument(name, reason)),
    };
    let semver = match rest {
        [CelValue::Bool(true)] => Semver::parse_normalized,
        _ => Semver::parse,
    };
    match (name, rest) {
        ("quantity", []) => extension_or_error(Quantity::parse(text).map(Content::Quantity), QUANTITY_SYNTAX),
        ("isQuantity", []) => Ok(Some(CelValue::Bool(Quantity::parse(text).is_some()))),
        // The text must have the form of Go's `url.ParseRequestURI`: an absolute URL or an absolute path.
        ("url", []) => extension_or_error(Url::parse(text).map(|url| Content::Url(Arc::new(url))), URL_SYNTAX),
        ("isURL", []) => Ok(Some(CelValue::Bool(Url::is_valid(text)))),
        ("ip", []) => extension_or_error(parse_address(text).map(Content::Ip), ADDRESS_SYNTAX),
        ("isIP", []) => Ok(Some(CelValue::Bool(parse_address(text).is_some()))),
        ("ip.isCanonical", []) => match parse_address(text) {
            // Canonical means the shortest form in RFC 5952: the text must survive a round trip.
            Some(address) => Ok(Some(CelValue::Bool(address.to_string() == *text))),
            None => Err(CelErrorKind::invalid_argument(name, ADDRESS_SYNTAX)),
        },
        ("cidr", []) => extension_or_error(Network::parse(text).map(Content::Cidr), NETWORK_SYNTAX),
        ("isCIDR", []) => Ok(Some(CelValue::Bool(Network::parse(text).is_some()))),
        ("semver", [] | [CelValue::Bool(_)]) => {
            extension_or_error(semver(text).map(|version| Content::Semver(Arc::new(version))), SEMVER_SYNTAX)
        }
        ("isSemver", [] | [CelValue::Bool(_)]) => Ok(Some(CelValue::Bool(semver(text).is_some()))),
        ("format.named", []) => {
            let format = NamedFormat::named(text).map(|format| Arc::new(extension_value(Content::Format(format))));
            Ok(Some(CelValue::Optional(format)))
        }
        _ => Ok(None),
    }
}

fn call_member<'a>(name: &str, content: &Content, rest: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    match content {
        Content::Quantity(amount) => quantity(name, amount, rest, meter),
        Content::Url(url) if rest.is_empty() => url_part(name, url, meter),
        Content::Ip(address) if rest.is_empty() => Ok(ip(name, *address)),
        Content::Cidr(network) => cidr(name, *network, rest, meter),
        Content::Semver(version) => semver(name, version, rest, meter),
        Content::Format(format) => match (name, rest) {
            // `validate` returns an empty optional for a valid text, and the messages otherwise.
            ("validate", [CelValue::String(text)]) => {
                meter.charge_bytes(text.len())?;
                let errors = format.errors(text);
                // Each message is at most a few hundred bytes long.
                meter.charge(10 * errors.len() as u64)?;
                let errors: Vec<CelValue<'a>> = errors.into_iter().map(CelValue::from).collect();
                Ok(Some(CelValue::Optional((!errors.is_empty()).then(|| Arc::new(errors.into())))))
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Returns the result of a comparison function for two values in this order.
fn comparison_result<'a>(name: &str, order: std::cmp::Ordering) -> Option<CelValue<'a>> {
    match name {
        "isLessThan" => Some(CelValue::Bool(order.is_lt())),
        "isGreaterThan" => Some(CelValue::Bool(order.is_gt())),
        "compareTo" => Some(CelValue::Int(order as i64)),
        _ => None,
    }
}

fn quantity<'a>(name: &str, quantity: &Quantity, rest: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    meter.charge_bytes(quantity.bytes())?;
    let other = match rest {
        [] => {
            return Ok(match name {
                "asApproximateFloat" => Some(CelValue::Double(quantity.approximate())),
                "isInteger" => Some(CelValue::Bool(quantity.integer().is_some())),
                "asInteger" => {
                    let reason = "the quantity is not a whole number of 64 bits";
                    Some(CelValue::Int(quantity.integer().ok_or_else(|| CelErrorKind::invalid_argument(name, reason))?))
                }
                _ => None,
            });
        }
        [CelValue::Extension(Extension(Content::Quantity(other)))] => other.clone(),
        [CelValue::Int(other)] if matches!(name, "add" | "sub") => Quantity::from_integer(*other),
        _ => return Ok(None),
    };
    meter.charge_bytes(other.bytes())?;
    let addend = match name {
        "add" => other,
        "sub" => other.negated(),
        _ => return Ok(comparison_result(name, quantity.order(&other))),
    };
    // Subtraction adds the negated operand, so that one check covers both functions.
    // The check uses the length of the sum: quantities such as `1e2000000000` have short texts and long sums.
    meter.charge(quantity.sum_len(&addend) / 10)?;
    Ok(Some(extension_value(Content::Quantity(quantity.sum(&addend)))))
}

fn url_part<'a>(name: &str, url: &Url, meter: &mut Meter) -> CallResult<'a> {
    meter.charge_bytes(url.bytes())?;
    let (host, port) = url.host_and_port();
    let found = match name {
        "getScheme" => &url.scheme,
        "getHost" => &url.host,
        "getHostname" => host,
        "getPort" => port,
        "getEscapedPath" => &url.path,
        "getQuery" => {
            let parameters = url.parameters();
            meter.charge(parameters.values().map(|values| 2 + values.len() as u64).sum())?;
            let entry = |(name, values): (String, Vec<String>)| {
                (Text::from(name), values.into_iter().map(CelValue::from).collect::<Vec<_>>().into())
            };
            return Ok(Some(CelValue::object(parameters.into_iter().map(entry))));
        }
        _ => return Ok(None),
    };
    Ok(Some(found.to_owned().into()))
}

fn ip<'a>(name: &str, address: IpAddr) -> Option<CelValue<'a>> {
    Some(CelValue::Bool(match name {
        "family" => return Some(CelValue::Int(if address.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => address.is_unspecified(),
        "isLoopback" => address.is_loopback(),
        "isLinkLocalMulticast" => is_link_local_multicast(address),
        "isLinkLocalUnicast" => is_link_local_unicast(address),
        "isGlobalUnicast" => is_global_unicast(address),
        _ => return None,
    }))
}

fn cidr<'a>(name: &str, network: Network, rest: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    if let [CelValue::String(text)] = rest {
        meter.charge_bytes(text.len())?;
    }
    let result = match (name, rest) {
        ("ip", []) => extension_value(Content::Ip(network.address)),
        ("masked", []) => extension_value(Content::Cidr(network.masked())),
        ("prefixLength", []) => CelValue::Int(network.prefix_bits.into()),
        ("containsIP", [CelValue::Extension(Extension(Content::Ip(address)))]) => {
            CelValue::Bool(network.contains(*address))
        }
        // As on a real server, an invalid text counts as an argument of a wrong type.
        ("containsIP", [CelValue::String(text)]) => match parse_address(text) {
            Some(address) => CelValue::Bool(network.contains(address)),
            None => return Ok(None),
        },
        ("containsCIDR", [CelValue::Extension(Extension(Content::Cidr(other)))]) => {
            CelValue::Bool(network.contains_network(*other))
        }
        ("containsCIDR", [CelValue::String(text)]) => match Network::parse(text) {
            Some(other) => CelValue::Bool(network.contains_network(other)),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(result))
}

fn semver<'a>(name: &str, version: &Semver, rest: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    // The Go library stores unsigned 64-bit numbers and converts them to `int64`, which wraps around.
    let number = |number: u64| Some(CelValue::Int(number.cast_signed()));
    match rest {
        [] => Ok(match name {
            "major" => number(version.major),
            "minor" => number(version.minor),
            "patch" => number(version.patch),
            _ => None,
        }),
        [CelValue::Extension(Extension(Content::Semver(other)))] => {
            meter.charge_bytes(version.bytes().min(other.bytes()))?;
            Ok(comparison_result(name, version.order(other)))
        }
        _ => Ok(None),
    }
}

/// Returns the text to which `string` converts an address or a network.
pub(super) fn text(extension: &Extension) -> Option<String> {
    match &extension.0 {
        Content::Ip(address) => Some(address.to_string()),
        Content::Cidr(network) => Some(network.to_string()),
        _ => None,
    }
}
