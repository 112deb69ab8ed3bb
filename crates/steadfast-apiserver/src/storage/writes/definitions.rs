//! `CustomResourceDefinition`s: defaults, status, validation and warnings.

use serde_json::{Map, Value, json};

use super::kinds::{CLEANUP_FINALIZER, is_definition};
use super::request::WriteTarget;
use crate::field_violation::FieldViolation;
use crate::jsonpath::JsonPath;
use crate::schema::{self, label_error};
use crate::write_scope::WriteScope;

/// Sets the default names and the default conversion of a definition.
pub(super) fn set_defaults(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    // Explicit names stay. Only absent names derive from the kind.
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut name = |key: &str, text: String| {
            if !kind.is_empty() && names.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
                names.insert(key.to_owned(), text.into());
            }
        };
        name("singular", kind.to_lowercase());
        name("listKind", format!("{kind}List"));
    }
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(version) = version.as_object_mut() {
            for key in ["served", "storage"] {
                version.entry(key).or_insert(Value::Bool(false));
            }
        }
    }
}

/// Returns the status of a definition before its acceptance.
pub(super) fn new_status(object: &Value) -> Value {
    json!({
        "conditions": null, "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored_versions(object, &Value::Null),
    })
}

/// Returns the status of a definition whose resource is served.
pub(super) fn established_status(definition: &Value, now: &str) -> Value {
    let names = definition.pointer("/spec/names").cloned().unwrap_or(Value::Null);
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let stored: Vec<Value> = versions
        .filter(|version| version.get("storage").and_then(Value::as_bool).unwrap_or(false))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    json!({
        "acceptedNames": names,
        "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    })
}

/// Returns the versions in which objects have been stored, including the current one.
pub(super) fn stored_versions(object: &Value, status: &Value) -> Value {
    let before = status.get("storedVersions").and_then(Value::as_array).cloned().unwrap_or_default();
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let storage = versions.filter(|version| version["storage"] == true).filter_map(|version| version.get("name"));
    // Stored versions only grow, since objects of an old storage version may remain.
    let mut stored = before;
    for name in storage {
        if !stored.contains(name) {
            stored.push(name.clone());
        }
    }
    stored.into()
}

/// Updates the status of a changed definition: its stored versions and its names.
pub(super) fn update_status(object: &mut Value) {
    let names = object.pointer("/spec/names").cloned().unwrap_or_default();
    let stored = stored_versions(object, object.get("status").unwrap_or(&Value::Null));
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.insert("storedVersions".to_owned(), stored);
        status.insert("acceptedNames".to_owned(), names);
    }
}

/// Marks a deleted definition as terminating. The objects of the definition are removed first.
pub(super) fn mark_terminating(object: &mut Value, now: &str) {
    let mut finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    // A repeated deletion must not add the finalizer again.
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.into());
    }
    object["metadata"]["finalizers"] = finalizers.into();
    let condition = json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending", "lastTransitionTime": now,
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    if let Some(conditions) = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        conditions.push(condition);
    }
}

