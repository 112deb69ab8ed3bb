//! Requests of apply scripts.

use serde_json::{Value, json};

use super::{ScriptBuilder, bodies};
use crate::differential::script::Step;

const APPLY: &str = "application/apply-patch+yaml";
const MANAGERS: &[&str] = &["alpha", "beta", "gamma", "kubectl"];

fn apply_step(path: String, body: &Value) -> Step {
    let mut step = Step::new("apply", "PATCH", path);
    step.content_type = APPLY;
    step.body = body.to_string();
    step
}

/// Adds an apply by one of several managers.
pub fn apply(builder: &mut ScriptBuilder) {
    let mut object = bodies::object(builder);
    let manager = builder.rng.pick(MANAGERS);
    let mut option = "plain";
    let last = builder.steps.len();
    match builder.rng.below(14) {
        // kubectl stores its request as text in an annotation.
        0 | 1 if manager == "kubectl" => {}
        0 => {
            object["metadata"]["resourceVersion"] = format!("<<version:{last}>>").into();
            option = "version";
        }
        1 => {
            object["metadata"]["resourceVersion"] = "1".into();
            option = "old version";
        }
        2 => {
            object["metadata"]["uid"] = format!("<<uid:{last}>>").into();
            option = "uid";
        }
        3 => {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("name");
            }
            option = "without a name";
        }
        4 => {
            object["metadata"]["namespace"] = builder.namespace.as_str().into();
            option = "namespace";
        }
        5 if builder.kind.is_custom => {
            object["status"] = json!({"phase": "Given"});
            option = "status given";
        }
        _ => {}
    }
    let mut step = apply_step(builder.object(), &object).query(&format!("fieldManager={manager}")).label(option);
    if builder.rng.percent(35) {
        step = step.query("force=true").label("force");
    }
    if builder.rng.percent(8) {
        step = step.query("dryRun=All").label("dry run");
    }
    if option == "plain" && builder.rng.percent(10) {
        step.body = yaml(&object, 0);
        step = step.label("YAML");
    }
    builder.steps.push(step);
    // A repeated apply changes nothing.
    if builder.rng.percent(10) && option == "plain" {
        let repeated = builder.steps[last].clone().label("again");
        builder.steps.push(repeated);
    }
}

/// Formats an object in YAML block style.
fn yaml(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let lines = fields.iter().map(|(key, value)| match value {
                Value::Object(below) if !below.is_empty() => format!("{indent}{key}:\n{}", yaml(value, depth + 1)),
                other => format!("{indent}{key}: {other}\n"),
            });
            lines.collect()
        }
        other => format!("{other}\n"),
    }
}

/// Adds a creation.
pub fn create(builder: &mut ScriptBuilder) {
    let mut object = bodies::object(builder);
    if builder.kind.is_custom && builder.rng.percent(30) {
        object["status"] = json!({"phase": "Given"});
    }
    let mut step = Step::new("create", "POST", builder.collection()).json(&object);
    step = match builder.rng.below(3) {
        0 => step.query("fieldManager=alpha").label("manager"),
        _ => step.label("no manager"),
    };
    builder.steps.push(step);
}

/// Adds an update of an existing object.
pub fn update(builder: &mut ScriptBuilder) {
    let mut object = bodies::object(builder);
    object["metadata"]["resourceVersion"] = format!("<<version:{}>>", builder.steps.len()).into();
    let mut step = Step::new("update", "PUT", builder.object());
    step = match builder.rng.below(6) {
        0 => {
            object["metadata"]["managedFields"] = json!([]);
            step.label("managers reset")
        }
        1 => {
            object["metadata"]["managedFields"] = json!([{
                "manager": "made up", "operation": "Update", "apiVersion": builder.kind.api_version,
                "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
            }]);
            step.label("managers given")
        }
        2 => step.label("no manager"),
        _ => step.query("fieldManager=updater").label("manager"),
    };
    builder.steps.push(step.json(&object));
}

/// Adds a patch other than an apply.
pub fn patch(builder: &mut ScriptBuilder) {
    let text = builder.rng.pick(&["one", "two"]);
    let mut step = Step::new("patch", "PATCH", builder.object());
    step.content_type = "application/merge-patch+json";
    let body = match builder.rng.below(8) {
        0 => {
            step = step.label("managers reset");
            json!({"metadata": {"managedFields": [{}]}})
        }
        1 => {
            step = step.label("labels gone");
            json!({"metadata": {"labels": null}})
        }
        2 => {
            step = step.label("finalizers gone");
            json!({"metadata": {"finalizers": null}})
        }
        3 => {
            step.content_type = "application/json-patch+json";
            step = step.label("json");
            json!([{"op": "add", "path": "/metadata/labels", "value": {"a": text}}])
        }
        4 => {
            step = step.label("last applied");
            let last_applied = bodies::object(builder).to_string();
            json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last_applied}}})
        }
        5 if builder.kind.kind == "ServiceAccount" => {
            step.content_type = "application/strategic-merge-patch+json";
            step = step.label("strategic merge");
            json!({"metadata": {"labels": {"a": text, "b": null}}})
        }
        _ => {
            step = step.label("merge");
            match builder.kind.kind {
                "ConfigMap" => json!({"data": {"a": text, "b": null}}),
                "Gadget" => json!({"spec": {"color": text, "limits": {"a": text}, "tags": ["x", text]}}),
                "Widget" => json!({"spec": {"a": text, "b": null}}),
                _ => json!({"metadata": {"labels": {"a": text, "b": null}}}),
            }
        }
    };
    if builder.rng.percent(50) {
        step = step.query("fieldManager=patcher");
    }
    step.body = body.to_string();
    builder.steps.push(step);
}

