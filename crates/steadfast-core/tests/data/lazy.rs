//! Lazy objects and decoded objects agree.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::json;
use steadfast_core::decode::{Cacheable, DecodeError, DecodeOptions, Decoder, list_item};
use steadfast_core::{Encoding, Event, FieldPath, Lazy, Object, RawObject};

fn raw(object: &serde_json::Value) -> RawObject {
    list_item(Encoding::Json, &Bytes::from(object.to_string()).into(), None).expect("the item has an identity")
}

fn pod() -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "uid": "u-1",
            "resourceVersion": "12",
            "labels": { "app": "web", "tier/\"odd\"": "a" },
            "annotations": { "example.com/team": "blue" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o-1" }],
            "managedFields": [{ "manager": "kubelet", "fieldsV1": { "f:status": {} } }],
        },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "main" }], "priority": null },
        "status": { "phase": "Running" },
    })
}

/// Creates the handle of an object, as a cache does.
fn decode_object<K: Cacheable>(decoder: &mut Decoder, raw: &RawObject) -> Object<K> {
    Object::new(raw.identity.clone(), Arc::new(K::decode(raw, decoder).expect("the cache keeps the object")))
}

#[test]
fn lazy_object_equals_eager_one_without_managed_fields() {
    let raw = raw(&pod());
    let lazy: Object<Lazy<Pod>> = decode_object(&mut Decoder::default(), &raw);
    let pod: Object<Pod> = decode_object(&mut Decoder::default(), &raw);
    assert_eq!(*lazy.get().unwrap(), *pod);
    assert_eq!(pod.metadata.managed_fields, None);
    assert_eq!(lazy.decoded().unwrap(), pod);
    assert_eq!(lazy.identity(), pod.identity());
    // Without `managedFields`, the kept bytes are fewer than the received ones.
    assert!(lazy.bytes().len() < raw.bytes.len());

    let keep_all = DecodeOptions { keep_managed_fields: true };
    let complete: Object<Lazy<Pod>> = decode_object(&mut Decoder::new(keep_all), &raw);
    assert_eq!(*complete.bytes(), *raw.bytes);
}

#[test]
fn decoded_object_is_shared_while_held() {
    let mut decoder = Decoder::default();
    let lazy: Object<Lazy<Pod>> = decode_object(&mut decoder, &raw(&pod()));
    let first = lazy.get().unwrap();
    assert!(Arc::ptr_eq(&first, &lazy.get().unwrap()));
    let weak = Arc::downgrade(&first);
    drop(first);
    assert!(weak.upgrade().is_none(), "no other owner keeps the decoded object");

    let (one, other): (Object<Lazy<Pod>>, Object<Lazy<Pod>>) =
        (decode_object(&mut decoder, &raw(&pod())), decode_object(&mut decoder, &raw(&pod())));
    assert!(!Arc::ptr_eq(&one.get().unwrap(), &other.get().unwrap()));
}

#[test]
fn packed_object_reads_like_unpacked_one() {
    let mut decoder = Decoder::default().delta_compressed();
    let mut plain = Decoder::default();
    let mut siblings = Vec::new();
    for number in 0..20 {
        let mut pod = pod();
        pod["metadata"]["name"] = format!("web-{number}").into();
        pod["spec"]["hostname"] = "a line that all of them have, as siblings do: ".repeat(20).into();
        pod["status"]["podIP"] = format!("10.0.0.{number}").into();
        let raw = raw(&pod);
        let (packed, extra_bytes) = decoder.decode_with_size::<Lazy<Pod>>(&raw).expect("the cache keeps the object");
        let packed = (Object::new(raw.identity.clone(), Arc::new(packed)), extra_bytes);
        let unpacked: Object<Lazy<Pod>> = decode_object(&mut plain, &raw);
        assert_eq!(packed.0.bytes(), unpacked.bytes());
        assert_eq!(packed.0.get().unwrap(), unpacked.get().unwrap());
        let path = FieldPath::new("status.podIP");
        assert_eq!(packed.0.read::<String>(&path).unwrap(), unpacked.read::<String>(&path).unwrap());
        assert_eq!(packed.0.labels().unwrap(), unpacked.labels().unwrap());
        if number > 0 {
            let (packed, unpacked) = (packed.1, unpacked.bytes().len());
            assert!(packed > 0 && packed < unpacked / 2, "{packed} bytes of {unpacked}");
        }
        // The first object stays alive, so that it can serve as the dictionary of the others.
        siblings.push(packed.0);
    }
}

#[test]
fn fields_are_read_by_path() {
    let lazy: Object<Lazy<Pod>> = decode_object(&mut Decoder::default(), &raw(&pod()));
    let text = |path: FieldPath| lazy.read::<String>(&path).unwrap();
    assert_eq!(text("spec.nodeName".into()), Some("node-1".to_owned()));
    assert_eq!(text(FieldPath::new("metadata.annotations").then("example.com/team")), Some("blue".to_owned()));
    for nothing in ["spec.priority", "spec.nodeName.deeper", "spec.hostname", "nothing.at.all", "status.phase.x"] {
        assert_eq!(text(nothing.into()), None, "{nothing}");
    }
    let spec = lazy.read::<PodSpec>(&"spec".into()).unwrap().unwrap();
    assert_eq!(spec.containers[0].name, "main");

    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier/\"odd\"".to_owned(), "a".to_owned())]);
    assert_eq!(lazy.labels().unwrap(), labels);
    assert_eq!(Cacheable::labels(&*lazy).unwrap().into_owned(), labels);
    assert_eq!(lazy.annotations().unwrap()["example.com/team"], "blue");
    assert_eq!(lazy.owner_references().unwrap()[0].name, "web");
    assert!(!lazy.is_being_deleted().unwrap());
}

