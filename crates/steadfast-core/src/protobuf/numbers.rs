//! Numbers, presented as in the JSON of Go.

use serde::de::{Error as _, Visitor};

use super::error::Error;

/// Presents an integer as `serde_json` does: only negative integers are signed.
#[inline]
pub(crate) fn integer<'de, V: Visitor<'de>>(value: i64, visitor: V) -> Result<V::Value, Error> {
    // `serde_json` also passes non-negative integers as `u64`, so types receive equal calls.
    match u64::try_from(value) {
        Ok(value) => visitor.visit_u64(value),
        Err(_) => visitor.visit_i64(value),
    }
}

/// Presents a floating-point number. Without a fraction, it is an integer in JSON, unless Go writes an exponent.
pub(crate) fn double<'de, V: Visitor<'de>>(value: f64, visitor: V) -> Result<V::Value, Error> {
    match json_number(value)? {
        JsonNumber::Float => visitor.visit_f64(value),
        JsonNumber::Unsigned(value) => visitor.visit_u64(value),
        JsonNumber::Signed(value) => visitor.visit_i64(value),
    }
}

/// Form of a floating-point number in JSON.
enum JsonNumber {
    Float,
    Unsigned(u64),
    Signed(i64),
}

/// Returns the form of `value` in JSON. Not generic, so that it is compiled once instead of once per visitor.
fn json_number(value: f64) -> Result<JsonNumber, Error> {
    if !value.is_finite() {
        return Err(Error::custom("a number that JSON does not have"));
    }
    // Only these numbers are floats for a reader of JSON. Go writes all others without a fraction.
    if value.fract() != 0.0 || value.abs() >= 1e21 || value == 0.0 && value.is_sign_negative() {
        return Ok(JsonNumber::Float);
    }
    // Only the digits that distinguish a large number from its neighbours are written.
    let written = value.to_string();
    Ok(match (written.parse(), written.parse()) {
        (Ok(value), _) => JsonNumber::Unsigned(value),
        (_, Ok(value)) => JsonNumber::Signed(value),
        _ => JsonNumber::Float,
    })
}
