//! Fields, their managers, and results of applying.

use serde_json::{Value, json};

use super::compare::Difference;
use super::field_set::FieldSet;
use super::fields::field_set;
use super::managed::Managers;
use super::merge::merged;
use super::path::path_text;
use super::{FieldManagement, validate, yaml};
use crate::merging::types::TypeRef;
use crate::merging::{as_struct, trim};
use crate::metadata::MANAGED_FIELDS;
use crate::resources::{Registry, ServedResource};
use crate::status::Status;
use crate::write_scope::{FieldManager, WriteScope};

fn decoded_set(fields: &Value) -> FieldSet {
    FieldSet::decode(fields).expect("a valid field set")
}

fn pod_type() -> TypeRef {
    TypeRef::for_builtin("v1", "Pod")
}

fn config_map_resource() -> ServedResource {
    let registry = Registry::with_declared(&[]);
    let served = registry.find_kind("v1", "ConfigMap").expect("config maps are built in");
    ServedResource::clone(served)
}

fn manager(name: &str, force: bool) -> FieldManager {
    FieldManager { name: name.to_owned(), subresource: "", force }
}

/// Applies a config map, `second` seconds after the start of 2026.
fn apply(live: Option<&Value>, name: &str, force: bool, second: u8, fields: &Value) -> Result<Value, Status> {
    let mut applied = fields.clone();
    applied["apiVersion"] = "v1".into();
    applied["kind"] = "ConfigMap".into();
    let (resource, manager) = (config_map_resource(), manager(name, force));
    let now = format!("2026-01-01T00:00:{second:02}Z");
    FieldManagement::new(&resource, WriteScope::Main, "v1", &manager, &now).apply(live, &applied)
}

fn named_managers(object: &Value) -> Vec<(String, Value)> {
    let entries = object.pointer(MANAGED_FIELDS).and_then(Value::as_array).cloned().unwrap_or_default();
    let named_entries = entries.into_iter().map(|entry| {
        let manager = format!("{} {}", entry["operation"].as_str().unwrap(), entry["manager"].as_str().unwrap());
        (manager, entry["fieldsV1"].clone())
    });
    named_entries.collect()
}

#[test]
fn field_set_round_trips() {
    let fields = json!({
        "f:data": {".": {}, "f:a": {}},
        "f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}},
                   "f:tags": {"v:\"x\"": {}, "v:1": {}}, "f:list": {"i:0": {}}},
    });
    assert_eq!(decoded_set(&fields).encode(), fields);
    let texts: Vec<String> = decoded_set(&fields).paths().iter().map(|path| path_text(path)).collect();
    assert_eq!(
        texts,
        [
            ".data",
            ".data.a",
            ".spec.list[0]",
            ".spec.ports[containerPort=80,protocol=\"TCP\"]",
            ".spec.ports[containerPort=80,protocol=\"TCP\"].name",
            ".spec.tags[=1]",
            ".spec.tags[=\"x\"]",
        ]
    );
    for invalid_set in [json!([]), json!({"data": {}}), json!({"f:data": 1}), json!({"k:[1]": {}}), json!({"i:x": {}})]
    {
        assert_eq!(FieldSet::decode(&invalid_set), None, "{invalid_set}");
    }
}

#[test]
fn set_operations_match_their_names() {
    let one = decoded_set(&json!({"f:a": {".": {}, "f:x": {}}, "f:b": {}}));
    let other = decoded_set(&json!({"f:a": {"f:x": {}, "f:y": {}}, "f:c": {}}));
    assert_eq!(one.union(&other).encode(), json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}, "f:c": {}}));
    assert_eq!(one.intersection(&other).encode(), json!({"f:a": {"f:x": {}}}));
    assert_eq!(one.difference(&other).encode(), json!({"f:a": {}, "f:b": {}}));
    let whole = decoded_set(&json!({"f:a": {}}));
    assert_eq!(one.difference(&whole).encode(), json!({"f:a": {"f:x": {}}, "f:b": {}}));
    assert_eq!(one.recursive_difference(&whole).encode(), json!({"f:b": {}}));
    assert!(one.difference(&one).is_empty() && one.intersection(&decoded_set(&json!({}))).is_empty());
}

#[test]
fn every_builtin_kind_has_a_type() {
    for served in Registry::with_declared(&[]).all() {
        let type_ref = served.merge_type(&served.versions[0]);
        assert!(matches!(type_ref, TypeRef::Named(_)), "{} has none", served.kind);
        let metadata = type_ref.atom().map.as_ref().and_then(|map| map.declared_fields.get("metadata"));
        assert_eq!(
            metadata.map(|field| &field.type_ref),
            Some(&TypeRef::Named("meta.v1.ObjectMeta")),
            "{}",
            served.kind
        );
    }
}

