//! Rejected objects.

use serde_json::{Value, json};

use crate::differential::generate::ScriptBuilder;
use crate::differential::kinds::{COMMON_KINDS, KINDS};
use crate::differential::script::Step;

/// Adds a creation with one error, or with a value that looks like one.
pub fn add_invalid_object(builder: &mut ScriptBuilder) {
    // Kinds with further validation on a real server are excluded: see "few validation rules" in
    // `docs/embedded-server.md`.
    let index = builder.rng.below(COMMON_KINDS);
    let at = builder.collection(index);
    let mut object = builder.object(index, "bad");
    let mut number = builder.rng.below(52);
    // The path supplies the kind and version of a custom resource that lacks them.
    if KINDS[index].is_custom && matches!(number, 44 | 45) {
        number = 42;
    }
    let (option, field, value) = wrong_metadata(number);
    if number < 42 {
        if matches!(field, "generateName") {
            object["metadata"]["name"] = Value::Null;
        }
        object["metadata"][field] = value;
    }
    let mut step = Step::new("odd object", "POST", at.clone());
    step = match number {
        ..42 => step.label(option).json(&object),
        42 => {
            object["kind"] = "Nonsense".into();
            step.label("wrong kind").json(&object)
        }
        43 => {
            object["apiVersion"] = "nothing.example.com/v1".into();
            step.label("wrong version").json(&object)
        }
        44 => {
            object["kind"] = Value::Null;
            step.label("no kind").json(&object)
        }
        45 => {
            object["apiVersion"] = Value::Null;
            step.label("no version").json(&object)
        }
        46 => {
            object["metadata"] = Value::Null;
            step.label("no metadata").json(&object)
        }
        47 => step.query("dryRun=Some").label("unknown dry run").json(&object),
        48 => step.query("fieldManager=").query("fieldValidation=Strict").label("strict").json(&object),
        49 => step.query("fieldValidation=Roughly").label("unknown validation").json(&object),
        50 => step.query(&format!("fieldManager={}", "n".repeat(129))).label("manager too long").json(&object),
        _ => Step::new("odd object", "PUT", builder.path_of(index, "another")).label("other name").json(&object),
    };
    // Some of these requests succeed. They are dry runs, so that no other script sees the object.
    if !step.path.contains("dryRun") {
        step = step.query("dryRun=All");
    }
    builder.push(step);
}

/// Returns an error in the metadata: its description, the field, and the value.
fn wrong_metadata(number: usize) -> (&'static str, &'static str, Value) {
    let name = |length: usize| "n".repeat(length);
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "an-owner"});
    let mut controller = owner.clone();
    controller["controller"] = true.into();
    match number {
        0 => ("invalid name", "name", "Not_Valid".into()),
        1 => ("invalid name", "name", "-a".into()),
        2 => ("invalid name", "name", "a..b".into()),
        3 => ("invalid name", "name", "a/b".into()),
        4 => ("invalid name", "name", "..".into()),
        5 => ("long name", "name", name(253).into()),
        6 => ("name too long", "name", name(254).into()),
        7 => ("name that is a number", "name", 7.into()),
        8 => ("other namespace", "namespace", "default".into()),
        9 => ("no name", "name", Value::Null),
        10 => ("version given", "resourceVersion", "5".into()),
        11 => ("invalid label", "labels", json!({"app": "not valid!"})),
        12 => ("invalid label", "labels", json!({"app": "-"})),
        13 => ("long label", "labels", json!({"app": name(63)})),
        14 => ("label too long", "labels", json!({"app": name(64)})),
        15 => ("label that is a number", "labels", json!({"app": 7})),
        16 => ("invalid label key", "labels", json!({"not valid": "x"})),
        17 => ("invalid label key", "labels", json!({"a/b/c": "x"})),
        18 => ("invalid label key", "labels", json!({"": "x"})),
        19 => ("invalid label key", "labels", json!({"Big.Prefix/ok": "x"})),
        20 => ("long label key", "labels", json!({name(63): "x"})),
        21 => ("label key too long", "labels", json!({name(64): "x"})),
        22 => ("label prefix too long", "labels", json!({format!("{}/ok", name(254)): "x"})),
        23 => ("invalid annotation key", "annotations", json!({"not valid": "x"})),
        24 => ("annotation with upper case", "annotations", json!({"Upper.Case/Key": "x"})),
        25 => ("annotations too long", "annotations", json!({"a": name(262_145)})),
        26 => ("invalid finalizer", "finalizers", json!(["not valid"])),
        27 => ("unqualified finalizer", "finalizers", json!(["held"])),
        28 => ("finalizer of the server's", "finalizers", json!(["foregroundDeletion", "orphan"])),
        29 => {
            ("owner without a name", "ownerReferences", json!([{"apiVersion": "v1", "kind": "ConfigMap", "uid": "x"}]))
        }
        30 => {
            ("owner without a UID", "ownerReferences", json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}]))
        }
        31 => (
            "two controllers",
            "ownerReferences",
            json!([controller, {"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "q", "controller": true}]),
        ),
        32 => (
            "owner that must not be",
            "ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "q"}]),
        ),
        33 => ("generated from nothing", "generateName", "".into()),
        34 => ("generated from what is invalid", "generateName", "Not_Valid-".into()),
        35 => ("generated from what is too long", "generateName", name(300).into()),
        36 => ("owners that are not a list", "ownerReferences", json!({"a": "b"})),
        37 => ("labels that are not a map", "labels", json!(["a"])),
        38 => ("unknown field of metadata", "nonsense", "x".into()),
        39 => ("null label", "labels", json!({"app": null})),
        40 => ("deletion time given", "deletionTimestamp", "2020-01-01T00:00:00Z".into()),
        41 => ("self link given", "selfLink", "/somewhere".into()),
        _ => ("", "", Value::Null),
    }
}
