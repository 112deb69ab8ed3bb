//! Scans and decoding agree with `serde_json`, and errors omit the content.

use std::error::Error;

use crate::json::{Json, Style, members, names, object, read, text, texts, values};
use bytes::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::{CustomResource, Resource};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use steadfast_core::decode::{
    DecodeError, DecodeOptions, Decoder, ExpectedKind, PartialIdentity, RecordError, RecordProblem, WatchRecord,
    list_item, status, watch_record,
};
use steadfast_core::record::{Bookmark, RecordKind, Status};
use steadfast_core::{Cacheable, Encoding, Lazy, ObjectKey, RawObject, ResourceVersion, Uid};

fn item(written: &str) -> Result<RawObject, RecordError> {
    list_item(Encoding::Json, &Bytes::copy_from_slice(written.as_bytes()).into(), None)
}

fn record(written: &str) -> Result<WatchRecord, RecordError> {
    watch_record(Encoding::Json, &Bytes::copy_from_slice(written.as_bytes()), None)
}

fn decode<K: Cacheable>(raw: &RawObject) -> Result<K, DecodeError> {
    K::decode(raw, &mut Decoder::default())
}

fn without_managed_fields(raw: &RawObject) -> Value {
    let mut buffer = Vec::new();
    read(raw.compact(DecodeOptions::default(), &mut buffer))
}

/// Generates members in any order, with duplicates and other members between them.
fn mixed(
    ours: impl Strategy<Value = Vec<(String, Json)>>,
    others: impl Strategy<Value = Vec<(String, Json)>>,
) -> impl Strategy<Value = Json> {
    (ours, others).prop_flat_map(|(ours, others)| Just([ours, others].concat()).prop_shuffle()).prop_map(Json::Object)
}

fn identities() -> impl Strategy<Value = Vec<(String, Json)>> {
    let text = || prop_oneof![6 => texts().prop_map(Json::Text), 1 => values()];
    let fields = ["namespace", "name", "uid", "resourceVersion"];
    [text(), text(), text(), text()]
        .prop_map(move |all| fields.iter().zip(all).map(|(name, value)| ((*name).to_owned(), value)).collect())
}

/// Generates objects with all kinds of metadata.
fn objects() -> impl Strategy<Value = Json> {
    let metadata = mixed(identities(), members()).prop_map(|metadata| vec![("metadata".to_owned(), metadata)]);
    mixed(metadata, members())
}

