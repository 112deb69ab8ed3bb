//! What is applied is YAML, and JSON is YAML.

use serde_json::Value;

use crate::status::Status;

/// Reads what is applied.
///
/// The parser bounds what aliases may stand for, and how deep a document goes; how long it is, the server does.
pub(crate) fn parse(body: &[u8]) -> Result<Value, Status> {
    let unreadable = |error: &dyn std::fmt::Display| Status::bad_request(format_args!("error decoding patch: {error}"));
    let parsed = match serde_json::from_slice::<Value>(body) {
        Ok(parsed) => parsed,
        Err(_) => serde_saphyr::from_slice::<Value>(body).map_err(|error| unreadable(&error))?,
    };
    if parsed.is_object() { Ok(parsed) } else { Err(unreadable(&"what is applied is no object")) }
}
