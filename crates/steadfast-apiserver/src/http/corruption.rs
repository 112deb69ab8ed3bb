//! Corruption of real responses, and their division into chunks.

use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;

use super::response::{ApiResponse, Content};
use crate::faults::BodyCorruption;
use crate::protobuf;

const HTML_PAGE: &[u8] = b"<html><body>It works!</body></html>";

/// Corrupts the body of a response; for a stream, its first chunk.
pub(super) fn corrupted(mut response: ApiResponse, corruption: BodyCorruption) -> ApiResponse {
    if corruption == BodyCorruption::WrongContentType {
        response.content_type = "text/html";
        response.content = Content::Whole(Bytes::from_static(HTML_PAGE));
        return response;
    }
    let corrupt: fn(&Bytes, BodyCorruption) -> Bytes = match response.content_type {
        protobuf::CONTENT_TYPE | protobuf::WATCH_CONTENT_TYPE => corrupted_message,
        _ => corrupted_json,
    };
    response.content = match response.content {
        Content::Whole(body) | Content::Document(body, _) => Content::Whole(corrupt(&body, corruption)),
        Content::Chunks(chunks) => {
            // Only the first chunk is corrupted; later records of a stream stay intact.
            let mut is_past_first_chunk = false;
            let corrupted_chunks = chunks.map(move |chunk| {
                if std::mem::replace(&mut is_past_first_chunk, true) { chunk } else { corrupt(&chunk, corruption) }
            });
            // A truncated stream ends after the corrupted chunk.
            let chunks = if corruption == BodyCorruption::Truncated { 1 } else { usize::MAX };
            Content::Chunks(Box::pin(corrupted_chunks.take(chunks)))
        }
        upgrade @ Content::WebSocketUpgrade { .. } => upgrade,
    };
    response
}

/// Splits the body into chunks of `bytes` bytes, but at least one byte. A chunk may end within an object or a
/// character.
pub(super) fn split_body(mut response: ApiResponse, bytes: usize) -> ApiResponse {
    let chunks = match response.content {
        Content::Whole(body) | Content::Document(body, _) => futures::stream::iter([body]).boxed(),
        Content::Chunks(chunks) => chunks,
        upgrade @ Content::WebSocketUpgrade { .. } => {
            response.content = upgrade;
            return response;
        }
    };
    let pieces = chunks.flat_map(move |mut chunk| {
        futures::stream::iter(std::iter::from_fn(move || {
            (!chunk.is_empty()).then(|| chunk.split_to(bytes.max(1).min(chunk.len())))
        }))
    });
    response.content = Content::Chunks(Box::pin(pieces));
    response
}

fn corrupted_json(bytes: &Bytes, corruption: BodyCorruption) -> Bytes {
    let middle = bytes.len() / 2;
    let mut bytes = bytes.to_vec();
    match corruption {
        BodyCorruption::Malformed => {
            bytes.splice(middle..middle, *b"\x00}{");
        }
        BodyCorruption::Truncated | BodyCorruption::WrongContentType => bytes.truncate(middle),
        BodyCorruption::Oversized(size) => {
            let field = format!("{{\"oversized\":\"{}\",", "x".repeat(size));
            bytes.splice(0..1.min(bytes.len()), field.into_bytes());
        }
        BodyCorruption::MissingIdentity => bytes = json_without_identities(bytes),
    }
    bytes.into()
}

/// Corrupts a body in protobuf.
fn corrupted_message(bytes: &Bytes, corruption: BodyCorruption) -> Bytes {
    match corruption {
        // A run of 0xff is too long for a varint, so the message cannot be parsed.
        BodyCorruption::Malformed => {
            let mut bytes = bytes.to_vec();
            let middle = bytes.len() / 2;
            bytes[middle..].fill(0xff);
            bytes.into()
        }
        BodyCorruption::Truncated | BodyCorruption::WrongContentType => bytes.slice(..bytes.len() / 2),
        BodyCorruption::Oversized(size) => protobuf::with_unknown_field(bytes, size).into(),
        BodyCorruption::MissingIdentity => {
            let encoded = protobuf::decode(bytes).ok().and_then(|body| protobuf::encode(&without_identities(body)));
            encoded.map_or_else(|| bytes.clone(), Bytes::from)
        }
    }
}

/// Removes the fields that identify an object, or a list and its objects.
fn json_without_identities(bytes: Vec<u8>) -> Vec<u8> {
    let Ok(body) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    without_identities(body).to_string().into_bytes()
}

fn without_identities(mut body: Value) -> Value {
    let remove_identity = |value: &mut Value| {
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.retain(|name, _| !["uid", "resourceVersion"].contains(&name.as_str()));
        }
    };
    remove_identity(&mut body);
    body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(remove_identity);
    body
}