fn wanted(value: &Value, field: &str) -> Option<String> {
    value["metadata"][field].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Returns whether the server provided the complete identity and the version.
fn given(value: &Value) -> bool {
    ["uid", "resourceVersion"].iter().all(|field| wanted(value, field).is_some())
}

proptest! {
    #[test]
    fn number_decodes_to_nearest_value(digits in 1_u64.., exponent in -320_i32..300) {
        let number = format!("{digits}e{exponent}");
        let wanted: f64 = number.parse()?;
        prop_assume!(wanted.is_finite());
        let written = format!(r#"{{"metadata": {{"name": "a", "uid": "u", "resourceVersion": "1"}}, "spec": {{"share": {number}}}}}"#);
        let object: DynamicObject = decode(&item(&written)?)?;
        prop_assert_eq!(object.data["spec"]["share"].as_f64(), Some(wanted), "{}", number);
    }
}

proptest! {
    #[test]
    fn object_identity_matches_serde(tree in objects(), style in Style::any()) {
        let written = tree.write(&mut style.clone());
        let value = read(written.as_bytes());
        let identity = match item(&written) {
            Ok(raw) => {
                prop_assert_eq!(read(&raw.bytes), value.clone());
                prop_assert_eq!(raw.managed_fields.is_some(), value["metadata"].get("managedFields").is_some());
                PartialIdentity {
                    key: Some(raw.identity.key),
                    uid: Some(raw.identity.uid),
                    version: Some(raw.identity.version),
                }
            }
            Err(error) => {
                prop_assert!(matches!(error.problem, RecordProblem::NoIdentity { .. }), "{error:?}");
                *error.identity
            }
        };
        let key = identity.key.as_ref();
        prop_assert_eq!(key.map(|key| key.name().to_owned()), wanted(&value, "name"));
        if let Some(key) = key {
            prop_assert_eq!(key.namespace().map(str::to_owned), wanted(&value, "namespace"));
        }
        // If the name is known, substitutes replace a missing UID and a missing version.
        prop_assert_eq!(identity.uid.is_some() && identity.version.is_some(), key.is_some() || given(&value));
        let uid = identity.uid.filter(Uid::is_from_server).map(|uid| uid.to_string());
        prop_assert_eq!(uid, wanted(&value, "uid"));
        let version = identity.version.filter(ResourceVersion::is_from_server).map(|version| version.to_string());
        prop_assert_eq!(version, wanted(&value, "resourceVersion"));
    }

    #[test]
    fn managed_fields_are_removed_at_any_position(
        tree in values(), before in members(), after in members(), style in Style::any(),
    ) {
        let plain = |members: Vec<(String, Json)>| {
            let taken = ["managedFields", "name", "uid", "resourceVersion", "namespace"];
            members.into_iter().filter(|(name, _)| !taken.contains(&name.as_str())).collect::<Vec<_>>()
        };
        let who = ["name", "uid", "resourceVersion"].map(|name| (name.to_owned(), text("1"))).to_vec();
        for (before, after) in [
            ([plain(before.clone()), who.clone()].concat(), plain(after.clone())),
            (plain(before), [who.clone(), plain(after)].concat()),
            (Vec::new(), who.clone()),
            (who, Vec::new()),
        ] {
            let all = [before, vec![("managedFields".to_owned(), tree.clone())], after].concat();
            let written = object([("metadata", Json::Object(all)), ("spec", object([]))]).write(&mut style.clone());
            let mut wanted = read(written.as_bytes());
            wanted["metadata"].as_object_mut().expect("the metadata are an object").remove("managedFields");
            prop_assert_eq!(without_managed_fields(&item(&written).expect("the item has an identity")), wanted);
        }
    }

    #[test]
    fn watch_record_accepts_any_member_order(
        all in mixed(
            (objects(), prop::sample::select(vec!["ADDED", "MODIFIED", "DELETED", "RENAMED"]))
                .prop_map(|(tree, kind)| vec![("object".to_owned(), tree), ("type".to_owned(), text(kind))]),
            prop::collection::vec((names().prop_filter("ours", |name| name != "object"), values()), 0..3),
        ),
        style in Style::line(),
    ) {
        let written = all.write(&mut style.clone());
        let value = read(written.as_bytes());
        let kind = match value["type"].as_str().unwrap_or_default() {
            "ADDED" => Some(RecordKind::Added),
            "MODIFIED" => Some(RecordKind::Modified),
            "DELETED" => Some(RecordKind::Deleted),
            _ => None,
        };
        match record(&written) {
            Ok(WatchRecord::Object { kind: found, object }) => {
                prop_assert_eq!(Some(found), kind);
                prop_assert_eq!(read(&object.bytes), value["object"].clone());
            }
            Ok(other) => prop_assert!(false, "{other:?}"),
            Err(error) => {
                prop_assert_eq!(error.kind, kind);
                let known = matches!(error.problem, RecordProblem::NoIdentity { .. });
                prop_assert_eq!(known, kind.is_some(), "{:?}", error);
            }
        }
    }

    #[test]
    fn damaged_record_decodes_or_is_reported(
        tree in objects(), style in Style::line(), at: prop::sample::Index, byte: u8,
    ) {
        let mut written = tree.write(&mut style.clone()).into_bytes();
        let at = at.index(written.len());
        written[at] = byte;
        let well_formed = serde_json::from_slice::<Value>(&written).is_ok();
        match list_item(Encoding::Json, &Bytes::from(written).into(), None) {
            Ok(raw) => {
                let _ = decode::<ConfigMap>(&raw);
                let mut whole = Decoder::new(DecodeOptions { keep_managed_fields: true });
                prop_assert_eq!(whole.decode::<Value>(&raw).is_ok(), well_formed);
            }
            Err(error) => {
                let damaged = matches!(error.problem, RecordProblem::Malformed { .. });
                prop_assert!(!(damaged && well_formed), "{:?}", error);
            }
        }
    }
}

const POD: &str = r#"{"metadata":{"managedFields":[{"manager":"kubelet","fieldsV1":{"f:a":{}}}],"name":"web-0",
    "namespace":"shop","uid":"u-1","resourceVersion":"12","labels":{"app":"web"}},
    "spec":{"nodeName":"node-1","containers":[{"name":"web"}]},"status":{"phase":"Running"}}"#;

