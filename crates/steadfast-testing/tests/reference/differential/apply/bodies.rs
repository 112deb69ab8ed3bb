//! Bodies of apply requests.

use serde_json::{Map, Value, json};

use super::ScriptBuilder;

/// Returns a definition with every kind of list and map in its schema.
pub fn definition() -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let part = json!({
        "type": "object", "required": ["name"],
        "properties": {"name": text, "kind": {"type": "string", "default": "plain"}, "amount": number,
                       "marks": {"type": "array", "items": text, "x-kubernetes-list-type": "set"}},
    });
    let spec = json!({
        "type": "object",
        "properties": {
            "color": text, "size": number,
            "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "parts": {"type": "array", "items": part, "x-kubernetes-list-type": "map",
                      "x-kubernetes-list-map-keys": ["name", "kind"]},
            "limits": {"type": "object", "additionalProperties": text},
            "selector": {"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"},
            "plain": {"type": "array", "items": text},
            "port": {"x-kubernetes-int-or-string": true},
            "nested": {"type": "object", "properties": {"one": text, "two": text}},
            "free": any,
        },
    });
    let condition = json!({"type": "object", "required": ["type"], "properties": {"type": text, "status": text}});
    let status = json!({
        "type": "object",
        "properties": {"phase": text, "conditions": {"type": "array", "items": condition,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}},
    });
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.apply.steadfast.dev"},
        "spec": {
            "group": "apply.steadfast.dev", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                          "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Returns an object with some of the fields of its kind.
pub fn object(builder: &mut ScriptBuilder) -> Value {
    let mut object = json!({
        "apiVersion": builder.kind.api_version, "kind": builder.kind.kind, "metadata": {"name": "it"},
    });
    metadata(builder, &mut object["metadata"]);
    match builder.kind.kind {
        "ConfigMap" => object["data"] = map(builder),
        "ServiceAccount" => {
            if builder.rng.percent(60) {
                object["secrets"] = named_items(builder);
            }
            if builder.rng.percent(40) {
                object["imagePullSecrets"] = named_items(builder);
            }
            if builder.rng.percent(30) {
                object["automountServiceAccountToken"] = builder.rng.percent(50).into();
            }
        }
        "Role" => {
            let verbs = builder.rng.pick(&["get", "list", "watch"]);
            object["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verbs]}]);
        }
        "Widget" => {
            object["spec"] = map(builder);
            if builder.rng.percent(50) {
                object["spec"]["list"] = json!([{"name": builder.rng.pick(&["p", "q"])}]);
            }
            if builder.rng.percent(40) {
                object["spec"]["deep"] = json!({"deeper": map(builder)});
            }
        }
        _ => object["spec"] = gadget(builder),
    }
    object
}

fn metadata(builder: &mut ScriptBuilder, metadata: &mut Value) {
    if builder.rng.percent(50) {
        metadata["labels"] = map(builder);
    }
    if builder.rng.percent(25) {
        metadata["annotations"] = map(builder);
    }
    if builder.rng.percent(12) {
        metadata["finalizers"] = match builder.rng.below(3) {
            0 => json!(["steadfast.dev/one"]),
            1 => json!(["steadfast.dev/two"]),
            _ => json!(["steadfast.dev/two", "steadfast.dev/one"]),
        };
    }
    if builder.rng.percent(12) {
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid});
        metadata["ownerReferences"] = match builder.rng.below(3) {
            0 => json!([owner("one")]),
            1 => json!([owner("two")]),
            _ => json!([owner("one"), owner("two")]),
        };
    }
}

/// Returns a non-empty map of strings. A real server does not record stored empty maps in the metadata, and writes
/// again.
pub fn map(builder: &mut ScriptBuilder) -> Value {
    let mut map = Map::new();
    map.insert(builder.rng.pick(&["a", "b", "c"]).to_owned(), "one".into());
    for key in ["a", "b", "c"] {
        if builder.rng.percent(50) {
            map.insert(key.to_owned(), builder.rng.pick(&["one", "two"]).into());
        }
    }
    map.into()
}

fn named_items(builder: &mut ScriptBuilder) -> Value {
    let mut names: Vec<&str> = ["p", "q", "r"].into_iter().filter(|_| builder.rng.percent(50)).collect();
    if names.is_empty() {
        names.push("q");
    }
    let mut items: Vec<Value> = names.into_iter().map(|name| json!({"name": name})).collect();
    if builder.rng.percent(30) {
        items.reverse();
    }
    items.into()
}

fn text_set(builder: &mut ScriptBuilder) -> Value {
    let mut text_set: Vec<&str> = ["x", "y", "z"].into_iter().filter(|_| builder.rng.percent(50)).collect();
    if builder.rng.percent(30) {
        text_set.reverse();
    }
    text_set.into()
}

fn gadget(builder: &mut ScriptBuilder) -> Value {
    let mut spec = Map::new();
    for field in ["color", "size", "tags", "parts", "limits", "selector", "plain", "port", "nested", "free"] {
        if builder.rng.percent(65) {
            continue;
        }
        let value = match field {
            "color" => builder.rng.pick(&["red", "blue"]).into(),
            "size" => builder.rng.below(3).into(),
            "tags" | "plain" => text_set(builder),
            "parts" => part_list(builder),
            "port" => {
                if builder.rng.percent(50) {
                    json!(80)
                } else {
                    json!("http")
                }
            }
            "nested" => match builder.rng.below(4) {
                0 => json!({}),
                1 => json!({"one": "1"}),
                2 => json!({"two": builder.rng.pick(&["2", "3"])}),
                _ => json!({"one": "1", "two": "2"}),
            },
            "free" => {
                let mut free = map(builder);
                if builder.rng.percent(50) {
                    free["items"] = text_set(builder);
                }
                if builder.rng.percent(30) {
                    free["deep"] = map(builder);
                }
                free
            }
            _ => map(builder),
        };
        spec.insert(field.to_owned(), value);
    }
    spec.into()
}

fn part_list(builder: &mut ScriptBuilder) -> Value {
    let mut part_list = Vec::new();
    for name in ["p", "q", "r"] {
        if builder.rng.percent(50) {
            continue;
        }
        let mut part = json!({"name": name});
        if builder.rng.percent(40) {
            part["kind"] = builder.rng.pick(&["plain", "other"]).into();
        }
        if builder.rng.percent(60) {
            part["amount"] = builder.rng.below(3).into();
        }
        if builder.rng.percent(30) {
            part["marks"] = text_set(builder);
        }
        part_list.push(part);
    }
    if builder.rng.percent(30) {
        part_list.reverse();
    }
    part_list.into()
}
