//! Patches.

use serde_json::{Value, json};

use crate::differential::generate::ScriptBuilder;
use crate::differential::kinds::KINDS;
use crate::differential::script::Step;
use crate::differential::writes::create;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const OPERATIONS: &str = "application/json-patch+json";
const FINALIZER: &str = "steadfast.dev/held";

/// Adds a merge patch.
pub fn patch(builder: &mut ScriptBuilder) {
    let Some((kind, name, last)) = builder.existing_object() else { return create(builder) };
    let text = builder.rng.pick(&["one", "two", "three"]);
    let metadata = |fields: Value| json!({"metadata": fields});
    let (option, body) = match builder.rng.below(19) {
        0 => ("label", metadata(json!({"labels": {"app": builder.rng.pick(&["web", "api"])}}))),
        1 => ("label removed", metadata(json!({"labels": {"app": null, "extra": text}}))),
        2 => ("annotation", metadata(json!({"annotations": {"note": text}}))),
        3 => ("null for a list", metadata(json!({"finalizers": null}))),
        4 => ("list", metadata(json!({"finalizers": [FINALIZER]}))),
        5 => {
            let version = format!("<<version:{last}>>");
            ("version", metadata(json!({"resourceVersion": version, "annotations": {"note": text}})))
        }
        6 => ("stale version", metadata(json!({"resourceVersion": "1", "annotations": {"note": text}}))),
        7 => ("uid", metadata(json!({"uid": format!("<<uid:{last}>>"), "annotations": {"note": text}}))),
        8 => ("wrong uid", metadata(json!({"uid": "another"}))),
        9 => ("another name", metadata(json!({"name": "other"}))),
        10 => ("fields of the server's", metadata(json!({"generation": 90, "creationTimestamp": null}))),
        11 => ("nothing", json!({})),
        12 => ("null for a map", metadata(json!({"labels": null, "annotations": {"a": null}}))),
        13 if KINDS[kind].kind == "Widget" => {
            ("fields", json!({"spec": {"color": text, "parts": ["r"], "size": null, "deep": {"a": null, "b": 1}}}))
        }
        13 if KINDS[kind].kind == "ConfigMap" => ("fields", json!({"data": {"text": null, "new": text}})),
        14 | 15 if KINDS[kind].kind == "Widget" => {
            ("status", json!({"status": {"phase": text}, "spec": {"color": "ignored"}}))
        }
        16 => ("deletion given", metadata(json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}))),
        17 => ("deletion given", metadata(json!({"deletionGracePeriodSeconds": builder.rng.below(2)}))),
        18 => ("generate name", metadata(json!({"generateName": builder.rng.pick(&["made-", "else-"])}))),
        _ => ("label", metadata(json!({"labels": {"app": text}}))),
    };
    let mut step = Step::new("merge patch", "PATCH", builder.path_of(kind, name)).label(option);
    if option == "status" {
        step.path.push_str("/status");
    }
    step.content_type = MERGE;
    push(builder, step, &body, kind, name);
}

/// Adds a strategic merge patch with directives.
pub fn strategic(builder: &mut ScriptBuilder) {
    let built_in: Vec<_> = builder.objects.iter().filter(|((kind, _), _)| !KINDS[*kind].is_custom).collect();
    if built_in.is_empty() {
        return patch(builder);
    }
    // Deployments are rare, and only their patches support `$retainKeys`.
    let deployments: Vec<_> = built_in.iter().filter(|((kind, _), _)| KINDS[*kind].kind == "Deployment").collect();
    let (&(kind, name), _) = match deployments.len() {
        0 => built_in[builder.rng.below(built_in.len())],
        count => *deployments[builder.rng.below(count)],
    };
    let text = builder.rng.pick(&["one", "two", "three"]);
    let metadata = |fields: Value| json!({"metadata": fields});
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid});
    let (option, body) = match (builder.rng.below(15), KINDS[kind].kind) {
        (0, _) => ("label", metadata(json!({"labels": {"app": text, "extra": null}}))),
        (1, _) => ("list of values", metadata(json!({"finalizers": ["steadfast.dev/other"]}))),
        (2, _) => ("deleted from a list", metadata(json!({"$deleteFromPrimitiveList/finalizers": [FINALIZER]}))),
        (3, _) => {
            let order = ["steadfast.dev/other", FINALIZER];
            let fields =
                json!({"$setElementOrder/finalizers": order, "finalizers": ["steadfast.dev/other", FINALIZER]});
            ("order of a list", metadata(fields))
        }
        (4, _) => ("list of objects", metadata(json!({"ownerReferences": [owner("one"), owner("two")]}))),
        (5, _) => {
            ("deleted object of a list", metadata(json!({"ownerReferences": [{"$patch": "delete", "uid": "one"}]})))
        }
        (6, _) => ("replaced list", metadata(json!({"ownerReferences": [{"$patch": "replace"}, owner("three")]}))),
        (7..15, "Deployment") => {
            let strategy = json!({"$retainKeys": ["type"], "type": "Recreate"});
            ("kept fields", json!({"spec": {"strategy": strategy}}))
        }
        (7, _) => {
            let labels = json!({"$patch": "replace", "script": builder.namespace, "app": text});
            ("replaced map", metadata(json!({"labels": labels})))
        }
        (8, _) => ("deleted map", metadata(json!({"annotations": {"$patch": "delete"}}))),
        (9, _) => ("unknown directive", metadata(json!({"labels": {"$patch": "nonsense"}}))),
        (10 | 14, "ConfigMap") => ("fields", json!({"data": {"text": null, "new": text}})),
        (10, "StatefulSet" | "DaemonSet") => {
            let containers = json!([{"name": "main", "env": [{"name": "E", "value": text}]}]);
            ("list of objects", json!({"spec": {"template": {"spec": {"containers": containers}}}}))
        }
        (10, "Pod") => ("list of objects", json!({"spec": {"containers": [{"name": "main", "image": text}]}})),
        (12, _) => ("nothing", json!({})),
        (13, _) => ("merged without a key", metadata(json!({"ownerReferences": [{"name": "x"}]}))),
        _ => ("annotation", metadata(json!({"annotations": {"note": text}}))),
    };
    let mut step = Step::new("strategic patch", "PATCH", builder.path_of(kind, name)).label(option);
    step.content_type = STRATEGIC;
    push(builder, step, &body, kind, name);
}

