//! The final state of a run: all remaining objects, without the parts that differ between equal runs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use steadfast_apiserver::ApiServer;

/// Metadata fields that the server sets, and whose values differ between equal runs.
const WRITE_METADATA_FIELDS: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"];

/// Maximum number of differences in a report.
const MAX_REPORTED: usize = 5;

/// Objects at the end of a run, by resource and name. Objects with generated names share an entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FinalState(BTreeMap<String, Vec<Value>>);

impl FinalState {
    /// Collects the objects of `server`, without the resources in `ignored_resources`, given by their plural names, and
    /// the fields in `ignored_fields`, given as JSON pointers.
    pub(super) fn collect(server: &ApiServer, ignored_resources: &[String], ignored_fields: &[String]) -> Self {
        let (mut final_objects, mut names) = (BTreeMap::new(), GeneratedNames::default());
        // The history contains all objects. A list from the server would require the names of all resources.
        for change in &server.history().changes {
            let key = (change.resource.to_string(), change.namespace.clone(), change.name.clone());
            // Names of ignored resources are collected too, because other objects may refer to them.
            if let (Some(object), None) = (&change.object, &change.previous) {
                names.add(&key, object);
            }
            if ignored_resources.iter().any(|plural| change.resource.resource() == plural) {
                continue;
            }
            match &change.object {
                Some(object) => final_objects.insert(key, object.as_ref().clone()),
                None => final_objects.remove(&key),
            };
        }
        let mut final_state = Self::default();
        for ((resource, namespace, name), mut object) in final_objects {
            for pointer in ignored_fields {
                remove(&mut object, pointer);
            }
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                metadata.retain(|field, _| !WRITE_METADATA_FIELDS.contains(&field.as_str()));
            }
            // The fields are removed first, because the values of ignored fields need no translation.
            names.translate(&mut object);
            let namespace_prefix = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
            let display_name = names.generated.get(&name).unwrap_or(&name);
            // Objects with generated names have no stable identity, so they are compared as a sorted group.
            final_state.0.entry(format!("{resource} {namespace_prefix}{display_name}")).or_default().push(object);
        }
        for objects in final_state.0.values_mut() {
            objects.sort_by_key(Value::to_string);
        }
        final_state
    }

    /// Describes the differences to `other`. Empty if both are equal.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let no_objects = Vec::new();
        let mut differences = Vec::new();
        for name in names {
            let (fault_free, with_fault) =
                (self.0.get(name).unwrap_or(&no_objects), other.0.get(name).unwrap_or(&no_objects));
            if fault_free.len() != with_fault.len() {
                differences.push(format!(
                    "{name}: {} without the fault, {} with it",
                    fault_free.len(),
                    with_fault.len()
                ));
                continue;
            }
            // Values of secrets must not appear in messages.
            let shows_values = !name.starts_with("secrets ");
            for (fault_free, with_fault) in fault_free.iter().zip(with_fault) {
                add_differences(name, "", fault_free, with_fault, shows_values, &mut differences);
            }
        }
        if differences.len() > MAX_REPORTED {
            let omitted = differences.len() - MAX_REPORTED;
            differences.truncate(MAX_REPORTED);
            differences.push(format!("and {omitted} more differences"));
        }
        differences
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

/// Replacements for values that the server has chosen.
#[derive(Default)]
struct GeneratedNames {
    /// UIDs of existing and deleted objects, with their replacements.
    uids: BTreeMap<String, String>,
    generated: BTreeMap<String, String>,
}

impl GeneratedNames {
    /// Adds an object that has just been created.
    fn add(&mut self, (resource, namespace, name): &(String, Option<String>, String), object: &Value) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let prefix = text("/metadata/generateName");
        // The server appends a random suffix to `generateName`. Equal runs may create such objects in another order.
        let is_chosen = !prefix.is_empty() && name.starts_with(prefix);
        let display_name = if is_chosen { format!("{prefix}*") } else { name.clone() };
        let namespace_prefix = namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let uid = text("/metadata/uid").to_owned();
        if !uid.is_empty() {
            self.uids.insert(uid, format!("(the UID of {resource} {namespace_prefix}{display_name})"));
        }
        if is_chosen {
            self.generated.insert(name.clone(), display_name);
        }
    }

    /// Replaces UIDs, generated names and times by comparable values.
    fn translate(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(display_name) = self.generated.get(text.as_str()) {
                    text.clone_from(display_name);
                } else if is_time(text) {
                    "(a time)".clone_into(text);
                // A UID has 36 characters; shorter text cannot contain one.
                } else if text.len() >= 36 {
                    // A UID may be part of a name or a label.
                    for (uid, display_name) in
                        self.uids.iter().filter(|(uid, _)| text.contains(*uid)).collect::<Vec<_>>()
                    {
                        *text = text.replace(uid.as_str(), display_name);
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.translate(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.translate(value)),
            _ => {}
        }
    }
}

