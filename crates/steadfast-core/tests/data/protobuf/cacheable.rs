//! Kept objects are equal in both encodings.

use std::sync::Arc;

use bytes::Bytes;
use kube::core::DynamicObject;
use serde_json::Value;
use steadfast_core::decode::{Cacheable, Decoder, list_item};
use steadfast_core::frame::Item;
use steadfast_core::{Encoding, FieldPath, Lazy, Object};

use super::samples::{corpus, id};

fn kept(encoding: Encoding, item: &Item) -> Object<Lazy<DynamicObject>> {
    let raw = list_item(encoding, item, None).expect("the item has an identity");
    let lazy = Lazy::decode(&raw, &mut Decoder::default()).expect("the cache keeps the object");
    Object::new(raw.identity, Arc::new(lazy))
}

/// Collects the paths to all members within `value`, and to a missing member within each.
fn paths(value: &Value, here: Option<&FieldPath>, found: &mut Vec<FieldPath>) {
    let Value::Object(members) = value else { return };
    for (name, member) in members {
        let path = here.map_or_else(|| FieldPath::new(name), |here| here.clone().then(name));
        paths(member, Some(&path), found);
        found.push(path.clone().then("nothing"));
        found.push(path);
    }
}

#[test]
fn every_field_path_reads_like_json() {
    for (api_version, kind, protobuf, json) in corpus() {
        let mut value: Value = serde_json::from_str(json).expect("Go writes JSON");
        value["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        if value["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
            continue;
        }
        let from_json = kept(Encoding::Json, &Bytes::from(json.to_owned()).into());
        let from_protobuf = kept(Encoding::Protobuf, &Item::of_message(protobuf.into(), id(api_version, kind)));
        assert_eq!(from_protobuf.identity(), from_json.identity(), "{kind}");
        assert_eq!(from_protobuf.get().unwrap(), from_json.get().unwrap(), "{kind}");
        assert!(from_json.get().unwrap().metadata.managed_fields.is_none(), "{kind}");

        let mut all = Vec::new();
        paths(&value, None, &mut all);
        assert!(all.len() > 4, "{kind}");
        for path in &all {
            let read = |from: &Lazy<DynamicObject>| from.read::<Value>(path).expect("valid JSON");
            let expected = lookup(&value, path);
            assert_eq!(read(&from_json), expected, "{kind}: {path}");
            assert_eq!(read(&from_protobuf), expected, "{kind}: {path}");
        }
    }
}

/// Returns the value at `path` in `value`, as a reference.
fn lookup(value: &Value, path: &FieldPath) -> Option<Value> {
    let found = path.names().iter().try_fold(value, |value, name| value.as_object()?.get(&**name));
    found.filter(|found| !found.is_null()).cloned()
}
