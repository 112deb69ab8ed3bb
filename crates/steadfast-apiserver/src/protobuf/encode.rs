//! Encoder from JSON to protobuf messages.
//!
//! Like in Go, non-pointer fields are written even if empty, and fields are ordered by number.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::wire::{MAGIC, put_bytes, put_double, put_head, put_message, put_number};
use crate::types::{self, Field, FieldShape, ValueType};

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Encodes an object of a built-in kind, a list of such objects or a `Status`, with its envelope. Returns `None` for an
/// unknown kind.
///
/// Unknown fields are omitted. A value of a wrong type gets another wire type, so decoders reject the field.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = match fields(api_version, kind, object) {
        Some(message) => message,
        None => list(api_version, kind.strip_suffix("List")?, object)?,
    };
    Some(enveloped(api_version, kind, &message))
}

fn list(api_version: &str, kind: &str, list: &Value) -> Option<Vec<u8>> {
    types::type_for_kind(api_version, kind)?;
    let mut message = Vec::new();
    put_message(1, &mut message, |buffer| write_named("meta.v1.ListMeta", list.get("metadata"), buffer));
    // The items have no type: the envelope of the list implies it.
    for item in list.get("items").and_then(Value::as_array).into_iter().flatten() {
        put_item(&fields(api_version, kind, item)?, &mut message);
    }
    Some(message)
}

/// Encodes an object without its envelope; `None` for a kind that is not built in.
pub(crate) fn fields(api_version: &str, kind: &str, object: &Value) -> Option<Vec<u8>> {
    let name = types::type_for_kind(api_version, kind)?;
    let mut message = Vec::with_capacity(512);
    write_named(name, Some(object), &mut message);
    Some(message)
}

/// Adds the envelope with the type of the message.
pub(crate) fn enveloped(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(message.len() + 64);
    put_envelope_head(api_version, kind, message.len(), &mut bytes);
    bytes.extend_from_slice(message);
    bytes.extend_from_slice(ENVELOPE_TAIL);
    bytes
}

/// Empty encoding and content type, which the envelope always contains.
const ENVELOPE_TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

fn put_envelope_head(api_version: &str, kind: &str, length: usize, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(MAGIC);
    put_message(1, buffer, |buffer| {
        put_bytes(1, api_version.as_bytes(), buffer);
        put_bytes(2, kind.as_bytes(), buffer);
    });
    // The length precedes the content, which can be written later in pieces.
    put_head(2, length, buffer);
}

/// Returns the part before the items of a list. `length` is the length of all items with their heads.
pub(crate) fn list_head(api_version: &str, kind: &str, metadata: &Value, length: usize) -> Vec<u8> {
    let (mut bytes, mut message) = (Vec::new(), Vec::new());
    put_message(1, &mut message, |buffer| write_named("meta.v1.ListMeta", Some(metadata), buffer));
    put_envelope_head(api_version, kind, message.len() + length, &mut bytes);
    bytes.extend_from_slice(&message);
    bytes
}

/// Returns the part after the items of a list.
pub(crate) fn list_tail() -> &'static [u8] {
    ENVELOPE_TAIL
}

/// Writes an item of a list.
pub(crate) fn put_item(message: &[u8], buffer: &mut Vec<u8>) {
    put_bytes(2, message, buffer);
}

/// Encodes an event of a watch, preceded by its length. `object` has its envelope.
pub(crate) fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(object.len() + 32);
    put_bytes(1, kind.as_bytes(), &mut message);
    put_message(2, &mut message, |buffer| put_bytes(1, object, buffer));
    let length = u32::try_from(message.len()).expect("an object below 4 GiB");
    [length.to_be_bytes().as_slice(), &message].concat()
}

/// Adds an unknown field of `bytes` bytes to the first object of a body.
pub(crate) fn with_unknown_field(body: &[u8], bytes: usize) -> Vec<u8> {
    let mut field = Vec::with_capacity(bytes + 16);
    put_bytes(UNKNOWN_FIELD_NUMBER, &vec![b'x'; bytes], &mut field);
    // A body starts with the magic bytes, and a watch event with its length.
    if let Some(rest) = body.strip_prefix(MAGIC) {
        return [MAGIC, &field, rest].concat();
    }
    let Some((length, rest)) = body.split_first_chunk() else { return field };
    // The length before an event covers the added field too.
    let length = u32::from_be_bytes(*length).saturating_add(u32::try_from(field.len()).unwrap_or(u32::MAX));
    [length.to_be_bytes().as_slice(), &field, rest].concat()
}

