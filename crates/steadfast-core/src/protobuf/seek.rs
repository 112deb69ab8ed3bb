//! One field of a message, found by the numbers on the way to it.

use serde::Deserialize;

use super::content::Content;
use super::deserialize::{DEPTH, Given, deeper};
use super::envelope::open;
use super::id::MessageId;
use super::message::{Count, Field, Message, Shape, Value};
use super::presented::AsJson;
use super::wire::Reader;

/// What is at the end of a way; nothing where that is missing or null.
pub(crate) struct Found<T>(pub(crate) Option<T>);

/// Decodes the field that `names` lead to in the object in `bytes`, an `id`, without a look at what is beside the way.
///
/// None where it is not found and decoded like that: whatever the reason, [`decode_seed`](super::decode_seed) tells.
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
        reader.stand(before?);
        let tag = reader.tag().ok()??;
        (reader, message) = (reader.delimited(tag.wire).ok()?, id.message());
    }
    depth = deeper(depth, &reader).ok()?;
    let (field, before) = seek(message, reader, last)?;
    let Some(before) = before else {
        // JSON may have it all the same.
        return (message.told_of_absent & (1 << field.number) == 0).then_some(Found(None));
    };
    reader.stand(before);
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
    let given = Given { reader: &mut reader, field, value: field.value, content, depth };
    Option::deserialize(AsJson(given)).ok().map(Found)
}

/// The field `name` of a `message`, and where in it that begins, if it is there. None where the message does not have it as
/// a field of its own, or it is there twice, or something is malformed.
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
        if found.replace(before).is_some() {
            return None;
        }
        reader.stand(before);
        match field.count {
            Count::List | Count::Map => reader.skip_all(tag.number).ok()?,
            _ => reader.tag().and_then(|_| reader.skip(tag.wire)).ok()?,
        }
    }
}