#[test]
fn keyed_lists_merge_items_by_key() {
    let ports = |ports: Value| json!({"spec": {"containers": [{"name": "c", "ports": ports}]}});
    let live = ports(json!([{"containerPort": 80, "protocol": "TCP", "name": "old"}, {"containerPort": 53}]));
    let applied = ports(json!([{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 80, "hostPort": 1}]));
    let merged_object = merged(&pod_type(), Some(&live), Some(&applied)).expect("a merged object");
    assert_eq!(
        merged_object,
        ports(json!([
            {"containerPort": 53, "protocol": "UDP"},
            {"containerPort": 80, "protocol": "TCP", "name": "old", "hostPort": 1},
            {"containerPort": 53},
        ]))
    );
    let fields = field_set(&pod_type(), &applied).encode();
    let container = &fields["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"];
    let port = &container["f:ports"]["k:{\"containerPort\":80,\"protocol\":\"TCP\"}"];
    assert_eq!(*port, json!({".": {}, "f:containerPort": {}, "f:hostPort": {}}));
}

#[test]
fn atomic_value_is_one_field() {
    let pod = json!({"spec": {"nodeSelector": {"a": "1"}, "tolerations": [{"key": "k"}]}});
    assert_eq!(field_set(&pod_type(), &pod).encode(), json!({"f:spec": {"f:nodeSelector": {}, "f:tolerations": {}}}));
    let other = json!({"spec": {"nodeSelector": {"b": "1"}, "tolerations": [{"key": "k"}]}});
    let difference = Difference::between(&pod_type(), &pod, &other);
    assert_eq!(difference.modified.encode(), json!({"f:spec": {"f:nodeSelector": {}}}));
    assert!(difference.added.is_empty() && difference.removed.is_empty());
}

#[test]
fn typed_struct_adds_and_omits_fields() {
    let object = json!({"metadata": {"labels": {}}, "spec": {"containers": [{"name": "c"}], "securityContext": {}}});
    let typed_view = as_struct(&pod_type(), &object);
    assert_eq!(typed_view["metadata"], json!({}));
    assert_eq!(typed_view["status"], json!({}));
    assert_eq!(typed_view["spec"], json!({"containers": [{"name": "c", "resources": {}}], "securityContext": {}}));
    let mut stored = object.clone();
    trim(&pod_type(), false, &mut stored);
    assert_eq!(stored, json!({"metadata": {}, "spec": {"containers": [{"name": "c"}], "securityContext": {}}}));
}

#[test]
fn custom_resource_merges_by_its_schema() {
    let text = json!({"type": "string"});
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b", "a"],
                       "items": {"type": "object", "properties": {"a": text, "b": {"type": "string", "default": "z"}}}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "keyed": keyed, "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
    }}}});
    let type_ref = TypeRef::from_schema(Some(&schema));
    let object = json!({"metadata": {"name": "n", "finalizers": ["f"]},
                        "spec": {"keyed": [{"a": "1"}], "set": ["x"], "whole": {"k": "v"},
                                 "free": {"list": [{"a": 1}], "deep": {"er": 1}}}});
    assert_eq!(
        field_set(&type_ref, &object).encode(),
        json!({
            "f:metadata": {"f:finalizers": {"v:\"f\"": {}}, "f:name": {}},
            "f:spec": {"f:keyed": {"k:{\"a\":\"1\",\"b\":\"z\"}": {".": {}, "f:a": {}}}, "f:set": {"v:\"x\"": {}},
                       "f:whole": {}, "f:free": {"f:list": {}, "f:deep": {".": {}, "f:er": {}}}},
        })
    );
    assert_eq!(validate::violations(&type_ref, &object), None);
    let unknown = json!({"spec": {"nothing": 1}});
    assert_eq!(
        validate::violations(&type_ref, &unknown).as_deref(),
        Some(".spec.nothing: field not declared in schema")
    );
    assert_eq!(TypeRef::from_schema(None), TypeRef::Deduced);
}

#[test]
fn apply_takes_and_releases_fields() {
    let first = json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "1"}});
    let object = apply(None, "alpha", false, 1, &first).unwrap();
    assert_eq!(named_managers(&object), [("Apply alpha".to_owned(), json!({"f:data": {"f:x": {}, "f:y": {}}}))]);
    assert_eq!(object["metadata"]["managedFields"][0]["time"], "2026-01-01T00:00:01Z");

    // Another manager applies one of the same fields, so both own it.
    let object =
        apply(Some(&object), "beta", false, 2, &json!({"metadata": {"name": "a"}, "data": {"x": "1"}})).unwrap();
    let shared = named_managers(&object);
    // The apply changed nothing in the object, so the other manager has no time and is sorted first.
    assert_eq!(shared[0], ("Apply beta".to_owned(), json!({"f:data": {"f:x": {}}})));
    assert_eq!(object["metadata"]["managedFields"][0].get("time"), None);

    // A released field stays while another manager owns it.
    let object = apply(Some(&object), "alpha", false, 3, &json!({"metadata": {"name": "a"}})).unwrap();
    assert_eq!((&object["data"], named_managers(&object).len()), (&json!({"x": "1"}), 1));
    let object = apply(Some(&object), "beta", false, 4, &json!({"metadata": {"name": "a"}})).unwrap();
    assert_eq!((object.get("data"), named_managers(&object)), (None, Vec::new()));
}

