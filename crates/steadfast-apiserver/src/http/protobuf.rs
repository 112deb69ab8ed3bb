//! Objects in protobuf, as `kubectl create configmap` and its like send them.
//!
//! What is known of the types is a table. A field that is not in it is refused instead of being lost.

mod schemas;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::status::Status;
use schemas::{Field, Holds, Presence};

pub(super) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every such body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Reads an object from the envelope it comes in.
pub(super) fn decode(body: &[u8]) -> Result<Value, Status> {
    let unreadable = || Status::bad_request("the body is no object in protobuf");
    let envelope = body.strip_prefix(MAGIC).ok_or_else(unreadable)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, value) in Fields(envelope) {
        match (number, value.ok_or_else(unreadable)?) {
            (1, Wire::Bytes(identity)) => {
                for (number, value) in Fields(identity) {
                    let Some(Wire::Bytes(text)) = value else { return Err(unreadable()) };
                    let text = String::from_utf8_lossy(text).into_owned();
                    *(if number == 1 { &mut api_version } else { &mut kind }) = text;
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let schema = schemas::of_kind(&kind).ok_or_else(|| unsupported(&kind, None))?;
    let mut object = message(raw, schema).map_err(|failure| match failure {
        Failure::Malformed => unreadable(),
        Failure::UnknownField(number) => unsupported(&kind, Some(number)),
    })?;
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    Ok(object)
}

fn unsupported(kind: &str, field: Option<u64>) -> Status {
    let what = field.map_or_else(|| kind.to_owned(), |number| format!("field {number} within {kind}"));
    let message = format!("415: Unsupported Media Type: {what} is not read from protobuf by this server, send JSON");
    Status::new(415, "UnsupportedMediaType", message)
}

enum Failure {
    Malformed,
    UnknownField(u64),
}

enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

impl Wire<'_> {
    /// Whether it says nothing: plain fields are written with their zero values, messages full of those among them.
    fn is_zero(&self) -> bool {
        match self {
            Self::Varint(number) => *number == 0,
            Self::Bytes(bytes) => Fields(bytes).all(|(_, value)| value.is_some_and(|value| value.is_zero())),
        }
    }
}

/// The fields of a message in the order they come; `None` for what cannot be read, which is the last.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Option<Wire<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tag = varint(&mut self.0);
        let value = tag.and_then(|tag| match tag & 7 {
            0 => varint(&mut self.0).map(Wire::Varint),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Some(Wire::Bytes(bytes))
            }
            _ => None,
        });
        if value.is_none() {
            self.0 = &[];
        }
        Some((tag.unwrap_or_default() >> 3, value))
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn message(bytes: &[u8], schema: &[Field]) -> Result<Value, Failure> {
    let mut object = Map::new();
    for (number, value) in Fields(bytes) {
        let value = value.ok_or(Failure::Malformed)?;
        let Some(field) = schema.iter().find(|field| field.number == number) else {
            if value.is_zero() {
                continue;
            }
            return Err(Failure::UnknownField(number));
        };
        match (&field.holds, field.presence) {
            (Holds::TextMap | Holds::BytesMap, _) => {
                let Wire::Bytes(entry) = value else { return Err(Failure::Malformed) };
                let (key, value) = map_entry(entry, matches!(field.holds, Holds::BytesMap))?;
                object.entry(field.name).or_insert_with(|| json!({}))[key] = value.into();
            }
            (holds, Presence::List) => {
                let item = decoded(&value, holds)?;
                if let Value::Array(items) = object.entry(field.name).or_insert_with(|| json!([])) {
                    items.push(item);
                }
            }
            (holds, presence) => {
                let decoded = decoded(&value, holds)?;
                // Plain fields are always written; in JSON their zero values are left out.
                if presence == Presence::Pointer || !is_empty(&decoded) {
                    object.insert(field.name.to_owned(), decoded);
                }
            }
        }
    }
    Ok(Value::Object(object))
}

fn decoded(value: &Wire<'_>, holds: &Holds) -> Result<Value, Failure> {
    Ok(match (holds, value) {
        (Holds::Text, Wire::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned().into(),
        (Holds::Bool, Wire::Varint(number)) => (*number != 0).into(),
        (Holds::Integer, Wire::Varint(number)) => number.cast_signed().into(),
        (Holds::Time, Wire::Bytes(bytes)) => time(bytes, false)?,
        (Holds::MicroTime, Wire::Bytes(bytes)) => time(bytes, true)?,
        (Holds::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes)?,
        (Holds::Message(schema), Wire::Bytes(bytes)) => message(bytes, schema)?,
        _ => return Err(Failure::Malformed),
    })
}

fn map_entry(bytes: &[u8], in_base64: bool) -> Result<(String, String), Failure> {
    let (mut key, mut text) = (String::new(), String::new());
    for (number, value) in Fields(bytes) {
        let Some(Wire::Bytes(bytes)) = value else { return Err(Failure::Malformed) };
        match number {
            1 => key = String::from_utf8_lossy(bytes).into_owned(),
            _ if in_base64 => text = STANDARD.encode(bytes),
            _ => text = String::from_utf8_lossy(bytes).into_owned(),
        }
    }
    Ok((key, text))
}

/// A time, to the second or (`micro`) to the microsecond, as the JSON of either writes it.
fn time(bytes: &[u8], micro: bool) -> Result<Value, Failure> {
    let (mut seconds, mut nanoseconds) = (None, 0);
    for (number, value) in Fields(bytes) {
        match (number, value) {
            (1, Some(Wire::Varint(value))) => seconds = Some(value.cast_signed()),
            (2, Some(Wire::Varint(value))) => nanoseconds = i32::try_from(value).map_err(|_| Failure::Malformed)?,
            _ => return Err(Failure::Malformed),
        }
    }
    let Some(seconds) = seconds else { return Ok(Value::Null) };
    let time = Timestamp::new(seconds, nanoseconds).map_err(|_| Failure::Malformed)?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(time.strftime(format).to_string().into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Failure> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for (field, value) in Fields(bytes) {
        match (field, value.ok_or(Failure::Malformed)?) {
            (1, Wire::Varint(kind)) => is_text = kind != 0,
            (2, Wire::Varint(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(value)) => text = String::from_utf8_lossy(value).into_owned(),
            _ => return Err(Failure::Malformed),
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
        let identity = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &identity), field(2, raw)].concat()
    }

    #[test]
    fn objects_are_read_from_their_envelope() {
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
    fn a_lease_keeps_its_microseconds_and_a_holder_that_is_nobody() {
        // Second 1 and 2 ms (2,000,000 ns) after 1970.
        let renewed = [0x08, 1, 0x10, 0x80, 0x89, 0x7a];
        let spec = [field(1, b""), field(4, &renewed)].concat();
        let lease = decode(&envelope("Lease", &field(2, &spec))).unwrap();
        assert_eq!(lease["spec"], json!({"holderIdentity": "", "renewTime": "1970-01-01T00:00:01.002000Z"}));
    }

    #[test]
    fn what_the_table_does_not_know_is_refused() {
        assert_eq!(decode(&envelope("ConfigMap", &field(9, b"x"))).unwrap_err().code, 415);
        assert_eq!(decode(&envelope("Unheard", b"")).unwrap_err().code, 415);
        assert_eq!(decode(&envelope("ConfigMap", b"\x0a\x7f")).unwrap_err().code, 400);
        assert_eq!(decode(b"{}").unwrap_err().code, 400);
    }
}
