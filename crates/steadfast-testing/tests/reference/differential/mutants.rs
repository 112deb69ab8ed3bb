//! Mutants: servers with one defect each, which must be detected in spite of the normalization.

use serde_json::Value;

use crate::differential::execute::ServerResponse;
use crate::differential::script::Step;

/// Defective response.
pub struct Mutant {
    /// Description of the defect.
    pub name: &'static str,
    /// Applies the defect to a response, if applicable.
    pub alter: fn(&Step, &mut ServerResponse),
}

/// One mutant for each kind of behaviour.
pub const MUTANTS: &[Mutant] = &[
    Mutant { name: "a creation returns 200", alter: |_, response| replace_code(response, 201, 200) },
    Mutant { name: "a conflict returns 422", alter: |_, response| replace_code(response, 409, 422) },
    Mutant { name: "a missing object returns 410", alter: |_, response| replace_code(response, 404, 410) },
    Mutant { name: "another content type", alter: |_, response| drop(response.headers.remove("content-type")) },
    Mutant { name: "no reason", alter: |_, response| remove(&mut response.body, "", "reason") },
    Mutant { name: "no details", alter: |_, response| remove(&mut response.body, "", "details") },
    Mutant {
        name: "another message",
        alter: |_, response| edit(&mut response.body, "/message", |text| format!("{text}.")),
    },
    Mutant { name: "no UID", alter: |_, response| remove(&mut response.body, "/metadata", "uid") },
    Mutant { name: "no version", alter: |_, response| remove(&mut response.body, "/metadata", "resourceVersion") },
    Mutant { name: "constant versions", alter: |step, response| freeze_versions(step, response) },
    Mutant {
        name: "no creation time",
        alter: |_, response| remove(&mut response.body, "/metadata", "creationTimestamp"),
    },
    Mutant {
        name: "no deletion time",
        alter: |_, response| remove(&mut response.body, "/metadata", "deletionTimestamp"),
    },
    Mutant { name: "no generation", alter: |_, response| remove(&mut response.body, "/metadata", "generation") },
    Mutant { name: "no finalizers", alter: |_, response| remove(&mut response.body, "/metadata", "finalizers") },
    Mutant { name: "no labels", alter: |_, response| remove(&mut response.body, "/metadata", "labels") },
    Mutant { name: "no status", alter: |_, response| remove(&mut response.body, "", "status") },
    Mutant {
        name: "a generated name without prefix",
        alter: |_, response| edit(&mut response.body, "/metadata/name", |text| text.replace("made-", "")),
    },
    Mutant { name: "no continue token", alter: |_, response| remove(&mut response.body, "/metadata", "continue") },
    Mutant {
        name: "no remaining count",
        alter: |_, response| remove(&mut response.body, "/metadata", "remainingItemCount"),
    },
    Mutant { name: "a list without its first item", alter: |_, response| remove_first(&mut response.body, "items") },
    Mutant {
        name: "a list in another order",
        alter: |_, response| {
            if let Some(items) = response.body.get_mut("items").and_then(Value::as_array_mut) {
                items.reverse();
            }
        },
    },
    Mutant { name: "items with a kind", alter: |_, response| add_item_kinds(&mut response.body) },
    Mutant { name: "a table without its first row", alter: |_, response| remove_first(&mut response.body, "rows") },
    Mutant {
        name: "a discovery without its first resource",
        alter: |_, response| remove_first(&mut response.body, "resources"),
    },
    Mutant {
        name: "a watch without its first event",
        alter: |_, response| drop((!response.events.is_empty()).then(|| response.events.remove(0))),
    },
    Mutant {
        name: "a repeated event",
        alter: |_, response| response.events.first().cloned().map_or((), |event| response.events.insert(0, event)),
    },
    Mutant { name: "changes reported as additions", alter: |_, response| rename_events(response, "MODIFIED", "ADDED") },
    Mutant {
        name: "deletions reported as changes",
        alter: |_, response| rename_events(response, "DELETED", "MODIFIED"),
    },
    Mutant { name: "no bookmarks", alter: |_, response| response.events.retain(|event| event["type"] != "BOOKMARK") },
    Mutant { name: "a deletion at the version before", alter: |_, response| age_deletions(response) },
    Mutant {
        name: "complete objects instead of metadata",
        alter: |step, response| return_complete_objects(step, response),
    },
    Mutant {
        name: "patches that change nothing",
        alter: |step, response| if_verb("patch", step, || remove(&mut response.body, "/metadata", "annotations")),
    },
    Mutant {
        name: "lists that are patched at the wrong end",
        alter: |step, response| if_verb("patch", step, || alter_lists(&mut response.body, |list| list.reverse())),
    },
    Mutant {
        name: "unknown patch types succeed",
        alter: |step, response| if_method("PATCH", step, || replace_code(response, 415, 200)),
    },
    Mutant {
        name: "invalid patches succeed",
        alter: |step, response| if_verb("patch", step, || replace_code(response, 422, 200)),
    },
    Mutant {
        name: "terminating namespaces without a phase",
        alter: |step, response| if_verb("namespace", step, || remove(&mut response.body, "/status", "phase")),
    },
    Mutant {
        name: "terminating namespaces accept objects",
        alter: |step, response| if_verb("namespace", step, || replace_code(response, 403, 201)),
    },
    Mutant {
        name: "terminating namespaces without a condition",
        alter: |step, response| if_verb("namespace", step, || remove(&mut response.body, "/details", "causes")),
    },
    Mutant {
        name: "deletions that overlook preconditions",
        alter: |step, response| if_verb("delete", step, || replace_code(response, 409, 200)),
    },
    Mutant {
        name: "deletions without the identity of the object",
        alter: |step, response| if_verb("delete", step, || remove(&mut response.body, "/details", "uid")),
    },
    Mutant {
        name: "finalizers without an effect",
        alter: |step, response| if_verb("delete", step, || remove(&mut response.body, "/metadata", "finalizers")),
    },
    Mutant {
        name: "deletions of collections that keep one",
        alter: |step, response| if_verb("delete collection", step, || remove_first(&mut response.body, "items")),
    },
    Mutant {
        name: "events in only one group",
        alter: |step, response| if_verb("event", step, || replace_code(response, 200, 404)),
    },
    Mutant {
        name: "values of any type",
        alter: |step, response| if_verb("odd type", step, || replace_code(response, 400, 201)),
    },
    Mutant {
        name: "repeated fields without a warning",
        alter: |step, response| if_verb("duplicate", step, || drop(response.headers.remove("warning"))),
    },
    Mutant { name: "bad requests succeed", alter: |_, response| replace_code(response, 400, 200) },
    Mutant { name: "bodies of any type are accepted", alter: |_, response| replace_code(response, 415, 201) },
    Mutant { name: "unknown methods return 404", alter: |_, response| replace_code(response, 405, 404) },
    Mutant {
        name: "rejections without fields",
        alter: |_, response| alter_causes(response, |cause| drop(cause.remove("field"))),
    },
];

