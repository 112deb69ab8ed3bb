//! Validity period of a certificate.

use jiff::Timestamp;
use jiff::civil::DateTime;

/// Returns the start and end of the validity period of an X.509 certificate in DER (RFC 5280, section 4.1).
///
/// Returns `None` if `certificate` is not X.509. The signature is not verified.
pub fn certificate_validity(certificate: &[u8]) -> Option<(Timestamp, Timestamp)> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let sequence_content = |(tag, content, _): (u8, _, _)| (tag == SEQUENCE).then_some(content);
    let certificate = read_element(certificate).and_then(sequence_content)?;
    let mut rest = read_element(certificate).and_then(sequence_content)?;
    // The version is optional and explicitly tagged (RFC 5280, section 4.1).
    if read_element(rest)?.0 == VERSION {
        rest = read_element(rest)?.2;
    }
    // Skip serial number, signature algorithm and issuer.
    for _ in 0..3 {
        rest = read_element(rest)?.2;
    }
    let validity = read_element(rest).and_then(sequence_content)?;
    let (from_tag, from, rest) = read_element(validity)?;
    let (until_tag, until, _) = read_element(rest)?;
    Some((parse_time(from_tag, from)?, parse_time(until_tag, until)?))
}

/// Splits off the first DER element. Returns tag, content and remaining bytes.
fn read_element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        // A length of more than four bytes exceeds the maximum file size.
        if !(1..=4).contains(&count) {
            return None;
        }
        let (length, rest) = rest.split_at_checked(count)?;
        (length.iter().try_fold(0_usize, |sum, &byte| sum.checked_mul(256)?.checked_add(byte.into()))?, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn parse_time(tag: u8, text: &[u8]) -> Option<Timestamp> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let text = std::str::from_utf8(text).ok()?;
    let text = match tag {
        // UTCTime has two-digit years: 00 to 49 are in the 21st century (RFC 5280, section 4.1.2.5.1).
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let date_time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    Some(date_time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}
