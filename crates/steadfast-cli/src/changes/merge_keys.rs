//! Fields that identify the elements of a list, so that an insertion is not a change of all later elements.
//!
//! The API of Kubernetes documents these keys as `x-kubernetes-list-map-keys` or `patchMergeKey`. The same names are
//! used in custom resources that embed pod templates or conditions.

use std::collections::BTreeSet;

use serde_json::Value;

/// Fields that identify an element. The first must be present; the others are optional.
pub(super) type Keys = &'static [&'static str];

/// Candidates for lists with an unknown name.
const COMMON_KEYS: &[Keys] = &[&["name"], &["type"], &["key"], &["id"], &["uid"], &["ip"], &["hostname"]];

/// Returns the candidates for the list in the field `field`, the best first.
fn candidates(field: &str) -> &'static [Keys] {
    match field {
        "conditions" => &[&["type"]],
        "ports" => &[&["containerPort", "protocol"], &["port", "protocol"], &["name"]],
        "addresses" => &[&["type", "address"], &["ip"]],
        "endpoints" => &[&["addresses"]],
        "taints" => &[&["key", "effect"]],
        "volumeMounts" => &[&["mountPath"]],
        "volumeDevices" => &[&["devicePath"]],
        "topologySpreadConstraints" => &[&["topologyKey", "whenUnsatisfiable"]],
        "podIPs" | "hostIPs" | "hostAliases" => &[&["ip"]],
        "ownerReferences" => &[&["uid"]],
        "subjects" => &[&["name", "kind", "namespace"]],
        "rules" => &[&["host"]],
        "managedFields" => &[&["manager", "operation", "subresource", "apiVersion"]],
        _ => COMMON_KEYS,
    }
}

/// Returns the keys that identify every element of both lists, or `None` if the lists have no such keys.
pub(super) fn find_keys(field: &str, old: &[Value], new: &[Value]) -> Option<Keys> {
    candidates(field).iter().copied().find(|keys| are_unique_keys(keys, old) && are_unique_keys(keys, new))
}

/// Returns the identity of an element, for comparisons.
pub(super) fn identity(keys: Keys, element: &Value) -> String {
    let values: Vec<&Value> = keys.iter().map(|key| element.get(key).unwrap_or(&Value::Null)).collect();
    // Cannot fail: the values are JSON.
    serde_json::to_string(&values).unwrap_or_default()
}

/// Returns whether `keys` are present and unique in `list`.
fn are_unique_keys(keys: Keys, list: &[Value]) -> bool {
    let mut identities = BTreeSet::new();
    list.iter().all(|element| {
        let Some(fields) = element.as_object() else { return false };
        let is_present = keys.first().is_some_and(|first| fields.contains_key(*first));
        // A null value would be printed like a missing key.
        let is_simple = keys.iter().filter_map(|key| fields.get(*key)).all(is_simple);
        is_present && is_simple && identities.insert(identity(keys, element))
    })
}

fn is_simple(value: &Value) -> bool {
    match value {
        Value::Null | Value::Object(_) => false,
        Value::Array(list) => list.iter().all(Value::is_string),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
