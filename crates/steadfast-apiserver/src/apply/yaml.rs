//! Parser of applied objects: YAML, which includes JSON. Builds without the feature `yaml` read JSON only.

use serde_json::Value;
#[cfg(feature = "yaml")]
use serde_saphyr::{DuplicateKeyPolicy, Error, options};

use crate::status::Status;

/// Parses an applied object. The last value of a duplicate field takes precedence.
///
/// The parser limits the size of aliases and the nesting of a document. The server limits its length.
pub(crate) fn parse(body: &[u8]) -> Result<Value, Status> {
    let decode_error =
        |error: &dyn std::fmt::Display| Status::bad_request(format_args!("error decoding patch: {error}"));
    let parsed = match serde_json::from_slice::<Value>(body) {
        Ok(parsed) => parsed,
        Err(error) => parse_yaml(body, &error).map_err(|error| decode_error(&error))?,
    };
    if parsed.is_object() { Ok(parsed) } else { Err(decode_error(&"the applied document is not an object")) }
}

#[cfg(feature = "yaml")]
fn parse_yaml(body: &[u8], _: &serde_json::Error) -> Result<Value, Error> {
    read(body, DuplicateKeyPolicy::LastWins)
}

#[cfg(not(feature = "yaml"))]
fn parse_yaml(_: &[u8], error: &serde_json::Error) -> Result<Value, String> {
    Err(format!("{error}; this server reads only JSON: enable the feature `yaml` of steadfast-apiserver for YAML"))
}

/// Returns the error that names a duplicate field in otherwise valid YAML.
#[cfg(feature = "yaml")]
pub(crate) fn duplicate_field(body: &[u8]) -> Option<String> {
    read(body, DuplicateKeyPolicy::Error).err().map(|error| error.to_string())
}

/// Returns no error: the caller detects duplicate fields of JSON, the only format in this build.
#[cfg(not(feature = "yaml"))]
pub(crate) fn duplicate_field(_: &[u8]) -> Option<String> {
    None
}

#[cfg(feature = "yaml")]
fn read(body: &[u8], duplicate_keys: DuplicateKeyPolicy) -> Result<Value, Error> {
    serde_saphyr::from_slice_with_options(body, options! { duplicate_keys: duplicate_keys })
}
