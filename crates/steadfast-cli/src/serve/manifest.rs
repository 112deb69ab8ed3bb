//! Manifests: YAML or JSON, several documents or a `List`, as objects.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use steadfast_apiserver::ApiServer;

use crate::failure::Failure;

/// An object and where it was read, for errors.
#[derive(Debug)]
pub(crate) struct Object {
    value: Value,
    file: PathBuf,
}

/// Reads all objects of all files, in order.
pub(crate) fn read_all(files: &[PathBuf]) -> Result<Vec<Object>, Failure> {
    let mut objects = Vec::new();
    for file in files {
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?;
        let values = parse(&text).map_err(|why| Failure::usage(format!("{}: {why}", file.display())))?;
        objects.extend(values.into_iter().map(|value| Object { value, file: file.clone() }));
    }
    Ok(objects)
}

/// Creates `objects` on `server`, namespaces and definitions first, since the others may need them.
pub(crate) fn create(server: &ApiServer, objects: &[Object]) -> Result<usize, Failure> {
    let (first, then): (Vec<_>, Vec<_>) = objects
        .iter()
        .partition(|object| matches!(text(&object.value, "/kind"), "Namespace" | "CustomResourceDefinition"));
    for object in first.into_iter().chain(then) {
        server.create(&object.value).map_err(|status| cannot_create(object, &status.message))?;
    }
    Ok(objects.len())
}

fn cannot_create(object: &Object, why: &str) -> Failure {
    let (kind, name) = (text(&object.value, "/kind"), text(&object.value, "/metadata/name"));
    Failure::run(format!("{}: {kind} {name:?} cannot be created: {why}", shown(&object.file)))
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The objects of `text`; an error says where it is wrong, and never quotes the text, which may hold secrets.
fn parse(text: &str) -> Result<Vec<Value>, String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| match error.location() {
        Some(location) => format!("neither YAML nor JSON, at line {}, column {}", location.line(), location.column()),
        None => "neither YAML nor JSON".to_owned(),
    })?;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        flatten(document, &mut objects).map_err(|why| format!("document {}: {why}", index + 1))?;
    }
    Ok(objects)
}

fn flatten(mut document: Value, objects: &mut Vec<Value>) -> Result<(), String> {
    if document.is_null() {
        return Ok(());
    }
    let kind = text(&document, "/kind").to_owned();
    if let (true, Some(Value::Array(items))) = (kind.ends_with("List"), document.get_mut("items").map(Value::take)) {
        return items.into_iter().try_for_each(|item| flatten(item, objects));
    }
    let missing = ["/apiVersion", "/kind"].into_iter().find(|key| text(&document, key).is_empty());
    if let Some(key) = missing {
        return Err(format!("{} is missing", &key[1..]));
    }
    objects.push(document);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Result<Vec<String>, String> {
        let kind = |object: Value| super::text(&object, "/kind").to_owned();
        Ok(parse(text)?.into_iter().map(kind).collect())
    }

    #[test]
    fn documents_lists_and_json_are_all_objects() {
        let yaml =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n---\n{\"apiVersion\":\"v1\",\"kind\":\"Node\"}\n";
        assert_eq!(kinds(yaml).unwrap(), ["Pod", "Node"]);
        let list =
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret}\n- {apiVersion: v1, kind: Pod}\n";
        assert_eq!(kinds(list).unwrap(), ["Secret", "Pod"]);
        assert_eq!(kinds("{\"apiVersion\": \"v1\", \"kind\": \"Service\"}").unwrap(), ["Service"]);
        assert!(kinds("# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn an_error_names_the_place_and_not_the_text() {
        let broken = parse("kind: Secret\ndata: {password: hunter2").unwrap_err();
        assert!(broken.contains("line "), "{broken}");
        assert!(!broken.contains("hunter2"), "{broken}");
        assert_eq!(parse("kind: Pod\n---\nkind: Pod").unwrap_err(), "document 1: apiVersion is missing");
    }
}
