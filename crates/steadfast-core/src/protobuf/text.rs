//! Strings, bytes, times and durations as texts, in the form that Go writes into JSON.

use std::borrow::Cow;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::Visitor;

use super::error::Error;
use super::wire::{Reader, WireError};

/// Presents a text to the visitor. As in Go's JSON, each byte of invalid UTF-8 becomes a `�`.
#[inline]
pub(crate) fn text<'de, V: Visitor<'de>>(bytes: &'de [u8], visitor: V) -> Result<V::Value, Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => visitor.visit_borrowed_str(text),
        Err(_) => visitor.visit_string(replace_invalid_bytes(bytes)),
    }
}

/// Returns the text of `bytes`.
pub(crate) fn lossy_text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| Cow::Owned(replace_invalid_bytes(bytes)), Cow::Borrowed)
}

fn replace_invalid_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    // Go replaces each invalid byte separately.
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Presents bytes in base64 to the visitor.
pub(crate) fn base64<'de, V: Visitor<'de>>(bytes: &[u8], visitor: V) -> Result<V::Value, Error> {
    visitor.visit_string(STANDARD.encode(bytes))
}

/// Instant of `meta.v1.Time` or `meta.v1.MicroTime`.
#[derive(Clone, Copy)]
pub(crate) struct Timestamp {
    seconds: i64,
    /// Microseconds; `None` for a type without them.
    micros: Option<u32>,
}

/// Form of an instant in RFC 3339, with microseconds.
const TEMPLATE: &[u8; 27] = b"0000-00-00T00:00:00.000000Z";

/// Zero of Go's time, the year 1, in seconds relative to 1970.
const GO_ZERO_SECONDS: i64 = -62_135_596_800;

/// Minimum length of Go's zero time in bytes: a tag, and the seconds as a varint of 64 bits.
const MIN_GO_ZERO_BYTES: usize = 11;

impl Timestamp {
    /// Reads an instant; `None` for Go's zero, which is null in JSON.
    pub(crate) fn read(mut message: Reader<'_>, has_micros: bool) -> Result<Option<Self>, WireError> {
        if message.rest().is_empty() {
            return Ok(None);
        }
        let (mut seconds, mut nanos) = (0, 0);
        while let Some(tag) = message.tag()? {
            match tag.number {
                1 => seconds = message.number(tag.wire)?.cast_signed(),
                2 => nanos = i64::from(message.number(tag.wire)? as i32),
                _ => message.skip(tag.wire)?,
            }
        }
        // Go's zero time is `null` in JSON.
        if !has_micros {
            return Ok((seconds != GO_ZERO_SECONDS).then_some(Self { seconds, micros: None }));
        }
        // Go rounds towards zero first, then carries.
        let micros = nanos / 1000;
        seconds = seconds.wrapping_add(micros.div_euclid(1_000_000));
        let micros = micros.rem_euclid(1_000_000) as u32;
        Ok((seconds != GO_ZERO_SECONDS || micros != 0).then_some(Self { seconds, micros: Some(micros) }))
    }

    /// Returns whether a message is Go's zero, which is null in JSON.
    pub(crate) fn is_null(message: Reader<'_>, has_micros: bool) -> Result<bool, WireError> {
        // The seconds of Go's zero are negative, and a negative varint always has the maximum length.
        if (1..MIN_GO_ZERO_BYTES).contains(&message.rest().len()) {
            return Ok(false);
        }
        Ok(Self::read(message, has_micros)?.is_none())
    }

    /// Presents the instant in RFC 3339 to the visitor.
    pub(crate) fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.format(&mut [0; TEMPLATE.len()]) {
            Cow::Borrowed(text) => visitor.visit_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    /// Writes the instant in RFC 3339 into `text`. A year with fewer or more than four digits does not fit, so the
    /// result is a separate text.
    ///
    /// Not generic, so that it is compiled once instead of once per visitor.
    fn format(self, text: &mut [u8; TEMPLATE.len()]) -> Cow<'_, str> {
        let (days, second) = (self.seconds.div_euclid(86_400), self.seconds.rem_euclid(86_400));
        let (year, month, day) = date(days);
        *text = *TEMPLATE;
        let mut write = |offset: usize, number: i64| {
            let number = number.unsigned_abs() as u8;
            (text[offset], text[offset + 1]) = (b'0' + number / 10, b'0' + number % 10);
        };
        for (offset, number) in [(5, month), (8, day), (11, second / 3600), (14, second / 60 % 60), (17, second % 60)] {
            write(offset, number);
        }
        if let Some(micros) = self.micros.map(i64::from) {
            for (offset, number) in [(20, micros / 10_000), (22, micros / 100 % 100), (24, micros % 100)] {
                write(offset, number);
            }
        }
        let is_usual = (0..10_000).contains(&year);
        if is_usual {
            write(0, year / 100);
            write(2, year % 100);
        }
        let length = if self.micros.is_some() {
            text.len()
        } else {
            text[19] = b'Z';
            20
        };
        let text = str::from_utf8(&text[..length]).unwrap_or_default();
        if is_usual {
            return Cow::Borrowed(text);
        }
        let sign = if year < 0 { "-" } else { "" };
        Cow::Owned(format!("{sign}{:04}{}", year.unsigned_abs(), &text[4..]))
    }
}

