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
        assert_eq!(misfits(&schema, &schema, &value), Vec::<String>::new(), "{file}");
    }
}

#[test]
fn schema_rejects_what_the_parser_rejects() {
    let schema = steadfast_notify::config::schema();
    let good: Value = toml::from_str(VALID).expect("valid TOML");
    assert_eq!(misfits(&schema, &schema, &good), Vec::<String>::new());
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
        let mut bad = good.clone();
        bad["rules"][0]["initial"] = json!(false);
        bad["rules"][0]["events"] = json!(["Added"]);
        *bad.pointer_mut(path).expect("an existing file") = value;
        assert!(!misfits(&schema, &schema, &bad).is_empty(), "{path}");
    }
}

/// Returns mismatches of `value`, for the used subset of JSON Schema. Unknown keywords are mismatches.
fn misfits(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let Some(schema) = schema.as_object() else {
        return if *schema == json!(true) { vec![] } else { vec![format!("{value} is not allowed")] };
    };
    let mut found = Vec::new();
    let mut must = |fits: bool, what: String| {
        if !fits {
            found.push(what);
        }
    };
    for (word, wants) in schema {
        match word.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => {}
            "$ref" => {
                let at = wants.as_str().expect("a text").strip_prefix('#').expect("within the schema");
                let inner = misfits(root, root.pointer(at).expect("an existing file"), value);
                must(inner.is_empty(), inner.join("; "));
            }
            "type" => {
                let is = |name: &Value| match name.as_str().expect("a text") {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    other => panic!("a type {other}"),
                };
                must(
                    wants.as_array().map_or_else(|| is(wants), |all| all.iter().any(is)),
                    format!("{value} is no {wants}"),
                );
            }
            "const" => must(value == wants, format!("{value} is not {wants}")),
            "enum" => must(wants.as_array().expect("a list").contains(value), format!("{value} is none of {wants}")),
            "minimum" => must(value.as_f64() >= wants.as_f64() || !value.is_number(), format!("{value} < {wants}")),
            "maximum" => must(value.as_f64() <= wants.as_f64() || !value.is_number(), format!("{value} > {wants}")),
            "minItems" => {
                let items = value.as_array().map(|items| items.len() as u64);
                must(items.is_none() || items >= wants.as_u64(), format!("{value} is too short"));
            }
            "anyOf" | "oneOf" => {
                let fitting =
                    wants.as_array().expect("a list").iter().filter(|one| misfits(root, one, value).is_empty());
                let fitting = fitting.count();
                must(
                    if word == "anyOf" { fitting > 0 } else { fitting == 1 },
                    format!("{value} fits {fitting} of {wants}"),
                );
            }
            "required" => {
                for name in wants.as_array().expect("a list") {
                    must(
                        !value.is_object() || value.get(name.as_str().expect("a text")).is_some(),
                        format!("no {name}"),
                    );
                }
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    let inner = misfits(root, wants, item);
                    must(inner.is_empty(), inner.join("; "));
                }
            }
            "properties" => {
                for (name, wants) in wants.as_object().expect("a map") {
                    let inner = value.get(name).map(|value| misfits(root, wants, value)).unwrap_or_default();
                    must(inner.is_empty(), inner.join("; "));
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, value) in value.as_object().into_iter().flatten() {
                    if known.is_none_or(|known| !known.contains_key(name)) {
                        let inner = misfits(root, wants, value);
                        must(inner.is_empty(), format!("{name}: {}", inner.join("; ")));
                    }
                }
            }
            other => panic!("the schema has the word {other}, which this test does not know"),
        }
    }
    found
}
