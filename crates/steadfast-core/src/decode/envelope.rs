//! What comes around objects or in their place: a list's metadata, a `Status`.

use std::borrow::Cow;

use serde_json::Value;

use super::Encoding;
use super::limits::LONGEST_MARK;
use crate::protobuf::{self, ListMarks, MessageId, list_marks};
use crate::record::{ListMeta, Status};
use crate::version::ResourceVersion;

/// The `kind` of the server's word on why there is nothing else.
const STATUS: &str = "Status";

/// The `Status` that `body` is; none where it is something else, as a proxy's error page.
pub fn status(encoding: Encoding, body: &[u8]) -> Option<Status> {
    match encoding {
        Encoding::Json => {
            let value: Value = serde_json::from_slice(body).ok()?;
            (value["kind"] == STATUS).then(|| status_of(&value))
        }
        Encoding::Protobuf => read_status(body).as_ref().map(status_of),
    }
}

/// The `Status` that `body`, protobuf in its envelope, is.
fn read_status(body: &[u8]) -> Option<Value> {
    let value: Value = protobuf::decode(MessageId::of_kind("v1", STATUS)?, body, true).ok()?;
    (value["kind"] == STATUS).then_some(value)
}

/// The `Status` that `message`, protobuf without an envelope, is.
pub(crate) fn status_of_message(message: &[u8]) -> Option<Status> {
    let value: Value = protobuf::decode(MessageId::of_kind("v1", STATUS)?, message, true).ok()?;
    Some(status_of(&value))
}

/// What to ask for the rest of a list with whose continue token has expired, as the `Status` that says so may tell: the
/// rest then is of a later version than what came before.
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
    status["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned)
}

/// The `Status` that `value` is, as far as it can be read.
pub(crate) fn status_of(value: &Value) -> Status {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let details = &value["details"];
    let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    Status {
        code: value["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
        reason: text(&value["reason"]),
        message: text(&value["message"]),
        causes: causes.iter().filter_map(|cause| Some(cause["reason"].as_str()?.to_owned())).collect(),
        // The server leaves out a zero: without it we are not asked to wait.
        retry_after_seconds: details["retryAfterSeconds"].as_u64().filter(|seconds| *seconds > 0),
    }
}

/// The list metadata that `message`, protobuf, is; none where it is malformed, or its version longer than any.
pub(crate) fn list_meta_of_message(message: &[u8]) -> Option<ListMeta> {
    let ListMarks { version, token } = list_marks(message).ok()?;
    let given = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned).filter(|text| !text.is_empty());
    let version = given(version);
    if version.as_ref().is_some_and(|version| version.len() > LONGEST_MARK) {
        return None;
    }
    let version = version.map(|version| ResourceVersion::from(version.as_str()));
    Some(ListMeta { version, continue_token: given(token) })
}

/// The list metadata that `written`, JSON, is; none where it is no JSON, or its version longer than any.
pub(crate) fn list_meta(written: &[u8]) -> Option<ListMeta> {
    let value: Value = serde_json::from_slice(written).ok()?;
    let text = |name: &str| value[name].as_str().filter(|text| !text.is_empty());
    let version = text("resourceVersion");
    if version.is_some_and(|version| version.len() > LONGEST_MARK) {
        return None;
    }
    Some(ListMeta { version: version.map(ResourceVersion::from), continue_token: text("continue").map(str::to_owned) })
}