/// Mutants that only scripts of a compaction detect.
pub const COMPACTION_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a token that expires for good",
        alter: |_, response| {
            if response.code == 410 {
                remove(&mut response.body, "/metadata", "continue");
            }
        },
    },
    Mutant { name: "nothing expires", alter: |_, response| replace_code(response, 410, 200) },
    Mutant {
        name: "watches expire silently",
        alter: |_, response| response.events.retain(|event| event["type"] != "ERROR"),
    },
    Mutant {
        name: "watches expire by their HTTP status",
        alter: |_, response| {
            if response.events.iter().any(|event| event["type"] == "ERROR") {
                response.code = 410;
            }
        },
    },
    Mutant {
        name: "an expired watch without its version",
        alter: |_, response| {
            for event in &mut response.events {
                edit(event, "/object/message", |text| text.replace(|character: char| character.is_ascii_digit(), ""));
            }
        },
    },
    Mutant { name: "future versions succeed", alter: |_, response| replace_code(response, 504, 200) },
    Mutant {
        name: "future versions without a retry delay",
        alter: |_, response| remove(&mut response.body, "/details", "retryAfterSeconds"),
    },
    Mutant { name: "tokens of any form", alter: |_, response| replace_code(response, 400, 200) },
    Mutant {
        name: "tokens that skip one object",
        alter: |step, response| {
            if step.path.contains("continue=") {
                remove_first(&mut response.body, "items");
            }
        },
    },
    Mutant {
        name: "collections deleted at any version",
        alter: |step, response| {
            if_verb("delete collection", step, || replace_code(response, 409, 200));
        },
    },
    Mutant {
        name: "initial events without their end",
        alter: |_, response| {
            response.events.retain(|event| event["type"] != "BOOKMARK");
        },
    },
];

