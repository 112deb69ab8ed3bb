//! Formats of strings.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Pattern;

/// Known formats without their optional hyphens.
const KNOWN_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Returns whether the format is checked.
pub(super) fn is_known(format: &str) -> bool {
    // Hyphens are optional in the registry of go-openapi: `date-time` and `datetime` are one format.
    !format.is_empty() && KNOWN_FORMATS.contains(&format.replace('-', "").as_str())
}

/// Returns whether a string has the format. Returns true for an unknown format.
pub(super) fn matches_format(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "byte" => is_base64(text),
        "cidr" => is_cidr(text),
        "creditcard" => is_credit_card(text),
        "date" => PATTERNS.date.is_match(text) && text.parse::<jiff::civil::Date>().is_ok(),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "email" => PATTERNS.email.is_match(text),
        "hexcolor" => PATTERNS.hexcolor.is_match(text),
        "hostname" => is_hostname(text),
        "ipv4" => is_ipv4(text),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_label),
        "k8sshortname" => text.len() <= 63 && is_label(text),
        "mac" => PATTERNS.mac.is_match(text),
        "rgbcolor" => PATTERNS.rgbcolor.is_match(text),
        "ssn" => PATTERNS.ssn.is_match(text),
        "uri" => is_uri(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')) && has_variant(text),
        "uuid5" => is_uuid(text, Some(b'5')) && has_variant(text),
        _ => true,
    }
}

struct Patterns {
    date: Pattern,
    date_time: Pattern,
    duration: Pattern,
    scala_duration: Pattern,
    email: Pattern,
    hexcolor: Pattern,
    letters: Pattern,
    top_level: Pattern,
    mac: Pattern,
    rgbcolor: Pattern,
    ssn: Pattern,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let pattern = |text: &str| Pattern::new(text).unwrap_or_else(|error| unreachable!("{text}: {error}"));
    let octet = "([01]?[0-9]?[0-9]|2[0-4][0-9]|25[0-5])";
    Patterns {
        date: pattern("^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
        date_time: pattern(
            r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
        ),
        duration: pattern(
            r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*)$",
        ),
        scala_duration: pattern(
            r"([0-9]+)\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)",
        ),
        email: pattern(r#"^\s*([^<>@",;:\\\s]+@[^<>@",;:\\\s]+|[^<>@",;:\\]*<[^<>@",;:\\\s]+@[^<>@",;:\\\s]+>)\s*$"#),
        hexcolor: pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
        letters: pattern(r"^[a-zA-Z0-9\p{S}\p{L}]+$"),
        top_level: pattern(r"^[a-zA-Z\p{L}]+$"),
        mac: pattern(
            "^([0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}|[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){7}|[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){19}|[0-9a-fA-F]{4}([.][0-9a-fA-F]{4}){2}|[0-9a-fA-F]{4}([.][0-9a-fA-F]{4}){3}|[0-9a-fA-F]{4}([.][0-9a-fA-F]{4}){9})$",
        ),
        rgbcolor: pattern(&format!(r"^rgb\(\s*{octet}\s*,\s*{octet}\s*,\s*{octet}\s*\)$")),
        ssn: pattern(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
    }
});

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && STANDARD.decode(text).is_ok()
}

/// Returns whether a string is an IPv4 address, or an IPv6 address that ends with an IPv4 address. As in older versions
/// of Go, an IPv4 address may have leading zeros.
fn is_ipv4(text: &str) -> bool {
    // An IPv6 address with an embedded IPv4 part counts as well.
    text.contains('.') && (is_ipv4_with_leading_zeros(text) || text.parse::<Ipv6Addr>().is_ok())
}

fn is_ipv4_with_leading_zeros(text: &str) -> bool {
    let is_octet = |part: &str| {
        // Leading zeros are accepted.
        let digits = part.trim_start_matches('0');
        let digits = if digits.is_empty() && !part.is_empty() { "0" } else { digits };
        format!("0.0.0.{digits}").parse::<Ipv4Addr>().is_ok()
    };
    text.split('.').count() == 4 && text.split('.').all(is_octet)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let max_bits = if is_ipv4_with_leading_zeros(address) {
        32
    } else if address.parse::<Ipv6Addr>().is_ok() {
        128
    } else {
        return false;
    };
    // A sign would pass the parse, so the digits are checked first.
    !bits.is_empty()
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|n| n <= max_bits)
}

/// Returns whether a string is a hostname: one label, or several labels with a top-level name of two or more letters.
/// Symbols count as letters, except in the top-level name.
fn is_hostname(text: &str) -> bool {
    let is_letters = |text: &str| PATTERNS.letters.is_match(text);
    let count = |text: &str| text.chars().count();
    if text.len() > 255 || text.split('.').any(|part| part.len() > 63) {
        return false;
    }
    let Some((labels, top)) = text.rsplit_once('.') else {
        let rest = text.chars().next().map_or("", |first| &text[first.len_utf8()..]);
        let single = rest.strip_prefix('-').unwrap_or(rest);
        return !text.starts_with('-')
            && !text.is_empty()
            && is_letters(&text.replacen('-', "", 1))
            && !single.contains('-');
    };
    let label = |label: &str| is_letters(&label.replace('-', "")) && !label.starts_with('-') && !label.ends_with('-');
    labels.split('.').all(label) && PATTERNS.top_level.is_match(top) && count(top) >= 2
}

