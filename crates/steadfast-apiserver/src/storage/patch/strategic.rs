//! Strategic merge patches: like JSON merge patches, but lists with keyed items are merged item by item.

use serde_json::{Map, Value};

use crate::status::Status;

/// Fields with merged lists, and the key of their items; `""` marks lists of plain values.
///
/// Kubernetes declares the keys per type. This table uses the field name, because a field has the same key in all types
/// that contain it.
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
pub(super) fn merge(object: &mut Value, patch: &Value) -> Result<(), Status> {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return Ok(());
    };
    match directive(patch) {
        Some("replace") => {
            *object = Value::Object(without_directives(patch));
            return Ok(());
        }
        Some("delete") => {
            *object = Value::Object(Map::new());
            return Ok(());
        }
        None | Some("merge") => {}
        Some(unknown) => {
            let detail =
                format_args!("unknown patch type: {unknown} in map: {}", go_text(&Value::Object(patch.clone())))
                    .to_string();
            return Err(Status::new(500, "", detail));
        }
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(fields) = object else { return Ok(()) };
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            delete_from_list(fields, list, value);
        } else if key == "$retainKeys" {
            // Fields outside `$retainKeys` disappear, for example the old member of a union.
            let retained_fields: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            fields.retain(|field, _| retained_fields.contains(&field.as_str()));
        // Only `$setElementOrder` remains here: other directives were handled above or belong to items.
        } else if key.starts_with('$') {
            // The order of a list is processed when the list is merged.
        } else if value.is_null() {
            fields.remove(key);
        } else {
            // The order is a sibling of the list, because a patch cannot express the order of unchanged items.
            let order = patch.get(&format!("$setElementOrder/{key}")).and_then(Value::as_array);
            merge_field(fields, key, value, order)?;
        }
    }
    Ok(())
}

/// Formats a value like Go.
fn go_text(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        scalar => scalar.to_string(),
    }
}

fn merge_field(
    fields: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    order: Option<&Vec<Value>>,
) -> Result<(), Status> {
    match value {
        Value::Object(patch) if directive(patch) == Some("delete") => {
            fields.remove(key);
        }
        // A directive for an absent object has no effect, and neither has the rest of its patch.
        Value::Object(patch) if patch.contains_key("$patch") && !fields.get(key).is_some_and(Value::is_object) => {
            fields.remove(key);
        }
        Value::Object(_) => return merge(fields.entry(key.to_owned()).or_insert(Value::Null), value),
        Value::Array(items) => {
            if let Some(merge_key) = merge_key(key, items) {
                let list = fields.entry(key.to_owned()).or_insert(Value::Null);
                return merge_list(list, merge_key, items, order.unwrap_or(items));
            }
            if let Some((item, merge_key)) = first_keyless_item(fields.get(key), key, items) {
                let detail = format!("map: {} does not contain declared merge key: {merge_key}", go_text(item));
                return Err(Status::new(500, "", detail));
            }
            let new_value = items.iter().filter(|item| !is_replacement(item)).cloned().collect();
            fields.insert(key.to_owned(), new_value);
        }
        new_value => {
            fields.insert(key.to_owned(), new_value.clone());
        }
    }
    Ok(())
}

/// Returns whether the item marks its list as a replacement.
fn is_replacement(item: &Value) -> bool {
    item.get("$patch").and_then(Value::as_str) == Some("replace")
}

/// Returns the first item without the key that a merge into an existing list requires.
fn first_keyless_item<'a>(
    existing: Option<&Value>,
    field: &str,
    items: &'a [Value],
) -> Option<(&'a Value, &'static str)> {
    let declared = MERGED_LISTS.iter().find(|(name, key)| *name == field && !key.is_empty());
    let (_, merge_key) = declared.filter(|_| existing.is_some_and(Value::is_array))?;
    if items.iter().any(is_replacement) {
        return None;
    }
    items.iter().find(|item| item.is_object() && item.get(merge_key).is_none()).map(|item| (item, *merge_key))
}

/// Returns the key by which the items of a patch's list are merged, if any.
fn merge_key(field: &str, items: &[Value]) -> Option<&'static str> {
    if items.iter().any(is_replacement) {
        // A list that replaces the existing list is not merged.
        return None;
    }
    let candidates = MERGED_LISTS.iter().filter(|(name, _)| *name == field).map(|(_, key)| *key);
    candidates
        .into_iter()
        .find(|key| items.iter().all(|item| if key.is_empty() { !item.is_object() } else { item.get(key).is_some() }))
}

fn merge_list(list: &mut Value, merge_key: &str, items: &[Value], order: &[Value]) -> Result<(), Status> {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Value::Array(existing) = list else { return Ok(()) };
    let before = existing.clone();
    for item in items {
        let has_same_key = |candidate: &Value| {
            if merge_key.is_empty() { candidate == item } else { candidate.get(merge_key) == item.get(merge_key) }
        };
        // The first match is merged. Duplicate keys in the existing list stay.
        let position = existing.iter().position(has_same_key);
        let is_deletion = item.as_object().and_then(directive) == Some("delete");
        match position {
            Some(position) if is_deletion => {
                existing.remove(position);
            }
            Some(position) if !merge_key.is_empty() => merge(&mut existing[position], item)?,
            None if !is_deletion => {
                let mut added = Value::Null;
                merge(&mut added, item)?;
                existing.push(added);
            }
            _ => {}
        }
    }
    sort_items(existing, merge_key, &before, order);
    Ok(())
}

/// Sorts the items that the patch names. Each other item stays before the next named item that followed it in the
/// original list, as in apimachinery.
fn sort_items(list: &mut Vec<Value>, merge_key: &str, before: &[Value], order: &[Value]) {
    let has_same_key = |one: &Value, other: &Value| {
        if merge_key.is_empty() { one == other } else { one.get(merge_key) == other.get(merge_key) }
    };
    let position_in = |items: &[Value], item: &Value| items.iter().position(|other| has_same_key(item, other));
    let (mut named_items, other_items): (Vec<Value>, Vec<Value>) =
        std::mem::take(list).into_iter().partition(|item| position_in(order, item).is_some());
    named_items.sort_by_key(|item| position_in(order, item));
    let (mut named_items, mut other_items) = (named_items.into_iter().peekable(), other_items.into_iter().peekable());
    loop {
        let takes_other = match (other_items.peek(), named_items.peek()) {
            (Some(other), Some(next)) => {
                let (other, next) = (position_in(before, other), position_in(before, next));
                // An unnamed item goes first only if it preceded the next named item in the original list.
                other.is_some() && next.is_some() && other < next
            }
            (other, _) => other.is_some(),
        };
        let Some(item) = (if takes_other { other_items.next() } else { named_items.next() }) else { return };
        list.push(item);
    }
}

fn delete_from_list(fields: &mut Map<String, Value>, list: &str, removed: &Value) {
    let removed = removed.as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(Value::Array(items)) = fields.get_mut(list) {
        items.retain(|item| !removed.contains(item));
    }
}

fn directive(patch: &Map<String, Value>) -> Option<&str> {
    patch.get("$patch").and_then(Value::as_str)
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(key, _)| !key.starts_with('$')).map(|(key, value)| (key.clone(), value.clone())).collect()
}