/// Mutants that only scripts of changed definitions detect.
pub const DEFINITION_CHANGE_MUTANTS: &[Mutant] = &[
    Mutant {
        name: "versions that stay",
        alter: |step, response| {
            if step.options.contains(&"version not served") {
                replace_code(response, 404, 200);
            }
        },
    },
    Mutant {
        name: "columns that stay",
        alter: |_, response| {
            edit(&mut response.body, "/columnDefinitions/1/name", |_| "Change 0".to_owned());
        },
    },
    Mutant {
        name: "objects in the version they were written in",
        alter: |step, response| {
            if matches!(step.verb, "get" | "patch") {
                edit(&mut response.body, "/apiVersion", |text| text.replace("/v2", "/v1"));
            }
        },
    },
    Mutant {
        name: "deprecated versions without a warning",
        alter: |_, response| drop(response.headers.remove("warning")),
    },
    Mutant {
        name: "missing defaults",
        alter: |_, response| {
            for text in ["given", "other"] {
                if response.body.pointer("/spec/text").is_some_and(|value| value == text) {
                    remove(&mut response.body, "/spec", "text");
                }
            }
        },
    },
    Mutant {
        name: "fields of other versions",
        alter: |step, response| {
            if step.path.contains("/v1/") && response.body.get("spec").is_some() {
                response.body["spec"]["v2"] = "v2".into();
            }
        },
    },
    Mutant {
        name: "subresources that are not discovered",
        alter: |_, response| {
            if let Some(resources) = response.body.get_mut("resources").and_then(Value::as_array_mut) {
                resources.truncate(1);
            }
        },
    },
    Mutant { name: "invalid changes are accepted", alter: |_, response| replace_code(response, 422, 200) },
    Mutant { name: "terminating definitions accept objects", alter: |_, response| replace_code(response, 403, 201) },
    Mutant {
        name: "definitions that stay",
        alter: |step, response| {
            if step.options.contains(&"gone") {
                replace_code(response, 404, 200);
            }
        },
    },
    Mutant {
        name: "a deletion without an end of watches",
        alter: |_, response| {
            response.events.retain(|event| event["type"] != "DELETED");
        },
    },
];

fn if_verb(verb: &str, step: &Step, alter: impl FnOnce()) {
    if step.verb.contains(verb) {
        alter();
    }
}

fn if_method(method: &str, step: &Step, alter: impl FnOnce()) {
    if step.method == method {
        alter();
    }
}

fn alter_lists(value: &mut Value, alter: fn(&mut Vec<Value>)) {
    match value {
        Value::Array(items) => {
            for item in items.iter_mut() {
                alter_lists(item, alter);
            }
            alter(items);
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                alter_lists(field, alter);
            }
        }
        _ => {}
    }
}

fn alter_causes(response: &mut ServerResponse, alter: impl Fn(&mut serde_json::Map<String, Value>)) {
    let causes = response.body.pointer_mut("/details/causes").and_then(Value::as_array_mut);
    causes.into_iter().flatten().filter_map(Value::as_object_mut).for_each(alter);
}

