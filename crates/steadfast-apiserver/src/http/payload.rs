//! Body of a request: its bytes, its type, and the decoded object.

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use crate::protobuf;
use crate::status::Status;

/// Maximum size of a request body in bytes.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Reads the body of a request.
pub(super) async fn read_body(body: Incoming) -> Result<Bytes, Status> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        // The limit is that of a real server's request body: 3 MiB.
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Status::of_code(413).with_message(format_args!("Request entity too large: limit is {MAX_BODY_BYTES}")))
        }
        Err(error) => Err(Status::bad_request(format_args!("the body could not be read: {error}"))),
    }
}

/// Returns a content type without its parameters.
pub(super) fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Decodes the object in a body, which must be of this kind.
pub(super) fn decode_object(content_type: &str, body: &[u8], kind: &str) -> Result<Value, Status> {
    if content_type == protobuf::CONTENT_TYPE {
        return protobuf::decode(body);
    }
    if !matches!(content_type, "" | "application/json") {
        return Err(Status::new(
            415,
            "UnsupportedMediaType",
            format_args!(
                "the body of the request was in an unknown format - accepted media types include: application/json, {}",
                protobuf::CONTENT_TYPE
            ),
        ));
    }
    serde_json::from_slice(body).map_err(|error| {
        Status::bad_request(format_args!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
             error: {error}"
        ))
    })
}