/// Returns whether a string is a valid target of an HTTP request: an absolute URL or a path.
fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').is_some_and(|(scheme, _)| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        scheme.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic()) && scheme.bytes().all(inner)
    });
    let is_rooted = text.starts_with('/');
    let clean = text.bytes().all(|byte| byte > 0x20 && byte != 0x7f);
    let escapes = text
        .split('%')
        .skip(1)
        .all(|rest| rest.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)));
    // After a scheme, the rest is a path or an opaque part, so any rest is valid. Without a scheme, a leading slash is
    // required.
    (scheme || is_rooted) && clean && escapes
}

fn is_date_time(text: &str) -> bool {
    PATTERNS.date_time.is_match(text) && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_duration(text: &str) -> bool {
    PATTERNS.duration.is_match(text) || PATTERNS.scala_duration.is_match(text)
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    digits.len() == 32
        && digits.iter().all(u8::is_ascii_hexdigit)
        && hyphens_are_between_groups(text)
        && version.is_none_or(|version| digits[12] == version)
}

/// Returns whether hyphens occur only after 8, 12, 16 or 20 digits, one in each place.
fn hyphens_are_between_groups(text: &str) -> bool {
    let mut digits = 0;
    let mut after_hyphen = false;
    for byte in text.bytes() {
        if byte == b'-' {
            if after_hyphen || !matches!(digits, 8 | 12 | 16 | 20) {
                return false;
            }
            after_hyphen = true;
        } else {
            digits += 1;
            after_hyphen = false;
        }
    }
    !after_hyphen
}

fn has_variant(text: &str) -> bool {
    text.bytes()
        .filter(|&byte| byte != b'-')
        .nth(16)
        .is_some_and(|byte| matches!(byte.to_ascii_lowercase(), b'8' | b'9' | b'a' | b'b'))
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|character| !matches!(character, ' ' | '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_of(text);
    let bytes = digits.as_bytes();
    if bytes.len() != 10 || !bytes[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    // `X` denotes 10.
    let last = match bytes[9] {
        b'X' => 10,
        byte if byte.is_ascii_digit() => u32::from(byte - b'0'),
        _ => return false,
    };
    let sum: u32 = bytes[..9].iter().zip(1..).map(|(byte, factor)| u32::from(byte - b'0') * factor).sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_of(text);
    let bytes = digits.as_bytes();
    if bytes.len() != 13 || !bytes.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weighted = bytes.iter().enumerate().map(|(index, byte)| u32::from(byte - b'0') * [1, 3][index % 2]);
    weighted.sum::<u32>() % 10 == 0
}

/// Returns whether a string has thirteen to sixteen digits with a valid checksum. The issuer is not checked.
fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|character| character.to_digit(10)).collect();
    // Luhn's algorithm.
    let doubled = |digit: u32| if digit > 4 { 2 * digit - 9 } else { 2 * digit };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, &digit)| if index % 2 == 1 { doubled(digit) } else { digit })
        .sum();
    (13..=16).contains(&digits.len()) && sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::{is_known, matches_format};

    #[test]
    fn valid_strings_match_their_format() {
        let valid = [
            ("date", "2024-02-29"),
            ("date-time", "2014-12-15T19:30:20.000Z"),
            ("date-time", "2014-12-15T19:30:20+01:00"),
            ("duration", "1h30m"),
            ("duration", "22 ns"),
            ("ipv4", "10.0.0.1"),
            ("ipv4", "010.0.0.1"),
            ("ipv6", "::1"),
            ("cidr", "10.0.0.0/8"),
            ("uri", "https://example.com/a"),
            ("uuid", "123E4567-e89b-12d3-a456-426614174000"),
            ("byte", "YWJj"),
            ("hostname", "example.com"),
            ("hostname", "single"),
            ("email", "a@example.com"),
            ("mac", "00:00:5e:00:53:01"),
            ("isbn", "978-0321751041"),
            ("isbn10", "0321751043"),
            ("hexcolor", "#FFFFFF"),
            ("rgbcolor", "rgb(255, 0,9)"),
            ("k8s-short-name", "a-b"),
        ];
        for (format, text) in valid {
            assert!(is_known(format) && matches_format(format, text), "{text} is a {format}");
        }
    }

    #[test]
    fn invalid_strings_match_no_format() {
        let invalid = [
            ("date", "2023-02-29"),
            ("date-time", "yesterday"),
            ("duration", "soon"),
            ("ipv4", "10.0.0.256"),
            ("ipv4", "::1"),
            ("ipv6", "10.0.0.1"),
            ("hostname", "-a.example.com"),
            ("hostname", "a.example.c0m"),
            ("cidr", "10.0.0.0/33"),
            ("uri", "no uri"),
            ("uuid", "123E4567-e89b-12d3-a456"),
            ("byte", "?"),
            ("email", "nobody"),
            ("isbn10", "0321751044"),
            ("k8s-short-name", "A"),
        ];
        for (format, text) in invalid {
            assert!(!matches_format(format, text), "{text} is not a {format}");
        }
    }
}
