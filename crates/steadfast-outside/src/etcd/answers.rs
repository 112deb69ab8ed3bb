//! What the gateway answers, read: bytes in Base64, and numbers as text, where they are not left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

/// A key, and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kv {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// 0 where it has none.
    pub(super) lease: i64,
}

pub(super) fn bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A number, or 0 where there is none, as protobuf has it.
pub(super) fn number(json: &Json) -> i64 {
    json.as_str().and_then(|text| text.parse().ok()).or_else(|| json.as_i64()).unwrap_or_default()
}

/// The keys of an answer to a range. One that says how many it has, and has no list of them, is none.
pub(super) fn kvs(page: &Json) -> Result<Vec<Kv>, String> {
    let empty = Vec::new();
    let kvs = match &page["kvs"] {
        Json::Array(kvs) => kvs,
        Json::Null if number(&page["count"]) == 0 && number(&page["header"]["revision"]) > 0 => &empty,
        _ => return Err("it has no list `kvs`".to_owned()),
    };
    let decoded = |json: &Json| match json {
        Json::Null => Ok(Vec::new()),
        Json::String(text) => STANDARD.decode(text).map_err(|error| format!("{text:?} is no Base64: {error}")),
        other => Err(format!("{other} is no Base64")),
    };
    kvs.iter()
        .map(|kv| Ok(Kv { key: decoded(&kv["key"])?, value: decoded(&kv["value"])?, lease: number(&kv["lease"]) }))
        .collect()
}
