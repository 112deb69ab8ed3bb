//! Content other than objects: list metadata and `Status`.

use std::borrow::Cow;

use serde_json::Value;

use super::Encoding;
use super::limits::MAX_IDENTIFIER_BYTES;
use crate::protobuf::{self, ListMetaFields, MessageType, list_meta_fields};
use crate::record::{ListMeta, Status};
use crate::version::ResourceVersion;

/// `kind` of the object that the server returns instead of a result.
const STATUS: &str = "Status";

/// Decodes `body` as a `Status`; `None` for other content, such as a proxy's error page.
pub fn status(encoding: Encoding, body: &[u8]) -> Option<Status> {
    match encoding {
        Encoding::Json => {
            let value: Value = serde_json::from_slice(body).ok()?;
            (value["kind"] == STATUS).then(|| status_of(&value))
        }
        Encoding::Protobuf => read_status(body).as_ref().map(status_of),
    }
}

/// Decodes `body`, protobuf in its envelope, as a `Status`.
fn read_status(body: &[u8]) -> Option<Value> {
    let value: Value = protobuf::decode(MessageType::of_kind("v1", STATUS)?, body, true).ok()?;
    (value["kind"] == STATUS).then_some(value)
}

/// Decodes `message`, protobuf without an envelope, as a `Status`.
pub(crate) fn status_of_message(message: &[u8]) -> Option<Status> {
    let value: Value = protobuf::decode(MessageType::of_kind("v1", STATUS)?, message, true).ok()?;
    Some(status_of(&value))
}

/// Decodes the `Status` for an expired continue token, and returns its new token for the rest of the list, if present.
/// The rest then has a later version than the earlier pages.
pub fn continue_token(encoding: Encoding, body: &[u8]) -> Option<String> {
    match encoding {
        Encoding::Json => {
            let value: Value = serde_json::from_slice(body).ok()?;
            continue_of(&value)
        }
        Encoding::Protobuf => continue_of(&read_status(body)?),
    }
}

fn continue_of(status: &Value) -> Option<String> {
    // kube-apiserver adds a new token to the `410` for an expired token. The rest of the list then
    // has a newer version.
    status["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}

/// Converts `value` to a `Status`, as far as it can be read.
pub(crate) fn status_of(value: &Value) -> Status {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let details = &value["details"];
    let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    Status {
        code: value["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
        reason: text(&value["reason"]),
        message: text(&value["message"]),
        causes: causes.iter().filter_map(|cause| Some(cause["reason"].as_str()?.to_owned())).collect(),
        // The server omits a zero. Without the field, it requests no delay.
        retry_after_seconds: details["retryAfterSeconds"].as_u64().filter(|seconds| *seconds > 0),
    }
}

/// Decodes list metadata from the protobuf `message`; `None` for a malformed message or an overlong version.
pub(crate) fn list_meta_of_message(message: &[u8]) -> Option<ListMeta> {
    let ListMetaFields { version, token } = list_meta_fields(message).ok()?;
    let non_empty = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned).filter(|text| !text.is_empty());
    let version = non_empty(version);
    if version.as_ref().is_some_and(|version| version.len() > MAX_IDENTIFIER_BYTES) {
        return None;
    }
    let version = version.map(|version| ResourceVersion::from(version.as_str()));
    Some(ListMeta { version, continue_token: non_empty(token) })
}

/// Decodes list metadata from the JSON `written`. Returns `None` for invalid JSON or an overlong version.
pub(crate) fn list_meta(written: &[u8]) -> Option<ListMeta> {
    let value: Value = serde_json::from_slice(written).ok()?;
    let text = |name: &str| value[name].as_str().filter(|text| !text.is_empty());
    let version = text("resourceVersion");
    if version.is_some_and(|version| version.len() > MAX_IDENTIFIER_BYTES) {
        return None;
    }
    Some(ListMeta { version: version.map(ResourceVersion::from), continue_token: text("continue").map(str::to_owned) })
}
