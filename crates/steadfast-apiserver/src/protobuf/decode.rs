//! Decoder from protobuf messages to JSON, for the requests of `kubectl create configmap` and similar commands, and of
//! typed clients in Go.
//!
//! Fields outside the table are rejected, since dropping a field would lose data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::wire::{FieldIter, MAGIC, WireValue};
use crate::status::Status;
use crate::types::{self, Field, FieldShape, ValueType};

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// Decodes an object of a built-in kind, or a list of such objects, with its envelope.
///
/// Non-pointer fields of Go are omitted if they have no content: zero values and empty structs. Empty bytes stay,
/// because a message contains empty bytes only if the field is set.
///
/// # Errors
/// Returns a `Status` with code 400 if the body has no valid envelope. The code is 415 if the kind or one of its fields
/// is unknown.
pub fn decode(body: &[u8]) -> Result<Value, Status> {
    let malformed_body = || Status::bad_request("the body is not a valid object in protobuf");
    let envelope = body.strip_prefix(MAGIC).ok_or_else(malformed_body)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, value) in FieldIter(envelope) {
        match (number, value.ok_or_else(malformed_body)?) {
            (1, WireValue::Bytes(identity)) => {
                for (number, value) in FieldIter(identity) {
                    let Some(WireValue::Bytes(text)) = value else { return Err(malformed_body()) };
                    let text = decode_text(text);
                    *(if number == 1 { &mut api_version } else { &mut kind }) = text;
                }
            }
            (2, WireValue::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = decode_content(&api_version, &kind, raw).map_err(|failure| match failure {
        DecodeFailure::Malformed => malformed_body(),
        DecodeFailure::UnknownKind => unsupported(&kind, None),
        DecodeFailure::UnknownField(number) => unsupported(&kind, Some(number)),
    })?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

fn decode_content(api_version: &str, kind: &str, raw: &[u8]) -> Result<Map<String, Value>, DecodeFailure> {
    let fields = |kind| types::type_for_kind(api_version, kind).and_then(types::fields);
    let mut object = Map::new();
    if let Some(fields) = fields(kind) {
        decode_message(raw, fields, &mut Vec::new(), &mut object)?;
        return Ok(object);
    }
    let item_fields = kind.strip_suffix("List").and_then(fields).ok_or(DecodeFailure::UnknownKind)?;
    let mut items = Vec::new();
    for (number, value) in FieldIter(raw) {
        let (Some(WireValue::Bytes(bytes)), 1 | 2) = (value, number) else { return Err(DecodeFailure::Malformed) };
        let mut found = Map::new();
        let fields = if number == 1 { types::fields("meta.v1.ListMeta").unwrap_or_default() } else { item_fields };
        decode_message(bytes, fields, &mut Vec::new(), &mut found)?;
        if number == 1 {
            object.insert("metadata".to_owned(), found.into());
        } else {
            items.push(found.into());
        }
    }
    object.insert("items".to_owned(), Value::Array(items));
    Ok(object)
}

fn unsupported(kind: &str, field: Option<u64>) -> Status {
    let location = field.map_or_else(|| kind.to_owned(), |number| format!("field {number} within {kind}"));
    let message =
        format!("415: Unsupported Media Type: {location} is not read from protobuf by this server, send JSON");
    Status::new(415, "UnsupportedMediaType", message)
}

enum DecodeFailure {
    Malformed,
    UnknownKind,
    UnknownField(u64),
}

/// Decodes a message into an object. `path` contains the numbers of the enclosing embedded structs.
fn decode_message(
    bytes: &[u8],
    fields: &'static [Field],
    path: &mut Vec<u64>,
    object: &mut Map<String, Value>,
) -> Result<(), DecodeFailure> {
    for (number, value) in FieldIter(bytes) {
        let value = value.ok_or(DecodeFailure::Malformed)?;
        // The path identifies fields of nested inline structs. Only success must restore the path, since an error ends
        // the decoding.
        path.push(number);
        if let Some(field) = fields.iter().find(|field| field.numbers == *path) {
            put_field(field, &value, object)?;
        } else if fields.iter().any(|field| field.numbers.starts_with(path)) {
            // Inline structs of Go are embedded messages, at a path of several field numbers.
            let WireValue::Bytes(embedded) = value else { return Err(DecodeFailure::Malformed) };
            decode_message(embedded, fields, path, object)?;
        } else if !value.is_zero() {
            // Without this field, the stored object would lose data.
            return Err(DecodeFailure::UnknownField(number));
        }
        path.pop();
    }
    Ok(())
}

fn put_field(field: &Field, value: &WireValue<'_>, object: &mut Map<String, Value>) -> Result<(), DecodeFailure> {
    match field.shape {
        FieldShape::Map(value_type) => {
            let (key, value) = map_entry(value, |value| decode_value(value, value_type), value_type)?;
            object.entry(field.name).or_insert_with(|| json!({}))[key] = value;
        }
        FieldShape::MapOfLists(value_type) => {
            let (key, value) = map_entry(value, |value| decode_items(value, value_type), value_type)?;
            object.entry(field.name).or_insert_with(|| json!({}))[key] = value;
        }
        FieldShape::List(value_type) => {
            let item = decode_value(value, value_type)?;
            if let Value::Array(items) = object.entry(field.name).or_insert_with(|| json!([])) {
                items.push(item);
            }
        }
        FieldShape::One(value_type) => {
            let decoded = decode_value(value, value_type)?;
            // Messages always contain plain fields. JSON omits their zero values.
            let is_zero = match value_type {
                ValueType::Json(_) => decoded.is_null(),
                // Messages contain empty bytes only if the field is set.
                ValueType::Bytes => false,
                ValueType::IntOrString => decoded == 0,
                _ => is_empty(&decoded),
            };
            // A pointer distinguishes zero from absent, so that zero must be kept.
            if field.is_pointer || !is_zero {
                object.insert(field.name.to_owned(), decoded);
            }
        }
    }
    Ok(())
}

fn decode_value(value: &WireValue<'_>, value_type: ValueType) -> Result<Value, DecodeFailure> {
    Ok(match (value_type, value) {
        (ValueType::Text, WireValue::Bytes(bytes)) => text_value(bytes),
        (ValueType::Bytes, WireValue::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        (ValueType::Bool, WireValue::Varint(number)) => (*number != 0).into(),
        (ValueType::Integer32 | ValueType::Integer64, WireValue::Varint(number)) => number.cast_signed().into(),
        (ValueType::Time, WireValue::Bytes(bytes)) => decode_time(bytes, false)?,
        (ValueType::MicroTime, WireValue::Bytes(bytes)) => decode_time(bytes, true)?,
        (ValueType::IntOrString, WireValue::Bytes(bytes)) => int_or_string(bytes)?,
        (ValueType::Quantity, WireValue::Bytes(bytes)) => text_value(single_field(bytes)?),
        (ValueType::Double, WireValue::Fixed64(bits)) => f64::from_bits(*bits).into(),
        (ValueType::Json(name), WireValue::Bytes(bytes)) => decode_union(name, bytes)?,
        (ValueType::Named(name), WireValue::Bytes(bytes)) => decode_named(name, bytes)?,
        _ => return Err(DecodeFailure::Malformed),
    })
}

fn decode_named(name: &str, bytes: &[u8]) -> Result<Value, DecodeFailure> {
    let mut object = Map::new();
    decode_message(bytes, types::fields(name).unwrap_or_default(), &mut Vec::new(), &mut object)?;
    Ok(Value::Object(object))
}

/// Decodes a type with several forms: verbatim JSON, or a schema and its alternatives.
fn decode_union(name: &str, bytes: &[u8]) -> Result<Value, DecodeFailure> {
    if !name.starts_with("JSONSchemaPropsOr") {
        return Ok(match single_field(bytes)? {
            [] => Value::Null,
            json => serde_json::from_slice(json).map_err(|_| DecodeFailure::Malformed)?,
        });
    }
    let (mut found, mut alternatives) = (Value::Null, Vec::new());
    for (number, value) in FieldIter(bytes) {
        match (name, number, value.ok_or(DecodeFailure::Malformed)?) {
            ("JSONSchemaPropsOrBool", 1, WireValue::Varint(allows)) => found = (allows != 0).into(),
            // The message contains the flag before the schema. A schema implies `true`, so it replaces the flag.
            ("JSONSchemaPropsOrBool", 2, WireValue::Bytes(schema)) | (_, 1, WireValue::Bytes(schema)) => {
                found = decode_named(SCHEMA, schema)?;
            }
            ("JSONSchemaPropsOrArray", 2, WireValue::Bytes(schema)) => alternatives.push(decode_named(SCHEMA, schema)?),
            ("JSONSchemaPropsOrStringArray", 2, WireValue::Bytes(name)) => alternatives.push(text_value(name)),
            _ => return Err(DecodeFailure::Malformed),
        }
    }
    Ok(if alternatives.is_empty() { found } else { alternatives.into() })
}

fn text_value(bytes: &[u8]) -> Value {
    decode_text(bytes).into()
}

/// Decodes a string. Each invalid byte of UTF-8 becomes a replacement character, as in Go's JSON.
fn decode_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    // Go replaces each invalid byte separately.
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// Returns the content of a message with a single field.
fn single_field(bytes: &[u8]) -> Result<&[u8], DecodeFailure> {
    match FieldIter(bytes).next() {
        None => Ok(&[]),
        Some((1, Some(WireValue::Bytes(content)))) => Ok(content),
        Some(_) => Err(DecodeFailure::Malformed),
    }
}

/// Decodes the items of a list that is wrapped in a message, since map values cannot be lists.
fn decode_items(value: &WireValue<'_>, value_type: ValueType) -> Result<Value, DecodeFailure> {
    let WireValue::Bytes(bytes) = value else { return Err(DecodeFailure::Malformed) };
    let items = FieldIter(bytes).map(|(_, item)| decode_value(&item.ok_or(DecodeFailure::Malformed)?, value_type));
    items.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn map_entry(
    entry: &WireValue<'_>,
    read: impl Fn(&WireValue<'_>) -> Result<Value, DecodeFailure>,
    value_type: ValueType,
) -> Result<(String, Value), DecodeFailure> {
    let WireValue::Bytes(entry) = entry else { return Err(DecodeFailure::Malformed) };
    let (mut key, mut found) = (String::new(), None);
    for (number, value) in FieldIter(entry) {
        match (number, value.ok_or(DecodeFailure::Malformed)?) {
            (1, WireValue::Bytes(bytes)) => key = decode_text(bytes),
            (2, value) => found = Some(read(&value)?),
            _ => return Err(DecodeFailure::Malformed),
        }
    }
    // Protobuf omits an empty value of a map entry.
    let empty = || if matches!(value_type, ValueType::Text | ValueType::Bytes) { "".into() } else { Value::Null };
    Ok((key, found.unwrap_or_else(empty)))
}

/// Decodes a time in seconds, or in microseconds if `has_microseconds`, to its JSON form.
fn decode_time(bytes: &[u8], has_microseconds: bool) -> Result<Value, DecodeFailure> {
    let (mut seconds, mut nanoseconds) = (None, 0);
    for (number, value) in FieldIter(bytes) {
        match (number, value) {
            (1, Some(WireValue::Varint(value))) => seconds = Some(value.cast_signed()),
            (2, Some(WireValue::Varint(value))) => {
                nanoseconds = i32::try_from(value).map_err(|_| DecodeFailure::Malformed)?;
            }
            _ => return Err(DecodeFailure::Malformed),
        }
    }
    // An empty message is a null time in Go.
    let Some(seconds) = seconds else { return Ok(Value::Null) };
    let time = Timestamp::new(seconds, nanoseconds).map_err(|_| DecodeFailure::Malformed)?;
    let format = if has_microseconds { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(time.strftime(format).to_string().into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeFailure> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for (field, value) in FieldIter(bytes) {
        match (field, value.ok_or(DecodeFailure::Malformed)?) {
            (1, WireValue::Varint(kind)) => is_text = kind != 0,
            (2, WireValue::Varint(value)) => number = value.cast_signed(),
            (3, WireValue::Bytes(value)) => text = decode_text(value),
            _ => return Err(DecodeFailure::Malformed),
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MAGIC, decode};

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        versioned_envelope("v1", kind, raw)
    }

    fn versioned_envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let identity = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &identity), field(2, raw)].concat()
    }

    #[test]
    fn objects_are_decoded_from_their_envelope() {
        let metadata = [field(1, b"a"), field(2, b""), field(3, b"default")].concat();
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &metadata), field(2, &entry)].concat();
        let read = decode(&envelope("ConfigMap", &raw)).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "default"}, "data": {"k": "v"},
        });
        assert_eq!(read, expected);
        let secret = decode(&envelope("Secret", &raw)).unwrap();
        assert_eq!(secret["data"]["k"], "dg==");
    }

    #[test]
    fn lease_keeps_microseconds_and_empty_holder() {
        // Second 1 and 2 ms (2,000,000 ns) after 1970.
        let renewed = [0x08, 1, 0x10, 0x80, 0x89, 0x7a];
        let spec = [field(1, b""), field(4, &renewed)].concat();
        let lease = decode(&versioned_envelope("coordination.k8s.io/v1", "Lease", &field(2, &spec))).unwrap();
        assert_eq!(lease["spec"], json!({"holderIdentity": "", "renewTime": "1970-01-01T00:00:01.002000Z"}));
    }

    #[test]
    fn embedded_structs_are_flattened() {
        // Field numbers: `spec` of a pod is 2, and `volumes` of a spec is 1. A volume has `name` (1) and the inline
        // struct `volumeSource` (2). In the inline struct, `emptyDir` is 2 and `secret` is 6.
        let secret = field(6, &field(1, b"s"));
        let volumes = [
            field(1, &[field(1, b"a"), field(2, &secret)].concat()),
            field(1, &[field(1, b"b"), field(2, &field(2, b""))].concat()),
        ];
        let pod = decode(&envelope("Pod", &field(2, &volumes.concat()))).unwrap();
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "a", "secret": {"secretName": "s"}}, {"name": "b", "emptyDir": {}}])
        );
    }

    #[test]
    fn unknown_fields_and_kinds_are_rejected() {
        assert_eq!(decode(&envelope("ConfigMap", &field(9, b"x"))).unwrap_err().code, 415);
        assert_eq!(decode(&envelope("Unheard", b"")).unwrap_err().code, 415);
        assert_eq!(decode(&envelope("ConfigMap", b"\x0a\x7f")).unwrap_err().code, 400);
        assert_eq!(decode(b"{}").unwrap_err().code, 400);
    }
}
