//! JSON encoding of objects.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde_json::Value;

/// Encodes the fields of an object, without the braces, the kind and the API version. Every JSON encoding of the whole
/// object contains the result.
///
/// The metadata comes first. If `revision` is given, it replaces the resource version in the metadata.
pub(crate) fn encode_fields(object: &Value, revision: Option<u64>) -> Bytes {
    let mut buffer = BytesMut::with_capacity(512).writer();
    let mut separator = "";
    let mut put = |buffer: &mut bytes::buf::Writer<BytesMut>, key: &str, value: &Value| {
        buffer.get_mut().put_slice(separator.as_bytes());
        separator = ",";
        put_json(buffer, key);
        buffer.get_mut().put_u8(b':');
        put_json(buffer, value);
    };
    let Some(object) = object.as_object() else { return Bytes::new() };
    // `metadata` comes first, as in the encoding of Go structs.
    if let Some(metadata) = object.get("metadata") {
        if let Some(revision) = revision {
            let mut metadata = metadata.clone();
            metadata["resourceVersion"] = revision.to_string().into();
            put(&mut buffer, "metadata", &metadata);
        } else {
            put(&mut buffer, "metadata", metadata);
        }
    }
    for (key, value) in object {
        if !matches!(key.as_str(), "kind" | "apiVersion" | "metadata") {
            put(&mut buffer, key, value);
        }
    }
    buffer.into_inner().freeze()
}

/// Writes an object with its kind, version and encoded fields.
pub(crate) fn put_object(buffer: &mut BytesMut, kind: &str, api_version: &str, fields: &[u8]) {
    buffer.put_slice(b"{\"kind\":\"");
    buffer.put_slice(kind.as_bytes());
    buffer.put_slice(b"\",\"apiVersion\":\"");
    buffer.put_slice(api_version.as_bytes());
    buffer.put_slice(b"\"");
    if !fields.is_empty() {
        buffer.put_u8(b',');
        buffer.put_slice(fields);
    }
    buffer.put_u8(b'}');
}

/// Writes an item of a typed list. Only the list has a kind and an API version, not its items.
pub(crate) fn put_typed_item(buffer: &mut BytesMut, fields: &[u8]) {
    buffer.put_u8(b'{');
    buffer.put_slice(fields);
    buffer.put_u8(b'}');
}

/// Encodes a JSON value.
pub(crate) fn json(value: &Value) -> Bytes {
    let mut buffer = BytesMut::new().writer();
    put_json(&mut buffer, value);
    buffer.into_inner().freeze()
}

fn put_json<T: Serialize + ?Sized>(buffer: &mut bytes::buf::Writer<BytesMut>, value: &T) {
    serde_json::to_writer(buffer, value).expect("a JSON value with text keys, written to memory, cannot fail");
}