/// Returns the violations of a definition.
pub(super) fn violations(target: &WriteTarget, name: &str, object: &Value) -> Vec<FieldViolation> {
    if !is_definition(&target.resource.name) || target.write_scope != WriteScope::Main {
        return Vec::new();
    }
    let empty_object = Value::Object(Map::new());
    let spec = object.get("spec").unwrap_or(&empty_object);
    let names = spec.get("names").unwrap_or(&empty_object);
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let group = text(spec, "group");
    let mut causes = Vec::new();
    // The name of a definition is its group and plural, so that two definitions cannot claim the same resource.
    if name != format!("{}.{group}", text(names, "plural")) {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(FieldViolation::invalid("metadata.name", &name.into(), detail));
    }
    if group.is_empty() {
        causes.push(FieldViolation::required("spec.group", ""));
    } else if !group.contains('.') {
        causes.push(FieldViolation::invalid("spec.group", &group.into(), "should be a domain with at least one dot"));
    }
    let scopes = ["Cluster", "Namespaced"].map(str::to_owned);
    match text(spec, "scope") {
        scope if scope.is_empty() => causes.push(FieldViolation::required("spec.scope", "")),
        scope if !scopes.contains(&scope) => {
            causes.push(FieldViolation::not_supported("spec.scope", &scope.into(), &scopes));
        }
        _ => {}
    }
    check_versions(spec, &mut causes);
    check_names(names, &mut causes);
    match spec.pointer("/conversion/strategy").and_then(Value::as_str).unwrap_or("None") {
        "None" => {}
        "Webhook" => {
            if spec.pointer("/conversion/webhook/conversionReviewVersions").is_none() {
                causes.push(FieldViolation::required("spec.conversion.conversionReviewVersions", ""));
            }
            if spec.pointer("/conversion/webhook/clientConfig").is_none() {
                let detail = "required when strategy is set to Webhook";
                causes.push(FieldViolation::required("spec.conversion.webhookClientConfig", detail));
            }
        }
        other => {
            let supported = ["None", "Webhook"].map(str::to_owned);
            causes.push(FieldViolation::not_supported("spec.conversion.strategy", &other.into(), &supported));
        }
    }
    let stored = stored_versions(object, object.get("status").unwrap_or(&empty_object));
    let stored = stored.as_array().map(Vec::as_slice).unwrap_or_default();
    let versions = spec.get("versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // Removing a version with stored objects would make them unreadable.
    for (index, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let name = name.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            causes.push(FieldViolation::invalid(format!("status.storedVersions[{index}]"), &name.into(), &detail));
        }
    }
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        causes.push(FieldViolation::invalid("status.storedVersions", &Value::Null, detail));
    }
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(true)) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                   instead";
        causes.push(FieldViolation::invalid("spec.preserveUnknownFields", &true.into(), detail));
    }
    causes
}

