//! Servers that are wrong in one way: each must be told apart through the normaliser.

use serde_json::Value;

use crate::execute::Seen;
use crate::script::Step;

/// A wrong answer.
pub struct Mutant {
    /// What is wrong.
    pub name: &'static str,
    /// Makes it wrong, where it fits.
    pub alter: fn(&Step, &mut Seen),
}

/// One for each family of behaviour.
pub const MUTANTS: &[Mutant] = &[
    Mutant { name: "an accepted creation is answered 200", alter: |_, seen| replace_code(seen, 201, 200) },
    Mutant { name: "a conflict is answered 422", alter: |_, seen| replace_code(seen, 409, 422) },
    Mutant { name: "a missing object is answered 410", alter: |_, seen| replace_code(seen, 404, 410) },
    Mutant { name: "another content type", alter: |_, seen| drop(seen.headers.remove("content-type")) },
    Mutant { name: "no reason", alter: |_, seen| remove(&mut seen.body, "", "reason") },
    Mutant { name: "no details", alter: |_, seen| remove(&mut seen.body, "", "details") },
    Mutant { name: "another message", alter: |_, seen| edit(&mut seen.body, "/message", |text| format!("{text}.")) },
    Mutant { name: "no UID", alter: |_, seen| remove(&mut seen.body, "/metadata", "uid") },
    Mutant { name: "no version", alter: |_, seen| remove(&mut seen.body, "/metadata", "resourceVersion") },
    Mutant { name: "versions that stand still", alter: |step, seen| still(step, seen) },
    Mutant { name: "no creation time", alter: |_, seen| remove(&mut seen.body, "/metadata", "creationTimestamp") },
    Mutant { name: "no deletion time", alter: |_, seen| remove(&mut seen.body, "/metadata", "deletionTimestamp") },
    Mutant { name: "no generation", alter: |_, seen| remove(&mut seen.body, "/metadata", "generation") },
    Mutant { name: "no finalizers", alter: |_, seen| remove(&mut seen.body, "/metadata", "finalizers") },
    Mutant { name: "no labels", alter: |_, seen| remove(&mut seen.body, "/metadata", "labels") },
    Mutant { name: "no status", alter: |_, seen| remove(&mut seen.body, "", "status") },
    Mutant {
        name: "a generated name without prefix",
        alter: |_, seen| edit(&mut seen.body, "/metadata/name", |text| text.replace("made-", "")),
    },
    Mutant { name: "no continue token", alter: |_, seen| remove(&mut seen.body, "/metadata", "continue") },
    Mutant { name: "no remaining count", alter: |_, seen| remove(&mut seen.body, "/metadata", "remainingItemCount") },
    Mutant { name: "a list without its first item", alter: |_, seen| lose(&mut seen.body, "items") },
    Mutant {
        name: "a list in another order",
        alter: |_, seen| seen.body.get_mut("items").and_then(Value::as_array_mut).map_or((), |items| items.reverse()),
    },
    Mutant { name: "items with a kind", alter: |_, seen| kinds(&mut seen.body) },
    Mutant { name: "a table without its first row", alter: |_, seen| lose(&mut seen.body, "rows") },
    Mutant { name: "a discovery without its first resource", alter: |_, seen| lose(&mut seen.body, "resources") },
    Mutant {
        name: "a watch without its first event",
        alter: |_, seen| drop((!seen.events.is_empty()).then(|| seen.events.remove(0))),
    },
    Mutant {
        name: "an event told twice",
        alter: |_, seen| seen.events.first().cloned().map_or((), |event| seen.events.insert(0, event)),
    },
    Mutant { name: "changes told as additions", alter: |_, seen| rename(seen, "MODIFIED", "ADDED") },
    Mutant { name: "deletions told as changes", alter: |_, seen| rename(seen, "DELETED", "MODIFIED") },
    Mutant { name: "no bookmarks", alter: |_, seen| seen.events.retain(|event| event["type"] != "BOOKMARK") },
    Mutant { name: "a deletion at the version before", alter: |_, seen| old_deletions(seen) },
    Mutant { name: "metadata only with everything", alter: |step, seen| everything(step, seen) },
];

