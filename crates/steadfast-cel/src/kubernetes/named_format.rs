//! Named formats of strings.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use jiff::civil::Date;

use super::{Url, labels};

/// Base64 as in the pattern of a real server: padding is required, and the unused bits after the last byte are ignored.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Named format of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedFormat {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
}

impl NamedFormat {
    /// Returns the format of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "dns1123Label" => Self::Dns1123Label,
            "dns1123Subdomain" => Self::Dns1123Subdomain,
            "dns1035Label" => Self::Dns1035Label,
            "qualifiedName" => Self::QualifiedName,
            "dns1123LabelPrefix" => Self::Dns1123LabelPrefix,
            "dns1123SubdomainPrefix" => Self::Dns1123SubdomainPrefix,
            "dns1035LabelPrefix" => Self::Dns1035LabelPrefix,
            "labelValue" => Self::LabelValue,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            "byte" => Self::Byte,
            "date" => Self::Date,
            "datetime" => Self::DateTime,
            _ => return None,
        })
    }

    /// Returns the errors of a text; none if the text has the format. Reads the text a fixed number of times.
    pub(crate) fn errors(self, text: &str) -> Vec<String> {
        let error_unless = |is_valid: bool, error: &str| if is_valid { Vec::new() } else { vec![error.to_owned()] };
        match self {
            Self::Dns1123Label => labels::dns_1123_label(text),
            Self::Dns1123Subdomain => labels::dns_1123_subdomain(text),
            Self::Dns1035Label => labels::dns_1035_label(text),
            Self::QualifiedName => labels::qualified_name(text),
            Self::Dns1123LabelPrefix => labels::dns_1123_label(&without_trailing_dash(text)),
            Self::Dns1123SubdomainPrefix => labels::dns_1123_subdomain(&without_trailing_dash(text)),
            Self::Dns1035LabelPrefix => labels::dns_1035_label(&without_trailing_dash(text)),
            Self::LabelValue => labels::label_value(text),
            Self::Uri => error_unless(Url::is_valid(text), "invalid URI for request"),
            Self::Uuid => error_unless(is_uuid(text), "does not match the UUID format"),
            Self::Byte => error_unless(!text.is_empty() && BASE64.decode(text).is_ok(), "invalid base64"),
            Self::Date => error_unless(is_date(text), "invalid date"),
            Self::DateTime => error_unless(is_date_time(text), "invalid datetime"),
        }
    }
}

/// Replaces a dash at the end of a prefix, and the character before the dash, by `a`. In a whole name, a suffix follows
/// the dash.
fn without_trailing_dash(prefix: &str) -> Cow<'_, str> {
    match prefix.strip_suffix('-') {
        // The server truncates at bytes. A character of several bytes is invalid in any case.
        Some(rest) if !rest.is_empty() && rest.is_ascii() => format!("{}a", &rest[..rest.len() - 1]).into(),
        _ => prefix.into(),
    }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            // Dashes are optional: the pattern of go-openapi accepts 32 digits without them.
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((digits, behind)) = rest.split_at_checked(len) else { return false };
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = behind;
    }
    rest.is_empty()
}

fn is_date(text: &str) -> bool {
    let has_date_layout = text.len() == 10
        // The form is checked first, as the parser for dates also accepts other forms of ISO 8601.
        && text.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    has_date_layout && text.parse::<Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    // A second `t` starts a part that is ignored, as in the Go implementation, which splits the text.
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

/// Returns whether a text is a time with a zone: `03:04:05.678z`.
fn is_time(text: &str) -> bool {
    let is_two_digits =
        |text: &str, max: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() == 2 && text <= max;
    let (Some(hours), Some(minutes), Some(seconds)) = (text.get(..2), text.get(3..5), text.get(6..8)) else {
        return false;
    };
    if !(is_two_digits(hours, "23") && is_two_digits(minutes, "59") && is_two_digits(seconds, "59"))
        || text.get(2..3) != Some(":")
        || text.get(5..6) != Some(":")
    {
        return false;
    }
    let rest = text.get(8..).unwrap_or_default();
    let zone = rest.strip_suffix('z').or_else(|| {
        let (rest, zone) = rest.split_at_checked(rest.len().checked_sub(6)?)?;
        let is_zone = zone.starts_with(['+', '-'])
            && zone.get(3..4) == Some(":")
            // Any two digits pass as hours and minutes of the offset, as in the pattern of go-openapi.
            && zone.get(1..3).is_some_and(|hours| is_two_digits(hours, "99"))
            && zone.get(4..).is_some_and(|minutes| is_two_digits(minutes, "99"));
        is_zone.then_some(rest)
    });
    let Some(fraction) = zone else { return false };
    // Any character except a line feed may separate the fraction.
    let mut digits = fraction.chars();
    match digits.next() {
        None => true,
        Some('\n') => false,
        Some(_) => !digits.as_str().is_empty() && digits.as_str().bytes().all(|byte| byte.is_ascii_digit()),
    }
}
