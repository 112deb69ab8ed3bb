//! Objects decoded from protobuf equal those decoded from their JSON. Invalid protobuf yields an error with a position
//! and without content, in time linear to its length.
//!
//! The corpus contains a few kinds, written by Go's own packages. All kinds are compared in
//! `crates/steadfast-testing/tests/reference/protobuf_types`.

mod build;
mod cacheable;
mod framing;
mod records;
mod samples;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use build::{delimited, enveloped, number, text};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use proptest::prelude::*;
use samples::{corpus, id};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use steadfast_core::protobuf::{Error, Reason, decode};

fn pod<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    decode(id("v1", "Pod"), bytes, true)
}

fn malformed<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    let error = result.expect_err("the bytes are not a valid message");
    assert!(*error.reason() == Reason::Malformed, "{error}");
    error
}

#[test]
fn object_equals_its_json() {
    for (api_version, kind, protobuf, json) in corpus() {
        let wanted: Value = serde_json::from_str(json).expect("Go writes JSON");
        let found: Value = decode(id(api_version, kind), &protobuf, true).expect("Go writes protobuf");
        assert_eq!(found, wanted, "{kind}");
    }
}

#[test]
fn every_form_equals_its_json() {
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct Projection {
        metadata: ObjectMeta,
        spec: Option<Spec>,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        node_name: Option<String>,
        volumes: Option<Vec<Value>>,
    }
    fn same<T: DeserializeOwned + PartialEq + std::fmt::Debug>(protobuf: &[u8], json: &str) {
        assert_eq!(pod::<T>(protobuf).expect("a pod"), serde_json::from_str::<T>(json).expect("a pod"));
    }
    let mut compared = 0;
    for (_, _, protobuf, json) in corpus().into_iter().filter(|(_, kind, ..)| *kind == "Pod") {
        same::<Pod>(&protobuf, json);
        same::<DynamicObject>(&protobuf, json);
        same::<Projection>(&protobuf, json);
        let metadata: PartialObjectMeta<Pod> = pod(&protobuf).expect("a pod");
        assert_eq!(metadata.metadata, pod::<Pod>(&protobuf).expect("a pod").metadata);
        compared += 1;
    }
    assert_eq!(compared, 3);
}

#[test]
fn missing_fields_match_go_output() {
    let listed: Value = decode(id("v1", "PodList"), &[], true).expect("an empty list");
    assert_eq!(listed, json!({"metadata": {}, "items": null}));
    let service: Value = decode(id("v1", "Service"), &[], true).expect("an empty service");
    assert_eq!(service, json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}));
    // The pod has one volume, whose message is empty.
    let spec = delimited(2, &delimited(1, &[]));
    assert_eq!(pod::<Value>(&spec).expect("a pod")["spec"], json!({"volumes": [{"name": ""}], "containers": null}));
}

