//! Validation of schemas: a schema must be structural and consistent.

use serde_json::{Value, json};

use super::parse::SchemaError;
use super::{Schema, rules};
use crate::cause::Cause;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns the violations of a schema at a path.
pub(crate) fn violations(schema: &Value, path: &str) -> Vec<Cause> {
    let bad_pattern = match Schema::parse(schema) {
        Ok(_) => None,
        Err(SchemaError::Pattern { pattern, detail }) => Some((pattern, detail)),
        // A schema beyond the limits is not checked further.
        Err(error) => return vec![Cause::invalid(path, &"".into(), &error.to_string())],
    };
    let mut structural = Vec::new();
    if let Some((pattern, detail)) = &bad_pattern {
        patterns(schema, path, pattern, detail, &mut structural);
    }
    invariants(schema, Level::Root, path, &mut structural);
    structural.sort_by(|one, other| (&one.field, &one.message).cmp(&(&other.field, &other.message)));
    // Defaults are only checked if the schema itself is valid.
    if structural.is_empty() {
        defaults(schema, path, &mut structural);
    }
    consistency(schema, path, &mut structural);
    rules::violations(schema, path, &mut structural);
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        structural.insert(0, Cause::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    structural
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn fields<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn list<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    schema.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}

fn schema_at<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    schema.get(key).filter(|value| value.is_object())
}

fn invariants(schema: &Value, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(schema, "type");
    let at = |key: &str| format!("{path}.{key}");
    match schema_at(schema, "items") {
        Some(items) => invariants(items, Level::Item, &at("items"), causes),
        None if kind == "array" => causes.push(Cause::required(at("items"), "must be specified")),
        None => {}
    }
    for (name, property) in fields(schema, "properties") {
        // Metadata has its own checks.
        if level != Level::Root || name != "metadata" {
            invariants(property, Level::Field, &format!("{path}.properties[{name}]"), causes);
        }
    }
    if schema.get("additionalProperties").is_some() {
        if level == Level::Root {
            causes.push(Cause::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if let Some(additional) = schema_at(schema, "additionalProperties") {
            invariants(additional, Level::Field, &at("additionalProperties"), causes);
        }
    }
    let (embedded, preserves) =
        (is(schema, "x-kubernetes-embedded-resource"), is(schema, "x-kubernetes-preserve-unknown-fields"));
    let either = is(schema, "x-kubernetes-int-or-string");
    if either && preserves {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        causes.push(Cause::invalid(at("x-kubernetes-preserve-unknown-fields"), &true.into(), detail));
    }
    if either && embedded {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        causes.push(Cause::invalid(at("x-kubernetes-embedded-resource"), &true.into(), detail));
    }
    validations(schema, path, causes);
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() {
            Cause::required(at("type"), detail)
        } else {
            Cause::invalid(at("type"), &kind.into(), detail)
        });
    } else if kind.is_empty() && !either && !preserves {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(Cause::required(at("type"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        causes.push(Cause::invalid(at("type"), &kind.into(), "must be object at the root"));
    }
    if level == Level::Root
        && let Some(metadata) = schema.pointer("/properties/metadata")
    {
        about_metadata(metadata, &format!("{path}.properties[metadata]"), causes);
    }
    if embedded && !preserves && fields(schema, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(at("properties"), detail));
    }
}

/// Checks metadata. At the root, only the name may be restricted.
fn about_metadata(metadata: &Value, path: &str, causes: &mut Vec<Cause>) {
    let kind = text(metadata, "type");
    if kind != "object" {
        causes.push(Cause::invalid(format!("{path}.type"), &kind.into(), "must be object"));
    }
    let of_names = fields(metadata, "properties").all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let keys = metadata.as_object().into_iter().flatten();
    let other = keys.filter(|(key, _)| !matches!(key.as_str(), "type" | "properties" | "default")).count();
    if !of_names || other > 0 {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(path, detail));
    }
}

/// Reports the location of an invalid pattern.
fn patterns(schema: &Value, path: &str, pattern: &str, detail: &str, causes: &mut Vec<Cause>) {
    if text(schema, "pattern") == pattern {
        let detail = format!("must be a valid regular expression, but isn't: {detail}");
        causes.push(Cause::invalid(format!("{path}.pattern"), &pattern.into(), &detail));
    }
    for (name, property) in fields(schema, "properties") {
        patterns(property, &format!("{path}.properties[{name}]"), pattern, detail, causes);
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = schema_at(schema, key) {
            patterns(inner, &format!("{path}.{key}"), pattern, detail, causes);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in list(schema, key) {
            patterns(inner, &format!("{path}.{key}[{index}]"), pattern, detail, causes);
        }
    }
}

/// Checks the alternatives of a schema, which must not contain structure.
fn validations(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let both = json!([{"type": "integer"}, {"type": "string"}]);
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && schema.get(key) == Some(&both) && is(schema, "x-kubernetes-int-or-string") {
            continue;
        }
        for (index, inner) in list(schema, key) {
            let first = key == "allOf" && index == 0 && inner.get("anyOf") == Some(&both);
            nested(inner, first, &format!("{path}.{key}[{index}]"), causes);
        }
    }
    if let Some(inner) = schema_at(schema, "not") {
        nested(inner, false, &format!("{path}.not"), causes);
    }
}

fn nested(schema: &Value, both: bool, path: &str, causes: &mut Vec<Cause>) {
    if !both {
        validations(schema, path, causes);
    }
    if let Some(items) = schema_at(schema, "items") {
        nested(items, false, &format!("{path}.items"), causes);
    }
    for (name, property) in fields(schema, "properties") {
        nested(property, false, &format!("{path}.properties[{name}]"), causes);
    }
    for (key, detail) in [("type", "must be empty"), ("title", "must be empty"), ("description", "must be empty")] {
        if !text(schema, key).is_empty() {
            causes.push(Cause::forbidden(format!("{path}.{key}"), &format!("{detail} to be structural")));
        }
    }
    for key in ["additionalProperties", "default", "x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if schema.get(key).is_some() {
            causes.push(Cause::forbidden(format!("{path}.{key}"), "must be undefined to be structural"));
        }
    }
    let flags = [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ];
    for key in flags.into_iter().filter(|key| is(schema, key)) {
        causes.push(Cause::forbidden(format!("{path}.{key}"), "must be false to be structural"));
    }
    if list(schema, "x-kubernetes-validations").next().is_some() {
        causes.push(Cause::forbidden(format!("{path}.x-kubernetes-validations"), "must be empty to be structural"));
    }
    if schema.pointer("/properties/metadata").is_some() {
        let detail = "must not be specified in a nested context";
        causes.push(Cause::forbidden(format!("{path}.properties[metadata]"), detail));
    }
}