/// Number of an unknown field in every top-level message.
const UNKNOWN_FIELD_NUMBER: u64 = 15;

fn write_named(name: &'static str, object: Option<&Value>, buffer: &mut Vec<u8>) {
    let fields = types::type_named(name).map(types::StructType::fields_by_number).unwrap_or_default();
    let no_fields = Map::new();
    write_fields(object.and_then(Value::as_object).unwrap_or(&no_fields), &fields, 0, buffer);
}

/// Writes fields of one message, `depth` levels below the root. The first `depth` numbers of their paths are equal.
fn write_fields(object: &Map<String, Value>, fields: &[&'static Field], depth: usize, buffer: &mut Vec<u8>) {
    // Fields with an equal number belong to one embedded message.
    for same_number_fields in fields.chunk_by(|one, other| one.numbers[depth] == other.numbers[depth]) {
        let number = same_number_fields[0].numbers[depth];
        match same_number_fields {
            [field] if field.numbers.len() == depth + 1 => write_field(number, field, object.get(field.name), buffer),
            embedded => put_message(number, buffer, |buffer| write_fields(object, embedded, depth + 1, buffer)),
        }
    }
}

fn write_field(number: u64, field: &Field, value: Option<&Value>, buffer: &mut Vec<u8>) {
    match (field.shape, value.filter(|value| !value.is_null())) {
        (FieldShape::One(kind), Some(value)) => write_single(number, kind, value, buffer),
        // Absent bytes differ from empty bytes.
        (FieldShape::One(kind), None) if !field.is_pointer && kind != ValueType::Bytes => {
            write_zero(number, kind, buffer);
        }
        (_, None) => {}
        (FieldShape::List(kind), Some(Value::Array(items))) => {
            for item in items {
                write_single(number, kind, item, buffer);
            }
        }
        (FieldShape::Map(kind), Some(Value::Object(entries))) => {
            write_map(number, entries, buffer, |value, buffer| write_single(2, kind, value, buffer));
        }
        (FieldShape::MapOfLists(kind), Some(Value::Object(entries))) => {
            write_map(number, entries, buffer, |value, buffer| {
                let items = value.as_array().into_iter().flatten();
                put_message(2, buffer, |buffer| items.for_each(|item| write_single(1, kind, item, buffer)));
            });
        }
        (FieldShape::List(kind) | FieldShape::Map(kind) | FieldShape::MapOfLists(kind), Some(_)) => {
            write_mismatch(number, kind, buffer);
        }
    }
}

fn write_map(
    number: u64,
    entries: &Map<String, Value>,
    buffer: &mut Vec<u8>,
    write_value: impl Fn(&Value, &mut Vec<u8>),
) {
    // Sorted keys give equal objects equal bytes, as on the real server.
    for (key, value) in entries.iter().collect::<BTreeMap<_, _>>() {
        put_message(number, buffer, |buffer| {
            put_bytes(1, key.as_bytes(), buffer);
            write_value(value, buffer);
        });
    }
}

/// Writes the value that represents an absent field.
fn write_zero(number: u64, kind: ValueType, buffer: &mut Vec<u8>) {
    match kind {
        ValueType::Bool | ValueType::Integer32 | ValueType::Integer64 => put_number(number, 0, buffer),
        ValueType::Double => put_double(number, 0.0, buffer),
        ValueType::Quantity => write_single(number, kind, &"0".into(), buffer),
        ValueType::IntOrString => write_single(number, kind, &0.into(), buffer),
        ValueType::Named(name) => put_message(number, buffer, |buffer| write_named(name, None, buffer)),
        _ => put_head(number, 0, buffer),
    }
}

fn write_single(number: u64, kind: ValueType, value: &Value, buffer: &mut Vec<u8>) {
    match (kind, value) {
        (_, Value::Null) => write_zero(number, kind, buffer),
        (ValueType::Text, Value::String(text)) => put_bytes(number, text.as_bytes(), buffer),
        (ValueType::Bool, Value::Bool(flag)) => put_number(number, u64::from(*flag), buffer),
        (ValueType::Named(name), Value::Object(_)) => {
            put_message(number, buffer, |buffer| write_named(name, Some(value), buffer));
        }
        (ValueType::Json(name), _) => put_message(number, buffer, |buffer| write_union(name, value, buffer)),
        _ => {
            if write_normalized(number, kind, value, buffer).is_none() {
                write_mismatch(number, kind, buffer);
            }
        }
    }
}

/// Converts a value from JSON to protobuf, and writes the result. Returns `None` for a value of a wrong type.
fn write_normalized(number: u64, kind: ValueType, value: &Value, buffer: &mut Vec<u8>) -> Option<()> {
    match kind {
        ValueType::Integer32 | ValueType::Integer64 => put_number(number, value.as_i64()?.cast_unsigned(), buffer),
        ValueType::Double => put_double(number, value.as_f64()?, buffer),
        ValueType::Bytes => put_bytes(number, &STANDARD.decode(value.as_str()?).ok()?, buffer),
        ValueType::Time | ValueType::MicroTime => {
            let time: Timestamp = value.as_str()?.parse().ok()?;
            // `metav1.Time` has seconds on the wire, although the message has a field for nanoseconds.
            let nanoseconds = if kind == ValueType::Time { 0 } else { time.subsec_microsecond() * 1000 };
            put_message(number, buffer, |buffer| {
                put_number(1, time.as_second().cast_unsigned(), buffer);
                put_number(2, i64::from(nanoseconds).cast_unsigned(), buffer);
            });
        }
        ValueType::Quantity => {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            put_message(number, buffer, |buffer| put_bytes(1, text.as_bytes(), buffer));
        }
        ValueType::IntOrString => {
            // The message contains an integer and a text. Its first field selects the valid one.
            let (integer, text) = match value {
                Value::String(text) => (0, text.as_str()),
                other => (other.as_i64()?, ""),
            };
            put_message(number, buffer, |buffer| {
                put_number(1, u64::from(value.is_string()), buffer);
                put_number(2, integer.cast_unsigned(), buffer);
                put_bytes(3, text.as_bytes(), buffer);
            });
        }
        _ => return None,
    }
    Some(())
}

/// Writes a value whose type permits several JSON types, such as a schema or a boolean.
fn write_union(name: &str, value: &Value, buffer: &mut Vec<u8>) {
    let schema = |number, value, buffer: &mut Vec<u8>| write_single(number, ValueType::Named(SCHEMA), value, buffer);
    match (name, value) {
        ("JSONSchemaPropsOrBool", value) => {
            put_number(1, u64::from(value.as_bool().unwrap_or(true)), buffer);
            if value.is_object() {
                schema(2, value, buffer);
            }
        }
        ("JSONSchemaPropsOrArray", Value::Array(schemas)) => {
            for value in schemas {
                schema(2, value, buffer);
            }
        }
        ("JSONSchemaPropsOrStringArray", Value::Array(names)) => {
            for name in names {
                write_single(2, ValueType::Text, name, buffer);
            }
        }
        ("JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray", value) => schema(1, value, buffer),
        (_, value) => put_bytes(1, value.to_string().as_bytes(), buffer),
    }
}

/// Writes a value of a wrong type with a wire type that differs from the field's.
fn write_mismatch(number: u64, kind: ValueType, buffer: &mut Vec<u8>) {
    match kind {
        ValueType::Bool | ValueType::Integer32 | ValueType::Integer64 | ValueType::Double => {
            put_bytes(number, b"misfit", buffer);
        }
        _ => put_number(number, 7, buffer),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::fields;
    use crate::resources::Registry;

    #[test]
    fn every_served_kind_has_a_message() {
        let mut count = 0;
        for served in Registry::with_declared(&[]).all() {
            for version in &served.versions {
                let message = fields(&served.api_version(version), &served.kind, &json!({}));
                assert!(message.is_some(), "{} {version} has no message", served.kind);
                count += 1;
            }
        }
        assert!(count > 50, "only {count} kinds");
    }
}
