//! Decoding of a single field of a message, by the field numbers of its path.

use serde::Deserialize;

use super::content::Content;
use super::deserialize::{FieldValue, MAX_DEPTH, deeper};
use super::envelope::open_envelope;
use super::json_view::AsJson;
use super::message::{Cardinality, Message, MessageField, Shape, ValueType};
use super::message_type::MessageType;
use super::wire::Reader;

/// Value of an existing field; `None` if the value is absent or null.
pub(crate) struct Found<T>(pub(crate) Option<T>);

/// Decodes the field at `names` in the object `bytes` of type `message_type`, without decoding any other field.
///
/// Returns `None` if the type has no such field, or if the field cannot be decoded in this way. The caller then uses
/// [`decode_seed`](super::decode_seed), which determines the reason. An absent value is `Some(Found(None))`.
pub(crate) fn decode_field<'de, T: Deserialize<'de>>(
    message_type: MessageType,
    bytes: &'de [u8],
    names: &[Box<str>],
) -> Option<Found<T>> {
    let (last, parents) = names.split_last()?;
    let (_, mut reader) = open_envelope(Reader::new(bytes)).ok()?;
    let (mut message, mut depth) = (message_type.message(), MAX_DEPTH);
    for name in parents {
        depth = deeper(depth, &reader).ok()?;
        let (field, offset) = seek(message, reader, name)?;
        let (ValueType::Message(message_type), Cardinality::Single | Cardinality::Optional) =
            (field.value, field.cardinality)
        else {
            return None;
        };
        if message_type.message().shape != Shape::Object {
            return None;
        }
        reader.seek(offset?);
        let tag = reader.tag().ok()??;
        (reader, message) = (reader.delimited(tag.wire).ok()?, message_type.message());
    }
    depth = deeper(depth, &reader).ok()?;
    let (field, offset) = seek(message, reader, last)?;
    let Some(offset) = offset else {
        // Some fields exist in JSON even if the encoded message lacks them. Only the full decoder creates such fields.
        return (message.present_when_missing & (1 << field.number) == 0).then_some(Found(None));
    };
    reader.seek(offset);
    let content = match field.cardinality {
        Cardinality::List | Cardinality::Map => Content::Deferred,
        Cardinality::Inline => return None,
        Cardinality::Single | Cardinality::Optional => {
            let tag = reader.tag().ok()??;
            Content::read(&mut reader, tag.wire, field.value).ok()?
        }
    };
    if field.cardinality == Cardinality::Single && field.omit && content.is_empty(field.value).ok()? {
        return Some(Found(None));
    }
    let field_value = FieldValue { reader: &mut reader, field, value: field.value, content, depth };
    // After any error, the caller decodes the whole object and reports the precise position.
    Option::deserialize(AsJson(field_value)).ok().map(Found)
}

/// Finds the field `name` of a `message` and its offset, if it is present. Returns `None` if the message has no such
/// direct field, if the field occurs twice, or if the bytes are malformed.
fn seek(
    message: &'static Message,
    mut reader: Reader<'_>,
    name: &str,
) -> Option<(&'static MessageField, Option<usize>)> {
    let field = message.fields.iter().find(|field| field.name == name)?;
    let mut found = None;
    loop {
        let offset = reader.at();
        let Some(tag) = reader.tag().ok()? else { return Some((field, found)) };
        if tag.number != field.number {
            reader.skip(tag.wire).ok()?;
            continue;
        }
        // No server writes a field twice, or a list in separate parts. The full decoder reports the error.
        if found.replace(offset).is_some() {
            return None;
        }
        reader.seek(offset);
        match field.cardinality {
            Cardinality::List | Cardinality::Map => reader.skip_all(tag.number).ok()?,
            _ => reader.tag().and_then(|_| reader.skip(tag.wire)).ok()?,
        }
    }
}
