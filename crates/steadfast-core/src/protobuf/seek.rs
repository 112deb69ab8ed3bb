//! Decoding of a single field of a message, by the field numbers of its path.

use serde::Deserialize;

use super::content::Content;
use super::deserialize::{DEPTH, FieldValue, deeper};
use super::envelope::open;
use super::id::MessageId;
use super::message::{Count, Field, Message, Shape, Value};
use super::presented::AsJson;
use super::wire::Reader;

/// Value at the end of a path; `None` if it is missing or null.
pub(crate) struct Found<T>(pub(crate) Option<T>);

/// Decodes the field at `names` in the object `bytes` of type `id`, without decoding any other field.
///
/// Returns `None` if the field cannot be found or decoded in this way; [`decode_seed`](super::decode_seed) then
/// determines the reason.
pub(crate) fn decode_field<'de, T: Deserialize<'de>>(
    id: MessageId,
    bytes: &'de [u8],
    names: &[Box<str>],
) -> Option<Found<T>> {
    let (last, way) = names.split_last()?;
    let (_, mut reader) = open(Reader::new(bytes)).ok()?;
    let (mut message, mut depth) = (id.message(), DEPTH);
    for name in way {
        depth = deeper(depth, &reader).ok()?;
        let (field, before) = seek(message, reader, name)?;
        let (Value::Message(id), Count::One | Count::Maybe) = (field.value, field.count) else { return None };
        if id.message().shape != Shape::Object {
            return None;
        }
        reader.seek(before?);
        let tag = reader.tag().ok()??;
        (reader, message) = (reader.delimited(tag.wire).ok()?, id.message());
    }
    depth = deeper(depth, &reader).ok()?;
    let (field, before) = seek(message, reader, last)?;
    let Some(before) = before else {
        // Some fields exist in JSON even if the encoded message lacks them. Only the full decoder creates such fields.
        return (message.present_when_missing & (1 << field.number) == 0).then_some(Found(None));
    };
    reader.seek(before);
    let content = match field.count {
        Count::List | Count::Map => Content::Next,
        Count::Inline => return None,
        Count::One | Count::Maybe => {
            let tag = reader.tag().ok()??;
            Content::read(&mut reader, tag.wire, field.value).ok()?
        }
    };
    if field.count == Count::One && field.omit && content.is_empty(field.value).ok()? {
        return Some(Found(None));
    }
    let given = FieldValue { reader: &mut reader, field, value: field.value, content, depth };
    // After any error, the caller decodes the whole object and reports the precise position.
    Option::deserialize(AsJson(given)).ok().map(Found)
}

/// Finds the field `name` of a `message` and its offset, if it is present. Returns `None` if the message has no such
/// direct field, if the field occurs twice, or if the bytes are malformed.
fn seek(message: &'static Message, mut reader: Reader<'_>, name: &str) -> Option<(&'static Field, Option<usize>)> {
    let field = message.fields.iter().find(|field| field.name == name)?;
    let mut found = None;
    loop {
        let before = reader.at();
        let Some(tag) = reader.tag().ok()? else { return Some((field, found)) };
        if tag.number != field.number {
            reader.skip(tag.wire).ok()?;
            continue;
        }
        // A repeated field is invalid. The full decoder reports the error.
        if found.replace(before).is_some() {
            return None;
        }
        reader.seek(before);
        match field.count {
            Count::List | Count::Map => reader.skip_all(tag.number).ok()?,
            _ => reader.tag().and_then(|_| reader.skip(tag.wire)).ok()?,
        }
    }
}