/// Custom struct with a single field.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Pod)]
struct Slim {
    metadata: ObjectMeta,
    spec: SlimSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    node_name: String,
}

#[derive(Clone, Debug, CustomResource, Deserialize, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Backup", namespaced, schema = "disabled")]
struct BackupSpec {
    size: u32,
}

#[test]
fn every_form_decodes_from_one_object() {
    let raw = item(POD).expect("the item has an identity");
    assert_eq!(raw.identity.key, ObjectKey::namespaced("shop", "web-0"));
    assert_eq!((&*raw.identity.uid, raw.identity.version.as_str()), ("u-1", "12"));

    let pod: Pod = decode(&raw).expect("a pod");
    assert_eq!(Cacheable::labels(&pod).unwrap_or_default().get("app").map(String::as_str), Some("web"));
    assert_eq!(pod.metadata.managed_fields, None);
    assert_eq!(decode::<DynamicObject>(&raw).expect("any object").data["status"]["phase"], "Running");
    assert_eq!(decode::<PartialObjectMeta<Pod>>(&raw).expect("metadata").metadata.uid.as_deref(), Some("u-1"));
    assert_eq!(decode::<Slim>(&raw).expect("the projection decodes").spec.node_name, "node-1");
    assert_eq!(read(&decode::<Lazy<Pod>>(&raw).expect("bytes").bytes()), without_managed_fields(&raw));

    assert!(<PartialObjectMeta<Pod> as Cacheable>::metadata_only());
    assert!(!<Pod as Cacheable>::metadata_only() && !<Slim as Cacheable>::metadata_only());

    let backup = item(
        r#"{"apiVersion":"example.com/v1","kind":"Backup","metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{"size":3}}"#,
    );
    assert_eq!(decode::<Backup>(&backup.expect("the item has an identity")).expect("a backup").spec.size, 3);
}

#[test]
fn managed_fields_are_kept_on_request() {
    let raw = item(POD).expect("the item has an identity");
    let mut decoder = Decoder::new(DecodeOptions { keep_managed_fields: true });
    let pod = Pod::decode(&raw, &mut decoder).expect("a pod");
    assert_eq!(pod.metadata.managed_fields.map(|fields| fields.len()), Some(1));
}

