//! Errors of undecodable objects, without their content.

use std::fmt;

use super::encoding::Encoding;
use crate::key::ObjectKey;
use crate::protobuf::{self, Reason};
use crate::record::Identity;
use crate::version::ResourceVersion;

/// Error for an object that does not fit the requested type.
///
/// Messages of `serde_json` quote values, and an object may be a Secret. The error keeps only the parts of a message
/// that cannot be a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    key: ObjectKey,
    version: ResourceVersion,
    offset: usize,
    /// Path of the value that does not fit; empty if unknown.
    path: String,
    problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// The object is not valid in this encoding, or ends early.
    Malformed(Encoding),
    /// The object is protobuf of a kind whose fields are unknown.
    UnknownKind,
    /// The object is nested deeper than the limit of `serde_json`.
    TooDeep,
    /// A required field is missing. Its name comes from the type, not from the object.
    MissingField(String),
    /// A value of this type was found instead of the expected one.
    UnexpectedType(&'static str),
    /// Any other error.
    Other,
}

/// Serde's terms for the kinds of values. In its messages, a term follows `invalid type: ` or `invalid value: `. No
/// term is a prefix of another.
const SERDE_TYPE_NAMES: [&str; 15] = [
    "boolean",
    "integer",
    "floating point",
    "character",
    "string",
    "byte array",
    "unit value",
    "null",
    "Option value",
    "newtype struct",
    "sequence",
    "map",
    "unit variant",
    "newtype variant",
    "number",
];

impl DecodeError {
    /// Creates the error for the object `identity` from a JSON error, at `offset` of its bytes.
    pub(crate) fn of_json(identity: &Identity, offset: usize, error: &serde_json::Error) -> Self {
        let problem = match error.to_string() {
            message if error.is_data() => Problem::of(&message),
            // `serde_json` reports the recursion limit as a syntax error, so only the message
            // distinguishes both.
            message if message.starts_with("recursion limit exceeded") => Problem::TooDeep,
            _ => Problem::Malformed(Encoding::Json),
        };
        Self::new(identity, offset, String::new(), problem)
    }

    /// Creates the error for the object `identity` from a protobuf error.
    pub(crate) fn of_protobuf(identity: &Identity, error: &protobuf::Error) -> Self {
        let problem = match error.reason() {
            Reason::Malformed => Problem::Malformed(Encoding::Protobuf),
            Reason::TooDeep => Problem::TooDeep,
            Reason::InvalidValue(message) => Problem::of(message),
        };
        Self::new(identity, error.offset(), error.path(), problem)
    }

    /// Creates the error for the object `identity`, whose protobuf kind is unknown.
    pub(crate) fn of_unknown_kind(identity: &Identity) -> Self {
        Self::new(identity, 0, String::new(), Problem::UnknownKind)
    }

    fn new(identity: &Identity, offset: usize, path: String, problem: Problem) -> Self {
        let (key, version) = (identity.key.clone(), identity.version.clone());
        Self(Box::new(Inner { key, version, offset, path, problem }))
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// Returns the version of the state that does not fit.
    pub fn version(&self) -> &ResourceVersion {
        &self.0.version
    }

    /// Returns the approximate offset of the error in the object's bytes, as the server sent them.
    pub fn offset(&self) -> usize {
        self.0.offset
    }
}

/// Returns the offset of the error in `text`, in bytes. `serde_json` reports a line, and a column in bytes.
pub(crate) fn error_offset(text: &[u8], error: &serde_json::Error) -> usize {
    let line = match error.line() {
        0 | 1 => 0,
        line => memchr::memchr_iter(b'\n', text).nth(line - 2).map_or(0, |end| end + 1),
    };
    line + error.column()
}

impl Problem {
    fn of(message: &str) -> Self {
        if let Some((field, _)) = message.strip_prefix("missing field `").and_then(|rest| rest.split_once('`')) {
            // Field names of a Rust type are short and plain. Any other text may contain content of
            // the object.
            let plain = field.len() <= 64 && field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            return if plain { Self::MissingField(field.to_owned()) } else { Self::Other };
        }
        // Messages may quote values of a `Secret`, so only known words of `serde` are kept.
        let type_error = ["invalid type: ", "invalid value: "].iter().find_map(|kind| message.strip_prefix(kind));
        type_error
            .and_then(|rest| SERDE_TYPE_NAMES.into_iter().find(|type_name| rest.starts_with(type_name)))
            .map_or(Self::Other, Self::UnexpectedType)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { key, version, offset, path, problem } = &*self.0;
        write!(f, "{key} at version {version} cannot be decoded, at byte {offset} of the object")?;
        if !path.is_empty() {
            write!(f, ", in {path}")?;
        }
        f.write_str(": ")?;
        match problem {
            Problem::Malformed(encoding) => write!(f, "malformed {encoding}"),
            Problem::UnknownKind => f.write_str("protobuf of a kind that is not built in"),
            Problem::TooDeep => f.write_str("nested deeper than 128 levels"),
            Problem::MissingField(field) => write!(f, "no field {field:?}"),
            Problem::UnexpectedType(type_name) => write!(f, "the type does not accept this {type_name}"),
            Problem::Other => f.write_str("a value that the type does not accept"),
        }
    }
}

impl std::error::Error for DecodeError {}