/// Returns the date `days` days after 1970-01-01 in the proleptic Gregorian calendar ([days to
/// civil](https://howardhinnant.github.io/date_algorithms.html#civil_from_days)).
fn date(days: i64) -> (i64, i64, i64) {
    // Years start on 1 March here, so that a leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Returns a duration in nanoseconds in the format of Go's `Duration.String`.
pub(crate) fn duration(nanos: i64) -> String {
    let mut text = String::new();
    if nanos < 0 {
        text.push('-');
    }
    let nanos = nanos.unsigned_abs();
    // Writing to a string cannot fail.
    let _ = match nanos {
        0 => write!(text, "0s"),
        1..1_000 => write!(text, "{nanos}ns"),
        1_000..1_000_000 => write!(text, "{}µs", fraction(nanos, 1_000)),
        1_000_000..1_000_000_000 => write!(text, "{}ms", fraction(nanos, 1_000_000)),
        _ => {
            let minutes = nanos / 60_000_000_000;
            if minutes >= 60 {
                let _ = write!(text, "{}h", minutes / 60);
            }
            if minutes > 0 {
                let _ = write!(text, "{}m", minutes % 60);
            }
            write!(text, "{}s", fraction(nanos % 60_000_000_000, 1_000_000_000))
        }
    };
    text
}

/// Returns `number` as a decimal fraction of `one`, without trailing zeros.
fn fraction(number: u64, one: u64) -> String {
    let (whole, part) = (number / one, number % one);
    if part == 0 {
        return whole.to_string();
    }
    let digits = format!("{:01$}", part, one.ilog10() as usize);
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_match_go_output() {
        for (nanos, wanted) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (1_000_000_000, "1s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (5_025_300_000_000, "1h23m45.3s"),
            (-1_500_000_000, "-1.5s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(duration(nanos), wanted);
        }
    }

    struct Written;

    impl Visitor<'_> for Written {
        type Value = String;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a moment")
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }

    #[test]
    fn instants_match_go_output() {
        let written = |seconds, micros| Timestamp { seconds, micros }.visit(Written).expect("a text");
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_795_391_999, "2026-11-22T23:59:59Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (GO_ZERO_SECONDS + 1, "0001-01-01T00:00:01Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "10000-01-01T00:00:00Z"),
            (-62_167_219_201, "-0001-12-31T23:59:59Z"),
        ] {
            assert_eq!(written(seconds, None), wanted);
            assert_eq!(written(seconds, Some(90_041)), wanted.replace('Z', ".090041Z"));
        }
    }

    #[test]
    fn zero_time_of_go_is_null() {
        let varint = |mut value: u64| {
            let mut bytes = Vec::new();
            while value >= 0x80 {
                bytes.push(value as u8 | 0x80);
                value >>= 7;
            }
            bytes.push(value as u8);
            bytes
        };
        for seconds in
            [GO_ZERO_SECONDS - 1, GO_ZERO_SECONDS, GO_ZERO_SECONDS + 1, -1, 0, 1, 1_795_391_999, i64::MAX, i64::MIN]
        {
            for nanos in [None, Some(-1_000_000_000), Some(-1), Some(0), Some(999), Some(1_000), Some(1_000_000_000)] {
                let mut message = [vec![8], varint(seconds.cast_unsigned())].concat();
                if let Some(nanos) = nanos.map(i64::cast_unsigned) {
                    message.extend([vec![16], varint(nanos)].concat());
                }
                for has_micros in [false, true] {
                    let is_null = Timestamp::is_null(Reader::new(&message), has_micros).expect("a message");
                    let read = Timestamp::read(Reader::new(&message), has_micros).expect("a message");
                    assert_eq!(is_null, read.is_none(), "{seconds} {nanos:?}");
                }
            }
        }
        assert_eq!(Timestamp::is_null(Reader::new(&[]), false), Ok(true));
        assert_eq!(Timestamp::is_null(Reader::new(&[16, 1]), true), Ok(false));
    }

    #[test]
    fn dates_match_the_calendar() {
        for (days, wanted) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (20_779, (2026, 11, 22)),
            (-719_162, (1, 1, 1)),
            (-719_163, (0, 12, 31)),
            (-719_528, (0, 1, 1)),
            (2_932_896, (9999, 12, 31)),
        ] {
            assert_eq!(date(days), wanted, "{days}");
        }
    }

    #[test]
    fn invalid_utf8_bytes_are_replaced() {
        assert_eq!(lossy_text(b"cut \xe2\x82 off \xff"), "cut \u{fffd}\u{fffd} off \u{fffd}");
        assert_eq!(lossy_text("zwölf".as_bytes()), "zwölf");
    }
}
