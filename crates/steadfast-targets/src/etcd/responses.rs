//! Reads responses of the gateway: bytes are in Base64, numbers are strings, and empty values are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use crate::step_runner::escape_text;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyValue {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// 0 for a key without a lease.
    pub(super) lease: i64,
    /// Revision of the last change.
    pub(super) revision: i64,
}

pub(super) fn encode_bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns a number. An absent number is 0, as in protobuf.
pub(super) fn parse_number(json: &Json) -> i64 {
    // The JSON gateway encodes 64-bit numbers as strings and omits zeros (protobuf JSON mapping).
    json.as_str().and_then(|text| text.parse().ok()).or_else(|| json.as_i64()).unwrap_or_default()
}

/// Returns bytes. Absent bytes are empty, as in protobuf.
pub(super) fn decode_bytes(json: &Json) -> Result<Vec<u8>, String> {
    match json {
        Json::Null => Ok(Vec::new()),
        Json::String(text) => {
            STANDARD.decode(text).map_err(|error| format!("\"{}\" is not Base64: {error}", escape_text(text)))
        }
        other => Err(format!("{} is not Base64", escape_text(&other.to_string()))),
    }
}

/// Returns the keys of a range response. A response with a count but without a list is an error, not an empty range.
pub(super) fn parse_key_values(page: &Json) -> Result<Vec<KeyValue>, String> {
    let empty = Vec::new();
    let key_values = match &page["kvs"] {
        Json::Array(key_values) => key_values,
        // protobuf JSON omits empty lists. The revision proves that the response came from etcd and not from a proxy.
        Json::Null if parse_number(&page["count"]) == 0 && parse_number(&page["header"]["revision"]) > 0 => &empty,
        _ => return Err("it has no list `kvs`".to_owned()),
    };
    key_values
        .iter()
        .map(|key_value| {
            let (lease, revision) = (parse_number(&key_value["lease"]), parse_number(&key_value["mod_revision"]));
            Ok(KeyValue {
                key: decode_bytes(&key_value["key"])?,
                value: decode_bytes(&key_value["value"])?,
                lease,
                revision,
            })
        })
        .collect()
}
