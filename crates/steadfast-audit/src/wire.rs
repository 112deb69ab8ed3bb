//! Paths of requests, and decoding of responses. Only versions and names are decoded.

use serde::Deserialize;
use steadfast::unstable::percent_encoded;

use crate::message::{AuditFailure, AuditQuery, AuditRecord, AuditReply, ObservedObject};

/// Name that no object has, for lists without objects.
const NO_OBJECT: &str = "steadfast-audit-no-object";

/// Minimum timeout of a watch in seconds. The server ends the watch.
const WATCH_SECONDS: u64 = 1800;

/// Range of the timeouts of watches in seconds, so that they do not end at the same time.
const WATCH_JITTER_SECONDS: u64 = 900;

/// Metadata of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
    r#continue: String,
    remaining_item_count: Option<u64>,
}

/// Metadata of an object.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectMetadata {
    name: String,
    namespace: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    metadata: ObjectMetadata,
    /// Code of a `Status`.
    code: u16,
    /// Message of a `Status`.
    message: String,
}

#[derive(Deserialize)]
struct ListBody {
    metadata: ListMetadata,
    #[serde(default)]
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct RecordBody {
    r#type: String,
    object: Item,
}

/// Returns path and query of a request. `request` selects the jitter of watches.
pub(crate) fn path(collection: &str, query: &AuditQuery, request: u64) -> String {
    match query {
        AuditQuery::Page { limit, continue_token } if continue_token.is_empty() => {
            format!("{collection}?limit={limit}")
        }
        AuditQuery::Page { limit, continue_token } => {
            format!("{collection}?limit={limit}&continue={}", percent_encoded(continue_token))
        }
        AuditQuery::Alive => "/version".to_owned(),
        AuditQuery::Newest => format!("{collection}?limit=1"),
        AuditQuery::Reached { version } => format!(
            "{collection}?fieldSelector=metadata.name%3D{NO_OBJECT}&resourceVersion={version}\
             &resourceVersionMatch=NotOlderThan"
        ),
        AuditQuery::Watch { from } => {
            let seconds = WATCH_SECONDS + request.wrapping_mul(61) % WATCH_JITTER_SECONDS;
            format!("{collection}?watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}")
        }
        AuditQuery::ShortWatch { from, duration } => format!(
            "{collection}?watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={}",
            duration.as_secs().max(1)
        ),
    }
}

/// Returns the accepted media types. A server without metadata sends whole objects, of which only metadata is decoded.
pub(crate) fn accept(query: &AuditQuery) -> &'static str {
    if query.is_watch() {
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    } else {
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    }
}

/// Decodes the body of a list.
pub(crate) fn decode_list(body: &[u8]) -> Result<AuditReply, AuditFailure> {
    let body: ListBody = serde_json::from_slice(body).map_err(|error| unusable(&error))?;
    let objects = body.items.unwrap_or_default().into_iter().map(|item| observed(item.metadata));
    let objects = objects.collect::<Result<_, _>>()?;
    let ListMetadata { resource_version, r#continue, remaining_item_count } = body.metadata;
    let version = parse_version(&resource_version)?;
    Ok(AuditReply::Page { version, objects, continue_token: r#continue, remaining: remaining_item_count })
}

/// Decodes a record of a watch.
pub(crate) fn decode_record(line: &[u8]) -> Result<AuditRecord, AuditFailure> {
    let RecordBody { r#type, object } = serde_json::from_slice(line).map_err(|error| unusable(&error))?;
    match r#type.as_str() {
        "ADDED" | "MODIFIED" => Ok(AuditRecord::Changed(observed(object.metadata)?)),
        "DELETED" => Ok(AuditRecord::Deleted(observed(object.metadata)?)),
        "BOOKMARK" => Ok(AuditRecord::Bookmark(parse_version(&object.metadata.resource_version)?)),
        "ERROR" => Err(AuditFailure::Status(object.code, object.message)),
        other => Err(AuditFailure::Unusable(format!("the watch sent a record of the unknown type {other:?}"))),
    }
}

/// Returns the failure of a response with an unsuccessful status.
pub(crate) fn rejection(status: u16, body: &[u8]) -> AuditFailure {
    // A proxy may send HTML, which does not help.
    let explanation: Item = serde_json::from_slice(body).unwrap_or_default();
    AuditFailure::Status(status, explanation.message)
}

fn observed(metadata: ObjectMetadata) -> Result<ObservedObject, AuditFailure> {
    let version = parse_version(&metadata.resource_version)?;
    Ok(ObservedObject { namespace: metadata.namespace, name: metadata.name, version })
}

fn parse_version(text: &str) -> Result<u64, AuditFailure> {
    let reason = || format!("the resource version {text:?} is not a number, so versions cannot be compared");
    text.parse().map_err(|_| AuditFailure::Unusable(reason()))
}

fn unusable(error: &serde_json::Error) -> AuditFailure {
    AuditFailure::Unusable(format!("the response is not the JSON of an API server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_decoded_without_other_fields() {
        let body = br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"a+b","remainingItemCount":3},
            "items":[{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"},"spec":{"x":[1]}}]}"#;
        let objects = vec![ObservedObject { namespace: "n".to_owned(), name: "a".to_owned(), version: 5 }];
        let page = AuditReply::Page { version: 7, objects, continue_token: "a+b".to_owned(), remaining: Some(3) };
        assert_eq!(decode_list(body), Ok(page));
        let empty = br#"{"metadata":{"resourceVersion":"7"},"items":null}"#;
        assert!(matches!(decode_list(empty), Ok(AuditReply::Page { objects, .. }) if objects.is_empty()));
        assert!(matches!(decode_list(b"<html>"), Err(AuditFailure::Unusable(_))));
    }

    #[test]
    fn watch_records_are_decoded() {
        let line = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
        assert_eq!(decode_record(line), Ok(AuditRecord::Bookmark(9)));
        let line = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        assert_eq!(decode_record(line), Err(AuditFailure::Status(410, "too old".to_owned())));
        let line = br#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"x"}}}"#;
        assert!(matches!(decode_record(line), Err(AuditFailure::Unusable(_))));
    }

    #[test]
    fn continue_token_is_encoded_in_path() {
        let query = AuditQuery::Page { limit: 5, continue_token: "a+b/=".to_owned() };
        assert_eq!(path("/api/v1/pods", &query, 1), "/api/v1/pods?limit=5&continue=a%2Bb%2F%3D");
    }
}
