//! Values on the wire.

use super::message::Value;
use super::text::Timestamp;
use super::wire::{Fault, Reader, Wire};

/// Content of a value on the wire.
#[derive(Clone, Copy)]
pub(crate) enum Content<'de> {
    /// No value; JSON contains null.
    Null,
    Number(u64),
    Inside(Reader<'de>),
    /// Several values; the reader is at the first of them.
    Next,
}

impl<'de> Content<'de> {
    /// Reads a `value` of the wire type `wire`.
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'de>, wire: Wire, value: Value) -> Result<Self, Fault> {
        match (wire, value) {
            (Wire::Varint, Value::Bool | Value::Int32 | Value::Int64) => reader.varint().map(Self::Number),
            (Wire::Fixed64, Value::Double) => reader.fixed64().map(Self::Number),
            (_, Value::Bool | Value::Int32 | Value::Int64 | Value::Double) => Err(Fault { at: reader.at() }),
            _ => reader.delimited(wire).map(Self::Inside),
        }
    }

    /// Returns Go's zero value for a missing value.
    pub(crate) fn zero(reader: &Reader<'de>, value: Value) -> Self {
        match value {
            Value::Bool | Value::Int32 | Value::Int64 | Value::Double => Self::Number(0),
            _ => Self::Inside(reader.empty()),
        }
    }

    /// Returns whether JSON omits the value under `omitempty`.
    #[inline]
    pub(crate) fn is_empty(&self, value: Value) -> Result<bool, Fault> {
        Ok(match (self, value) {
            (Self::Number(number), Value::Int32) => *number as i32 == 0,
            (Self::Number(number), Value::Double) => f64::from_bits(*number) == 0.0,
            (Self::Number(number), _) => *number == 0,
            (Self::Inside(text), Value::Text | Value::Bytes) => text.rest().is_empty(),
            (Self::Inside(time), Value::Time) => Timestamp::is_null(*time, false)?,
            _ => false,
        })
    }
}
