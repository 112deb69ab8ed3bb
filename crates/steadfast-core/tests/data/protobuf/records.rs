//! Identities and kept objects are equal in both encodings.

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use steadfast_core::decode::{
    DecodeOptions, Decoder, ExpectedKind, PartialIdentity, RecordError, RecordProblem, WatchRecord, continue_token,
    list_item, status, watch_record,
};
use steadfast_core::frame::Item;
use steadfast_core::record::{Bookmark, RecordKind};
use steadfast_core::{Cacheable, Encoding, RawObject, ResourceVersion, Uid};

use crate::protobuf::build::{bare, delimited, enveloped, event, number, text};
use crate::protobuf::samples::{corpus, id};

/// Returns the objects of the corpus, without lists.
fn objects() -> impl Iterator<Item = (&'static str, &'static str, Vec<u8>, &'static str)> {
    corpus().into_iter().filter(|(_, kind, ..)| !kind.ends_with("List") && *kind != "Status")
}

fn known(read: Result<RawObject, RecordError>) -> PartialIdentity {
    let identity = match read {
        Ok(raw) => {
            let whole = raw.identity;
            PartialIdentity { key: Some(whole.key), uid: Some(whole.uid), version: Some(whole.version) }
        }
        Err(error) => *error.identity,
    };
    // A substitute version depends on the bytes, so it is not compared.
    PartialIdentity { version: identity.version.filter(ResourceVersion::is_from_server), ..identity }
}

fn pod(message: &[u8]) -> Result<RawObject, RecordError> {
    list_item(Encoding::Protobuf, &Item::of_message(Bytes::copy_from_slice(message), id("v1", "Pod")), None)
}

fn record(object: &[u8], event_type: &str) -> Result<WatchRecord, RecordError> {
    watch_record(Encoding::Protobuf, &Bytes::from(event(event_type, object)).slice(4..), None)
}

/// Creates an object with metadata of these fields.
fn of_metadata(fields: &[Vec<u8>]) -> Vec<u8> {
    delimited(1, &fields.concat())
}

#[test]
fn protobuf_identity_matches_json() {
    let mut whole = 0;
    for (api_version, kind, protobuf, json) in objects() {
        let from_json = list_item(Encoding::Json, &Bytes::from_static(json.as_bytes()).into(), None);
        for bytes in [&protobuf[..], bare(&protobuf)] {
            let item = Item::of_message(Bytes::copy_from_slice(bytes), id(api_version, kind));
            let from_protobuf = list_item(Encoding::Protobuf, &item, None);
            whole += usize::from(from_protobuf.is_ok());
            let has_version =
                |read: &Result<RawObject, _>| read.as_ref().map(|raw| raw.identity.version.is_from_server()).ok();
            assert_eq!(has_version(&from_protobuf), has_version(&from_json));
            assert_eq!(known(from_protobuf), known(from_json.clone()), "{kind}");
        }
    }
    assert!(whole > 20, "only {whole} have a name");
}

#[test]
fn kept_object_matches_json() {
    let mut cut = 0;
    for (api_version, kind, protobuf, json) in objects() {
        for bytes in [&protobuf[..], bare(&protobuf)] {
            let item = Item::of_message(Bytes::copy_from_slice(bytes), id(api_version, kind));
            let Ok(raw) = list_item(Encoding::Protobuf, &item, None) else { continue };
            let mut wanted: Value = serde_json::from_str(json).expect("Go writes JSON");
            assert_eq!(wanted["metadata"].get("managedFields").is_some(), raw.managed_fields.is_some());
            let object = wanted.as_object_mut().expect("the item is an object");
            if bytes.len() < protobuf.len() && kind != "PartialObjectMetadata" {
                // Only the envelope contains `apiVersion` and `kind`. For metadata in a list, both are constant and
                // part of the JSON.
                object.remove("apiVersion");
                object.remove("kind");
            }
            let options = DecodeOptions { keep_managed_fields: true };
            assert_eq!(Decoder::new(options).decode::<Value>(&raw), Ok(wanted.clone()));
            wanted["metadata"].as_object_mut().expect("the object has a name").remove("managedFields");
            assert_eq!(Decoder::default().decode::<Value>(&raw), Ok(wanted.clone()), "{kind}");

            let mut buffer = Vec::new();
            let compact = Bytes::copy_from_slice(raw.compact(DecodeOptions::default(), &mut buffer));
            assert_eq!(compact.len() < raw.bytes.len(), raw.managed_fields.is_some());
            let again = RawObject { bytes: compact, managed_fields: None, ..raw.clone() };
            assert_eq!(Decoder::new(options).decode::<Value>(&again), Ok(wanted));
            assert_eq!(raw.compact(options, &mut buffer), &raw.bytes);
            cut += usize::from(raw.managed_fields.is_some());
        }
    }
    assert!(cut > 10, "only {cut} had managed fields");
}

