//! Parser of applied objects: YAML, which includes JSON.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, options};

use crate::status::Status;

/// Parses an applied object. The last value of a duplicate field takes precedence.
///
/// The parser limits the size of aliases and the nesting of a document. The server limits its length.
pub(crate) fn parse(body: &[u8]) -> Result<Value, Status> {
    let unreadable = |error: &dyn std::fmt::Display| Status::bad_request(format_args!("error decoding patch: {error}"));
    let parsed = match serde_json::from_slice::<Value>(body) {
        Ok(parsed) => parsed,
        Err(_) => read(body, DuplicateKeyPolicy::LastWins).map_err(|error| unreadable(&error))?,
    };
    if parsed.is_object() { Ok(parsed) } else { Err(unreadable(&"the applied document is not an object")) }
}

/// Returns the error of valid YAML with duplicate fields.
pub(crate) fn flaw(body: &[u8]) -> Option<String> {
    read(body, DuplicateKeyPolicy::Error).err().map(|error| error.to_string())
}

fn read(body: &[u8], duplicate_keys: DuplicateKeyPolicy) -> Result<Value, Error> {
    serde_saphyr::from_slice_with_options(body, options! { duplicate_keys: duplicate_keys })
}