#[test]
fn conflict_names_fields_and_force_takes_them() {
    let fields = |x: &str| json!({"metadata": {"name": "a"}, "data": {"x": x, "y": x}});
    let object = apply(None, "alpha", false, 1, &fields("1")).unwrap();
    let conflict = apply(Some(&object), "beta", false, 2, &fields("2")).unwrap_err();
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
    assert_eq!(conflict.message, "Apply failed with 2 conflicts: conflicts with \"alpha\":\n- .data.x\n- .data.y");
    assert_eq!(
        conflict.details["causes"][0],
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"alpha\"", "field": ".data.x"})
    );
    let object = apply(Some(&object), "beta", true, 3, &fields("2")).unwrap();
    assert_eq!(named_managers(&object), [("Apply beta".to_owned(), json!({"f:data": {"f:x": {}, "f:y": {}}}))]);
}

/// Regression test for script 398 of the differential test of custom resources.
#[test]
fn whole_number_equals_its_decimal_form() {
    let (old, new) = (json!({"d": 2, "list": [{"e": 1.0}], "f": 1}), json!({"d": 2.0, "list": [{"e": 1}], "f": 1.5}));
    let difference = Difference::between(&TypeRef::Deduced, &old, &new);
    assert_eq!(difference.modified.encode(), json!({"f:f": {}}));
}

#[test]
fn repeated_apply_changes_nothing() {
    let fields = json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"x": "1"}});
    let object = apply(None, "alpha", false, 1, &fields).unwrap();
    assert_eq!(apply(Some(&object), "alpha", false, 9, &fields).unwrap(), object);
}

#[test]
fn fields_before_apply_have_their_own_manager() {
    let live = json!({"metadata": {"name": "a", "uid": "u"}, "data": {"x": "1"}});
    let object = apply(Some(&live), "alpha", false, 1, &json!({"data": {"y": "1"}})).unwrap();
    assert_eq!(
        named_managers(&object)[1],
        ("Update before-first-apply".to_owned(), json!({"f:data": {".": {}, "f:x": {}}}))
    );
    assert_eq!(object["data"], json!({"x": "1", "y": "1"}));
}

#[test]
fn oldest_updating_managers_are_merged() {
    let (resource, mut live) = (config_map_resource(), json!({"metadata": {"name": "a"}, "data": {}}));
    for number in 0..13 {
        let mut object = live.clone();
        object["data"][format!("k{number:02}")] = "v".into();
        let manager = manager(&format!("m{number:02}"), false);
        let now = format!("2026-01-01T00:00:{number:02}Z");
        let field_management = FieldManagement::new(&resource, WriteScope::Main, "v1", &manager, &now);
        if number == 0 {
            field_management.create(None, &mut object);
        } else {
            let sent_managers = live.pointer(MANAGED_FIELDS).cloned();
            field_management.update(&live, sent_managers.as_ref(), None, &mut object);
        }
        live = object;
    }
    let managers = named_managers(&live);
    assert_eq!(managers.len(), 10);
    let (oldest, fields) = &managers[0];
    assert_eq!(oldest, "Update ancient-changes");
    assert_eq!(*fields, json!({"f:data": {".": {}, "f:k00": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}}}));
}

#[test]
fn invalid_managers_are_rejected() {
    let entry = |field: &str, value: Value| {
        let mut entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"});
        entry[field] = value;
        json!([entry])
    };
    assert_eq!(Managers::decode(Some(&entry("fieldsV1", json!({})))).map(|managers| managers.0.len()), Some(1));
    for (field, value) in [
        ("operation", json!("Guess")),
        ("apiVersion", json!("")),
        ("fieldsType", json!("FieldsV9")),
        ("fieldsV1", json!({"x": {}})),
    ] {
        assert_eq!(Managers::decode(Some(&entry(field, value))), None, "{field}");
    }
}

#[test]
fn applied_yaml_bounds_its_aliases() {
    let parsed = yaml::parse(b"kind: ConfigMap\ndata:\n  a: \"1\"\n").unwrap();
    assert_eq!(parsed, json!({"kind": "ConfigMap", "data": {"a": "1"}}));
    assert_eq!(yaml::parse(b"{\"a\": 1}").unwrap(), json!({"a": 1}));
    for invalid_body in ["", "- a", "a: [", "text"] {
        let status = yaml::parse(invalid_body.as_bytes()).unwrap_err();
        assert!(status.code == 400 && status.message.starts_with("error decoding patch: "), "{}", status.message);
    }
    let duplicate_field_body = b"data:\n  a: \"1\"\n  a: \"2\"\n";
    assert_eq!(yaml::parse(duplicate_field_body).unwrap(), json!({"data": {"a": "2"}}));
    assert!(
        yaml::duplicate_field(duplicate_field_body).is_some() && yaml::duplicate_field(b"data:\n  a: x\n").is_none()
    );
    let levels = (1..12).map(|level| {
        let below = vec![format!("*a{}", level - 1); 10].join(",");
        format!("a{level}: &a{level} [{below}]\n")
    });
    let bomb: String = std::iter::once("a0: &a0 [x]\n".to_owned()).chain(levels).collect();
    assert_eq!(yaml::parse(bomb.as_bytes()).unwrap_err().code, 400);
}