/// Those that only scripts of apply tell.
pub const APPLYING: &[Mutant] = &[
    Mutant { name: "no managers", alter: |_, seen| remove(&mut seen.body, "/metadata", "managedFields") },
    Mutant { name: "managers without times", alter: |_, seen| each_manager(seen, |one| drop(one.remove("time"))) },
    Mutant {
        name: "managers that all update",
        alter: |_, seen| each_manager(seen, |one| drop(one.insert("operation".into(), "Update".into()))),
    },
    Mutant {
        name: "managers without subresource",
        alter: |_, seen| each_manager(seen, |one| drop(one.remove("subresource"))),
    },
    Mutant {
        name: "managers whose first field is lost",
        alter: |_, seen| {
            each_manager(seen, |one| {
                let fields = one.get_mut("fieldsV1").and_then(Value::as_object_mut);
                fields.map(|fields| fields.keys().next().cloned().map(|first| fields.remove(&first)));
            });
        },
    },
    Mutant {
        name: "maps that nobody manages themselves",
        alter: |_, seen| each_manager(seen, |one| one.get_mut("fieldsV1").map_or((), without_dots)),
    },
    Mutant { name: "conflicts without causes", alter: |_, seen| remove(&mut seen.body, "/details", "causes") },
    Mutant { name: "conflicts that are not told", alter: |_, seen| replace_code(seen, 409, 200) },
    Mutant { name: "objects that are applied to are all new", alter: |step, seen| applied_as_new(step, seen) },
    Mutant {
        name: "sets in another order",
        alter: |_, seen| {
            if let Some(Value::Array(tags)) = seen.body.pointer_mut("/spec/tags") {
                tags.reverse();
            }
        },
    },
    Mutant {
        name: "what is no longer applied stays",
        alter: |step, seen| {
            if step.verb == "apply" && seen.body.get("kind").is_some_and(|kind| kind == "ConfigMap") {
                seen.body["data"]["c"] = "one".into();
            }
        },
    },
];

fn each_manager(seen: &mut Seen, alter: impl Fn(&mut serde_json::Map<String, Value>)) {
    let managers = seen.body.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    managers.into_iter().flatten().filter_map(Value::as_object_mut).for_each(alter);
}

fn without_dots(fields: &mut Value) {
    let Some(fields) = fields.as_object_mut() else { return };
    fields.remove(".");
    fields.values_mut().for_each(without_dots);
}

fn applied_as_new(step: &Step, seen: &mut Seen) {
    if step.verb == "apply" {
        replace_code(seen, 200, 201);
    }
}

fn replace_code(seen: &mut Seen, from: u16, to: u16) {
    if seen.code == from {
        seen.code = to;
    }
}

fn remove(body: &mut Value, place: &str, field: &str) {
    if let Some(Value::Object(fields)) = body.pointer_mut(place) {
        fields.remove(field);
    }
}

fn edit(body: &mut Value, place: &str, change: fn(&str) -> String) {
    if let Some(Value::String(text)) = body.pointer_mut(place) {
        *text = change(text);
    }
}

fn lose(body: &mut Value, list: &str) {
    if let Some(items) = body.get_mut(list).and_then(Value::as_array_mut).filter(|items| !items.is_empty()) {
        items.remove(0);
    }
}

fn still(step: &Step, seen: &mut Seen) {
    if matches!(step.verb, "update" | "patch") && seen.body.pointer("/metadata/resourceVersion").is_some() {
        seen.body["metadata"]["resourceVersion"] = "2".into();
    }
}

fn kinds(body: &mut Value) {
    let kind = body["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).unwrap_or_default().to_owned();
    for item in body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        if item.get("kind").is_none() {
            item["kind"] = kind.as_str().into();
        }
    }
}

fn rename(seen: &mut Seen, from: &str, to: &str) {
    for event in seen.events.iter_mut().filter(|event| event["type"] == from) {
        event["type"] = to.into();
    }
}

fn old_deletions(seen: &mut Seen) {
    for event in seen.events.iter_mut().filter(|event| event["type"] == "DELETED") {
        let version = event.pointer_mut("/object/metadata/resourceVersion");
        if let Some(Value::String(version)) = version {
            *version = version.parse::<u64>().map_or(String::new(), |number| (number - 1).to_string());
        }
    }
}

fn everything(step: &Step, seen: &mut Seen) {
    if step.options.contains(&"metadata only") && seen.body["kind"] == "PartialObjectMetadata" {
        seen.body["spec"] = Value::Null;
    }
}