fn check_versions(spec: &Value, causes: &mut Vec<FieldViolation>) {
    let versions = spec.get("versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let all_same = |key: &str| versions.iter().all(|version| version.get(key) == versions[0].get(key));
    // The real server stores properties that all versions share at the top level, and reports violations there.
    let property_path = |index: usize, key: &str, common: &str| {
        if all_same(key) { format!("spec.{common}") } else { format!("spec.versions[{index}].{key}") }
    };
    for (index, version) in versions.iter().enumerate() {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Some(detail) = label_error(name) {
            causes.push(FieldViolation::invalid(format!("spec.versions[{index}].name"), &name.into(), detail));
            if index == 0 {
                causes.push(FieldViolation::invalid("spec.version", &name.into(), detail));
            }
        }
        let Some(schema) = version.pointer("/schema/openAPIV3Schema").filter(|schema| schema.is_object()) else {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(FieldViolation::required(field, ""));
            continue;
        };
        // A schema that all versions share is reported once.
        let is_reported_here = |key: &str| index == 0 || !all_same(key);
        let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
        if is_reported_here("schema")
            && version.pointer("/subresources/status").is_some()
            && !matches!(kind, "" | "object")
        {
            let detail =
                "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            let field = format!("{}.openAPIV3Schema.type", property_path(index, "schema", "validation"));
            causes.push(FieldViolation::invalid(field, &kind.into(), detail));
        }
        if is_reported_here("schema") {
            causes.extend(schema::violations(
                schema,
                &format!("{}.openAPIV3Schema", property_path(index, "schema", "validation")),
            ));
        }
        if let Some(scale) = version.pointer("/subresources/scale").filter(|_| is_reported_here("subresources")) {
            check_scale(scale, &format!("{}.scale", property_path(index, "subresources", "subresources")), causes);
        }
        let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
        for (column_index, column) in columns.enumerate().filter(|_| is_reported_here("additionalPrinterColumns")) {
            let path = property_path(index, "additionalPrinterColumns", "additionalPrinterColumns");
            check_column(column, &format!("{path}[{column_index}]"), causes);
        }
    }
    let names: Vec<&Value> = versions.iter().filter_map(|version| version.get("name")).collect();
    let versions_value = || Value::from(versions.to_vec());
    if (1..names.len()).any(|index| names[..index].contains(&names[index])) {
        causes.push(FieldViolation::invalid("spec.versions", &versions_value(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(FieldViolation::invalid("spec.versions", &versions_value(), detail));
    }
}

fn check_scale(scale: &Value, path: &str, causes: &mut Vec<FieldViolation>) {
    for (key, required_prefix) in
        [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status."), ("labelSelectorPath", "")]
    {
        let field = format!("{path}.{key}");
        match scale.get(key).and_then(Value::as_str).unwrap_or_default() {
            "" if key == "labelSelectorPath" => {}
            "" => causes.push(FieldViolation::required(field, "")),
            text if !text.starts_with('.') => {
                causes.push(FieldViolation::invalid(field, &text.into(), "must be a simple json path starting with ."));
            }
            text if !text.starts_with(required_prefix) => {
                let detail = format!("should be a json path under {}", required_prefix.trim_end_matches('.'));
                causes.push(FieldViolation::invalid(field, &text.into(), &detail));
            }
            _ => {}
        }
    }
}

fn check_column(column: &Value, path: &str, causes: &mut Vec<FieldViolation>) {
    let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("name").is_empty() {
        causes.push(FieldViolation::required(format!("{path}.name"), ""));
    }
    let kinds = ["boolean", "date", "integer", "number", "string"];
    match text("type") {
        "" => {
            let detail = format!("must be one of {}", kinds.join(","));
            causes.push(FieldViolation::required(format!("{path}.type"), &detail));
        }
        kind if !kinds.contains(&kind) => {
            let detail = format!("must be one of {}", kinds.join(","));
            causes.push(FieldViolation::invalid(format!("{path}.type"), &kind.into(), &detail));
        }
        _ => {}
    }
    match text("jsonPath") {
        "" => causes.push(FieldViolation::required(format!("{path}.JSONPath"), "")),
        text if !text.starts_with('.') => {
            let detail = "must be a simple json path starting with .";
            causes.push(FieldViolation::invalid(format!("{path}.JSONPath"), &text.into(), detail));
        }
        _ => {}
    }
}

fn check_names(names: &Value, causes: &mut Vec<FieldViolation>) {
    let text = |key: &str| names.get(key).and_then(Value::as_str).unwrap_or_default();
    for key in ["plural", "singular", "kind", "listKind"] {
        let field = format!("spec.names.{key}");
        let name = text(key);
        // Kinds are checked in lower case, since they may be written in camel case.
        let is_kind = key.ends_with("ind");
        if name.is_empty() {
            causes.push(FieldViolation::required(field, ""));
        } else if let Some(detail) = label_error(&if is_kind { name.to_lowercase() } else { name.to_owned() }) {
            let detail = if is_kind {
                format!("may have mixed case, but should otherwise match: {detail}")
            } else {
                detail.to_owned()
            };
            causes.push(FieldViolation::invalid(field, &name.into(), &detail));
        }
    }
    for key in ["shortNames", "categories"] {
        let list = names.get(key).and_then(Value::as_array).into_iter().flatten();
        for (index, name) in list.filter_map(Value::as_str).enumerate() {
            if let Some(detail) = label_error(name) {
                causes.push(FieldViolation::invalid(format!("spec.names.{key}[{index}]"), &name.into(), detail));
            }
        }
    }
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let detail = "kind and listKind may not be the same";
        causes.push(FieldViolation::invalid("spec.names.listKind", &text("listKind").into(), detail));
    }
}

/// Warns of a conversion by a webhook, and of rules that are not evaluated. Also warns of a column with an invalid
/// path: a real server accepts the definition too, and its tables end before the column.
pub(super) fn warn(target: &WriteTarget, definition: &Value) {
    if !is_definition(&target.resource.name) {
        return;
    }
    if converts_by_webhook(definition) {
        let detail = "this server calls no webhooks: versions of these objects differ in their apiVersion alone";
        target.request.warnings.add([detail.to_owned()]);
    }
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    for (version_index, version) in versions.enumerate() {
        let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
        let paths = columns.map(|column| column.get("jsonPath").and_then(Value::as_str).unwrap_or_default());
        let invalid_path = paths.enumerate().find_map(|(index, path)| Some((index, JsonPath::parse(path).err()?)));
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            let schema_path = format!("spec.versions[{version_index}].schema.openAPIV3Schema");
            let unsupported = schema::unsupported(schema, &schema_path);
            target.request.warnings.add(unsupported.into_iter().map(|(path, names)| {
                format!(
                    "{path}: this server does not evaluate the rule, which calls functions without support: {names}"
                )
            }));
        }
        target.request.warnings.add(invalid_path.map(|(index, error)| {
            format!(
                "spec.versions[{version_index}].additionalPrinterColumns[{index}].jsonPath: {error}; tables end before \
                 this column"
            )
        }));
    }
}

fn converts_by_webhook(definition: &Value) -> bool {
    definition.pointer("/spec/conversion/strategy").is_some_and(|strategy| strategy == "Webhook")
}
