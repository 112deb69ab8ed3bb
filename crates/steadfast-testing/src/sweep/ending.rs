//! How a play ends: all objects that are left, without what differs from play to play.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use steadfast_apiserver::ApiServer;

/// Fields that say when and how often something was written, not what.
const OF_THE_WRITING: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink"];

/// At most so many differences are told.
const TOLD: usize = 5;

/// The objects at the end of a play, by what they are called; those whose names the server has chosen share a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ending(BTreeMap<String, Vec<Value>>);

impl Ending {
    /// That of `server`, without the resources `ignored`, by their plural names, and the fields `unseen`, as JSON pointers.
    pub(super) fn of(server: &ApiServer, ignored: &[String], unseen: &[String]) -> Self {
        let mut last = BTreeMap::new();
        for change in &server.history().changes {
            if ignored.iter().any(|plural| change.resource.resource() == plural) {
                continue;
            }
            let key = (change.resource.to_string(), change.namespace.clone(), change.name.clone());
            match &change.object {
                Some(object) => last.insert(key, object.as_ref().clone()),
                None => last.remove(&key),
            };
        }
        let mut names = BTreeMap::new();
        for ((resource, namespace, name), object) in &last {
            let prefix = object.pointer("/metadata/generateName").and_then(Value::as_str).unwrap_or_default();
            let is_chosen = !prefix.is_empty() && name.starts_with(prefix);
            let called = if is_chosen { format!("{prefix}*") } else { name.clone() };
            let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
            let place = namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
            names.insert(uid.to_owned(), format!("(the UID of {resource} {place}{called})"));
            if is_chosen {
                names.insert(name.clone(), called);
            }
        }
        let mut ending = Self::default();
        for ((resource, namespace, name), mut object) in last {
            for pointer in unseen {
                remove(&mut object, pointer);
            }
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                metadata.retain(|field, _| !OF_THE_WRITING.contains(&field.as_str()));
            }
            translate(&mut object, &names);
            let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
            let called = names.get(&name).unwrap_or(&name);
            ending.0.entry(format!("{resource} {place}{called}")).or_default().push(object);
        }
        for objects in ending.0.values_mut() {
            objects.sort_by_key(Value::to_string);
        }
        ending
    }

    /// What is different in `other`, in words; nothing where they are equal.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let called: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let none = Vec::new();
        let mut told = Vec::new();
        for name in called {
            let (here, there) = (self.0.get(name).unwrap_or(&none), other.0.get(name).unwrap_or(&none));
            if here.len() != there.len() {
                told.push(format!("{name}: {} of it undisturbed, {} here", here.len(), there.len()));
                continue;
            }
            // What a secret holds reaches no text.
            let shows = !name.starts_with("secrets ");
            for (undisturbed, disturbed) in here.iter().zip(there) {
                differs(name, "", undisturbed, disturbed, shows, &mut told);
            }
        }
        if told.len() > TOLD {
            let more = told.len() - TOLD;
            told.truncate(TOLD);
            told.push(format!("and {more} more differences"));
        }
        told
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

/// Puts what can be compared in place of UIDs, chosen names and times.
fn translate(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(called) = names.get(text.as_str()) {
                text.clone_from(called);
            } else if is_time(text) {
                "(a time)".clone_into(text);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| translate(value, names)),
        Value::Object(fields) => fields.values_mut().for_each(|value| translate(value, names)),
        _ => {}
    }
}

/// Whether a text is a time as Kubernetes writes it, with or without a fraction (RFC 3339, in UTC).
fn is_time(text: &str) -> bool {
    let form = "dddd-dd-ddTdd:dd:dd";
    let matches = |(byte, form): (u8, u8)| if form == b'd' { byte.is_ascii_digit() } else { byte == form };
    text.len() > form.len()
        && text.ends_with('Z')
        && text.bytes().zip(form.bytes()).all(matches)
        && text.bytes().skip(form.len()).all(|byte| byte == b'.' || byte == b'Z' || byte.is_ascii_digit())
}

/// Takes away the field that a JSON pointer names.
fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
        fields.remove(field);
    }
}

fn differs(name: &str, place: &str, here: &Value, there: &Value, shows: bool, told: &mut Vec<String>) {
    match (here, there) {
        (Value::Object(first), Value::Object(second)) => {
            let fields: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
            for field in fields {
                let of = |fields: &serde_json::Map<String, Value>| fields.get(field).cloned().unwrap_or_default();
                differs(name, &format!("{place}/{field}"), &of(first), &of(second), shows, told);
            }
        }
        _ if here == there => {}
        _ if shows => told.push(format!("{name}: {place} is {here} undisturbed, {there} here")),
        _ => told.push(format!("{name}: {place} is another")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Error;

    async fn ending(objects: &[Value]) -> Result<Ending, Error> {
        let server = ApiServer::builder().in_memory().start().await?;
        tokio::time::sleep(std::time::Duration::from_secs(objects.len() as u64)).await;
        for object in objects {
            server.create(object)?;
        }
        Ok(Ending::of(&server, &["events".to_owned()], &["/data/unseen".to_owned()]))
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
    async fn names_that_the_server_chose_times_and_what_is_ignored_make_no_difference() -> Result<(), Error> {
        let at = |second: u32| json!({ "at": format!("2026-01-01T00:00:0{second}Z"), "unseen": second.to_string() });
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": "e", "namespace": "default" },
            "involvedObject": { "namespace": "default" },
        });
        let one = ending(&[map("a", &at(1)), named_by_the_server("b-")]).await?;
        let other = ending(&[event, named_by_the_server("b-"), map("a", &at(2))]).await?;
        assert_eq!(one.differences(&other), Vec::<String>::new());
        assert_eq!(one, other);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_different_is_told_with_its_place() -> Result<(), Error> {
        let one = ending(&[map("a", &json!({ "k": "1" })), named_by_the_server("b-"), map("c", &json!({}))]).await?;
        let two = [named_by_the_server("b-"), named_by_the_server("b-"), map("a", &json!({ "k": "2" }))];
        let told = one.differences(&ending(&two).await?);
        assert_eq!(
            told,
            [
                "configmaps default/a: /data/k is \"1\" undisturbed, \"2\" here",
                "configmaps default/b-*: 1 of it undisturbed, 2 here",
                "configmaps default/c: 1 of it undisturbed, 0 here",
            ]
        );
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_secret_holds_is_not_told() -> Result<(), Error> {
        let told = ending(&[secret("aGlkZGVu")]).await?.differences(&ending(&[secret("b3RoZXI=")]).await?);
        assert_eq!(told, ["secrets default/a: /data/key is another"]);
        Ok(())
    }
}
