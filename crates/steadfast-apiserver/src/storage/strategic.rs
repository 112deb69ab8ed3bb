//! Strategic merge: like a JSON merge patch, but lists whose items have a key are merged item by item.

use serde_json::{Map, Value};

/// Fields whose lists are merged, and the key of their items; `""` marks lists of plain values.
///
/// Kubernetes declares this per type. The table goes by field name, which is the same wherever these types occur.
const MERGED_LISTS: &[(&str, &str)] = &[
    ("addresses", "type"),
    ("conditions", "type"),
    ("containers", "name"),
    ("env", "name"),
    ("ephemeralContainers", "name"),
    ("finalizers", ""),
    ("hostAliases", "ip"),
    ("imagePullSecrets", "name"),
    ("initContainers", "name"),
    ("ownerReferences", "uid"),
    ("ports", "containerPort"),
    ("ports", "port"),
    ("resourceClaims", "name"),
    ("secrets", "name"),
    ("taints", "key"),
    ("topologySpreadConstraints", "topologyKey"),
    ("volumeDevices", "devicePath"),
    ("volumeMounts", "mountPath"),
    ("volumes", "name"),
];

/// Applies a strategic merge patch.
pub(super) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if directive(patch) == Some("replace") {
        *object = Value::Object(without_directives(patch));
        return;
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            delete_from_list(fields, list, value);
        } else if key == "$retainKeys" {
            let kept: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            fields.retain(|field, _| kept.contains(&field.as_str()));
        } else if key.starts_with('$') {
            // The order of a list ("$setElementOrder/…") means nothing to a server whose lists keep their order.
        } else if value.is_null() {
            fields.remove(key);
        } else {
            merge_field(fields, key, value);
        }
    }
}

fn merge_field(fields: &mut Map<String, Value>, key: &str, value: &Value) {
    match value {
        Value::Object(patch) if directive(patch) == Some("delete") => {
            fields.remove(key);
        }
        Value::Object(_) => merge(fields.entry(key.to_owned()).or_insert(Value::Null), value),
        Value::Array(items) => match merge_key(key, items) {
            Some(merge_key) => merge_list(fields.entry(key.to_owned()).or_insert(Value::Null), merge_key, items),
            None => {
                fields.insert(key.to_owned(), value.clone());
            }
        },
        plain => {
            fields.insert(key.to_owned(), plain.clone());
        }
    }
}

/// The key by which the items of a patch's list are merged, where they are.
fn merge_key(field: &str, items: &[Value]) -> Option<&'static str> {
    if items.iter().any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace")) {
        return None;
    }
    let candidates = MERGED_LISTS.iter().filter(|(name, _)| *name == field).map(|(_, key)| *key);
    candidates
        .into_iter()
        .find(|key| items.iter().all(|item| if key.is_empty() { !item.is_object() } else { item.get(key).is_some() }))
}

fn merge_list(list: &mut Value, merge_key: &str, items: &[Value]) {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(existing) = list else { return };
    for item in items {
        let same = |candidate: &Value| {
            if merge_key.is_empty() { candidate == item } else { candidate.get(merge_key) == item.get(merge_key) }
        };
        let position = existing.iter().position(same);
        let deletes = item.as_object().and_then(directive) == Some("delete");
        match position {
            Some(position) if deletes => {
                existing.remove(position);
            }
            Some(position) if !merge_key.is_empty() => merge(&mut existing[position], item),
            None if !deletes => {
                let mut added = Value::Null;
                merge(&mut added, item);
                existing.push(added);
            }
            _ => {}
        }
    }
}

fn delete_from_list(fields: &mut Map<String, Value>, list: &str, gone: &Value) {
    let gone = gone.as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(Value::Array(items)) = fields.get_mut(list) {
        items.retain(|item| !gone.contains(item));
    }
}

fn directive(patch: &Map<String, Value>) -> Option<&str> {
    patch.get("$patch").and_then(Value::as_str)
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(key, _)| !key.starts_with('$')).map(|(key, value)| (key.clone(), value.clone())).collect()
}
