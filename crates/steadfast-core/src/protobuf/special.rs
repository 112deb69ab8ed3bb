//! Messages that are not objects in JSON.

use serde::de::Visitor;

use super::error::Error;
use super::message::ValueType;
use super::numbers::integer;
use super::table::table;
use super::text::text;
use super::wire::{Reader, WireError};

/// Value of one of several types.
pub(crate) enum UnionValue<'de> {
    Null,
    Bool(bool),
    Schema(Reader<'de>),
    /// List of values of this type, in the fields with the number 2.
    Several(ValueType),
}

/// Reads a schema or its alternative.
pub(crate) fn read_union(value: ValueType, mut reader: Reader<'_>) -> Result<UnionValue<'_>, Error> {
    let (mut choice, mut several) = (UnionValue::Null, None);
    while let Some(tag) = reader.tag()? {
        match (value, tag.number) {
            (ValueType::SchemaOrBool, 1) => {
                let allows = reader.number(tag.wire)? != 0;
                // A schema takes precedence, independent of the order of the fields.
                if !matches!(choice, UnionValue::Schema(_)) {
                    choice = UnionValue::Bool(allows);
                }
            }
            (ValueType::SchemaOrBool, 2) | (_, 1) => choice = UnionValue::Schema(reader.delimited(tag.wire)?),
            (ValueType::SchemaOrArray, 2) => several = Some(ValueType::Message(table().schema)),
            (ValueType::SchemaOrTexts, 2) => several = Some(ValueType::Text),
            _ => {}
        }
        // The elements stay unread for the caller.
        if several.is_some() {
            break;
        }
        if !matches!(tag.number, 1 | 2) {
            reader.skip(tag.wire)?;
        }
    }
    Ok(match (several, choice) {
        (Some(elements), _) => UnionValue::Several(elements),
        // An empty message denotes `false`.
        (None, UnionValue::Null) if value == ValueType::SchemaOrBool => UnionValue::Bool(false),
        (None, choice) => choice,
    })
}

/// Returns the field with the number 1 of a message that defines no other field. Unknown fields are skipped.
pub(crate) fn only_field(mut message: Reader<'_>) -> Result<Option<Reader<'_>>, WireError> {
    let mut found = None;
    while let Some(tag) = message.tag()? {
        match tag.number {
            1 => found = Some(message.delimited(tag.wire)?),
            _ => message.skip(tag.wire)?,
        }
    }
    Ok(found)
}

/// Reads a duration in nanoseconds.
pub(crate) fn nanos(mut message: Reader<'_>) -> Result<i64, WireError> {
    let mut nanos = 0;
    while let Some(tag) = message.tag()? {
        match tag.number {
            1 => nanos = message.number(tag.wire)?.cast_signed(),
            _ => message.skip(tag.wire)?,
        }
    }
    Ok(nanos)
}

/// Presents a number or a text, by the type field of the message.
pub(crate) fn int_or_string<'de, V: Visitor<'de>>(message: Reader<'de>, visitor: V) -> Result<V::Value, Error> {
    match read_int_or_string(message)? {
        IntOrString::Int(number) => integer(i64::from(number), visitor),
        IntOrString::String(written) => text(written, visitor),
    }
}

/// Content of an `IntOrString`.
enum IntOrString<'de> {
    Int(i32),
    String(&'de [u8]),
}

/// Reads an `IntOrString`. Not generic, so that it is compiled once instead of once per visitor.
fn read_int_or_string(mut message: Reader<'_>) -> Result<IntOrString<'_>, WireError> {
    let (mut kind, mut number, mut written) = (0, 0, message.empty());
    let at = message.at();
    while let Some(tag) = message.tag()? {
        match tag.number {
            1 => kind = message.number(tag.wire)?,
            2 => number = message.number(tag.wire)? as i32,
            3 => written = message.delimited(tag.wire)?,
            _ => message.skip(tag.wire)?,
        }
    }
    match kind {
        0 => Ok(IntOrString::Int(number)),
        1 => Ok(IntOrString::String(written.rest())),
        _ => Err(WireError { at }),
    }
}