/// Checks that a default is valid in its own schema.
fn defaults(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if let (Some(default), Ok(parsed)) = (schema.get("default").filter(|value| !value.is_null()), Schema::parse(schema))
    {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        // The server prunes stored objects, so a default must survive pruning.
        if parsed.prune_value(&mut pruned).is_empty() {
            parsed.fill_in(&mut pruned);
            causes.extend(parsed.validate(&at, &pruned, None));
        } else {
            causes.push(Cause::invalid(&at, default, "must not have unknown fields"));
        }
    }
    for (name, property) in fields(schema, "properties") {
        defaults(property, &format!("{path}.properties[{name}]"), causes);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema_at(schema, key) {
            defaults(inner, &format!("{path}.{key}"), causes);
        }
    }
}

fn consistency(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = |key: &str| format!("{path}.{key}");
    let kind = text(schema, "type");
    let kinds = ["array", "boolean", "integer", "number", "object", "string"];
    if !kind.is_empty() && !kinds.contains(&kind) {
        causes.push(Cause::not_supported(at("type"), &kind.into(), &kinds.map(str::to_owned)));
    }
    if !text(schema, "$ref").is_empty() {
        causes.push(Cause::forbidden(at("$ref"), "$ref is not supported"));
    }
    if is(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(at("uniqueItems"), detail));
    }
    let additional = schema.get("additionalProperties");
    if additional.is_some_and(|value| *value != Value::Bool(true)) && fields(schema, "properties").next().is_some() {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(at("additionalProperties"), detail));
    }
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let detail = "must be true or undefined";
        causes.push(Cause::invalid(at("x-kubernetes-preserve-unknown-fields"), &false.into(), detail));
    }
    for (key, wanted, kinds) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let Some(merging) = schema.get(key).and_then(Value::as_str) else { continue };
        let detail = format!("must be {wanted} if {key} is specified");
        if kind.is_empty() {
            causes.push(Cause::required(at("type"), &detail));
        } else if kind != wanted {
            causes.push(Cause::invalid(at("type"), &kind.into(), &detail));
        }
        if !kinds.contains(&merging) {
            let kinds: Vec<String> = kinds.iter().map(|&kind| kind.to_owned()).collect();
            causes.push(Cause::not_supported(at(key), &merging.into(), &kinds));
        }
    }
    lists(schema, path, causes);
    for (name, property) in fields(schema, "properties") {
        consistency(property, &format!("{path}.properties[{name}]"), causes);
    }
    for key in ["items", "additionalProperties", "not"] {
        if let Some(inner) = schema_at(schema, key) {
            consistency(inner, &at(key), causes);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in list(schema, key) {
            consistency(inner, &format!("{path}.{key}[{index}]"), causes);
        }
    }
}