#[test]
fn every_watch_event_is_decoded() {
    for (api_version, kind, protobuf, json) in objects() {
        let Ok(raw) = list_item(Encoding::Json, &Bytes::from_static(json.as_bytes()).into(), None) else { continue };
        for (event_type, wanted) in
            [("ADDED", RecordKind::Added), ("MODIFIED", RecordKind::Modified), ("DELETED", RecordKind::Deleted)]
        {
            let Ok(WatchRecord::Object { kind: found, object }) = record(&protobuf, event_type) else {
                panic!("{kind} has a name");
            };
            assert_eq!((found, &object.identity.key), (wanted, &raw.identity.key));
            assert_eq!((object.bytes.as_ref(), object.message), (&protobuf[..], Some(id(api_version, kind))));
            assert_eq!(
                DynamicObject::decode(&object, &mut Decoder::default()).ok(),
                DynamicObject::decode(&raw, &mut Decoder::default()).ok()
            );
        }
    }
}

#[test]
fn bookmark_contains_stream_version() {
    let annotation = |name: &str, value: &str| delimited(12, &[text(1, name), text(2, value)].concat());
    for (annotations, ends) in [
        (vec![], false),
        (vec![annotation("k8s.io/initial-events-end", "true")], true),
        (vec![annotation("a", "true"), annotation("k8s.io/initial-events-end", "true"), annotation("b", "")], true),
        (vec![annotation("k8s.io/initial-events-end", "false")], false),
        (vec![annotation("k8s.io/initial-events-end", "true"), annotation("k8s.io/initial-events-end", "no")], false),
    ] {
        let object = enveloped("v1", "Pod", &of_metadata(&[text(6, "12"), annotations.concat()]));
        let wanted = WatchRecord::Bookmark(Bookmark { version: "12".into(), initial_events_end: ends });
        assert_eq!(record(&object, "BOOKMARK"), Ok(wanted));
    }
    let nowhere = record(&enveloped("v1", "Pod", &[]), "BOOKMARK").expect_err("the bookmark has no version");
    assert_eq!(nowhere.problem, RecordProblem::NoIdentity { missing: "metadata.resourceVersion" });
}

#[test]
fn error_record_is_a_status() {
    let cause = delimited(4, &text(1, "ResourceVersionTooLarge"));
    let details = delimited(5, &[cause, number(5, 3)].concat());
    let meta = delimited(1, &text(3, "token"));
    let message = [meta, text(3, "too old"), text(4, "Expired"), details, number(6, 410)].concat();
    let body = enveloped("v1", "Status", &message);
    let found = status(Encoding::Protobuf, &body).expect("the item is an object");
    assert_eq!((found.code, found.reason.as_str(), found.message.as_str()), (410, "Expired", "too old"));
    assert_eq!(
        (found.causes.as_slice(), found.retry_after_seconds),
        (&["ResourceVersionTooLarge".to_owned()][..], Some(3))
    );
    assert_eq!(continue_token(Encoding::Protobuf, &body).as_deref(), Some("token"));
    assert_eq!(record(&body, "ERROR"), Ok(WatchRecord::Error(found)));
    assert_eq!(status(Encoding::Protobuf, &enveloped("v1", "Pod", &[])), None);
    assert_eq!(status(Encoding::Protobuf, b"<html>"), None);
    let other = record(&enveloped("v1", "Pod", &of_metadata(&[text(1, "a"), text(6, "7")])), "ERROR");
    assert!(
        matches!(other, Ok(WatchRecord::Error(status)) if status.code == 0 && status.message.contains("without a readable Status"))
    );
}

