//! True answers with their bodies spoiled, or cut into pieces.

use bytes::Bytes;
use futures::StreamExt;
use serde_json::Value;

use super::answer::{Answer, Content};
use crate::faults::Corruption;

const PAGE: &[u8] = b"<html><body>It works!</body></html>";

/// Spoils the body of an answer; of a stream, its first chunk.
pub(super) fn corrupted(mut answer: Answer, corruption: Corruption) -> Answer {
    if corruption == Corruption::WrongContentType {
        answer.content_type = "text/html";
        answer.content = Content::Whole(Bytes::from_static(PAGE));
        return answer;
    }
    answer.content = match answer.content {
        Content::Whole(body) | Content::Document(body, _) => Content::Whole(spoiled(&body, corruption)),
        Content::Chunks(chunks) => {
            let mut intact = false;
            let spoiled =
                chunks.map(
                    move |chunk| {
                        if std::mem::replace(&mut intact, true) { chunk } else { spoiled(&chunk, corruption) }
                    },
                );
            let chunks = if corruption == Corruption::Truncated { 1 } else { usize::MAX };
            Content::Chunks(Box::pin(spoiled.take(chunks)))
        }
        switched @ Content::Switched { .. } => switched,
    };
    answer
}

/// Sends the body in pieces of so many bytes, at least one, wherever that cuts it.
pub(super) fn in_pieces(mut answer: Answer, bytes: usize) -> Answer {
    let chunks = match answer.content {
        Content::Whole(body) | Content::Document(body, _) => futures::stream::iter([body]).boxed(),
        Content::Chunks(chunks) => chunks,
        switched @ Content::Switched { .. } => {
            answer.content = switched;
            return answer;
        }
    };
    let pieces = chunks.flat_map(move |mut chunk| {
        futures::stream::iter(std::iter::from_fn(move || {
            (!chunk.is_empty()).then(|| chunk.split_to(bytes.max(1).min(chunk.len())))
        }))
    });
    answer.content = Content::Chunks(Box::pin(pieces));
    answer
}

fn spoiled(bytes: &Bytes, corruption: Corruption) -> Bytes {
    let middle = bytes.len() / 2;
    let mut bytes = bytes.to_vec();
    match corruption {
        Corruption::Malformed => {
            bytes.splice(middle..middle, *b"\x00}{");
        }
        Corruption::Truncated | Corruption::WrongContentType => bytes.truncate(middle),
        Corruption::Oversized(size) => {
            let field = format!("{{\"oversized\":\"{}\",", "x".repeat(size));
            bytes.splice(0..1.min(bytes.len()), field.into_bytes());
        }
        Corruption::Anonymous => bytes = anonymous(bytes),
    }
    bytes.into()
}

/// The object, or the list and its objects, without what tells them from others of their names.
fn anonymous(bytes: Vec<u8>) -> Vec<u8> {
    let Ok(mut body) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    let bare = |value: &mut Value| {
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.retain(|name, _| !["uid", "resourceVersion"].contains(&name.as_str()));
        }
    };
    bare(&mut body);
    body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(bare);
    body.to_string().into_bytes()
}
