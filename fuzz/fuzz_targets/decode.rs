//! Fuzzes decoding: the identity that is extracted without decoding must match `serde_json`, and no record may cause a
//! panic.
#![no_main]

use bytes::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::{DynamicObject, PartialObjectMeta};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use steadfast_core::decode::{
    Cacheable, DecodeOptions, Decoder, Encoding, RawObject, RecordProblem, WatchRecord, list_item, watch_record,
};
use steadfast_core::record::Identity;

fuzz_target!(|input: &[u8]| {
    let record = Bytes::copy_from_slice(input);
    let value = serde_json::from_slice::<Value>(&record).ok();
    check_item(&record, value.as_ref());
    check_event(&record, value.as_ref());
    if let Some(status) = steadfast_core::decode::status(Encoding::Json, &record) {
        let failure = steadfast_core::reflector::Failure::from_status(&status, None);
        assert!(failure.message.len() <= 4096, "the text of a failure must be short");
    }
});

fn check_item(item: &Bytes, value: Option<&Value>) {
    match list_item(Encoding::Json, &item.clone().into(), None) {
        Ok(object) => {
            if let Some(value) = value {
                assert_identity(&object.identity, value);
            }
            check_decoded_forms(&object, value);
        }
        Err(error) => {
            let _ = error.to_string();
            if let Some(value) = value {
                assert_field_missing(&error.problem, value);
            }
        }
    }
}

fn check_event(record: &Bytes, value: Option<&Value>) {
    let Some(value) = value else {
        drop(watch_record(Encoding::Json, record, None));
        return;
    };
    let object = &value["object"];
    match watch_record(Encoding::Json, record, None) {
        Ok(WatchRecord::Object { object: raw, .. }) => {
            assert!(matches!(value["type"].as_str(), Some("ADDED" | "MODIFIED" | "DELETED")));
            assert_identity(&raw.identity, object);
            assert_eq!(&serde_json::from_slice::<Value>(&raw.bytes).expect("serde_json reads each part"), object);
            check_decoded_forms(&raw, Some(object));
        }
        Ok(WatchRecord::Bookmark(bookmark)) => {
            assert_eq!(value["type"], "BOOKMARK");
            let metadata = &object["metadata"];
            assert_eq!(metadata["resourceVersion"], bookmark.version.as_str());
            let is_end_of_initial_events = metadata["annotations"]["k8s.io/initial-events-end"] == "true";
            assert_eq!(bookmark.initial_events_end, is_end_of_initial_events);
        }
        Ok(WatchRecord::Error(status)) => {
            assert_eq!(value["type"], "ERROR");
            // An `ERROR` event is a failure of the stream, even if it contains an object of another kind.
            let is_unexplained = status.message.contains("ERROR without a readable Status");
            assert!(is_unexplained || object["kind"] == "Status");
        }
        Err(error) => {
            let _ = error.to_string();
            match error.problem {
                RecordProblem::Malformed { .. } => panic!("serde_json reads a record with the error {error}"),
                RecordProblem::UnknownType { name } => assert!(name.chars().count() <= 32),
                RecordProblem::NoObject => assert!(value.get("object").is_none()),
                problem @ RecordProblem::NoIdentity { .. } => assert_field_missing(&problem, object),
                _ => {}
            }
        }
    }
}

fn assert_identity(identity: &Identity, object: &Value) {
    let metadata = &object["metadata"];
    assert_eq!(metadata["name"], identity.key.name());
    // If the server provides no UID, the name and the content of the object replace it.
    let field = |name: &str| metadata[name].as_str().unwrap_or_default();
    assert_eq!((field("uid"), field("uid").is_empty()), (identity.uid.as_str(), !identity.uid.is_from_server()));
    let version = &identity.version;
    assert_eq!(
        (field("resourceVersion"), field("resourceVersion").is_empty()),
        (version.as_str(), !version.is_from_server())
    );
    let namespace = metadata["namespace"].as_str().filter(|namespace| !namespace.is_empty());
    assert_eq!(identity.key.namespace(), namespace);
}

/// Checks that a field reported as missing is missing, or longer than a server ever generates this field.
fn assert_field_missing(problem: &RecordProblem, object: &Value) {
    let RecordProblem::NoIdentity { missing } = problem else {
        assert!(matches!(problem, RecordProblem::NoObject) || !object.is_object(), "{problem}");
        return;
    };
    let value = missing.split('.').fold(object, |value, name| &value[name]);
    assert!(value.as_str().is_none_or(|text| text.is_empty() || text.len() > 1024), "{missing} is present");
}

/// Decodes `object` into all forms. The complete form must equal the result of `serde_json` without `managedFields`.
fn check_decoded_forms(object: &RawObject, value: Option<&Value>) {
    for keep_managed_fields in [false, true] {
        let mut decoder = Decoder::new(DecodeOptions { keep_managed_fields });
        assert_error_has_message(ConfigMap::decode(object, &mut decoder));
        assert_error_has_message(Pod::decode(object, &mut decoder));
        assert_error_has_message(PartialObjectMeta::<ConfigMap>::decode(object, &mut decoder));
        assert_error_has_message(DynamicObject::decode(object, &mut decoder));
        let decoded = decoder.decode::<Value>(object);
        let Some(value) = value else {
            continue;
        };
        let mut decoded = decoded.expect("serde_json reads the whole object");
        let mut expected = value.clone();
        if !keep_managed_fields {
            // If `managedFields` occurs more than once in an object, only the last is removed.
            for value in [&mut decoded, &mut expected] {
                value["metadata"].as_object_mut().expect("the object has a name").remove("managedFields");
            }
        }
        assert_eq!(decoded, expected);
    }
}

fn assert_error_has_message<T>(decoded: Result<T, steadfast_core::decode::DecodeError>) {
    if let Err(error) = decoded {
        assert!(!error.to_string().is_empty());
    }
}
