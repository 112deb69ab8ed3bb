//! What is applied is YAML, and JSON is YAML.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, options};

use crate::status::Status;

/// Reads what is applied. Of fields that are there twice the last one counts.
///
/// The parser bounds what aliases may represent, and how deep a document goes; how long it is, the server does.
pub(crate) fn parse(body: &[u8]) -> Result<Value, Status> {
    let unreadable = |error: &dyn std::fmt::Display| Status::bad_request(format_args!("error decoding patch: {error}"));
    let parsed = match serde_json::from_slice::<Value>(body) {
        Ok(parsed) => parsed,
        Err(_) => read(body, DuplicateKeyPolicy::LastWins).map_err(|error| unreadable(&error))?,
    };
    if parsed.is_object() { Ok(parsed) } else { Err(unreadable(&"what is applied is no object")) }
}

/// What is wrong with YAML that can be read: fields that are there twice.
pub(crate) fn flaw(body: &[u8]) -> Option<String> {
    read(body, DuplicateKeyPolicy::Error).err().map(|error| error.to_string())
}

fn read(body: &[u8], duplicate_keys: DuplicateKeyPolicy) -> Result<Value, Error> {
    serde_saphyr::from_slice_with_options(body, options! { duplicate_keys: duplicate_keys })
}