#[test]
fn invalid_record_reports_reason() {
    let named = enveloped("v1", "Pod", &of_metadata(&[text(1, "a"), text(3, "n"), text(5, "u"), text(6, "1")]));
    let unknown = record(&named, "RENAMED").expect_err("no such type");
    assert_eq!(unknown.problem, RecordProblem::UnknownType { name: "RENAMED".to_owned() });
    let empty = watch_record(Encoding::Protobuf, &Bytes::new(), None).expect_err("the record is empty");
    assert_eq!(empty.problem, RecordProblem::NoObject);
    let wanted = ExpectedKind { api_version: "v1".into(), kind: "Service".into(), metadata: false };
    let frame = Bytes::from(event("ADDED", &named)).slice(4..);
    let other = watch_record(Encoding::Protobuf, &frame, Some(&wanted)).expect_err("a pod is not a service");
    assert!(matches!(other.problem, RecordProblem::OtherKind { .. }));

    // The bytes after the metadata are damaged, but the identity is known.
    let damaged = [of_metadata(&[text(1, "a"), text(3, "n"), text(5, "u"), text(6, "1")]), vec![0x12, 0x7f]].concat();
    let error = record(&enveloped("v1", "Pod", &damaged), "MODIFIED").expect_err("the record is damaged");
    assert!(matches!(error.problem, RecordProblem::Malformed { encoding: Encoding::Protobuf, .. }));
    assert_eq!(error.identity.to_string(), "n/a at version 1");
    assert_eq!(error.identity.uid, Some(Uid::from("u")));
}

#[test]
fn duplicate_metadata_fields_are_malformed() {
    for fields in [
        of_metadata(&[text(1, "a"), text(1, "b")]),
        of_metadata(&[text(17, ""), text(1, "a"), text(17, "")]),
        [of_metadata(&[text(1, "a")]), of_metadata(&[text(1, "a")])].concat(),
    ] {
        let error = pod(&fields).expect_err("no encoder writes these bytes");
        assert!(matches!(error.problem, RecordProblem::Malformed { .. }), "{error}");
    }
}

#[test]
fn type_mismatch_error_contains_path_without_content() {
    let message =
        [of_metadata(&[text(1, "a"), text(5, "u"), text(6, "1")]), delimited(2, &text(10, "hidden"))].concat();
    let raw = pod(&message).expect("the object has a name");
    // The spec contains the node's name as a number.
    let damaged = [of_metadata(&[text(1, "a"), text(5, "u"), text(6, "1")]), delimited(2, &number(10, 7))].concat();
    let error = Pod::decode(&pod(&damaged).expect("the object has a name"), &mut Decoder::default())
        .expect_err("the spec is malformed");
    let message = error.to_string();
    assert!(message.ends_with("in spec: malformed protobuf"), "{message}");
    let unknown = RawObject { message: None, ..raw };
    let message = Pod::decode(&unknown, &mut Decoder::default()).expect_err("the kind is not built in").to_string();
    assert!(message.contains("not built in") && !message.contains("hidden"), "{message}");
}

#[test]
fn list_item_has_no_kind_like_json() {
    let raw = pod(&of_metadata(&[text(1, "a"), text(5, "u"), text(6, "1")])).expect("the object has a name");
    let value: Value = Decoder::default().decode(&raw).expect("the item is an object");
    assert_eq!(value["metadata"], json!({"name": "a", "uid": "u", "resourceVersion": "1"}));
    assert!(value.get("kind").is_none());
}
