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
            if builder.chance.percent(60) {
                object["secrets"] = named(builder);
            }
            if builder.chance.percent(40) {
                object["imagePullSecrets"] = named(builder);
            }
            if builder.chance.percent(30) {
                object["automountServiceAccountToken"] = builder.chance.percent(50).into();
            }
        }
        "Role" => {
            let verbs = builder.chance.pick(&["get", "list", "watch"]);
            object["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verbs]}]);
        }
        "Widget" => {
            object["spec"] = map(builder);
            if builder.chance.percent(50) {
                object["spec"]["list"] = json!([{"name": builder.chance.pick(&["p", "q"])}]);
            }
            if builder.chance.percent(40) {
                object["spec"]["deep"] = json!({"deeper": map(builder)});
            }
        }
        _ => object["spec"] = gadget(builder),
    }
    object
}

fn metadata(builder: &mut ScriptBuilder, metadata: &mut Value) {
    if builder.chance.percent(50) {
        metadata["labels"] = map(builder);
    }
    if builder.chance.percent(25) {
        metadata["annotations"] = map(builder);
    }
    if builder.chance.percent(12) {
        metadata["finalizers"] = match builder.chance.below(3) {
            0 => json!(["steadfast.dev/one"]),
            1 => json!(["steadfast.dev/two"]),
            _ => json!(["steadfast.dev/two", "steadfast.dev/one"]),
        };
    }
    if builder.chance.percent(12) {
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid});
        metadata["ownerReferences"] = match builder.chance.below(3) {
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
    map.insert(builder.chance.pick(&["a", "b", "c"]).to_owned(), "one".into());
    for key in ["a", "b", "c"] {
        if builder.chance.percent(50) {
            map.insert(key.to_owned(), builder.chance.pick(&["one", "two"]).into());
        }
    }
    map.into()
}

fn named(builder: &mut ScriptBuilder) -> Value {
    let mut names: Vec<&str> = ["p", "q", "r"].into_iter().filter(|_| builder.chance.percent(50)).collect();
    if names.is_empty() {
        names.push("q");
    }
    let mut items: Vec<Value> = names.into_iter().map(|name| json!({"name": name})).collect();
    if builder.chance.percent(30) {
        items.reverse();
    }
    items.into()
}

fn texts(builder: &mut ScriptBuilder) -> Value {
    let mut texts: Vec<&str> = ["x", "y", "z"].into_iter().filter(|_| builder.chance.percent(50)).collect();
    if builder.chance.percent(30) {
        texts.reverse();
    }
    texts.into()
}

fn gadget(builder: &mut ScriptBuilder) -> Value {
    let mut spec = Map::new();
    for field in ["color", "size", "tags", "parts", "limits", "selector", "plain", "port", "nested", "free"] {
        if builder.chance.percent(65) {
            continue;
        }
        let value = match field {
            "color" => builder.chance.pick(&["red", "blue"]).into(),
            "size" => builder.chance.below(3).into(),
            "tags" | "plain" => texts(builder),
            "parts" => parts(builder),
            "port" => {
                if builder.chance.percent(50) {
                    json!(80)
                } else {
                    json!("http")
                }
            }
            "nested" => match builder.chance.below(4) {
                0 => json!({}),
                1 => json!({"one": "1"}),
                2 => json!({"two": builder.chance.pick(&["2", "3"])}),
                _ => json!({"one": "1", "two": "2"}),
            },
            "free" => {
                let mut free = map(builder);
                if builder.chance.percent(50) {
                    free["items"] = texts(builder);
                }
                if builder.chance.percent(30) {
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

fn parts(builder: &mut ScriptBuilder) -> Value {
    let mut parts = Vec::new();
    for name in ["p", "q", "r"] {
        if builder.chance.percent(50) {
            continue;
        }
        let mut part = json!({"name": name});
        if builder.chance.percent(40) {
            part["kind"] = builder.chance.pick(&["plain", "other"]).into();
        }
        if builder.chance.percent(60) {
            part["amount"] = builder.chance.below(3).into();
        }
        if builder.chance.percent(30) {
            part["marks"] = texts(builder);
        }
        parts.push(part);
    }
    if builder.chance.percent(30) {
        parts.reverse();
    }
    parts.into()
}