/// Adds a JSON patch.
pub fn operations(builder: &mut ScriptBuilder) {
    let Some((kind, name, _)) = builder.existing_object() else { return create(builder) };
    let text = builder.rng.pick(&["one", "two", "three"]);
    let namespace = builder.namespace.clone();
    let cases = [
        ("replace", json!([{"op": "replace", "path": "/metadata/labels/app", "value": text}])),
        (
            "test",
            json!([{"op": "test", "path": "/metadata/labels/script", "value": namespace},
                   {"op": "add", "path": "/metadata/labels/extra", "value": text}]),
        ),
        ("failing test", json!([{"op": "test", "path": "/metadata/labels/script", "value": "other"}])),
        ("test of what is absent", json!([{"op": "test", "path": "/metadata/labels/absent", "value": text}])),
        (
            "test for absence",
            json!([{"op": "test", "path": "/metadata/labels/absent", "value": null},
                   {"op": "add", "path": "/metadata/labels/extra", "value": text}]),
        ),
        ("test within what is absent", json!([{"op": "test", "path": "/absent/deep", "value": null}])),
        ("remove", json!([{"op": "remove", "path": "/metadata/labels/app"}])),
        ("remove of what may be absent", json!([{"op": "remove", "path": "/metadata/annotations"}])),
        ("copy", json!([{"op": "copy", "from": "/metadata/labels/script", "path": "/metadata/labels/copied"}])),
        ("copy of what is absent", json!([{"op": "copy", "from": "/metadata/nothing", "path": "/metadata/labels/c"}])),
        ("move", json!([{"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/extra"}])),
        ("move of what is absent", json!([{"op": "move", "from": "/metadata/nothing", "path": "/metadata/labels/m"}])),
        ("add", json!([{"op": "add", "path": "/metadata/annotations", "value": {"note": text}}])),
        ("add within what is absent", json!([{"op": "add", "path": "/absent/deep", "value": text}])),
        (
            "end of a list",
            json!([{"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]},
                   {"op": "add", "path": "/metadata/finalizers/-", "value": "steadfast.dev/other"}]),
        ),
        (
            "place in a list",
            json!([{"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]},
                   {"op": "add", "path": "/metadata/finalizers/0", "value": "steadfast.dev/other"},
                   {"op": "remove", "path": "/metadata/finalizers/1"}]),
        ),
        (
            "place beyond a list",
            json!([{"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]},
                   {"op": "add", "path": "/metadata/finalizers/7", "value": "steadfast.dev/other"}]),
        ),
        (
            "last place counted from the end",
            json!([{"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]},
                   {"op": "replace", "path": "/metadata/finalizers/-1", "value": "steadfast.dev/other"}]),
        ),
        (
            "escapes",
            json!([{"op": "add", "path": "/metadata/annotations", "value": {}},
                   {"op": "add", "path": "/metadata/annotations/steadfast.dev~1note", "value": text},
                   {"op": "add", "path": "/metadata/labels/a~0b", "value": text},
                   {"op": "remove", "path": "/metadata/labels/a~0b"}]),
        ),
        ("replace of what is absent", json!([{"op": "replace", "path": "/metadata/labels/absent", "value": text}])),
        ("unknown operation", json!([{"op": "increment", "path": "/metadata/generation", "value": 1}])),
        ("operation without a path", json!([{"op": "remove"}])),
        ("operation without a value", json!([{"op": "add", "path": "/metadata/labels/extra"}])),
        ("path without a slash", json!([{"op": "add", "path": "metadata", "value": {}}])),
        ("whole object", json!([{"op": "test", "path": "", "value": {}}])),
        ("no operations", json!([])),
        ("name", json!([{"op": "replace", "path": "/metadata/name", "value": "other"}])),
    ];
    let (option, body) = &cases[builder.rng.below(cases.len())];
    let mut step = Step::new("json patch", "PATCH", builder.path_of(kind, name)).label(option);
    step.content_type = OPERATIONS;
    push(builder, step, body, kind, name);
}

fn push(builder: &mut ScriptBuilder, mut step: Step, body: &Value, kind: usize, name: &'static str) {
    // The existing fields of a deletion are restored after the time of the write is taken, which may be in another
    // second.
    let is_written = !builder.rng.percent(8) && !step.options.contains(&"deletion given");
    if !is_written {
        step = step.query("dryRun=All").label("dry run");
    }
    step.body = body.to_string();
    let step = builder.push(step);
    if is_written {
        builder.record_write(kind, name, step);
    }
}