#[test]
fn last_duplicate_member_counts_like_serde() {
    // `\u0065` is `e`: both members have the name `spec`, so the names must be compared after decoding.
    let text = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{"nodeName":"n-1"},"sp\u0065c":{"hostname":"h"}}"#;
    let raw = list_item(Encoding::Json, &Bytes::from(text).into(), None).unwrap();
    let lazy: Object<Lazy<kube::core::DynamicObject>> = decode_object(&mut Decoder::default(), &raw);
    assert_eq!(lazy.read::<String>(&"spec.nodeName".into()).unwrap(), None);
    assert_eq!(lazy.read::<String>(&"spec.hostname".into()).unwrap(), Some("h".to_owned()));
    assert_eq!(lazy.get().unwrap().data["spec"], json!({ "hostname": "h" }));
}

#[test]
fn type_mismatch_is_reported_on_read_without_content() {
    let mut object = pod();
    object["spec"]["containers"] = json!("s3cr3t");
    let (sender, errors) = mpsc::channel();
    let on_undecodable = move |error: &DecodeError| sender.send(error.clone()).unwrap();
    let raw = raw(&object);
    let lazy: Object<Lazy<Pod>> = decode_object(&mut Decoder::default().on_undecodable(Arc::new(on_undecodable)), &raw);
    assert_eq!(lazy.read::<String>(&"spec.nodeName".into()).unwrap(), Some("node-1".to_owned()));
    assert!(errors.try_recv().is_err(), "reading one field must not decode the object");

    let error = lazy.get().unwrap_err();
    let eager = Pod::decode(&raw, &mut Decoder::new(DecodeOptions { keep_managed_fields: true })).unwrap_err();
    assert_eq!((error.key(), error.version()), (eager.key(), eager.version()));
    assert!(error.to_string().contains("string") && !error.to_string().contains("s3cr3t"), "{error}");
    assert!(lazy.get().is_err() && lazy.annotations().is_ok() && lazy.get().is_err());
    assert_eq!(errors.try_iter().collect::<Vec<_>>(), [error], "the error must be reported once for all reads");

    let error = lazy.read::<u32>(&"spec.nodeName".into()).unwrap_err();
    assert!(error.to_string().contains("shop/web-0") && !error.to_string().contains("node-1"), "{error}");
}

#[test]
fn type_mismatch_error_contains_original_identity() {
    let mut object = pod();
    object["metadata"]["creationTimestamp"] = json!(7);
    let named = raw(&object);
    let lazy: Object<Lazy<Pod>> = decode_object(&mut Decoder::default(), &named);
    let error = lazy.get().unwrap_err();
    assert_eq!((error.key(), error.version()), (&named.identity.key, &named.identity.version));

    object["metadata"]["labels"] = json!(7);
    let (sender, errors) = mpsc::channel();
    let on_undecodable = move |error: &DecodeError| sender.send(error.clone()).unwrap();
    let lazy: Object<Lazy<Pod>> =
        decode_object(&mut Decoder::default().on_undecodable(Arc::new(on_undecodable)), &raw(&object));
    assert!(
        lazy.read::<u32>(&"spec.nodeName".into()).is_err() && errors.try_recv().is_err(),
        "a wrong type in a query is not a decode error"
    );
    assert!(lazy.labels().is_err() && errors.try_recv().is_ok(), "labels of an invalid type are a decode error");
}

#[test]
fn decodable_state_after_type_mismatch_is_added() {
    let mut decoder = Decoder::default();
    let mut broken = pod();
    broken["spec"]["containers"] = json!(7);
    let (old, new) = (
        decode_object::<Lazy<Pod>>(&mut decoder, &raw(&broken)),
        decode_object::<Lazy<Pod>>(&mut decoder, &raw(&pod())),
    );
    let event = Event::Updated { old: old.clone(), new: new.clone() }.decoded().unwrap();
    assert_eq!(format!("{event:?}"), "Added { object: Pod shop/web-0 v12, initial: false }");
    assert!(Event::Updated { old: new, new: old }.decoded().is_err());
}

#[test]
fn decoded_event_contains_all_states() {
    let mut decoder = Decoder::default();
    let mut later = pod();
    later["metadata"]["resourceVersion"] = json!("13");
    let (old, new) = (
        decode_object::<Lazy<Pod>>(&mut decoder, &raw(&pod())),
        decode_object::<Lazy<Pod>>(&mut decoder, &raw(&later)),
    );
    let event = Event::Updated { old, new };
    assert_eq!(format!("{event:?}"), "Updated { object: Lazy<Pod> shop/web-0 v13, from: v12 }");
    let Event::Updated { old, new } = event.decoded().unwrap() else { panic!("the event must be an update") };
    assert_eq!((old.metadata.resource_version.as_deref(), new.version().as_str()), (Some("12"), "13"));
}
