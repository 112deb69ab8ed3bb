//! Manifests: objects from YAML or JSON with several documents or a `List`.

use serde_json::Value;
use serde_saphyr::{budget, options};
use steadfast_apiserver::ApiServer;

use super::sources::ManifestText;
use crate::failure::Failure;

/// An object with its origin, for errors.
#[derive(Debug)]
pub(crate) struct Object {
    value: Value,
    origin: String,
}

/// Parses the objects of all texts, in order.
pub(crate) fn read_all(texts: &[ManifestText]) -> Result<Vec<Object>, Failure> {
    let mut objects = Vec::new();
    for ManifestText { text, origin } in texts {
        let values = parse(text).map_err(|reason| Failure::usage(format!("{origin}: {reason}")))?;
        objects.extend(values.into_iter().map(|value| Object { value, origin: origin.clone() }));
    }
    Ok(objects)
}

/// Result of the creation of objects.
#[derive(Debug, Default)]
pub(crate) struct CreatedObjects {
    pub(crate) count: usize,
    /// Number of objects that existed already and were left unchanged.
    pub(crate) kept: usize,
    /// Warnings of the server.
    pub(crate) warnings: Vec<String>,
}

/// Creates `objects` on `server`. Namespaces and definitions are created first, since other objects may need them. With
/// `keeps_existing`, an existing object is left unchanged; otherwise it is an error.
pub(crate) fn create(server: &ApiServer, objects: &[Object], keeps_existing: bool) -> Result<CreatedObjects, Failure> {
    let (prerequisites, rest): (Vec<_>, Vec<_>) = objects
        .iter()
        .partition(|object| matches!(text(&object.value, "/kind"), "Namespace" | "CustomResourceDefinition"));
    let mut created = CreatedObjects::default();
    for object in prerequisites.into_iter().chain(rest) {
        match server.create_with_warnings(&object.value) {
            Ok((_, warnings)) => {
                created.count += 1;
                let described = |warning| format!("{}: {warning}", describe_object(object));
                created.warnings.extend(warnings.into_iter().map(described));
            }
            Err(status) if keeps_existing && status.reason == "AlreadyExists" => created.kept += 1,
            Err(status) => return Err(create_failure(object, &status.message)),
        }
    }
    Ok(created)
}

fn create_failure(object: &Object, reason: &str) -> Failure {
    Failure::run(format!("{} cannot be created: {reason}", describe_object(object)))
}

fn describe_object(object: &Object) -> String {
    let (kind, name) = (text(&object.value, "/kind"), text(&object.value, "/metadata/name"));
    format!("{}: {kind} {name:?}", object.origin)
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Parses the objects of `text`. Errors contain the position but never the text, which may contain secrets.
fn parse(text: &str) -> Result<Vec<Value>, String> {
    // The limits of the parser are raised: a manifest may contain a whole cluster. Nodes without aliases are bounded by
    // the length of the text, and aliases have separate limits.
    let limit = text.len().saturating_add(1_000_000);
    let budget =
        budget! { max_documents: limit, max_nodes: limit, max_events: 2 * limit, max_total_scalar_bytes: 2 * limit };
    let read = serde_saphyr::from_multiple_with_options(text, options! { budget: budget });
    let documents: Vec<Value> = read.map_err(|error| {
        let exceeds_limit = matches!(error.without_snippet(), serde_saphyr::Error::Budget { .. });
        let description =
            if exceeds_limit { "it is nested too deeply, or has too many aliases" } else { "neither YAML nor JSON" };
        match error.location() {
            Some(location) => format!("{description}, at line {}, column {}", location.line(), location.column()),
            None => description.to_owned(),
        }
    })?;
    let mut objects = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        flatten(document, &mut objects).map_err(|reason| format!("document {}: {reason}", index + 1))?;
    }
    Ok(objects)
}

fn flatten(mut document: Value, objects: &mut Vec<Value>) -> Result<(), String> {
    // A document without content, such as after a final `---`.
    if document.is_null() {
        return Ok(());
    }
    // `List` and typed lists such as `PodList`. Objects of other kinds may have a field with this name, and a custom
    // kind may end in `List` without being a list.
    if text(&document, "/kind").ends_with("List")
        && let Some(Value::Array(items)) = document.get_mut("items")
    {
        return std::mem::take(items).into_iter().try_for_each(|item| flatten(item, objects));
    }
    let missing = ["/apiVersion", "/kind"].into_iter().find(|key| text(&document, key).is_empty());
    if let Some(key) = missing {
        return Err(format!("{} is missing", &key[1..]));
    }
    if text(&document, "/apiVersion").starts_with("kustomize.config.k8s.io/") {
        return Err("it is a kustomization; load its folder with -k".to_owned());
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
    fn documents_lists_and_json_are_parsed() {
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
    fn objects_with_items_keep_them() {
        let parts = parse("{apiVersion: example.com/v1, kind: Menu, items: [soup]}").unwrap();
        assert_eq!(parts[0]["items"], serde_json::json!(["soup"]));
        let parts = parse("{apiVersion: example.com/v1, kind: PriceList, items: {soup: 3}}").unwrap();
        assert_eq!(parts[0]["items"], serde_json::json!({ "soup": 3 }));
    }

    #[test]
    fn large_manifests_are_parsed() {
        let document = |number| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: pod-{number}}}\n");
        let documents: Vec<_> = (0..3000).map(document).collect();
        assert_eq!(kinds(&documents.join("---\n")).unwrap().len(), 3000);
        let items: Vec<_> =
            (0..40_000).map(|number| format!("- {{apiVersion: v1, kind: Pod, n: {number}}}\n")).collect();
        assert_eq!(kinds(&format!("apiVersion: v1\nkind: List\nitems:\n{}", items.concat())).unwrap().len(), 40_000);
    }

    #[test]
    fn deep_nesting_is_reported() {
        let deep = format!("apiVersion: v1\nkind: Pod\nspec: {}{}", "[".repeat(200), "]".repeat(200));
        let reason = parse(&deep).unwrap_err();
        assert!(reason.starts_with("it is nested too deeply"), "{reason}");
    }

    #[test]
    fn parse_error_hides_text() {
        let broken = parse("kind: Secret\ndata: {password: hunter2").unwrap_err();
        assert!(broken.contains("line "), "{broken}");
        assert!(!broken.contains("hunter2"), "{broken}");
        assert_eq!(parse("kind: Pod\n---\nkind: Pod").unwrap_err(), "document 1: apiVersion is missing");
        let kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
        assert!(parse(kustomization).unwrap_err().ends_with("load its folder with -k"));
    }
}
