//! Percent-encoding as the URL library of Go performs it.

use std::fmt::Write;

/// Part of a URL. Determines the characters that stay plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlPart {
    Path,
    Host,
    Zone,
    User,
    Query,
    Fragment,
}

impl UrlPart {
    fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::Zone)
    }

    /// Returns whether a byte must be escaped.
    pub(super) fn must_escape(self, byte: u8) -> bool {
        match byte {
            b'-' | b'_' | b'.' | b'~' => false,
            byte if byte.is_ascii_alphanumeric() => false,
            b'$' | b'&' | b'+' | b'=' | b',' | b';' => self == Self::Query,
            b':' => matches!(self, Self::User | Self::Query),
            b'@' | b'/' => !matches!(self, Self::Path | Self::Fragment),
            b'?' => self != Self::Fragment,
            b'!' | b'(' | b')' | b'*' => !self.is_host() && self != Self::Fragment,
            b'\'' | b'[' | b']' | b'<' | b'>' | b'"' => !self.is_host(),
            _ => true,
        }
    }
}

/// Returns the bytes that a text encodes; `None` for an invalid text.
pub(super) fn unescape(text: &[u8], part: UrlPart) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                let value =
                    digits.iter().try_fold(0_u32, |value, digit| Some(value * 16 + char::from(*digit).to_digit(16)?));
                let value = value? as u8;
                rest = behind;
                let is_valid = match part {
                    // RFC 3986 allows percent-encoding in hosts for non-ASCII bytes only. Go also accepts `%25` for the
                    // zone of an address.
                    UrlPart::Host => value >= 0x80 || value == b'%',
                    UrlPart::Zone => value == b'%' || value == b' ' || !UrlPart::Host.must_escape(value),
                    _ => true,
                };
                if !is_valid {
                    return None;
                }
                plain.push(value);
            }
            b'+' if part == UrlPart::Query => plain.push(b' '),
            // Only hosts reject invalid plain characters. Paths and queries keep such characters, which are escaped on
            // output.
            byte if part.is_host() && *byte < 0x80 && part.must_escape(*byte) => return None,
            byte => plain.push(*byte),
        }
    }
    Some(plain)
}

/// Returns the text that encodes bytes.
pub(super) fn escape(plain: &[u8], part: UrlPart) -> String {
    let mut text = String::with_capacity(plain.len());
    for byte in plain {
        if part.must_escape(*byte) {
            let _ = write!(text, "%{byte:02X}");
        } else {
            text.push(char::from(*byte));
        }
    }
    text
}

/// Returns the encoded text of `plain`: `raw` if `raw` is a valid encoding, else the default encoding.
pub(super) fn encoded(raw: &str, plain: &[u8], part: UrlPart) -> String {
    let is_valid = raw.bytes().all(|byte| {
        matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@')
            || matches!(byte, b'[' | b']' | b'%')
            || !part.must_escape(byte)
    });
    if is_valid { raw.to_owned() } else { escape(plain, part) }
}