/// Adds a write of the status.
pub fn status(builder: &mut ScriptBuilder) {
    if !builder.kind.is_custom {
        return apply(builder);
    }
    let phase = builder.rng.pick(&["Ready", "Waiting"]);
    let path = format!("{}/status", builder.object());
    let mut object = bodies::object(builder);
    object["status"] = json!({"phase": phase});
    if builder.rng.percent(50) {
        object["status"]["conditions"] = json!([{"type": "Ready", "status": phase}]);
    }
    let step = match builder.rng.below(4) {
        0 => {
            object["metadata"]["resourceVersion"] = format!("<<version:{}>>", builder.steps.len()).into();
            Step::new("update", "PUT", path).json(&object).label("status")
        }
        1 => {
            let mut step = Step::new("patch", "PATCH", path).label("status").query("fieldManager=patcher");
            step.content_type = "application/merge-patch+json";
            step.body = json!({"status": {"phase": phase}, "spec": {"color": "ignored"}}).to_string();
            step
        }
        _ => {
            let manager = builder.rng.pick(MANAGERS);
            let force = builder.rng.percent(40);
            apply_step(path, &object).query(&format!("fieldManager={manager}&force={force}")).label("status")
        }
    };
    builder.steps.push(step);
}

/// Adds a deletion. Finalizers may keep the object.
pub fn delete(builder: &mut ScriptBuilder) {
    builder.steps.push(Step::new("delete", "DELETE", builder.object()).label("plain"));
}

/// Adds a read.
pub fn read(builder: &mut ScriptBuilder) {
    builder.steps.push(Step::new("get", "GET", builder.object()).label("plain"));
}

/// Adds an apply with one error.
pub fn add_rejected_apply(builder: &mut ScriptBuilder) {
    let mut object = bodies::object(builder);
    let number = builder.rng.below(14);
    let valid_step =
        |object: &Value, builder: &ScriptBuilder| apply_step(builder.object(), object).query("fieldManager=alpha");
    let step = match number {
        0 => apply_step(builder.object(), &object).label("no manager"),
        1 => {
            object["metadata"]["managedFields"] = json!([]);
            valid_step(&object, builder).label("managers given")
        }
        2 => {
            object["kind"] = "Nonsense".into();
            valid_step(&object, builder).label("wrong kind")
        }
        3 => {
            object["apiVersion"] = "nothing.example.com/v1".into();
            valid_step(&object, builder).label("wrong version")
        }
        4 => {
            object["metadata"]["name"] = "another".into();
            valid_step(&object, builder).label("wrong name")
        }
        5 => {
            object["metadata"]["namespace"] = "default".into();
            valid_step(&object, builder).label("wrong namespace")
        }
        6 => {
            object["metadata"]["uid"] = "another".into();
            valid_step(&object, builder).label("wrong uid")
        }
        7 => {
            object.as_object_mut().map(|fields| fields.remove("kind"));
            valid_step(&object, builder).label("no kind")
        }
        8 => {
            let mut step = Step::new("patch", "PATCH", builder.object()).query("force=true").label("force");
            step.content_type = "application/merge-patch+json";
            step.body.push_str("{}");
            step
        }
        9 => apply_step(builder.object(), &object)
            .query(&format!("fieldManager={}", "m".repeat(129)))
            .label("long manager"),
        10 => {
            object["metadata"]["finalizers"] = json!(["steadfast.dev/one", "steadfast.dev/one"]);
            valid_step(&object, builder).label("twice in a set")
        }
        11 => {
            object["metadata"]["labels"] = json!("text");
            valid_step(&object, builder).label("wrong type")
        }
        12 => {
            let (query, option) = builder.rng.pick(&[("Strict", "twice, strict"), ("Ignore", "twice")]);
            let mut step = valid_step(&object, builder).query(&format!("fieldValidation={query}")).label(option);
            let duplicate_annotation = "\"metadata\":{\"annotations\":{\"twice\":\"one\",\"twice\":\"two\"},";
            step.body = step.body.replacen("\"metadata\":{", duplicate_annotation, 1);
            step
        }
        _ => {
            object["nothing"] = "x".into();
            valid_step(&object, builder).label("unknown field")
        }
    };
    builder.steps.push(step);
}