#[test]
fn decode_error_contains_position_without_content() {
    let metadata = r#"{"managedFields":[1,2,3],"name":"token","namespace":"shop","uid":"u","resourceVersion":"9"}"#;
    for (rest, message) in [
        (r#""data":"s3cr3t""#, "string"),
        (r#""data":{"a":["s3cr3t"]}"#, "sequence"),
        (r#""data":{"a":"not base64: s3cr3t!"}"#, ""),
        (r#""immutable":"s3cr3t""#, "string"),
        (r#""kind":"s3cr3t""#, ""),
        (r#""data":{"s3cr3t":tru}"#, "malformed"),
        (r#""data":{"a":"s3cr3t\q"}"#, "malformed"),
    ] {
        let raw = item(&format!(r#"{{"metadata":{metadata},{rest}}}"#)).expect("the item has an identity");
        let error = decode::<Secret>(&raw).expect_err(rest);
        let reported = format!("{error} {error:?} {raw:?} {:?}", error.source());
        assert!(!reported.contains("s3cr3t"), "{reported}");
        assert!(reported.contains("shop/token at version 9") && error.to_string().contains(message), "{reported}");
        assert!((metadata.len()..=raw.bytes.len()).contains(&error.offset()), "{reported}");
    }
    for broken in [
        r#"{"type":"ADDED","object":{"metadata":{"uid":"a"},"data":{"k":s3cr3t}}}"#,
        r#"{"type":"ADDED","object":{"metadata":{"uid":"a"},"data":{"k":"s3cr3t"}}}"#,
        r#"{"type":"ADDED","object":"s3cr3t"}"#,
        r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"data":{"k":"s3cr3t"#,
    ] {
        let error = record(broken).expect_err(broken);
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
    }
}

#[test]
fn invalid_utf8_in_skipped_field_is_malformed() {
    let metadata = r#"{"managedFields":[1,2,3],"name":"a","uid":"u","resourceVersion":"1"}"#;
    let mut written = format!(r#"{{"metadata":{metadata},"spec":{{"other":"s3cr3t?"}}}}"#).into_bytes();
    let at = written.len() - 4;
    written[at] = 0xff;
    let raw = list_item(Encoding::Json, &Bytes::from(written.clone()).into(), None).expect("the item has an identity");
    for error in [
        decode::<PartialObjectMeta<Pod>>(&raw).map(drop).expect_err("not UTF-8"),
        decode::<DynamicObject>(&raw).map(drop).expect_err("not UTF-8"),
    ] {
        assert!(error.to_string().contains("malformed JSON") && !error.to_string().contains("s3cr3t"), "{error}");
        assert!((at..=at + 2).contains(&error.offset()), "{error}");
    }
    // The removed part is not validated.
    written[at] = b'?';
    written[metadata.find('1').expect("the metadata contain the digit") + 12] = 0xff;
    let raw = list_item(Encoding::Json, &Bytes::from(written).into(), None).expect("the item has an identity");
    assert_eq!(decode::<DynamicObject>(&raw).expect("an object").data["spec"]["other"], "s3cr3t?");
}

#[test]
fn missing_field_is_named() {
    let raw = item(r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{}}"#)
        .expect("the item has an identity");
    let error = decode::<Slim>(&raw).expect_err("no node");
    assert_eq!(error.to_string(), "a at version 1 cannot be decoded, at byte 66 of the object: no field \"nodeName\"");
}

#[test]
fn broken_record_error_contains_recognized_parts() {
    let error = record(
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5"},"spec":}}"#,
    );
    let error = error.expect_err("the record is malformed");
    assert_eq!(error.kind, Some(RecordKind::Modified));
    assert_eq!(error.identity.key, Some(ObjectKey::namespaced("n", "a")));
    assert_eq!(error.identity.version, Some("5".into()));
    assert!(matches!(error.problem, RecordProblem::Malformed { .. }));

    // A namespace could have followed, so no key is known.
    let error = record(r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","#).expect_err("the record is malformed");
    assert_eq!(error.identity.key, None);

    let error = item(r#"{"metadata":{"uid":"u","resourceVersion":"5"}}"#).expect_err("the item has no name");
    assert_eq!(error.problem, RecordProblem::NoIdentity { missing: "metadata.name" });
    assert_eq!(error.to_string(), "an object without a known name at version 5: an object without metadata.name");
    // An overlong UID differs from a missing one.
    let error = item(&format!(r#"{{"metadata":{{"name":"a","uid":"{}"}}}}"#, "u".repeat(2000))).expect_err("too long");
    assert_eq!(error.problem, RecordProblem::NoIdentity { missing: "metadata.uid" });

    let error = record(r#"{"type":"SYNC","object":{}}"#).expect_err("the type is unknown");
    assert_eq!(error.problem, RecordProblem::UnknownType { name: "SYNC".to_owned() });
    let error = record(r#"{"type":"ADDED"}"#).expect_err("the record has no object");
    assert_eq!(error.problem, RecordProblem::NoObject);
}

#[test]
fn object_without_uid_is_identified_by_name() {
    let written =
        |value| format!(r#"{{"metadata":{{"name":"a","namespace":"n","resourceVersion":""}},"cpu":"{value}"}}"#);
    let known = |written: &str| item(written).expect("a name is enough").identity;
    let (one, again, other) = (known(&written(1)), known(&written(1)), known(&written(2)));
    assert_eq!(one, again);
    assert_eq!((&one.key, &one.uid), (&other.key, &other.uid));
    assert_ne!(one.version, other.version);
    assert_eq!((one.uid.is_from_server(), one.version.is_from_server(), one.version.as_str()), (false, false, ""));
    let Ok(WatchRecord::Object { object, .. }) = record(&format!(r#"{{"type":"ADDED","object":{}}}"#, written(1)))
    else {
        panic!("the record contains an object")
    };
    assert_eq!(object.identity, one, "the identity must not depend on the position of the object");
    // Malformed JSON keeps the key and the substitute UID. The substitute version is derived from the error instead of
    // the bytes.
    let error = item(&written(3).replace(r#""3""#, "")).expect_err("the item is malformed");
    assert_eq!((error.identity.key, error.identity.uid), (Some(one.key), Some(one.uid)));
    assert!(error.identity.version.is_some_and(|version| version != one.version));
}

#[test]
fn too_deep_object_keeps_its_identity() {
    let nested = |levels| format!("{}1{}", r#"{"f:a":"#.repeat(levels), "}".repeat(levels));
    let deep = nested(100_000);
    let written = format!(
        r#"{{"metadata":{{"managedFields":[{deep}],"labels":{{"a":"b"}},"name":"a","uid":"u","resourceVersion":"7"}},"spec":{deep}}}"#
    );
    let Ok(WatchRecord::Object { object, .. }) = record(&format!(r#"{{"type":"ADDED","object":{written}}}"#)) else {
        panic!("the record contains an object")
    };
    assert_eq!((object.identity.key.name(), object.identity.version.as_str()), ("a", "7"));
    assert_eq!(item(&written).expect("the item is an object").identity, object.identity);
    let error = decode::<DynamicObject>(&object).expect_err("the object is too deep");
    assert!(error.to_string().ends_with("nested deeper than 128 levels"), "{error}");
    // The deeply nested part of the metadata is in `managedFields`, which are removed.
    let alone = item(&written.replace(&format!(r#","spec":{deep}"#), "")).expect("the item is an object");
    assert!(decode::<PartialObjectMeta<Pod>>(&alone).is_ok_and(|object| object.metadata.labels.is_some()));
    assert_eq!(
        decode::<Lazy<Pod>>(&object).expect("bytes").bytes().len(),
        written.len() - deep.len() - r#""managedFields":[],"#.len()
    );
}

#[test]
fn bookmark_contains_version_and_initial_events_end() {
    let bookmark = |annotations: &str| {
        record(&format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","metadata":{{"resourceVersion":"7","annotations":{annotations}}}}}}}"#
        ))
    };
    for (annotations, initial_events_end) in [
        ("null", false),
        (r#"{"k8s.io/initial-events-end":"true"}"#, true),
        (r#"{"x":"y","k8s.io\/initial-events-end":"true"}"#, true),
        (r#"{"k8s.io/initial-events-end":"false"}"#, false),
    ] {
        let wanted = Bookmark { version: "7".into(), initial_events_end };
        assert_eq!(bookmark(annotations), Ok(WatchRecord::Bookmark(wanted)), "{annotations}");
    }
    let error = record(r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#).expect_err("the bookmark has no version");
    assert_eq!(error.problem, RecordProblem::NoIdentity { missing: "metadata.resourceVersion" });
}

#[test]
fn status_is_read_in_stream_and_body() {
    let body = r#"{"kind":"Status","code":504,"reason":"Timeout","message":"Too large resource version",
        "details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"m"},{}],"retryAfterSeconds":1}}"#;
    let wanted = Status {
        code: 504,
        reason: "Timeout".to_owned(),
        message: "Too large resource version".to_owned(),
        causes: vec!["ResourceVersionTooLarge".to_owned()],
        retry_after_seconds: Some(1),
    };
    assert_eq!(status(Encoding::Json, body.as_bytes()), Some(wanted.clone()));
    assert_eq!(record(&format!(r#"{{"object":{body},"type":"ERROR"}}"#)), Ok(WatchRecord::Error(wanted)));
    for other in ["", "<html>", "{}", r#"{"kind":"Pod"}"#, "[1]"] {
        assert_eq!(status(Encoding::Json, other.as_bytes()), None, "{other}");
    }
}

/// Regression: an `ERROR` whose object had a name and a version counted as a change of that object.
#[test]
fn error_without_status_fails_the_stream() {
    let metadata = r#"{"name":"a","namespace":"shop","uid":"u","resourceVersion":"99"}"#;
    for object in [
        r#""s3cr3t""#.to_owned(),
        "null".to_owned(),
        format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"s3cr3t":1}}"#),
        format!(r#"{{"metadata":{metadata},"a":s3cr3t}}"#),
    ] {
        let text = format!(r#"{{"type":"ERROR","object":{object}}}"#);
        let Ok(WatchRecord::Error(status)) = record(&text) else { panic!("{text}: {:?}", record(&text)) };
        assert_eq!((status.code, status.reason.as_str()), (0, ""), "{text}");
        assert!(status.message.contains("ERROR without a readable Status"), "{text}: {status:?}");
        assert!(!status.message.contains("s3cr3t"), "{status:?}");
    }
}

#[test]
fn object_of_another_kind_is_rejected() {
    let wanted = |metadata| ExpectedKind { api_version: "v1".into(), kind: "Pod".into(), metadata };
    let of = |types: &str| format!(r#"{{{types}"metadata":{{"name":"a","uid":"u","resourceVersion":"5"}}}}"#);
    let metadata = r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#;
    for (types, whole, alone) in [
        ("", true, true),
        (r#""kind":"Pod","#, true, true),
        (r#""kind":"Pod","apiVersion":"v1","#, true, true),
        (r#""kind":"","apiVersion":"","#, true, true),
        (metadata, false, true),
        (r#""kind":"Service","apiVersion":"v1","#, false, false),
        (r#""kind":"Service","#, false, false),
        (r#""kind":"Pod","apiVersion":"v2","#, false, false),
    ] {
        for (metadata, takes) in [(false, whole), (true, alone)] {
            let object = Bytes::from(of(types));
            let listed = list_item(Encoding::Json, &object.into(), Some(&wanted(metadata)));
            let record = Bytes::from(format!(r#"{{"type":"ADDED","object":{}}}"#, of(types)));
            let watched = watch_record(Encoding::Json, &record, Some(&wanted(metadata)));
            assert_eq!((listed.is_ok(), watched.is_ok()), (takes, takes), "{types} {metadata}");
        }
    }
    let service = Bytes::from(of(r#""kind":"Service\u001b","apiVersion":"v1","#));
    let error = list_item(Encoding::Json, &service.into(), Some(&wanted(false))).expect_err("the item is not a pod");
    assert_eq!(error.to_string(), r"a at version 5: a Service\u{1b} of v1, not the Pod of v1 that was requested");
    let ended = Bytes::from(r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}"#);
    assert!(matches!(watch_record(Encoding::Json, &ended, Some(&wanted(false))), Ok(WatchRecord::Error(_))));
}
