//! Numbers, presented as in the JSON of Go.

use serde::de::{Error as _, Visitor};

use super::error::Error;

/// Presents an integer. JSON distinguishes only negative integers by their sign.
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
    if !value.is_finite() {
        return Err(Error::custom("a number that JSON does not have"));
    }
    // Only these numbers are floats for a reader of JSON. Go writes all others without a fraction.
    if value.fract() != 0.0 || value.abs() >= 1e21 || value == 0.0 && value.is_sign_negative() {
        return visitor.visit_f64(value);
    }
    // Only the digits that distinguish a large number from its neighbours are written.
    let written = value.to_string();
    match (written.parse(), written.parse()) {
        (Ok(value), _) => visitor.visit_u64(value),
        (_, Ok(value)) => visitor.visit_i64(value),
        _ => visitor.visit_f64(value),
    }
}