/// Mutants that only scripts of apply detect.
pub const APPLY_MUTANTS: &[Mutant] = &[
    Mutant { name: "no managers", alter: |_, response| remove(&mut response.body, "/metadata", "managedFields") },
    Mutant {
        name: "managers without times",
        alter: |_, response| alter_managers(response, |manager| drop(manager.remove("time"))),
    },
    Mutant {
        name: "managers that all update",
        alter: |_, response| {
            alter_managers(response, |manager| drop(manager.insert("operation".into(), "Update".into())));
        },
    },
    Mutant {
        name: "managers without subresource",
        alter: |_, response| alter_managers(response, |manager| drop(manager.remove("subresource"))),
    },
    Mutant {
        name: "managers whose first field is lost",
        alter: |_, response| {
            alter_managers(response, |manager| {
                let fields = manager.get_mut("fieldsV1").and_then(Value::as_object_mut);
                fields.map(|fields| fields.keys().next().cloned().map(|first| fields.remove(&first)));
            });
        },
    },
    Mutant {
        name: "maps without managers of their own",
        alter: |_, response| alter_managers(response, |manager| manager.get_mut("fieldsV1").map_or((), without_dots)),
    },
    Mutant { name: "conflicts without causes", alter: |_, response| remove(&mut response.body, "/details", "causes") },
    Mutant { name: "unreported conflicts", alter: |_, response| replace_code(response, 409, 200) },
    Mutant { name: "each apply is reported as a creation", alter: |step, response| report_as_creation(step, response) },
    Mutant {
        name: "sets in another order",
        alter: |_, response| {
            if let Some(Value::Array(tags)) = response.body.pointer_mut("/spec/tags") {
                tags.reverse();
            }
        },
    },
    Mutant {
        name: "fields that are no longer applied are kept",
        alter: |step, response| {
            if step.verb == "apply" && response.body.get("kind").is_some_and(|kind| kind == "ConfigMap") {
                response.body["data"]["c"] = "one".into();
            }
        },
    },
];

fn alter_managers(response: &mut ServerResponse, alter: impl Fn(&mut serde_json::Map<String, Value>)) {
    let managers = response.body.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    managers.into_iter().flatten().filter_map(Value::as_object_mut).for_each(alter);
}

fn without_dots(fields: &mut Value) {
    let Some(fields) = fields.as_object_mut() else { return };
    fields.remove(".");
    fields.values_mut().for_each(without_dots);
}

fn report_as_creation(step: &Step, response: &mut ServerResponse) {
    if step.verb == "apply" {
        replace_code(response, 200, 201);
    }
}

fn replace_code(response: &mut ServerResponse, from: u16, to: u16) {
    if response.code == from {
        response.code = to;
    }
}

fn remove(body: &mut Value, pointer: &str, field: &str) {
    if let Some(Value::Object(fields)) = body.pointer_mut(pointer) {
        fields.remove(field);
    }
}

fn edit(body: &mut Value, pointer: &str, change: fn(&str) -> String) {
    if let Some(Value::String(text)) = body.pointer_mut(pointer) {
        *text = change(text);
    }
}

fn remove_first(body: &mut Value, list: &str) {
    if let Some(items) = body.get_mut(list).and_then(Value::as_array_mut).filter(|items| !items.is_empty()) {
        items.remove(0);
    }
}

fn freeze_versions(step: &Step, response: &mut ServerResponse) {
    if matches!(step.verb, "update" | "patch") && response.body.pointer("/metadata/resourceVersion").is_some() {
        response.body["metadata"]["resourceVersion"] = "2".into();
    }
}

fn add_item_kinds(body: &mut Value) {
    let kind = body["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).unwrap_or_default().to_owned();
    for item in body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        if item.get("kind").is_none() {
            item["kind"] = kind.as_str().into();
        }
    }
}

fn rename_events(response: &mut ServerResponse, from: &str, to: &str) {
    for event in response.events.iter_mut().filter(|event| event["type"] == from) {
        event["type"] = to.into();
    }
}

fn age_deletions(response: &mut ServerResponse) {
    for event in response.events.iter_mut().filter(|event| event["type"] == "DELETED") {
        let version = event.pointer_mut("/object/metadata/resourceVersion");
        if let Some(Value::String(version)) = version {
            *version = version.parse::<u64>().map_or(String::new(), |number| (number - 1).to_string());
        }
    }
}

fn return_complete_objects(step: &Step, response: &mut ServerResponse) {
    if step.options.contains(&"metadata only") && response.body["kind"] == "PartialObjectMetadata" {
        response.body["spec"] = Value::Null;
    }
}
