//! Published schema, compared with the parser.

use std::path::Path;

use serde_json::{Value, json};
use steadfast_notify::Plan;

use crate::configuration::VALID;

fn examples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/notify");
    let read = |folder| std::fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("an example").path());
    let files = read(folder.join("cookbook"))
        .chain(read(folder))
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml" || ending == "yaml"));
    files.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).expect("a UTF-8 file"))).collect()
}

#[test]
fn examples_match_the_published_schema() {
    let schema = steadfast_notify::config::schema();
    let examples = examples();
    assert!(examples.len() >= 2, "{examples:?}");
    for (file, text) in examples {
        let plan = Plan::read(&file, &text).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(!plan.rules.is_empty());
        let value: Value = if Path::new(&file).extension().is_some_and(|ending| ending == "toml") {
            toml::from_str(&text).expect("valid TOML")
        } else {
            serde_saphyr::from_str(&text).expect("valid YAML")
        };
        assert_eq!(schema_violations(&schema, &schema, &value), Vec::<String>::new(), "{file}");
    }
}

#[test]
fn schema_rejects_what_the_parser_rejects() {
    let schema = steadfast_notify::config::schema();
    let valid_config: Value = toml::from_str(VALID).expect("valid TOML");
    assert_eq!(schema_violations(&schema, &schema, &valid_config), Vec::<String>::new());
    for (path, value) in [
        ("/rules/0/name", json!(7)),
        ("/rules/0/resources", json!("pods")),
        ("/rules/0/initial", json!("yes")),
        ("/sinks/log/stdout", json!({"x": 1})),
        ("/sinks/log", json!({"webhook": {"url": "x", "hmac": "hunter2"}})),
        ("/sinks/log", json!({"exec": {"command": []}})),
        ("/sinks/log", json!({"stdout": {}, "concurrency": 0})),
        ("/rules/0/events", json!(["Gone"])),
    ] {
        let mut invalid = valid_config.clone();
        invalid["rules"][0]["initial"] = json!(false);
        invalid["rules"][0]["events"] = json!(["Added"]);
        *invalid.pointer_mut(path).expect("an existing value") = value;
        assert!(!schema_violations(&schema, &schema, &invalid).is_empty(), "{path}");
    }
}

/// Returns mismatches of `value`, for the used subset of JSON Schema. Panics on a keyword outside of this subset.
fn schema_violations(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let Some(schema) = schema.as_object() else {
        return if *schema == json!(true) { vec![] } else { vec![format!("{value} is not allowed")] };
    };
    let mut violations = Vec::new();
    let mut require = |is_satisfied: bool, description: String| {
        if !is_satisfied {
            violations.push(description);
        }
    };
    for (keyword, constraint) in schema {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => {}
            "$ref" => {
                let at = constraint.as_str().expect("a text").strip_prefix('#').expect("within the schema");
                let inner = schema_violations(root, root.pointer(at).expect("an existing definition"), value);
                require(inner.is_empty(), inner.join("; "));
            }
            "type" => {
                let has_type = |name: &Value| match name.as_str().expect("a text") {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    other => panic!("a type {other}"),
                };
                require(
                    constraint.as_array().map_or_else(|| has_type(constraint), |all| all.iter().any(has_type)),
                    format!("{value} is no {constraint}"),
                );
            }
            "const" => require(value == constraint, format!("{value} is not {constraint}")),
            "enum" => require(
                constraint.as_array().expect("a list").contains(value),
                format!("{value} is none of {constraint}"),
            ),
            "minimum" => {
                require(value.as_f64() >= constraint.as_f64() || !value.is_number(), format!("{value} < {constraint}"));
            }
            "maximum" => {
                require(value.as_f64() <= constraint.as_f64() || !value.is_number(), format!("{value} > {constraint}"));
            }
            "minItems" => {
                let items = value.as_array().map(|items| items.len() as u64);
                require(items.is_none() || items >= constraint.as_u64(), format!("{value} is too short"));
            }
            "anyOf" | "oneOf" => {
                let matching_count = constraint
                    .as_array()
                    .expect("a list")
                    .iter()
                    .filter(|one| schema_violations(root, one, value).is_empty());
                let matching_count = matching_count.count();
                require(
                    if keyword == "anyOf" { matching_count > 0 } else { matching_count == 1 },
                    format!("{value} fits {matching_count} of {constraint}"),
                );
            }
            "required" => {
                for name in constraint.as_array().expect("a list") {
                    require(
                        !value.is_object() || value.get(name.as_str().expect("a text")).is_some(),
                        format!("no {name}"),
                    );
                }
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    let inner = schema_violations(root, constraint, item);
                    require(inner.is_empty(), inner.join("; "));
                }
            }
            "properties" => {
                for (name, constraint) in constraint.as_object().expect("a map") {
                    let inner =
                        value.get(name).map(|value| schema_violations(root, constraint, value)).unwrap_or_default();
                    require(inner.is_empty(), inner.join("; "));
                }
            }
            "additionalProperties" => {
                let known_properties = schema.get("properties").and_then(Value::as_object);
                for (name, value) in value.as_object().into_iter().flatten() {
                    if known_properties.is_none_or(|known_properties| !known_properties.contains_key(name)) {
                        let inner = schema_violations(root, constraint, value);
                        require(inner.is_empty(), format!("{name}: {}", inner.join("; ")));
                    }
                }
            }
            other => panic!("the schema has the word {other}, which this test does not know"),
        }
    }
    violations
}