fn lists(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let at = |key: &str| format!("{path}.{key}");
    let keys: Vec<&str> = list(schema, "x-kubernetes-list-map-keys").filter_map(|(_, key)| key.as_str()).collect();
    let of = text(schema, "x-kubernetes-list-type");
    let nothing = Value::Null;
    let items = schema_at(schema, "items").unwrap_or(&nothing);
    if of == "set" && text(schema, "type") == "array" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (key, granular) = match text(items, "type") {
            "array" => ("x-kubernetes-list-type", !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic")),
            "object" => ("x-kubernetes-map-type", text(items, "x-kubernetes-map-type") != "atomic"),
            _ => ("", false),
        };
        if granular {
            let value = items.get("x-kubernetes-list-type").unwrap_or(&nothing);
            causes.push(Cause::invalid(format!("{path}.items.{key}"), value, detail));
        }
    }
    if !keys.is_empty() && of != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(match of {
            "" => Cause::required(at("x-kubernetes-list-type"), detail),
            of => Cause::invalid(at("x-kubernetes-list-type"), &of.into(), detail),
        });
    }
    if of != "map" {
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(at("x-kubernetes-list-map-keys"), detail));
    }
    if items.is_null() {
        causes.push(Cause::required(at("items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    }
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid(at("items.type"), &text(items, "type").into(), detail));
        return;
    }
    let required: Vec<&str> = list(items, "required").filter_map(|(_, name)| name.as_str()).collect();
    for key in &keys {
        let property = items.get("properties").and_then(|properties| properties.get(*key));
        let Some(property) = property else {
            let detail = "entries must all be names of item properties";
            causes.push(Cause::invalid(at("x-kubernetes-list-map-keys"), &json!(keys), detail));
            continue;
        };
        if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            causes.push(Cause::invalid(at(&format!("items.properties[{key}].type")), &"object".into(), detail));
        }
        if is(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(at(&format!("items.properties[{key}].nullable")), detail));
        }
        if property.get("default").is_none() && !required.contains(key) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                       property";
            causes.push(Cause::required(at(&format!("items.properties[{key}].default")), detail));
        }
    }
}

/// Returns the violation if a text is not a DNS label, as names of kinds and versions must be.
pub(crate) fn label_error(text: &str) -> Option<&'static str> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = text.len() <= 63
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && text.bytes().all(inner)
        && !text.ends_with('-');
    (!fits).then_some(
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
        let of = json!({"type": "object", "properties": {"k": {"type": "string"}}});
        assert_eq!(
            messages(
                &json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": of})
            ),
            ["s.properties[a].items.properties[k].default: Required value: this property is in \
              x-kubernetes-list-map-keys, so it must have a default or be a required property"]
        );
    }
}
