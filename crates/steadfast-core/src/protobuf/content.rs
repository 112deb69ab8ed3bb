//! Values on the wire.

use super::message::ValueType;
use super::text::Timestamp;
use super::wire::{Reader, Wire, WireError};

/// Content of a value on the wire.
#[derive(Clone, Copy)]
pub(crate) enum Content<'de> {
    /// No value; JSON contains null.
    Null,
    /// Integer, Boolean, or the bits of a floating-point number.
    Number(u64),
    /// Content of a value with a length: a text, bytes or a message.
    Inside(Reader<'de>),
    /// Several values; the reader is at the first of them.
    Deferred,
}

impl<'de> Content<'de> {
    /// Reads a `value` of the wire type `wire`.
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'de>, wire: Wire, value: ValueType) -> Result<Self, WireError> {
        match (wire, value) {
            (Wire::Varint, ValueType::Bool | ValueType::Int32 | ValueType::Int64) => reader.varint().map(Self::Number),
            (Wire::Fixed64, ValueType::Double) => reader.fixed64().map(Self::Number),
            (_, ValueType::Bool | ValueType::Int32 | ValueType::Int64 | ValueType::Double) => {
                Err(WireError { at: reader.at() })
            }
            _ => reader.delimited(wire).map(Self::Inside),
        }
    }

    /// Returns Go's zero value for a missing value.
    pub(crate) fn zero(reader: &Reader<'de>, value: ValueType) -> Self {
        match value {
            ValueType::Bool | ValueType::Int32 | ValueType::Int64 | ValueType::Double => Self::Number(0),
            _ => Self::Inside(reader.empty()),
        }
    }

    /// Returns whether JSON omits the value under `omitempty`.
    #[inline]
    pub(crate) fn is_empty(&self, value: ValueType) -> Result<bool, WireError> {
        Ok(match (self, value) {
            (Self::Number(number), ValueType::Int32) => *number as i32 == 0,
            (Self::Number(number), ValueType::Double) => f64::from_bits(*number) == 0.0,
            (Self::Number(number), _) => *number == 0,
            (Self::Inside(text), ValueType::Text | ValueType::Bytes) => text.rest().is_empty(),
            (Self::Inside(time), ValueType::Time) => Timestamp::is_null(*time, false)?,
            _ => false,
        })
    }
}
