//! Field managers that made a change, from `metadata.managedFields`.

use serde_json::Value;

use super::diff::Change;
use super::path::{Path, Segment};

/// Maximum number of managers of one change. Merged changes can have more.
const MAX_MANAGERS: usize = 2;

/// Returns the managers that made `changes`; empty if they are unknown.
///
/// A write that changes a field renews the time of its manager's entry. But two writes of a manager within one second
/// have equal times. If no time differs, returns the owner of the changed fields, unless several managers own them.
pub(crate) fn managers<'a>(old: &Value, new: &'a Value, changes: &[&Change<'_>]) -> Vec<&'a str> {
    let renewed = entries(new).filter(|entry| {
        let before = entries(old).find(|before| is_same_manager(before, entry));
        before.is_none_or(|before| before.get("time") != entry.get("time"))
    });
    let renewed = names(renewed);
    if !renewed.is_empty() {
        return renewed.into_iter().take(MAX_MANAGERS).collect();
    }
    let owners = entries(new).filter(|entry| {
        let fields = entry.get("fieldsV1");
        changes.iter().any(|change| fields.is_some_and(|fields| contains_path(fields, &change.path)))
    });
    let owners = names(owners);
    if owners.len() == 1 { owners } else { Vec::new() }
}

/// Returns the manager of the latest write to `object`, or `None` if it is unknown.
pub(crate) fn latest(object: &Value) -> Option<&str> {
    let newest = entries(object).max_by_key(|entry| entry.get("time").and_then(Value::as_str))?;
    newest.get("manager").and_then(Value::as_str)
}

fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
}

fn is_same_manager(first: &Value, second: &Value) -> bool {
    ["manager", "operation", "subresource"].iter().all(|field| first.get(field) == second.get(field))
}

fn names<'a>(entries: impl Iterator<Item = &'a Value>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in entries.filter_map(|entry| entry.get("manager")?.as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns whether the field set `fields` contains the field at `path`, or a field below or above it.
fn contains_path(fields: &Value, path: &Path<'_>) -> bool {
    let mut owned = fields;
    for segment in &path.0 {
        let Some(members) = owned.as_object() else { return false };
        // An empty set owns the whole field below it.
        if members.is_empty() {
            return true;
        }
        let next = match segment {
            Segment::Field(name) => members.get(&format!("f:{name}")),
            Segment::Element(keys) => members.iter().find_map(|(member, nested)| {
                let key: Value = serde_json::from_str(member.strip_prefix("k:")?).ok()?;
                let is_same = |(name, value): &(&str, Option<&Value>)| {
                    key.get(*name).is_none_or(|key_value| Some(key_value) == *value)
                };
                keys.iter().all(is_same).then_some(nested)
            }),
            Segment::Index(_) | Segment::Order(_) => return true,
        };
        let Some(nested) = next else { return false };
        owned = nested;
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::changes::diff::{Detail, diff};

    fn entry(manager: &str, time: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields})
    }

    fn deployment(replicas: u32, entries: &[Value]) -> Value {
        let containers = json!([{"name": "app", "image": "a:1"}]);
        json!({
            "metadata": {"managedFields": entries},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
        })
    }

    fn managers_of(old: &Value, new: &Value) -> Vec<String> {
        let changes = diff(old, new, Detail::Leaves);
        let changes: Vec<&Change<'_>> =
            changes.iter().filter(|change| !change.path.starts_with("metadata/managedFields")).collect();
        managers(old, new, &changes).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn manager_with_renewed_entry_is_found() {
        let (hpa, kubectl) = (json!({"f:spec": {"f:replicas": {}}}), json!({"f:spec": {"f:template": {}}}));
        let old = deployment(3, &[entry("hpa", "t1", &hpa), entry("kubectl", "t1", &kubectl)]);
        let new = deployment(5, &[entry("hpa", "t2", &hpa), entry("kubectl", "t1", &kubectl)]);
        assert_eq!(managers_of(&old, &new), ["hpa"]);
        assert_eq!(latest(&new), Some("hpa"));
    }

    #[test]
    fn owner_is_found_within_one_second() {
        let (hpa, kubectl) = (json!({"f:spec": {"f:replicas": {}}}), json!({"f:spec": {"f:template": {"f:spec": {}}}}));
        let entries = [entry("hpa", "t1", &hpa), entry("kubectl", "t1", &kubectl)];
        assert_eq!(managers_of(&deployment(3, &entries), &deployment(5, &entries)), ["hpa"]);
        assert_eq!(managers_of(&deployment(3, &[]), &deployment(5, &[])), Vec::<String>::new());
    }

    #[test]
    fn element_of_list_has_owner() {
        let fields = json!({"f:containers": {"k:{\"name\":\"app\"}": {".": {}, "f:image": {}}}});
        let (old, new) = (
            json!({"containers": [{"name": "app", "image": "1"}]}),
            json!({"containers": [{"name": "app", "image": "2"}]}),
        );
        let changes = diff(&old, &new, Detail::Leaves);
        assert!(contains_path(&fields, &changes[0].path));
        assert!(!contains_path(&json!({"f:containers": {"k:{\"name\":\"b\"}": {"f:image": {}}}}), &changes[0].path));
    }
}