/// Returns `true` if a text is a time in the format of Kubernetes, with or without a fraction (RFC 3339, in UTC).
fn is_time(text: &str) -> bool {
    let pattern = "dddd-dd-ddTdd:dd:dd";
    let matches = |(byte, pattern): (u8, u8)| if pattern == b'd' { byte.is_ascii_digit() } else { byte == pattern };
    text.len() > pattern.len()
        && text.ends_with('Z')
        && text.bytes().zip(pattern.bytes()).all(matches)
        && text.bytes().skip(pattern.len()).all(|byte| byte == b'.' || byte == b'Z' || byte.is_ascii_digit())
}

/// Removes the field at a JSON pointer.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&field.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(values)) => {
            if let Some(index) = field.parse().ok().filter(|index: &usize| *index < values.len()) {
                values.remove(index);
            }
        }
        _ => {}
    }
}

fn add_differences(
    name: &str,
    path: &str,
    fault_free: &Value,
    with_fault: &Value,
    shows_values: bool,
    differences: &mut Vec<String>,
) {
    match (fault_free, with_fault) {
        (Value::Object(first), Value::Object(second)) => {
            let fields: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
            for field in fields {
                // A missing field counts as null, because the API server treats both alike.
                let value_or_null =
                    |fields: &serde_json::Map<String, Value>| fields.get(field).cloned().unwrap_or_default();
                add_differences(
                    name,
                    &format!("{path}/{field}"),
                    &value_or_null(first),
                    &value_or_null(second),
                    shows_values,
                    differences,
                );
            }
        }
        _ if fault_free == with_fault => {}
        _ if shows_values => {
            differences.push(format!("{name}: {path} is {fault_free} without the fault, {with_fault} with it"));
        }
        _ => differences.push(format!("{name}: {path} differs")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::TestkitError;

    async fn final_state(objects: &[Value]) -> Result<FinalState, TestkitError> {
        let server = ApiServer::builder().in_memory().start().await?;
        tokio::time::sleep(std::time::Duration::from_secs(objects.len() as u64)).await;
        for object in objects {
            server.create(object)?;
        }
        Ok(FinalState::collect(&server, &["events".to_owned()], &["/data/unseen".to_owned()]))
    }

    fn map(name: &str, data: &Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "default" }, "data": data })
    }

    fn secret(data: &str) -> Value {
        let metadata = json!({ "name": "a", "namespace": "default" });
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "key": data } })
    }

    fn named_by_the_server(prefix: &str) -> Value {
        let metadata = json!({ "generateName": prefix, "namespace": "default" });
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })
    }

    #[tokio::test(start_paused = true)]
    async fn generated_and_ignored_values_are_equal() -> Result<(), TestkitError> {
        let at = |second: u32| json!({ "at": format!("2026-01-01T00:00:0{second}Z"), "unseen": second.to_string() });
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e", "namespace": "default" },
            "involvedObject": { "namespace": "default" },
        });
        let one = final_state(&[map("a", &at(1)), named_by_the_server("b-")]).await?;
        let other = final_state(&[event, named_by_the_server("b-"), map("a", &at(2))]).await?;
        assert_eq!(one.differences(&other), Vec::<String>::new());
        assert_eq!(one, other);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn differences_are_reported_with_path() -> Result<(), TestkitError> {
        let one =
            final_state(&[map("a", &json!({ "k": "1" })), named_by_the_server("b-"), map("c", &json!({}))]).await?;
        let two = [named_by_the_server("b-"), named_by_the_server("b-"), map("a", &json!({ "k": "2" }))];
        let differences = one.differences(&final_state(&two).await?);
        assert_eq!(
            differences,
            [
                "configmaps default/a: /data/k is \"1\" without the fault, \"2\" with it",
                "configmaps default/b-*: 1 without the fault, 2 with it",
                "configmaps default/c: 1 without the fault, 0 with it",
            ]
        );
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn uids_are_equal_even_after_deletion() -> Result<(), TestkitError> {
        let after = async |others: usize| {
            let server = ApiServer::builder().in_memory().start().await?;
            for other in 0..others {
                server.create(&named_by_the_server(&format!("o{other}-")))?;
            }
            let parent = server.create(&map("parent", &json!({})))?;
            let uid = parent["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            server.create(&map("child", &json!({ "of": uid, "within": format!("child-{uid}") })))?;
            server.delete(&parent)?;
            Ok::<_, TestkitError>(FinalState::collect(&server, &[], &[]))
        };
        let differences = after(0).await?.differences(&after(2).await?);
        assert_eq!(
            differences,
            [
                "configmaps default/o0-*: 0 without the fault, 1 with it",
                "configmaps default/o1-*: 0 without the fault, 1 with it"
            ]
        );
        Ok(())
    }

    #[test]
    fn field_is_removed_by_pointer() {
        let mut object = json!({ "a": { "b/c~d": 1, "e": 2 }, "f": [1, 2] });
        for pointer in ["/a/b~1c~0d", "/f/0", "/f/7", "/none/at/all"] {
            remove(&mut object, pointer);
        }
        assert_eq!(object, json!({ "a": { "e": 2 }, "f": [2] }));
    }

    #[tokio::test(start_paused = true)]
    async fn secret_values_are_not_reported() -> Result<(), TestkitError> {
        let differences =
            final_state(&[secret("aGlkZGVu")]).await?.differences(&final_state(&[secret("b3RoZXI=")]).await?);
        assert_eq!(differences, ["secrets default/a: /data/key differs"]);
        Ok(())
    }
}
