//! Validation of schemas: a schema must be structural and consistent.

use serde_json::{Value, json};

use super::parse::SchemaError;
use super::{Schema, rules};
use crate::field_violation::FieldViolation;

#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaLevel {
    Root,
    Item,
    Field,
}

/// Returns the violations of a schema at a path.
pub(crate) fn violations(schema: &Value, path: &str) -> Vec<FieldViolation> {
    let bad_pattern = match Schema::parse(schema) {
        Ok(_) => None,
        Err(SchemaError::Pattern { pattern, detail }) => Some((pattern, detail)),
        // A schema beyond the limits is not checked further.
        Err(error) => return vec![FieldViolation::invalid(path, &"".into(), &error.to_string())],
    };
    let mut structural = Vec::new();
    if let Some((pattern, detail)) = &bad_pattern {
        report_pattern(schema, path, pattern, detail, &mut structural);
    }
    check_invariants(schema, SchemaLevel::Root, path, &mut structural);
    structural.sort_by(|one, other| (&one.field, &one.message).cmp(&(&other.field, &other.message)));
    // Defaults are only checked if the schema itself is valid.
    if structural.is_empty() {
        check_defaults(schema, path, &mut structural);
    }
    check_consistency(schema, path, &mut structural);
    rules::violations(schema, path, &mut structural);
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        structural
            .insert(0, FieldViolation::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    structural
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_true(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn fields<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn indexed_items<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn schema_at<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|value| value.is_object())
}

fn check_invariants(schema: &Value, level: SchemaLevel, path: &str, causes: &mut Vec<FieldViolation>) {
    let kind = text(schema, "type");
    let at = |key: &str| format!("{path}.{key}");
    match schema_at(schema, "items") {
        Some(items) => check_invariants(items, SchemaLevel::Item, &at("items"), causes),
        None if kind == "array" => causes.push(FieldViolation::required(at("items"), "must be specified")),
        None => {}
    }
    for (name, property) in fields(schema, "properties") {
        // Metadata has its own checks.
        if level != SchemaLevel::Root || name != "metadata" {
            check_invariants(property, SchemaLevel::Field, &format!("{path}.properties[{name}]"), causes);
        }
    }
    if schema.get("additionalProperties").is_some() {
        if level == SchemaLevel::Root {
            causes.push(FieldViolation::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if let Some(additional) = schema_at(schema, "additionalProperties") {
            check_invariants(additional, SchemaLevel::Field, &at("additionalProperties"), causes);
        }
    }
    let (is_embedded, preserves_unknown) =
        (is_true(schema, "x-kubernetes-embedded-resource"), is_true(schema, "x-kubernetes-preserve-unknown-fields"));
    let is_int_or_string = is_true(schema, "x-kubernetes-int-or-string");
    if is_int_or_string && preserves_unknown {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        causes.push(FieldViolation::invalid(at("x-kubernetes-preserve-unknown-fields"), &true.into(), detail));
    }
    if is_int_or_string && is_embedded {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        causes.push(FieldViolation::invalid(at("x-kubernetes-embedded-resource"), &true.into(), detail));
    }
    check_alternatives(schema, path, causes);
    if is_embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() {
            FieldViolation::required(at("type"), detail)
        } else {
            FieldViolation::invalid(at("type"), &kind.into(), detail)
        });
    } else if kind.is_empty() && !is_int_or_string && !preserves_unknown {
        let detail = match level {
            SchemaLevel::Root => "must not be empty at the root",
            SchemaLevel::Item => "must not be empty for specified array items",
            SchemaLevel::Field => "must not be empty for specified object fields",
        };
        causes.push(FieldViolation::required(at("type"), detail));
    }
    if level == SchemaLevel::Root && !kind.is_empty() && kind != "object" {
        causes.push(FieldViolation::invalid(at("type"), &kind.into(), "must be object at the root"));
    }
    if level == SchemaLevel::Root
        && let Some(metadata) = schema.pointer("/properties/metadata")
    {
        check_metadata(metadata, &format!("{path}.properties[metadata]"), causes);
    }
    if is_embedded && !preserves_unknown && fields(schema, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        causes.push(FieldViolation::required(at("properties"), detail));
    }
}

/// Checks the metadata at the root. Its schema may restrict only `name` and `generateName`.
fn check_metadata(metadata: &Value, path: &str, causes: &mut Vec<FieldViolation>) {
    let kind = text(metadata, "type");
    if kind != "object" {
        causes.push(FieldViolation::invalid(format!("{path}.type"), &kind.into(), "must be object"));
    }
    let has_only_names =
        fields(metadata, "properties").all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let keys = metadata.as_object().into_iter().flatten();
    let other = keys.filter(|(key, _)| !matches!(key.as_str(), "type" | "properties" | "default")).count();
    if !has_only_names || other > 0 {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(FieldViolation::forbidden(path, detail));
    }
}

/// Reports the location of an invalid pattern.
fn report_pattern(schema: &Value, path: &str, pattern: &str, detail: &str, causes: &mut Vec<FieldViolation>) {
    if text(schema, "pattern") == pattern {
        let detail = format!("must be a valid regular expression, but isn't: {detail}");
        causes.push(FieldViolation::invalid(format!("{path}.pattern"), &pattern.into(), &detail));
    }
    for (name, property) in fields(schema, "properties") {
        report_pattern(property, &format!("{path}.properties[{name}]"), pattern, detail, causes);
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = schema_at(schema, key) {
            report_pattern(inner, &format!("{path}.{key}"), pattern, detail, causes);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in indexed_items(schema, key) {
            report_pattern(inner, &format!("{path}.{key}[{index}]"), pattern, detail, causes);
        }
    }
}

/// Checks the alternatives of a schema, which must not contain structure.
fn check_alternatives(schema: &Value, path: &str, causes: &mut Vec<FieldViolation>) {
    let both = json!([{"type": "integer"}, {"type": "string"}]);
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && schema.get(key) == Some(&both) && is_true(schema, "x-kubernetes-int-or-string") {
            continue;
        }
        for (index, inner) in indexed_items(schema, key) {
            let first = key == "allOf" && index == 0 && inner.get("anyOf") == Some(&both);
            check_nested(inner, first, &format!("{path}.{key}[{index}]"), causes);
        }
    }
    if let Some(inner) = schema_at(schema, "not") {
        check_nested(inner, false, &format!("{path}.not"), causes);
    }
}

fn check_nested(schema: &Value, both: bool, path: &str, causes: &mut Vec<FieldViolation>) {
    if !both {
        check_alternatives(schema, path, causes);
    }
    if let Some(items) = schema_at(schema, "items") {
        check_nested(items, false, &format!("{path}.items"), causes);
    }
    for (name, property) in fields(schema, "properties") {
        check_nested(property, false, &format!("{path}.properties[{name}]"), causes);
    }
    for (key, detail) in [("type", "must be empty"), ("title", "must be empty"), ("description", "must be empty")] {
        if !text(schema, key).is_empty() {
            causes.push(FieldViolation::forbidden(format!("{path}.{key}"), &format!("{detail} to be structural")));
        }
    }
    for key in ["additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if schema.get(key).is_some() {
            causes.push(FieldViolation::forbidden(format!("{path}.{key}"), "must be undefined to be structural"));
        }
    }
    let flags = [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ];
    for key in flags.into_iter().filter(|key| is_true(schema, key)) {
        causes.push(FieldViolation::forbidden(format!("{path}.{key}"), "must be false to be structural"));
    }
    if indexed_items(schema, "x-kubernetes-validations").next().is_some() {
        causes.push(FieldViolation::forbidden(
            format!("{path}.x-kubernetes-validations"),
            "must be empty to be structural",
        ));
    }
    if schema.pointer("/properties/metadata").is_some() {
        let detail = "must not be specified in a nested context";
        causes.push(FieldViolation::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

/// Checks that a default is valid in its own schema.
fn check_defaults(schema: &Value, path: &str, causes: &mut Vec<FieldViolation>) {
    if let (Some(default), Ok(parsed)) = (schema.get("default").filter(|value| !value.is_null()), Schema::parse(schema))
    {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        // The server prunes stored objects, so a default must survive pruning.
        if parsed.prune_value(&mut pruned).is_empty() {
            parsed.fill_defaults(&mut pruned);
            causes.extend(parsed.validate(&at, &pruned, None));
        } else {
            causes.push(FieldViolation::invalid(&at, default, "must not have unknown fields"));
        }
    }
    for (name, property) in fields(schema, "properties") {
        check_defaults(property, &format!("{path}.properties[{name}]"), causes);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema_at(schema, key) {
            check_defaults(inner, &format!("{path}.{key}"), causes);
        }
    }
}

fn check_consistency(schema: &Value, path: &str, causes: &mut Vec<FieldViolation>) {
    let at = |key: &str| format!("{path}.{key}");
    let kind = text(schema, "type");
    let kinds = ["array", "boolean", "integer", "number", "object", "string"];
    if !kind.is_empty() && !kinds.contains(&kind) {
        causes.push(FieldViolation::not_supported(at("type"), &kind.into(), &kinds.map(str::to_owned)));
    }
    if !text(schema, "$ref").is_empty() {
        causes.push(FieldViolation::forbidden(at("$ref"), "$ref is not supported"));
    }
    if is_true(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(FieldViolation::forbidden(at("uniqueItems"), detail));
    }
    let additional = schema.get("additionalProperties");
    if additional.is_some_and(|value| *value != Value::Bool(true)) && fields(schema, "properties").next().is_some() {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(FieldViolation::forbidden(at("additionalProperties"), detail));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let detail = "must be true or undefined";
        causes.push(FieldViolation::invalid(at("x-kubernetes-preserve-unknown-fields"), &false.into(), detail));
    }
    for (key, required_type, kinds) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let Some(declared) = schema.get(key).and_then(Value::as_str) else { continue };
        let detail = format!("must be {required_type} if {key} is specified");
        if kind.is_empty() {
            causes.push(FieldViolation::required(at("type"), &detail));
        } else if kind != required_type {
            causes.push(FieldViolation::invalid(at("type"), &kind.into(), &detail));
        }
        if !kinds.contains(&declared) {
            let kinds: Vec<String> = kinds.iter().map(|&kind| kind.to_owned()).collect();
            causes.push(FieldViolation::not_supported(at(key), &declared.into(), &kinds));
        }
    }
    check_lists(schema, path, causes);
    for (name, property) in fields(schema, "properties") {
        check_consistency(property, &format!("{path}.properties[{name}]"), causes);
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = schema_at(schema, key) {
            check_consistency(inner, &at(key), causes);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in indexed_items(schema, key) {
            check_consistency(inner, &format!("{path}.{key}[{index}]"), causes);
        }
    }
}

fn check_lists(schema: &Value, path: &str, causes: &mut Vec<FieldViolation>) {
    let at = |key: &str| format!("{path}.{key}");
    let keys: Vec<&str> =
        indexed_items(schema, "x-kubernetes-list-map-keys").filter_map(|(_, key)| key.as_str()).collect();
    let list_type = text(schema, "x-kubernetes-list-type");
    let null = Value::Null;
    let items = schema_at(schema, "items").unwrap_or(&null);
    if list_type == "set" && text(schema, "type") == "array" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (key, is_granular) = match text(items, "type") {
            "array" => ("x-kubernetes-list-type", !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic")),
            "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") != "atomic"),
            _ => ("", false),
        };
        if is_granular {
            let value = items.get("x-kubernetes-list-type").unwrap_or(&null);
            causes.push(FieldViolation::invalid(format!("{path}.items.{key}"), value, detail));
        }
    }
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(match list_type {
            "" => FieldViolation::required(at("x-kubernetes-list-type"), detail),
            list_type => FieldViolation::invalid(at("x-kubernetes-list-type"), &list_type.into(), detail),
        });
    }
    if list_type != "map" {
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        causes.push(FieldViolation::required(at("x-kubernetes-list-map-keys"), detail));
    }
    if items.is_null() {
        causes.push(FieldViolation::required(at("items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    }
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(FieldViolation::invalid(at("items.type"), &text(items, "type").into(), detail));
        return;
    }
    let required: Vec<&str> = indexed_items(items, "required").filter_map(|(_, name)| name.as_str()).collect();
    for key in &keys {
        let property = items.get("properties").and_then(|properties| properties.get(*key));
        let Some(property) = property else {
            let detail = "entries must all be names of item properties";
            causes.push(FieldViolation::invalid(at("x-kubernetes-list-map-keys"), &json!(keys), detail));
            continue;
        };
        if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            causes.push(FieldViolation::invalid(
                at(&format!("items.properties[{key}].type")),
                &"object".into(),
                detail,
            ));
        }
        if is_true(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(FieldViolation::forbidden(at(&format!("items.properties[{key}].nullable")), detail));
        }
        if property.get("default").is_none() && !required.contains(key) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                       property";
            causes.push(FieldViolation::required(at(&format!("items.properties[{key}].default")), detail));
        }
    }
}

/// Returns the violation if a text is not a DNS label, as names of kinds and versions must be.
pub(crate) fn label_error(text: &str) -> Option<&'static str> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = text.len() <= 63
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && text.bytes().all(inner)
        && !text.ends_with('-');
    (!is_label).then_some(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
         character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
         '[a-z]([-a-z0-9]*[a-z0-9])?')",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::violations;

    fn messages(spec: &Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"a": spec}});
        violations(&schema, "s").into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn schema_needs_a_type_everywhere() {
        assert_eq!(
            messages(&json!({})),
            ["s.properties[a].type: Required value: must not be empty for specified object fields"]
        );
        assert_eq!(messages(&json!({"type": "array"})), ["s.properties[a].items: Required value: must be specified"]);
        assert_eq!(
            messages(&json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
            Vec::<String>::new()
        );
    }

    #[test]
    fn alternatives_contain_no_structure() {
        assert_eq!(
            messages(&json!({"type": "string", "oneOf": [{"type": "string", "default": "x"}]})),
            [
                "s.properties[a].oneOf[0].default: Forbidden: must be undefined to be structural",
                "s.properties[a].oneOf[0].type: Forbidden: must be empty to be structural",
            ]
        );
    }

    #[test]
    fn alternatives_have_no_rules() {
        for key in ["allOf", "anyOf", "oneOf"] {
            let nested = json!([{"x-kubernetes-validations": [{"rule": "self == 'x'"}]}]);
            let mut schema = json!({"type": "string"});
            schema[key] = nested;
            let expected =
                format!("s.properties[a].{key}[0].x-kubernetes-validations: Forbidden: must be empty to be structural");
            assert_eq!(messages(&schema), [expected]);
        }
    }

    #[test]
    fn defaults_must_be_valid() {
        assert_eq!(
            messages(&json!({"type": "integer", "default": "x"})),
            ["s.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\""]
        );
        assert_eq!(
            messages(&json!({"type": "object", "default": {"q": 1}})),
            ["s.properties[a].default: Invalid value: {\"q\":1}: must not have unknown fields"]
        );
    }

    #[test]
    fn map_keys_are_always_present() {
        let item_schema = json!({"type": "object", "properties": {"k": {"type": "string"}}});
        assert_eq!(
            messages(&json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": item_schema})),
            ["s.properties[a].items.properties[k].default: Required value: this property is in \
              x-kubernetes-list-map-keys, so it must have a default or be a required property"]
        );
    }
}