#[test]
fn custom_enum_deserializes_like_json() {
    #[derive(Debug, Deserialize, PartialEq)]
    enum Phase {
        Running,
        Failed,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    struct Status {
        phase: Phase,
    }
    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    enum Source {
        Name(String),
    }
    #[derive(Debug, Deserialize)]
    struct Object {
        status: Status,
        metadata: Source,
    }
    let bytes = [delimited(1, &text(1, "a")), delimited(3, &text(1, "Running"))].concat();
    let object: Object = pod(&bytes).expect("the message is valid");
    assert_eq!((object.status.phase, object.metadata), (Phase::Running, Source::Name("a".to_owned())));
    let two = [delimited(1, &[text(1, "a"), text(3, "n")].concat()), delimited(3, &text(1, "Failed"))].concat();
    assert!(pod::<Object>(&two).is_err(), "two members of a variant must be rejected");
}

#[test]
fn managed_fields_are_omitted_unless_kept() {
    let entry = delimited(17, &text(1, "kubectl"));
    let template = delimited(2, &delimited(1, &[]));
    let bytes = [delimited(1, &[text(1, "a"), entry].concat()), template].concat();
    for keep in [false, true] {
        let value: Value = decode(id("v1", "Pod"), &bytes, keep).expect("a pod");
        assert_eq!(value["metadata"].get("managedFields").is_some(), keep);
        assert_eq!(value["metadata"]["name"], "a");
    }
}

#[test]
fn envelope_contains_object_type() {
    let bytes = enveloped("v1", "Pod", &delimited(1, &text(1, "a")));
    let value: Value = pod(&bytes).expect("a pod");
    assert_eq!((&value["apiVersion"], &value["kind"]), (&json!("v1"), &json!("Pod")));
    // Field 3 of `runtime.Unknown` is the content encoding, which no server sets.
    let compressed = [bytes, text(3, "gzip")].concat();
    malformed(pod::<Value>(&compressed));
    assert_eq!(pod::<Value>(b"k8s\0").expect("an empty pod"), pod::<Value>(&[]).expect("an empty pod"));
}

#[test]
fn unknown_fields_are_skipped() {
    let group = [&[0x93, 0x03][..], &text(7, "x"), &[0x9b, 0x03, 0x9c, 0x03], &[0x94, 0x03]].concat();
    for unknown in [
        text(50, "x"),
        number(51, u64::MAX),
        [&[0x99, 0x03][..], &[0; 8]].concat(),
        group,
        vec![0x95, 0x03, 1, 2, 3, 4],
    ] {
        for bytes in [
            [unknown.clone(), delimited(1, &text(1, "a"))].concat(),
            [delimited(1, &text(1, "a")), unknown.clone()].concat(),
            delimited(1, &[unknown.clone(), text(1, "a"), unknown.clone()].concat()),
        ] {
            assert_eq!(pod::<Value>(&bytes).expect("a pod")["metadata"], json!({"name": "a"}), "{unknown:?}");
        }
    }
}

#[test]
fn unrequested_fields_are_not_decoded() {
    #[derive(Debug, Deserialize)]
    struct Named {
        metadata: ObjectMeta,
    }
    // The pod's spec is not a valid message.
    let bytes = [delimited(2, &[0xff; 20]), delimited(1, &text(1, "a"))].concat();
    assert_eq!(pod::<Named>(&bytes).expect("a name").metadata.name.as_deref(), Some("a"));
    assert_eq!(malformed(pod::<Pod>(&bytes)).path(), "spec");
    assert!(pod::<IgnoredAny>(&bytes).is_ok());
}

#[test]
fn errors_contain_path_without_content() {
    #[derive(Debug, Deserialize)]
    struct Numbers {
        #[expect(dead_code, reason = "it is never decoded")]
        data: std::collections::BTreeMap<String, u64>,
    }
    let secret = delimited(2, &[text(1, "hidden-key"), number(2, 3)].concat());
    let error = malformed(decode::<Secret>(id("v1", "Secret"), &secret, true));
    assert_eq!(error.path(), "data");
    let wrong_wire = delimited(2, &delimited(2, &[text(1, "a"), number(5, 4)].concat()));
    assert_eq!(malformed(pod::<Pod>(&wrong_wire)).path(), "spec.containers[0]");

    let secret = delimited(2, &[text(1, "hidden-key"), text(2, "hidden-value")].concat());
    let error = decode::<Numbers>(id("v1", "Secret"), &secret, true).expect_err("bytes are not numbers");
    assert!(matches!(error.reason(), Reason::InvalidValue(_)));
    assert_eq!(error.path(), "data[*]");
    let reported = format!("{error} {error:?}");
    assert!(!reported.contains("hidden") && !reported.contains(&STANDARD.encode("hidden-value")), "{reported}");
}

#[test]
fn wrong_length_is_an_error_anywhere() {
    for length in [1_u64, 127, 1 << 31, 1 << 32, 1 << 63, u64::MAX] {
        let lie = [vec![0x0a], build::varint(length)].concat();
        malformed(pod::<Value>(&lie));
        malformed(pod::<Value>(&delimited(1, &lie)));
        malformed(pod::<Value>(&enveloped("v1", "Pod", &delimited(2, &[0x12, 0xff, 0xff, 0x03]))));
    }
    // Errors within skipped fields are detected as well.
    malformed(pod::<Value>(&[0x92, 0x03, 0x05, 0]));
}

#[test]
fn invalid_tags_are_errors() {
    for bytes in
        [&[0x00][..], &[0x06], &[0x0f], &[0x0c], &[0x80], &[0xff; 11], &[0x02], &[0xfa, 0xff, 0xff, 0xff, 0x7f, 0]]
    {
        malformed(pod::<Value>(bytes));
    }
    // The first message has an unterminated group, the second an unterminated varint.
    malformed(pod::<Value>(&[0x93, 0x03]));
    malformed(pod::<Value>(&[0x90, 0x03, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80]));
}

#[test]
fn duplicate_field_is_an_error() {
    malformed(pod::<Value>(&[delimited(1, &[]), delimited(1, &[])].concat()));
    let lists = [delimited(2, &[]), text(3, "Always"), delimited(2, &[])].concat();
    assert_eq!(malformed(pod::<Value>(&delimited(2, &lists))).path(), "spec");
}

#[test]
fn nesting_depth_limit_matches_json() {
    let definitions = id("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let nested = |depth: usize| {
        // The field `not` of a schema has the number 28.
        let schema = (0..depth).fold(text(5, "object"), |schema, _| delimited(28, &schema));
        delimited(2, &delimited(7, &delimited(4, &delimited(1, &schema))))
    };
    let decoded = |depth: usize| decode::<Value>(definitions, &nested(depth), true);
    assert!(decoded(60).is_ok());
    for deep in [130, 1000, 5_000] {
        let error = decoded(deep).expect_err("deeper than 128");
        assert!(*error.reason() == Reason::TooDeep, "{error}");
        assert!(decode::<IgnoredAny>(definitions, &nested(deep), true).is_ok(), "an ignored field has no depth limit");
    }
    // The depth limit equals that of `serde_json`.
    let deepest = (60..130).rfind(|depth| decoded(*depth).is_ok()).expect("a depth within the limit");
    let json = decoded(deepest).expect("the deepest object decodes").to_string();
    assert!(serde_json::from_str::<Value>(&json).is_ok());
    let one_more = json.replacen("{\"not\":", "{\"not\":{\"not\":", 1).replacen("}}", "}}}", 1);
    assert!(serde_json::from_str::<Value>(&one_more).is_err());
    // The message consists of unterminated groups of two bytes. A recursive decoder would overflow the stack.
    malformed(pod::<Value>(&[0x93, 0x03].repeat(100_000)));
}

#[test]
fn truncated_object_is_an_error() {
    for (api_version, kind, protobuf, _) in corpus() {
        let id = id(api_version, kind);
        let whole = decode::<Value>(id, &protobuf, true).expect("the whole object decodes");
        // The magic prefix and the kind precede the object. A cut directly after them yields an empty object.
        let head = 6 + usize::from(protobuf[5]);
        for end in (5..head).chain((head + 1..protobuf.len()).step_by(protobuf.len() / 300 + 1)) {
            // The fields of the envelope after the object are empty and may be missing.
            let cut = decode::<Value>(id, &protobuf[..end], true);
            assert!(cut.is_err() || cut.is_ok_and(|cut| cut == whole), "{kind} cut at {end}");
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200), place: prop::sample::Index) {
        for (api_version, kind, mut protobuf, _) in corpus().into_iter().step_by(3) {
            let id = id(api_version, kind);
            drop(decode::<Value>(id, &bytes, true));
            let at = place.index(protobuf.len());
            for (old, new) in protobuf[at..].iter_mut().zip(&bytes) {
                *old ^= new;
            }
            if let Ok(value) = decode::<Value>(id, &protobuf, true) {
                prop_assert!(serde_json::to_string(&value).is_ok());
            }
            drop(decode::<DynamicObject>(id, &protobuf, false));
        }
        drop(pod::<Pod>(&bytes));
    }
}
